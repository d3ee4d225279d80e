"""The worker: claims jobs, publishes tables or sweeps catalogs, and settles the outcomes."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

import anyio
from anyio.abc import TaskGroup

from sfn.catalogs import Catalog
from sfn.catalogs.spelling import Spellings
from sfn.clock import Clock, RandomSource
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    FailureCause,
    LeasedJob,
    Outcome,
    PendingChange,
    PublishResult,
    Retry,
    Returned,
    Wakeup,
    describe,
)
from sfn.errors import (
    ErrorScope,
    ExternalError,
    FatalError,
    ForbiddenForTable,
    LocationRefused,
    NoVendedCredentials,
    Permanent,
    Transient,
    UnaddressableTable,
)
from sfn.inbox import JobQueue
from sfn.inbox.inbox import Inbox, InboxErrorLog
from sfn.publish.policy import OnDrop
from sfn.publish.publish import LeaseLost, Ports, publish
from sfn.storage import StoreRouter
from sfn.telemetry import tracing
from sfn.worker.capacity import (
    MAX_RETRY_AFTER,
    CapacityTracker,
    CircuitBreakers,
    CircuitBreakerState,
    RetryPolicy,
    StoreUsage,
    bounded_retry_after,
)
from sfn.worker.catalog_sources import CatalogRegistry, ConnectedCatalog, outcome_for_unconfigured
from sfn.worker.comparison import TableComparer
from sfn.worker.outcome_log import OutcomeSink
from sfn.worker.sweep import CatalogSweep, SweepPorts, SweepReport, SweepRunner

RETRY_PAUSE: Final = 1.0
"""Seconds until the next attempt to renew leases after a failure."""


class Leases:
    """The leases of the running claims of one worker.

    Args:
        queue: the queue that renews leases.
        clock: the wall clock.
        lease: duration of a lease.
        error_log: the log of failed inbox calls.
    """

    def __init__(self, queue: JobQueue, clock: Clock, lease: timedelta, error_log: InboxErrorLog) -> None:
        self._queue, self._clock, self._lease, self._error_log = queue, clock, lease, error_log
        self._scopes: dict[tuple[object, int], anyio.CancelScope] = {}
        self._claims: dict[tuple[object, int], LeasedJob] = {}
        self._idle, self._busy = anyio.Event(), anyio.Event()
        self._idle.set()

    def add(self, claim: LeasedJob) -> None:
        """Add a claim that starts."""
        if not self._claims:
            self._idle = anyio.Event()
            self._busy.set()
        self._claims[_lease_key(claim)] = claim
        self._scopes[_lease_key(claim)] = anyio.CancelScope()

    def scope(self, claim: LeasedJob) -> anyio.CancelScope:
        """Return the cancel scope for the work of a claim; it is cancelled when the lease is lost."""
        return self._scopes[_lease_key(claim)]

    def running(self) -> list[LeasedJob]:
        """Return the running claims."""
        return list(self._claims.values())

    def remove(self, claim: LeasedJob) -> None:
        """Remove a claim that ended."""
        del self._claims[_lease_key(claim)], self._scopes[_lease_key(claim)]
        if not self._claims:
            self._idle.set()
            self._busy = anyio.Event()

    async def wait_until_idle(self) -> None:
        """Return once no claim is running."""
        await self._idle.wait()

    async def run(self) -> None:
        """Renew leases forever, at a third of their duration; sleep while no claim is running."""
        third = self._lease.total_seconds() / 3
        pause = third
        while True:
            await self._busy.wait()
            await anyio.sleep(pause)
            # A failed call may have taken most of the lease, so the next attempt comes soon.
            pause = third if await self.renew_once() is not None else min(RETRY_PAUSE, third)

    async def renew_once(self) -> int | None:
        """Renew all leases once; return how many are lost, or None if the inbox failed and nothing was renewed."""
        claims = dict(self._claims)
        if not claims:
            return 0
        try:
            with self._error_log.log_errors():
                renewed = {_lease_key(claim) for claim in await self._queue.renew(list(claims.values()))}
        except ExternalError:
            return None
        lost = [key for key in claims if key not in renewed and key in self._scopes]
        for key in lost:
            self._scopes[key].cancel()
        return len(lost)


def _lease_key(claim: LeasedJob) -> tuple[object, int]:
    return claim.subject, claim.fencing_token


SHORTAGE_ERRNOS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS, errno.EUSERS, errno.ENOLCK}
)
"""Errors of the system when the process or the machine lacks descriptors, threads, locks or memory."""
_NO_THREAD: Final = "can't start new thread"
_MAX_CHAINED: Final = 20
"""Most exceptions of one chain that are examined."""


class UnexpectedErrorKind(Enum):
    """Kind of an exception that is not an `ExternalError`."""

    SHORTAGE = auto()
    """The process lacks a resource; the table is not the cause."""
    TRANSIENT = auto()
    """The system or a network failed. The error counts as the table's, and is retried for a day."""
    DEFECT = auto()
    """The code cannot handle this table: after a few attempts the table is poison."""


