"""What an event comes to: hints, or nothing; and how those hints are made that several dialects make.

It belongs to no dialect, so that each may import it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from sfn.dialects.fields import MAX_NAME, wrong
from sfn.words import Hint, TableName

_PART: Final = "\x1f"
"""Before what tells the hints of one event apart: no id that arrives holds a control character."""


@dataclass(frozen=True, slots=True)
class Unmapped:
    """The event is of a catalog of which nobody said which of ours it is.

    Attributes:
        theirs: what the event calls it.
    """

    theirs: str


Said: TypeAlias = tuple[Hint, ...] | Unmapped
"""Of an event that is understood and of no concern, no hint."""


def identity(source: str, event_id: str) -> str:
    """The id of an event whose id is one among those of its source alone (CloudEvents, section "id").

    No two pairs have the same: a source is a URI reference, so that the first space is where it ends.
    """
    joined = f"{source} {event_id}"
    if " " not in source and len(joined) <= MAX_NAME:
        return joined
    return sha256(msgspec.json.encode((source, event_id))).hexdigest()


def part(event_id: str | None, name: str) -> str | None:
    """The id of one hint of an event that has several: None where the event has none."""
    return None if event_id is None else f"{event_id}{_PART}{name}"


def renamed(hint: Hint, source: TableName, destination: TableName, at: str) -> tuple[Hint, Hint]:
    """The hints of a rename: the old name with `renamed_to`, and the new one, of which the location was told.

    Args:
        hint: what the event says of the table, whatever it is called.
        source: the old name.
        destination: the new one.
        at: the place of what holds the destination.

    Raises:
        Rejected: 422, both are the same.
    """
    if destination == source:
        raise wrong(at, "destination", "another name than the old one", "the same")
    return (
        replace(hint, subject=source, floor=None, renamed_to=destination),
        replace(hint, subject=destination, event_id=part(hint.event_id, "destination"), renamed_from=source),
    )
