"""The probe of a store: does it honour the conditions of writes? Tried on a separate file, never read from a version.

A store is probed before anything else is written to it, and never with a table's file. The probe tries conditions that
must fail and conditions that must hold: a store that refuses every condition looks safe, but never accepts a second
commit.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import anyio

from sfn.domain.jobs import StoredObject
from sfn.errors import FORBIDDEN_ERRORS, ErrorScope, ExternalError, OutcomeUnknown, Permanent, SfnError
from sfn.storage import Deleted, ErrorKind, Guarantees, PreconditionFailed, RequestFailed

PROBE_PREFIX: Final = "sfn-probe-"
"""Prefix of the name of a probe's file. Readers ignore it, as it is no `.ver` file."""
_PROBE_BYTES: Final = 1024
"""Bytes of that file: about the length of a document, and enough for proxies to compress it."""
CLEANUP_TIMEOUT: Final = 5.0
"""Seconds for the removal of the file; a stop of the process waits for it."""
_TAG_SHOWN: Final = 80
"""Characters of an entity tag in a message."""
_UNSAFE: Final = (
    "set `stores.NAME.unsafe_unconditional_writes = true` for a single replica and lose what the condition is for: a "
    "writer that was suspended may put an older pointer over a newer one, and readers go back until the next publish"
)
EtagForm: TypeAlias = Callable[[str], str]
"""Function that writes an etag as a condition."""
_EXPECTED: Final = "a store that keeps the conditions of writes"
_REQUEST_REJECTED: Final = frozenset({ErrorKind.INVALID_OBJECT, ErrorKind.REJECTED})
"""Kinds of answers to a request that the service does not accept."""


@dataclass(frozen=True, slots=True)
class ProbeFault:
    """The reason why a store is refused.

    Attributes:
        found: the store's behaviour.
        remedy: the remedy.
        can_be_overridden: True if `unsafe_unconditional_writes` overrides the fault: the store accepts too many writes,
            not too few.
    """

    found: str
    remedy: str
    can_be_overridden: bool = False


_IGNORES_CREATION: Final = ProbeFault(
    "a store that replaces a file on a write that may only create it (If-None-Match)",
    f"use a store with conditional writes, or pass that header on in the proxies before it; or {_UNSAFE}",
    can_be_overridden=True,
)
_IGNORES_TAG: Final = ProbeFault(
    "a store that replaces a file on a write that names an entity tag other than the file's (If-Match)",
    f"use a store with conditional writes, or pass that header on in the proxies before it; or {_UNSAFE}",
    can_be_overridden=True,
)
_CREATES: Final = ProbeFault(
    "a store that creates a file on a write that may only replace one (If-Match on a missing key)",
    f"upgrade the store (MinIO before September 2025 does so) or use another; or {_UNSAFE}",
    can_be_overridden=True,
)
_REFUSES_CREATION: Final = ProbeFault(
    "a store that refuses to create a file although there is none (If-None-Match)",
    "upgrade the store, or use another",
)
_UNSEEN: Final = ProbeFault(
    "a store that does not show a file that was just written",
    "use a store that is consistent after each write, or switch off the caches in front of it",
)
_OLD: Final = ProbeFault(
    "a store that shows the old content of a file that was just replaced",
    "use a store that is consistent after each write, or switch off the caches in front of it",
)
_OTHER_CONTENT: Final = ProbeFault(
    "a store that does not give back the bytes that were written",
    "find the proxy in front of the store that changes bodies, and switch that off",
)
_ONE_TAG: Final = ProbeFault(
    "a store that gives two contents of a file the same entity tag",
    "use a store with entity tags that are made of the content or of each write, not of the time in seconds",
)
_TAGLESS: Final = ProbeFault(
    "a store that answers without an entity tag (ETag)",
    "pass that header on in the store's proxies, and switch off compression there; or use another store",
)


class StoreUnfit(Permanent):
    """A store that the probe refused."""

    def __init__(self, where: str, fault: ProbeFault) -> None:
        super().__init__(where, scope=ErrorScope.STORE, expected=_EXPECTED, found=fault.found, remedy=fault.remedy)
        self.fault = fault


