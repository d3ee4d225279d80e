"""Apache Polaris' events, as it sends them to Kafka: one JSON object each, by itself or as a CloudEvent's `data`.

    {"event_type": "AFTER_UPDATE_TABLE", "event_id": …, "catalog_name": …, "realm_id": …,
     "namespace": ["a", "b"], "table_name": "t",
     "source": ["a", "b", "t"], "destination": ["a", "b", "u"]}               with AFTER_RENAME_TABLE, instead

A transaction is an AFTER_UPDATE_TABLE for each of its tables beside the AFTER_COMMIT_TRANSACTION, which names none. A
refresh reads a table. What a notification did to a table its AFTER_SEND_NOTIFICATION does not say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sfn.dialects.event import Event
from sfn.dialects.fields import checked, identifier, levels, text
from sfn.dialects.outcome import Said, Unmapped, renamed
from sfn.words import Birth, Hint, TableName

SOURCE: Final = "org.apache.polaris"
"""Of a CloudEvent that carries one."""
TYPES: Final[Mapping[str, Birth | None]] = {
    "AFTER_CREATE_TABLE": Birth.CREATE,
    "AFTER_REGISTER_TABLE": Birth.REGISTER,
    "AFTER_UPDATE_TABLE": None,
    "AFTER_COMMIT_TABLE": None,
    "AFTER_DROP_TABLE": None,
    "AFTER_RENAME_TABLE": None,
    "AFTER_SEND_NOTIFICATION": None,
}
"""What changes tables, and how one came to its name by it."""

_TYPE: Final = re.compile(r"(BEFORE|AFTER)_[A-Z_]+")


def recognises(event: Event) -> bool:
    """Whether it tells of something in a realm, before or after it happened."""
    if event.data_at is not None:
        return event.content.get("source") == SOURCE and event.data is not None
    told = event.content.get("event_type")
    return isinstance(told, str) and _TYPE.fullmatch(told) is not None and "realm_id" in event.content


def hints(event: Event) -> Said:
    """One hint, or for a rename two.

    Raises:
        Rejected: 422, a field is wrong.
    """
    content, at = (event.content, event.at) if event.data is None else (event.data, str(event.data_at))
    told = checked(content.get("event_type"), at, "event_type")
    if told not in TYPES:
        return ()
    theirs = checked(content.get("catalog_name"), at, "catalog_name")
    ours = event.known(theirs)
    if ours is None:
        return Unmapped(theirs)
    event_id = text(content, "event_id", at)
    if told == "AFTER_RENAME_TABLE":
        source = TableName(ours, *identifier(content.get("source"), at, "source"))
        destination = TableName(ours, *identifier(content.get("destination"), at, "destination"))
        return renamed(Hint(source, event.sender, event_id, body=event.body), source, destination, at)
    namespace = levels(content.get("namespace"), at, "namespace")
    table = TableName(ours, namespace, checked(content.get("table_name"), at, "table_name"))
    drop = told == "AFTER_DROP_TABLE"
    return (Hint(table, event.sender, event_id, drop=drop, birth=TYPES[told], body=event.body),)
