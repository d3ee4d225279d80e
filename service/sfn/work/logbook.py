"""The worker's log: one record an outcome, always with the same fields."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import assert_never

import structlog

from sfn.inbox.letters import Letter
from sfn.words import Cause, Claim, Dead, Done, Findings, Later, Outcome, Released, Retry, Subject, Swept, TableName
from sfn.words.outcome import told

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What a record says beside whose it is; the fields of every record."""

    outcome: str | None = None
    reason: str | None = None
    why: str | None = None
    seconds: float | None = None
    files: tuple[str, ...] = ()
    hint: str | None = None


class Logbook:
    """Implements `Journal`.

    Every record has the fields `event` (`settled`, `fenced` or `surprised`), `catalog`, `table` (null for a sweep),
    `attempt`, `outcome` (such as `done`), `reason` (of a dead letter), `why` (what is waited for, or what went wrong),
    `seconds`, `files` (those written or deleted, in order) and `hint` (`foreign` where the version hint at the table's
    place is somebody else's and is left alone).
    """

    def settled(self, claim: Claim, outcome: Outcome, seconds: float) -> None:
        name, why = told(outcome)
        reason = outcome.reason.value if isinstance(outcome, Dead) else None
        findings = _findings(outcome)
        said = _Said(
            outcome=name,
            reason=reason,
            why=why,
            seconds=round(seconds, 3),
            files=findings.did,
            hint="foreign" if findings.story.foreign_hint is not None else None,
        )
        _record(_severity(outcome), "settled", claim.subject, claim.attempt, said)

    def fenced(self, claim: Claim) -> None:
        said = _Said(why="the lease was lost: another worker has the row")
        _record(logging.WARNING, "fenced", claim.subject, claim.attempt, said)

    def expired(self, leases: int) -> None:
        """Told already: as `inbox opened`, or of each claim as `fenced`."""

    def poisoned(self, letter: Letter) -> None:
        said = _Said(outcome=Dead.label, reason=letter.reason.value, why=letter.detail)
        _record(logging.ERROR, "settled", letter.subject, letter.attempts, said)

    def surprised(self, claim: Claim, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        _record(logging.ERROR, "surprised", claim.subject, claim.attempt, _Said(why=why), error)


def _record(
    level: int, event: str, subject: Subject, attempt: int, said: _Said, error: Exception | None = None
) -> None:
    _log.log(
        level,
        event,
        catalog=subject.catalog,
        table=subject.identifier if isinstance(subject, TableName) else None,
        attempt=attempt,
        outcome=said.outcome,
        reason=said.reason,
        why=said.why,
        seconds=said.seconds,
        files=list(said.files),
        hint=said.hint,
        exc_info=error,
    )


def _findings(outcome: Outcome) -> Findings:
    """What it leaves behind, empty for nothing."""
    if isinstance(outcome, Done | Later | Dead) and outcome.findings is not None:
        return outcome.findings
    return Findings()


def _severity(outcome: Outcome) -> int:
    match outcome:
        case Done() | Later():
            return logging.INFO
        case Swept(calm=calm):
            return logging.INFO if calm else logging.WARNING
        case Released(cause=Cause.CATALOG | Cause.STORE | Cause.PROCESS):
            # Told of all its tables together, by `Outages`.
            return logging.DEBUG
        case Retry() | Released():
            return logging.WARNING
        case Dead():
            return logging.ERROR
        case _:
            assert_never(outcome)
