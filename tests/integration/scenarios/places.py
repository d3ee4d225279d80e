"""Tables that come from elsewhere, or go elsewhere."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
)
from pyiceberg.types import LongType, NestedField

from tests.integration import relocation
from tests.integration.scenarios.looks import Look, by_letter, everywhere, owner_of
from tests.integration.scenarios.rivals import rival_of
from tests.integration.scenarios.scenario import OUTAGE, Scenario
from tests.integration.scenarios.stage import SCHEMA, Known, Stage, folder

_OTHER_SCHEMA = Schema(NestedField(3, "day", LongType(), required=False), schema_id=1)


def relocate(stage: Stage) -> list[Look]:
    """And a commit there; what was written before stays where it was."""
    old = stage.filled("t")
    with stage.changes():
        new = moved(stage, "t")
    return [*everywhere(new), *everywhere(old, "old place")]


def replace(stage: Stage) -> list[Look]:
    """As CREATE OR REPLACE does it: the uuid stays, schema and location are others, no row is left."""
    old = stage.filled("t")
    schema = AddSchemaUpdate(schema=_OTHER_SCHEMA), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})
    no_rows = RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"})
    with stage.changes():
        relocation.relocate(stage.load("t"), f"file://{stage.place('t')}", *schema, no_rows)
        stage.load("t").append(pa.table({"day": [1]}))
        new = stage.committed("t")
    return [*everywhere(new), *everywhere(old, "old place")]


def metadata_path(stage: Stage) -> list[Look]:
    stage.filled("t")
    with stage.changes():
        stage.set("t", {"write.metadata.path": f"file://{stage.place('metadata')}"})
        table = stage.append("t")
    return everywhere(table)


def register(stage: Stage) -> list[Look]:
    """What another catalog, of which the service knows nothing, has made."""
    other = SqlCatalog("other", uri="sqlite:///:memory:")
    try:
        other.create_namespace("theirs")
        table = other.create_table(("theirs", "t"), SCHEMA, f"file://{stage.place('t')}")
        stage.append_to(table)
    finally:
        other.close()
    with stage.changes():
        registered = stage.register("t", str(table.metadata_location))
    return everywhere(registered)


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
    relocation.relocate(stage.load(name), f"file://{stage.place(name)}")
    stage.committed(name)
    return stage.append(name)


def occupied(stage: Stage) -> list[Look]:
    """Another environment has the table too, and has moved it there before."""
    old = stage.filled("t")
    with rival_of(stage) as rival:
        theirs = rival.register_table(old.identifier, old.pointer)
        relocation.relocate(theirs, f"file://{stage.place('t')}")
        stage.append_to(theirs)
        stage.tell_rival(theirs)
    new = moved(stage, "t")
    return [by_letter(new), owner_of(new), *everywhere(old, "old place")]


SCENARIOS = (
    Scenario("registered", register, OUTAGE),
    Scenario("staged create, not yet committed", staged),
    Scenario("staged create, committed", unstaged),
    Scenario("relocation", relocate, OUTAGE),
    Scenario("create or replace, with another location", replace, OUTAGE),
    Scenario("relocation to a directory with a file of another environment", occupied),
    Scenario("another write.metadata.path", metadata_path, OUTAGE),
)
