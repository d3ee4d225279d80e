"""What was told of a name in a catalog that nobody can ask: there, events are the truth."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sfn.words.table import TableName


class Birth(StrEnum):
    """How a table came to its name."""

    CREATE = "create"
    """It is new."""
    REGISTER = "register"
    """Its metadata was there before: it was registered, or it had another name."""


@dataclass(frozen=True, slots=True)
class Telling:
    """What one event said.

    Attributes:
        seq: number of its hint: what was told later has a greater one.
        location: metadata location; None for an end.
        uuid: table uuid, None where the event did not say it.
        birth: how the table came to the name; None for a commit, and for an end.
        ends: the table was dropped or has another name now.
        to: that name.
        missed_at: since when it means nothing, such as while its metadata file is not there.
        is_doubtful: its row was given up with it: while it means nothing, it stands back for what else is told.
    """

    seq: int
    location: str | None = None
    uuid: str | None = None
    birth: Birth | None = None
    ends: bool = False
    to: TableName | None = None
    missed_at: datetime | None = None
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class ToldTable:
    """One table that a name has or had; each moment is the number of the hint that told of it, -1 for none.

    Attributes:
        uuid: its uuid.
        location: its newest metadata location, None while only its end was told of.
        told_at: when that was told last.
        born_at: when it came to the name.
        ended_at: when it was dropped or renamed.
        to: the name that it was renamed to.
    """

    uuid: str | None
    location: str | None = None
    told_at: int = -1
    born_at: int = -1
    ended_at: int = -1
    to: TableName | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """All that was told of one name.

    Attributes:
        tables: what is known of its tables by now.
        ended_at: the last end of a table that was not named: it ended what was born before.
        tellings: what was told since, and is not part of that yet.
    """

    tables: tuple[ToldTable, ...] = ()
    ended_at: int = -1
    tellings: tuple[Telling, ...] = ()
