"""What the rows say of all tables together, of the port, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

from sfn.inbox.codec import key_of, keys_of_tables
from sfn.inbox.figures import MissingTables
from sfn.inbox.names import NamedTable, without_old_names
from sfn.inbox.postgres.unit import Place
from sfn.inbox.row import Row, State, counted_as, is_renamed, lane_of, missing_since
from sfn.pointer.site import layout_location
from sfn.words import Known, Memo, Reason, Subject, TableName
from tests.simulation.database.connection import TwinConnection
from tests.simulation.database.session import Session, T
from tests.simulation.database.tables import Table

_PLACES = Table[Place, bool]("place")
"""No table, but its keys are locked."""


class TwinRoster:
    """Implements `Roster`."""

    def __init__(self, connection: TwinConnection) -> None:
        self._connection = connection

    async def hold(self, places: Iterable[Place]) -> None:
        async def hold(session: Session) -> None:
            for place in sorted(places):
                await session.lock(_PLACES, place)

        await self._connection.run("hold", hold)

    async def known(self, catalog: str, after: str, limit: int) -> list[tuple[str, Known]]:
        start, end = keys_of_tables(catalog)

        def known(rows: list[Row], memos: Mapping[Subject, Memo]) -> list[tuple[str, Known]]:
            keyed = sorted((key_of(row.subject), row) for row in rows)
            page = [(key, row) for key, row in keyed if max(start, after) < key < end][:limit]
            return [(key, one) for key, row in page if (one := _known(row, memos)) is not None]

        return await self._read("known", known)

    async def carrying(self, catalog: str, uuid: str) -> list[Known]:
        def carrying(rows: list[Row], memos: Mapping[Subject, Memo]) -> list[Known]:
            found = [_known(row, memos) for row in rows if row.subject.catalog == catalog]
            theirs = [one for one in found if one is not None and one.live is not None and one.live.uuid == uuid]
            return sorted(theirs, key=lambda one: one.table)

        return await self._read("carrying", carrying)

    async def live_at(self, place: Place) -> dict[TableName, str | None]:
        def live_at(rows: list[Row], _: object) -> dict[TableName, str | None]:
            live = [(row.subject, row.story.live) for row in rows if row.subject.catalog == place.catalog]
            return {
                name: published.uuid
                for name, published in sorted(live, key=lambda one: key_of(one[0]))
                if isinstance(name, TableName) and published is not None and published.location == place.location
            }

        return await self._read("live_at", live_at)

    async def visitors(self, places: Iterable[Place]) -> list[TableName]:
        wanted = set(places)

        def visitors(rows: list[Row], _: object) -> list[TableName]:
            there = {
                row.subject: [Place(row.subject.catalog, layout_location(site)) for site in row.locations]
                for row in rows
            }
            return sorted(name for name, at in there.items() if isinstance(name, TableName) and wanted & set(at))

        return await self._read("visitors", visitors)

    async def live_count(self, catalog: str, most: int | None = None) -> int:
        def live_count(rows: list[Row], _: object) -> int:
            live = [(row, row.story.live) for row in rows if row.subject.catalog == catalog]
            names = [NamedTable(row.subject, at.uuid, is_renamed(row)) for row, at in live if at is not None]
            count = len(without_old_names(names))
            return count if most is None else min(count, most)

        return await self._read("live_count", live_count)

    async def without_file(self, subjects: Collection[Subject]) -> int:
        def without_file(rows: list[Row], _: object) -> int:
            return len(set(subjects) - {row.subject for row in rows if row.story.live is not None})

        return await self._read("without_file", without_file)

    async def missing(self) -> Mapping[str, MissingTables]:
        def missing(rows: list[Row], _: object) -> Mapping[str, MissingTables]:
            found = [(row.subject.catalog, at) for row in rows if (at := missing_since(row.story)) is not None]
            counts = Counter(catalog for catalog, _ in found)
            first = dict(sorted(found, reverse=True))
            return {catalog: MissingTables(count, first[catalog]) for catalog, count in counts.items()}

        return await self._read("missing", missing)

    async def held(self, catalog: str, after: str, limit: int) -> list[tuple[str, Subject]]:
        def held(rows: list[Row], _: object) -> list[tuple[str, Subject]]:
            ours = [row for row in rows if row.subject.catalog == catalog and row.reason is Reason.HELD_DROP]
            keyed = sorted((key_of(row.subject), row.subject) for row in ours)
            return [pair for pair in keyed if pair[0] > after][:limit]

        return await self._read("held", held)

    async def is_any_held(self, catalog: str) -> bool:
        return bool(await self.held(catalog, "", 1))

    async def counts(self) -> Mapping[tuple[str, str], int]:
        def counts(rows: list[Row], _: object) -> Mapping[tuple[str, str], int]:
            tables = [row for row in rows if isinstance(row.subject, TableName)]
            return Counter((row.subject.catalog, counted_as(row)) for row in tables)

        return await self._read("counts", counts)

    async def oldest(self, now: datetime) -> dict[str, datetime]:
        def oldest(rows: list[Row], _: object) -> dict[str, datetime]:
            told = [row for row in rows if lane_of(row).is_told]
            since = [(row.due_at, row.subject.catalog) for row in told if row.state is State.QUEUED]
            since += [(row.waits_since, row.subject.catalog) for row in told if row.waits_since is not None]
            return {catalog: at for at, catalog in sorted(since, reverse=True) if at <= now}

        return await self._read("oldest", oldest)

    async def _read(self, call: str, ask: Callable[[list[Row], Mapping[Subject, Memo]], T]) -> T:
        async def read(session: Session) -> T:
            tables = session.server.tables
            return ask([stored.row for stored in session.all(tables.rows).values()], session.all(tables.memos))

        return await self._connection.run(call, read)


def _known(row: Row, memos: Mapping[Subject, Memo]) -> Known | None:
    name, story, wish = row.subject, row.story, row.wish
    if not isinstance(name, TableName):
        return None
    etag, missing = memos.get(name, Memo()).etag, frozenset(story.absent)
    return Known(
        name, story.live, etag, row.reason, wish.floor, story.foreign_id, wish.adopts, missing, is_renamed(row)
    )
