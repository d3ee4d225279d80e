from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping
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
from sfn.inbox import DropLimit, InboxWriter, JobQueue, TableIndex
from sfn.inbox.admin import InboxErrorLog
from sfn.publish.policy import OnDrop
from sfn.publish.publish import LeaseLost, Ports, publish
from sfn.storage import StoreRouter
from sfn.worker.capacity import CapacityTracker, CircuitBreakers, CircuitBreakerState, StoreUsage
from sfn.worker.catalog_sources import CatalogRegistry, ConnectedCatalog, outcome_for_unconfigured
from sfn.worker.outcome_log import OutcomeSink
from sfn.worker.retry import MAX_RETRY_AFTER, RetryPolicy, bounded_retry_after
from sfn.worker.sweep import CatalogSweep, SweepPorts, SweepReport, SweepRunner

# ── lease: Leases of running claims

RETRY_PAUSE: Final = 1.0
"""Seconds until leases that could not be renewed are tried again."""


class Leases:
    """The running claims of one worker.

    Args:
        worklist: renews them.
        clock: the wall clock.
        lease: how long one lasts unless it is renewed.
        troubles: told when the inbox fails.
    """

    def __init__(self, queue: JobQueue, clock: Clock, lease: timedelta, error_log: InboxErrorLog) -> None:
        self._queue, self._clock, self._lease, self._error_log = queue, clock, lease, error_log
        self._scopes: dict[tuple[object, int], anyio.CancelScope] = {}
        self._claims: dict[tuple[object, int], LeasedJob] = {}
        self._idle, self._busy = anyio.Event(), anyio.Event()
        self._idle.set()

    def add(self, claim: LeasedJob) -> None:
        """A claim begins."""
        if not self._claims:
            self._idle = anyio.Event()
            self._busy.set()
        self._claims[_lease_key(claim)] = claim
        self._scopes[_lease_key(claim)] = anyio.CancelScope()

    def scope(self, claim: LeasedJob) -> anyio.CancelScope:
        """What its work runs in: cancelled when the lease is lost."""
        return self._scopes[_lease_key(claim)]

    def running(self) -> list[LeasedJob]:
        """What is worked on: as long as anything is claimed for it, this process is alive."""
        return list(self._claims.values())

    def remove(self, claim: LeasedJob) -> None:
        """A claim ended."""
        del self._claims[_lease_key(claim)], self._scopes[_lease_key(claim)]
        if not self._claims:
            self._idle.set()
            self._busy = anyio.Event()

    async def wait_until_idle(self) -> None:
        """Return once no claim is running."""
        await self._idle.wait()

    async def run(self) -> None:
        """Renew for ever; who has no claim is not woken."""
        third = self._lease.total_seconds() / 3
        pause = third
        while True:
            await self._busy.wait()
            await anyio.sleep(pause)
            # A call that waited in vain for long leaves little of the lease.
            pause = third if await self.renew_once() is not None else min(RETRY_PAUSE, third)

    async def renew_once(self) -> int | None:
        """Renew all leases once; how many were lost. None: the inbox is in trouble, nothing is renewed or lost yet."""
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


# ── unforeseen: Sorts the exceptions that no adapter foresaw

SHORTAGE_ERRNOS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS, errno.EUSERS, errno.ENOLCK}
)
"""What the system says when this process, or the machine, has too few descriptors, threads, locks or too little memory.
"""
_NO_THREAD: Final = "can't start new thread"
_MAX_CHAINED: Final = 20
"""Exceptions of one chain that are looked at."""


class UnexpectedErrorKind(Enum):
    """What an exception that is no `ExternalError` means for the attempt that it ended."""

    SHORTAGE = auto()
    """This process lacks something, whatever the table: nothing is wrong with the table."""
    TRANSIENT = auto()
    """The system or a network refused something. It counts as the table's trouble, and is tried for a day."""
    DEFECT = auto()
    """The code can't cope with this table: after a few attempts it is poison."""


def classify_error(error: BaseException) -> UnexpectedErrorKind:
    """Sort an exception.

    A library may wrap the system's error, or meet it while it handles another one. So a shortage is looked for in the
    whole chain. Any other `OSError` counts only where it is the error itself or its stated cause: code that handles a
    `FileNotFoundError` may still have a defect.
    """
    if any(_is_shortage(each) for each in _chain(error, contexts=True)):
        return UnexpectedErrorKind.SHORTAGE
    if any(isinstance(each, OSError) for each in _chain(error, contexts=False)):
        return UnexpectedErrorKind.TRANSIENT
    return UnexpectedErrorKind.DEFECT


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in SHORTAGE_ERRNOS
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_THREAD in _text(error))


def _text(error: BaseException) -> str:
    return next((argument for argument in error.args if isinstance(argument, str)), "")


def _chain(error: BaseException, *, contexts: bool) -> Iterator[BaseException]:
    """An exception, what it is made of, and what led to it."""
    pending, seen = [error], set[int]()
    while pending and len(seen) < _MAX_CHAINED:
        each = pending.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions
        if each.__cause__ is not None:
            pending.append(each.__cause__)
        elif contexts and each.__context__ is not None and not each.__suppress_context__:
            pending.append(each.__context__)


