"""The inbox of one process, in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn

import anyio
import anyio.to_thread
import structlog

from sfn.clock import Clock
from sfn.errors import Transient
from sfn.inbox import Claimed
from sfn.inbox.bell import Bell
from sfn.inbox.commits import Commit
from sfn.inbox.figures import BrakeState, Figures
from sfn.inbox.keeping import CLOSED_KEPT, PAGE, PRUNED, TENDED_EVERY, Batch
from sfn.inbox.letters import Audited, DeadLetter, Order, Wanted
from sfn.inbox.sqlite.committer import Committer
from sfn.inbox.sqlite.ledger import Ledger
from sfn.inbox.sqlite.lock import InboxLock
from sfn.inbox.sqlite.place import placed
from sfn.inbox.sqlite.refusals import refusal
from sfn.inbox.standing import Standing
from sfn.inbox.terms import Terms
from sfn.inbox.troubles import Troubles
from sfn.words import Accepted, Claim, Hint, Known, Note, Outcome, Slots, Step, Subject, TableName, Told, Undecodable

_log = structlog.stdlib.get_logger(__name__)


def _nobody(_: Commit) -> None:
    pass


class SqliteInbox:
    """Intake, worklist, roster and brake in one, for one event loop and one worker. `opened` makes it."""

    def __init__(self, committer: Committer, bell: Bell, clock: Clock) -> None:
        self._committer, self._bell, self._clock = committer, bell, clock

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        path: Path,
        terms: Terms,
        clock: Clock,
        *,
        queue_limit: int = 10_000,
        observe: Callable[[Commit], None] = _nobody,
    ) -> AsyncIterator[SqliteInbox]:
        """The inbox in a file, made where there is none, locked against other processes; closed in the end.

        Every lease that the last process left is taken back.

        Args:
            path: the file, or a link to it.
            terms: settings.
            clock: the wall clock.
            queue_limit: how many notes may wait for the disk.
            observe: told of every transaction.

        Raises:
            Broken: another process has it, a newer version wrote it, it can't be read and written, or it is mounted
                without its folder.
            Transient: scope inbox: the disk is full.
        """
        lock, ledger = await _locked(path, terms, clock.now())
        bell = Bell(clock)

        def committed(commit: Commit) -> None:
            if commit.stirring:
                bell.ring()
            observe(commit)

        committer = Committer(ledger, str(path), missing=lock.missing, queue_limit=queue_limit, committed=committed)
        try:
            yield cls(committer, bell, clock)
        finally:
            if await committer.close():
                lock.release()

    async def run_maintenance(self, retention: timedelta, every: float = TENDED_EVERY) -> NoReturn:
        """Keep the files small, for ever: a sibling of what uses the inbox.

        Args:
            retention: how long events are kept.
            every: seconds from one turn to the next.

        Raises:
            Broken: as soon as the inbox can't be trusted any more.
        """
        troubles = Troubles(self._clock, "tending")
        while True:
            with anyio.move_on_after(every):
                raise await self._committer.broken()
            # A later turn finds the same to do.
            with suppress(Transient), troubles.told():
                await self.run_maintenance_once(retention)

    async def run_maintenance_once(self, retention: timedelta) -> int:
        """Delete what is older, and bring what was written into the database; how many events went."""
        now = self._clock.now()
        total = await self._pruned(lambda ledger: ledger.prune(now - retention, PRUNED))
        await self._pruned(lambda ledger: ledger.desk.prune(now - CLOSED_KEPT, PRUNED))
        await self._committer.run(Ledger.checkpoint, alone=True)
        return total

    async def _pruned(self, prune: Callable[[Ledger], int]) -> int:
        pruned, total = PRUNED, 0
        while pruned == PRUNED:
            pruned = await self._committer.run(prune)
            total += pruned
            await anyio.sleep(0.02)
        return total

    async def put(self, notes: Sequence[Note]) -> Accepted:
        """See `Intake.put`."""
        return await self._committer.put(notes, self._clock.now())

    async def wait(self, until: datetime | None) -> None:
        """See `Worklist.wait`."""
        await self._bell.wait(until)

    async def claim(self, slots: Slots, held: Sequence[Claim] = ()) -> Claimed:
        """See `Worklist.claim`."""
        self._bell.clear()
        return await self._committer.run(lambda ledger: ledger.claim(slots, self._clock.now(), held))

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """See `Worklist.renew`."""
        kept = await self._committer.run(lambda ledger: ledger.renew(claims, self._clock.now()))
        if len(kept) < len(claims):
            self._bell.ring()
        return kept

    async def remember(self, claim: Claim, site: str, uuid: str | None) -> frozenset[TableName] | None:
        """See `Worklist.remember`."""
        now = self._clock.now()
        others = await self._committer.run(lambda ledger: ledger.remember(claim, site, uuid, now))
        if others:
            self._bell.ring()
        return others

    async def permit(self, claim: Claim, step: Step, now: datetime) -> bool:
        """See `Worklist.permit`."""
        return await self._committer.run(lambda ledger: ledger.permit(claim, step, now))

    async def settle(self, claim: Claim, outcome: Outcome, now: datetime) -> bool:
        """See `Worklist.settle`."""
        return await self._committer.run(lambda ledger: ledger.settle(claim, outcome, now), stirring=True)

    async def known(self, catalog: str) -> AsyncIterator[Known]:
        """See `Roster.known`."""
        page: list[tuple[str, Known]] = []
        while page := await self._known_after(catalog, page[-1][0] if page else ""):
            for _, known in page:
                yield known

    async def _known_after(self, catalog: str, after: str) -> list[tuple[str, Known]]:
        return await self._committer.run(lambda ledger: ledger.roster.known(catalog, after, PAGE))

    async def carrying(self, catalog: str, uuid: str) -> list[Known]:
        """See `Roster.carrying`."""
        return await self._committer.run(lambda ledger: ledger.roster.carrying(catalog, uuid))

    async def told(self, table: TableName) -> Told | None:
        """See `Roster.told`."""
        return await self._committer.run(lambda ledger: ledger.told(table))

    async def neighbours(self, table: TableName, location: str) -> frozenset[TableName]:
        """See `Roster.neighbours`."""
        return await self._committer.run(lambda ledger: ledger.neighbours(table, location))

    async def limit(self, catalog: str) -> int:
        """See `Brake.limit`."""
        return await self._committer.run(lambda ledger: ledger.limit(catalog))

    async def release(self, catalog: str, order: Order) -> int:
        """See `Brake.release`."""
        batch = await self._released(catalog, order, None)
        while batch.more:
            batch = await self._released(catalog, order, batch)
        return batch.count

    async def _released(self, catalog: str, order: Order, before: Batch | None) -> Batch:
        return await self._committer.run(lambda ledger: ledger.desk.release(catalog, order, before), stirring=True)

    async def figures(self) -> Figures:
        """See `Desk.figures`."""
        now = self._clock.now()
        return await self._committer.run(lambda ledger: ledger.desk.figures(now))

    async def standing(self, subject: Subject) -> Standing | None:
        """See `Desk.standing`."""
        return await self._committer.run(lambda ledger: ledger.desk.standing(subject))

    async def brake(self, catalog: str) -> BrakeState:
        """See `Desk.brake`."""
        now = self._clock.now()
        return await self._committer.run(lambda ledger: ledger.desk.brake(catalog, now))

    async def audited(self, before: int | None, limit: int) -> list[Audited]:
        """See `Desk.audited`."""
        return await self._committer.run(lambda ledger: ledger.desk.audited(before, limit))

    async def find(self, wanted: Wanted, after: int, limit: int) -> list[DeadLetter]:
        """See `DeadLetters.find`."""
        return await self._committer.run(lambda ledger: ledger.desk.find(wanted, after, limit))

    async def newest(self, wanted: Wanted, limit: int) -> list[DeadLetter]:
        """See `DeadLetters.newest`."""
        return await self._committer.run(lambda ledger: ledger.desk.newest(wanted, limit))

    async def numbered(self, numbers: Sequence[int]) -> list[DeadLetter]:
        """See `DeadLetters.numbered`."""
        return await self._committer.run(lambda ledger: ledger.desk.numbered(numbers))

    async def event(self, number: int) -> Undecodable | None:
        """See `DeadLetters.event`."""
        return await self._committer.run(lambda ledger: ledger.desk.event(number))

    async def replay(self, numbers: Sequence[int], hints: Sequence[Hint], order: Order) -> int:
        """See `DeadLetters.replay`."""
        return await self._committer.run(lambda ledger: ledger.desk.replay(numbers, hints, order), stirring=True)

    async def discard(self, numbers: Sequence[int], order: Order) -> int:
        """See `DeadLetters.discard`."""
        return await self._committer.run(lambda ledger: ledger.desk.discard(numbers, order))

    async def reconcile(self, hints: Sequence[Hint], order: Order) -> None:
        """See `Custody.reconcile`."""
        await self._committer.run(lambda ledger: ledger.desk.reconcile(hints, order), stirring=True)

    async def adopt(self, hints: Sequence[Hint], order: Order) -> None:
        """See `Custody.adopt`."""
        await self._committer.run(lambda ledger: ledger.desk.adopt(hints, order), stirring=True)

    async def retire(self, catalog: str, *, retired: bool, order: Order) -> None:
        """See `Custody.retire`."""
        await self._committer.run(lambda ledger: ledger.desk.retire(catalog, retired=retired, order=order))

    async def owner(self, catalog: str) -> str | None:
        """See `Custody.owner`."""
        return await self._committer.run(lambda ledger: ledger.desk.owner(catalog))

    async def own(self, catalog: str, catalog_id: str) -> None:
        """See `Custody.own`."""
        await self._committer.run(lambda ledger: ledger.desk.own(catalog, catalog_id))

    async def retired(self) -> frozenset[str]:
        """See `Custody.retired`."""
        return await self._committer.run(lambda ledger: ledger.desk.retired())


async def _locked(named: Path, terms: Terms, now: datetime) -> tuple[InboxLock, Ledger]:
    """The right to a file, and what is in it."""
    # SQLite too puts its log beside the file that a link leads to.
    path = Path(await anyio.to_thread.run_sync(os.path.realpath, named))
    doubt = await anyio.to_thread.run_sync(placed, path)
    if doubt is not None:
        _log.warning("doubtful place for the inbox", found=doubt.found, remedy=doubt.remedy)
    lock = InboxLock(path)
    try:
        ledger = await anyio.to_thread.run_sync(_opened, path, terms, now)
        lock.watch(named)
    except BaseException:
        lock.release()
        raise
    return lock, ledger


def _opened(path: Path, terms: Terms, now: datetime) -> Ledger:
    try:
        # Whoever lost the inbox, or mounted another disk in its place, sees it by this.
        new = not path.exists() or path.stat().st_size == 0
        ledger = Ledger(str(path), terms)
        taken_back = ledger.recover(now)
    except sqlite3.Error as error:
        refused = refusal(error, str(path))
        if refused is None:
            raise
        raise refused from error
    _log.info("inbox opened", path=str(path), new=new, leases_taken_back=taken_back)
    return ledger
