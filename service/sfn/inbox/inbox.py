"""The inbox of one process, on any database.

`Inbox` runs the operations of `sfn.inbox.operations` by a `Runner` (port in `sfn.inbox.transaction`); its base class
has the queries and commands of operators. There are two runners: `sfn.inbox.sqlite` and `sfn.inbox.postgres`. `Inbox`
also knows what one process must remember between transactions: which claims have an unknown result, and how much waits
to be folded.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Generic, NoReturn, TypeVar

import anyio
import anyio.lowlevel
import structlog
from msgspec import structs
from typing_extensions import override

from sfn.clock import Clock
from sfn.concurrency import Batcher
from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import BackwardStep, Capacity, IndexedTable, LeasedJob, Outcome, describe
from sfn.errors import ExternalError, OutcomeUnknown, SfnError, Transient
from sfn.inbox import ClaimResult, QueueStats, jobs
from sfn.inbox.administration import PRUNE_BATCH_SIZE, Administration, prune_events, queue_stats
from sfn.inbox.dead_letters import prune_letters
from sfn.inbox.intents import first_check_at
from sfn.inbox.model import FoldResult, LastResult, queue_full_error
from sfn.inbox.operations import MAX_FOLDED, ClaimRequest, Operations, SettleRequest
from sfn.inbox.schema import encode_message, to_micros
from sfn.inbox.transaction import Durability, Operation, Runner, Wakes
from sfn.telemetry import tracing

T = TypeVar("T")

_log = structlog.stdlib.get_logger(__name__)

FOLD_LIMIT: Final = 50_000
"""Most records that may wait to be folded before receivers fold, too: then accepting takes as long as folding."""
FOLD_INTERVAL: Final = 1.0
"""Seconds until waiting records are folded if no worker claims: intents count against their limits from then on."""
FOLD_PAUSE: Final = 0.000_25
"""Pause of a worker's claims between two folds, in seconds for each record of the first one.

