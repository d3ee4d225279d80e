"""What an event comes to: hints, or nothing; and how those hints are made that several dialects make.

It belongs to no dialect, so that each may import it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from sfn.dialects.fields import MAX_NAME, field_error
from sfn.words import Notification, TableIdentifier

_PART: Final = "\x1f"
"""Before what tells the hints of one event apart: no id that arrives holds a control character."""


@dataclass(frozen=True, slots=True)
class UnmappedCatalog:
    """The event is of a catalog of which nobody said which of ours it is.

    Attributes:
        name: what the event calls it.
    """

    name: str


DecodedEvent: TypeAlias = tuple[Notification, ...] | UnmappedCatalog
"""Of an event that is understood and of no concern, no hint."""


def global_event_id(source: str, event_id: str) -> str:
    """The id of an event whose id is one among those of its source alone (CloudEvents, section "id").

    No two pairs have the same: a source is a URI reference, so that the first space is where it ends.
    """
    joined = f"{source} {event_id}"
    if " " not in source and len(joined) <= MAX_NAME:
        return joined
    return sha256(msgspec.json.encode((source, event_id))).hexdigest()


def partial_event_id(event_id: str | None, name: str) -> str | None:
    """The id of one hint of an event that has several: None where the event has none."""
    return None if event_id is None else f"{event_id}{_PART}{name}"


def rename_notifications(
    notification: Notification, source: TableIdentifier, destination: TableIdentifier, at: str
) -> tuple[Notification, Notification]:
    """The hints of a rename: the old name with `renamed_to`, and the new one, of which the location was told.

    Args:
        notification: what the event says of the table, whatever it is called.
        source: the old name.
        destination: the new one.
        at: the place of what holds the destination.

    Raises:
        Rejected: 422, both are the same.
    """
    if destination == source:
        raise field_error(at, "destination", "another name than the old one", "the same")
    return (
        replace(notification, subject=source, min_metadata_location=None, renamed_to=destination),
        replace(
            notification,
            subject=destination,
            event_id=partial_event_id(notification.event_id, "destination"),
            renamed_from=source,
        ),
    )
