"""Dead letters: what could not be published, until something supersedes it or an operator acts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sfn.words import Reason, Subject


class Status(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    SUPERSEDED = "superseded"
    REPLAYED = "replayed"


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter; a subject has at most one that is open.

    Attributes:
        subject: whose.
        reason: which kind.
        detail: what happened and what to do, for a person.
        attempts: how many there were.
        status: what became of it.
    """

    subject: Subject
    reason: Reason
    detail: str
    attempts: int
    status: Status = Status.OPEN


def poisoned(subject: Subject, crashes: int, attempts: int) -> Letter:
    """The letter of a subject that nobody came back from."""
    detail = f"{subject}: {crashes} attempts in a row ended the process or lost their lease"
    return Letter(subject, Reason.POISON, detail, attempts)
