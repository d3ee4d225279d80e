"""The jobs and the table index of the port, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import ConcurrencyGroup, DeadLetterReason, IndexedTable, PublishCache
from sfn.inbox.codec import encode_key, table_key_range
from sfn.inbox.model import Job, JobState, group_of, is_renamed, stat_state, table_missing_since
from sfn.inbox.postgres.transaction import (
    Due,
    JobChange,
    LoadedJobs,
    Locking,
    Overdue,
    RetryTransaction,
    TableLocation,
    Waiting,
)
from sfn.inbox.statistics import MissingTableStats, NamedTable, without_old_names
from sfn.sfnfile.naming import layout_location
from tests.simulation.database.connection import TwinConnection
from tests.simulation.database.server import Session, Stored, T, Table

_FIELDS = tuple(name for name in Job.__struct_fields__ if name not in {"subject", "memo"})

_PLACES = Table[TableLocation, bool]("place")
"""No table, but its keys are locked."""


class TwinJobs:
    """Implements `Rows`.

    Args:
        connection: where the transaction runs.
        stores: see `Terms.stores`.
    """

    def __init__(self, connection: TwinConnection, stores: Collection[str]) -> None:
        self._connection, self._stores = connection, stores

    async def get(self, subjects: Collection[JobKey], locking: Locking, numbers: int = 0) -> LoadedJobs:
        async def get(session: Session) -> LoadedJobs:
            found = await _locked(session, sorted(subjects, key=encode_key), locking)
            return LoadedJobs({row.subject: row for row in found}, _drawn(session, numbers))

        return await self._connection.run("get", get)

    async def memos(self, subjects: Collection[JobKey]) -> dict[JobKey, PublishCache]:
        async def memos(session: Session) -> dict[JobKey, PublishCache]:
            there = session.all(session.server.tables.memos)
            return {subject: there[subject] for subject in subjects if subject in there}

        return await self._connection.run("memos", memos)

    async def overdue(self, now: datetime, most: int, locking: Locking) -> Overdue:
        async def overdue(session: Session) -> Overdue:
            leased = [row for row in _rows(session) if row.state is JobState.LEASED]
            until = {row.subject: row.lease_until for row in leased if row.lease_until is not None}
            ended = sorted((at, encode_key(subject), subject) for subject, at in until.items() if at <= now)
            found = await _locked(session, [subject for _, _, subject in ended], locking, most)
            return Overdue(found, min((at for at in until.values() if at > now), default=None))

        return await self._connection.run("overdue", overdue)

    async def queues(self, most: Callable[[ConcurrencyGroup], int]) -> dict[ConcurrencyGroup, list[Waiting]]:
        async def queues(session: Session) -> dict[ConcurrencyGroup, list[Waiting]]:
            lanes = sorted(session.all(session.server.tables.lanes))
            queued = {lane: self._queue(session, lane)[: most(lane)] for lane in lanes}
            return {lane: [Waiting(row.subject, row.due_at) for row in rows] for lane, rows in queued.items()}

        return await self._connection.run("queues", queues)

    async def due(
        self, most: Mapping[ConcurrencyGroup, int], now: datetime, locking: Locking
    ) -> dict[ConcurrencyGroup, list[Due]]:
        async def due(session: Session) -> dict[ConcurrencyGroup, list[Due]]:
            found: dict[ConcurrencyGroup, list[Job]] = {}
            for lane, number in most.items():
                waiting = [row.subject for row in self._queue(session, lane) if row.due_at <= now]
                found[lane] = await _locked(session, waiting, locking, number)
            return {
                lane: [Due(row, session.server.draw()) for row in sorted(rows, key=_place)]
                for lane, rows in found.items()
                if rows
            }

        return await self._connection.run("due", due)

    async def save(self, changes: Sequence[JobChange]) -> None:
        async def save(session: Session) -> None:
            new = [after for before, after in changes if before is None and after is not None]
            kept = [(before, after) for before, after in changes if before is not None and after is not None]
            await self._insert(session, sorted(new, key=lambda row: encode_key(row.subject)))
            await self._update(session, kept)
            for before, after in changes:
                if before is not None and after is None:
                    await _known_to_be_locked(session, before.subject)
                    session.write(session.server.tables.rows, before.subject, None)
                    session.write(session.server.tables.memos, before.subject, None)
            _write_memos(
                session, [(PublishCache(), row) for row in new] + [(before.cache, after) for before, after in kept]
            )

        await self._connection.run("save", save)

    def _queue(self, session: Session, lane: ConcurrencyGroup) -> list[Job]:
        queued = [row for row in _rows(session) if row.state is JobState.QUEUED]
        return sorted((row for row in queued if group_of(row, self._stores) == lane), key=_place)

    async def _insert(self, session: Session, rows: Sequence[Job]) -> None:
        inserted = 0
        for row in rows:
            self._learn(session, row)
            stored = Stored(replace(row, cache=PublishCache()), session.server.draw_life())
            inserted += await session.insert(session.server.tables.rows, row.subject, stored)
        if inserted < len(rows):
            raise RetryTransaction

    async def _update(self, session: Session, pairs: Sequence[tuple[Job, Job]]) -> None:
        """One statement writes the same columns of all rows, and no others."""
        table = session.server.tables.rows
        names = [name for name in _FIELDS if any(getattr(old, name) != getattr(new, name) for old, new in pairs)]
        for _, after in pairs:
            await _known_to_be_locked(session, after.subject)
            there = session.seen(table, after.subject)
            if there is not None:
                row = replace(there.row, **{name: getattr(after, name) for name in names})
                session.write(table, after.subject, Stored(row, there.life))
                self._learn(session, row)

    def _learn(self, session: Session, row: Job) -> None:
        session.write(session.server.tables.lanes, group_of(row, self._stores), True)


def _rows(session: Session) -> list[Job]:
    return [stored.row for stored in session.all(session.server.tables.rows).values()]


def _place(row: Job) -> tuple[datetime, str]:
    return row.due_at, encode_key(row.subject)


def _drawn(session: Session, numbers: int) -> list[int]:
    return [session.server.draw() for _ in range(numbers)]


async def _locked(session: Session, subjects: Iterable[JobKey], locking: Locking, most: int | None = None) -> list[Job]:
    """Rows that were there when the statement began, in their order, as they are once they are locked."""
    table, found = session.server.tables.rows, list[Job]()
    then = [(subject, stored) for subject in subjects if (stored := session.seen(table, subject)) is not None]
    for subject, before in then:
        if len(found) == most:
            break
        if locking is Locking.SKIP and not session.lock_now(table, subject):
            continue
        if locking is Locking.WAIT:
            await session.lock(table, subject)
        now = before if locking is Locking.NONE else session.seen(table, subject)
        if now is not None and now.life == before.life:
            found.append(now.row)
        else:
            session.unlock(table, subject)
    return found


async def _known_to_be_locked(session: Session, subject: JobKey) -> None:
    """The statement would lock a row by itself; but what it writes rests on what was read before."""
    table = session.server.tables.rows
    if not session.has_locked(table, subject):
        session.server.breaches.append(f"{subject}")
        await session.lock(table, subject)


def _write_memos(session: Session, rows: Sequence[tuple[PublishCache, Job]]) -> None:
    for before, row in rows:
        if row.cache != before:
            memo = row.cache if row.cache != PublishCache() else None
            session.write(session.server.tables.memos, row.subject, memo)


class TwinTableIndex:
    """Implements `Roster`."""

    def __init__(self, connection: TwinConnection) -> None:
        self._connection = connection

    async def lock_locations(self, places: Iterable[TableLocation]) -> None:
        async def hold(session: Session) -> None:
            for place in sorted(places):
                await session.lock(_PLACES, place)

        await self._connection.run("hold", hold)

    async def known(self, catalog: str, after: str, limit: int) -> list[tuple[str, IndexedTable]]:
        start, end = table_key_range(catalog)

        def known(rows: list[Job], memos: Mapping[JobKey, PublishCache]) -> list[tuple[str, IndexedTable]]:
            keyed = sorted((encode_key(row.subject), row) for row in rows)
            page = [(key, row) for key, row in keyed if max(start, after) < key < end][:limit]
            return [(key, one) for key, row in page if (one := _known(row, memos)) is not None]

        return await self._read("known", known)

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        def carrying(rows: list[Job], memos: Mapping[JobKey, PublishCache]) -> list[IndexedTable]:
            found = [_known(row, memos) for row in rows if row.subject.catalog == catalog]
            theirs = [one for one in found if one is not None and one.live is not None and one.live.uuid == uuid]
            return sorted(theirs, key=lambda one: one.table)

        return await self._read("carrying", carrying)

    async def live_at(self, place: TableLocation) -> dict[TableIdentifier, str | None]:
        def live_at(rows: list[Job], _: object) -> dict[TableIdentifier, str | None]:
            live = [(row.subject, row.table_state.live) for row in rows if row.subject.catalog == place.catalog]
            return {
                name: published.uuid
                for name, published in sorted(live, key=lambda one: encode_key(one[0]))
                if isinstance(name, TableIdentifier) and published is not None and published.location == place.location
            }

        return await self._read("live_at", live_at)

    async def visitors(self, places: Iterable[TableLocation]) -> list[TableIdentifier]:
        wanted = set(places)

        def visitors(rows: list[Job], _: object) -> list[TableIdentifier]:
            there = {
                row.subject: [TableLocation(row.subject.catalog, layout_location(site)) for site in row.locations]
                for row in rows
            }
            return sorted(name for name, at in there.items() if isinstance(name, TableIdentifier) and wanted & set(at))

        return await self._read("visitors", visitors)

    async def live_count(self, catalog: str, most: int | None = None) -> int:
        def live_count(rows: list[Job], _: object) -> int:
            live = [(row, row.table_state.live) for row in rows if row.subject.catalog == catalog]
            names = [NamedTable(row.subject, at.uuid, is_renamed(row)) for row, at in live if at is not None]
            count = len(without_old_names(names))
            return count if most is None else min(count, most)

        return await self._read("live_count", live_count)

    async def without_file(self, subjects: Collection[JobKey]) -> int:
        def without_file(rows: list[Job], _: object) -> int:
            return len(set(subjects) - {row.subject for row in rows if row.table_state.live is not None})

        return await self._read("without_file", without_file)

    async def missing(self) -> Mapping[str, MissingTableStats]:
        def missing(rows: list[Job], _: object) -> Mapping[str, MissingTableStats]:
            found = [
                (row.subject.catalog, at) for row in rows if (at := table_missing_since(row.table_state)) is not None
            ]
            counts = Counter(catalog for catalog, _ in found)
            first = dict(sorted(found, reverse=True))
            return {catalog: MissingTableStats(count, first[catalog]) for catalog, count in counts.items()}

        return await self._read("missing", missing)

    async def held(self, catalog: str, after: str, limit: int) -> list[tuple[str, JobKey]]:
        def held(rows: list[Job], _: object) -> list[tuple[str, JobKey]]:
            ours = [row for row in rows if row.subject.catalog == catalog and row.reason is DeadLetterReason.HELD_DROP]
            keyed = sorted((encode_key(row.subject), row.subject) for row in ours)
            return [pair for pair in keyed if pair[0] > after][:limit]

        return await self._read("held", held)

    async def is_any_held(self, catalog: str) -> bool:
        return bool(await self.held(catalog, "", 1))

    async def counts(self) -> Mapping[tuple[str, str], int]:
        def counts(rows: list[Job], _: object) -> Mapping[tuple[str, str], int]:
            tables = [row for row in rows if isinstance(row.subject, TableIdentifier)]
            return Counter((row.subject.catalog, stat_state(row)) for row in tables)

        return await self._read("counts", counts)

    async def oldest(self, now: datetime) -> dict[str, datetime]:
        def oldest(rows: list[Job], _: object) -> dict[str, datetime]:
            told = [row for row in rows if group_of(row).is_event_driven]
            since = [(row.due_at, row.subject.catalog) for row in told if row.state is JobState.QUEUED]
            since += [(row.pending_since, row.subject.catalog) for row in told if row.pending_since is not None]
            return {catalog: at for at, catalog in sorted(since, reverse=True) if at <= now}

        return await self._read("oldest", oldest)

    async def _read(self, call: str, ask: Callable[[list[Job], Mapping[JobKey, PublishCache]], T]) -> T:
        async def read(session: Session) -> T:
            tables = session.server.tables
            return ask([stored.row for stored in session.all(tables.rows).values()], session.all(tables.memos))

        return await self._connection.run(call, read)


def _known(row: Job, memos: Mapping[JobKey, PublishCache]) -> IndexedTable | None:
    name, story, wish = row.subject, row.table_state, row.pending
    if not isinstance(name, TableIdentifier):
        return None
    etag, missing = memos.get(name, PublishCache()).etag, frozenset(story.missing_since)
    return IndexedTable(
        name,
        story.live,
        etag,
        row.reason,
        wish.min_metadata_location,
        story.foreign_catalog_id,
        wish.adopt_catalog_id,
        missing,
        is_renamed(row),
    )
