"""Events and metrics reports of Iceberg's REST catalogs.

The events are those proposed for the specification (apache/iceberg, pull request 12584).

    {"event-id": …, "operation": {"operation-type": "update-table", "table-uuid": …,
                                  "identifier": {"namespace": ["a", "b"], "name": "t"}}}

Catalogs do not send these events; a client requests them and forwards one event, or an answer unchanged, a page
`{"continuation-token": …, "events": […]}`. The events do not name their catalog, so the sender must have exactly one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.formats.event import (
    DecodedEvent,
    Event,
    field_error,
    identifier_from_object,
    json_kind,
    optional_text,
    rename_notifications,
    require_object,
    require_text,
)

OPERATION_TYPES: Final[Mapping[str, TableOrigin | None]] = {
    "create-table": TableOrigin.CREATE,
    "register-table": TableOrigin.REGISTER,
    "update-table": None,
    "drop-table": None,
    "rename-table": None,
}
"""The operations that change tables, and how a table gets its name by them."""


def is_iceberg_event(event: Event) -> bool:
    """Return whether the event reports an operation."""
    operation = event.content.get("operation")
    return (
        event.data_at is None
        and "event-id" in event.content
        and isinstance(operation, dict)
        and "operation-type" in operation
    )


def decode_iceberg_event(event: Event) -> DecodedEvent:
    """Return one notification, or two for a rename.

    Raises:
        Rejected: 422, a field is wrong, or the sender has several catalogs.
    """
    content = event.content
    operation, at = require_object(content["operation"], event.at, "operation"), f"{event.at}/operation"
    operation_type = require_text(operation["operation-type"], at, "operation-type")
    if operation_type not in OPERATION_TYPES:
        return ()
    catalog = event.require_catalog(None, event.at)
    event_id = require_text(content["event-id"], event.at, "event-id")
    uuid = optional_text(operation, "table-uuid", at)
    if operation_type == "rename-table":
        source = TableIdentifier(catalog, *identifier_from_object(operation.get("source"), at, "source"))
        destination = TableIdentifier(catalog, *identifier_from_object(operation.get("destination"), at, "destination"))
        return rename_notifications(
            Notification(source, event.sender, event_id, uuid=uuid, body=event.body), source, destination, at
        )
    table = TableIdentifier(catalog, *identifier_from_object(operation.get("identifier"), at, "identifier"))
    drop, origin = operation_type == "drop-table", OPERATION_TYPES[operation_type]
    purge = drop and _purge(operation, at)
    return (
        Notification(table, event.sender, event_id, drop=drop, purge=purge, uuid=uuid, origin=origin, body=event.body),
    )


def _purge(operation: Mapping[str, object], at: str) -> bool:
    purge = operation.get("purge")
    if purge is None or isinstance(purge, bool):
        return purge is True
    raise field_error(at, "purge", "true or false", json_kind(purge))


REPORT_TYPES: Final = frozenset({"commit-report", "scan-report"})


def is_metrics_report(event: Event) -> bool:
    report_type = event.content.get("report-type")
    return event.data_at is None and isinstance(report_type, str) and report_type in REPORT_TYPES


def decode_metrics_report(_event: Event) -> tuple[Notification, ...]:
    """Return no notification: metrics reports are ignored."""
    return ()
