"""Scenarios of where tables and files lie and of their names: moves, placements, shared directories, hard names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, RemoveSnapshotRefUpdate, SetCurrentSchemaUpdate
from pyiceberg.types import LongType, NestedField

from sfn.sfnfile.naming import NAMINGS, Placement, folder_below_root
from tests.integration.scenarios.looks import (
    OUTAGE,
    Look,
    Scenario,
    by_letter,
    by_name,
    by_rivals_letter,
    everywhere,
    owner_of,
)
from tests.integration.scenarios.service import Followed
from tests.integration.scenarios.stage import SCHEMA, Known, Stage, folder, set_location

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
        set_location(stage.load("t"), f"file://{stage.place('t')}", *schema, no_rows)
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
    set_location(stage.load(name), f"file://{stage.place(name)}")
    stage.committed(name)
    return stage.append(name)


def occupied(stage: Stage) -> list[Look]:
    """Another environment has the table too, and has moved it there before."""
    old = stage.filled("t")
    with rival_of(stage) as rival:
        theirs = rival.register_table(old.identifier, old.pointer)
        set_location(theirs, f"file://{stage.place('t')}")
        stage.append_to(theirs)
        stage.tell_rival(theirs)
    new = moved(stage, "t")
    return [by_letter(new), owner_of(new), *everywhere(old, "old place")]


PLACES = (
    Scenario("registered", register, OUTAGE),
    Scenario("staged create, not yet committed", staged),
    Scenario("staged create, committed", unstaged),
    Scenario("relocation", relocate, OUTAGE),
    Scenario("create or replace, with another location", replace, OUTAGE),
    Scenario("relocation to a directory with a file of another environment", occupied),
    Scenario("another write.metadata.path", metadata_path, OUTAGE),
)


def alongside_rename(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    return [*everywhere(stage.rename("a", "b")), by_name(a, "old")]


def alongside_relocate(stage: Stage) -> list[Look]:
    old = stage.filled("t")
    return [*everywhere(moved(stage, "t")), *everywhere(old, "old place")]


def root_commit(stage: Stage) -> list[Look]:
    table = stage.filled("t")
    return [*everywhere(table), by_name(_at_root(stage, table), "root"), *everywhere(_below_root(stage, table), _BELOW)]


def root_rename(stage: Stage) -> list[Look]:
    a = _at_root(stage, stage.filled("a"))
    b = stage.rename("a", "b")
    return [by_name(_at_root(stage, b), "root"), by_name(a, "root, old"), *everywhere(_below_root(stage, b), _BELOW)]


def root_relocate(stage: Stage) -> list[Look]:
    stage.filled("t")
    table = moved(stage, "t")
    return [by_name(_at_root(stage, table), "root"), *everywhere(_below_root(stage, table), _BELOW)]


def root_drop(stage: Stage) -> list[Look]:
    stage.filled("t")
    table = stage.drop("t")
    return [by_name(_at_root(stage, table), "root"), *everywhere(_below_root(stage, table), _BELOW)]


_BELOW = "its folder below the root"


def _at_root(stage: Stage, table: Known) -> Known:
    return dataclasses.replace(table, directory=stage.section.root)


def _below_root(stage: Stage, table: Known) -> Known:
    folder = folder_below_root(str(stage.section.root), table.identifier[:-1], table.identifier[-1])
    return dataclasses.replace(table, directory=Path(folder))


PLACEMENTS = (
    Scenario("placement alongside: rename a → b", alongside_rename, placement=Placement.ALONGSIDE),
    Scenario("placement alongside: relocation", alongside_relocate, placement=Placement.ALONGSIDE),
    Scenario("placement root: commit", root_commit, placement=Placement.ROOT),
    Scenario("placement root: rename a → b", root_rename, placement=Placement.ROOT),
    Scenario("placement root: relocation", root_relocate, placement=Placement.ROOT),
    Scenario("placement root: drop", root_drop, placement=Placement.ROOT),
)


def shared(stage: Stage) -> list[Look]:
    a, b = stage.filled("a", at=stage.place("both")), stage.filled("b", at=stage.place("both"))
    return [*everywhere(a, "a"), *everywhere(b, "b")]


def unshared(stage: Stage) -> list[Look]:
    a = stage.filled("a", at=stage.place("both"))
    stage.filled("b", at=stage.place("both"))
    dropped = stage.drop("b")
    return [*everywhere(a, "a"), *everywhere(dropped, "b")]


def collision(stage: Stage) -> list[Look]:
    """`x_a`.`b` and `x`.`a_b`: the plain names of their files are the same."""
    place = stage.place("both")
    one = stage.filled((stage.beside("a"), "b"), at=place)
    other = stage.filled("a_b", at=place)
    return [*everywhere(one, "x_a.b"), *everywhere(other, "x.a_b")]


def registered_twice(stage: Stage) -> list[Look]:
    """In the catalog of another environment too, under the same name; both go on committing."""
    table = stage.filled("t")
    with rival_of(stage) as rival:
        theirs = rival.register_table(table.identifier, table.pointer)
        stage.append_to(theirs)
        stage.tell_rival(theirs)
    return [*everywhere(stage.append("t")), by_rivals_letter(table)]


def two_of_one_name(stage: Stage) -> list[Look]:
    """Another environment's own table of the same name in the same directory."""
    table = stage.filled("t")
    with rival_of(stage) as rival:
        theirs = rival.create_table(table.identifier, SCHEMA, f"file://{table.directory}")
        stage.append_to(theirs)
        stage.tell_rival(theirs)
    return [*everywhere(stage.append("t")), by_rivals_letter(table)]


