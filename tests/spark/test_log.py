"""`sfn-log`: each commit once, whatever ends in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain, pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_sfn_log import DefaultSource
from sfn.errors import CommitNotFound
from sfn.sfnfile.document import render_ordinal
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, Naming
from sfn.spark.source_options import STORAGE
from sfn.spark.source_timeline import TIMELINE_SCHEMA, Offset, TimelineLoad, TimelineRow, TimelineStream
from tests.spark.beside import beside, dropped

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
        # Where a log tells, Ordinals are those of documents only as long as these lead.
        return beside(self.table, "n.t", self.naming, late=0 if self.naming is ORDINAL else 1)

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
    with closing(SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("n")
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
    assert batch_of(committed, second) == committed.locations[1:]
    assert batch_of(committed, "earliest") == committed.locations
    assert batch_of(committed, "latest") == []
    assert batch_of(committed, "20991231T000000000") == []
    with pytest.raises(ValueError, match="YYYYMMDDTHHMMSSmmm"):
        batch_of(committed, "yesterday")


def test_a_stream_that_is_to_begin_later_passes_over_what_comes_before(committed: Committed) -> None:
    committed.commit()
    reader = stream(committed, startingOrdinal="20991231T000000000")
    start = reader.initialOffset()
    committed.commit()
    assert batch(reader, start, reader.latestOffset()) == []


def batch_of(committed: Committed, starting: str) -> list[str]:
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
    dropped(committed.table, "n.t", ORDINAL)
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
        told = spark.readStream.format("sfn-log").schema("metadata_location STRING, ordinal STRING")
        return told.option(STORAGE, '{"key": "hushed"}').load(committed.directory)

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