class _RejectsValidWrite(StoreUnfit):
    """A store that refuses a write with a valid condition.

    Attributes:
        etag: the etag, as the store gave it.
    """

    def __init__(self, where: str, tag: str) -> None:
        why = ", a weak one, which is never equal to another" if tag.startswith("W/") else ""
        super().__init__(
            where,
            ProbeFault(
                f"a store that refuses to replace a file of the entity tag that If-Match names ({_shown(tag)}{why})",
                "upgrade the store, or use another; and switch off what changes entity tags in the proxies before it, "
                "such as compression",
            ),
        )
        self.etag = tag


class ProbedStore(Protocol):
    """The methods of `ObjectStore` that a probe needs, and one more."""

    async def read(self, key: str) -> StoredObject | None: ...

    async def write(
        self, key: str, body: bytes, replacing: StoredObject | None
    ) -> StoredObject | PreconditionFailed: ...

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed: ...

    async def discard(self, key: str) -> None:
        """Delete a file, whatever its content; do nothing if there is none."""
        ...


class StoreProbes:
    """The probes of a service's buckets. Each bucket is probed, as two may be of different kinds.

    Args:
        impossible_etag: an etag in the store's own form that no file ever has.
        unsafe: `unsafe_unconditional_writes`: a store that ignores conditions is reported, not refused.
    """

    def __init__(self, *, impossible_etag: str, unsafe: bool = False) -> None:
        self._impossible_etag, self._unsafe = impossible_etag, unsafe
        self._locks: dict[str, anyio.Lock] = {}
        self._guarantees: dict[str, Guarantees] = {}
        self._refused: dict[str, StoreUnfit] = {}
        self._forms: dict[str, EtagForm] = {}

    def known_guarantees(self, key: str) -> Guarantees | None:
        """Return the proven guarantees of a key's bucket, None before the probe."""
        return self._guarantees.get(_bucket(key))

    async def guarantees(self, store: ProbedStore, key: str) -> Guarantees:
        """Return the guarantees of a key's bucket; the first call probes it, and so does every call after a failure.

        Concurrent callers share one probe. The probe itself cannot be cancelled, the wait for another caller's can.

        Raises:
            StoreUnfit: the store does not honour conditions.
            ExternalError: another failure of the store.
        """
        bucket = _bucket(key)
        known = self._guarantees.get(bucket)
        if known is not None:
            return known
        async with self._locks.setdefault(bucket, anyio.Lock()):
            # Shielded, so that a stop of the process does not leave the probe's file behind.
            with anyio.CancelScope(shield=True):
                if bucket not in self._guarantees:
                    self._guarantees[bucket] = await self._probe(store, key, bucket)
                return self._guarantees[bucket]
        raise AssertionError("a shielded scope was cancelled")

    def check_not_refused(self, key: str) -> None:
        """Refuse a key of a refused bucket.

        Raises:
            StoreUnfit: the fault that the last probe found.
        """
        refused = self._refused.get(_bucket(key))
        if refused is not None:
            raise StoreUnfit(refused.where, refused.fault)

    def etag_condition(self, key: str, tag: str) -> str:
        """Return an etag in the form that the key's bucket accepts as a condition."""
        form = self._forms.get(_bucket(key))
        return tag if form is None else form(tag)

    async def _probe(self, store: ProbedStore, key: str, bucket: str) -> Guarantees:
        self._refused.pop(bucket, None)
        try:
            return await probe(store, key, impossible_etag=self._impossible_etag, unsafe=self._unsafe)
        except _RejectsValidWrite as refuses:
            for form in (without_quotes, as_strong):
                if form(refuses.etag) != refuses.etag:
                    with suppress(StoreUnfit):
                        return await self._probe_with_form(form, store, key, bucket)
            self._refused[bucket] = refuses
            raise
        except StoreUnfit as unfit:
            self._refused[bucket] = unfit
            raise

    async def _probe_with_form(self, form: EtagForm, store: ProbedStore, key: str, bucket: str) -> Guarantees:
        """Repeat the whole probe with etags in another form, which is used from then on if the probe succeeds."""
        self._forms[bucket] = form
        try:
            return await probe(store, key, impossible_etag=self._impossible_etag, unsafe=False)
        except BaseException:
            del self._forms[bucket]
            raise


