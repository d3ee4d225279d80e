"""The inbox that any number of processes share, in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final, NoReturn

import anyio
import structlog

from sfn.clock import Clock
from sfn.errors import Transient
from sfn.inbox.commits import Commit
from sfn.inbox.figures import BrakeState, Figures
from sfn.inbox.keeping import CLOSED_KEPT, PRUNED, TENDED_EVERY, Batch
from sfn.inbox.letters import Audited, DeadLetter, Order, Wanted
from sfn.inbox.postgres import schema
from sfn.inbox.postgres.counting import Counted
from sfn.inbox.postgres.opening import Reached, prepared, reached
from sfn.inbox.postgres.schema import MIGRATIONS, Migration
from sfn.inbox.postgres.server import Server
from sfn.inbox.postgres.unit import Unit
from sfn.inbox.postgres.worklist import PostgresWorklist
from sfn.inbox.standing import Standing
from sfn.inbox.terms import Terms
from sfn.inbox.troubles import Troubles
from sfn.words import Hint, Subject, Undecodable

FIGURES_KEPT: Final = 5.0
"""Seconds."""
LOOKED_AT_EVERY: Final = 5.0
"""Seconds from one look at the schema's version to the next."""

_log = structlog.stdlib.get_logger(__name__)


def _nobody(_: Commit) -> None:
    pass


