"""AWS Glue's events, as Amazon EventBridge's API destinations send them.

    {"source": "aws.glue", "account": "123456789012", "region": "eu-central-1", "id": …,
     "detail-type": "Glue Data Catalog Table State Change",
     "detail": {"databaseName": "db", "tableName": "t", "typeOfChange": "UpdateTable"}}

    … "detail-type": "Glue Data Catalog Database State Change",
     "detail": {"databaseName": "db", "changedTables": ["t"], "typeOfChange": "CreateTable"}}

What the sender maps is `account/region`. A commit is an update; a rename is a create and a delete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sfn.dialects.event import Event
from sfn.dialects.fields import checked, kind, mapping, text, wrong
from sfn.dialects.outcome import Said, Unmapped, part
from sfn.words import Birth, Hint, TableName

SOURCE: Final = "aws.glue"
OF_TABLE: Final = "Glue Data Catalog Table State Change"
OF_DATABASE: Final = "Glue Data Catalog Database State Change"
TYPES: Final[Mapping[tuple[str, str], Birth | None]] = {
    (OF_TABLE, "UpdateTable"): None,
    (OF_DATABASE, "CreateTable"): Birth.CREATE,
    (OF_DATABASE, "DeleteTable"): None,
    (OF_DATABASE, "BatchDeleteTable"): None,
}
"""What changes tables, and how one came to its name by it."""
MAX_TABLES: Final = 100
"""Most tables of one event: as many as Glue deletes at once."""


def recognises(event: Event) -> bool:
    """Whether it is an event of AWS Glue."""
    return event.data_at is None and "detail-type" in event.content and event.content.get("source") == SOURCE


def hints(event: Event) -> Said:
    """A hint for each table.

    Raises:
        Rejected: 422, a field is wrong.
    """
    content, at = event.content, event.at
    detail_type = checked(content["detail-type"], at, "detail-type")
    if detail_type not in {OF_TABLE, OF_DATABASE}:
        return ()
    detail, inside = mapping(content.get("detail"), at, "detail"), f"{at}/detail"
    change = checked(detail.get("typeOfChange"), inside, "typeOfChange")
    if (detail_type, change) not in TYPES:
        return ()
    theirs = f"{checked(content.get('account'), at, 'account')}/{checked(content.get('region'), at, 'region')}"
    ours = event.known(theirs)
    if ours is None:
        return Unmapped(theirs)
    event_id, database = text(content, "id", at), checked(detail.get("databaseName"), inside, "databaseName")
    birth, drop = TYPES[detail_type, change], change in {"DeleteTable", "BatchDeleteTable"}
    names = _names(detail, detail_type, inside)
    ids = (event_id, *(part(event_id, name) for name in names[1:]))
    return tuple(
        Hint(TableName(ours, (database,), name), event.sender, its_id, drop=drop, birth=birth, body=event.body)
        for name, its_id in zip(names, ids, strict=True)
    )


def _names(detail: Mapping[str, object], detail_type: str, at: str) -> tuple[str, ...]:
    if detail_type == OF_TABLE:
        return (checked(detail.get("tableName"), at, "tableName"),)
    tables = detail.get("changedTables")
    if not isinstance(tables, list) or not tables:
        raise wrong(at, "changedTables", "an array of names", kind(tables) if tables else "nothing")
    if len(tables) > MAX_TABLES:
        raise wrong(at, "changedTables", f"at most {MAX_TABLES} tables", str(len(tables)))
    names = (checked(name, f"{at}/changedTables", index) for index, name in enumerate(tables))
    return tuple(dict.fromkeys(names))
