"""What was appended between two moments: Iceberg's incremental read, but that it tells of what it would pass over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.errors import CommitNotFound, NotSupported
from sfn.sfnfile.document import render_ordinal
from sfn.sfnfile.naming import ORDINAL
from sfn.spark.change_log import snapshots_between
from sfn.spark.request import make_read_request
from sfn.spark.time_travel import pin_table
from tests.spark.beside import beside

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(slots=True)
class Changing:
    """A table of Spark's, whose states have Ordinals."""

    spark: SparkSession
    client: Catalog
    name: str
    directory: str = ""
    ordinals: list[str] = field(default_factory=list)
    snapshots: list[int | None] = field(default_factory=list)

    def run(self, *statements: str) -> None:
        """Statements about the table `{}`, after each of which its SFN file is written."""
        for statement in statements:
            self.spark.sql(statement.format(f"lake.{self.name}"))
            table = self.client.load_table(self.name)
            self.directory = beside(table, self.name, ORDINAL)
            self.ordinals.append(render_ordinal(table.metadata.last_updated_ms))
            self.snapshots.append(table.metadata.current_snapshot_id)

    def ids(self, start: int, end: int | None = None, *, only_appends: bool = False) -> list[int]:
        """What was appended from one state to another, planned and read."""
        to_ordinal = None if end is None else self.ordinals[end]
        ordinal = self.ordinals[start]
        frame = sfn.spark.changes(self.spark, self.directory, ordinal, to_ordinal, only_appends=only_appends)
        return sorted(row.id for row in frame.collect())

    def between(self, start: int, *, only_appends: bool = False) -> list[int]:
        """The snapshots since then."""
        after = pin_table(make_read_request(self.directory))
        return [one.snapshot_id for one in snapshots_between(self.snapshots[start], after, only_appends=only_appends)]


@pytest.fixture(autouse=True, scope="module")
def fixture_namespace(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE lake.changes")


@pytest.fixture(name="changing", scope="module")
def fixture_changing(spark: SparkSession, catalog: RestCatalogServer) -> Changing:
    changing = Changing(spark, catalog.client(), "changes.t")
    changing.run(
        "CREATE TABLE {} (id BIGINT) USING iceberg",
        "INSERT INTO {} VALUES (1)",
        "INSERT INTO {} VALUES (2), (3)",
        "ALTER TABLE {} ADD COLUMN more STRING",
        "INSERT INTO {} VALUES (4, 'x')",
        "CALL lake.system.rewrite_data_files(table => 'changes.t', options => MAP('rewrite-all', 'true'))",
        "INSERT INTO {} VALUES (5, 'x')",
        "DELETE FROM {} WHERE id = 1",
        "INSERT INTO {} VALUES (6, 'x')",
    )
    return changing


def test_what_was_appended_is_what_iceberg_says(changing: Changing) -> None:
    assert changing.ids(2, 6) == [4, 5]
    jvm = changing.spark.read.format("iceberg").option("start-snapshot-id", str(changing.snapshots[2]))
    expected = jvm.option("end-snapshot-id", str(changing.snapshots[6])).load("lake.changes.t")
    found = sfn.spark.changes(changing.spark, changing.directory, changing.ordinals[2], changing.ordinals[6])
    assert found.columns == ["id", "more"]
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, expected.collect()))


def test_from_an_empty_table_it_is_all(changing: Changing) -> None:
    assert changing.ids(0, 2) == [1, 2, 3]


def test_between_a_moment_and_itself_is_nothing(changing: Changing) -> None:
    assert changing.ids(2, 3) == []


def test_what_deletes_is_refused_by_name(changing: Changing) -> None:
    with pytest.raises(NotSupported, match=f"snapshot {changing.snapshots[7]} has the operation"):
        changing.ids(5)
    assert changing.ids(5, only_appends=True) == [5, 6]


def test_moments_in_the_other_order_are_told(changing: Changing) -> None:
    with pytest.raises(ValueError, match="at or after from_ordinal"):
        changing.ids(2, 1)
    with pytest.raises(CommitNotFound):
        sfn.spark.changes(changing.spark, changing.directory, "20000101T000000000")


def test_a_snapshot_that_expired_is_named(spark: SparkSession, catalog: RestCatalogServer) -> None:
    with catalog.client() as client:
        changing = Changing(spark, client, "changes.expired")
        changing.run(
            "CREATE TABLE {} (id BIGINT) USING iceberg",
            *(f"INSERT INTO {{}} VALUES ({number})" for number in range(4)),
        )
        table = client.load_table(changing.name)
        table.maintenance.expire_snapshots().by_ids([int(one) for one in changing.snapshots[1:3] if one]).commit()
        beside(client.load_table(changing.name), changing.name, ORDINAL)
    # The first that is left came right after the one that it begins at.
    assert changing.between(2) == list(reversed(changing.snapshots[3:]))
    with pytest.raises(CommitNotFound, match=f"snapshot {changing.snapshots[2]}, before .* found that it has expired"):
        changing.between(1)


def test_a_table_that_was_rolled_back_is_refused(spark: SparkSession, catalog: RestCatalogServer) -> None:
    with catalog.client() as client:
        changing = Changing(spark, client, "changes.rolled")
        changing.run(
            "CREATE TABLE {} (id BIGINT) USING iceberg",
            "INSERT INTO {} VALUES (1)",
            "INSERT OVERWRITE {} VALUES (2)",
            "INSERT INTO {} VALUES (3)",
        )
        table = client.load_table(changing.name)
        table.manage_snapshots().rollback_to_snapshot(int(changing.snapshots[2] or 0)).commit()
        table.append(pa.table({"id": [4]}))
        beside(client.load_table(changing.name), changing.name, ORDINAL)
    # What was overwritten before that is not to blame.
    with pytest.raises(NotSupported, match="rolled back"):
        changing.between(3)
    assert len(changing.between(2)) == 1
    with pytest.raises(NotSupported, match=f"snapshot {changing.snapshots[2]} has the operation overwrite"):
        changing.between(1)