def classify_error(error: BaseException) -> UnexpectedErrorKind:
    """Return the kind of an exception.

    A library may wrap the system's error, or meet it while it handles another error. A shortage is therefore searched
    in the whole chain. Any other `OSError` counts only if it is the error itself or its explicit cause, because code
    that handles a `FileNotFoundError` may still have a defect.
    """
    if any(_is_shortage(one) for one in _chain(error, contexts=True)):
        return UnexpectedErrorKind.SHORTAGE
    if any(isinstance(one, OSError) for one in _chain(error, contexts=False)):
        return UnexpectedErrorKind.TRANSIENT
    return UnexpectedErrorKind.DEFECT


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in SHORTAGE_ERRNOS
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_THREAD in _text(error))


def _text(error: BaseException) -> str:
    return next((argument for argument in error.args if isinstance(argument, str)), "")


def _chain(error: BaseException, *, contexts: bool) -> Iterator[BaseException]:
    """Yield an exception, the members of a group, its causes and, with `contexts`, its contexts."""
    pending, seen = [error], set[int]()
    while pending and len(seen) < _MAX_CHAINED:
        one = pending.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            pending += one.exceptions
        if one.__cause__ is not None:
            pending.append(one.__cause__)
        elif contexts and one.__context__ is not None and not one.__suppress_context__:
            pending.append(one.__context__)


