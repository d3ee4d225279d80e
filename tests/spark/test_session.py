"""The session of the tests and `sfn.spark.session`, and archives on the path of Spark's Python processes."""

from __future__ import annotations

import importlib
import os
import sys
import zipimport
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest
from pyspark.sql import SparkSession

import pyspark_sfn
import pyspark_sfn_log
import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.spark import start
from sfn.spark.start import forget_archive_finders
from tests.support.real_table import real_table


def test_a_table_is_written_and_read_as_it_was(spark: SparkSession, catalog: RestCatalogServer) -> None:
    spark.sql("CREATE NAMESPACE lake.session")
    spark.sql("CREATE TABLE lake.session.orders (id BIGINT, at TIMESTAMP) USING iceberg")
    spark.sql("INSERT INTO lake.session.orders VALUES (1, TIMESTAMP '2026-11-25 12:00:00')")
    spark.sql("INSERT INTO lake.session.orders VALUES (2, NULL)")
    first, _ = spark.sql("SELECT snapshot_id FROM lake.session.orders.snapshots ORDER BY committed_at").collect()
    now = spark.sql("SELECT id, CAST(at AS STRING) FROM lake.session.orders ORDER BY id").collect()
    then = spark.sql(f"SELECT id FROM lake.session.orders VERSION AS OF {first.snapshot_id}").collect()
    assert [tuple(row) for row in now] == [(1, "2026-11-25 12:00:00"), (2, None)]
    assert [row.id for row in then] == [1]
    with catalog.client() as client:
        assert client.load_table(("session", "orders")).scan().count() == 2


def test_a_session_is_had_as_often_as_it_is_asked_for(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "check_java", lambda _home: None)  # the JVM of these tests was started before
    for _ in range(2):
        assert sfn.spark.session(facade="http://127.0.0.1:8087/iceberg", token="t").version == spark.version  # noqa: S106 - an example
    assert spark.conf.get("spark.sql.catalog.sfn.uri") == "http://127.0.0.1:8087/iceberg"
    for name in [name for name in spark.conf.getAll if name.startswith("spark.sql.catalog.sfn")]:
        spark.conf.unset(name)


def write_archive(path: Path, package: str) -> str:
    """An archive with a package of one module, from which both were imported."""
    with ZipFile(path, "w") as archive:
        for name in ("__init__", "first", "second"):
            archive.writestr(f"{package}/{name}.py", f"NAME = {name!r}")
    sys.path.append(str(path))
    importlib.import_module(f"{package}.first")
    return str(path)


@pytest.fixture(name="import_state")
def fixture_import_state() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("first_of_"):
            del sys.modules[name]
    sys.path_importer_cache.clear()


def cached_archives() -> set[str]:
    found = {one.archive for one in sys.path_importer_cache.values() if isinstance(one, zipimport.zipimporter)}
    return {os.path.basename(path) for path in found}  # noqa: PTH119 - text


@pytest.mark.usefixtures("import_state")
def test_those_of_the_start_are_forgotten_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = write_archive(tmp_path / "ours.zip", "first_of_ours")
    of_a_job = write_archive(tmp_path / "job.zip", "first_of_a_job")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/none", ours]))
    assert cached_archives() == {"ours.zip", "job.zip"}
    forget_archive_finders()
    assert cached_archives() == {"job.zip"}
    importlib.invalidate_caches()
    for package in ("first_of_ours", "first_of_a_job"):
        assert importlib.import_module(f"{package}.second").NAME == "second"
    with ZipFile(of_a_job, "a") as archive:
        archive.writestr("first_of_a_job/third.py", "NAME = 'third'")
    forget_archive_finders()
    importlib.invalidate_caches()
    assert importlib.import_module("first_of_a_job.third").NAME == "third"


@pytest.mark.usefixtures("import_state")
@pytest.mark.parametrize("source", [pyspark_sfn, pyspark_sfn_log])
def test_each_request_to_a_source_forgets_them(
    source: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = real_table(tmp_path)
    monkeypatch.setenv("PYTHONPATH", write_archive(tmp_path / "ours.zip", "first_of_ours"))

    def import_again() -> None:
        sys.path_importer_cache.clear()
        del sys.modules["first_of_ours.first"]
        importlib.import_module("first_of_ours.first")
        assert cached_archives() == {"ours.zip"}

    one = source.DefaultSource({"path": made.directory})
    import_again()
    schema = one.schema()
    assert not cached_archives()
    import_again()
    reader = one.reader(schema)
    partitions = reader.partitions()
    assert not cached_archives()
    import_again()
    assert list(reader.read(partitions[0]))
    assert not cached_archives()
