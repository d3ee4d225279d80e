"""Where the worker tells what became of its claims: one record an outcome."""

from __future__ import annotations

from typing import Protocol

from sfn.inbox.letters import Letter
from sfn.words import Claim, Outcome


class Journal(Protocol):
    """The worker's log."""

    def settled(self, claim: Claim, outcome: Outcome, seconds: float) -> None:
        """A claim ended, after that many seconds."""
        ...

    def fenced(self, claim: Claim) -> None:
        """A claim's lease was lost; another worker has the row."""
        ...

    def expired(self, leases: int) -> None:
        """So many leases ran out, in this process or in the one before it."""
        ...

    def poisoned(self, letter: Letter) -> None:
        """Nobody came back from a row, time and again."""
        ...

    def surprised(self, claim: Claim, error: Exception) -> None:
        """An attempt raised what nobody expected."""
        ...


class Journals:
    """Implements `Journal`: tells each of several, in their order."""

    def __init__(self, *journals: Journal) -> None:
        self._journals = journals

    def settled(self, claim: Claim, outcome: Outcome, seconds: float) -> None:
        for journal in self._journals:
            journal.settled(claim, outcome, seconds)

    def fenced(self, claim: Claim) -> None:
        for journal in self._journals:
            journal.fenced(claim)

    def expired(self, leases: int) -> None:
        for journal in self._journals:
            journal.expired(leases)

    def poisoned(self, letter: Letter) -> None:
        for journal in self._journals:
            journal.poisoned(letter)

    def surprised(self, claim: Claim, error: Exception) -> None:
        for journal in self._journals:
            journal.surprised(claim, error)
