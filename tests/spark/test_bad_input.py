"""Wrong arguments and damaged or unusual tables: an error of one line that says what to do, or the right rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import sfn
import sfn.spark
from sfn.errors import CommitNotFound, NotFound, NotInstalled, NotSupported, Stale, Unreadable, WrongTable
from sfn.reader.api import InvalidTime
from sfn.reader.metadata import AllowedLocations
from sfn.spark import start
from sfn.spark.files_pruning import check_file_location
from sfn.spark.request import AsOfOrdinal, AsOfRef, AsOfSnapshot, AsOfTime, parse_as_of
from tests.spark.session import changed_settings
from tests.spark.tables import error_text
from tests.support.real_table import NOT_ON_EVERY_STORE, ODD, RealTable, odd_table, real_table
from tests.support.table_directory import OTHER_UUID
from tests.unit.test_reader_paths import put

ENGINES = ("iceberg", "files", "sfn")


@pytest.fixture(name="made", scope="module")
def fixture_made(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    return real_table(tmp_path_factory.mktemp("made"))


def as_source(spark: SparkSession, directory: str) -> str:
    """What the last line of a refusal of the data source says; what stands before is Spark's."""
    with pytest.raises(AnalysisException) as refused:
        spark.read.format("sfn").load(directory).collect()
    *before, last = f"{refused.value}".strip().removesuffix("SQLSTATE: 38000").strip().splitlines()
    assert len([line for line in before if line.startswith("  File")]) <= 2, before
    return last


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
def test_a_directory_without_an_sfn_file_is_told(engine: str, spark: SparkSession, tmp_path: Path) -> None:
    text = error_text(NotFound, lambda: sfn.spark.read(spark, tmp_path, engine=engine))
    assert f"{tmp_path}/metadata/_sfn/" in text
    assert text.endswith("expected an SFN file, found none; check the directory")


def test_metadata_that_is_gone_is_told_with_its_age(spark: SparkSession, tmp_path: Path) -> None:
    made = real_table(tmp_path)
    Path(made.pointer.removeprefix("file://")).unlink()
    for engine in ENGINES:
        text = error_text(Stale, partial(sfn.spark.read, spark, made.directory, engine=engine))
        assert re.search(r"2026-08-21T12:00:00\.000Z, .* ago, found no such file; check that the listener", text)


def test_another_tables_metadata_is_told(spark: SparkSession, tmp_path: Path) -> None:
    made = real_table(tmp_path)
    made.place.write(metadata_file_path=made.pointer, guid=OTHER_UUID)
    for engine in ENGINES:
        text = error_text(WrongTable, partial(sfn.spark.read, spark, made.directory, engine=engine))
        assert f"expected table-uuid {OTHER_UUID}" in text
        assert "the table was recreated, or the file is forged: run `sfn verify`" in text


def test_the_data_source_says_it_last_and_alone_if_spark_lets_it(spark: SparkSession, tmp_path: Path) -> None:
    line = as_source(spark, str(tmp_path))
    assert line.startswith("sfn.errors.NotFound: ")
    assert line.endswith("check the directory")
    with (
        changed_settings(spark, {"spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true"}),
        pytest.raises(AnalysisException) as refused,
    ):
        spark.read.format("sfn-log").load(str(tmp_path)).collect()
    first, *others = f"{refused.value}".splitlines()
    assert ": sfn.errors.NotFound: " in first
    assert first.endswith("check the directory")
    assert [line.strip() for line in others] == ["SQLSTATE: 38000"]


class Jvm:
    """As much of a JVM as is asked for Iceberg's runtime.

    Args:
        jar: where its class comes from; None: there is none.
    """

    def __init__(self, jar: str | None) -> None:
        self.scala = SimpleNamespace(
            util=SimpleNamespace(Properties=SimpleNamespace(versionNumberString=lambda: "2.13.17"))
        )
        utils = SimpleNamespace(classForName=self._class)
        self.org = SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(util=SimpleNamespace(Utils=utils))))
        self._jar = jar

    def _class(self, name: str, *_: bool) -> object:
        if self._jar is None:
            raise Py4JJavaError("ClassNotFoundException", SimpleNamespace(_target_id="", _gateway_client=None))
        location = SimpleNamespace(toString=lambda: self._jar)
        source = SimpleNamespace(getLocation=lambda: location)
        return SimpleNamespace(getProtectionDomain=lambda: SimpleNamespace(getCodeSource=lambda: source))


