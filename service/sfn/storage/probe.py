"""The proof that a store honours conditions: tried on a file of its own, never read off a version or a feature list.

A store is proven before anything else is written to it, and no file of a table is ever part of the proof. The proof
tries conditions that must fail and conditions that must hold: a store that refuses every condition looks safe, and
never takes a second commit.
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
"""How the name of a proof's file begins. Readers pass it over: it is no `.ver` file."""
_PROBE_BYTES: Final = 1024
"""Bytes of that file: proxies compress no less, and documents are about as long."""
CLEANUP_TIMEOUT: Final = 5.0
"""Seconds: a stop of the process waits for them."""
_TAG_SHOWN: Final = 80
"""Characters of an entity tag in a message."""
_UNSAFE: Final = (
    "set `stores.NAME.unsafe_unconditional_writes = true` for a single replica and lose what the condition is for: a "
    "writer that was suspended may put an older pointer over a newer one, and readers go back until the next publish"
)
EtagForm: TypeAlias = Callable[[str], str]
"""How a tag is written in a condition."""
_EXPECTED: Final = "a store that keeps the conditions of writes"
_REQUEST_REJECTED: Final = frozenset({ErrorKind.INVALID_OBJECT, ErrorKind.REJECTED})
"""What a service says of a request that it does not take."""


@dataclass(frozen=True, slots=True)
class ProbeFault:
    """Why a store is refused.

    Attributes:
        found: what the store does.
        remedy: what helps.
        can_be_overridden: `unsafe_unconditional_writes` overrides it: the store takes more writes than it may, not
            fewer.
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
    "a store that refuses to create a file although nothing lies there (If-None-Match)",
    "upgrade the store, or use another",
)
_UNSEEN: Final = ProbeFault(
    "a store that does not show a file that was just written",
    "use a store that is consistent after each write, or switch off the caches before it",
)
_OLD: Final = ProbeFault(
    "a store that shows the old content of a file that was just replaced",
    "use a store that is consistent after each write, or switch off the caches before it",
)
_OTHER_CONTENT: Final = ProbeFault(
    "a store that does not give back the bytes that were written",
    "find the proxy before the store that changes bodies, and switch that off",
)
_ONE_TAG: Final = ProbeFault(
    "a store that gives two contents of a file the same entity tag",
    "use a store with entity tags that are made of the content or of each write, not of the time in seconds",
)
_TAGLESS: Final = ProbeFault(
    "a store that answers without an entity tag (ETag)",
    "pass that header on in the proxies before the store, and switch off compression there; or use another store",
)


class StoreUnfit(Permanent):
    """A store that was refused."""

    def __init__(self, where: str, fault: ProbeFault) -> None:
        super().__init__(where, scope=ErrorScope.STORE, expected=_EXPECTED, found=fault.found, remedy=fault.remedy)
        self.fault = fault


class _RejectsValidWrite(StoreUnfit):
    """A store that refuses a write although its condition holds.

    Attributes:
        etag: the entity tag, as the store gave it.
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
    """The verbs of `ObjectStore` that a proof needs, and one more."""

    async def read(self, key: str) -> StoredObject | None: ...

    async def write(
        self, key: str, body: bytes, replacing: StoredObject | None
    ) -> StoredObject | PreconditionFailed: ...

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed: ...

    async def discard(self, key: str) -> None:
        """Delete a file, whatever it holds; nothing happens where none is."""
        ...


