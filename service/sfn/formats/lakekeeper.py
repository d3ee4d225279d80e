r"""Lakekeeper's CloudEvents, whatever carried them over from NATS or Kafka.

    {"specversion": "1.0", "id": …, "source": "uri:iceberg-catalog-service:…", "type": "updateTable",
     "tabular-type": "Table", "tabular-id": …, "warehouse-id": …, "namespace": "a\u001fb", "name": "t",
     "data": {"identifier": {"namespace": ["a", "b"], "name": "t"}, …}}

A transaction is an event for each of its tables. The levels of `namespace` are separated by a unit separator, for some
types by dots, so that the arrays in `data` are read where there are any. How files are to be dropped it does not say.
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
"""Begins the source of each event; a host's name follows."""
TYPES: Final[Mapping[str, TableOrigin | None]] = {
    "createTable": TableOrigin.CREATE,
    "registerTable": TableOrigin.REGISTER,
    "updateTable": None,
    "renameTable": None,
    "dropTable": None,
    "undropTabulars": TableOrigin.REGISTER,
}
"""What changes tables, and how one came to its name by it."""

_SEPARATOR: Final = "\x1f"
_DOTTED: Final = frozenset({"createTable", "registerTable", "dropTable"})
_TABLE: Final = "table"


def is_lakekeeper_event(event: Event) -> bool:
    """Whether it is a CloudEvent of Lakekeeper's."""
    return event.data_at is not None and str(event.content.get("source", "")).startswith(SOURCE)


def decode_lakekeeper_event(event: Event) -> DecodedEvent:
    """One hint, or for a rename two; of a rename that does not say where to, the whole catalog's.

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
    """Whether the table has no metadata yet: its first commit tells of it."""
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
