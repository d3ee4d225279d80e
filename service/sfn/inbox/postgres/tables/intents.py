"""The open intents in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sfn.domain.identifiers import JobKey
from sfn.inbox.codec import from_micros, from_micros_or_none, to_micros
from sfn.inbox.intents import WHOLE_CATALOG_ID, DueRange, IntentChange, OpenIntent, OpenIntentStats, latest_check_at
from sfn.inbox.postgres.tables.values import Sql, address, addressed, addresses, text
from sfn.inbox.postgres.transaction import FoundIntents, IntentQuery

_COLUMNS = {
    "id": "text",
    "key": "text",
    "name": "text",
    "catalog": "text",
    "sender": "text",
    "peer": "text",
    "opened_at": "bigint",
    "due_at": "bigint",
    "unseen": "boolean",
    "left_open": "boolean",
}
_ROW = ", ".join(_COLUMNS)
_DUE = f"SELECT {_ROW} FROM sfn.intent WHERE {{}} ORDER BY due_at, id, key LIMIT $3 FOR UPDATE SKIP LOCKED"
_NEW = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(_COLUMNS.values(), start=1))
_NOTHING = ", ".join(f"NULL::{kind}" for kind in _COLUMNS.values())
_FIND = (
    f"SELECT 'open' AS kind, NULL AS what, NULL::bigint AS number, {_ROW} FROM sfn.intent WHERE id = ANY($1) "
    f"UNION ALL SELECT 'known', key, NULL, {_NOTHING} FROM sfn.subject WHERE key = ANY($2) "
    f"UNION ALL SELECT 'left', key, max(opened_at), {_NOTHING} FROM sfn.intent "
    "WHERE left_open AND key = ANY($3) GROUP BY key "
    f"UNION ALL SELECT 'unseen', peer, count(*), {_NOTHING} FROM sfn.intent "
    "WHERE unseen AND peer = ANY($4) GROUP BY peer"
)


class PostgresIntents:
    """Implements `OpenIntentStore`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def span(self) -> DueRange:
        # Each query alone reads the end of an index.
        ((earliest, latest),) = await self._sql.fetch(
            "SELECT (SELECT min(due_at) FROM sfn.intent), (SELECT max(due_at) FROM sfn.intent)"
        )
        return DueRange(from_micros_or_none(earliest), from_micros_or_none(latest))

    async def due(self, now: datetime, most: int) -> list[OpenIntent]:
        found = await self._sql.fetch(
            f"WITH late AS MATERIALIZED ({_DUE.format('due_at <= $1')}), "
            f"ahead AS MATERIALIZED ({_DUE.format('due_at > $2')}) "
            "SELECT * FROM late UNION ALL SELECT * FROM ahead",
            to_micros(now),
            to_micros(latest_check_at(now)),
            most,
        )
        return sorted(map(_row, found), key=lambda row: (row.due_at, row.id, address(row.subject)[0]))

    async def close(self, ids: Collection[str]) -> None:
        await self._sql.execute(
            "DELETE FROM sfn.intent WHERE (id, key) IN (SELECT id, key FROM sfn.intent "
            "WHERE id = ANY($1) AND NOT left_open ORDER BY id, key FOR UPDATE)",
            list(map(text, ids)),
        )

    async def get(self, ids: Collection[str]) -> list[OpenIntent]:
        found = await self._sql.fetch(
            f"SELECT {_ROW} FROM sfn.intent WHERE id = ANY($1) ORDER BY id, key FOR UPDATE", list(map(text, ids))
        )
        return list(map(_row, found))

    async def find(self, sought: IntentQuery) -> FoundIntents:
        known = {address(subject)[0]: subject for subject in sought.known}
        left = {address(subject)[0]: subject for subject in sought.unresolved}
        by_peer = {text(peer): peer for peer in sought.peers}
        found = await self._sql.fetch(_FIND, list(map(text, sought.ids)), list(known), list(left), list(by_peer))
        answer = FoundIntents()
        for kind, what, number, *row in found:
            match kind:
                case "open":
                    answer.rows.append(_row(row))
                case "known":
                    answer.known.add(known[what])
                case "left":
                    answer.unresolved_since[left[what]] = from_micros(number)
                case _:
                    answer.unknown_tables[by_peer[what]] = number
        return answer

    async def open(self, rows: Sequence[OpenIntent]) -> None:
        await self._sql.execute(
            f"INSERT INTO sfn.intent({_ROW}) SELECT * FROM unnest({_NEW}) AS new({_ROW}) "
            'ORDER BY id COLLATE "C", key COLLATE "C" '
            "ON CONFLICT (id, key) DO UPDATE SET opened_at = excluded.opened_at, "
            f"due_at = least(intent.due_at, excluded.due_at) WHERE intent.id = '{WHOLE_CATALOG_ID}'",
            *zip(*map(_values, rows), strict=True),
        )

    async def save(self, changes: Sequence[IntentChange]) -> None:
        remaining = [after for _, after in changes if after is not None]
        gone = [before for before, after in changes if before is not None and after is None]
        if remaining:
            await self._sql.execute(
                "UPDATE sfn.intent AS row "
                "SET opened_at = new.opened_at, due_at = new.due_at, left_open = new.left_open "
                "FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::boolean[]) "
                "AS new(id, key, opened_at, due_at, left_open) WHERE row.id = new.id AND row.key = new.key",
                *_named(remaining),
                [to_micros(row.opened_at) for row in remaining],
                [to_micros(row.due_at) for row in remaining],
                [row.is_unresolved for row in remaining],
            )
        if gone:
            await self._sql.execute(
                "DELETE FROM sfn.intent AS row USING unnest($1::text[], $2::text[]) AS old(id, key) "
                "WHERE row.id = old.id AND row.key = old.key",
                *_named(gone),
            )

    async def counts(self) -> Mapping[str, OpenIntentStats]:
        found = await self._sql.fetch(
            "SELECT catalog, count(DISTINCT id), min(opened_at), min(due_at) FROM sfn.intent GROUP BY catalog"
        )
        return {
            catalog: OpenIntentStats(count, from_micros(since), from_micros(due_at))
            for catalog, count, since, due_at in found
        }

    async def of(self, subject: JobKey) -> OpenIntentStats | None:
        ((count, since, due_at),) = await self._sql.fetch(
            "SELECT count(*), min(opened_at), min(due_at) FROM sfn.intent WHERE key = $1", address(subject)[0]
        )
        return OpenIntentStats(count, from_micros(since), from_micros(due_at)) if count else None


def _named(rows: Sequence[OpenIntent]) -> tuple[list[str], list[str]]:
    return [text(row.id) for row in rows], addresses([row.subject for row in rows])


def _values(row: OpenIntent) -> tuple[Any, ...]:
    key, name = address(row.subject)
    texts = text(row.id), key, name, row.subject.catalog, text(row.sender), text(row.peer)
    return *texts, to_micros(row.opened_at), to_micros(row.due_at), row.is_for_unknown_table, row.is_unresolved


def _row(found: Sequence[Any]) -> OpenIntent:
    number, key, name, _, sender, peer, opened_at, due_at, unseen, left = found
    subject, moments = addressed(key, name), (from_micros(opened_at), from_micros(due_at))
    return OpenIntent(number, subject, sender, peer, *moments, is_for_unknown_table=unseen, is_unresolved=left)
