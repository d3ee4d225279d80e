"""Where the worker tells what became of its claims: one record an outcome."""

from __future__ import annotations

from typing import Protocol

from sfn.domain.jobs import LeasedJob, Outcome
from sfn.inbox.letters import NewDeadLetter


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
