"""The worker's log: one record an outcome, always with the same fields."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import assert_never

import structlog

from sfn.inbox.letters import Letter
from sfn.words import Claim, Dead, Done, Later, Outcome, Released, Retry, Subject, Swept, TableName

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a record says beside whose it is; the fields of every record."""

    outcome: str | None = None
    reason: str | None = None
    why: str | None = None
    seconds: float | None = None
    files: tuple[str, ...] = ()


class Logbook:
    """Implements `Journal`.

    Every record has the fields `event` (`settled`, `fenced` or `surprised`), `catalog`, `table` (null for a sweep),
    `attempt`, `outcome` (such as `done`), `reason` (of a dead letter), `why` (what is waited for, or what went wrong),
    `seconds` and `files` (those written or deleted, in order).
    """

    def settled(self, claim: Claim, outcome: Outcome, seconds: float) -> None:
        level, reason, why, files = _spoken(outcome)
        name = type(outcome).__name__.lower()
        told = _Told(outcome=name, reason=reason, why=why, seconds=round(seconds, 3), files=files)
        _record(level, "settled", claim.subject, claim.attempt, told)

    def fenced(self, claim: Claim) -> None:
        told = _Told(why="the lease was lost: another worker has the row")
        _record(logging.WARNING, "fenced", claim.subject, claim.attempt, told)

    def expired(self, leases: int) -> None:
        """Told already: as `inbox opened`, or of each claim as `fenced`."""

    def poisoned(self, letter: Letter) -> None:
        told = _Told(outcome="dead", reason=letter.reason.value, why=letter.detail)
        _record(logging.ERROR, "settled", letter.subject, letter.attempts, told)

    def surprised(self, claim: Claim, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        _record(logging.ERROR, "surprised", claim.subject, claim.attempt, _Told(why=why), error)


def _record(
    level: int, event: str, subject: Subject, attempt: int, told: _Told, error: Exception | None = None
) -> None:
    _log.log(
        level,
        event,
        catalog=subject.catalog,
        table=subject.identifier if isinstance(subject, TableName) else None,
        attempt=attempt,
        outcome=told.outcome,
        reason=told.reason,
        why=told.why,
        seconds=told.seconds,
        files=list(told.files),
        exc_info=error,
    )


def _spoken(outcome: Outcome) -> tuple[int, str | None, str | None, tuple[str, ...]]:
    """Severity, reason, why, files."""
    match outcome:
        case Done(findings=findings):
            return logging.INFO, None, None, findings.did
        case Swept(calm=calm):
            why = None if calm else "more absences than the brake lets pass: they are held"
            return logging.INFO if calm else logging.WARNING, None, why, ()
        case Later(why=why, findings=findings):
            return logging.INFO, None, why, findings.did
        case Retry(error=error):
            return logging.WARNING, None, error, ()
        case Released(why=why):
            return logging.WARNING, None, why, ()
        case Dead(reason=reason, detail=detail, findings=findings):
            return logging.ERROR, reason.value, detail, findings.did if findings is not None else ()
        case _:
            assert_never(outcome)
