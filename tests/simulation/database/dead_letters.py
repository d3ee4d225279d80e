"""The dead letters and the audit log of the port, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sfn.domain.events import UndecodableRequest
from sfn.domain.identifiers import JobKey
from sfn.domain.jobs import DeadLetterReason
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
from tests.simulation.database.connection import TwinConnection
from tests.simulation.database.server import Session


class TwinLetters:
    """Implements `Letters`."""

    def __init__(self, connection: TwinConnection) -> None:
        self._connection = connection

    async def open(self, letters: Sequence[tuple[NewDeadLetter, datetime]]) -> None:
        async def open_all(session: Session) -> None:
            for letter, now in letters:
                before = await _open_of(session, letter.subject)
                fresh = DeadLetter(
                    session.server.draw_letter() if before is None else before.id,
                    letter.subject,
                    None,
                    letter.reason,
                    letter.detail,
                    letter.attempts,
                    DeadLetterStatus.OPEN,
                    now if before is None else before.opened_at,
                    now,
                )
                await session.lock(session.server.tables.letters, fresh.id)
                session.write(session.server.tables.letters, fresh.id, fresh)

        await self._connection.run("open", open_all)

    async def keep(self, notes: Sequence[tuple[UndecodableRequest, datetime]]) -> None:
        async def keep(session: Session) -> None:
            tables = session.server.tables
            for note, now in notes:
                number = session.server.draw_letter()
                reason, status = DeadLetterReason.UNDECODABLE, DeadLetterStatus.OPEN
                letter = DeadLetter(number, None, note.sender, reason, note.detail, 0, status, now, now)
                await session.insert(tables.letters, number, letter)
                session.write(tables.requests, number, note)
            for sender in sorted({note.sender for note, _ in notes}):
                theirs = sorted(number for number, one in session.all(tables.letters).items() if one.sender == sender)
                for number in theirs[:-MAX_UNDECODABLE_PER_SENDER]:
                    if session.lock_now(tables.letters, number):
                        session.write(tables.letters, number, None)
                        session.write(tables.requests, number, None)

        await self._connection.run("keep", keep)

    async def close(
        self, subjects: Mapping[JobKey, datetime], status: DeadLetterStatus, actor: str | None = None
    ) -> None:
        async def close(session: Session) -> None:
            for subject, now in subjects.items():
                letter = await _open_of(session, subject)
                if letter is not None:
                    closed = replace(letter, status=status, changed_at=now, actor=actor)
                    session.write(session.server.tables.letters, letter.id, closed)

        await self._connection.run("close", close)

    async def end(
        self, numbers: Collection[int], status: DeadLetterStatus, now: datetime, actor: str
    ) -> list[JobKey | None]:
        async def end(session: Session) -> list[JobKey | None]:
            table, ended = session.server.tables.letters, list[JobKey | None]()
            for number in sorted(set(numbers)):
                letter = await _locked(session, number)
                if letter is not None:
                    session.write(table, number, replace(letter, status=status, changed_at=now, actor=actor))
                    ended.append(letter.subject)
            return ended

        return await self._connection.run("end", end)

    async def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        return [one for one in await self._all() if letter_filter.matches(one) and one.id > after][:limit]

    async def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        return [one for one in reversed(await self._all()) if letter_filter.matches(one)][:limit]

    async def get_many(self, ids: Collection[int]) -> list[DeadLetter]:
        return [one for one in await self._all() if one.id in ids]

    async def request_of(self, letter_id: int) -> UndecodableRequest | None:
        async def event(session: Session) -> UndecodableRequest | None:
            return session.seen(session.server.tables.requests, letter_id)

        return await self._connection.run("event", event)

    async def counts(self) -> Mapping[tuple[str, str], int]:
        open_ones = [one for one in await self._all() if one.status is DeadLetterStatus.OPEN]
        return Counter((one.subject.catalog if one.subject else "", one.reason.value) for one in open_ones)

    async def oldest(self) -> Mapping[str, datetime]:
        open_ones = [
            one
            for one in await self._all()
            if one.status is DeadLetterStatus.OPEN and one.reason is not DeadLetterReason.HELD_DROP
        ]
        return {one.subject.catalog: one.opened_at for one in reversed(open_ones) if one.subject is not None}

    async def prune(self, before: datetime, most: int) -> int:
        async def prune(session: Session) -> int:
            table = session.server.tables.letters
            closed = [one for one in session.all(table).values() if one.status is not DeadLetterStatus.OPEN]
            gone = [one.id for one in closed if one.changed_at < before][:most]
            for number in gone:
                await session.lock(table, number)
                session.write(table, number, None)
            return len(gone)

        return await self._connection.run("prune", prune)

    async def note(self, action: str, order: AdminCommand, count: int) -> int:
        async def note(session: Session) -> int:
            session.is_ordered = True
            number, table = session.server.draw_letter(), session.server.tables.audit
            await session.insert(table, number, AuditEntry(number, order.at, order.actor, action, order.target, count))
            for old in [one for one in session.all(table) if one <= number - MAX_AUDIT_ENTRIES]:
                session.write(table, old, None)
            return number

        return await self._connection.run("note", note)

    async def recount(self, entry: int, count: int) -> None:
        async def recount(session: Session) -> None:
            session.is_ordered = True
            table = session.server.tables.audit
            noted = session.seen(table, entry)
            if noted is not None:
                session.write(table, entry, replace(noted, count=count))

        await self._connection.run("recount", recount)

    async def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        async def audited(session: Session) -> list[AuditEntry]:
            found = sorted(session.all(session.server.tables.audit).items(), reverse=True)
            return [one for number, one in found if before is None or number < before][:limit]

        return await self._connection.run("audited", audited)

    async def _all(self) -> list[DeadLetter]:
        async def find(session: Session) -> list[DeadLetter]:
            return [one for _, one in sorted(session.all(session.server.tables.letters).items())]

        return await self._connection.run("find", find)


async def _open_of(session: Session, subject: JobKey) -> DeadLetter | None:
    """A subject's open letter, locked: of a subject whose row is locked."""
    if not session.has_locked(session.server.tables.rows, subject):
        session.server.breaches.append(f"the letter of {subject}")
    for number, letter in session.all(session.server.tables.letters).items():
        if letter.subject == subject and letter.status is DeadLetterStatus.OPEN:
            return await _locked(session, number)
    return None


async def _locked(session: Session, number: int) -> DeadLetter | None:
    """A letter once it is locked, if it is open still."""
    table = session.server.tables.letters
    if session.seen(table, number) is None:
        return None
    await session.lock(table, number)
    letter = session.seen(table, number)
    return letter if letter is not None and letter.status is DeadLetterStatus.OPEN else None