class StoreProbes:
    """The proofs of a service's buckets: two buckets may be of different kinds.

    Args:
        made_up: a tag in the store's own form that no file of it ever has.
        unsafe: `unsafe_unconditional_writes`: a store that ignores conditions is reported, not refused.
    """

    def __init__(self, *, impossible_etag: str, unsafe: bool = False) -> None:
        self._impossible_etag, self._unsafe = impossible_etag, unsafe
        self._locks: dict[str, anyio.Lock] = {}
        self._guarantees: dict[str, Guarantees] = {}
        self._refused: dict[str, StoreUnfit] = {}
        self._forms: dict[str, EtagForm] = {}

    def known_guarantees(self, key: str) -> Guarantees | None:
        """Return what the bucket of a key was proven to do, None before."""
        return self._guarantees.get(_bucket(key))

    async def guarantees(self, store: ProbedStore, key: str) -> Guarantees:
        """Return what the bucket of a key guarantees; it is tried the first time. A failure is tried again.

        Callers at the same time share one proof. Only the proof itself can't be cancelled, not the wait for that of
        another caller.

        Raises:
            Unfit: the store does not honour conditions.
            Trouble: another failure of the store.
        """
        bucket = _bucket(key)
        known = self._guarantees.get(bucket)
        if known is not None:
            return known
        async with self._locks.setdefault(bucket, anyio.Lock()):
            # A stop must not leave the proof's file behind.
            with anyio.CancelScope(shield=True):
                if bucket not in self._guarantees:
                    self._guarantees[bucket] = await self._probe(store, key, bucket)
                return self._guarantees[bucket]
        raise AssertionError("a shielded scope was cancelled")

    def check_not_refused(self, key: str) -> None:
        """Refuse a key of a refused bucket.

        Raises:
            Unfit: as the last proof.
        """
        refused = self._refused.get(_bucket(key))
        if refused is not None:
            raise StoreUnfit(refused.where, refused.fault)

    def etag_condition(self, key: str, tag: str) -> str:
        """Return a tag in the form in which the bucket of a key takes it as a condition."""
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
        """Try the whole proof with tags in another form, which stays if the store is proven."""
        self._forms[bucket] = form
        try:
            return await probe(store, key, impossible_etag=self._impossible_etag, unsafe=False)
        except BaseException:
            del self._forms[bucket]
            raise


def without_quotes(tag: str) -> str:
    """Return an entity tag without its quotes: some services take no other."""
    return tag.removeprefix("W/").strip('"')


def as_strong(tag: str) -> str:
    """Return the entity tag that a proxy made weak."""
    return tag.removeprefix("W/")


