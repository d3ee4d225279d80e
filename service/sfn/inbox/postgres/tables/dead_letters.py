"""The dead letters and the audit log in PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sfn.domain.events import UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox.codec import dead_letter_conditions, from_micros, parse_dead_letter, to_micros
from sfn.inbox.maintenance import MAX_AUDIT_ENTRIES
from sfn.inbox.model import (
    MAX_UNDECODABLE_PER_SENDER,
    AdminCommand,
    AuditEntry,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    NewDeadLetter,
)
from sfn.inbox.postgres.tables.values import Sql, address, addressed, text, text_or_none

_COLUMNS: Final = (
    "id, coalesce(name, key) AS whole, sender, reason, detail, attempts, status, opened_at, changed_at, actor"
)


class DeadLetterTable:
    """Implements `DeadLetterStore`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def open(self, letters: Sequence[tuple[NewDeadLetter, datetime]]) -> None:
        # No id is drawn for a letter that is already open.
        await self._sql.execute(
            "WITH new AS (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], "
            "$7::bigint[]) WITH ORDINALITY AS new(key, name, catalog, reason, detail, attempts, at, place)), "
            "open AS (UPDATE sfn.dead_letter AS old SET reason = new.reason, detail = new.detail, "
            "attempts = new.attempts, changed_at = new.at FROM new WHERE old.key = new.key AND old.status = 'open' "
            "RETURNING old.key) "
            "INSERT INTO sfn.dead_letter(key, name, catalog, reason, detail, attempts, status, opened_at, changed_at) "
            "SELECT key, name, catalog, reason, detail, attempts, 'open', at, at FROM new "
            "WHERE NOT EXISTS (SELECT FROM open WHERE open.key = new.key) ORDER BY place",
            *map(list, zip(*(_opened(letter, now) for letter, now in letters), strict=True)),
        )

    async def keep(self, notes: Sequence[tuple[UndecodableRequest, datetime]]) -> None:
        found = await self._sql.fetch(
            "INSERT INTO sfn.dead_letter(sender, reason, detail, attempts, status, opened_at, changed_at) "
            "SELECT sender, $4, detail, 0, 'open', at, at FROM unnest($1::text[], $2::text[], $3::bigint[]) "
            "WITH ORDINALITY AS new(sender, detail, at, place) ORDER BY place RETURNING id",
            [note.sender for note, _ in notes],
            [text(note.detail) for note, _ in notes],
            [to_micros(now) for _, now in notes],
            DeadLetterReason.UNDECODABLE.value,
        )
        await self._sql.execute(
            "INSERT INTO sfn.undecodable(letter, path, content_type, size, body) SELECT * FROM unnest("
            "$1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bytea[])",
            sorted(number for (number,) in found),
            [text(note.path) for note, _ in notes],
            [text_or_none(note.content_type) for note, _ in notes],
            [note.size for note, _ in notes],
            [note.body for note, _ in notes],
        )
        for sender in sorted({note.sender for note, _ in notes}):
            # Letters that another transaction is deleting are gone anyway.
            await self._sql.execute(
                "DELETE FROM sfn.dead_letter WHERE id IN (SELECT id FROM sfn.dead_letter WHERE sender = $1 AND id <= "
                "(SELECT id FROM sfn.dead_letter WHERE sender = $1 ORDER BY id DESC LIMIT 1 OFFSET $2) "
                "FOR UPDATE SKIP LOCKED)",
                sender,
                MAX_UNDECODABLE_PER_SENDER,
            )

    async def close(
        self, subjects: Mapping[JobKey, datetime], status: DeadLetterStatus, actor: str | None = None
    ) -> None:
        await self._sql.execute(
            "UPDATE sfn.dead_letter AS old SET status = $3, changed_at = closed.at, actor = $4 "
            "FROM unnest($1::text[], $2::bigint[]) AS closed(key, at) "
            "WHERE old.key = closed.key AND old.status = 'open'",
            [address(subject)[0] for subject in subjects],
            [to_micros(now) for now in subjects.values()],
            status.value,
            text_or_none(actor),
        )

    async def end(
        self, numbers: Collection[int], status: DeadLetterStatus, now: datetime, actor: str
    ) -> list[JobKey | None]:
        found = await self._sql.fetch(
            "WITH chosen AS (SELECT id FROM sfn.dead_letter WHERE id = ANY($1) AND status = 'open' ORDER BY id "
            "FOR UPDATE) UPDATE sfn.dead_letter AS old SET status = $2, changed_at = $3, actor = $4 FROM chosen "
            "WHERE old.id = chosen.id RETURNING old.id, old.key, old.name",
            list(set(numbers)),
            status.value,
            to_micros(now),
            text(actor),
        )
        return [
            addressed(key, name) if key is not None else None
            for _, key, name in sorted(found, key=lambda row: int(row[0]))
        ]

    async def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        chosen, values = _chosen(letter_filter)
        query = f"SELECT {_COLUMNS} FROM sfn.dead_letter WHERE {chosen} AND id > $1 ORDER BY id LIMIT $2"
        return [parse_dead_letter(tuple(row)) for row in await self._sql.fetch(query, after, limit, *values)]

    async def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        chosen, values = _chosen(letter_filter)
        query = f"SELECT {_COLUMNS} FROM sfn.dead_letter WHERE {chosen} AND id > $1 ORDER BY id DESC LIMIT $2"
        return [parse_dead_letter(tuple(row)) for row in await self._sql.fetch(query, 0, limit, *values)]

    async def get_many(self, ids: Collection[int]) -> list[DeadLetter]:
        query = f"SELECT {_COLUMNS} FROM sfn.dead_letter WHERE id = ANY($1) ORDER BY id"
        return [parse_dead_letter(tuple(row)) for row in await self._sql.fetch(query, list(set(ids)))]

    async def request_of(self, letter_id: int) -> UndecodableRequest | None:
        found = await self._sql.fetch(
            "SELECT sender, path, content_type, body, size, detail FROM sfn.dead_letter JOIN sfn.undecodable "
            "ON letter = id WHERE id = $1",
            letter_id,
        )
        return next((UndecodableRequest(*row) for row in found), None)

    async def counts(self) -> Mapping[tuple[str, str], int]:
        found = await self._sql.fetch(
            "SELECT catalog, reason, count(*) FROM sfn.dead_letter WHERE status = 'open' GROUP BY catalog, reason"
        )
        return Counter({(catalog or "", reason): count for catalog, reason, count in found})

    async def oldest(self) -> Mapping[str, datetime]:
        found = await self._sql.fetch(
            "SELECT catalog, min(opened_at) FROM sfn.dead_letter WHERE status = 'open' AND key IS NOT NULL "
            "AND reason <> $1 GROUP BY catalog",
            DeadLetterReason.HELD_DROP.value,
        )
        return {catalog: from_micros(at) for catalog, at in found}

    async def prune(self, before: datetime, most: int) -> int:
        return await self._sql.execute(
            "DELETE FROM sfn.dead_letter WHERE id IN "
            "(SELECT id FROM sfn.dead_letter WHERE status <> 'open' AND changed_at < $1 LIMIT $2)",
            to_micros(before),
            most,
        )

    async def note(self, action: str, order: AdminCommand, count: int) -> int:
        ((number,),) = await self._sql.fetch(
            "INSERT INTO sfn.audit(at, actor, action, about, count) VALUES($1, $2, $3, $4, $5) RETURNING id",
            to_micros(order.at),
            text(order.actor),
            action,
            text(order.target),
            count,
        )
        await self._sql.execute("DELETE FROM sfn.audit WHERE id <= $1", number - MAX_AUDIT_ENTRIES)
        return int(number)

    async def recount(self, entry: int, count: int) -> None:
        await self._sql.execute("UPDATE sfn.audit SET count = $2 WHERE id = $1", entry, count)

    async def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        found = await self._sql.fetch(
            "SELECT id, at, actor, action, about, count FROM sfn.audit WHERE id < $1 ORDER BY id DESC LIMIT $2",
            2**63 - 1 if before is None else before,
            limit,
        )
        return [AuditEntry(number, from_micros(at), *rest) for number, at, *rest in found]


def _opened(letter: NewDeadLetter, now: datetime) -> tuple[Any, ...]:
    key, name = address(letter.subject)
    catalog, detail = letter.subject.catalog, text(letter.detail)
    return key, name, catalog, letter.reason.value, detail, letter.attempts, to_micros(now)


def _chosen(wanted: DeadLetterFilter) -> tuple[str, list[Any]]:
    """Return the condition of a filter; its values are the third parameter and later ones."""
    config = dead_letter_conditions(wanted)
    if wanted.table is not None:
        config["key ="] = address(wanted.table)[0]
    return " AND ".join(["true", *(f"{term} ${number}" for number, term in enumerate(config, start=3))]), [
        *config.values()
    ]
