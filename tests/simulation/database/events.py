"""The log of events and what is noted of catalogs, of the port, in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sfn.inbox.model import LastEvent, LastSweep
from sfn.inbox.postgres.transaction import LoggedEvent
from sfn.inbox.statistics import NamedTable
from tests.simulation.database.connection import TwinConnection
from tests.simulation.database.server import Noted, Session


class TwinEvents:
    """Implements `Events`."""

    def __init__(self, connection: TwinConnection) -> None:
        self._connection = connection

    async def log(self, entries: Sequence[LoggedEvent]) -> Collection[int]:
        async def log(session: Session) -> Collection[int]:
            new = set()
            for entry in sorted(
                entries, key=lambda one: (one.notification.sender, one.notification.event_id or "", one.seq)
            ):
                number = entry.seq if entry.notification.event_id is None else entry.notification.event_id
                if await session.insert(session.server.tables.events, (entry.notification.sender, number), entry):
                    new.add(entry.seq)
            return new

        return await self._connection.run("log", log)

    async def last(self, seq: int) -> LastEvent | None:
        async def last(session: Session) -> LastEvent | None:
            for entry in session.all(session.server.tables.events).values():
                if entry.seq == seq:
                    return LastEvent(
                        entry.notification.sender, entry.notification.event_id, entry.received, entry.notification.body
                    )
            return None

        return await self._connection.run("last", last)

    async def prune(self, before: datetime, most: int) -> int:
        async def prune(session: Session) -> int:
            table = session.server.tables.events
            oldest = sorted(session.all(table).items(), key=lambda item: item[1].seq)[:most]
            last = max((entry.seq for _, entry in oldest if entry.received < before), default=0)
            gone = [key for key, entry in oldest if entry.seq <= last]
            for key in gone:
                session.write(table, key, None)
            return len(gone)

        return await self._connection.run("prune", prune)


class TwinCatalogs:
    """Implements `Catalogs`."""

    def __init__(self, connection: TwinConnection) -> None:
        self._connection = connection

    async def lock(self, catalog: str) -> None:
        async def lock(session: Session) -> None:
            await session.insert(session.server.tables.catalogs, catalog, Noted())
            await session.lock(session.server.tables.catalogs, catalog)

        await self._connection.run("lock", lock)

    async def tripped(self) -> frozenset[str]:
        return frozenset(name for name, noted in (await self._noted()).items() if noted.tripped)

    async def trip(self, catalog: str, *, tripped: bool) -> None:
        await self._note(catalog, tripped=tripped)

    async def has_step(self, catalog: str, text: str, since: datetime) -> bool:
        async def has_step(session: Session) -> bool:
            permit = session.seen(session.server.tables.permits, (catalog, text))
            return permit is not None and permit[0] > since

        return await self._connection.run("has_step", has_step)

    async def count_steps(self, catalog: str, since: datetime) -> int:
        async def count_steps(session: Session) -> int:
            permits = session.all(session.server.tables.permits)
            return sum(name == catalog and at > since for (name, _), (at, _) in permits.items())

        return await self._connection.run("count_steps", count_steps)

    async def drops(self, catalog: str, since: datetime) -> list[NamedTable]:
        async def drops(session: Session) -> list[NamedTable]:
            permits = session.all(session.server.tables.permits).items()
            there = [(drop, at) for (name, _), (at, drop) in permits if name == catalog]
            return [drop for drop, at in there if drop is not None and at > since]

        return await self._connection.run("drops", drops)

    async def add_step(self, catalog: str, step: str, now: datetime, drop: NamedTable | None) -> None:
        async def add_step(session: Session) -> None:
            is_new = await session.insert(session.server.tables.permits, (catalog, step), (now, drop))
            assert is_new, f"{step} is allowed already"

        await self._connection.run("add_step", add_step)

    async def forget_steps(self, catalog: str, until: datetime | None = None) -> None:
        async def forget_steps(session: Session) -> None:
            table = session.server.tables.permits
            for (name, text), (at, _) in session.all(table).items():
                if name == catalog and (until is None or at <= until):
                    await session.lock(table, (name, text))
                    session.write(table, (name, text), None)

        await self._connection.run("forget_steps", forget_steps)

    async def swept_at(self, catalogs: Collection[str]) -> dict[str, LastSweep]:
        noted = await self._noted()
        return {name: sweep for name in catalogs if name in noted and (sweep := noted[name].sweep) is not None}

    async def note_sweep(self, catalog: str, sweep: LastSweep) -> None:
        await self._note(catalog, sweep=sweep)

    async def retire(self, catalog: str, *, retired: bool) -> None:
        await self._note(catalog, retired=retired)

    async def retired_catalogs(self) -> frozenset[str]:
        return frozenset(name for name, noted in (await self._noted()).items() if noted.retired)

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        await self._note(catalog, catalog_id=catalog_id)

    async def owner_id(self, catalog: str) -> str | None:
        return (await self._noted()).get(catalog, Noted()).catalog_id

    async def _noted(self) -> dict[str, Noted]:
        async def noted(session: Session) -> dict[str, Noted]:
            return session.all(session.server.tables.catalogs)

        return await self._connection.run("noted", noted)

    async def _note(self, catalog: str, **what: Any) -> None:
        async def note(session: Session) -> None:
            table = session.server.tables.catalogs
            await session.lock(table, catalog)
            session.write(table, catalog, replace(session.seen(table, catalog) or Noted(), **what))

        await self._connection.run("note", note)