class PostgresInbox(PostgresWorklist):
    """All faces of an inbox in one, for one event loop and one worker; others may be on the same database.

    `opened` makes it.
    """

    def __init__(
        self,
        there: Reached,
        terms: Terms,
        clock: Clock,
        *,
        queue_limit: int = 10_000,
        observe: Callable[[Commit], None] = _nobody,
        figures_kept: float = FIGURES_KEPT,
        version: int = len(MIGRATIONS),
    ) -> None:
        super().__init__(there, terms, clock, queue_limit=queue_limit, observe=observe)
        self._version = version
        self._figures = Counted(self._count, figures_kept)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        server: Server,
        terms: Terms,
        clock: Clock,
        *,
        queue_limit: int = 10_000,
        observe: Callable[[Commit], None] = _nobody,
        figures_kept: float = FIGURES_KEPT,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> AsyncIterator[PostgresInbox]:
        """The inbox in a database, whose tables are made where there are none; all connections are closed in the end.

        Args:
            server: where the database is.
            terms: settings.
            clock: the wall clock: those of all processes must agree to a fraction of a lease.
            queue_limit: how many notes may wait.
            observe: told of every transaction.
            figures_kept: seconds that figures may be old; 0 for those of this moment.
            migrations: this version's.

        Raises:
            Broken: it can't be kept there, or a newer version made the tables that does not know ours.
            Transient: scope inbox: the server does not answer, and did not for a while.
        """
        async with reached(server, terms.stores) as there:
            new = await prepared(there, migrations)
            _log.info("inbox opened", database=there.where, new=new, pooled=there.connections.is_pooled)
            yield cls(
                there,
                terms,
                clock,
                queue_limit=queue_limit,
                observe=observe,
                figures_kept=figures_kept,
                version=len(migrations),
            )

    async def run_maintenance(self, retention: timedelta, every: float = TENDED_EVERY) -> NoReturn:
        """Keep the tables small, for ever: a sibling of what uses the inbox. One of all processes does at a time.

        Args:
            retention: how long events are kept.
            every: seconds from one turn to the next.

        Raises:
            Broken: a newer version made tables of them that does not know ours.
        """
        troubles = Troubles(self._clock, "tending")
        tended_at = anyio.current_time()
        while True:
            await anyio.sleep(min(every, LOOKED_AT_EVERY))
            # A later turn finds the same to do.
            with suppress(Transient), troubles.told():
                await self.check_version()
                await self._figures.refresh()
                if anyio.current_time() >= tended_at + every:
                    tended_at = anyio.current_time()
                    await self.run_maintenance_once(retention)

    async def run_maintenance_once(self, retention: timedelta) -> int:
        """Delete what is older, unless another process does so just now; how many events went."""
        now = self._clock.now()
        total = await self._pruned(lambda unit: unit.events.prune(now - retention, PRUNED))
        await self._pruned(lambda unit: unit.letters.prune(now - CLOSED_KEPT, PRUNED))
        return total

    async def check_version(self) -> None:
        """See whether this version may still work on the tables.

        Raises:
            Broken: it may not.
        """
        schema.check(await self._transactions.on_tables(schema.found), self._where, self._version)

    async def release(self, catalog: str, order: Order) -> int:
        """See `Brake.release`."""
        batch = await self._released(catalog, order, None)
        while batch.more:
            batch = await self._released(catalog, order, batch)
        return batch.count

    async def figures(self) -> Figures:
        """See `Desk.figures`; they may be some seconds old."""
        return await self._figures()

    async def standing(self, subject: Subject) -> Standing | None:
        """See `Desk.standing`."""
        return await self._unhurried(lambda unit: self._ledger.desk.standing(unit, subject))

    async def brake(self, catalog: str) -> BrakeState:
        """See `Desk.brake`."""
        now = self._clock.now()
        return await self._unhurried(lambda unit: self._ledger.desk.brake(unit, catalog, now))

    async def audited(self, before: int | None, limit: int) -> list[Audited]:
        """See `Desk.audited`."""
        return await self._unhurried(lambda unit: unit.letters.audited(before, limit))

    async def find(self, wanted: Wanted, after: int, limit: int) -> list[DeadLetter]:
        """See `DeadLetters.find`."""
        return await self._unhurried(lambda unit: unit.letters.find(wanted, after, limit))

    async def newest(self, wanted: Wanted, limit: int) -> list[DeadLetter]:
        """See `DeadLetters.newest`."""
        return await self._unhurried(lambda unit: unit.letters.newest(wanted, limit))

    async def numbered(self, numbers: Sequence[int]) -> list[DeadLetter]:
        """See `DeadLetters.numbered`."""
        return await self._unhurried(lambda unit: unit.letters.numbered(numbers))

    async def event(self, number: int) -> Undecodable | None:
        """See `DeadLetters.event`."""
        return await self._unhurried(lambda unit: unit.letters.event(number))

    async def replay(self, numbers: Sequence[int], hints: Sequence[Hint], order: Order) -> int:
        """See `DeadLetters.replay`."""
        also = set[Subject]()
        count = await self._unhurried(lambda unit: self._ledger.desk.replay(unit, numbers, hints, order, also))
        await self._stir()
        return count

    async def discard(self, numbers: Sequence[int], order: Order) -> int:
        """See `DeadLetters.discard`."""
        return await self._unhurried(lambda unit: self._ledger.desk.discard(unit, numbers, order))

    async def reconcile(self, hints: Sequence[Hint], order: Order) -> None:
        """See `Custody.reconcile`."""
        await self._told("reconcile", hints, order)

    async def adopt(self, hints: Sequence[Hint], order: Order) -> None:
        """See `Custody.adopt`."""
        await self._told("adopt", hints, order)

    async def retire(self, catalog: str, *, retired: bool, order: Order) -> None:
        """See `Custody.retire`."""
        await self._unhurried(lambda unit: self._ledger.desk.retire(unit, catalog, order, retired=retired))

    async def owner(self, catalog: str) -> str | None:
        """See `Custody.owner`."""
        return await self._unhurried(lambda unit: unit.catalogs.owner(catalog))

    async def own(self, catalog: str, catalog_id: str) -> None:
        """See `Custody.own`."""
        await self._unhurried(lambda unit: unit.catalogs.own(catalog, catalog_id))

    async def retired(self) -> frozenset[str]:
        """See `Custody.retired`."""
        return await self._unhurried(lambda unit: unit.catalogs.retired())

    async def _count(self) -> Figures:
        now = self._clock.now()
        return await self._ran(lambda unit: self._ledger.desk.figures(unit, now), wide=True)

    async def _released(self, catalog: str, order: Order, before: Batch | None) -> Batch:
        batch = await self._unhurried(lambda unit: self._ledger.desk.release(unit, catalog, order, before))
        await self._stir()
        return batch

    async def _told(self, action: str, hints: Sequence[Hint], order: Order) -> None:
        also = set[Subject]()
        await self._unhurried(lambda unit: self._ledger.desk.tell(unit, action, hints, order, also))
        await self._stir()

    async def _pruned(self, prune: Callable[[Unit], Awaitable[int]]) -> int:
        async def alone(unit: Unit) -> int:
            return await prune(unit) if await unit.alone() else 0

        pruned, total = PRUNED, 0
        while pruned == PRUNED:
            pruned = await self._unhurried(alone)
            total += pruned
            await anyio.sleep(0.02)
        return total
