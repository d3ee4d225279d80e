r"""Lakekeeper's CloudEvents, forwarded from NATS or Kafka by any bridge.

    {"specversion": "1.0", "id": …, "source": "uri:iceberg-catalog-service:…", "type": "updateTable",
     "tabular-type": "Table", "tabular-id": …, "warehouse-id": …, "namespace": "a\u001fb", "name": "t",
     "data": {"identifier": {"namespace": ["a", "b"], "name": "t"}, …}}

A transaction is one event for each of its tables. The levels of `namespace` are separated by a unit separator, for some
types by dots, so the arrays in `data` are preferred. The events do not say whether a drop deletes the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.formats.event import (
    DecodedEvent,
    Event,
    UnmappedCatalog,
    field_error,
    global_event_id,
    identifier_from_object,
    json_kind,
    optional_text,
    rename_notifications,
    require_text,
    split_namespace,
)

SOURCE: Final = "uri:iceberg-catalog-service:"
"""The beginning of `source`; the name of a host follows."""
TYPES: Final[Mapping[str, TableOrigin | None]] = {
    "createTable": TableOrigin.CREATE,
    "registerTable": TableOrigin.REGISTER,
    "updateTable": None,
    "renameTable": None,
    "dropTable": None,
    "undropTabulars": TableOrigin.REGISTER,
}
"""The events that change tables, and how a table gets its name by them."""

_SEPARATOR: Final = "\x1f"
_DOTTED: Final = frozenset({"createTable", "registerTable", "dropTable"})
_TABLE: Final = "table"


def is_lakekeeper_event(event: Event) -> bool:
    """Return whether the event is a CloudEvent of Lakekeeper."""
    return event.data_at is not None and str(event.content.get("source", "")).startswith(SOURCE)


def decode_lakekeeper_event(event: Event) -> DecodedEvent:
    """Return one notification, or two for a rename; a sweep of the catalog for a rename without the new name.

    Raises:
        Rejected: 422, an attribute or a field is wrong.
    """
    content, at = event.content, event.at
    event_type = require_text(content["type"], at, "type")
    is_of_table = require_text(content.get("tabular-type", _TABLE), at, "tabular-type").lower() == _TABLE
    if event_type not in TYPES or not is_of_table or _is_staged(event_type, event.data):
        return ()
    external_name = require_text(content.get("warehouse-id"), at, "warehouse-id")
    catalog = event.mapped_catalog(external_name)
    if catalog is None:
        return UnmappedCatalog(external_name)
    event_id = global_event_id(str(content["source"]), str(content["id"]))
    uuid = optional_text(content, "tabular-id", at)
    if event_type != "renameTable":
        table = _table(event, event_type, catalog)
        drop, origin = event_type == "dropTable", TYPES[event_type]
        return (Notification(table, event.sender, event_id, drop=drop, uuid=uuid, origin=origin, body=event.body),)
    data, inside = event.data, str(event.data_at)
    if data is None:
        return (Notification(CatalogName(catalog), event.sender, event_id, body=event.body),)
    source = TableIdentifier(catalog, *identifier_from_object(data.get("source"), inside, "source"))
    destination = TableIdentifier(catalog, *identifier_from_object(data.get("destination"), inside, "destination"))
    return rename_notifications(
        Notification(source, event.sender, event_id, uuid=uuid, body=event.body), source, destination, inside
    )


def _is_staged(event_type: str, data: Mapping[str, object] | None) -> bool:
    """Return whether the table has no metadata yet; its first commit has an event of its own."""
    return event_type == "createTable" and data is not None and data.get("stage-create") is True


def _table(event: Event, event_type: str, catalog: str) -> TableIdentifier:
    data = event.data or {}
    if data.get("identifier") is not None:
        return TableIdentifier(catalog, *identifier_from_object(data["identifier"], str(event.data_at), "identifier"))
    content, at = event.content, event.at
    namespace = content.get("namespace")
    if not isinstance(namespace, str):
        raise field_error(at, "namespace", "the levels in a string", json_kind(namespace))
    separator = "." if event_type in _DOTTED and _SEPARATOR not in namespace else _SEPARATOR
    return TableIdentifier(
        catalog, split_namespace(namespace, separator, at, "namespace"), require_text(content.get("name"), at, "name")
    )
