"""What happens to the table, in this order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType

from sfn.demo.environment import NAMESPACE, duckdb_for_iceberg
from tests.integration import relocation
from tests.integration.readers.readers import Place
from tests.integration.readers.story import Story

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
    relocation.relocate(story.table(SECOND), f"{story.warehouse}/archive/{SECOND}")
    story.append(SECOND, {"id": 8, "fruit": "kiwi", "day": JUNE, "price": 4.5})
    return story.published(SECOND)


def look_at_the_old_place(story: Story) -> Place:
    directory = story.below_warehouse(NAMESPACE, FIRST)
    story.until_retired(directory, SECOND)
    return story.place(directory, SECOND)


def delete_by_position(story: Story) -> Place:
    """One of the two rows of a data file. DuckDB can write such deletes, PyIceberg can't."""
    with duckdb_for_iceberg() as connection:
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


def leave_a_commit_that_never_was(story: Story) -> Place:
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
    Step("a commit that never was", leave_a_commit_that_never_was, _AFTER_THE_DELETE),
    Step("drop", drop, None, left=True),
)