def session(jvm: object) -> Any:  # noqa: ANN401 - it has what is asked of a session alone
    return SimpleNamespace(version="4.1.4", _jvm=jvm)


@pytest.mark.parametrize(
    ("jar", "found"),
    [
        (None, "no class of Iceberg's"),
        ("file:/j/iceberg-spark-runtime-4.0_2.13-1.11.0.jar", "iceberg-spark-runtime-4.0_2.13-1.11.0.jar"),
        ("file:/j/iceberg-spark-runtime-4.1_2.12-1.11.0.jar", "iceberg-spark-runtime-4.1_2.12-1.11.0.jar"),
    ],
)
def test_a_runtime_that_is_missing_or_another_ones_is_told(jar: str | None, found: str) -> None:
    text = error_text(NotInstalled, lambda: start.check_runtime(session(Jvm(jar))))
    assert f"expected Iceberg's runtime for Spark 4.1 and Scala 2.13, found {found}; start the session with" in text
    assert "spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0" in text
    assert start.missing_runtime(session(Jvm(jar))) == found


def test_a_runtime_that_fits_or_is_called_as_somebody_likes_is_taken(spark: SparkSession) -> None:
    for one in ("iceberg-spark-runtime-4.1_2.13-1.11.0.jar", "ours.jar"):
        start.check_runtime(session(Jvm(f"file:/j/{one}")))
    start.check_runtime(spark)


def test_spark_connect_is_told_what_can_be_used_there() -> None:
    text = error_text(NotInstalled, lambda: start.check_runtime(session(None)))
    assert text.endswith("found Spark Connect; use a classic session, or engine='sfn'")


def test_a_jar_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "check_java", lambda _home: None)
    text = error_text(NotInstalled, lambda: sfn.spark.session(jar=tmp_path / "none.jar"))
    assert text.startswith(f"{tmp_path}/none.jar: expected the file of Iceberg's runtime, found none; download ")
    assert "leave `jar` out: then Spark does" in text


def test_arguments_that_have_no_such_form_are_told(spark: SparkSession, made: RealTable) -> None:
    def message(kind: type[Exception] = ValueError, **more: Any) -> str:  # noqa: ANN401 - any arguments
        return error_text(kind, lambda: sfn.spark.read(spark, made.directory, **more))

    assert message(engine="icebreg").endswith("'icebreg'; did you mean iceberg?")
    assert message(ref="audit", as_of="v1").startswith("either ref or as_of, not both")
    assert "a datetime with a time zone" in message(InvalidTime, as_of=datetime(2026, 11, 25))  # noqa: DTZ001 - it is what is refused
    assert "a snapshot's id, a time, an Ordinal" in message(InvalidTime, as_of=True)
    assert message(row_filter="id >").startswith("a row_filter such as ")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_snapshot_that_is_none_is_told_with_those_that_are(engine: str, spark: SparkSession, made: RealTable) -> None:
    text = error_text(CommitNotFound, lambda: sfn.spark.read(spark, made.directory, as_of=7, engine=engine))
    assert f"{made.audit}; ask for one of these" in text


@pytest.mark.parametrize("value", [b"hushed", datetime(2026, 11, 25), {"more": {"hushed"}}])  # noqa: DTZ001 - as given
def test_a_storage_option_that_can_go_to_no_other_process_is_told(
    value: object, spark: SparkSession, made: RealTable
) -> None:
    storage_options = {"anon": True, "secret": value}

    def read(engine: str) -> DataFrame:
        return sfn.spark.read(spark, made.directory, engine=engine, storage_options=storage_options)

    text = error_text(NotSupported, lambda: read("sfn"))
    assert f"found one that is none: 'secret', {type(value).__name__}; give it as JSON has it" in text
    assert "hushed" not in text
    assert read("files").columns == read("auto").columns


@pytest.fixture(name="own_table")
def fixture_own_table(tmp_path: Path) -> RealTable:
    return real_table(tmp_path)


def edit_metadata(own_table: RealTable, change: Callable[[dict[str, Any]], object]) -> str:
    """Change the metadata file by hand; the table's directory."""
    pointer = Path(own_table.pointer.removeprefix("file://"))
    metadata = json.loads(pointer.read_text())
    change(metadata)
    pointer.write_text(json.dumps(metadata))
    return own_table.directory


