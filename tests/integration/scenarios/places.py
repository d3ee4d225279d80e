"""Tables that come from elsewhere, or go elsewhere."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetLocationUpdate,
    TableUpdate,
)
from pyiceberg.types import LongType, NestedField

from tests.integration.scenarios.looks import Look, everywhere
from tests.integration.scenarios.scenario import Scenario
from tests.integration.scenarios.stage import SCHEMA, Known, Stage, folder

_OTHER_SCHEMA = Schema(NestedField(3, "day", LongType(), required=False), schema_id=1)


def relocate(stage: Stage) -> list[Look]:
    """And a commit there; what was written before stays where it was."""
    old = stage.filled("t")
    new = moved(stage, "t")
    return [*everywhere(new), *everywhere(old, "old place")]


def replace(stage: Stage) -> list[Look]:
    """As CREATE OR REPLACE does it: the uuid stays, schema and location are others, no row is left."""
    old = stage.filled("t")
    location = SetLocationUpdate(location=f"file://{stage.place('t')}")
    schema = AddSchemaUpdate(schema=_OTHER_SCHEMA), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})
    with stage.load("t").transaction() as change:
        _apply(change, location, *schema, RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"}))
    table = stage.load("t")
    table.append(pa.table({"day": [1]}))
    return [*everywhere(stage.committed("t")), *everywhere(old, "old place")]


def metadata_path(stage: Stage) -> list[Look]:
    stage.filled("t")
    stage.set("t", {"write.metadata.path": f"file://{stage.place('metadata')}"})
    return everywhere(stage.append("t"))


def register(stage: Stage) -> list[Look]:
    """What another catalog, of which the service knows nothing, has made."""
    other = SqlCatalog("other", uri="sqlite:///:memory:")
    try:
        other.create_namespace("theirs")
        table = other.create_table(("theirs", "t"), SCHEMA, f"file://{stage.place('t')}")
        stage.append_to(table)
    finally:
        other.close()
    return everywhere(stage.register("t", str(table.metadata_location)))


def staged(stage: Stage) -> list[Look]:
    """Looked for at the place that it is to have."""
    planned = stage.staged("t").table_metadata
    stage.tell_of("t")
    return everywhere(Known(stage.identifier("t"), folder(planned.location), str(planned.table_uuid), ""))


def unstaged(stage: Stage) -> list[Look]:
    stage.staged("t").commit_transaction()
    return everywhere(stage.committed("t"))


def moved(stage: Stage, name: str) -> Known:
    """A table at another location, with a commit there."""
    with stage.load(name).transaction() as change:
        _apply(change, SetLocationUpdate(location=f"file://{stage.place(name)}"))
    stage.committed(name)
    return stage.append(name)


def _apply(change: Transaction, *updates: TableUpdate) -> None:
    change._apply(updates)  # noqa: SLF001 - PyIceberg has no verb for it


SCENARIOS = (
    Scenario("registered", register),
    Scenario("staged create, not yet committed", staged),
    Scenario("staged create, committed", unstaged),
    Scenario("relocation", relocate),
    Scenario("create or replace, with another location", replace),
    Scenario("another write.metadata.path", metadata_path),
)
