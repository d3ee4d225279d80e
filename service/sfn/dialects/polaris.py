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

from sfn.dialects.event import Event
from sfn.dialects.fields import MAX_LEVELS, MAX_LOCATION, field_error, json_kind, require_text
from sfn.errors import Rejected
from sfn.words import Notification, TableIdentifier, TableOrigin

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
