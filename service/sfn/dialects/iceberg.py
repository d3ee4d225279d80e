"""Events of Iceberg's REST catalogs, as proposed for the specification (apache/iceberg, pull request 12584).

    {"event-id": …, "operation": {"operation-type": "update-table", "table-uuid": …,
                                  "identifier": {"namespace": ["a", "b"], "name": "t"}}}

They are asked for: something that does so sends us one, or an answer as it came, a page `{"continuation-token": …,
"events": […]}`. They do not name their catalog, which is the only one of the sender.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfn.dialects.event import Event
from sfn.dialects.fields import checked, kind, mapping, named, text, wrong
from sfn.dialects.outcome import Said, renamed
from sfn.words import Birth, Hint, TableName

TYPES: Final[Mapping[str, Birth | None]] = {
    "create-table": Birth.CREATE,
    "register-table": Birth.REGISTER,
    "update-table": None,
    "drop-table": None,
    "rename-table": None,
}
"""What changes tables, and how one came to its name by it."""


def recognises(event: Event) -> bool:
    """Whether it tells of an operation."""
    operation = event.content.get("operation")
    return (
        event.data_at is None
        and "event-id" in event.content
        and isinstance(operation, dict)
        and "operation-type" in operation
    )


def hints(event: Event) -> Said:
    """One hint, or for a rename two.

    Raises:
        Rejected: 422, a field is wrong, or the sender has several catalogs.
    """
    content = event.content
    operation, at = mapping(content["operation"], event.at, "operation"), f"{event.at}/operation"
    told = checked(operation["operation-type"], at, "operation-type")
    if told not in TYPES:
        return ()
    ours = event.catalog(None, event.at)
    event_id = checked(content["event-id"], event.at, "event-id")
    uuid = text(operation, "table-uuid", at)
    if told == "rename-table":
        source = TableName(ours, *named(operation.get("source"), at, "source"))
        destination = TableName(ours, *named(operation.get("destination"), at, "destination"))
        return renamed(Hint(source, event.sender, event_id, uuid=uuid, body=event.body), source, destination, at)
    table = TableName(ours, *named(operation.get("identifier"), at, "identifier"))
    drop, birth = told == "drop-table", TYPES[told]
    purge = drop and _purge(operation, at)
    return (Hint(table, event.sender, event_id, drop=drop, purge=purge, uuid=uuid, birth=birth, body=event.body),)


def _purge(operation: Mapping[str, object], at: str) -> bool:
    purge = operation.get("purge")
    if purge is None or isinstance(purge, bool):
        return purge is True
    raise wrong(at, "purge", "true or false", kind(purge))