async def probe(store: ProbedStore, key: str, *, impossible_etag: str, unsafe: bool) -> Guarantees:
    """Try every condition on a file of its own, which is gone in the end.

    Args:
        key: a file of a table, there or not. The proof's file lies beside it.
        impossible_etag, unsafe: see `StoreProbes`.

    Raises:
        Unfit: the store does not honour conditions.
        Trouble: another failure of the store.
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
    """One proof, on one file.

    Args:
        key: of that file; nothing lies there.
        folder: what errors name.
    """

    def __init__(self, store: ProbedStore, key: str, folder: str) -> None:
        self._store, self._key, self._folder = store, key, folder
        self._is_written = False

    async def clean(self) -> None:
        """Delete the file if it may be there. A failure, or a store that does not answer, hides no other error."""
        if self._is_written:
            with suppress(SfnError), anyio.move_on_after(CLEANUP_TIMEOUT):
                await self._store.discard(self._key)

    async def check_swap(self) -> tuple[StoredObject, StoredObject]:
        """Create the file, and replace it.

        Returns:
            the file before, and now.
        """
        stale = await self._create(_body())
        await self._check_refused("If-None-Match", None, _IGNORES_CREATION)
        held = await self._replace(_body(), stale)
        await self._check_refused("If-Match", stale, _IGNORES_TAG)
        return stale, held

    async def check_delete(self, stale: StoredObject, held: StoredObject) -> bool:
        """Delete the file; return False where the store deletes on a stale tag too, or on none."""
        for expected, answer in ((stale, PreconditionFailed()), (held, Deleted())):
            try:
                if await self._store.delete(self._key, expected) == answer:
                    continue
            except ExternalError as trouble:
                if _error_kind(trouble) not in {ErrorKind.UNSUPPORTED, *_REQUEST_REJECTED}:
                    raise
            await self._store.discard(self._key)
            return False
        return True

    async def check_stays_deleted(self, held: StoredObject, impossible_etag: str) -> bool:
        """Try to replace the file, which is gone.

        Returns:
            False where the store compares with what was deleted, as some do in buckets that keep versions. A file that
            is never deleted never comes back by that.
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
        except ExternalError as trouble:
            self._is_written = isinstance(trouble, OutcomeUnknown)
            # A key that is fit to be read is fit to be written: it is the condition that the store does not take.
            if _error_kind(trouble) in _REQUEST_REJECTED and await self._store.read(self._key) is None:
                raise self._unfit_error(_unsupported_header("If-None-Match", trouble)) from trouble
            raise self._or_tagless(trouble) from trouble
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
        except ExternalError as trouble:
            if _error_kind(trouble) in _REQUEST_REJECTED:
                raise self._unfit_error(_unsupported_header("If-Match", trouble)) from trouble
            raise self._or_tagless(trouble) from trouble
        if isinstance(made, PreconditionFailed):
            raise _RejectsValidWrite(self._folder, replacing.etag)
        held = await self._read()
        if held is None or held.body == replacing.body:
            raise self._unfit_error(_OLD)
        if held.etag == replacing.etag:
            raise self._unfit_error(_ONE_TAG)
        return self._check_content(held, made)

    async def _check_refused(self, header: str, replacing: StoredObject | None, fault: ProbeFault) -> None:
        """Try a write with a condition that does not hold. Only the answer of a lost race is right."""
        try:
            written = await self._store.write(self._key, _body(), replacing)
        except ExternalError as trouble:
            if _error_kind(trouble) in _REQUEST_REJECTED:
                raise self._unfit_error(_unsupported_header(header, trouble)) from trouble
            raise
        if isinstance(written, StoredObject):
            raise self._unfit_error(fault)

    async def _accepts_write(self, replacing: StoredObject) -> bool:
        """Return True if the store takes a write with a condition that does not hold."""
        try:
            return isinstance(await self._store.write(self._key, _body(), replacing), StoredObject)
        except FORBIDDEN_ERRORS:
            # Without the permission to list, that is the answer to what is missing.
            return False
        except ExternalError as trouble:
            if _error_kind(trouble) not in _REQUEST_REJECTED:
                raise
            return False

    async def _read(self) -> StoredObject | None:
        try:
            return await self._store.read(self._key)
        except ExternalError as trouble:
            raise self._or_tagless(trouble) from trouble

    def _check_content(self, held: StoredObject, made: StoredObject) -> StoredObject:
        """Return what was read if that is what was written."""
        if held.body != made.body:
            raise self._unfit_error(_OTHER_CONTENT)
        if held.etag != made.etag:
            raise self._unfit_error(_other_tag(made.etag, held.etag))
        return held

    def _or_tagless(self, trouble: ExternalError) -> ExternalError:
        return self._unfit_error(_TAGLESS) if _error_kind(trouble) is ErrorKind.NO_ETAG else trouble

    def _unfit_error(self, fault: ProbeFault) -> StoreUnfit:
        return StoreUnfit(self._folder, fault)


def _body() -> bytes:
    """Return a new content, always of the same length."""
    head = b'{"written by the proof of a store": "%b", "filling": "' % secrets.token_hex(8).encode()
    return head + b"." * (_PROBE_BYTES - len(head) - 2) + b'"}'


def _other_tag(written: str, read: str) -> ProbeFault:
    return ProbeFault(
        f"a store that answers a write with one entity tag ({_shown(written)}) and a read of the file with another "
        f"({_shown(read)})",
        "switch off compression in the proxies before the store, which changes entity tags; or use another store",
    )


def _shown(tag: str) -> str:
    return tag if len(tag) <= _TAG_SHOWN else f"{tag[:_TAG_SHOWN]}…"


def _unsupported_header(header: str, trouble: ExternalError) -> ProbeFault:
    return ProbeFault(
        f"a store that does not know conditional writes: it answers {header} with {trouble.found}",
        "use another store, or upgrade it",
    )


def _error_kind(trouble: ExternalError) -> ErrorKind | None:
    """Return why the service refused the request behind a trouble, None for another cause."""
    return trouble.__cause__.kind if isinstance(trouble.__cause__, RequestFailed) else None


def _bucket(key: str) -> str:
    return key.split("/", 3)[2]
