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

    def poisoned(self, letter: Letter) -> None:
        """Nobody came back from a row, time and again."""
        ...

    def surprised(self, claim: Claim, error: Exception) -> None:
        """An attempt raised what nobody expected."""
        ...