SEVERAL = (
    Scenario("two tables in one directory", shared),
    Scenario("… and one is dropped", unshared),
    Scenario("two tables in one directory with the same plain file name", collision),
    Scenario("two environments: one table registered in both", registered_twice),
    Scenario("two environments: a table of one name and directory in each", two_of_one_name),
)


def _named(stage: Stage, name: str) -> list[Look]:
    return everywhere(stage.filled(name, at=stage.place("t")))


def letters(stage: Stage) -> list[Look]:
    return _named(stage, "Größe_表_кот")


def emoji(stage: Stage) -> list[Look]:
    return _named(stage, "🐻‍❄️")


def dots(stage: Stage) -> list[Look]:
    return _named(stage, "a.b..c")


def signs(stage: Stage) -> list[Look]:
    """All but those that a server of Java's refuses in a path, however they are encoded: slash, backslash, percent."""
    return _named(stage, "a b?c#d&e=f, [g] |h'")


def slash(stage: Stage) -> list[Look]:
    """Those others, in the other environment: its catalog is no server, and takes them."""
    name = (stage.namespace, "a/b\\c 50%2F")
    with rival_of(stage) as rival:
        table = rival.create_table(name, SCHEMA, f"file://{stage.place('t')}")
        stage.append_to(table)
        stage.tell_rival(table)
    return everywhere(Known(name, stage.place("t"), str(table.metadata.table_uuid), str(table.metadata_location)))


def long(stage: Stage) -> list[Look]:
    return _named(stage, "n" * 300)


NAMES = (
    Scenario("a name of letters of many scripts", letters),
    Scenario("a name of emoji", emoji),
    Scenario("a name with dots", dots),
    Scenario("a name with spaces and signs", signs),
    Scenario("a name with slash, backslash and percent sign, in the other environment", slash),
    Scenario("a name of 300 bytes", long),
)


@contextmanager
def rival_of(stage: Stage) -> Iterator[SqlCatalog]:
    """The other environment's catalog, with the scenario's namespace."""
    catalog = _opened(stage.world.folder, stage.section.name)
    try:
        catalog.create_namespace(stage.namespace)
        yield catalog
    finally:
        catalog.close()


def followed(folder: Path) -> list[Followed]:
    """Catalogs that are new, and how their service is told of them.

    Args:
        folder: where they keep their databases.
    """
    for naming in NAMINGS:
        _opened(folder, naming).close()
    return [
        Followed(
            naming,
            [
                'type = "pyiceberg"',
                f'properties = {{ type = "sql", uri = "{_uri(folder, naming)}", name = "rival" }}',
                f'catalog_id = "rival-of-{naming}"',
                f'naming = "{naming}"',
                'replica_lag = "0s"',
                'min_publish_interval = "0s"',
            ],
        )
        for naming in NAMINGS
    ]


def _opened(folder: Path, naming: str) -> SqlCatalog:
    """A catalog; whoever opens it first makes its database."""
    return SqlCatalog("rival", uri=_uri(folder, naming))


def _uri(folder: Path, naming: str) -> str:
    return f"sqlite:///{folder}/rival-{naming}.db"