# ── worker: The worker

MAX_UNEXPECTED_ERRORS = 3
"""Attempts that may end in a defect."""
RECHECK_UNCONFIGURED_AFTER = timedelta(hours=8)
"""When a table is looked at again whose catalog is not known: as long as `refresh_after` is where it is not set."""
_INBOX_RETRY_PAUSE = 1.0
_STOP_REASON = "the service stops"


@dataclass(frozen=True, slots=True)
class WorkerInbox:
    """The four faces of the inbox that a worker sees."""

    queue: JobQueue
    writer: InboxWriter
    table_index: TableIndex
    drop_limit: DropLimit


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """A worker's settings.

    Attributes:
        concurrency: tables at a time.
        lease: how long a claim lasts unless it is renewed.
        drain: how long running claims may take to end after a stop.
        retry: when a table's own trouble is tried again.
    """

    concurrency: int = 32
    lease: timedelta = timedelta(seconds=30)
    drain: timedelta = timedelta(seconds=30)
    retry: RetryPolicy = RetryPolicy()


class Worker:
    """Turns hints into files.

    Args:
        inbox: where the work is.
        sources: where the truth is.
        stores: where files are.
        clock, chance: time and jitter.
        journal: where outcomes are told.
        terms: settings.
    """

    def __init__(
        self,
        inbox: WorkerInbox,
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
        self._leases = Leases(inbox.queue, clock, options.lease, self._error_log)
        self._sweeps = SweepRunner(clock)
        self._spellings: dict[str, Spellings] = {}
        self._pause = anyio.CancelScope()
        self._has_freed_capacity = False
        self._stopped = anyio.Event()

    async def run(self, stop: anyio.Event) -> None:
        """Work until stopped, then let tables that run end, at the longest for the drain; give the rest back."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._leases.run)
            tasks.start_soon(self._claim_until, stop, tasks)
            await stop.wait()
            self._pause.cancel()
            self._sweeps.stop()
            with anyio.move_on_after(self._options.drain.total_seconds()):
                await self._stopped.wait()
                await self._leases.wait_until_idle()
            tasks.cancel_scope.cancel()

    def breakers(self) -> list[CircuitBreakerState]:
        """The breakers that are not closed."""
        return self._capacity.unclosed_breakers(self._clock.now())

    def sweeps(self) -> Mapping[str, SweepReport]:
        """By catalog, the sweep that runs, or the last one of this process."""
        return self._sweeps.latest_reports

    async def claim_once(self, tasks: TaskGroup) -> datetime | None:
        """Claim what is due and start it: when more may be due without the bell being rung."""
        now = self._clock.now()
        # By the same clock reading as the slots: a breaker that reopened in between would be waited for in vain.
        reopens_at = self._capacity.reopens_at(now)
        with self._error_log.log_errors():
            claimed = await self._inbox.queue.claim(self._capacity.capacity(now), self._leases.running())
        if claimed.expired_leases:
            self._sink.on_leases_expired(claimed.expired_leases)
        for letter in claimed.poison_letters:
            self._sink.on_poisoned(letter)
        for claim in claimed.jobs:
            self._capacity.job_started(claim.group)
            self._leases.add(claim)
            tasks.start_soon(self._process, claim)
        return min((at for at in (claimed.next_due, reopens_at) if at is not None), default=None)

    async def _claim_until(self, stop: anyio.Event, tasks: TaskGroup) -> None:
        while not stop.is_set():
            self._has_freed_capacity = False
            try:
                next_due = await self.claim_once(tasks)
            except ExternalError as trouble:
                # The inbox's, and nothing was leased: a full disk must not end the process.
                next_due = self._clock.now() + bounded_retry_after(trouble.retry_after or _INBOX_RETRY_PAUSE)
            if not self._has_freed_capacity and not stop.is_set():
                with anyio.CancelScope() as self._pause:
                    await self._inbox.queue.wait(next_due)
        self._stopped.set()

    async def _process(self, claim: LeasedJob) -> None:
        began = self._clock.now()
        has_settled = settling = False
        try:
            with self._leases.scope(claim):
                outcome = await self._attempt(claim)
                settling = outcome is not None
                has_settled = outcome is not None and await self._settle(claim, outcome, began)
            settling = False
            if not has_settled:
                await self._requeue_after_lost_lease(claim)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                has_settled = await self._settle(claim, Returned(self._clock.now(), _STOP_REASON), began)
                # What the stop interrupted may have settled it already: then nobody else has the row.
                if not has_settled and not settling:
                    await self._requeue_after_lost_lease(claim)
            raise
        finally:
            self._leases.remove(claim)
            self._release_capacity(claim)

    def _release_capacity(self, claim: LeasedJob) -> None:
        """Its slot may be what a due row waits for, however the claim ended: look again, even before the next wait."""
        self._capacity.job_ended(claim.group)
        self._has_freed_capacity = True
        self._pause.cancel()

    async def _attempt(self, claim: LeasedJob) -> Outcome | None:
        """What became of it; None where the lease turned out to be lost."""
        connected, store_usage = None, StoreUsage()
        try:
            connected = await self._catalogs.get(claim.subject.catalog)
            outcome = await self._publish_or_sweep(claim, connected, store_usage)
        except LeaseLost:
            return None
        except FatalError:
            raise
        except Exception as error:  # noqa: BLE001 - the one place where the unexpected is caught
            return self._outcome_of_error(claim, error, connected)
        self._breakers.record_success(claim.group, claim.subject, store_used=store_usage.was_used)
        return outcome

    async def _requeue_after_lost_lease(self, claim: LeasedJob) -> None:
        """Who lost its lease may have written after the one that has it now: have the row looked at once more."""
        self._sink.on_lease_lost(claim)
        with contextlib.suppress(ExternalError), self._error_log.log_errors():
            await self._inbox.writer.put([Notification(claim.subject, sender="fenced", force=True)])

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
                return Done(self._clock.now(), forget=True)  # nobody can list it, and nothing calms its brake
            sweep_ports = SweepPorts(connected.catalog, inbox.writer, inbox.table_index, inbox.drop_limit, self._clock)
            completed = await self._sweeps.run(CatalogSweep(claim.subject, sweep_ports, connected.policy), jitter)
            return completed or Returned(self._clock.now(), _STOP_REASON)
        stores = store_usage.watch(connected.stores_for(claim.subject, self._stores))
        spellings = self._spellings_of(claim.subject.catalog, connected.catalog)
        ports = Ports(inbox.queue, inbox.table_index, connected.catalog, stores, self._clock, spellings)
        return await publish(claim, ports, connected.policy, jitter=jitter)

    def _spellings_of(self, name: str, catalog: Catalog) -> Spellings:
        """Return how a catalog lists names, as far as this process remembers it."""
        known = self._spellings.get(name)
        if known is None or known.catalog is not catalog:
            known = self._spellings[name] = Spellings(catalog, self._clock)
        return known

    def _outcome_of_error(self, claim: LeasedJob, error: Exception, connected: ConnectedCatalog | None) -> Outcome:
        """What becomes of an attempt that raised. Nothing that is wrong with the error itself ends the process."""
        try:
            if isinstance(error, ExternalError):
                return self._after_external_error(claim, error, connected)
            return self._after_unexpected(claim, error, connected)
        except Exception as defect:  # noqa: BLE001 - as in `_attempt`, of what is done about it
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
            # What is left alone need not be seen; a name that the table has now may be told of.
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
            # A permission may come back for many tables at once, without an event for each of them.
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
            # Never given up: nobody would look at its tables any more.
            at = now + retry.pause(claim.attempt, jitter)
        if at is None:
            detail = f"after {claim.attempt} attempts since {claim.failing_since:%F %T}: {error}"
            return self._dead_letter(DeadLetterReason.EXHAUSTED, detail, connected)
        return Retry(max(at, now + bounded_retry_after(retry_after)), error, cause)

    def _dead_letter(self, reason: DeadLetterReason, detail: str, connected: ConnectedCatalog | None) -> DeadLettered:
        """A dead letter of a table that heals without a new event, should it have been refused by mistake."""
        after = connected.policy.refresh_after if connected is not None else RECHECK_UNCONFIGURED_AFTER
        return DeadLettered(reason, detail, recheck_at=self._clock.now() + after)

    async def _settle(self, claim: LeasedJob, outcome: Outcome, began: datetime) -> bool:
        """Settle, however long the inbox is in trouble: a claim left leased would count as a crash.

        Returns:
            False: another worker has the row.
        """
        while True:
            try:
                with self._error_log.log_errors():
                    has_settled = await self._inbox.queue.settle(claim, outcome, self._clock.now())
            except ExternalError:
                await anyio.sleep(_INBOX_RETRY_PAUSE)
                continue
            if has_settled:
                self._sink.on_settled(claim, outcome, (self._clock.now() - began).total_seconds())
            return has_settled


def _redirect_to_addressed(
    claim: LeasedJob, error: UnaddressableTable, connected: ConnectedCatalog | None, now: datetime
) -> Done | None:
    """Have the table looked at that the catalog's paths name so; None where this name needs a dead letter.

    Of a path that can be read in two ways a gateway tells of both tables, and one of them does not exist. A sender of
    events says a name level by level: its event must not end without a trace.
    """
    if (
        connected is None
        or not isinstance(claim.subject, TableIdentifier)
        or claim.table_state.live is not None
        or claim.locations
    ):
        return None
    # A gateway's intent asks without a hint.
    if not (claim.pending.is_guessed or claim.pending == PendingChange()):
        return None
    instead = replace(claim.subject, namespace=error.addressed_levels)
    if (
        not error.addressed_levels
        or not all(error.addressed_levels)
        or not connected.policy.table_filter.covers(instead)
    ):
        return None
    return Done(now, PublishResult(claim.table_state, wakeups=(Wakeup(instead),)), forget=True)
