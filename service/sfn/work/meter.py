"""The worker's metrics: what the logbook tells one by one is counted here."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from sfn.clock import Clock
from sfn.inbox.letters import Letter
from sfn.telemetry.work import Work
from sfn.words import Claim, Dead, Done, Findings, Later, Outcome, Released, Retry, Swept, TableName


class Meter:
    """Implements `Journal`.

    Args:
        work: what it counts in.
        clock: the wall clock.
    """

    def __init__(self, work: Work, clock: Clock) -> None:
        self._work, self._clock = work, clock

    def settled(self, claim: Claim, outcome: Outcome, seconds: float) -> None:
        catalog, name = claim.subject.catalog, outcome.label
        if not isinstance(claim.subject, TableName):
            self._work.sweeps.ended(catalog, name)
            if isinstance(outcome, Swept):
                self._work.sweeps.complete(catalog, outcome, self._clock.now(), seconds)
            return
        self._work.ended(catalog, name, _error_class(outcome))
        if isinstance(outcome, Done | Later):
            self._work.seen_through(catalog, seconds)
            age = _age(claim, outcome.findings, self._clock.now())
            if age is not None:
                self._work.pointed(catalog, age)

    def expired(self, leases: int) -> None:
        self._work.expired(leases)

    def fenced(self, claim: Claim) -> None:
        self._work.fenced()

    def poisoned(self, letter: Letter) -> None:
        self._work.ended(letter.subject.catalog, Dead.label, letter.reason.value)

    def surprised(self, claim: Claim, error: Exception) -> None:
        """Counted by its outcome."""


def _error_class(outcome: Outcome) -> str:
    match outcome:
        case Retry(cause=cause) | Released(cause=cause):
            return cause.value
        case Dead(reason=reason):
            return reason.value
        case Done() | Later() | Swept():
            return ""
        case _:
            assert_never(outcome)


def _age(claim: Claim, findings: Findings, now: datetime) -> float | None:
    """Seconds since the commit whose pointer was written in place of an older one; None where none was."""
    before, after, table = claim.story.live, findings.story.live, findings.memo.table
    if not findings.did or before is None or after is None or table is None:
        return None
    if after.pointer == before.pointer or after.pointer != table.metadata_location:
        return None
    # Its clock is the writer's, which may be ahead of ours.
    return max(0.0, now.timestamp() - table.last_updated_ms / 1000)
