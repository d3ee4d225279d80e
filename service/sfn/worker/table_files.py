"""The files of one table as they are now, for operators; never in the way of the worker."""

from __future__ import annotations

import heapq
import zlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import anyio
import msgspec

from sfn.clock import Clock, format_duration
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, SfnError
from sfn.inbox.model import Job
from sfn.sfnfile import version_hint
from sfn.sfnfile.locations import canonical, decompress, store_prefix
from sfn.sfnfile.naming import FileLayout, FileOwner
from sfn.storage import ObjectStore, StoreRouter
from sfn.worker.capacity import CircuitBreakerState

T = TypeVar("T")

READ_TIMEOUT: Final = 3.0
"""Seconds for all reads of one table. An operator waits for them."""
READ_PAUSE: Final = timedelta(seconds=30)
"""Time without reads of operators after a store did not answer: a read of a mount that hangs occupies a thread."""
MAX_LAYOUTS: Final = 3
"""Most places at which files of a table are read."""
MAX_METADATA_BYTES: Final = 4 * 2**20
"""Most bytes of JSON in metadata that is decoded, in a few milliseconds, while the event loop waits."""
MAX_SNAPSHOTS: Final = 20
MAX_REFS: Final = 50
_PART_BYTES: Final = 2**20
_LAST_MILLISECOND: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOO_LARGE: Final = (
    f"the metadata is too large to show: more than {MAX_METADATA_BYTES // 2**20} MiB; "
    "`sfn history` shows the commits of the table"
)


