"""The worker's log: one record an outcome, always with the same fields."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import assert_never

import structlog

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
from sfn.inbox.letters import NewDeadLetter

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
