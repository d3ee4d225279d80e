"""One table of a real catalog with the real service that follows it, and what happens to the table, in this order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType

import sfn
from sfn.demo.environment import RunningService
from sfn.demo.lake import NAMESPACE, duckdb_for_iceberg
from sfn.errors import Unreadable
from sfn.sfnfile import document, version_hint
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import FileLayout, FileOwner
from tests.integration.readers.readers import Place, Rows
from tests.integration.scenarios.stage import set_location
from tests.support.processes import wait_for

PATIENCE = 20.0
"""Seconds that the service has for each thing to do."""
_LOOK_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Story:
    """What steps are taken with.

    Attributes:
        catalog: through it tables are changed.
        uri: where it answers.
        warehouse: the URL of its folder.
        service: follows it.
    """

    catalog: RestCatalog
    uri: str
    warehouse: str
    service: RunningService

    def table(self, name: str) -> Table:
        loaded: Table = self.catalog.load_table((NAMESPACE, name))
        return loaded

    def pointer(self, name: str) -> str:
        return str(self.table(name).metadata_location)

    def directory(self, name: str) -> Path:
        return Path(canonical(self.table(name).location()).removeprefix("file://"))

    def below_warehouse(self, *parts: str) -> Path:
        return Path(self.warehouse.removeprefix("file://"), *parts)

    def rows(self, name: str) -> Rows:
        """What whoever asks the catalog reads."""
        rows: Rows = self.table(name).scan().to_arrow().to_pylist()
        return rows

    def append(self, name: str, *rows: Mapping[str, object], branch: str = "main") -> None:
        """Commit rows through the catalog."""
        self.append_to(self.table(name), *rows, branch=branch)

    def append_to(self, table: Table, *rows: Mapping[str, object], branch: str = "main") -> None:
        """Commit rows to a table of whatever catalog."""
        table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()), branch=branch)

    def tell(self, name: str, operation: str, **more: object) -> None:
        """Post an event."""
        self.service.post_event({"namespace": [NAMESPACE], "name": name, "operation": operation, **more})

    def published(self, name: str, operation: str = "commit") -> Place:
        """Tell of a commit, and wait until SFN file and version hint say what the catalog says."""
        pointer, directory = self.pointer(name), self.directory(name)
        self.tell(name, operation, metadata_location=pointer)

        def said() -> bool:
            return _resolved(directory, name) == pointer and _hint(directory) == version_hint.text_for(pointer)

        wait_for(said, f"{directory} to say {pointer}", PATIENCE, _LOOK_EVERY)
        return self.place(directory, name)

    def until_retired(self, directory: Path, name: str) -> None:
        """Wait until a name's file in a directory says that the table is no more there, or not by this name."""
        file = self.place(directory, name).file

        def retired() -> bool:
            return document.parse(file.read_bytes()).state is not document.DocumentState.CURRENT

        wait_for(retired, f"{file} to say another state than current", PATIENCE, _LOOK_EVERY)

    def place(self, directory: Path, name: str) -> Place:
        return Place(name, directory, Path(FileLayout(str(directory)).keys(FileOwner((NAMESPACE,), name))[0]))


def _resolved(directory: Path, name: str) -> str | None:
    try:
        return sfn.resolve(directory, (NAMESPACE, name)).metadata_location
    except Unreadable:
        return None


def _hint(directory: Path) -> str | None:
    try:
        return Path(version_hint.key_of(str(directory))).read_text()
    except FileNotFoundError:
        return None


