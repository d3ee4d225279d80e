"""Nessie's events, as Nessie sends them to Kafka or NATS: one JSON object each.

    {"type": "CONTENT_STORED", "id": …, "repositoryId": …, "eventCreationTimestamp": …,
     "reference": {"type": "BRANCH", "name": "main"}, "contentKey": {"elements": ["a", "b", "t"]},
     "content": {"type": "ICEBERG_TABLE", "metadataLocation": …}}

A branch of Nessie is a catalog here. Branches that the sender maps are followed; tags and detached commits are not. A
merge and a commit report their changes in separate events; moving a branch to another commit does not. A rename is a
CONTENT_REMOVED and a CONTENT_STORED; the events neither say that they belong to a rename nor contain the table's uuid.
"""

from __future__ import annotations

from typing import Final

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.formats.event import (
    MAX_LOCATION,
    DecodedEvent,
    Event,
    UnmappedCatalog,
    identifier_from_array,
    optional_text,
    require_object,
    require_text,
)

STORED: Final = "CONTENT_STORED"
REMOVED: Final = "CONTENT_REMOVED"
MOVED: Final = "REFERENCE_UPDATED"

_BRANCH: Final = "BRANCH"
_TABLE: Final = "ICEBERG_TABLE"


def is_nessie_event(event: Event) -> bool:
    """Return whether the event reports something in a Nessie repository."""
    content = event.content
    if event.data_at is not None or not isinstance(content.get("type"), str):
        return False
    if content["type"] in {STORED, REMOVED}:
        return "contentKey" in content
    return "repositoryId" in content and "eventCreationTimestamp" in content


def decode_nessie_event(event: Event) -> DecodedEvent:
    """Return one notification if the event is about a branch.

    Raises:
        Rejected: 422, a field is wrong.
    """
    content, at = event.content, event.at
    event_type = content["type"]
    if event_type not in {STORED, REMOVED, MOVED}:
        return ()
    content_type, location = None, None
    if event_type == STORED:
        stored = require_object(content.get("content"), at, "content")
        content_type = require_text(stored.get("type"), f"{at}/content", "type")
        location = optional_text(stored, "metadataLocation", f"{at}/content", MAX_LOCATION)
    reference = require_object(content.get("reference"), at, "reference")
    if content_type not in {None, _TABLE} or reference.get("type") != _BRANCH:
        return ()
    external_name = require_text(reference.get("name"), f"{at}/reference", "name")
    catalog = event.mapped_catalog(external_name)
    if catalog is None:
        return UnmappedCatalog(external_name)
    event_id = optional_text(content, "id", at)
    if event_type == MOVED:
        return (Notification(CatalogName(catalog), event.sender, event_id, body=event.body),)
    key = require_object(content.get("contentKey"), at, "contentKey")
    elements = key.get("elements")
    if event_type == REMOVED and isinstance(elements, list) and len(elements) == 1:
        # A namespace is content too, and the event does not give the type. A table always has a namespace.
        return ()
    table = TableIdentifier(catalog, *identifier_from_array(elements, f"{at}/contentKey", "elements"))
    return (Notification(table, event.sender, event_id, location, drop=event_type == REMOVED, body=event.body),)
