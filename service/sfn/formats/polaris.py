"""Apache Polaris: its notifications, its events, and its webhook.

A Polaris notification reports a change of a table that another catalog shows too:

    POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/notifications
    {"notification-type": "CREATE" | "UPDATE" | "DROP" | "VALIDATE" | "UNKNOWN",
     "payload": {"table-name": "t", "timestamp": 1788000000123, "table-uuid": …, "metadata-location": …}}

As in Polaris (`spec/polaris-catalog-apis/notifications-api.yaml`), the path alone identifies the table, VALIDATE is a
dry run and UNKNOWN is ignored. Unlike in Polaris, no notification is too late: the catalog is asked, so the sender's
timestamp does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Final, Literal, NoReturn, TypeAlias, get_args
from urllib.parse import unquote_to_bytes

import msgspec

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.errors import Rejected
from sfn.formats.cloudevents import POLARIS_EVENT_HEADER
from sfn.formats.event import (
    MAX_LEVELS,
    DecodedEvent,
    Event,
    Location,
    Text,
    UnmappedCatalog,
    convert_object,
    field_error,
    global_event_id,
    identifier_from_array,
    json_kind,
    namespace_levels,
    optional_text,
    partial_event_id,
    rename_notifications,
    require_text,
)

NotificationType: TypeAlias = Literal["CREATE", "UPDATE", "DROP", "VALIDATE", "UNKNOWN"]
NOTIFICATION_TYPES: Final[tuple[str, ...]] = get_args(NotificationType)
SEPARATOR: Final = "\x1f"
"""The separator of namespace levels (Iceberg's REST specification, parameter `namespace`)."""

_MALFORMED: Final = 400
"""The status in Polaris for a malformed notification; its API has no 422."""
_NO_CATALOG: Final = 404
"""The status in Polaris for an unknown warehouse. A 403 would reveal the warehouses of other senders."""

NOTIFICATION_SUFFIX: Final = "/notifications"
"""The end of a notification's path."""
_PATH: Final = re.compile(r"/v1/([^/]*)/namespaces/([^/]*)/tables/([^/]*)" + NOTIFICATION_SUFFIX)
_NO_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class PolarisNotificationPayload(msgspec.Struct, frozen=True, rename="kebab"):
    """The state of a table after a change."""

    table_name: Annotated[Text, msgspec.Meta(description="ignored: the path names the table")]
    timestamp: Annotated[
        int,
        msgspec.Meta(
            ge=-(2**63),
            le=2**63 - 1,
            description="late and out-of-order notifications are accepted",
            extra_json_schema={"format": "int64"},
        ),
    ]
    table_uuid: Text
    metadata_location: Location
    metadata: Annotated[object, msgspec.Meta(description="ignored")] = None


class PolarisNotification(msgspec.Struct, frozen=True, rename="kebab"):
    """A notification of Apache Polaris about one table."""

    notification_type: Annotated[
        NotificationType,
        msgspec.Meta(
            description="CREATE and UPDATE have the same effect. VALIDATE and UNKNOWN are checked and change nothing."
        ),
    ]
    payload: PolarisNotificationPayload


class PolarisNotificationPath(msgspec.Struct, frozen=True):
    """The path of a notification: its segments, percent-encoded as received.

    Attributes:
        prefix: the sender's name of its catalog.
        namespace: the levels, with `%1F` between them.
        table: the table's own name.
    """

    prefix: str
    namespace: str
    table: str


def parse_notification_path(path: str) -> PolarisNotificationPath | None:
    """Return the parts of a notification's path; None for any other path.

    Args:
        path: a percent-encoded path; encoded characters separate nothing.
    """
    found = _PATH.fullmatch(path)
    return None if found is None else PolarisNotificationPath(*found.groups())


def table_of_path(address: PolarisNotificationPath, catalogs: Mapping[str, str]) -> TableIdentifier:
    """Return the table that a path names.

    Args:
        address: the parts of the path.
        catalogs: the sender's name of each of its catalogs, and ours.

    Raises:
        Rejected: 404, the sender has no such catalog, even if another sender has; 400, no valid table name.
    """
    prefix = _decoded(address.prefix, "prefix")
    if prefix not in catalogs:
        raise Rejected(
            "path/prefix",
            status=_NO_CATALOG,
            expected=f"one of {', '.join(catalogs)}" if catalogs else "a sender with a catalog",
            found=ascii(prefix[:40]),
        )
    levels = _decoded(address.namespace, "namespace").split(SEPARATOR)
    if len(levels) > MAX_LEVELS:
        raise _wrong("path", "namespace", f"at most {MAX_LEVELS} levels", "more")
    namespace = tuple(require_text(level, "path", "namespace", status=_MALFORMED) for level in levels)
    name = require_text(_decoded(address.table, "table"), "path", "table", status=_MALFORMED)
    return TableIdentifier(catalogs[prefix], namespace, name)


def is_polaris_notification(event: Event) -> bool:
    """Return whether the event is a Polaris notification that was sent to another path."""
    return event.data_at is None and "notification-type" in event.content and "payload" in event.content


def reject_misdirected(_event: Event) -> NoReturn:
    """Raise `Rejected` with 422, because the body of a notification does not identify the table."""
    expected = "/v1/{prefix}/namespaces/{namespace}/tables/{table}/notifications, as its body does not name the table"
    raise Rejected("path", status=422, expected=expected, found="a notification sent elsewhere")


def decode_polaris_notification(
    table: TableIdentifier, sender: str, content: object, body: bytes
) -> tuple[Notification, ...]:
    """Return one notification, or none for a type that changes nothing; its fields are checked anyway.

    Args:
        table: the table in the path.
        sender: the name of the sender.
        content: the body as JSON.
        body: the beginning of the body to store.

    Raises:
        Rejected: 400, with the JSON pointer of the wrong field.
    """
    if not isinstance(content, dict):
        raise Rejected("#", status=_MALFORMED, expected="an object", found=json_kind(content))
    notification = convert_object(
        _with_whole_timestamp(content), PolarisNotification, "#", NOTIFICATION_TYPES, status=_MALFORMED
    )
    kind, payload = notification.notification_type, notification.payload
    location, uuid = payload.metadata_location, payload.table_uuid
    event_id = _digest(table, kind, payload.timestamp, uuid, location)
    match kind:
        case "CREATE" | "UPDATE":
            origin = TableOrigin.CREATE if kind == "CREATE" else None
            return (Notification(table, sender, event_id, location, uuid=uuid, origin=origin, body=body),)
        case "DROP":
            return (Notification(table, sender, event_id, drop=True, uuid=uuid, body=body),)
        case _:
            return ()


def _decoded(segment: str, key: str) -> str:
    if _NO_ESCAPE.search(segment) is not None:
        raise _wrong("path", key, "two hexadecimal digits after each %", "something else")
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise _wrong("path", key, "percent-encoded UTF-8", "other bytes") from None


def _with_whole_timestamp(content: dict[str, object]) -> dict[str, object]:
    """Return the content with its timestamp as `int`: 1.0 is the same JSON number as 1, and valid as an integer."""
    match content.get("payload"):
        case {"timestamp": float(timestamp), **rest} if timestamp.is_integer():
            return {**content, "payload": {**rest, "timestamp": int(timestamp)}}
        case _:
            return content


def _digest(table: TableIdentifier, notification_type: str, timestamp: int, uuid: str, location: str) -> str:
    """Return the notification's id. Polaris gives none, and a repeated notification has the same fields.

    JSON keeps the fields apart from each other.
    """
    parts = (table.catalog, table.namespace, table.name, notification_type, timestamp, uuid, location)
    return sha256(msgspec.json.encode(parts)).hexdigest()


def _wrong(at: str, key: str, expected: str, found: str) -> Rejected:
    return field_error(at, key, expected, found, status=_MALFORMED)


SOURCE: Final = "org.apache.polaris"
"""The `source` of a CloudEvent with a Polaris event."""
EVENT_TYPES: Final[Mapping[str, TableOrigin | None]] = {
    "AFTER_CREATE_TABLE": TableOrigin.CREATE,
    "AFTER_REGISTER_TABLE": TableOrigin.REGISTER,
    "AFTER_UPDATE_TABLE": None,
    "AFTER_COMMIT_TABLE": None,
    "AFTER_DROP_TABLE": None,
    "AFTER_RENAME_TABLE": None,
    "AFTER_SEND_NOTIFICATION": None,
}
"""The events that change tables, and how a table gets its name by them."""

_TYPE: Final = re.compile(r"(BEFORE|AFTER)_[A-Z_]+")


def is_polaris_event(event: Event) -> bool:
    """Return whether the event reports something in a realm, before or after it happened."""
    if event.data_at is not None:
        return event.content.get("source") == SOURCE and event.data is not None
    event_type = event.content.get("event_type")
    return isinstance(event_type, str) and _TYPE.fullmatch(event_type) is not None and "realm_id" in event.content


def decode_polaris_event(event: Event) -> DecodedEvent:
    """Return one notification, or two for a rename.

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


def is_polaris_webhook(event: Event) -> bool:
    """Return whether the event is a CloudEvent of Polaris without `data`."""
    is_empty = event.data_at is not None and event.data is None
    return is_empty and (event.content.get("source") == SOURCE or event.has_header(POLARIS_EVENT_HEADER))


def decode_polaris_webhook(event: Event) -> tuple[Notification, ...]:
    """Return a sweep of each of the sender's catalogs."""
    content = event.content
    # Newer versions send the type in lower case and with a prefix.
    if str(content["type"]).rpartition(".")[2].upper() not in EVENT_TYPES:
        return ()
    event_id = global_event_id(str(content["source"]), str(content["id"]))
    catalogs = dict.fromkeys(event.catalogs.values())
    return tuple(
        Notification(CatalogName(one), event.sender, partial_event_id(event_id, one), body=event.body)
        for one in catalogs
    )
