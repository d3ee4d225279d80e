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

from sfn.dialects.event import Event
from sfn.dialects.fields import checked, kind, named, split, text, wrong
from sfn.dialects.outcome import Said, Unmapped, identity, renamed
from sfn.words import Birth, CatalogName, Hint, TableName

SOURCE: Final = "uri:iceberg-catalog-service:"
"""Begins the source of each event; a host's name follows."""
TYPES: Final[Mapping[str, Birth | None]] = {
    "createTable": Birth.CREATE,
    "registerTable": Birth.REGISTER,
    "updateTable": None,
    "renameTable": None,
    "dropTable": None,
    "undropTabulars": Birth.REGISTER,
}
"""What changes tables, and how one came to its name by it."""

_SEPARATOR: Final = "\x1f"
_DOTTED: Final = frozenset({"createTable", "registerTable", "dropTable"})
_TABLE: Final = "table"


def recognises(event: Event) -> bool:
    """Whether it is a CloudEvent of Lakekeeper's."""
    return event.data_at is not None and str(event.content.get("source", "")).startswith(SOURCE)


def hints(event: Event) -> Said:
    """One hint, or for a rename two; of a rename that does not say where to, the whole catalog's.

    Raises:
        Rejected: 422, an attribute or a field is wrong.
    """
    content, at = event.content, event.at
    told = checked(content["type"], at, "type")
    is_of_table = checked(content.get("tabular-type", _TABLE), at, "tabular-type").lower() == _TABLE
    if told not in TYPES or not is_of_table or _is_staged(told, event.data):
        return ()
    theirs = checked(content.get("warehouse-id"), at, "warehouse-id")
    ours = event.known(theirs)
    if ours is None:
        return Unmapped(theirs)
    event_id = identity(str(content["source"]), str(content["id"]))
    uuid = text(content, "tabular-id", at)
    if told != "renameTable":
        table = _table(event, told, ours)
        drop, birth = told == "dropTable", TYPES[told]
        return (Hint(table, event.sender, event_id, drop=drop, uuid=uuid, birth=birth, body=event.body),)
    data, inside = event.data, str(event.data_at)
    if data is None:
        return (Hint(CatalogName(ours), event.sender, event_id, body=event.body),)
    source = TableName(ours, *named(data.get("source"), inside, "source"))
    destination = TableName(ours, *named(data.get("destination"), inside, "destination"))
    return renamed(Hint(source, event.sender, event_id, uuid=uuid, body=event.body), source, destination, inside)


def _is_staged(told: str, data: Mapping[str, object] | None) -> bool:
    """Whether the table has no metadata yet: its first commit tells of it."""
    return told == "createTable" and data is not None and data.get("stage-create") is True


def _table(event: Event, told: str, ours: str) -> TableName:
    data = event.data or {}
    if data.get("identifier") is not None:
        return TableName(ours, *named(data["identifier"], str(event.data_at), "identifier"))
    content, at = event.content, event.at
    namespace = content.get("namespace")
    if not isinstance(namespace, str):
        raise wrong(at, "namespace", "the levels in a string", kind(namespace))
    separator = "." if told in _DOTTED and _SEPARATOR not in namespace else _SEPARATOR
    return TableName(ours, split(namespace, separator, at, "namespace"), checked(content.get("name"), at, "name"))
