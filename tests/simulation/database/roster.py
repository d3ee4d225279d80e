"""What the rows say of all tables together, of the port, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import DeadLetterReason, IndexedTable, PublishCache
from sfn.inbox.codec import encode_key, table_key_range
from sfn.inbox.model import Job, JobState, group_of, is_renamed, stat_state, table_missing_since
from sfn.inbox.postgres.transaction import TableLocation
from sfn.inbox.statistics import MissingTableStats, NamedTable, without_old_names
from sfn.sfnfile.naming import layout_location
from tests.simulation.database.connection import TwinConnection
from tests.simulation.database.session import Session, T
from tests.simulation.database.tables import Table

_PLACES = Table[TableLocation, bool]("place")
"""No table, but its keys are locked."""


class TwinRoster:
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