MAX_UNEXPECTED_ERRORS = 3
"""Attempts of a table that may end in a defect, before the table is poison."""
RECHECK_UNCONFIGURED_AFTER = timedelta(hours=8)
"""Time until the recheck of a dead table with an unknown catalog; the default of `refresh_after`."""
_INBOX_RETRY_PAUSE = 1.0
MAX_CLAIM_WAIT: Final = timedelta(minutes=1)
"""Longest wait of one claim."""
_STOP_REASON = "the service stops"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Settings of a worker.

    Attributes:
        concurrency: most tables at a time.
        lease: duration of a lease.
        drain: time that running claims have to end after a stop.
        retry: retry policy of tables and catalogs.
    """

    concurrency: int = 32
    lease: timedelta = timedelta(seconds=30)
    drain: timedelta = timedelta(seconds=30)
    retry: RetryPolicy = RetryPolicy()


class Worker:
    """A worker: claims jobs, publishes or sweeps, and settles.

    Args:
        inbox: the inbox.
        catalogs: the configured catalogs.
        stores: the configured stores.
        clock: the wall clock.
        chance: source of jitter.
        sink: receiver of outcomes.
        options: settings.
    """

    def __init__(
        self,
        inbox: Inbox,
        catalogs: CatalogRegistry,
        stores: StoreRouter,
        *,
        clock: Clock,
        chance: RandomSource,
        sink: OutcomeSink,
        options: WorkerOptions,
    ) -> None:
        self._inbox, self._catalogs, self._stores = inbox, catalogs, stores
        self._clock, self._chance, self._sink, self._options = clock, chance, sink, options
        self._capacity = CapacityTracker(options.concurrency)
        self._breakers = CircuitBreakers(self._capacity, clock)
        self._error_log = InboxErrorLog(clock, "worker")
        self._leases = Leases(inbox, clock, options.lease, self._error_log)
        self._sweeps = SweepRunner(clock)
        self._spellings: dict[str, Spellings] = {}
        self._is_stopping = False
        self._stopped = anyio.Event()

    async def run(self, stop: anyio.Event) -> None:
        """Work until stopped, then let running claims end within the drain time, and return the others."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._leases.run)
            tasks.start_soon(self._claim_until, stop, tasks)
            await stop.wait()
            self._is_stopping = True
            self._inbox.interrupt()
            self._sweeps.stop()
            with anyio.move_on_after(self._options.drain.total_seconds()):
                await self._stopped.wait()
                await self._leases.wait_until_idle()
            tasks.cancel_scope.cancel()

    def breakers(self) -> list[CircuitBreakerState]:
        """Return the breakers that are not closed."""
        return self._capacity.unclosed_breakers(self._clock.now())

    def sweeps(self) -> Mapping[str, SweepReport]:
        """Return the report of the running sweep, or the last one of this process, by catalog."""
        return self._sweeps.latest_reports

    async def claim_once(self, tasks: TaskGroup, *, waits: bool = False) -> None:
        """Claim due jobs and start them.

        Args:
            tasks: the tasks of the jobs.
            waits: wait for a job that is due, until a breaker may let more pass.
        """
        now = self._clock.now()
        # Read with the same clock reading as the capacity, or a breaker that reopens in between would be missed.
        reopens_at = self._capacity.reopens_at(now) or now + MAX_CLAIM_WAIT
        with self._error_log.log_errors():
            claimed = await self._inbox.claim(
                self._capacity.capacity(now), self._leases.running(), reopens_at if waits else None
            )
        if claimed.expired_leases:
            self._sink.on_leases_expired(claimed.expired_leases)
        for letter in claimed.poison_letters:
            self._sink.on_poisoned(letter)
        if self._is_stopping:
            await self._return_unstarted(claimed.jobs)
            return
        for claim in claimed.jobs:
            self._capacity.job_started(claim.group)
            self._leases.add(claim)
            tasks.start_soon(self._process, claim)

    async def _return_unstarted(self, claims: Sequence[LeasedJob]) -> None:
        """Return the jobs of a claim that was answered after the stop."""
        now = self._clock.now()
        for claim in claims:
            with contextlib.suppress(ExternalError):
                await self._inbox.settle(claim, Returned(now, _STOP_REASON), now)

    async def _claim_until(self, stop: anyio.Event, tasks: TaskGroup) -> None:
        while not stop.is_set():
            try:
                await self.claim_once(tasks, waits=True)
            except ExternalError as error:
                # The inbox failed and nothing is leased. A full disk must not end the process.
                pause = bounded_retry_after(error.retry_after or _INBOX_RETRY_PAUSE)
                with anyio.move_on_after(pause.total_seconds()):
                    await stop.wait()
        self._stopped.set()

    async def _process(self, claim: LeasedJob) -> None:
        is_sweep = isinstance(claim.subject, CatalogName)
        with tracing.resume("sweep" if is_sweep else "publish", claim.traces) as step:
            if step is not tracing.NOT_RECORDED:
                _trace_claim(step, claim)
            with tracing.without_steps() if is_sweep else contextlib.nullcontext():
                await self._attempt_and_settle(claim, step)

    async def _attempt_and_settle(self, claim: LeasedJob, step: tracing.Span) -> None:
        began = self._clock.now()
        has_settled = settling = False
        try:
            with self._leases.scope(claim):
                outcome = await self._attempt(claim)
                _trace_outcome(step, outcome)
                settling = outcome is not None
                has_settled = outcome is not None and await self._settle(claim, outcome, began)
            settling = False
            if not has_settled:
                await self._requeue_after_lost_lease(claim)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                has_settled = await self._settle(claim, Returned(self._clock.now(), _STOP_REASON), began)
                # If the stop interrupted a settle, the claim may be settled: then no other worker has the job.
                if not has_settled and not settling:
                    await self._requeue_after_lost_lease(claim)
            raise
        finally:
            self._leases.remove(claim)
            self._release_capacity(claim)

    def _release_capacity(self, claim: LeasedJob) -> None:
        """Free the capacity of a claim, and claim again: a due job may wait for it."""
        self._capacity.job_ended(claim.group)
        self._inbox.interrupt()

    async def _attempt(self, claim: LeasedJob) -> Outcome | None:
        """Return the outcome of an attempt; None if the lease was lost."""
        connected, store_usage = None, StoreUsage()
        try:
            connected = await self._catalogs.get(claim.subject.catalog)
            outcome = await self._publish_or_sweep(claim, connected, store_usage)
        except LeaseLost:
            return None
        except FatalError:
            raise
        except Exception as error:  # noqa: BLE001 - the only place that catches unexpected errors
            return self._outcome_of_error(claim, error, connected)
        self._breakers.record_success(claim.group, claim.subject, store_used=store_usage.was_used)
        return outcome

    async def _requeue_after_lost_lease(self, claim: LeasedJob) -> None:
        """Queue the job once more: this attempt may have written after the worker that has the lease now."""
        self._sink.on_lease_lost(claim)
        with contextlib.suppress(ExternalError), self._error_log.log_errors():
            force = isinstance(claim.subject, TableIdentifier) or claim.pending.force
            await self._inbox.put([Notification(claim.subject, sender="lease-lost", force=force)])

    async def _publish_or_sweep(
        self, claim: LeasedJob, connected: ConnectedCatalog | None, store_usage: StoreUsage
    ) -> Outcome:
        if connected is None:
            return outcome_for_unconfigured(
                claim, self._clock.now(), retired=self._catalogs.is_retired(claim.subject.catalog)
            )
        jitter = self._chance.random()
        inbox = self._inbox
        if isinstance(claim.subject, CatalogName):
            if connected.policy.event_only:
                return Done(self._clock.now(), forget=True)  # an event-only catalog cannot be listed
            sweep_ports = SweepPorts(connected.catalog, inbox, self._clock)
            comparer = TableComparer(connected, self._stores) if claim.pending.force else None
            sweep = CatalogSweep(claim.subject, sweep_ports, connected.policy, comparer)
            completed = await self._sweeps.run(sweep, jitter)
            return completed or Returned(self._clock.now(), _STOP_REASON)
        stores = store_usage.watch(connected.stores_for(claim.subject, self._stores))
        spellings = self._spellings_of(claim.subject.catalog, connected.catalog)
        ports = Ports(inbox, inbox, connected.catalog, stores, self._clock, spellings)
        return await publish(claim, ports, connected.policy, jitter=jitter)

    def _spellings_of(self, name: str, catalog: Catalog) -> Spellings:
        """Return the cached spellings of a catalog's names."""
        cached = self._spellings.get(name)
        if cached is None or cached.catalog is not catalog:
            cached = self._spellings[name] = Spellings(catalog, self._clock)
        return cached

    def _outcome_of_error(self, claim: LeasedJob, error: Exception, connected: ConnectedCatalog | None) -> Outcome:
        """Return the outcome of an attempt that raised. An error while handling the error does not end the process."""
        try:
            if isinstance(error, ExternalError):
                return self._after_external_error(claim, error, connected)
            return self._after_unexpected(claim, error, connected)
        except Exception as defect:  # noqa: BLE001 - as in `_attempt`, for errors of the error handling
            with contextlib.suppress(Exception):
                self._sink.on_unexpected_error(claim, defect)
            return Retry(self._clock.now() + MAX_RETRY_AFTER, type(error).__name__, FailureCause.DEFECT)

    def _after_external_error(
        self, claim: LeasedJob, error: ExternalError, connected: ConnectedCatalog | None
    ) -> Outcome:
        now = self._clock.now()
        if error.scope is ErrorScope.INBOX:
            return Returned(now + timedelta(seconds=_INBOX_RETRY_PAUSE), str(error), FailureCause.INBOX)
        if error.scope is ErrorScope.PROCESS:
            error = self._breakers.narrow_shortage(claim.subject, error)
        if error.scope is not ErrorScope.TABLE:
            return Returned(self._breakers.record_failure(claim.group, error), str(error), FailureCause(error.scope))
        if isinstance(error, NoVendedCredentials) and connected is not None and connected.policy.on_drop is OnDrop.KEEP:
            # The files of a dropped table stay unchanged, so no credentials are needed.
            return Done(now + connected.policy.refresh_after, PublishResult(claim.table_state))
        if (
            isinstance(error, UnaddressableTable)
            and (redirected := _redirect_to_addressed(claim, error, connected, now)) is not None
        ):
            return redirected
        if isinstance(error, Permanent) and isinstance(claim.subject, TableIdentifier):
            reason = (
                DeadLetterReason.LOCATION_REFUSED if isinstance(error, LocationRefused) else DeadLetterReason.PERMANENT
            )
            dead = self._dead_letter(reason, str(error), connected)
            # Permissions may return for many tables at once, without an event for each table.
            return (
                replace(dead, recheck_at=now + self._options.retry.cap)
                if isinstance(error, ForbiddenForTable)
                else dead
            )
        return self._retry(claim, str(error), connected, error.retry_after, FailureCause.TABLE)

    def _after_unexpected(self, claim: LeasedJob, error: Exception, connected: ConnectedCatalog | None) -> Outcome:
        match classify_error(error):
            case UnexpectedErrorKind.SHORTAGE:
                shortage = Transient(
                    str(claim.subject),
                    scope=ErrorScope.PROCESS,
                    expected="free descriptors, threads and memory",
                    found=f"{type(error).__name__}: {error}",
                    remedy="raise the process's limits of open files, threads and memory",
                )
                return self._after_external_error(claim, shortage, connected)
            case UnexpectedErrorKind.TRANSIENT:
                return self._retry(claim, f"{type(error).__name__}: {error}", connected, None, FailureCause.TABLE)
            case UnexpectedErrorKind.DEFECT:
                return self._after_defect(claim, error, connected)

    def _after_defect(self, claim: LeasedJob, error: Exception, connected: ConnectedCatalog | None) -> Outcome:
        self._sink.on_unexpected_error(claim, error)
        if claim.attempt >= MAX_UNEXPECTED_ERRORS and isinstance(claim.subject, TableIdentifier):
            return self._dead_letter(
                DeadLetterReason.POISON, f"{claim.subject}: {type(error).__name__}: {error}", connected
            )
        return self._retry(claim, f"{type(error).__name__}: {error}", connected, None, FailureCause.DEFECT)

    def _retry(
        self,
        claim: LeasedJob,
        error: str,
        connected: ConnectedCatalog | None,
        retry_after: float | None,
        cause: FailureCause,
    ) -> Retry | DeadLettered:
        now = self._clock.now()
        retry, jitter = self._options.retry, self._chance.random()
        if isinstance(claim.subject, TableIdentifier):
            at = retry.next_attempt(claim.attempt, claim.failing_since, now, jitter)
        else:
            # A catalog never becomes a dead letter, because then its tables would not be swept any more.
            at = now + retry.pause(claim.attempt, jitter)
        if at is None:
            detail = f"after {claim.attempt} attempts since {claim.failing_since:%F %T}: {error}"
            return self._dead_letter(DeadLetterReason.EXHAUSTED, detail, connected)
        return Retry(max(at, now + bounded_retry_after(retry_after)), error, cause)

    def _dead_letter(self, reason: DeadLetterReason, detail: str, connected: ConnectedCatalog | None) -> DeadLettered:
        """Return a dead letter with a recheck, so that a table recovers without an event if the error goes away."""
        after = connected.policy.refresh_after if connected is not None else RECHECK_UNCONFIGURED_AFTER
        return DeadLettered(reason, detail, recheck_at=self._clock.now() + after)

    async def _settle(self, claim: LeasedJob, outcome: Outcome, began: datetime) -> bool:
        """Settle a claim, with retries until the inbox works: an unsettled claim would count as a crash.

        Returns:
            False if another worker has the job.
        """
        while True:
            try:
                with self._error_log.log_errors():
                    has_settled = await self._inbox.settle(claim, outcome, self._clock.now())
            except ExternalError:
                await anyio.sleep(_INBOX_RETRY_PAUSE)
                continue
            if has_settled:
                self._sink.on_settled(claim, outcome, (self._clock.now() - began).total_seconds())
            return has_settled