@dataclass(frozen=True, slots=True)
class FileNow:
    """A file as it is now.

    Attributes:
        key: its location.
        body: its content, or the beginning; None if there is no such file, or no answer.
        error: why there is no answer; empty if there is one.
    """

    key: str
    body: bytes | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ShownSnapshot:
    """A snapshot.

    Attributes:
        id: its id.
        at: its time; None for a time that is not valid.
        operation: `append`, `overwrite`, `delete` or `replace`; empty if the metadata does not say it.
        refs: the branches and tags that point to it.
        is_current: True for the head of `main`.
    """

    id: int
    at: datetime | None
    operation: str
    refs: tuple[str, ...] = ()
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class MetadataNow:
    """What the metadata file says that the SFN file names.

    Attributes:
        key: the location of the metadata file.
        snapshots: the newest snapshots, newest first.
        total: the number of all snapshots.
        refs: names, kinds and snapshot ids of the branches and tags, in order.
        error: why nothing is shown; empty if all is well.
    """

    key: str
    snapshots: tuple[ShownSnapshot, ...] = ()
    total: int = 0
    refs: tuple[tuple[str, str, int], ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class TableFilesNow:
    """The files of a table as they are now.

    Attributes:
        sfn_files: the main SFN file of each place where the table may have one.
        version_hint: the version hint; None where the table has none.
        metadata: the metadata file that the SFN file names; None if there is no live SFN file.
    """

    sfn_files: tuple[FileNow, ...] = ()
    version_hint: FileNow | None = None
    metadata: MetadataNow | None = None


class TableFileQueries:
    """Reads of the files of single tables, with the stores of this process.

    An operator's read is not sent while the circuit breaker of the store is not closed, while another one of the same
    store runs, or soon after one that had no answer. So operators use few connections, or threads, of a store that
    hangs.

    Args:
        stores_for: returns the stores of a table.
        prefixes: the configured prefixes of stores.
        breakers: returns the breakers that are not closed.
        clock: the wall clock.
        timeout: seconds for all reads of one table.
    """

    def __init__(
        self,
        stores_for: Callable[[TableIdentifier], StoreRouter],
        prefixes: Collection[str],
        breakers: Callable[[], Collection[CircuitBreakerState]],
        clock: Clock,
        timeout: float = READ_TIMEOUT,
    ) -> None:
        self._stores_for, self._prefixes, self._breakers = stores_for, prefixes, breakers
        self._clock, self._timeout = clock, timeout
        self._running: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._timed_out_at: dict[str, datetime] = {}

    async def load(self, table: TableIdentifier, job: Job) -> TableFilesNow:
        """Return the files of a table as they are now, within the time limit. Raises no `SfnError`."""
        until = anyio.current_time() + self._timeout
        stores, live = self._stores_for(table), job.table_state.live
        owner = FileOwner(table.namespace, table.name, live.uuid if live is not None else None)
        layouts = [FileLayout.parse(text) for text in sorted(job.locations)[:MAX_LAYOUTS]]
        sfn_files = [await self._first_of(stores, found, until) for one in layouts if (found := one.keys(owner))]
        hinted = next((one for one in layouts if one.has_version_hint), None)
        hint = None
        if hinted is not None:
            hint = await self._first_of(stores, (version_hint.key_of(hinted.location),), until)
        metadata = None if live is None else await self._metadata(stores, canonical(live.metadata_location), until)
        return TableFilesNow(tuple(sfn_files), hint, metadata)

    async def _first_of(self, stores: StoreRouter, keys: tuple[str, ...], until: float) -> FileNow:
        """Return the first of these files that exists, else the first of them."""

        async def read() -> FileNow:
            for key in keys:
                if (stored := await stores.store_for(key).read(key)) is not None:
                    return FileNow(key, stored.body)
            return FileNow(keys[0])

        return await self._ask(keys[0], read, lambda error: FileNow(keys[0], error=error), until)

    async def _metadata(self, stores: StoreRouter, key: str, until: float) -> MetadataNow:
        async def read() -> MetadataNow:
            return await _read_snapshots(stores.store_for(key), key)

        return await self._ask(key, read, lambda error: MetadataNow(key, error=error), until)

    async def _ask(self, key: str, read: Callable[[], Awaitable[T]], failed: Callable[[str], T], until: float) -> T:
        """Return the result of a read, or what `failed` makes of the reason why there is none."""
        store = store_prefix(key, self._prefixes)
        with anyio.move_on_after(max(0.0, until - anyio.current_time())):
            async with self._running[store]:
                if (why := self._why_not_read(store)) is not None:
                    return failed(why)
                # The entry stays if the read is cancelled, and is removed by any answer.
                self._timed_out_at[store] = self._clock.now()
                try:
                    found = await read()
                except SfnError as error:
                    found = failed(str(error))
                self._timed_out_at.pop(store, None)
                return found
        return failed(f"no answer within {self._timeout:g} s")

    def _why_not_read(self, store: str) -> str | None:
        """Return why a read would have no answer; None if the store can be read."""
        now = self._clock.now()
        for breaker in self._breakers():
            if breaker.scope is ErrorScope.STORE and breaker.name == store and breaker.is_failing:
                failing = format_duration(now - breaker.failing_since)
                return f"not read: the store has failed for {failing}: {breaker.error}"
        timed_out_at = self._timed_out_at.get(store)
        if timed_out_at is None or not timed_out_at <= now < timed_out_at + READ_PAUSE:
            return None
        ago, pause = format_duration(now - timed_out_at), format_duration(READ_PAUSE)
        return f"not read: the store did not answer a read {ago} ago; reads go on {pause} after that"


class _SnapshotSummary(msgspec.Struct):
    operation: str = ""


class _Snapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    timestamp_ms: int = -1
    summary: _SnapshotSummary | None = None


class _SnapshotRef(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    type: str = "branch"


class _SnapshotMetadata(msgspec.Struct, rename="kebab"):
    """The part of a table's metadata that is shown (Iceberg specification, "Table Metadata Fields")."""

    current_snapshot_id: int | None = None
    refs: dict[str, _SnapshotRef] | None = None
    snapshots: list[_Snapshot] | None = None


_decode: Final = msgspec.json.Decoder(_SnapshotMetadata).decode


async def _read_snapshots(store: ObjectStore, key: str) -> MetadataNow:
    """Return the snapshots of a metadata file, which may be compressed."""
    body, is_found = bytearray(), False
    try:
        async with aclosing(_parts(store, key)) as parts, aclosing(decompress(parts, _PART_BYTES)) as pieces:
            async for piece in pieces:
                is_found = True
                body += piece
                if len(body) > MAX_METADATA_BYTES:
                    return MetadataNow(key, error=_TOO_LARGE)
        return (
            _shown(key, _decode(body)) if is_found else MetadataNow(key, error="there is no such file, or it is empty")
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, zlib.error) as error:
        return MetadataNow(key, error=f"the file is no Iceberg metadata ({type(error).__name__})")


async def _parts(store: ObjectStore, key: str) -> AsyncGenerator[bytes]:
    start = 0
    while part := await store.read_range(key, start, _PART_BYTES):
        yield part
        start += len(part)
        if len(part) < _PART_BYTES:
            return


def _shown(key: str, metadata: _SnapshotMetadata) -> MetadataNow:
    refs = sorted((metadata.refs or {}).items())[:MAX_REFS]
    names: defaultdict[int, list[str]] = defaultdict(list)
    for name, ref in refs:
        names[ref.snapshot_id].append(name)
    found = metadata.snapshots or []
    newest = heapq.nlargest(MAX_SNAPSHOTS, found, key=lambda one: one.timestamp_ms)
    snapshots = [
        ShownSnapshot(
            one.snapshot_id,
            _EPOCH + timedelta(milliseconds=one.timestamp_ms) if 0 <= one.timestamp_ms <= _LAST_MILLISECOND else None,
            one.summary.operation if one.summary is not None else "",
            tuple(names[one.snapshot_id]),
            one.snapshot_id == metadata.current_snapshot_id,
        )
        for one in newest
    ]
    listed = tuple((name, ref.type, ref.snapshot_id) for name, ref in refs)
    return MetadataNow(key, tuple(snapshots), len(found), listed)
