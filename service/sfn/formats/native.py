"""The listener's own format, for any program that can send JSON.

    {"namespace": ["a", "b"] | "a.b", "name": "t",
     "operation": "commit" | "create" | "register" | "rename" | "drop",       commit when absent
     "destination": {"namespace": …, "name": …},                              with rename, and only there
     "purge": true,                                                           with drop, and only there
     "catalog": …, "event_id": …, "metadata_location": …, "table_uuid": …, "ref": …, "occurred_at": …}

Null is the same as absent. Unknown keys are ignored. `ref` and `occurred_at` are checked and stored in the event log
only, because the catalog has better data. So is `table_uuid`, except in an event-only catalog.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.formats.event import (
    MAX_LEVELS,
    MAX_LOCATION,
    MAX_NAME,
    Event,
    field_error,
    json_kind,
    namespace_levels,
    optional_text,
    rename_notifications,
    require_text,
    split_namespace,
)

OPERATIONS: Final = ("commit", "create", "register", "rename", "drop")

_ORIGINS: Final = {"create": TableOrigin.CREATE, "register": TableOrigin.REGISTER}

_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)


_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
_Location: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LOCATION)]


class _PlainEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most frequent event: a commit with these fields alone. No other format has exactly these."""

    namespace: Annotated[tuple[_Name, ...], msgspec.Meta(max_length=MAX_LEVELS)]
    name: _Name
    event_id: _Name | None = None
    metadata_location: _Location | None = None


_plain: Final = msgspec.json.Decoder(_PlainEvent).decode


def decode_plain_event(body: bytes, sender: str, catalog: str) -> Notification | None:
    """Return the notification of a plain event, decoded in a fifth of the time; None for any other event, valid or not.

    Without escapes, DEL and non-ASCII characters, no text contains a control character, because JSON allows none (RFC
    8259, section 7).

    Args:
        body: the whole event.
        sender: the name of the sender.
        catalog: our name of the sender's only catalog.
    """
    if not body.isascii() or b"\\" in body or b"\x7f" in body:
        return None
    try:
        event = _plain(body)
    except msgspec.DecodeError:
        return None
    table = TableIdentifier(catalog, event.namespace, event.name)
    return Notification(table, sender, event.event_id, event.metadata_location, body=body)


def is_native_event(event: Event) -> bool:
    """Return whether the event names a table by the keys of this format."""
    return event.data_at is None and "namespace" in event.content and "name" in event.content


def decode_native_event(event: Event) -> tuple[Notification, ...]:
    """Return one notification, or two for a rename: the old name with `renamed_to`, the new name with the metadata
    location.

    Raises:
        Rejected: 422, with the JSON pointer of the wrong field.
    """
    content, at = event.content, event.at
    operation = _operation(content, at)
    table = _table(content, at, event.require_catalog(optional_text(content, "catalog", at), f"{at}/catalog"))
    event_id = optional_text(content, "event_id", at)
    metadata_location = optional_text(content, "metadata_location", at, MAX_LOCATION)
    uuid = optional_text(content, "table_uuid", at)
    optional_text(content, "ref", at)
    _timestamp(content, "occurred_at", at)
    destination = _destination(content, at, table.catalog, operation)
    purge = _purge(content, at, operation)
    sender, body = event.sender, event.body
    if destination is not None:
        return rename_notifications(
            Notification(table, sender, event_id, metadata_location, uuid=uuid, body=body), table, destination, at
        )
    if operation == "drop":
        return (Notification(table, sender, event_id, drop=True, purge=purge, uuid=uuid, body=body),)
    return (
        Notification(table, sender, event_id, metadata_location, uuid=uuid, origin=_ORIGINS.get(operation), body=body),
    )


def _operation(content: Mapping[str, object], at: str) -> str:
    operation = optional_text(content, "operation", at)
    if operation is None:
        return OPERATIONS[0]
    if operation not in OPERATIONS:
        raise field_error(at, "operation", f"one of {', '.join(OPERATIONS)}", ascii(operation[:40]))
    return operation


def _destination(content: Mapping[str, object], at: str, catalog: str, operation: str) -> TableIdentifier | None:
    destination = content.get("destination")
    if operation != "rename":
        if destination is not None:
            raise field_error(at, "destination", "none without the operation rename", json_kind(destination))
        return None
    if not isinstance(destination, dict):
        raise field_error(at, "destination", "an object with the new namespace and name", json_kind(destination))
    return _table(destination, f"{at}/destination", catalog)


def _purge(content: Mapping[str, object], at: str, operation: str) -> bool:
    purge = content.get("purge")
    if purge is None or purge is False:
        return False
    if purge is not True:
        raise field_error(at, "purge", "true or false", json_kind(purge))
    if operation != "drop":
        raise field_error(at, "purge", "none without the operation drop", "true")
    return True


def _table(content: Mapping[str, object], at: str, catalog: str) -> TableIdentifier:
    return TableIdentifier(
        catalog, _namespace(content.get("namespace"), at), require_text(content.get("name"), at, "name")
    )


def _namespace(value: object, at: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return split_namespace(value, ".", at, "namespace")
    return namespace_levels(value, at, "namespace", "an array of strings or one dotted string")


def _timestamp(content: Mapping[str, object], key: str, at: str) -> None:
    moment = optional_text(content, key, at)
    if moment is not None and _TIMESTAMP.fullmatch(moment) is None:
        raise field_error(at, key, "a time with its offset as in RFC 3339", ascii(moment[:40]))