One fold of many records is cheaper per record, because all records of a table change one job. Above about 4,000
records a second the pause makes folds larger; below, claims hardly wait."""
MAX_FOLD_PAUSE: Final = 1.0
"""Longest such pause, in seconds."""
MAX_CAUGHT_UP: Final = 20_000
"""Most records that are folded before one claim: they take about a second."""
MAX_SETTLED: Final = 64
"""Most claims that are settled in one transaction."""


CLOSED_LETTER_RETENTION: Final = timedelta(days=30)
"""Time until a closed dead letter is deleted."""
MAINTENANCE_INTERVAL: Final = 60.0
"""Seconds between two maintenance runs."""


class Inbox(Administration):
    """An inbox, for one event loop and one worker.

    Args:
        runner: runs operations in the database.
        operations: the operations.
        clock: the wall clock.
        queue_limit: most messages that may wait for the disk.
        observe_fold: called after each fold that found records.
        unapplied: number of records that wait to be folded at the start.
    """

    def __init__(
        self,
        runner: Runner,
        operations: Operations,
        clock: Clock,
        *,
        queue_limit: int,
        observe_fold: Callable[[FoldResult], None],
        unapplied: int = 0,
    ) -> None:
        super().__init__(runner, operations, clock)
        self._queue_limit, self._observe_fold = queue_limit, observe_fold
        self._queued: dict[int, tuple[datetime, int]] = {}
        self._queued_count = self._puts = 0
        # Records that this process may have accepted, and how many of them are folded for certain.
        self._accepted, self._applied = unapplied, 0
        self._folded_at = -FOLD_INTERVAL
        self._fold_due_at = -math.inf
        # The number of the last claim that folded. What made a job due after that number was not seen by any claim.
        self._claimed_number: int | None = None
        self._has_folded = False
        # Set if the last claim leased jobs: nothing else that is due fits the capacity. The next claim waits at once.
        self._rest: ClaimResult | None = None
        self._is_waiting = self._is_interrupted = False
        self._interrupted = anyio.Event()
        self._settles = Batcher[SettleRequest, bool](self._settle_all, weight=lambda _: 1, max_weight=MAX_SETTLED)
        # By their tokens and subjects, claims that may have been made and settles that may have been stored.
        self._unsure: dict[tuple[int, JobKey], LeasedJob] = {}
        self._tried: dict[tuple[int, JobKey], tuple[LastResult, ...]] = {}
        self._doubtful_until: dict[tuple[int, JobKey], datetime] = {}

    # ── Receivers

    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        count = len(messages)
        if self._queued_count and self._queued_count + count > self._queue_limit:
            remedy = "raise `listener.queue_limit`, or give the inbox a faster disk"
            raise queue_full_error(self._runner.where, self._queue_limit, self._queued_count, count, remedy)
        if not count:
            return PutResult(0, 0)
        now = self._clock.now()
        self._puts = number = self._puts + 1
        self._queued[number] = now, count
        self._queued_count += count
        try:
            if self._unapplied >= FOLD_LIMIT:
                await self.fold()
            at = to_micros(now)
            with tracing.span("inbox append", "producer") as step:
                rows = [encode_message(message, at) for message in _traced(messages, step)]
                appended = await self._runner.append(rows, _woken_by(messages))
        finally:
            del self._queued[number]
            self._queued_count -= count
            # A caller that is cancelled, or gets an error, may have stored them all the same.
            self._accepted += count
        accepted = duplicates = 0
        for message, is_new in zip(messages, appended.new, strict=True):
            if isinstance(message, Notification):
                accepted += is_new
                duplicates += not is_new
        return PutResult(accepted, duplicates)

    async def fold(self) -> FoldResult:
        """Fold the oldest records that wait."""
        accepted = self._accepted
        folded = await self._runner.run(self._operations.fold, Durability.DERIVED)
        self._note_fold(folded, accepted)
        return folded

    @property
    def _unapplied(self) -> int:
        """The number of accepted records that may still wait to be folded."""
        return self._accepted - self._applied

    # ── Workers

    async def claim(
        self, capacity: Capacity, running: Sequence[LeasedJob] = (), until: datetime | None = None
    ) -> ClaimResult:
        rest, self._rest = self._rest, None
        self._is_interrupted = is_over = False
        if rest is None or until is None:
            claimed = await self._claim(capacity, running, folds=until is None or self._may_fold)
        else:
            claimed = rest
        while not (until is None or claimed.has_news or is_over or self._is_interrupted):
            now = self._clock.now()
            wait_until = self._wait_until(claimed.next_due, until, now)
            is_over = wait_until >= until
            found = None
            self._is_waiting = True
            try:
                with anyio.move_on_after((wait_until - now).total_seconds()):
                    await self._pause_folds()
                    if not self._is_interrupted:
                        found = await self._claim_after(self._claimed_number, capacity, running, folds=True)
                        is_over = False
            finally:
                self._is_waiting = False
            if self._is_interrupted and found is None:
                break
            claimed = found or await self._claim(capacity, running, folds=self._may_fold)
        if claimed.jobs and self._has_folded and not self._is_interrupted:
            self._rest = ClaimResult((), claimed.next_due)
        return claimed

    def interrupt(self) -> None:
        self._is_interrupted, self._rest = True, None
        if self._is_waiting:
            self._interrupted.set()
            self._runner.end_wait()

    @property
    def _may_fold(self) -> bool:
        """False while the worker's claims do not fold, because the last fold was not long ago."""
        return anyio.current_time() >= self._fold_due_at

    async def _pause_folds(self) -> None:
        """Wait until claims may fold, or until an interrupt."""
        if self._may_fold:
            return
        self._interrupted = anyio.Event()
        with anyio.move_on_after(self._fold_due_at - anyio.current_time()):
            await self._interrupted.wait()

    def _wait_until(self, next_due: datetime | None, until: datetime, now: datetime) -> datetime:
        """Return how long to wait for a signal.

        An intent gives none: an answer closes most of them long before their first check is due, and a signal for each
        would cost every gateway commit a claim. So a wait is never longer than the first delay of an intent.
        """
        moments = [until, first_check_at(now)]
        moments += [next_due] if next_due is not None else []
        interval = self._runner.poll_interval
        moments += [now + interval] if interval is not None else []
        return max(now, min(moments))

    async def _claim(self, capacity: Capacity, running: Sequence[LeasedJob], *, folds: bool) -> ClaimResult:
        """Claim at once."""
        made: list[LeasedJob] = []
        try:
            found = await self._claim_after(None, capacity, running, made, folds=folds)
        except BaseException:
            # If these claims were committed, no worker has their jobs.
            self._remember_unsure(made)
            raise
        assert found is not None  # noqa: S101 - nothing has to be awaited
        return found

    async def _claim_after(
        self,
        after: int | None,
        capacity: Capacity,
        running: Sequence[LeasedJob],
        made: list[LeasedJob] | None = None,
        *,
        folds: bool,
    ) -> ClaimResult | None:
        """Claim once something may have made a job due since the claim with the number `after`, see `Runner.claim`."""
        self._forget_doubts()
        if folds:
            await self._catch_up(MAX_FOLDED)
        request = ClaimRequest(capacity, running, list(self._unsure.values()), folds=folds)
        leased = made if made is not None else []
        accepted = self._accepted
        found = await self._runner.claim(
            lambda transaction: self._operations.claim(transaction, request, leased),
            after,
            self._give_back,
            is_free=capacity.total + capacity.sweeps > 0,
        )
        if found is None:
            return None
        claimed, number = found
        self._has_folded = folds
        if folds:
            self._claimed_number = number
            self._note_fold(claimed.fold, accepted)
        return self._operations.with_unreported(claimed)

    def _give_back(self, claimed: ClaimResult) -> None:
        """Have the next claim give back what was leased for a claim that was cancelled, and report the rest."""
        self._note_fold(claimed.fold, 0)
        self._remember_unsure(claimed.jobs)
        # The claim that is under way by now does not know of them.
        self.interrupt()
        self._operations.report_later(claimed.expired_leases, claimed.poison_letters)

    def _remember_unsure(self, claims: Sequence[LeasedJob]) -> None:
        """Remember claims that no worker has, and that could not be made again before their leases expire."""
        for claim in claims:
            self._doubt(claim)
            self._unsure[_token(claim)] = claim

    @override
    async def _catch_up(self, rest: int) -> None:
        """Fold waiting records until at most `rest` are left, or about `MAX_CAUGHT_UP` were folded.

        A claim folds the last ones itself. It catches up before, so that one check covers all events of a table.
        """
        waiting = min(self._unapplied, MAX_CAUGHT_UP)
        while waiting > rest:
            folded = await self.fold()
            waiting -= folded.records
            if not folded.has_more:
                return

    async def renew(self, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        renewed = await self._runner.run(
            lambda transaction: self._operations.renew(transaction, claims), Durability.DERIVED
        )
        if len(renewed) < len(claims):
            self.interrupt()
        return renewed

    async def record_location(
        self, claim: LeasedJob, layout_key: str, uuid: str | None
    ) -> frozenset[TableIdentifier] | None:
        with tracing.span("inbox record location"):
            others, _ = await self._runner.run(
                lambda transaction: self._operations.record_location(transaction, claim, layout_key, uuid),
                Durability.SYNCED,
                lambda recorded: recorded[1],
            )
        return others

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        return await self._runner.run(
            lambda transaction: jobs.tables_with_uuid(transaction, catalog, uuid), Durability.READ
        )

    async def at_location(self, table: TableIdentifier, location: str) -> frozenset[TableIdentifier]:
        others = await self._runner.run(
            lambda transaction: jobs.others_at(transaction, table, location), Durability.READ
        )
        return frozenset(others)

    async def allow_step(self, claim: LeasedJob, step: BackwardStep, now: datetime) -> bool:
        return await self._runner.run(
            lambda transaction: self._operations.allow_step(transaction, claim, step, now), Durability.SYNCED
        )

    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        token = _token(claim)
        tried = self._tried.get(token, ())
        try:
            with tracing.span("inbox settle"):
                settled = await self._settles(SettleRequest(claim, outcome, now, tried))
        except BaseException as error:
            if isinstance(error, OutcomeUnknown) or not isinstance(error, SfnError):
                self._tried[token] = tried = (*tried, LastResult(*describe(outcome), now))
            if tried:
                # This attempt or an earlier one may have been stored, however long the outage lasts.
                self._doubt(claim)
            raise
        self._tried.pop(token, None)
        return settled

    # ── Operators

    async def stats(self) -> QueueStats:
        now = self._clock.now()
        if self._unapplied:
            # Once: a large backlog is left to the worker, and is counted as one.
            await self.fold()
        stats = await self._runner.run(
            lambda transaction: queue_stats(transaction, now, self._config.late_after), Durability.WIDE_READ
        )
        oldest = next(iter(self._queued.values()), None)
        return replace(stats, queued=self._queued_count, oldest_queued=oldest[0] if oldest is not None else None)

    # ── Maintenance

    async def run_maintenance(self, retention: timedelta, every: float = MAINTENANCE_INTERVAL) -> NoReturn:
        """Fold what no worker folds, and delete old records and dead letters at intervals, until cancelled.

        Args:
            retention: time until a record of the log is deleted.
            every: seconds between two deletions.

        Raises:
            FatalError: as soon as the inbox cannot be trusted any more.
        """
        troubles = InboxErrorLog(self._clock, "maintenance")
        pruned_at = anyio.current_time()
        while True:
            await self._runner.check()
            await anyio.sleep(min(every, FOLD_INTERVAL))
            # A later run has the same work.
            with suppress(Transient), troubles.log_errors():
                if self._unapplied and anyio.current_time() >= self._folded_at + FOLD_INTERVAL:
                    while (await self.fold()).has_more:
                        await anyio.lowlevel.checkpoint()
                if anyio.current_time() >= pruned_at + every:
                    pruned_at = anyio.current_time()
                    await self.run_maintenance_once(retention)

    async def run_maintenance_once(self, retention: timedelta) -> int:
        """Delete old records of the log and dead letters; return the number of deleted records."""
        now = self._clock.now()
        count = await self._prune(lambda transaction: prune_events(transaction, now - retention))
        await self._prune(
            lambda transaction: prune_letters(transaction, now - CLOSED_LETTER_RETENTION, PRUNE_BATCH_SIZE)
        )
        await self._runner.checkpoint()
        return count

    async def _prune(self, prune: Operation[int]) -> int:
        pruned, total = PRUNE_BATCH_SIZE, 0
        while pruned == PRUNE_BATCH_SIZE:
            pruned = await self._runner.run(prune, Durability.DERIVED)
            total += pruned
            await anyio.sleep(0.02)
        return total

    # ── Steps

    async def _settle_all(self, requests: Sequence[SettleRequest]) -> Sequence[bool]:
        settled: list[bool] | None = None
        wakes_others = any(request.result.wakeups or request.places for request in requests)
        while settled is None:
            settled = await self._runner.run(
                lambda transaction: self._operations.settle_all(transaction, requests),
                Durability.DERIVED,
                Wakes.ALL_WORKERS if wakes_others else Wakes.OWN_WORKER,
            )
        self._observe_other_folds()
        return settled

    def _note_fold(self, fold: FoldResult, accepted: int) -> None:
        """Note a fold that began after `accepted` records; what came meanwhile may have been too late for it."""
        self._folded_at = now = anyio.current_time()
        # A small fold may follow a large one at once, if a claim catches up.
        self._fold_due_at = max(self._fold_due_at, now + min(fold.records * FOLD_PAUSE, MAX_FOLD_PAUSE))
        applied = min(self._applied + fold.records, self._accepted) if fold.has_more else accepted
        self._applied = max(self._applied, applied)
        self._observe(fold)

    def _observe(self, fold: FoldResult) -> None:
        if fold.records:
            self._observe_fold(fold)

    @override
    def _observe_other_folds(self) -> None:
        """Observe the folds of commands and settles."""
        while self._operations.other_folds:
            self._observe(self._operations.other_folds.popleft())

    def _doubt(self, claim: LeasedJob) -> None:
        """Remember a claim with an unknown result until its lease expired long ago."""
        self._doubtful_until[_token(claim)] = self._clock.now() + 2 * self._config.lease

    def _forget_doubts(self) -> None:
        if not self._doubtful_until:
            return
        now = self._clock.now()
        for token in [token for token, until in self._doubtful_until.items() if until <= now]:
            del self._doubtful_until[token]
            self._unsure.pop(token, None)
            self._tried.pop(token, None)


def _traced(messages: Sequence[InboxMessage], step: tracing.Span) -> Sequence[InboxMessage]:
    """Return the messages; notifications that have no trace of their own continue that of the append."""
    trace = step.context
    if not trace:
        return messages
    step.set({"messaging.operation.type": "send", "messaging.batch.message_count": len(messages)})
    return [
        structs.replace(message, trace=trace) if isinstance(message, Notification) and not message.trace else message
        for message in messages
    ]


def _woken_by(messages: Sequence[InboxMessage]) -> Wakes:
    return Wakes.ALL_WORKERS if any(isinstance(one, Notification) for one in messages) else Wakes.NO_WORKER


def _token(claim: LeasedJob) -> tuple[int, JobKey]:
    return claim.fencing_token, claim.subject


MAX_COUNTING_SHARE: Final = 20
"""The database counts for at most one of this many seconds."""
COUNTS_WANTED: Final = 300.0
"""Seconds after the last read until the cache is not refreshed any more: most scrapers read more often."""


class CachedCounts(Generic[T]):
    """A cache of figures of the inbox, a few seconds old, because counting reads all jobs.

    Args:
        count: counts.
        max_age: greatest age in seconds; longer if counting takes long.
        max_share: it counts for at most one of this many seconds.
    """

    def __init__(
        self, count: Callable[[], Awaitable[T]], max_age: float, max_share: float = MAX_COUNTING_SHARE
    ) -> None:
        self._count, self._max_age, self._max_share = count, max_age, max_share
        self._counts: T | None = None
        self._begun_at = self._due_at = self._pause = 0.0
        self._asked_at = -math.inf
        self._counting = anyio.Lock()

    async def __call__(self) -> T:
        """Return the figures; the first call, and a call after a long pause, waits until they are counted."""
        self._asked_at = now = anyio.current_time()
        # Twice the pause: a reader must not wait, and `refresh` may.
        if self._counts is None or now >= self._due_at + self._pause:
            return await self._counted()
        return self._counts

    async def refresh(self) -> None:
        """Count the figures if they are due and were read recently, also if the first reader stopped waiting."""
        now = anyio.current_time()
        if self._due_at <= now < self._asked_at + COUNTS_WANTED:
            await self._counted()

    async def _counted(self) -> T:
        asked_at = anyio.current_time()
        async with self._counting:
            if self._counts is None or self._begun_at < asked_at:
                self._begun_at = anyio.current_time()
                self._counts = await self._count()
                ended_at = anyio.current_time()
                self._pause = (
                    max(self._max_age, self._max_share * (ended_at - self._begun_at)) if self._max_age else 0.0
                )
                self._due_at = ended_at + self._pause
            return self._counts


LOG_INTERVAL: Final = timedelta(minutes=1)
"""Pause between two records of the same error: calls are retried every second."""


class InboxErrorLog:
    """The log of failed inbox calls that are retried and raise no error to a client.

    The first successful call is logged as a recovery. If calls keep failing, each error is logged once a minute.

    Args:
        clock: the wall clock.
        part: name of the caller, for the log.
    """

    def __init__(self, clock: Clock, part: str) -> None:
        self._clock, self._part = clock, part
        self._logged_at: dict[str, datetime] = {}
        self._is_failing = False

    @contextmanager
    def log_errors(self) -> Iterator[None]:
        """Log an error of the call in this context.

        Raises:
            ExternalError: as the call raised it.
        """
        try:
            yield
        except ExternalError as error:
            self._log_error(str(error))
            raise
        if self._is_failing:
            self._is_failing = False
            _log.info("inbox recovered", part=self._part)

    def _log_error(self, error: str) -> None:
        now = self._clock.now()
        # If the clock was set back, records are not suppressed for longer.
        self._logged_at = {text: at for text, at in self._logged_at.items() if at <= now < at + LOG_INTERVAL}
        if error not in self._logged_at:
            self._logged_at[error] = now
            self._is_failing = True
            _log.warning("inbox call failed", part=self._part, error=error)
