"""Jobs in PostgreSQL: their table, and the statements that write several rows at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import ConcurrencyGroup, PublishCache
from sfn.inbox.codec import (
    JOB_COLUMNS,
    encode_cache,
    encode_changes,
    encode_column,
    encode_strings,
    from_micros,
    from_micros_or_none,
    parse_cache,
    parse_job,
    parse_strings,
    to_micros,
    to_micros_or_none,
)
from sfn.inbox.model import Job, group_of, is_renamed, table_missing_since
from sfn.inbox.postgres.tables.concurrency_groups import GroupNumbers
from sfn.inbox.postgres.tables.values import Sql, address, addressed, addresses, text, text_or_none
from sfn.inbox.postgres.transaction import Due, JobChange, LoadedJobs, Locking, Overdue, RetryTransaction, Waiting
from sfn.sfnfile.naming import layout_location

_LOCATIONS: Final = "locations"
_TYPES: Final = {
    **dict.fromkeys(JOB_COLUMNS.split(", "), "bigint"),
    **dict.fromkeys(("state", "reason", "live_uuid", "live_location"), "text"),
    **dict.fromkeys(("said", "wish", "story", _LOCATIONS), "bytea"),
    **dict.fromkeys(("attempt", "crashes", "lane"), "int"),
    "missing_since": "bigint",
    "renamed": "boolean",
}
"""Every column except key, name and catalog."""
_ORDER: Final = {name: number for number, name in enumerate(_TYPES)}

_WHOLE: Final = {"key": "text", "name": "text", "catalog": "text", **_TYPES}
_INSERT: Final = (
    f"INSERT INTO sfn.subject({', '.join(_WHOLE)}) SELECT * FROM "
    f"unnest({', '.join(f'${number}::{kind}[]' for number, kind in enumerate(_WHOLE.values(), start=1))}) "
    f'AS new({", ".join(_WHOLE)}) ORDER BY key COLLATE "C" ON CONFLICT (key) DO NOTHING'
)
"""Statement that inserts missing rows; its values are those of `_new_values`."""

_ROW = f"key, name, {_LOCATIONS}, {JOB_COLUMNS}"
_WANTED = "FROM unnest($1::int[], $2::int[]) AS wanted(lane, most)"
_QUEUED = "FROM sfn.subject WHERE lane = wanted.lane AND state = 'queued'"
_QUEUES = (
    f"SELECT wanted.lane, queued.*, NULL AS catalog, NULL AS store, NULL AS urgency {_WANTED} CROSS JOIN LATERAL "
    f"(SELECT key, name, due_at {_QUEUED} ORDER BY due_at, key LIMIT wanted.most) AS queued "
    "UNION ALL SELECT id, NULL, NULL, NULL, catalog, store, urgency FROM sfn.lane WHERE NOT id = ANY($3)"
)
_NOTHING = ", ".join(
    f"NULL::{kind}" for kind in ("text", "text", "bytea", *(_TYPES[name] for name in JOB_COLUMNS.split(", ")))
)


class JobTable:
    """Implements `JobStore`.

    Args:
        sql: runs the statements of the transaction.
        lanes: the concurrency groups.
        stores: see `InboxConfig.stores`.
    """

    def __init__(self, sql: Sql, lanes: GroupNumbers, stores: Collection[str]) -> None:
        self._sql, self._lanes, self._stores = sql, lanes, stores

    async def get(self, subjects: Collection[JobKey], locking: Locking, numbers: int = 0) -> LoadedJobs:
        query = f"SELECT {_ROW} FROM sfn.subject WHERE key = ANY($1) ORDER BY key {locking}"
        keys = addresses(list(subjects))
        if not numbers:
            return LoadedJobs({row.subject: row for row in map(_row, await self._sql.fetch(query, keys))})
        # Counted first: numbers drawn before the rows are locked may be lower than those that other transactions write.
        *found, drawn = await self._sql.fetch(
            f"WITH found AS MATERIALIZED ({query}) SELECT NULL::bigint[] AS drawn, * FROM found UNION ALL "
            f"SELECT (SELECT array_agg(nextval('sfn.number')) FROM generate_series(1, $2)), {_NOTHING} "
            "WHERE (SELECT count(*) FROM found) >= 0",
            keys,
            numbers,
        )
        return LoadedJobs({row.subject: row for row in (_row(row[1:]) for row in found)}, drawn[0])

    async def memos(self, subjects: Collection[JobKey]) -> dict[JobKey, PublishCache]:
        by_address = {address(subject)[0]: subject for subject in subjects}
        found = await self._sql.fetch("SELECT key, memo FROM sfn.memo WHERE key = ANY($1)", list(by_address))
        return {by_address[key]: parse_cache(memo) for key, memo in found}

    async def overdue(self, now: datetime, most: int, locking: Locking) -> Overdue:
        found = await self._sql.fetch(
            "SELECT next.at, overdue.* FROM "
            "(SELECT min(lease_until) AS at FROM sfn.subject WHERE state = 'leased' AND lease_until > $1) AS next "
            f"LEFT JOIN LATERAL (SELECT {_ROW} FROM sfn.subject WHERE state = 'leased' AND lease_until <= $1 "
            f"ORDER BY lease_until LIMIT $2 {locking}) AS overdue ON true",
            to_micros(now),
            most,
        )
        return Overdue([_row(row[1:]) for row in found if row[1] is not None], from_micros_or_none(found[0][0]))

    async def queues(self, most: Callable[[ConcurrencyGroup], int]) -> dict[ConcurrencyGroup, list[Waiting]]:
        queues: dict[ConcurrencyGroup, list[Waiting]] = {}
        while True:
            asked = {lane: most(lane) for lane in self._lanes.known if lane not in queues}
            queues |= {lane: [] for lane in asked}
            known = list(self._lanes.known.values())
            found = await self._sql.fetch(_QUEUES, *self._wanted(asked), known)
            waiting = [row for row in found if row[1] is not None]
            for number, key, name, due_at, *_ in sorted(waiting, key=lambda row: (row[3], row[1])):
                queues[self._lanes.of(number)].append(Waiting(addressed(key, name), from_micros(due_at)))
            # Other transactions may have inserted groups meanwhile.
            if not self._lanes.learn([(number, *lane) for number, key, _, _, *lane in found if key is None]):
                return queues

    async def due(
        self, most: Mapping[ConcurrencyGroup, int], now: datetime, locking: Locking
    ) -> dict[ConcurrencyGroup, list[Due]]:
        found = await self._sql.fetch(
            f"WITH due AS MATERIALIZED (SELECT wanted.lane AS place, due.* {_WANTED} CROSS JOIN LATERAL "
            f"(SELECT {_ROW} {_QUEUED} AND due_at <= $3 ORDER BY due_at, key LIMIT wanted.most {locking}) AS due) "
            "SELECT due.due_at, nextval('sfn.number'), due.* FROM due",
            *self._wanted(most),
            to_micros(now),
        )
        rows: dict[ConcurrencyGroup, list[Due]] = {}
        for _, number, place, *row in sorted(found, key=lambda row: (row[0], row[3])):
            rows.setdefault(self._lanes.of(place), []).append(Due(_row(row), number))
        return rows

    async def save(self, changes: Sequence[JobChange]) -> None:
        new = [after for before, after in changes if before is None and after is not None]
        remaining = [(before, after) for before, after in changes if before is not None and after is not None]
        gone = [before.subject for before, after in changes if before is not None and after is None]
        moved = [after for before, after in remaining if self._moves(before, after)]
        lanes = {row.subject: group_of(row, self._stores) for row in (*new, *moved)}
        numbers = await self._lanes.numbered(self._sql, set(lanes.values())) if lanes else {}
        placed = {subject: numbers[lane] for subject, lane in lanes.items()}
        if new:
            await self._insert(new, placed)
        if remaining:
            await self._update(remaining, placed)
        for table in ("subject", "memo", "place") if gone else ():
            await self._sql.execute(f"DELETE FROM sfn.{table} WHERE key = ANY($1)", addresses(gone))
        await self._write_memos(
            [(PublishCache(), row) for row in new] + [(before.cache, after) for before, after in remaining]
        )
        await self._write_places([(frozenset(), row) for row in new] + [(one.locations, row) for one, row in remaining])

    def _wanted(self, most: Mapping[ConcurrencyGroup, int]) -> tuple[list[int], list[int]]:
        return [self._lanes.known[lane] for lane in most], list(most.values())

    def _moves(self, before: Job, after: Job) -> bool:
        """Return True if a job changes its concurrency group; a cheap check rules most changes out."""
        alike = after.table_state is before.table_state and after.locations is before.locations
        if alike and (after.notified_seq > after.processed_seq) == (before.notified_seq > before.processed_seq):
            return False
        return group_of(before, self._stores) != group_of(after, self._stores)

    async def _insert(self, rows: Sequence[Job], placed: Mapping[JobKey, int]) -> None:
        inserted = await self._sql.execute(_INSERT, *_new_values(rows, placed))
        if inserted < len(rows):
            raise RetryTransaction

    async def _update(self, pairs: Sequence[tuple[Job, Job]], placed: Mapping[JobKey, int]) -> None:
        names, values = _changed_values(pairs, placed)
        if names:
            await self._sql.execute(_update(names), *values)

    async def _write_memos(self, rows: Sequence[tuple[PublishCache, Job]]) -> None:
        changed = [row for before, row in rows if row.cache is not before and row.cache != before]
        encoded = {address(row.subject)[0]: encode_cache(row.cache) for row in changed}
        written = {key: memo for key, memo in encoded.items() if memo is not None}
        if written:
            await self._sql.execute(
                "INSERT INTO sfn.memo(key, memo) SELECT * FROM unnest($1::text[], $2::bytea[]) "
                "ON CONFLICT (key) DO UPDATE SET memo = excluded.memo",
                list(written),
                list(written.values()),
            )
        if len(written) < len(encoded):
            emptied = [key for key in encoded if key not in written]
            await self._sql.execute("DELETE FROM sfn.memo WHERE key = ANY($1)", emptied)

    async def _write_places(self, rows: Sequence[tuple[frozenset[str], Job]]) -> None:
        """Write the locations of jobs, by which they are found."""
        changed = [
            (set(map(layout_location, before)), set(map(layout_location, row.locations)), row.subject)
            for before, row in rows
            if row.locations is not before
        ]
        come = [(subject, location) for before, now, subject in changed for location in sorted(now - before)]
        left = [(subject, location) for before, now, subject in changed for location in sorted(before - now)]
        if come:
            await self._sql.execute(
                "INSERT INTO sfn.place(key, catalog, location) "
                "SELECT * FROM unnest($1::text[], $2::text[], $3::text[])",
                addresses([subject for subject, _ in come]),
                [subject.catalog for subject, _ in come],
                [text(location) for _, location in come],
            )
        if left:
            await self._sql.execute(
                "DELETE FROM sfn.place AS p USING unnest($1::text[], $2::text[]) AS n(key, location) "
                "WHERE p.key = n.key AND p.location = n.location",
                addresses([subject for subject, _ in left]),
                [text(location) for _, location in left],
            )


def _row(found: Sequence[Any]) -> Job:
    key, name, locations, *rest = found
    return parse_job(key if name is None else name, (*rest, None), parse_strings(locations))


@cache
def _update(names: tuple[str, ...]) -> str:
    """Return the statement that changes these columns of several rows; its values are those of `_changed_values`."""
    values = ", ".join(f"${number}::{_TYPES[name]}[]" for number, name in enumerate(names, start=2))
    return (
        f"UPDATE sfn.subject AS row SET {', '.join(map(_assigned, names))} "
        f"FROM unnest($1::text[], {values}) AS new(key, {', '.join(names)}) WHERE row.key = new.key"
    )


def _new_values(rows: Sequence[Job], lanes: Mapping[JobKey, int]) -> list[Sequence[object]]:
    """Return the values of new rows, column by column."""
    named = [address(row.subject) for row in rows]
    keys, names = [key for key, _ in named], [name for _, name in named]
    return [
        keys,
        names,
        [row.subject.catalog for row in rows],
        *([_value(row, name, lanes) for row in rows] for name in _TYPES),
    ]


def _changed_values(
    pairs: Sequence[tuple[Job, Job]], lanes: Mapping[JobKey, int]
) -> tuple[tuple[str, ...], list[Sequence[object]]]:
    """Return the changed columns of jobs, then the keys and the values of these jobs, column by column.

    Args:
        lanes: numbers of the concurrency groups of jobs that change their group.
    """
    differing = [(after, _differences(before, after, lanes)) for before, after in pairs]
    differing = [(row, values) for row, values in differing if values]
    names = tuple(sorted({name for _, values in differing for name in values}, key=_ORDER.__getitem__))
    # One statement writes the same columns of all its rows; a row's unchanged columns are written as they are.
    columns = [
        [values[name] if name in values else _value(row, name, lanes) for row, values in differing] for name in names
    ]
    return names, [[address(row.subject)[0] for row, _ in differing], *columns]


def _differences(before: Job, after: Job, lanes: Mapping[JobKey, int]) -> dict[str, Any]:
    values = encode_changes(after, before)
    if "live_uuid" in values:
        values |= {name: text_or_none(values[name]) for name in ("live_uuid", "live_location")}
    if after.locations is not before.locations:
        values[_LOCATIONS] = encode_strings(after.locations)
    if after.subject in lanes:
        values["lane"] = lanes[after.subject]
    return values


def _value(row: Job, name: str, lanes: Mapping[JobKey, int]) -> object:
    live = row.table_state.live
    match name:
        case "lane":
            return lanes.get(row.subject)
        case "locations":
            return encode_strings(row.locations)
        case "missing_since":
            return to_micros_or_none(table_missing_since(row.table_state))
        case "renamed":
            return is_renamed(row) or None
        case "live_uuid":
            return text_or_none(live.uuid) if live is not None else None
        case "live_location":
            return text(live.location) if live is not None else None
        case _:
            return encode_column(row, name)


def _assigned(name: str) -> str:
    return "lane = coalesce(new.lane, row.lane)" if name == "lane" else f"{name} = new.{name}"
