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

from sfn.pointer.site import Site
from sfn.words import Ask, Dead, Done, Held, Later, Telling


class Stage(IntEnum):
    """When in a plan a change comes."""

    MEND = 0
    POINT = 1
    COMMIT = 2
    BRANCH = 3
    HINT = 4
    SILENCE = 5
    SUPERSEDE = 6
    FORWARD = 7
    PRUNE = 8


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
    replacing: Held | None
    check: tuple[str, Site] | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete exactly what was seen.

    Attributes:
        otherwise: what to write instead where a store can't delete on a condition; None to leave the file.
    """

    stage: Stage
    key: str
    replacing: Held
    otherwise: bytes | None = None


Change: TypeAlias = Put | Remove


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes in their order, and the outcome once all of them are made.

    Attributes:
        changes: in their order.
        outcome: once all of them are made.
        aliases: pairs of keys that must hold the same bytes then: the first was changed, the second is taken for
            another name of the same file.
        unchanged: keys that must hold what was seen there.
    """

    changes: tuple[Change, ...]
    outcome: Done | Later | Dead
    aliases: tuple[tuple[str, str], ...] = ()
    unchanged: tuple[str, ...] = ()


def places_of(asks: Iterable[Ask]) -> frozenset[str]:
    """Where rows that should look are known to have a file, as `Story.older_at`."""
    return frozenset(ask.location for ask in asks if ask.location is not None)


@dataclass(slots=True)
class Draft:
    """A plan in the making.

    Attributes:
        changes: in no order yet.
        looks: moments at which something must be looked at again, and why.
        asks: rows that should look.
        stirs: locations whose other rows should look.
        absent: when each uuid was first seen missing, for those still waited for.
        dead: what is to end as a dead letter.
        echo: an event told of nothing that the answer shows; it gets one more look.
        unheard: what was told and means nothing yet, so stays told.
        lost: a dead letter for what of it is not waited for any more; all else goes on.
        foreign_hint, older_at: see `Story`.
        unchanged: see `Plan`.
    """

    changes: list[Change] = field(default_factory=list)
    looks: list[tuple[datetime, str]] = field(default_factory=list)
    asks: dict[Ask, None] = field(default_factory=dict)
    stirs: set[str] = field(default_factory=set)
    absent: dict[str, datetime] = field(default_factory=dict)
    dead: Dead | None = None
    echo: bool = False
    unheard: tuple[Telling, ...] = ()
    lost: Dead | None = None
    unchanged: tuple[str, ...] = ()
    foreign_hint: str | None = None
    older_at: frozenset[str] = frozenset()

    def put(self, stage: Stage, key: str, body: bytes, replacing: Held | None) -> None:
        """Write a file."""
        self.changes.append(Put(stage, key, body, replacing))

    def remove(self, stage: Stage, key: str, replacing: Held, otherwise: bytes | None = None) -> None:
        """Delete a file."""
        self.changes.append(Remove(stage, key, replacing, otherwise))

    def look_again(self, at: datetime, why: str) -> None:
        """Come back to it."""
        self.looks.append((at, why))

    def ask(self, asks: Iterable[Ask]) -> None:
        """Have other rows look."""
        self.asks.update(dict.fromkeys(asks))

    def wait_for(self, older: Iterable[Ask], at: datetime, why: str) -> None:
        """Have rows with older files look, and come back to it."""
        self.ask(older)
        self.older_at |= places_of(older)
        self.look_again(at, why)

    def ordered(self) -> tuple[Change, ...]:
        """The changes in the order that keeps every prefix right."""
        return tuple(sorted(self.changes, key=lambda change: change.stage))
