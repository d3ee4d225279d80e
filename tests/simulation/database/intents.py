"""The open intents of the port, in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sfn.domain.identifiers import JobKey
from sfn.inbox.codec import encode_key
from sfn.inbox.intents import DueRange, IntentChange, IntentKey, OpenIntent, OpenIntentStats, is_due, open_intent_stats
from sfn.inbox.postgres.transaction import FoundIntents, IntentQuery
from tests.simulation.database.connection import TwinConnection
from tests.simulation.database.server import Session


class TwinIntents:
    """Implements `OpenIntentStore`."""

    def __init__(self, connection: TwinConnection) -> None:
        self._connection = connection

    async def span(self) -> DueRange:
        async def span(session: Session) -> DueRange:
            moments = [row.due_at for row in _all(session)]
            return DueRange(min(moments, default=None), max(moments, default=None))

        return await self._connection.run("span of intents", span)

    async def due(self, now: datetime, most: int) -> list[OpenIntent]:
        async def due(session: Session) -> list[OpenIntent]:
            table = session.server.tables.intents
            waiting = sorted((row for row in _all(session) if is_due(row.due_at, now)), key=_turn)
            return [row for row in waiting if session.lock_now(table, row.key)][:most]

        return await self._connection.run("due intents", due)

    async def close(self, ids: Collection[str]) -> None:
        async def close(session: Session) -> None:
            for row in await _locked(session, ids):
                if not row.is_unresolved:
                    session.write(session.server.tables.intents, row.key, None)

        await self._connection.run("close intents", close)

    async def get(self, ids: Collection[str]) -> list[OpenIntent]:
        async def get(session: Session) -> list[OpenIntent]:
            return await _locked(session, ids)

        return await self._connection.run("get intents", get)

    async def find(self, sought: IntentQuery) -> FoundIntents:
        async def look(session: Session) -> FoundIntents:
            rows, left = _all(session), dict[JobKey, datetime]()
            for row in rows:
                if row.is_unresolved and row.subject in sought.unresolved:
                    left[row.subject] = max(row.opened_at, left.get(row.subject, row.opened_at))
            return FoundIntents(
                [row for row in rows if row.id in sought.ids],
                {subject for subject in session.all(session.server.tables.rows) if subject in sought.known},
                left,
                {peer: sum(row.peer == peer and row.is_for_unknown_table for row in rows) for peer in sought.peers},
            )

        return await self._connection.run("look at intents", look)

    async def open(self, rows: Sequence[OpenIntent]) -> None:
        async def open_all(session: Session) -> None:
            table = session.server.tables.intents
            for row in sorted(rows, key=lambda row: _place(row.key)):
                if await session.insert(table, row.key, row) or not row.is_for_whole_catalog:
                    continue
                await session.lock(table, row.key)
                there = session.seen(table, row.key) or row
                kept = replace(there, opened_at=row.opened_at, due_at=min(there.due_at, row.due_at))
                session.write(table, row.key, kept)

        await self._connection.run("open intents", open_all)

    async def save(self, changes: Sequence[IntentChange]) -> None:
        async def save(session: Session) -> None:
            table = session.server.tables.intents
            for before, after in changes:
                assert before is not None, "those that are not there are opened"
                if not session.has_locked(table, before.key):
                    session.server.breaches.append(f"intent {before.id} of {before.subject}")
                    await session.lock(table, before.key)
                if session.seen(table, before.key) is not None:
                    session.write(table, before.key, after)

        await self._connection.run("save intents", save)

    async def counts(self) -> Mapping[str, OpenIntentStats]:
        async def counts(session: Session) -> Mapping[str, OpenIntentStats]:
            rows = _all(session)
            by_catalog = {name: [row for row in rows if row.subject.catalog == name] for name in _catalogs(rows)}
            return {name: one for name, of in by_catalog.items() if (one := open_intent_stats(of)) is not None}

        return await self._connection.run("count intents", counts)

    async def of(self, subject: JobKey) -> OpenIntentStats | None:
        async def of(session: Session) -> OpenIntentStats | None:
            return open_intent_stats([row for row in _all(session) if row.subject == subject])

        return await self._connection.run("intents of", of)


def _all(session: Session) -> list[OpenIntent]:
    return list(session.all(session.server.tables.intents).values())


def _catalogs(rows: Sequence[OpenIntent]) -> set[str]:
    return {row.subject.catalog for row in rows}


def _turn(row: OpenIntent) -> tuple[datetime, str, str]:
    return row.due_at, *_place(row.key)


def _place(key: IntentKey) -> tuple[str, str]:
    number, subject = key
    return number, encode_key(subject)


async def _locked(session: Session, ids: Collection[str]) -> list[OpenIntent]:
    """Those that were there when the statement began, by id and key, as they are once they are locked."""
    table, found = session.server.tables.intents, list[OpenIntent]()
    for key in sorted((row.key for row in _all(session) if row.id in ids), key=_place):
        await session.lock(table, key)
        now = session.seen(table, key)
        if now is not None:
            found.append(now)
        else:
            session.unlock(table, key)
    return found