def _trace_claim(step: tracing.Span, claim: LeasedJob) -> None:
    """Add a claim to the step of its attempt."""
    table = str(claim.subject) if isinstance(claim.subject, TableIdentifier) else None
    step.set(
        {
            "messaging.operation.type": "process",
            "sfn.catalog": claim.subject.catalog,
            "sfn.table": table,
            "sfn.attempt": claim.attempt,
        }
    )


def _trace_outcome(step: tracing.Span, outcome: Outcome | None) -> None:
    """Add an outcome to the step of its attempt; None if the lease was lost."""
    if outcome is None:
        step.fail("lease-lost")
        return
    name, why = describe(outcome)
    step.set({"sfn.outcome": name})
    if isinstance(outcome, DeadLettered):
        step.fail(outcome.reason.value, why or "")
    elif isinstance(outcome, Retry | Returned):
        step.fail(outcome.cause.value, why or "")
    else:
        step.set({"sfn.why": why})


def _redirect_to_addressed(
    claim: LeasedJob, error: UnaddressableTable, connected: ConnectedCatalog | None, now: datetime
) -> Done | None:
    """Return an outcome that wakes the table which the catalog's path addresses; None if the name needs a dead letter.

    A path may split into levels in two ways. A gateway then notifies both possible tables, and one of them
    does not exist. Senders of events name each level, so their event must not disappear without a dead letter.
    """
    if (
        connected is None
        or not isinstance(claim.subject, TableIdentifier)
        or claim.table_state.live is not None
        or claim.locations
    ):
        return None
    # The checks of a gateway's intent have no pending change.
    if not (claim.pending.is_guessed or claim.pending == PendingChange()):
        return None
    instead = TableIdentifier(claim.subject.catalog, error.addressed_levels, claim.subject.name)
    if (
        not error.addressed_levels
        or not all(error.addressed_levels)
        or not connected.policy.table_filter.covers(instead)
    ):
        return None
    return Done(now, PublishResult(claim.table_state, wakeups=(Wakeup(instead),)), forget=True)