@pytest.mark.parametrize("engine", ENGINES)
def test_files_are_read_by_the_names_that_they_have(engine: str, spark: SparkSession, tmp_path: Path) -> None:
    names = (*ODD, *NOT_ON_EVERY_STORE)
    with closing(SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("n")
        own_table = odd_table(catalog, str(tmp_path / "t"), put, names)
    rows = sfn.spark.read(spark, own_table.directory, engine=engine).collect()
    assert sorted(row["id"] for row in rows) == list(range(own_table.rows))


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
    engine: str, change: Callable[[dict[str, Any]], object], spark: SparkSession, own_table: RealTable
) -> None:
    directory = edit_metadata(own_table, change)
    with pytest.raises(Unreadable) as refused:
        sfn.spark.read(spark, directory, engine=engine).collect()
    assert Path(own_table.pointer).name in str(refused.value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ref", ["audit", "v1"])
def test_a_branch_or_tag_without_its_snapshot_is_named(
    engine: str, ref: str, spark: SparkSession, own_table: RealTable
) -> None:
    directory = edit_metadata(own_table, lambda doc: doc["refs"][ref].update({"snapshot-id": 42}))
    with pytest.raises(Unreadable, match=f"the snapshot 42 of {ref}"):
        sfn.spark.read(spark, directory, ref=ref, engine=engine)


@pytest.mark.parametrize("engine", ["files", "sfn"])
def test_a_snapshot_without_its_schema_is_refused(engine: str, spark: SparkSession, own_table: RealTable) -> None:
    directory = edit_metadata(own_table, lambda doc: [one.update({"schema-id": 99}) for one in doc["snapshots"]])
    for more in ({"ref": "v1"}, {"as_of": own_table.tagged}):
        with pytest.raises(Unreadable, match="the schema 99"):
            sfn.spark.read(spark, directory, engine=engine, **more)
    assert sfn.spark.read(spark, directory, engine=engine).count() == 2


@pytest.mark.parametrize("engine", ["files", "sfn"])
def test_times_that_can_be_none_matter_only_to_who_asks_for_a_time(
    engine: str, spark: SparkSession, own_table: RealTable
) -> None:
    # Iceberg's own library reads no table with such a snapshot-log.
    def microseconds(doc: dict[str, Any]) -> None:
        for one in doc["snapshot-log"] + doc["metadata-log"]:
            one["timestamp-ms"] *= 1_000

    (*_, last) = sfn.history(own_table.directory)
    directory = edit_metadata(own_table, microseconds)
    assert sfn.spark.read(spark, directory, engine=engine).count() == 2
    assert sfn.spark.read(spark, directory, ref="v1", engine=engine).count() == 1
    with pytest.raises(CommitNotFound, match="times in the snapshot-log"):
        sfn.spark.read(spark, directory, as_of=last.at + timedelta(days=1), engine=engine)
    with pytest.raises(CommitNotFound, match="times in the metadata-log"):
        sfn.spark.read(spark, directory, as_of=last, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_entry_of_the_history_says_a_state(engine: str, spark: SparkSession, own_table: RealTable) -> None:
    entry = sfn.history(own_table.directory)[2]
    rows = sfn.spark.read(spark, own_table.directory, as_of=entry, engine=engine).count()
    assert rows == sfn.read(own_table.directory, as_of=entry).num_rows == 1


def test_what_a_state_is_said_by(own_table: RealTable) -> None:
    entry = sfn.history(own_table.directory)[-1]
    assert parse_as_of(entry) == AsOfOrdinal(entry.ordinal)
    assert parse_as_of(7) == AsOfSnapshot(7)
    assert parse_as_of("2026-11-22T12:00:00Z") == AsOfTime(1_795_348_800_000)
    assert parse_as_of(entry.at.isoformat()) == parse_as_of(entry.at) == AsOfTime(entry.ordinal)
    for name in ("2026-11-22", "20261122", "v1", "1763812800000", "2026-11-22-nightly"):
        assert parse_as_of(name) == AsOfRef(name)
    for wrong in (True, 1.5, "2026-11-22T12:00", entry.at.date()):
        with pytest.raises(TypeError):
            parse_as_of(wrong)  # type: ignore[arg-type]
