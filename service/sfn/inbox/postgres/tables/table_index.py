"""The table index in PostgreSQL: queries over the jobs of all tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import DeadLetterReason, IndexedTable
from sfn.inbox.codec import STAT_STATE_SQL, from_micros, parse_indexed_table, table_key_range, to_micros
from sfn.inbox.postgres.tables.values import Sql, addressed, addresses, lock_number, text
from sfn.inbox.postgres.transaction import TableLocation
from sfn.inbox.statistics import MissingTableStats

_KNOWN: Final = "SELECT row.key, name, reason, wish, story, memo FROM sfn.subject AS row LEFT JOIN sfn.memo USING (key)"

_OLD_NAMES: Final = (
    "SELECT count(*) FROM sfn.subject AS row WHERE catalog = $1 AND renamed AND live_uuid <> '' AND EXISTS ("
    "SELECT FROM sfn.subject AS other WHERE other.catalog = row.catalog AND other.live_uuid = row.live_uuid "
    "AND other.key <> row.key AND (other.renamed IS NULL OR other.key < row.key))"
)
"""Number of live files under old names of renamed tables, by the rule of `statistics.without_old_names`."""


class IndexTable:
    """Implements `IndexStore`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def lock_locations(self, places: Iterable[TableLocation]) -> None:
        numbers = sorted(map(lock_number, places))
        if numbers:
            await self._sql.fetch("SELECT pg_advisory_xact_lock(number) FROM unnest($1::bigint[]) AS number", numbers)

    async def known(self, catalog: str, after: str, limit: int) -> list[tuple[str, IndexedTable]]:
        start, end = table_key_range(catalog)
        return _known(
            await self._sql.fetch(
                f"{_KNOWN} WHERE row.key > $1 AND row.key < $2 ORDER BY row.key LIMIT $3", max(start, after), end, limit
            )
        )

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        found = await self._sql.fetch(f"{_KNOWN} WHERE live_uuid = $2 AND catalog = $1", catalog, text(uuid))
        return sorted((known for _, known in _known(found)), key=lambda known: known.table)

    async def live_at(self, place: TableLocation) -> dict[TableIdentifier, str | None]:
        found = await self._sql.fetch(
            "SELECT key, name, live_uuid FROM sfn.subject WHERE live_location = $2 AND catalog = $1 ORDER BY key",
            place.catalog,
            text(place.location),
        )
        named = [(addressed(key, name), uuid) for key, name, uuid in found]
        return {subject: uuid for subject, uuid in named if isinstance(subject, TableIdentifier)}

    async def visitors(self, places: Iterable[TableLocation]) -> list[TableIdentifier]:
        wanted = sorted(places)
        found = await self._sql.fetch(
            "SELECT DISTINCT row.key, row.name FROM unnest($1::text[], $2::text[]) AS wanted(catalog, location) "
            "JOIN sfn.place ON place.location = wanted.location AND place.catalog = wanted.catalog "
            "JOIN sfn.subject AS row USING (key)",
            [place.catalog for place in wanted],
            [text(place.location) for place in wanted],
        )
        return sorted(name for key, whole in found if isinstance(name := addressed(key, whole), TableIdentifier))

    async def live_count(self, catalog: str, most: int | None = None) -> int:
        ((old,),) = await self._sql.fetch(_OLD_NAMES, catalog)
        ((count,),) = await self._sql.fetch(
            "SELECT count(*) FROM "
            "(SELECT FROM sfn.subject WHERE catalog = $1 AND live_location IS NOT NULL LIMIT $2::bigint) AS live",
            catalog,
            most + old if most is not None else None,
        )
        return int(count - old)

    async def without_file(self, subjects: Collection[JobKey]) -> int:
        ((count,),) = await self._sql.fetch(
            "SELECT count(*) FROM sfn.subject WHERE key = ANY($1) AND live_location IS NOT NULL",
            addresses(list(subjects)),
        )
        return len(subjects) - int(count)

    async def missing(self) -> dict[str, MissingTableStats]:
        found = await self._sql.fetch(
            "SELECT catalog, count(*), min(missing_since) FROM sfn.subject "
            "WHERE missing_since IS NOT NULL GROUP BY catalog"
        )
        return {catalog: MissingTableStats(count, from_micros(since)) for catalog, count, since in found}

    async def held(self, catalog: str, after: str, limit: int) -> list[tuple[str, JobKey]]:
        found = await self._sql.fetch(
            "SELECT key, name FROM sfn.subject WHERE catalog = $1 AND reason = $2 AND key > $3 ORDER BY key LIMIT $4",
            catalog,
            DeadLetterReason.HELD_DROP.value,
            after,
            limit,
        )
        return [(key, addressed(key, name)) for key, name in found]

    async def is_any_held(self, catalog: str) -> bool:
        return bool(await self.held(catalog, "", 1))

    async def counts(self) -> Mapping[tuple[str, str], int]:
        found = await self._sql.fetch(
            f"SELECT catalog, {STAT_STATE_SQL} AS counted, count(*) FROM sfn.subject "
            "WHERE lane NOT IN (SELECT id FROM sfn.lane WHERE urgency = 'sweep') GROUP BY catalog, counted"
        )
        return Counter({(catalog, counted): count for catalog, counted, count in found})

    async def oldest(self, now: datetime) -> dict[str, datetime]:
        found = await self._sql.fetch(
            "SELECT catalog, min(at) FROM (SELECT catalog, least("
            "(SELECT min(due_at) FROM sfn.subject WHERE lane = lane.id AND state = 'queued'), "
            "(SELECT min(waits_since) FROM sfn.subject WHERE lane = lane.id AND waits_since IS NOT NULL)) AS at "
            "FROM sfn.lane WHERE urgency IN ('live', 'short-lived')) AS lanes GROUP BY catalog HAVING min(at) <= $1",
            to_micros(now),
        )
        return {catalog: from_micros(at) for catalog, at in found}


def _known(found: Sequence[Sequence[Any]]) -> list[tuple[str, IndexedTable]]:
    pairs = [(key, addressed(key, name), rest) for key, name, *rest in found]
    return [
        (key, parse_indexed_table(table, *rest)) for key, table, rest in pairs if isinstance(table, TableIdentifier)
    ]