def without_quotes(tag: str) -> str:
    """Return an etag without its quotes: some services accept no other form."""
    return tag.removeprefix("W/").strip('"')


def as_strong(tag: str) -> str:
    """Return the etag that a proxy made weak."""
    return tag.removeprefix("W/")


async def probe(store: ProbedStore, key: str, *, impossible_etag: str, unsafe: bool) -> Guarantees:
    """Try every condition on a separate file, which is deleted in the end.

    Args:
        key: a file of a table, existing or not. The probe's file lies next to it.
        impossible_etag, unsafe: see `StoreProbes`.

    Raises:
        StoreUnfit: the store does not honour conditions.
        ExternalError: another failure of the store.
    """
    folder = key.rpartition("/")[0]
    trial = _Probe(store, f"{folder}/{PROBE_PREFIX}{secrets.token_hex(8)}.json", folder)
    try:
        stale, held = await trial.check_swap()
        deletes = await trial.check_delete(stale, held)
        stays_deleted = await trial.check_stays_deleted(held, impossible_etag)
    except SfnError as error:
        await trial.clean()
        if unsafe and isinstance(error, StoreUnfit) and error.fault.can_be_overridden:
            return Guarantees(swap=False, conditional_delete=False)
        raise
    return Guarantees(swap=True, conditional_delete=deletes and stays_deleted)


