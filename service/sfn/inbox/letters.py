"""Dead letters: what could not be published, until something supersedes it or an operator acts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import DeadLetterReason, Done, Outcome, Rescheduled, SweepCompleted

MAX_UNDECODABLE_PER_SENDER = 1_000
"""Requests of one sender that nobody understood which are kept; the oldest goes."""

_CAUSE: Final = re.compile(r": (expected .+?, found .+?)(?:;|$)", re.DOTALL)
"""What an `SfnError` says after the place that is wrong, and before the remedy."""

RELEASE_BATCH_SIZE = 500
"""Rows that an operator releases which are let go in one transaction: few, because puts wait for it."""


class DeadLetterStatus(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    SUPERSEDED = "superseded"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class NewDeadLetter:
    """Why a subject was given up.

    Attributes:
        subject: whose.
        reason: which kind.
        detail: what happened and what to do, for a person.
        attempts: how many there were.
    """

    subject: JobKey
    reason: DeadLetterReason
    detail: str
    attempts: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as the inbox keeps it; a subject has at most one that is open.

    Attributes:
        id: grows with each one, and is never used again.
        subject: whose; None for a request that nobody understood.
        sender: who sent that request; None for a subject's.
        reason, detail, attempts: as in `Letter`.
        status: what became of it.
        opened_at: when it was opened.
        changed_at: when anything of it last changed.
        actor: the operator who replayed or discarded it.
    """

    id: int
    subject: JobKey | None
    sender: str | None
    reason: DeadLetterReason
    detail: str
    attempts: int
    status: DeadLetterStatus
    opened_at: datetime
    changed_at: datetime
    actor: str | None = None

    @property
    def cause(self) -> str:
        """What is wrong, without the file or the table: letters of one outage have one cause."""
        return cause_of(self.reason, self.detail)


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters are looked for; what is None does not matter.

    Attributes:
        status: what became of them.
        catalog: of which catalog their subjects are.
        table: whose.
        reason: which kind.
        sender: who sent the request.
        opened_before, since: opened earlier than this moment; at it or later.
    """

    status: DeadLetterStatus | None = DeadLetterStatus.OPEN
    catalog: str | None = None
    table: TableIdentifier | None = None
    reason: DeadLetterReason | None = None
    sender: str | None = None
    opened_before: datetime | None = None
    opened_since: datetime | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Whether it is one of them."""
        catalog = letter.subject.catalog if letter.subject is not None else None
        return (
            (self.status is None or letter.status is self.status)
            and (self.catalog is None or catalog == self.catalog)
            and (self.table is None or letter.subject == self.table)
            and (self.reason is None or letter.reason is self.reason)
            and (self.sender is None or letter.sender == self.sender)
            and (self.opened_before is None or letter.opened_at < self.opened_before)
            and (self.opened_since is None or letter.opened_at >= self.opened_since)
        )


@dataclass(frozen=True, slots=True)
class AdminCommand:
    """What an operator told the service to do.

    Attributes:
        actor: who.
        target: what it was told of, in words.
        at: when.
    """

    actor: str
    target: str
    at: datetime


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An order that was carried out.

    Attributes:
        id: grows with each one.
        at, actor: when, and by whom.
        action: `reconcile`, `replay`, `discard`, `release`, `retire`, `unretire` or `adopt`.
        target: what it was told of.
        count: how many letters or rows it changed.
    """

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    count: int


def cause_of(reason: DeadLetterReason, detail: str) -> str:
    """The part of a letter's detail that it has in common with others; the reason, where there is none."""
    found = _CAUSE.search(detail)
    return found[1] if found is not None else reason.value


def closes_dead_letter(outcome: Outcome) -> bool:
    """Whether a claim that ended so closes its subject's open letter: files that were written are a success."""
    return isinstance(outcome, Done | SweepCompleted) or (
        isinstance(outcome, Rescheduled) and bool(outcome.result.written_keys)
    )


def poison_letter(subject: JobKey, crashes: int, attempts: int) -> NewDeadLetter:
    """The letter of a subject that nobody came back from."""
    detail = f"{subject}: {crashes} attempts in a row ended the process or lost their lease"
    return NewDeadLetter(subject, DeadLetterReason.POISON, detail, attempts)
