"""Files of an object store: compare-and-swap by conditional requests, to whatever service (`sfn.store.objects`)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Final

import anyio

from sfn.domain.jobs import StoredObject
from sfn.errors import ExternalError, OutcomeUnknown
from sfn.store import Deleted, Guarantees, PreconditionFailed
from sfn.store.content import MAX_READ_BYTES, check_length
from sfn.store.denials import ERROR_BY_REACH, HINT_FILE_NAME, DenialReach, PermissionTracker
from sfn.store.meanings import ERROR_MAP
from sfn.store.objects import ErrorKind, FetchedObject, ObjectClient, ObjectPage, RequestFailed
from sfn.store.prove import CLEANUP_TIMEOUT, PROBE_PREFIX, StoreProbes

_PER_OBJECT: Final = frozenset({ErrorKind.DENIED, ErrorKind.REJECTED})
"""What a service may say of one object (a policy, a key of KMS, a quota) and of everything."""
PAGE_SIZE: Final = 1000
"""Keys of a listing that are asked for at once: as many as every service gives."""


class StoreService:
    """What was found out about one service: shared by all stores on it, whoever they ask as.

    Args:
        impossible_etag: a tag in its own form that no object has.
        unsafe: `unsafe_unconditional_writes`.
        seconds: a clock that only goes forward.

    Attributes:
        probes: that its buckets honour conditions.
        permissions: what it carries out and what it refuses, for principals of one table each.
        impossible_etag, seconds: as above.
    """

    def __init__(self, impossible_etag: str, *, unsafe: bool = False, seconds: Callable[[], float] = monotonic) -> None:
        self.impossible_etag, self.seconds = impossible_etag, seconds
        self.probes = StoreProbes(impossible_etag=impossible_etag, unsafe=unsafe)
        self.permissions = PermissionTracker(seconds)


class RemoteStore:
    """Implements `ObjectStore` on a service's requests.

    Each write carries a mark of its own. Where a condition did not hold, the mark tells whether it was this very write
    that came first: its answer was lost, and it was sent once more on the way.

    Args:
        objects: the service's requests, as one principal.
        service: what is known of it.
        of_one_table: the principal may work at one table's place only, and can't tell what is permitted elsewhere.
    """

    def __init__(self, client: ObjectClient, service: StoreService, *, of_one_table: bool = False) -> None:
        self._client, self._probes = client, service.probes
        # What one principal may do says nothing about another, unless each has a single table.
        self._permissions = service.permissions if of_one_table else PermissionTracker(service.seconds)
        self._impossible_etag, self._of_one_table = service.impossible_etag, of_one_table
        self._process_id, self._writes = secrets.token_hex(8), count(1)
        self._unreadable: set[str] = set()

    async def read(self, key: str) -> StoredObject | None:
        found = await self._fetch(key)
        return None if found is None else StoredObject(found.body, found.etag)

    async def read_range(self, key: str, start: int, length: int) -> bytes | None:
        try:
            part = await self._client.get_range(key, start, length)
        except RequestFailed as refused:
            if refused.kind is ErrorKind.MISSING or (
                refused.kind is ErrorKind.DENIED and await self._is_listed(key) is False
            ):
                return None
            raise await self._error("read", key, refused) from refused
        self._permissions.note_permitted("read", key)
        return part

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        check_length(key, body)
        self._probes.check_not_refused(key)
        write_id = f"{self._process_id}-{next(self._writes)}"
        try:
            condition = None if replacing is None else self._probes.etag_condition(key, replacing.etag)
            etag = await self._client.put(key, body, condition, write_id)
        except RequestFailed as refused:
            # An object that is not there has no tag: that is how some services answer a replacement.
            if refused.kind in {ErrorKind.PRECONDITION_FAILED, ErrorKind.MISSING}:
                return await self._resolve_lost_answer(key, body, write_id, refused)
            raise await self._error("write", key, refused, changes=True) from refused
        self._permissions.note_permitted("write", key)
        self._unreadable.discard(key)
        return StoredObject(body, etag)

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        self._probes.check_not_refused(key)
        try:
            await self._client.delete(key, self._probes.etag_condition(key, expected.etag))
        except RequestFailed as refused:
            if refused.kind is ErrorKind.MISSING:
                return Deleted()
            if refused.kind is ErrorKind.PRECONDITION_FAILED:
                return Deleted() if await self._fetch(key) is None else PreconditionFailed()
            raise await self._error("delete", key, refused, changes=True) from refused
        self._permissions.note_permitted("delete", key)
        return Deleted()

    async def discard(self, key: str) -> None:
        """Delete a file of the proof, whatever it holds. Nothing else may be deleted so.

        Raises:
            Trouble: as `delete`.
        """
        try:
            await self._client.delete(key, None)
        except RequestFailed as refused:
            if refused.kind is not ErrorKind.MISSING:
                raise await self._error("delete", key, refused, changes=True) from refused

    async def list(self, prefix: str, limit: int) -> list[str]:
        keys: dict[str, None] = {}
        continuation: str | None = None
        earlier: set[str | None] = set()
        while len(keys) < limit:
            try:
                page = await self._page(prefix, min(PAGE_SIZE, limit - len(keys)), continuation, earlier)
            except RequestFailed as refused:
                raise await self._error("list", prefix, refused) from refused
            self._permissions.note_permitted("list", prefix)
            # A console makes folders as objects, empty and named as the prefix itself. Some services pass over the
            # prefix or the delimiter.
            keys |= dict.fromkeys(key for key in page.keys if key.rpartition("/")[0] + "/" == prefix and key != prefix)
            continuation = page.next
            if continuation is None:
                break
        return sorted(keys)[:limit]

    async def probe(self, key: str) -> Guarantees:
        return await self._probes.guarantees(self, key)

    async def close(self) -> None:
        """As `ObjectClient.close`."""
        await self._client.close()

    async def _page(self, prefix: str, limit: int, continuation: str | None, earlier: set[str | None]) -> ObjectPage:
        """A page of a listing.

        Args:
            earlier: where all pages before began; this one is added.

        Raises:
            Refused: the listing does not go on.
        """
        if continuation == "" or continuation in earlier:
            raise RequestFailed(ErrorKind.NO_ANSWER, "a listing that says that there is more, and does not say where")
        earlier.add(continuation)
        return await self._client.list_page(prefix, limit, continuation)

    async def _fetch(self, key: str) -> FetchedObject | None:
        """What lies at a key, None for nothing.

        Whoever may not list a whole bucket is denied to read what is not there. A listing of the one key tells the
        difference, and where that is denied too, the creation of the file does: it is taken for missing until then.
        """
        try:
            found = await self._client.get(key, MAX_READ_BYTES)
        except RequestFailed as refused:
            if refused.kind is ErrorKind.MISSING or (
                refused.kind is ErrorKind.DENIED and await self._may_be_absent(key)
            ):
                return None
            raise await self._error("read", key, refused) from refused
        self._permissions.note_permitted("read", key)
        return found

    async def _may_be_absent(self, key: str) -> bool:
        """Whether nothing lies at a key that may not be read, as far as anybody can tell."""
        listed = await self._is_listed(key)
        if listed is None:
            self._unreadable.add(key)
        return not listed

    async def _is_listed(self, key: str) -> bool | None:
        """Return True if a listing shows a key, None if listings are denied."""
        try:
            page = await self._client.list_page(key, 1, None)
        except RequestFailed as refused:
            if refused.kind is not ErrorKind.DENIED:
                raise await self._error("list", key, refused) from refused
            return None
        return key in page.keys

    async def _resolve_lost_answer(
        self, key: str, body: bytes, write_id: str, refused: RequestFailed
    ) -> StoredObject | PreconditionFailed:
        """What a write came to whose condition did not hold."""
        found = await self._fetch(key)
        if found is None and key in self._unreadable:
            self._unreadable.discard(key)
            denied = RequestFailed(ErrorKind.DENIED, f"that the object is there and may not be read ({refused.found})")
            raise await self._error("read", key, denied)
        return (
            StoredObject(body, found.etag) if found is not None and found.write_id == write_id else PreconditionFailed()
        )

    async def _error(self, verb: str, key: str, refused: RequestFailed, *, changes: bool = False) -> ExternalError:
        meaning = ERROR_MAP[refused.kind]
        error: type[ExternalError] = meaning.error
        scope = meaning.scope
        if refused.kind in _PER_OBJECT:
            denied, scope = ERROR_BY_REACH[await self._reach(verb, key)]
            error = denied if refused.kind is ErrorKind.DENIED else error
        return (OutcomeUnknown if changes and refused.kind in {ErrorKind.NO_ANSWER, ErrorKind.NO_ETAG} else error)(
            key,
            scope=scope,
            expected=meaning.expected.format(verb),
            found=refused.found,
            remedy=refused.remedy or meaning.remedy,
            retry_after=refused.retry_after,
        )

    async def _reach(self, verb: str, key: str) -> DenialReach:
        witnesses = self._permissions.note_denied(verb, key)
        answer = None
        for witness in () if self._of_one_table else witnesses:
            answer = await self._is_permitted_at(witness, verb)
            if answer:
                break
        return self._permissions.judge(verb, key, elsewhere=answer)

    async def _is_permitted_at(self, witness: str, verb: str) -> bool | None:
        """Whether a verb is carried out where it was before; None where the answer is no clear one.

        What changes something is tried on a file of its own beside the witness. The witness is another table's live
        file, and a condition that protected it when the store was proven may be lost since.
        """
        try:
            if verb == "read":
                await self._client.get_range(witness, 0, 1)
            elif verb == "list":
                await self._client.list_page(witness, 1, None)
            elif verb == "write":
                await self._try_write(_probe_key(witness))
            else:
                # Nothing lies there: a file would stay behind where deletions are denied.
                guarantees = self._probes.known_guarantees(witness)
                is_conditional = guarantees is not None and guarantees.conditional_delete
                impossible_etag = (
                    self._probes.etag_condition(witness, self._impossible_etag) if is_conditional else None
                )
                await self._client.delete(_probe_key(witness), impossible_etag)
        except RequestFailed as refused:
            if refused.kind in _PER_OBJECT:
                return False
            # It got as far as the condition, or as the object that is gone.
            return True if refused.kind in {ErrorKind.PRECONDITION_FAILED, ErrorKind.MISSING} else None
        return True

    async def _try_write(self, key: str) -> None:
        """Create a file of our own, and delete it.

        Raises:
            Refused: it was not created.
        """
        # A stop must not leave the file behind.
        with anyio.CancelScope(shield=True):
            await self._client.put(key, b"", None, f"{self._process_id}-0")
            with suppress(ExternalError), anyio.move_on_after(CLEANUP_TIMEOUT):
                await self.discard(key)


def _probe_key(witness: str) -> str:
    """The key of a file of our own in a file's folder. A policy may deny hints by how their names end."""
    folder, _, name = witness.rpartition("/")
    return f"{folder}/{PROBE_PREFIX}{secrets.token_hex(8)}{f'-{name}' if name == HINT_FILE_NAME else '.json'}"
