"""Apache Polaris' notifications: how a catalog tells of the tables that another one shows too.

    POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/notifications
    {"notification-type": "CREATE" | "UPDATE" | "DROP" | "VALIDATE" | "UNKNOWN",
     "payload": {"table-name": "t", "timestamp": 1788000000123, "table-uuid": …, "metadata-location": …}}

As in Polaris (its `spec/polaris-catalog-apis/notifications-api.yaml`) the path alone says which table is meant,
VALIDATE is a dry run and UNKNOWN is of no concern. Unlike there no notification comes too late: the catalog is asked,
so no clock of the sender's is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NoReturn
from urllib.parse import unquote_to_bytes

import msgspec

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.errors import Rejected
from sfn.formats.cloudevents import POLARIS_EVENT_HEADER
from sfn.formats.event import (
    MAX_LEVELS,
    MAX_LOCATION,
    DecodedEvent,
    Event,
    UnmappedCatalog,
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

# ── polaris: Apache Polaris' notifications

NOTIFICATION_TYPES: Final = ("CREATE", "UPDATE", "DROP", "VALIDATE", "UNKNOWN")
SEPARATOR: Final = "\x1f"
"""Between the levels of a namespace (Iceberg's REST specification, `namespace` parameter)."""

_MALFORMED: Final = 400
"""What Polaris answers: its notifications know no 422."""
_NO_CATALOG: Final = 404
"""What Polaris answers to a warehouse that it can't find. A 403 for one that others have would tell of it."""

_PATH: Final = re.compile(r"/v1/([^/]*)/namespaces/([^/]*)/tables/([^/]*)/notifications")
_NO_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class PolarisNotificationPath:
    """Where a notification was sent to: segments of the path, percent-encoded as they were.

    Attributes:
        prefix: the sender's name of its catalog.
        namespace: its levels, `%1F` between them.
        table: the table's own name.
    """

    prefix: str
    namespace: str
    table: str


def parse_notification_path(path: str) -> PolarisNotificationPath | None:
    """The parts of a notification's path, None for any other path.

    Args:
        path: percent-encoded: what is encoded in it separates nothing.
    """
    found = _PATH.fullmatch(path)
    return None if found is None else PolarisNotificationPath(*found.groups())


def table_of_path(address: PolarisNotificationPath, catalogs: Mapping[str, str]) -> TableIdentifier:
    """The table that a path means.

    Args:
        address: parts of the path.
        catalogs: the sender's own name of each of its catalogs, and ours.

    Raises:
        Rejected: 404 the sender has no such catalog, whoever else may have it; 400 no name of a table.
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
    """Whether it is a notification that was sent to another path than one's own."""
    return event.data_at is None and "notification-type" in event.content and "payload" in event.content


def reject_misdirected(_event: Event) -> NoReturn:
    """No hint: its body does not say which table is meant. Raises `Rejected` with 422."""
    expected = "/v1/{prefix}/namespaces/{namespace}/tables/{table}/notifications, as its body does not name the table"
    raise Rejected("path", status=422, expected=expected, found="a notification sent elsewhere")


def decode_polaris_notification(
    table: TableIdentifier, sender: str, content: object, body: bytes
) -> tuple[Notification, ...]:
    """One hint, or none for a type that changes nothing: such a notification is checked all the same.

    Args:
        table: whom the path named.
        sender: who told.
        content: the request's body.
        body: its bytes, as many as are kept.

    Raises:
        Rejected: 400, with the JSON pointer of the wrong field.
    """
    if not isinstance(content, dict):
        raise Rejected("#", status=_MALFORMED, expected="an object", found=json_kind(content))
    notification_type = require_text(content.get("notification-type"), "#", "notification-type", status=_MALFORMED)
    if notification_type not in NOTIFICATION_TYPES:
        raise _wrong("#", "notification-type", f"one of {', '.join(NOTIFICATION_TYPES)}", ascii(notification_type[:40]))
    payload = content.get("payload")
    if not isinstance(payload, dict):
        raise _wrong("#", "payload", "an object", json_kind(payload))
    at = "#/payload"
    require_text(payload.get("table-name"), at, "table-name", status=_MALFORMED)
    timestamp = _timestamp(payload.get("timestamp"), at)
    uuid = require_text(payload.get("table-uuid"), at, "table-uuid", status=_MALFORMED)
    location = require_text(payload.get("metadata-location"), at, "metadata-location", MAX_LOCATION, status=_MALFORMED)
    event_id = _digest(table, notification_type, timestamp, uuid, location)
    match notification_type:
        case "CREATE" | "UPDATE":
            origin = TableOrigin.CREATE if notification_type == "CREATE" else None
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


def _timestamp(value: object, at: str) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(at, "timestamp", "a whole number", json_kind(value))
    # 1.0 is the same JSON number as 1.
    if not -(2**63) <= value < 2**63 or value != int(value):
        raise _wrong(at, "timestamp", "a whole number of 64 bits", "another number")
    return int(value)


def _digest(table: TableIdentifier, notification_type: str, timestamp: int, uuid: str, location: str) -> str:
    """The notification's id: Polaris gives it none, and a repeat has the same of all these.

    In JSON no two of them run into one another.
    """
    parts = (table.catalog, table.namespace, table.name, notification_type, timestamp, uuid, location)
    return sha256(msgspec.json.encode(parts)).hexdigest()


def _wrong(at: str, key: str, expected: str, found: str) -> Rejected:
    return field_error(at, key, expected, found, status=_MALFORMED)


# ── polaris_events: Apache Polaris' events

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


# ── polaris_webhook: Apache Polaris' webhook

WEBHOOK_TYPES: Final = frozenset(
    {
        "AFTER_CREATE_TABLE",
        "AFTER_REGISTER_TABLE",
        "AFTER_UPDATE_TABLE",
        "AFTER_COMMIT_TABLE",
        "AFTER_DROP_TABLE",
        "AFTER_RENAME_TABLE",
        "AFTER_SEND_NOTIFICATION",
    }
)
"""What changes tables."""


def is_polaris_webhook(event: Event) -> bool:
    """Whether it is a CloudEvent of Polaris' that carries nothing."""
    is_one = event.data_at is not None and event.data is None
    return is_one and (event.content.get("source") == SOURCE or event.has_header(POLARIS_EVENT_HEADER))


def decode_polaris_webhook(event: Event) -> tuple[Notification, ...]:
    """A sweep of each of the sender's catalogs."""
    content = event.content
    # Of late such a type is said in lower case, after a prefix.
    if str(content["type"]).rpartition(".")[2].upper() not in WEBHOOK_TYPES:
        return ()
    event_id = global_event_id(str(content["source"]), str(content["id"]))
    catalogs = dict.fromkeys(event.catalogs.values())
    return tuple(
        Notification(CatalogName(one), event.sender, partial_event_id(event_id, one), body=event.body)
        for one in catalogs
    )
