"""Tables with odd names of files, and with branches and tags at snapshots that they lack, read by each engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import sfn
import sfn.spark
from sfn.errors import CommitNotFound, NotSupported, Unreadable
from sfn.reader.metadata import AllowedLocations
from sfn.spark.files_pruning import check_file_location
from sfn.spark.request import AsOfOrdinal, AsOfRef, AsOfSnapshot, AsOfTime, parse_as_of
from tests.support.real_table import NOT_ON_EVERY_STORE, ODD, RealTable, odd_table, real_table
from tests.unit.test_reader_paths import put

ENGINES = ("iceberg", "files", "sfn")


@pytest.fixture(name="made")
def fixture_made(tmp_path: Path) -> RealTable:
    return real_table(tmp_path)


def changed(made: RealTable, change: Callable[[dict[str, Any]], object]) -> str:
    """Change the metadata file by hand; the table's directory."""
    pointer = Path(made.pointer.removeprefix("file://"))
    metadata = json.loads(pointer.read_text())
    change(metadata)
    pointer.write_text(json.dumps(metadata))
    return made.directory


@pytest.mark.parametrize("engine", ENGINES)
def test_files_are_read_by_the_names_that_they_have(engine: str, spark: SparkSession, tmp_path: Path) -> None:
    names = (*ODD, *NOT_ON_EVERY_STORE)
    with closing(SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("n")
        made = odd_table(catalog, str(tmp_path / "t"), put, names)
    rows = sfn.spark.read(spark, made.directory, engine=engine).collect()
    assert sorted(row["id"] for row in rows) == list(range(made.rows))


def test_a_name_that_hadoop_changes_is_refused() -> None:
    trust = AllowedLocations("s3://lake/t")
    assert check_file_location("s3a://lake/t/a#b", trust, "said") == "s3://lake/t/a#b"
    assert check_file_location("/t/a//b", AllowedLocations("file:///t"), "said") == "file:///t/a/b"
    with pytest.raises(NotSupported, match="an empty segment"):
        check_file_location("s3://lake/t//a", trust, "said")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda doc: doc.update({"current-snapshot-id": 42}), id="current is not main"),
        pytest.param(lambda doc: doc.pop("current-snapshot-id"), id="main alone"),
        pytest.param(
            lambda doc: (doc.update({"current-snapshot-id": 42}), doc["refs"]["main"].update({"snapshot-id": 42})),
            id="no such snapshot",
        ),
    ],
)
def test_a_table_without_a_certain_head_is_no_empty_table(
    engine: str, change: Callable[[dict[str, Any]], object], spark: SparkSession, made: RealTable
) -> None:
    directory = changed(made, change)
    with pytest.raises(Unreadable) as refused:
        sfn.spark.read(spark, directory, engine=engine).collect()
    assert Path(made.pointer).name in str(refused.value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ref", ["audit", "v1"])
def test_a_branch_or_tag_without_its_snapshot_is_named(
    engine: str, ref: str, spark: SparkSession, made: RealTable
) -> None:
    directory = changed(made, lambda doc: doc["refs"][ref].update({"snapshot-id": 42}))
    with pytest.raises(Unreadable, match=f"the snapshot 42 of {ref}"):
        sfn.spark.read(spark, directory, ref=ref, engine=engine)


@pytest.mark.parametrize("engine", ["files", "sfn"])
def test_a_snapshot_without_its_schema_is_refused(engine: str, spark: SparkSession, made: RealTable) -> None:
    directory = changed(made, lambda doc: [one.update({"schema-id": 99}) for one in doc["snapshots"]])
    for more in ({"ref": "v1"}, {"as_of": made.tagged}):
        with pytest.raises(Unreadable, match="the schema 99"):
            sfn.spark.read(spark, directory, engine=engine, **more)
    assert sfn.spark.read(spark, directory, engine=engine).count() == 2


@pytest.mark.parametrize("engine", ["files", "sfn"])
def test_times_that_can_be_none_matter_only_to_who_asks_for_a_time(
    engine: str, spark: SparkSession, made: RealTable
) -> None:
    # Iceberg's own library reads no table with such a snapshot-log.
    def microseconds(doc: dict[str, Any]) -> None:
        for one in doc["snapshot-log"] + doc["metadata-log"]:
            one["timestamp-ms"] *= 1_000

    (*_, last) = sfn.history(made.directory)
    directory = changed(made, microseconds)
    assert sfn.spark.read(spark, directory, engine=engine).count() == 2
    assert sfn.spark.read(spark, directory, ref="v1", engine=engine).count() == 1
    with pytest.raises(CommitNotFound, match="times in the snapshot-log"):
        sfn.spark.read(spark, directory, as_of=last.at + timedelta(days=1), engine=engine)
    with pytest.raises(CommitNotFound, match="times in the metadata-log"):
        sfn.spark.read(spark, directory, as_of=last, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_entry_of_the_history_says_a_state(engine: str, spark: SparkSession, made: RealTable) -> None:
    entry = sfn.history(made.directory)[2]
    rows = sfn.spark.read(spark, made.directory, as_of=entry, engine=engine).count()
    assert rows == sfn.read(made.directory, as_of=entry).num_rows == 1


def test_what_a_state_is_said_by(made: RealTable) -> None:
    entry = sfn.history(made.directory)[-1]
    assert parse_as_of(entry) == AsOfOrdinal(entry.ordinal)
    assert parse_as_of(7) == AsOfSnapshot(7)
    assert parse_as_of("2026-11-22T12:00:00Z") == AsOfTime(1_795_348_800_000)
    assert parse_as_of(entry.at.isoformat()) == parse_as_of(entry.at) == AsOfTime(entry.ordinal)
    for name in ("2026-11-22", "20261122", "v1", "1763812800000", "2026-11-22-nightly"):
        assert parse_as_of(name) == AsOfRef(name)
    for wrong in (True, 1.5, "2026-11-22T12:00", entry.at.date()):
        with pytest.raises(TypeError):
            parse_as_of(wrong)  # type: ignore[arg-type]
