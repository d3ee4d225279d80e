"""AWS Glue's events, as Amazon EventBridge's API destinations send them.

    {"source": "aws.glue", "account": "123456789012", "region": "eu-central-1", "id": …,
     "detail-type": "Glue Data Catalog Table State Change",
     "detail": {"databaseName": "db", "tableName": "t", "typeOfChange": "UpdateTable"}}

    … "detail-type": "Glue Data Catalog Database State Change",
     "detail": {"databaseName": "db", "changedTables": ["t"], "typeOfChange": "CreateTable"}}

The sender maps catalogs by `account/region`. A commit is an update; a rename is a create and a delete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.formats.event import (
    DecodedEvent,
    Event,
    UnmappedCatalog,
    field_error,
    json_kind,
    optional_text,
    partial_event_id,
    require_object,
    require_text,
)

SOURCE: Final = "aws.glue"
TABLE_STATE_CHANGE: Final = "Glue Data Catalog Table State Change"
DATABASE_STATE_CHANGE: Final = "Glue Data Catalog Database State Change"
TYPES: Final[Mapping[tuple[str, str], TableOrigin | None]] = {
    (TABLE_STATE_CHANGE, "UpdateTable"): None,
    (DATABASE_STATE_CHANGE, "CreateTable"): TableOrigin.CREATE,
    (DATABASE_STATE_CHANGE, "DeleteTable"): None,
    (DATABASE_STATE_CHANGE, "BatchDeleteTable"): None,
}
"""The events that change tables, and how a table gets its name by them."""
MAX_TABLES: Final = 100
"""Most tables of one event, as many as Glue deletes at once."""


def is_glue_event(event: Event) -> bool:
    """Return whether the event is one of AWS Glue."""
    return event.data_at is None and "detail-type" in event.content and event.content.get("source") == SOURCE


def decode_glue_event(event: Event) -> DecodedEvent:
    """Return a notification for each table.

    Raises:
        Rejected: 422, a field is wrong.
    """
    content, at = event.content, event.at
    detail_type = require_text(content["detail-type"], at, "detail-type")
    if detail_type not in {TABLE_STATE_CHANGE, DATABASE_STATE_CHANGE}:
        return ()
    detail, inside = require_object(content.get("detail"), at, "detail"), f"{at}/detail"
    change = require_text(detail.get("typeOfChange"), inside, "typeOfChange")
    if (detail_type, change) not in TYPES:
        return ()
    external_name = (
        f"{require_text(content.get('account'), at, 'account')}/{require_text(content.get('region'), at, 'region')}"
    )
    catalog = event.mapped_catalog(external_name)
    if catalog is None:
        return UnmappedCatalog(external_name)
    event_id, database = (
        optional_text(content, "id", at),
        require_text(detail.get("databaseName"), inside, "databaseName"),
    )
    origin, drop = TYPES[detail_type, change], change in {"DeleteTable", "BatchDeleteTable"}
    names = _names(detail, detail_type, inside)
    ids = (event_id, *(partial_event_id(event_id, name) for name in names[1:]))
    return tuple(
        Notification(
            TableIdentifier(catalog, (database,), name), event.sender, its_id, drop=drop, origin=origin, body=event.body
        )
        for name, its_id in zip(names, ids, strict=True)
    )


def _names(detail: Mapping[str, object], detail_type: str, at: str) -> tuple[str, ...]:
    if detail_type == TABLE_STATE_CHANGE:
        return (require_text(detail.get("tableName"), at, "tableName"),)
    tables = detail.get("changedTables")
    if not isinstance(tables, list) or not tables:
        raise field_error(at, "changedTables", "an array of names", json_kind(tables) if tables else "nothing")
    if len(tables) > MAX_TABLES:
        raise field_error(at, "changedTables", f"at most {MAX_TABLES} tables", str(len(tables)))
    names = (require_text(name, f"{at}/changedTables", index) for index, name in enumerate(tables))
    return tuple(dict.fromkeys(names))