FIRST, SECOND = "orders", "sales"
BRANCH = "audit"
MAY, JUNE = dt.date(2026, 5, 31), dt.date(2026, 6, 1)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens.

    Attributes:
        name: of its row.
        take: do it; where readers look afterwards, once the service has published.
        ids: which rows the table then has; None where there is none any more.
        left: whether the table was at this place and is not now: a reader may as well refuse.
    """

    name: str
    take: Callable[[Story], Place]
    ids: tuple[int, ...] | None = ()
    left: bool = False


def create(story: Story) -> Place:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "item", StringType(), required=False),
        NestedField(3, "day", DateType(), required=False),
    )
    story.catalog.create_table((NAMESPACE, FIRST), schema)
    return story.published(FIRST, "create")


def append(story: Story) -> Place:
    story.append(
        FIRST,
        {"id": 1, "item": "apple", "day": MAY},
        {"id": 2, "item": "pear", "day": JUNE},
        {"id": 3, "item": None, "day": JUNE},
    )
    return story.published(FIRST)


def change_schema(story: Story) -> Place:
    with story.table(FIRST).update_schema() as update:
        update.add_column("price", DoubleType())
        update.rename_column("item", "fruit")
        update.move_first("day")
    return story.published(FIRST)


def append_in_the_new_schema(story: Story) -> Place:
    story.append(FIRST, {"id": 4, "fruit": "fig", "day": JUNE, "price": 1.5})
    return story.published(FIRST)


def evolve_partitions(story: Story) -> Place:
    with story.table(FIRST).update_spec() as update:
        update.add_field("day", IdentityTransform(), "by_day")
    return story.published(FIRST)


def append_to_partitions(story: Story) -> Place:
    story.append(
        FIRST,
        {"id": 5, "fruit": "plum", "day": JUNE, "price": 2.5},
        {"id": 6, "fruit": "lime", "day": JUNE, "price": 3.5},
        {"id": 7, "fruit": "date", "day": MAY, "price": None},
    )
    return story.published(FIRST)


def rename(story: Story) -> Place:
    directory = story.directory(FIRST)
    story.catalog.rename_table((NAMESPACE, FIRST), (NAMESPACE, SECOND))
    story.tell(FIRST, "rename", destination={"namespace": [NAMESPACE], "name": SECOND})
    story.until_retired(directory, FIRST)
    return story.published(SECOND)


def relocate(story: Story) -> Place:
    """Another location, and a commit there; what was written before stays where it was."""
    set_location(story.table(SECOND), f"{story.warehouse}/archive/{SECOND}")
    story.append(SECOND, {"id": 8, "fruit": "kiwi", "day": JUNE, "price": 4.5})
    return story.published(SECOND)


def look_at_the_old_place(story: Story) -> Place:
    directory = story.below_warehouse(NAMESPACE, FIRST)
    story.until_retired(directory, SECOND)
    return story.place(directory, SECOND)


def delete_by_position(story: Story) -> Place:
    """One of the two rows of a data file. DuckDB can write such deletes, PyIceberg can't."""
    with duckdb_for_iceberg("httpfs") as connection:
        connection.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{story.uri}', AUTHORIZATION_TYPE 'none')")
        connection.execute(f"DELETE FROM lake.{NAMESPACE}.{SECOND} WHERE id = 5")  # noqa: S608 - names of ours
    contents = story.table(SECOND).inspect.delete_files().column("content").to_pylist()
    if contents != [1]:
        raise AssertionError(f"one file of position deletes (1), not {contents}")
    return story.published(SECOND)


def commit_to_a_branch(story: Story) -> Place:
    table = story.table(SECOND)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_branch(snapshot.snapshot_id, BRANCH).commit()
    story.append(SECOND, {"id": 98, "fruit": "grape", "day": MAY, "price": 5.5}, branch=BRANCH)
    return story.published(SECOND)


def leave_a_failed_commit(story: Story) -> Place:
    """A newer metadata file that the catalog knows nothing of, as a commit leaves it that fails at its very end."""
    fork = SqlCatalog("fork", uri="sqlite:///:memory:")
    try:
        fork.create_namespace(NAMESPACE)
        table = fork.register_table((NAMESPACE, SECOND), story.pointer(SECOND))
        story.append_to(table, {"id": 99, "fruit": "melon", "day": MAY, "price": 6.5})
    finally:
        fork.close()
    return story.published(SECOND)


def drop(story: Story) -> Place:
    directory = story.directory(SECOND)
    story.catalog.drop_table((NAMESPACE, SECOND))
    story.tell(SECOND, "drop")
    story.until_retired(directory, SECOND)
    return story.place(directory, SECOND)


_BEFORE_THE_MOVE = (1, 2, 3, 4, 5, 6, 7)
_AFTER_THE_DELETE = (1, 2, 3, 4, 6, 7, 8)
STEPS = (
    Step("create", create),
    Step("append", append, (1, 2, 3)),
    Step("schema change", change_schema, (1, 2, 3)),
    Step("append in the new schema", append_in_the_new_schema, (1, 2, 3, 4)),
    Step("partition evolution", evolve_partitions, (1, 2, 3, 4)),
    Step("append to the partitions", append_to_partitions, _BEFORE_THE_MOVE),
    Step("rename", rename, _BEFORE_THE_MOVE),
    Step("relocation", relocate, (*_BEFORE_THE_MOVE, 8)),
    Step("… seen from the old place", look_at_the_old_place, (*_BEFORE_THE_MOVE, 8), left=True),
    Step("position delete", delete_by_position, _AFTER_THE_DELETE),
    Step("commit to a branch", commit_to_a_branch, _AFTER_THE_DELETE),
    Step("a failed commit", leave_a_failed_commit, _AFTER_THE_DELETE),
    Step("drop", drop, None, left=True),
)
