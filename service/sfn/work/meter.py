"""The worker's metrics: what the logbook tells one by one is counted here."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from sfn.clock import Clock
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    Done,
    LeasedJob,
    Outcome,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    SweepCompleted,
)
from sfn.inbox.letters import NewDeadLetter
from sfn.telemetry.work import PublicationMetrics


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