class _Probe:
    """One probe, on one file.

    Args:
        key: the key of that file, which does not exist.
        folder: the folder that errors name.
    """

    def __init__(self, store: ProbedStore, key: str, folder: str) -> None:
        self._store, self._key, self._folder = store, key, folder
        self._is_written = False

    async def clean(self) -> None:
        """Delete the file if it may exist. A failure here, or a store that does not answer, hides no other error."""
        if self._is_written:
            with suppress(SfnError), anyio.move_on_after(CLEANUP_TIMEOUT):
                await self._store.discard(self._key)

    async def check_swap(self) -> tuple[StoredObject, StoredObject]:
        """Create the file, and replace it.

        Returns:
            The file before and after the replacement.
        """
        stale = await self._create(_body())
        await self._check_refused("If-None-Match", None, _IGNORES_CREATION)
        held = await self._replace(_body(), stale)
        await self._check_refused("If-Match", stale, _IGNORES_TAG)
        return stale, held

    async def check_delete(self, stale: StoredObject, held: StoredObject) -> bool:
        """Delete the file; return False if the store deletes with a stale etag, too, or without one."""
        for expected, answer in ((stale, PreconditionFailed()), (held, Deleted())):
            try:
                if await self._store.delete(self._key, expected) == answer:
                    continue
            except ExternalError as error:
                if _error_kind(error) not in {ErrorKind.UNSUPPORTED, *_REQUEST_REJECTED}:
                    raise
            await self._store.discard(self._key)
            return False
        return True

    async def check_stays_deleted(self, held: StoredObject, impossible_etag: str) -> bool:
        """Try to replace the deleted file.

        Returns:
            False if the store compares with the deleted version, as some do in buckets that keep versions. Then files
            must not be deleted at all, or a stale write could bring one back.
        """
        comes_back = await self._accepts_write(held)
        if comes_back:
            await self._store.discard(self._key)
        if await self._accepts_write(StoredObject(held.body, impossible_etag)):
            raise self._unfit_error(_CREATES)
        return not comes_back

    async def _create(self, body: bytes) -> StoredObject:
        self._is_written = True
        try:
            made = await self._store.write(self._key, body, replacing=None)
        except ExternalError as error:
            self._is_written = isinstance(error, OutcomeUnknown)
            # The key can be read, so it can be written: the store rejects the condition, not the key.
            if _error_kind(error) in _REQUEST_REJECTED and await self._store.read(self._key) is None:
                raise self._unfit_error(_unsupported_header("If-None-Match", error)) from error
            raise self._or_tagless(error) from error
        held = await self._read()
        if isinstance(made, PreconditionFailed):
            if held is None or held.body != body:
                raise self._unfit_error(_REFUSES_CREATION)
            return held
        if held is None:
            raise self._unfit_error(_UNSEEN)
        return self._check_content(held, made)

    async def _replace(self, body: bytes, replacing: StoredObject) -> StoredObject:
        try:
            made = await self._store.write(self._key, body, replacing)
        except ExternalError as error:
            if _error_kind(error) in _REQUEST_REJECTED:
                raise self._unfit_error(_unsupported_header("If-Match", error)) from error
            raise self._or_tagless(error) from error
        if isinstance(made, PreconditionFailed):
            raise _RejectsValidWrite(self._folder, replacing.etag)
        held = await self._read()
        if held is None or held.body == replacing.body:
            raise self._unfit_error(_OLD)
        if held.etag == replacing.etag:
            raise self._unfit_error(_ONE_TAG)
        return self._check_content(held, made)

    async def _check_refused(self, header: str, replacing: StoredObject | None, fault: ProbeFault) -> None:
        """Try a write with a stale condition. Only the answer of a lost race is right."""
        try:
            written = await self._store.write(self._key, _body(), replacing)
        except ExternalError as error:
            if _error_kind(error) in _REQUEST_REJECTED:
                raise self._unfit_error(_unsupported_header(header, error)) from error
            raise
        if isinstance(written, StoredObject):
            raise self._unfit_error(fault)

    async def _accepts_write(self, replacing: StoredObject) -> bool:
        """Return True if the store accepts a write with a stale condition."""
        try:
            return isinstance(await self._store.write(self._key, _body(), replacing), StoredObject)
        except FORBIDDEN_ERRORS:
            # Without the permission to list, this is the answer for a missing object.
            return False
        except ExternalError as error:
            if _error_kind(error) not in _REQUEST_REJECTED:
                raise
            return False

    async def _read(self) -> StoredObject | None:
        try:
            return await self._store.read(self._key)
        except ExternalError as error:
            raise self._or_tagless(error) from error

    def _check_content(self, held: StoredObject, made: StoredObject) -> StoredObject:
        """Return the file that was read if it is the one that was written."""
        if held.body != made.body:
            raise self._unfit_error(_OTHER_CONTENT)
        if held.etag != made.etag:
            raise self._unfit_error(_other_tag(made.etag, held.etag))
        return held

    def _or_tagless(self, error: ExternalError) -> ExternalError:
        return self._unfit_error(_TAGLESS) if _error_kind(error) is ErrorKind.NO_ETAG else error

    def _unfit_error(self, fault: ProbeFault) -> StoreUnfit:
        return StoreUnfit(self._folder, fault)


def _body() -> bytes:
    """Return a new content; all contents have the same length."""
    head = b'{"written by the probe of a store": "%b", "filling": "' % secrets.token_hex(8).encode()
    return head + b"." * (_PROBE_BYTES - len(head) - 2) + b'"}'


def _other_tag(written: str, read: str) -> ProbeFault:
    return ProbeFault(
        f"a store that answers a write with one entity tag ({_shown(written)}) and a read of the file with another "
        f"({_shown(read)})",
        "switch off compression in the store's proxies, which changes etags; or use another store",
    )


def _shown(tag: str) -> str:
    return tag if len(tag) <= _TAG_SHOWN else f"{tag[:_TAG_SHOWN]}…"


def _unsupported_header(header: str, error: ExternalError) -> ProbeFault:
    return ProbeFault(
        f"a store that does not support conditional writes: it answers {header} with {error.found}",
        "use another store, or upgrade it",
    )


def _error_kind(error: ExternalError) -> ErrorKind | None:
    """Return why the service refused the request behind an error, None for another cause."""
    return error.__cause__.kind if isinstance(error.__cause__, RequestFailed) else None


def _bucket(key: str) -> str:
    return key.split("/", 3)[2]
