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

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.formats.event import (
    CONTROL_CHARACTERS,
    MAX_LEVELS,
    MAX_LOCATION,
    MAX_NAME,
    Event,
    Location,
    Text,
    Timestamp,
    convert_object,
    field_error,
    rename_notifications,
    split_namespace,
)

Operation: TypeAlias = Literal["commit", "create", "register", "rename", "drop"]
OPERATIONS: Final[tuple[str, ...]] = get_args(Operation)

_ORIGINS: Final[Mapping[str | None, TableOrigin]] = {"create": TableOrigin.CREATE, "register": TableOrigin.REGISTER}

_LEVEL: Final = f"[^.{CONTROL_CHARACTERS}]{{1,{MAX_NAME}}}"
_DOTTED: Final = rf"^{_LEVEL}(\.{_LEVEL}){{0,{MAX_LEVELS - 1}}}$"

Namespace: TypeAlias = Annotated[
    Annotated[tuple[Text, ...], Meta(max_length=MAX_LEVELS)]
    # The text has no `pattern` but in the schema, and `_table` checks its levels: msgspec 0.22 corrupts memory when it
    # frees a union of an array and a text with a pattern.
    | Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": _DOTTED})],
    Meta(description="levels as an array, or joined by dots if no level contains a dot"),
]


class NativeIdentifier(msgspec.Struct, frozen=True):
    """A table's name."""

    namespace: Namespace
    name: Text


class NativeEvent(NativeIdentifier, frozen=True):
    """An event of one table."""

    operation: Operation | None = "commit"
    destination: Annotated[NativeIdentifier | None, Meta(description="only with the operation rename")] = None
    purge: Annotated[bool | None, Meta(description="the files are deleted, too; only with the operation drop")] = None
    catalog: Annotated[Text | None, Meta(description="required if the sender has several catalogs")] = None
    event_id: Annotated[Text | None, Meta(description="events of one sender with the same id are duplicates")] = None
    table_uuid: Annotated[Text | None, Meta(description="identifies the table in an event-only catalog")] = None
    metadata_location: Annotated[
        Location | None, Meta(description="an event-only catalog needs it, unless it is a drop or a rename")
    ] = None
    ref: Text | None = None
    occurred_at: Timestamp | None = None


_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
_Location: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_LOCATION)]


class _PlainEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most frequent event: a commit with these fields alone. No other format has exactly these."""

    namespace: Annotated[tuple[_Name, ...], Meta(max_length=MAX_LEVELS)]
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


def names_half_a_table(event: Event) -> bool:
    """Return whether the event has one of the two keys that name a table in this format."""
    return event.data_at is None and ("namespace" in event.content) != ("name" in event.content)


def decode_native_event(event: Event) -> tuple[Notification, ...]:
    """Return one notification, or two for a rename: the old name with `renamed_to`, the new name with the metadata
    location.

    Raises:
        Rejected: 422, with the JSON pointer of the wrong field.
    """
    at = event.at
    found = convert_object(event.content, NativeEvent, at, OPERATIONS)
    table = _table(found, event.require_catalog(found.catalog, f"{at}/catalog"), at)
    sender, body, uuid, location = event.sender, event.body, found.table_uuid, found.metadata_location
    if found.purge and found.operation != "drop":
        raise field_error(at, "purge", "none without the operation drop", "true")
    if found.operation == "rename":
        if found.destination is None:
            raise field_error(at, "destination", "an object with the new namespace and name", "none")
        return rename_notifications(
            Notification(table, sender, found.event_id, location, uuid=uuid, body=body),
            table,
            _table(found.destination, table.catalog, f"{at}/destination"),
            at,
        )
    if found.destination is not None:
        raise field_error(at, "destination", "none without the operation rename", "an object")
    if found.operation == "drop":
        return (Notification(table, sender, found.event_id, drop=True, purge=bool(found.purge), uuid=uuid, body=body),)
    origin = _ORIGINS.get(found.operation)
    return (Notification(table, sender, found.event_id, location, uuid=uuid, origin=origin, body=body),)


def _table(found: NativeIdentifier, catalog: str, at: str) -> TableIdentifier:
    levels = found.namespace
    return TableIdentifier(
        catalog, split_namespace(levels, ".", at, "namespace") if isinstance(levels, str) else levels, found.name
    )
