"""The log of events in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sfn.inbox.codec import from_micros, to_micros
from sfn.inbox.model import LastEvent
from sfn.inbox.postgres.tables.values import Sql, address, text, text_or_none
from sfn.inbox.postgres.transaction import LoggedEvent


class EventTable:
    """Implements `EventStore`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def log(self, entries: Sequence[LoggedEvent]) -> Collection[int]:
        found = await self._sql.fetch(
            "INSERT INTO sfn.event(seq, sender, event_id, key, received_at, body) SELECT * FROM unnest("
            "$1::bigint[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bytea[]) "
            "AS new(seq, sender, event_id, key, received_at, body) "
            'ORDER BY sender COLLATE "C", event_id COLLATE "C", seq '
            "ON CONFLICT (sender, event_id) WHERE event_id IS NOT NULL DO NOTHING RETURNING seq",
            [entry.seq for entry in entries],
            [text(entry.notification.sender) for entry in entries],
            [text_or_none(entry.notification.event_id) for entry in entries],
            [address(entry.notification.subject)[0] for entry in entries],
            [to_micros(entry.received) for entry in entries],
            [entry.notification.body for entry in entries],
        )
        return {seq for (seq,) in found}

    async def last(self, seq: int) -> LastEvent | None:
        found = await self._sql.fetch("SELECT sender, event_id, received_at, body FROM sfn.event WHERE seq = $1", seq)
        return next((LastEvent(sender, event_id, from_micros(at), body) for sender, event_id, at, body in found), None)

    async def prune(self, before: datetime, most: int) -> int:
        # Events are deleted in the order of their numbers, because a wall clock may have been set back in between.
        return await self._sql.execute(
            "DELETE FROM sfn.event WHERE seq <= (SELECT max(seq) FROM (SELECT seq, received_at FROM sfn.event "
            "ORDER BY seq LIMIT $1) AS oldest WHERE received_at < $2)",
            most,
            to_micros(before),
        )
