"""Log records and metrics of the outcomes of claims."""

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
from sfn.telemetry.logs import key_fields
from sfn.telemetry.metrics import PublicationMetrics
from sfn.worker.lag import LagHistory


class OutcomeSink(Protocol):
    """Receiver of outcomes."""

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        """Record that a claim ended after that many seconds."""
        ...

    def on_lease_lost(self, claim: LeasedJob) -> None:
        """Record that a claim lost its lease: another worker, or an operator, has the job."""
        ...

    def on_leases_expired(self, leases: int) -> None:
        """Record that a number of leases expired, in this process or in the one before."""
        ...

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        """Record that attempts of a job ended the process or lost their lease again and again."""
        ...

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        """Record that an attempt raised an unexpected error."""
        ...


class OutcomeSinks:
    """An `OutcomeSink` that passes outcomes on to several sinks, in their order."""

    def __init__(self, *sinks: OutcomeSink) -> None:
        self._sinks = sinks

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        for sink in self._sinks:
            sink.on_settled(claim, outcome, seconds)

    def on_lease_lost(self, claim: LeasedJob) -> None:
        for sink in self._sinks:
            sink.on_lease_lost(claim)

    def on_leases_expired(self, leases: int) -> None:
        for sink in self._sinks:
            sink.on_leases_expired(leases)

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        for sink in self._sinks:
            sink.on_poisoned(letter)

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        for sink in self._sinks:
            sink.on_unexpected_error(claim, error)


_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogFields:
    """Fields of every record except those that identify the claim."""

    outcome: str | None = None
    reason: str | None = None
    why: str | None = None
    seconds: float | None = None
    files: tuple[str, ...] = ()
    version_hint: str | None = None


class OutcomeLog:
    """An `OutcomeSink` that writes log records.

    Every record has these fields: `event` (`settled`, `lease lost` or `unexpected error`), `catalog`, `table` (such as
    `prod:sales.orders`; null for a sweep), `attempt`, `outcome` (such as `done`), `reason` (of a dead letter), `why`
    (the reason for waiting, or the error), `seconds`, `files` (written or deleted, in order) and `version_hint`
    (`foreign` if the version hint in the table's place is another program's and stays unchanged).
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
            version_hint="foreign" if result.table_state.foreign_version_hint is not None else None,
        )
        _log_record(_log_level(outcome), "settled", claim.subject, claim.attempt, fields)

    def on_lease_lost(self, claim: LeasedJob) -> None:
        fields = _LogFields(why="another worker, or an operator, has the job")
        _log_record(logging.WARNING, "lease lost", claim.subject, claim.attempt, fields)

    def on_leases_expired(self, leases: int) -> None:
        """Do nothing: the expired leases are logged as `inbox opened`, or per claim as `lease lost`."""

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        fields = _LogFields(outcome=DeadLettered.label, reason=letter.reason.value, why=letter.detail)
        _log_record(logging.ERROR, "settled", letter.subject, letter.attempts, fields)

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        _log_record(logging.ERROR, "unexpected error", claim.subject, claim.attempt, _LogFields(why=why), error)


def _log_record(
    level: int, event: str, subject: JobKey, attempt: int, fields: _LogFields, error: Exception | None = None
) -> None:
    _log.log(
        level,
        event,
        **key_fields(subject),
        attempt=attempt,
        outcome=fields.outcome,
        reason=fields.reason,
        why=fields.why,
        seconds=fields.seconds,
        files=list(fields.files),
        version_hint=fields.version_hint,
        exc_info=error,
    )


def _result_of(outcome: Outcome) -> PublishResult:
    """Return the result of a publish; an empty one for an outcome without a result."""
    if isinstance(outcome, Done | Rescheduled | DeadLettered) and outcome.result is not None:
        return outcome.result
    return PublishResult()


def _log_level(outcome: Outcome) -> int:
    match outcome:
        case Done() | Rescheduled():
            return logging.INFO
        case SweepCompleted(within_limit=within_limit):
            return logging.INFO if within_limit else logging.WARNING
        case Returned(cause=FailureCause.CATALOG | FailureCause.STORE | FailureCause.PROCESS):
            # `CircuitBreakers` logs the outage once for all tables.
            return logging.DEBUG
        case Retry() | Returned():
            return logging.WARNING
        case DeadLettered():
            return logging.ERROR
        case _:
            assert_never(outcome)


class OutcomeMetrics:
    """An `OutcomeSink` that counts in metrics.

    Args:
        metrics: the metrics of publishes and sweeps.
        clock: the wall clock.
        lag: receives the lag of each publish.
    """

    def __init__(self, metrics: PublicationMetrics, clock: Clock, lag: LagHistory | None = None) -> None:
        self._metrics, self._clock, self._lag = metrics, clock, lag or LagHistory()

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
                self._lag.observe(catalog, age, self._clock.now())

    def on_leases_expired(self, leases: int) -> None:
        self._metrics.count_expired_leases(leases)

    def on_lease_lost(self, claim: LeasedJob) -> None:
        self._metrics.count_lost_lease()

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        self._metrics.count_attempt(letter.subject.catalog, DeadLettered.label, letter.reason.value)

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        """Do nothing: the outcome of the claim is counted."""


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
    """Return the age in seconds of the commit that a publish made current; None if there is no such commit."""
    before, after, table = claim.table_state.live, result.table_state.live, result.cache.table
    if not result.written_keys or before is None or after is None or table is None:
        return None
    if after.metadata_location == before.metadata_location or after.metadata_location != table.metadata_location:
        return None
    # The time of the commit is by the writer's clock, which may be ahead.

    return max(0.0, now.timestamp() - table.last_updated_ms / 1000)
