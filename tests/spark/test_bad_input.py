"""What is asked for in vain ends in one line that says what to do."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import sfn.spark
from sfn.errors import CommitNotFound, NotFound, NotInstalled, NotSupported, Stale, WrongTable
from sfn.reader.api import InvalidTime
from sfn.spark import start
from tests.spark.telling import refusal, told
from tests.support.real_table import RealTable, real_table
from tests.support.table_directory import OTHER_UUID

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
    text = refusal(NotFound, lambda: sfn.spark.read(spark, tmp_path, engine=engine))
    assert f"{tmp_path}/metadata/_sfn/" in text
    assert text.endswith("expected an SFN file, found none; check the directory")


def test_metadata_that_is_gone_is_told_with_its_age(spark: SparkSession, tmp_path: Path) -> None:
    made = real_table(tmp_path)
    Path(made.pointer.removeprefix("file://")).unlink()
    for engine in ENGINES:
        text = refusal(Stale, partial(sfn.spark.read, spark, made.directory, engine=engine))
        assert re.search(r"2026-08-21T12:00:00\.000Z, .* ago, found no such file; check that the listener", text)


def test_another_tables_metadata_is_told(spark: SparkSession, tmp_path: Path) -> None:
    made = real_table(tmp_path)
    made.place.write(metadata_file_path=made.pointer, guid=OTHER_UUID)
    for engine in ENGINES:
        text = refusal(WrongTable, partial(sfn.spark.read, spark, made.directory, engine=engine))
        assert f"expected table-uuid {OTHER_UUID}" in text
        assert "the table was recreated, or the file is forged: run `sfn verify`" in text


def test_the_data_source_says_it_last_and_alone_if_spark_lets_it(spark: SparkSession, tmp_path: Path) -> None:
    line = as_source(spark, str(tmp_path))
    assert line.startswith("sfn.errors.NotFound: ")
    assert line.endswith("check the directory")
    with (
        told(spark, {"spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true"}),
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
    text = refusal(NotInstalled, lambda: start.check_runtime(session(Jvm(jar))))
    assert f"expected Iceberg's runtime for Spark 4.1 and Scala 2.13, found {found}; start the session with" in text
    assert "spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0" in text
    assert start.missing_runtime(session(Jvm(jar))) == found


def test_a_runtime_that_fits_or_is_called_as_somebody_likes_is_taken(spark: SparkSession) -> None:
    for one in ("iceberg-spark-runtime-4.1_2.13-1.11.0.jar", "ours.jar"):
        start.check_runtime(session(Jvm(f"file:/j/{one}")))
    start.check_runtime(spark)


def test_spark_connect_is_told_what_can_be_used_there() -> None:
    text = refusal(NotInstalled, lambda: start.check_runtime(session(None)))
    assert text.endswith("found Spark Connect; use a classic session, or engine='sfn'")


def test_a_jar_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "check_java", lambda _home: None)
    text = refusal(NotInstalled, lambda: sfn.spark.session(jar=tmp_path / "none.jar"))
    assert text.startswith(f"{tmp_path}/none.jar: expected the file of Iceberg's runtime, found none; download ")
    assert "leave `jar` out: then Spark does" in text


def test_arguments_that_have_no_such_form_are_told(spark: SparkSession, made: RealTable) -> None:
    def said(kind: type[Exception] = ValueError, **more: Any) -> str:  # noqa: ANN401 - any arguments
        return refusal(kind, lambda: sfn.spark.read(spark, made.directory, **more))

    assert said(engine="icebreg").endswith("'icebreg'; did you mean iceberg?")
    assert said(ref="audit", as_of="v1").startswith("either ref or as_of, not both")
    assert "a datetime with a time zone" in said(InvalidTime, as_of=datetime(2026, 11, 25))  # noqa: DTZ001 - it is what is refused
    assert "a snapshot's id, a time, an Ordinal" in said(InvalidTime, as_of=True)
    assert said(row_filter="id >").startswith("a row_filter such as ")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_snapshot_that_is_none_is_told_with_those_that_are(engine: str, spark: SparkSession, made: RealTable) -> None:
    text = refusal(CommitNotFound, lambda: sfn.spark.read(spark, made.directory, as_of=7, engine=engine))
    assert f"{made.audit}; ask for one of these" in text


@pytest.mark.parametrize("value", [b"hushed", datetime(2026, 11, 25), {"more": {"hushed"}}])  # noqa: DTZ001 - as given
def test_a_storage_option_that_can_go_to_no_other_process_is_told(
    value: object, spark: SparkSession, made: RealTable
) -> None:
    storage_options = {"anon": True, "secret": value}

    def read(engine: str) -> DataFrame:
        return sfn.spark.read(spark, made.directory, engine=engine, storage_options=storage_options)

    text = refusal(NotSupported, lambda: read("sfn"))
    assert f"found one that is none: 'secret', {type(value).__name__}; give it as JSON has it" in text
    assert "hushed" not in text
    assert read("files").columns == read("auto").columns
