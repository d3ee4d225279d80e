"""One walk over a catalog: finds what no event told of, and puts it into the inbox as hints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sfn.catalog import Catalog
from sfn.clock import Clock
from sfn.errors import Scope, Trouble
from sfn.inbox import Brake, Intake, Roster
from sfn.publish.policy import Policy
from sfn.words import CatalogName, Hint, Known, Loaded, Missing, Reason, Swept, TableName

WIDTH = 16
"""Loads in flight."""
BATCH = 200
"""Hints in one transaction."""


@dataclass(frozen=True, slots=True)
class SweepPorts:
    """What one sweep talks to."""

    catalog: Catalog
    intake: Intake
    roster: Roster
    brake: Brake
    clock: Clock


class Sweep:
    """One sweep.

    What differs becomes a hint as it is found. Absences become hints only after every table was looked at, all of them
    marked `held` when they are more than the brake allows.
    """

    def __init__(self, subject: CatalogName, ports: SweepPorts, policy: Policy) -> None:
        self._subject, self._ports, self._policy = subject, ports, policy
        self._hints: list[Hint] = []
        self._absent: list[TableName] = []
        self._listed: set[TableName] = set()
        self._trouble: Trouble | None = None

    async def run(self, jitter: float) -> Swept:
        """Do it.

        Args:
            jitter: in [0, 1), spreads the next one.

        Raises:
            Trouble: the catalog or the inbox failed; no absence was told of.
        """
        began = self._ports.clock.now()
        known = {row.table: row async for row in self._ports.roster.known(self._subject.catalog)}
        await self._look_at_all(known)
        await self._tell()
        if self._trouble is not None:
            raise self._trouble
        calm = await self._tell_absences(known)
        pause = self._policy.sweep_every * (0.9 + jitter / 5)
        return Swept(due_at=began + pause, began=began, calm=calm)

    async def _look_at_all(self, known: Mapping[TableName, Known]) -> None:
        send, receive = anyio.create_memory_object_stream[TableName](WIDTH)
        async with anyio.create_task_group() as tasks, send:
            for _ in range(WIDTH):
                tasks.start_soon(self._look_at_each, receive.clone(), known)
            receive.close()
            await self._list_into(send)

    async def _list_into(self, send: MemoryObjectSendStream[TableName]) -> None:
        try:
            async for table in self._interesting():
                self._listed.add(table)
                if self._trouble is not None:
                    break
                await send.send(table)
        except Trouble as trouble:
            self._trouble = trouble

    async def _interesting(self) -> AsyncIterator[TableName]:
        async for table in self._ports.catalog.tables():
            if self._policy.interest.covers(table):
                yield table

    async def _look_at_each(
        self, tables: MemoryObjectReceiveStream[TableName], known: Mapping[TableName, Known]
    ) -> None:
        with tables:
            async for table in tables:
                try:
                    await self._look_at(table, known.get(table))
                except Trouble as trouble:
                    if trouble.scope is not Scope.TABLE:
                        self._trouble = trouble
                        return

    async def _look_at(self, table: TableName, row: Known | None) -> None:
        etag = row.etag if row is not None and row.live is not None else None
        answer = await self._ports.catalog.load(table, etag)
        if isinstance(answer, Missing):
            self._absent.append(table)
        elif isinstance(answer, Loaded) and _differs(answer, row):
            self._hints.append(Hint(table, sender="sweep", floor=answer.table.metadata_location))
            if len(self._hints) >= BATCH:
                await self._tell()

    async def _tell(self) -> None:
        hints, self._hints = self._hints, []
        for start in range(0, len(hints), BATCH):
            await self._ports.intake.put(hints[start : start + BATCH])

    async def _tell_absences(self, known: Mapping[TableName, Known]) -> bool:
        """Whether there were few enough."""
        gone = set(self._absent) | (set(known) - self._listed)
        rows = [
            row for table, row in sorted(known.items()) if table in gone and row.live is not None and row.reason is None
        ]
        absent = [row.table for row in rows if self._policy.interest.covers(row.table)]
        excluded = [row.table for row in rows if not self._policy.interest.covers(row.table)]
        calm = len(absent) <= await self._ports.brake.limit(self._subject.catalog)
        self._hints = [Hint(table, sender="sweep", held=not calm) for table in absent]
        self._hints += [Hint(table, sender="sweep") for table in excluded]
        await self._tell()
        return calm


def _differs(answer: Loaded, row: Known | None) -> bool:
    """Whether a row should look.

    A dead one too, or what was refused by mistake would never heal by itself; but what ended the process again and
    again is left alone until there is something new.
    """
    if row is not None and row.reason is Reason.POISON:
        return row.told != answer.table.metadata_location
    if row is None or row.live is None:
        return answer.table.left_alone is None
    same = (row.live.pointer, row.live.uuid) == (answer.table.metadata_location, answer.table.uuid)
    return not same or answer.table.left_alone is not None
