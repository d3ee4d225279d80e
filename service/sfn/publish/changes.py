"""What a publish does to files, and in which order: every prefix of a plan leaves every reader right.

Order: what an earlier publish left undone; the file that points; those of commits, the oldest first; those of other
branches; then the version hint; then hints that must not speak any more; then what another file of the same name
supersedes; then `renamed`, `moved` and `dropped`; then what is deleted. For a table that is gone the hint goes before
its document says so, and the newest of its files goes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import TypeAlias

from sfn.domain.events import ReportedChange
from sfn.domain.jobs import DeadLettered, Done, Rescheduled, StoredObject, Wakeup
from sfn.sfnfile.naming import FileLayout


class Stage(IntEnum):
    """When in a plan a change comes."""

    REPAIR = 0
    POINTER = 1
    COMMIT = 2
    BRANCH = 3
    HINT = 4
    CLEAR_HINT = 5
    SUPERSEDE = 6
    TOMBSTONE = 7
    DELETE = 8


@dataclass(frozen=True, slots=True)
class Put:
    """Write a file over exactly what was seen there.

    Attributes:
        stage: when in the plan.
        key: where.
        body: what.
        replacing: what was seen; None to create.
        check: a key that must be unchanged when this one has been written (a hint's content can repeat, so its swap
            alone does not tell that the document beside it is still ours), with the site whose other rows must still
            be none.
    """

    stage: Stage
    key: str
    body: bytes
    replacing: StoredObject | None
    check: tuple[str, FileLayout] | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete exactly what was seen.

    Attributes:
        fallback_body: what to write instead where a store can't delete on a condition; None to leave the file.
    """

    stage: Stage
    key: str
    replacing: StoredObject
    fallback_body: bytes | None = None


FileChange: TypeAlias = Put | Remove


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """Changes in their order, and the outcome once all of them are made.

    Attributes:
        changes: in their order.
        outcome: once all of them are made.
        aliases: pairs of keys that must hold the same bytes then: the first was changed, the second is taken for
            another name of the same file.
        unchanged_keys: keys that must hold what was seen there.
    """

    changes: tuple[FileChange, ...]
    outcome: Done | Rescheduled | DeadLettered
    aliases: tuple[tuple[str, str], ...] = ()
    unchanged_keys: tuple[str, ...] = ()


def known_locations(wakeups: Iterable[Wakeup]) -> frozenset[str]:
    """Where rows that should look are known to have a file, as `Story.older_at`."""
    return frozenset(wakeup.location for wakeup in wakeups if wakeup.location is not None)


@dataclass(slots=True)
class PlanBuilder:
    """A plan in the making.

    Attributes:
        changes: in no order yet.
        rechecks: moments at which something must be looked at again, and why.
        wakeups: rows that should look.
        wake_locations: locations whose other rows should look.
        missing_since: when each uuid was first seen missing, for those still waited for.
        dead_letter: what is to end as a dead letter.
        recheck_unconfirmed: an event told of nothing that the answer shows; it gets one more look.
        unapplied: what was told and means nothing yet, so stays told.
        given_up: a dead letter for what of it is not waited for any more; all else goes on.
        foreign_hint, older_at: see `Story`.
        unchanged_keys: see `ReadPlan`.
    """

    changes: list[FileChange] = field(default_factory=list)
    rechecks: list[tuple[datetime, str]] = field(default_factory=list)
    wakeups: dict[Wakeup, None] = field(default_factory=dict)
    wake_locations: set[str] = field(default_factory=set)
    missing_since: dict[str, datetime] = field(default_factory=dict)
    dead_letter: DeadLettered | None = None
    recheck_unconfirmed: bool = False
    unapplied: tuple[ReportedChange, ...] = ()
    given_up: DeadLettered | None = None
    unchanged_keys: tuple[str, ...] = ()
    foreign_hint: str | None = None
    older_at: frozenset[str] = frozenset()

    def put(self, stage: Stage, key: str, body: bytes, replacing: StoredObject | None) -> None:
        """Write a file."""
        self.changes.append(Put(stage, key, body, replacing))

    def remove(self, stage: Stage, key: str, replacing: StoredObject, fallback_body: bytes | None = None) -> None:
        """Delete a file."""
        self.changes.append(Remove(stage, key, replacing, fallback_body))

    def recheck_at(self, at: datetime, why: str) -> None:
        """Come back to it."""
        self.rechecks.append((at, why))

    def wake(self, wakeups: Iterable[Wakeup]) -> None:
        """Have other rows look."""
        self.wakeups.update(dict.fromkeys(wakeups))

    def wait_for(self, older: Iterable[Wakeup], at: datetime, why: str) -> None:
        """Have rows with older files look, and come back to it."""
        self.wake(older)
        self.older_at |= known_locations(older)
        self.recheck_at(at, why)

    def ordered_changes(self) -> tuple[FileChange, ...]:
        """The changes in the order that keeps every prefix right."""
        return tuple(sorted(self.changes, key=lambda change: change.stage))
