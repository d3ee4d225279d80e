"""What was told of a name in a catalog that nobody can ask: there, events are the truth."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sfn.words.table import TableIdentifier


class TableOrigin(StrEnum):
    """How a table came to its name."""

    CREATE = "create"
    """It is new."""
    REGISTER = "register"
    """Its metadata was there before: it was registered, or it had another name."""


@dataclass(frozen=True, slots=True)
class ReportedChange:
    """What one event said.

    Attributes:
        seq: number of its hint: what was told later has a greater one.
        metadata_location: metadata location; None for an end.
        uuid: table uuid, None where the event did not say it.
        origin: how the table came to the name; None for a commit, and for an end.
        is_end: the table was dropped or has another name now.
        renamed_to: that name.
        missing_since: since when it means nothing, such as while its metadata file is not there.
        is_doubtful: its row was given up with it: while it means nothing, it stands back for what else is told.
    """

    seq: int
    metadata_location: str | None = None
    uuid: str | None = None
    origin: TableOrigin | None = None
    is_end: bool = False
    renamed_to: TableIdentifier | None = None
    missing_since: datetime | None = None
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class TableHistory:
    """One table that a name has or had; each moment is the number of the hint that told of it, -1 for none.

    Attributes:
        uuid: its uuid.
        metadata_location: its newest metadata location, None while only its end was told of.
        changed_seq: when that was told last.
        created_seq: when it came to the name.
        ended_seq: when it was dropped or renamed.
        renamed_to: the name that it was renamed to.
    """

    uuid: str | None
    metadata_location: str | None = None
    changed_seq: int = -1
    created_seq: int = -1
    ended_seq: int = -1
    renamed_to: TableIdentifier | None = None


@dataclass(frozen=True, slots=True)
class EventHistory:
    """All that was told of one name.

    Attributes:
        tables: what is known of its tables by now.
        ended_seq: the last end of a table that was not named: it ended what was born before.
        reported_changes: what was told since, and is not part of that yet.
    """

    tables: tuple[TableHistory, ...] = ()
    ended_seq: int = -1
    reported_changes: tuple[ReportedChange, ...] = ()
