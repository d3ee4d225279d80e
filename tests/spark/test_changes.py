"""The commits of a table by the source `sfn-log`, and the rows that were appended between two of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

import sfn.spark
from pyspark_sfn_log import DefaultSource
from sfn.demo.environment import RestCatalogServer
from sfn.errors import CommitNotFound, NotSupported
from sfn.sfnfile.document import render_ordinal
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, Naming
from sfn.spark.change_log import snapshots_between
from sfn.spark.request import make_read_request
from sfn.spark.source_options import STORAGE
from sfn.spark.source_timeline import TIMELINE_SCHEMA, Offset, TimelineLoad, TimelineRow, TimelineStream
from sfn.spark.time_travel import pin_table
from tests.spark.tables import own_catalog, write_sfn_file, write_tombstone

NAMINGS = pytest.mark.parametrize("naming", [ORDINAL, IDENTIFIER], ids=["ordinal", "identifier"])
NAMES = tuple(TIMELINE_SCHEMA.names)


class Committed:
    """A table that gets commits."""

    def __init__(self, table: Table, naming: Naming = ORDINAL) -> None:
        self.table, self.naming = table, naming
        self.locations: list[str] = []
        self.directory = self.publish()

    def publish(self) -> str:
        self.locations.append(self.table.metadata_location)
        # Where a log has the commits, Ordinals are those of documents only as long as these lead.
        return write_sfn_file(self.table, "n.t", self.naming, late=0 if self.naming is ORDINAL else 1)

    def commit(self, times: int = 1) -> None:
        for _ in range(times):
            self.table.append(pa.table({"id": [1]}))
            self.publish()

    @property
    def commits(self) -> list[Path]:
        """The files of single commits, the oldest first."""
        return sorted(Path(self.directory).glob("metadata/_sfn/n_t_2*.ver"))


@pytest.fixture(name="own")
def fixture_own(tmp_path: Path) -> Iterator[SqlCatalog]:
    with own_catalog(tmp_path) as catalog:
        yield catalog


@pytest.fixture(name="committed")
def fixture_committed(own: SqlCatalog) -> Committed:
    return Committed(made(own))


def made(own: SqlCatalog, keep: int = 100) -> Table:
    properties = {"write.metadata.previous-versions-max": str(keep), "commit.retry.num-retries": "0"}
    return own.create_table("n.t", pa.schema([("id", pa.int64())]), properties=properties)


def stream(committed: Committed, **options: str) -> TimelineStream:
    return TimelineStream(TimelineLoad({"path": committed.directory, **options}), NAMES)


def batch(reader: TimelineStream, start: Offset, end: Offset) -> list[str]:
    """The metadata files of a batch."""
    rows: list[TimelineRow] = [row for partition in reader.partitions(start, end) for row in reader.read(partition)]
    return [str(row[NAMES.index("metadata_location")]) for row in rows]


@NAMINGS
def test_each_commit_is_in_one_batch(naming: Naming, own: SqlCatalog) -> None:
    committed = Committed(made(own), naming)
    committed.commit(2)
    first = stream(committed)
    offsets = [first.initialOffset(), first.latestOffset()]
    for times in (1, 0, 3):
        committed.commit(times)
        # As after a restart: nothing is known but the offsets.
        offsets.append(stream(committed).latestOffset())
    assert offsets[2] == offsets[3]
    found = [batch(stream(committed), start, end) for start, end in pairwise(offsets)]
    assert [len(each) for each in found] == [3, 1, 0, 3]
    assert list(chain(*found)) == committed.locations


@NAMINGS
def test_a_batch_is_the_same_however_often_it_is_planned(naming: Naming, own: SqlCatalog) -> None:
    committed = Committed(made(own), naming)
    start = stream(committed).initialOffset()
    committed.commit()
    end = stream(committed).latestOffset()
    committed.commit(40)
    assert batch(stream(committed), start, end) == committed.locations[:2]
    assert batch(stream(committed), end, stream(committed).latestOffset()) == committed.locations[2:]


def test_a_stream_begins_where_it_is_told(committed: Committed) -> None:
    committed.commit(2)
    second = committed.commits[1].stem.removeprefix("n_t_")
    assert batch_from(committed, second) == committed.locations[1:]
    assert batch_from(committed, "earliest") == committed.locations
    assert batch_from(committed, "latest") == []
    assert batch_from(committed, "20991231T000000000") == []
    with pytest.raises(ValueError, match="YYYYMMDDTHHMMSSmmm"):
        batch_from(committed, "yesterday")


def test_a_stream_that_is_to_begin_later_passes_over_what_comes_before(committed: Committed) -> None:
    committed.commit()
    reader = stream(committed, startingOrdinal="20991231T000000000")
    start = reader.initialOffset()
    committed.commit()
    assert batch(reader, start, reader.latestOffset()) == []


def batch_from(committed: Committed, starting: str) -> list[str]:
    reader = stream(committed, startingOrdinal=starting)
    return batch(reader, reader.initialOffset(), reader.latestOffset())


def test_commits_that_were_removed_unread_are_no_secret(committed: Committed) -> None:
    committed.commit()
    start = stream(committed).latestOffset()
    committed.commit(4)
    end = stream(committed).latestOffset()
    for file in committed.commits[:3]:
        file.unlink()
    with pytest.raises(CommitNotFound, match=f"the commit of {start['ordinal']}.*failOnDataLoss=false"):
        batch(stream(committed), start, end)
    assert batch(stream(committed, failOnDataLoss="false"), start, end) == committed.locations[3:]
    assert batch(stream(committed), start, start) == []


def test_a_metadata_log_that_forgot_is_no_secret(own: SqlCatalog) -> None:
    committed = Committed(made(own, keep=2), IDENTIFIER)
    start = stream(committed).latestOffset()
    committed.commit(5)
    end = stream(committed).latestOffset()
    with pytest.raises(CommitNotFound):
        batch(stream(committed), start, end)
    assert batch(stream(committed, failOnDataLoss="false"), start, end) == committed.locations[-3:]


def test_a_dropped_table_still_has_its_commits(committed: Committed) -> None:
    start = stream(committed).initialOffset()
    committed.commit()
    end = stream(committed).latestOffset()
    write_tombstone(committed.table, "n.t", ORDINAL)
    assert stream(committed).latestOffset() == end
    assert batch(stream(committed), start, end) == committed.locations


def test_a_batch_of_spark_has_all_that_is_known(spark: SparkSession, committed: Committed) -> None:
    committed.commit(2)
    frame = spark.read.format("sfn-log").load(committed.directory)
    assert frame.schema == TIMELINE_SCHEMA
    rows = frame.orderBy("ordinal").collect()
    assert [row.metadata_location for row in rows] == committed.locations
    last = committed.table.metadata
    assert (rows[-1].ordinal, rows[-1].snapshot_id) == (render_ordinal(last.last_updated_ms), last.current_snapshot_id)
    assert {(row.gap, row.state, row.source) for row in rows} == {(0, "current", "commit file")}


def test_a_stream_of_spark_goes_on_where_it_ended(spark: SparkSession, committed: Committed, tmp_path: Path) -> None:
    def frame() -> DataFrame:
        reader = spark.readStream.format("sfn-log").schema("metadata_location STRING, ordinal STRING")
        return reader.option(STORAGE, '{"key": "hushed"}').load(committed.directory)

    def started(trigger: dict[str, bool] | dict[str, str]) -> StreamingQuery:
        writer = frame().writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/checkpoint")
        return writer.trigger(**trigger).start(f"{tmp_path}/sink")

    committed.commit()
    started({"availableNow": True}).awaitTermination(60)
    committed.commit(2)
    query = started({"processingTime": "100 milliseconds"})
    query.processAllAvailable()
    committed.commit()
    query.processAllAvailable()
    query.stop()
    started({"availableNow": True}).awaitTermination(60)
    rows = spark.read.parquet(f"{tmp_path}/sink").orderBy("ordinal").collect()
    assert [row.metadata_location for row in rows] == committed.locations
    kept = [file for name in ("checkpoint", "sink") for file in (tmp_path / name).rglob("*") if file.is_file()]
    assert any(committed.locations[-1].encode() in file.read_bytes() for file in kept)
    assert not any(b"hushed" in file.read_bytes() for file in kept)


def test_an_option_that_is_none_is_told(committed: Committed) -> None:
    with pytest.raises(ValueError, match="did you mean startingOrdinal"):
        stream(committed, startingOrdinals="earliest")
    with pytest.raises(ValueError, match="for streams"):
        DefaultSource({"path": committed.directory, "startingOrdinal": "latest"}).reader(TIMELINE_SCHEMA)
    with pytest.raises(ValueError, match="'ordinals' is none; did you mean ordinal"):
        DefaultSource({"path": committed.directory}).reader(StructType([StructField("ordinals", StringType())]))


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
            self.directory = write_sfn_file(table, self.name, ORDINAL)
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


@pytest.fixture(name="namespace", scope="module")
def fixture_namespace(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE lake.changes")


@pytest.fixture(name="changing", scope="module")
def fixture_changing(namespace: None, spark: SparkSession, catalog: RestCatalogServer) -> Changing:  # noqa: ARG001 - it is created
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


@pytest.mark.usefixtures("namespace")
def test_a_snapshot_that_expired_is_named(spark: SparkSession, catalog: RestCatalogServer) -> None:
    with catalog.client() as client:
        changing = Changing(spark, client, "changes.expired")
        changing.run(
            "CREATE TABLE {} (id BIGINT) USING iceberg", *(f"INSERT INTO {{}} VALUES ({number})" for number in range(4))
        )
        table = client.load_table(changing.name)
        table.maintenance.expire_snapshots().by_ids([int(one) for one in changing.snapshots[1:3] if one]).commit()
        write_sfn_file(client.load_table(changing.name), changing.name, ORDINAL)
    # The first that is left came right after the one that it begins at.
    assert changing.between(2) == list(reversed(changing.snapshots[3:]))
    with pytest.raises(CommitNotFound, match=f"snapshot {changing.snapshots[2]}, before .* found that it has expired"):
        changing.between(1)


@pytest.mark.usefixtures("namespace")
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
        write_sfn_file(client.load_table(changing.name), changing.name, ORDINAL)
    # What was overwritten before that is not to blame.
    with pytest.raises(NotSupported, match="rolled back"):
        changing.between(3)
    assert len(changing.between(2)) == 1
    with pytest.raises(NotSupported, match=f"snapshot {changing.snapshots[2]} has the operation overwrite"):
        changing.between(1)
