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
from sfn.dialects.fields import identifier_from_array, namespace_levels, optional_text, require_text
from sfn.dialects.outcome import DecodedEvent, UnmappedCatalog, rename_notifications
from sfn.words import Notification, TableIdentifier, TableOrigin

SOURCE: Final = "org.apache.polaris"
"""Of a CloudEvent that carries one."""
EVENT_TYPES: Final[Mapping[str, TableOrigin | None]] = {
    "AFTER_CREATE_TABLE": TableOrigin.CREATE,
    "AFTER_REGISTER_TABLE": TableOrigin.REGISTER,
    "AFTER_UPDATE_TABLE": None,
    "AFTER_COMMIT_TABLE": None,
    "AFTER_DROP_TABLE": None,
    "AFTER_RENAME_TABLE": None,
    "AFTER_SEND_NOTIFICATION": None,
}
"""What changes tables, and how one came to its name by it."""

_TYPE: Final = re.compile(r"(BEFORE|AFTER)_[A-Z_]+")


def is_polaris_event(event: Event) -> bool:
    """Whether it tells of something in a realm, before or after it happened."""
    if event.data_at is not None:
        return event.content.get("source") == SOURCE and event.data is not None
    event_type = event.content.get("event_type")
    return isinstance(event_type, str) and _TYPE.fullmatch(event_type) is not None and "realm_id" in event.content


def decode_polaris_event(event: Event) -> DecodedEvent:
    """One hint, or for a rename two.

    Raises:
        Rejected: 422, a field is wrong.
    """
    content, at = (event.content, event.at) if event.data is None else (event.data, str(event.data_at))
    event_type = require_text(content.get("event_type"), at, "event_type")
    if event_type not in EVENT_TYPES:
        return ()
    external_name = require_text(content.get("catalog_name"), at, "catalog_name")
    catalog = event.mapped_catalog(external_name)
    if catalog is None:
        return UnmappedCatalog(external_name)
    event_id = optional_text(content, "event_id", at)
    if event_type == "AFTER_RENAME_TABLE":
        source = TableIdentifier(catalog, *identifier_from_array(content.get("source"), at, "source"))
        destination = TableIdentifier(catalog, *identifier_from_array(content.get("destination"), at, "destination"))
        return rename_notifications(
            Notification(source, event.sender, event_id, body=event.body), source, destination, at
        )
    namespace = namespace_levels(content.get("namespace"), at, "namespace")
    table = TableIdentifier(catalog, namespace, require_text(content.get("table_name"), at, "table_name"))
    drop = event_type == "AFTER_DROP_TABLE"
    return (Notification(table, event.sender, event_id, drop=drop, origin=EVENT_TYPES[event_type], body=event.body),)
