"""The job queue in PostgreSQL: the ports of receivers and workers, in batches of one transaction each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

import anyio

from sfn.clock import Clock
from sfn.concurrency import Batcher
from sfn.domain.events import InboxMessage, PutResult, TableReport
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import BackwardStep, Capacity, IndexedTable, LeasedJob, Outcome, describe
from sfn.errors import OutcomeUnknown, SfnError
from sfn.inbox import ClaimResult
from sfn.inbox.maintenance import INDEX_PAGE_SIZE
from sfn.inbox.model import CommittedTransaction, InboxConfig, LastResult, queue_full_error
from sfn.inbox.postgres.apply_puts import Put, PutReply
from sfn.inbox.postgres.claiming import ClaimRequest
from sfn.inbox.postgres.database import OpenedDatabase
from sfn.inbox.postgres.notify_listener import NotifyListener
from sfn.inbox.postgres.operations import PostgresOperations
from sfn.inbox.postgres.settling import SettleRequest, SettleResult
from sfn.inbox.postgres.transaction_runner import Operation
from sfn.inbox.scheduling import WorkerSignal

T = TypeVar("T")

POLLED: Final = timedelta(seconds=1)
"""Longest wait without a signal: a claim then finds what another process put or left."""
NOTES_AT_ONCE: Final = 1_000
ENDINGS_AT_ONCE: Final = 64
"""Most calls of one transaction, because its jobs are locked while it runs."""
UNHURRIED: Final = 2
"""Concurrent transactions of other operations, so that puts, claims, renewals and settles need not wait."""
_FASTER: Final = "raise `listener.queue_limit`, or give the database's server a faster disk"


class PostgresJobQueue:
    """Implements `InboxWriter`, `JobQueue`, `TableIndex` and a part of `DropLimit`, for one event loop and one worker.

    Args:
        there: the database.
        config: the configuration of the inbox.
        clock: the wall clock.
        queue_limit: most messages that may wait.
        observe: called after every transaction.
    """

    def __init__(
        self,
        there: OpenedDatabase,
        config: InboxConfig,
        clock: Clock,
        *,
        queue_limit: int,
        observe: Callable[[CommittedTransaction], None],
    ) -> None:
        self._transactions, self._where = there.transactions, there.where
        self._clock, self._config = clock, config
        self._operations = PostgresOperations(config, clock.now)
        self._signal = WorkerSignal(clock)
        self._ear = NotifyListener(there.connections, self._signal.notify)
        self._queue_limit, self._observe = queue_limit, observe
        self._queued = 0
        self._puts = Batcher[Put, PutReply](
            self._put_all, self._notify, weight=lambda put: len(put[0]), max_weight=NOTES_AT_ONCE
        )
        self._endings = Batcher[SettleRequest, SettleResult](
            self._settle_all, self._notify, weight=lambda _: 1, max_weight=ENDINGS_AT_ONCE
        )
        self._few = anyio.Semaphore(UNHURRIED)
        # By their tokens, claims that may have been made and settles that may have been taken.
        self._unsure: dict[int, LeasedJob] = {}
        self._tried: dict[int, tuple[LastResult, ...]] = {}
        self._doubtful_until: dict[int, datetime] = {}

    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        if self._queued and self._queued + len(messages) > self._queue_limit:
            raise queue_full_error(self._where, self._queue_limit, self._queued, len(messages), _FASTER)
        self._queued += len(messages)
        try:
            return (await self._puts((messages, self._clock.now()))).accepted
        finally:
            self._queued -= len(messages)

    async def wait(self, until: datetime | None) -> None:
        """Wait for a wake-up or until a time, a second at most: a lost wake-up must not delay a job for longer."""
        await self._ear.listen()
        poll = self._clock.now() + POLLED
        await self._signal.wait(poll if until is None else min(until, poll))

    async def claim(self, capacity: Capacity, running: Sequence[LeasedJob] = ()) -> ClaimResult:
        self._signal.clear()
        self._forget_doubts()
        asked = ClaimRequest(capacity, running, list(self._unsure.values()))
        made: list[LeasedJob] = []
        try:
            return await self._ran(lambda unit: self._operations.claiming.claim(unit, asked, made))
        except BaseException:
            # If these claims were committed, no worker has their jobs, or could claim them before their leases expire.
            for claim in made:
                self._doubt(claim)
                self._unsure[claim.fencing_token] = claim
            raise

    async def renew(self, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        renewed = await self._ran(lambda unit: self._operations.claiming.renew(unit, claims))
        if len(renewed) < len(claims):
            self._signal.notify()
        return renewed

    async def record_location(
        self, claim: LeasedJob, layout_key: str, uuid: str | None
    ) -> frozenset[TableIdentifier] | None:
        others = await self._unhurried(lambda unit: self._operations.record_location(unit, claim, layout_key, uuid))
        if others:
            await self._stir()
        return others

    async def allow_step(self, claim: LeasedJob, step: BackwardStep, now: datetime) -> bool:
        return await self._unhurried(lambda unit: self._operations.allow_step(unit, claim, step, now))

    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        tried = self._tried.get(claim.fencing_token, ())
        try:
            settled = await self._endings(SettleRequest(claim, outcome, now, tried))
        except BaseException as error:
            if isinstance(error, OutcomeUnknown) or not isinstance(error, SfnError):
                self._doubt(claim)
                self._tried[claim.fencing_token] = (*tried, LastResult(*describe(outcome), now))
            raise
        self._tried.pop(claim.fencing_token, None)
        return settled.has_settled

    async def tables(self, catalog: str) -> AsyncIterator[IndexedTable]:
        page: list[tuple[str, IndexedTable]] = []
        while page := await self._known_after(catalog, page[-1][0] if page else ""):
            for _, known in page:
                yield known

    async def _known_after(self, catalog: str, after: str) -> list[tuple[str, IndexedTable]]:
        return await self._unhurried(lambda unit: unit.table_index.known(catalog, after, INDEX_PAGE_SIZE))

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        return await self._unhurried(lambda unit: unit.table_index.with_uuid(catalog, uuid))

    async def reported_tables(self, table: TableIdentifier) -> tuple[TableReport, ...]:
        return await self._unhurried(lambda unit: self._operations.reported_tables(unit, table))

    async def at_location(self, table: TableIdentifier, location: str) -> frozenset[TableIdentifier]:
        return await self._unhurried(lambda unit: self._operations.at_location(unit, table, location))

    async def max_missing(self, catalog: str) -> int:
        return await self._unhurried(lambda unit: self._operations.max_missing(unit, catalog))

    def _doubt(self, claim: LeasedJob) -> None:
        """Remember a claim with an unknown result until its lease expired long ago."""
        self._doubtful_until[claim.fencing_token] = self._clock.now() + 2 * self._config.lease

    def _forget_doubts(self) -> None:
        now = self._clock.now()
        for token in [token for token, until in self._doubtful_until.items() if until <= now]:
            del self._doubtful_until[token]
            self._unsure.pop(token, None)
            self._tried.pop(token, None)

    async def _unhurried(self, operation: Operation[T]) -> T:
        """Run an operation for which puts, claims and settles need not wait."""
        async with self._few:
            return await self._ran(operation)

    async def _ran(self, operation: Operation[T], *, wide: bool = False) -> T:
        began = anyio.current_time()
        result = await self._transactions.run(operation, wide=wide)
        self._observe(CommittedTransaction(1, 0, may_make_due=False, seconds=anyio.current_time() - began))
        return result

    async def _stir(self) -> None:
        """Wake the workers of all processes, because a job may have become due."""
        self._signal.notify()
        await self._ear.notify()

    async def _put_all(self, puts: Sequence[Put]) -> Sequence[PutReply]:
        began, also = anyio.current_time(), set[JobKey]()
        answers = await self._transactions.run(lambda unit: self._operations.writer.put_all(unit, puts, also))
        may_make_due = any(answer.may_make_due for answer in answers)
        if may_make_due:
            self._signal.notify()
        notes = sum(len(notes) for notes, _ in puts)
        self._observe(CommittedTransaction(len(puts), notes, may_make_due, anyio.current_time() - began))
        return answers

    async def _settle_all(self, endings: Sequence[SettleRequest]) -> Sequence[SettleResult]:
        began = anyio.current_time()
        answers = await self._transactions.run(lambda unit: self._operations.settle_all(unit, endings))
        self._signal.notify()
        self._observe(CommittedTransaction(len(endings), 0, may_make_due=True, seconds=anyio.current_time() - began))
        return answers

    async def _notify(self, answers: Sequence[PutReply | SettleResult]) -> None:
        if any(answer.may_make_due for answer in answers):
            await self._ear.notify()
