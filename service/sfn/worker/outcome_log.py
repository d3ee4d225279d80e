"""Where the worker tells what became of its claims: one record an outcome."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, assert_never

import structlog

from sfn.clock import Clock
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    Done,
    FailureCause,
    LeasedJob,
    Outcome,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    SweepCompleted,
    describe,
)
from sfn.inbox.model import NewDeadLetter
from sfn.telemetry.metrics import PublicationMetrics

# ── journal: Where the worker tells what became of its claims


class OutcomeSink(Protocol):
    """The worker's log."""

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        """A claim ended, after that many seconds."""
        ...

    def on_lease_lost(self, claim: LeasedJob) -> None:
        """A claim's lease was lost; another worker has the row."""
        ...

    def on_leases_expired(self, leases: int) -> None:
        """So many leases ran out, in this process or in the one before it."""
        ...

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        """Nobody came back from a row, time and again."""
        ...

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        """An attempt raised what nobody expected."""
        ...


class OutcomeSinks:
    """Implements `Journal`: tells each of several, in their order."""

    def __init__(self, *sinks: OutcomeSink) -> None:
        self._sinks = sinks

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        for journal in self._sinks:
            journal.on_settled(claim, outcome, seconds)

    def on_lease_lost(self, claim: LeasedJob) -> None:
        for journal in self._sinks:
            journal.on_lease_lost(claim)

    def on_leases_expired(self, leases: int) -> None:
        for journal in self._sinks:
            journal.on_leases_expired(leases)

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        for journal in self._sinks:
            journal.on_poisoned(letter)

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        for journal in self._sinks:
            journal.on_unexpected_error(claim, error)


# ── logbook: The worker's log

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogFields:
    """What a record says beside whose it is; the fields of every record."""

    outcome: str | None = None
    reason: str | None = None
    why: str | None = None
    seconds: float | None = None
    files: tuple[str, ...] = ()
    hint: str | None = None


class OutcomeLog:
    """Implements `Journal`.

    Every record has the fields `event` (`on_settled`, `on_lease_lost` or `on_unexpected_error`), `catalog`, `table`
    (null for a sweep), `attempt`, `outcome` (such as `done`), `reason` (of a dead letter), `why` (what is waited
    for, or what went wrong), `seconds`, `files` (those written or deleted, in order) and `hint` (`foreign` where the
    version hint at the table's place is somebody else's and is left alone).
    """

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        name, why = describe(outcome)
        reason = outcome.reason.value if isinstance(outcome, DeadLettered) else None
        result = _result_of(outcome)
        fields = _LogFields(
            outcome=name,
            reason=reason,
            why=why,
            seconds=round(seconds, 3),
            files=result.written_keys,
            hint="foreign" if result.table_state.foreign_version_hint is not None else None,
        )
        _log_record(_log_level(outcome), "settled", claim.subject, claim.attempt, fields)

    def on_lease_lost(self, claim: LeasedJob) -> None:
        fields = _LogFields(why="the lease was lost: another worker has the row")
        _log_record(logging.WARNING, "fenced", claim.subject, claim.attempt, fields)

    def on_leases_expired(self, leases: int) -> None:
        """Told already: as `inbox opened`, or of each claim as `fenced`."""

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        fields = _LogFields(outcome=DeadLettered.label, reason=letter.reason.value, why=letter.detail)
        _log_record(logging.ERROR, "settled", letter.subject, letter.attempts, fields)

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        _log_record(logging.ERROR, "surprised", claim.subject, claim.attempt, _LogFields(why=why), error)


def _log_record(
    level: int, event: str, subject: JobKey, attempt: int, fields: _LogFields, error: Exception | None = None
) -> None:
    _log.log(
        level,
        event,
        catalog=subject.catalog,
        table=subject.dotted if isinstance(subject, TableIdentifier) else None,
        attempt=attempt,
        outcome=fields.outcome,
        reason=fields.reason,
        why=fields.why,
        seconds=fields.seconds,
        files=list(fields.files),
        hint=fields.hint,
        exc_info=error,
    )


def _result_of(outcome: Outcome) -> PublishResult:
    """What it leaves behind, empty for nothing."""
    if isinstance(outcome, Done | Rescheduled | DeadLettered) and outcome.result is not None:
        return outcome.result
    return PublishResult()


def _log_level(outcome: Outcome) -> int:
    match outcome:
        case Done() | Rescheduled():
            return logging.INFO
        case SweepCompleted(within_limit=calm):
            return logging.INFO if calm else logging.WARNING
        case Returned(cause=FailureCause.CATALOG | FailureCause.STORE | FailureCause.PROCESS):
            # Told of all its tables together, by `CircuitBreakers`.
            return logging.DEBUG
        case Retry() | Returned():
            return logging.WARNING
        case DeadLettered():
            return logging.ERROR
        case _:
            assert_never(outcome)


# ── meter: The worker's metrics


class OutcomeMetrics:
    """Implements `Journal`.

    Args:
        work: what it counts in.
        clock: the wall clock.
    """

    def __init__(self, metrics: PublicationMetrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        catalog, name = claim.subject.catalog, outcome.label
        if not isinstance(claim.subject, TableIdentifier):
            self._metrics.sweeps.count_attempt(catalog, name)
            if isinstance(outcome, SweepCompleted):
                self._metrics.sweeps.set_completed(catalog, outcome, self._clock.now(), seconds)
            return
        self._metrics.count_attempt(catalog, name, _error_class(outcome))
        if isinstance(outcome, Done | Rescheduled):
            self._metrics.observe_duration(catalog, seconds)
            age = _commit_age(claim, outcome.result, self._clock.now())
            if age is not None:
                self._metrics.observe_staleness(catalog, age)

    def on_leases_expired(self, leases: int) -> None:
        self._metrics.count_expired_leases(leases)

    def on_lease_lost(self, claim: LeasedJob) -> None:
        self._metrics.count_lost_lease()

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        self._metrics.count_attempt(letter.subject.catalog, DeadLettered.label, letter.reason.value)

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        """Counted by its outcome."""


def _error_class(outcome: Outcome) -> str:
    match outcome:
        case Retry(cause=cause) | Returned(cause=cause):
            return cause.value
        case DeadLettered(reason=reason):
            return reason.value
        case Done() | Rescheduled() | SweepCompleted():
            return ""
        case _:
            assert_never(outcome)


def _commit_age(claim: LeasedJob, result: PublishResult, now: datetime) -> float | None:
    """Seconds since the commit whose pointer was written in place of an older one; None where none was."""
    before, after, table = claim.table_state.live, result.table_state.live, result.cache.table
    if not result.written_keys or before is None or after is None or table is None:
        return None
    if after.metadata_location == before.metadata_location or after.metadata_location != table.metadata_location:
        return None
    # Its clock is the writer's, which may be ahead of ours.
    return max(0.0, now.timestamp() - table.last_updated_ms / 1000)
