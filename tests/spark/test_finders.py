"""Archives that Spark's processes were started with are not read anew with each request."""

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

import pyspark_sfn
import pyspark_sfn_log
from sfn.spark.start import forget_archive_finders
from tests.support.real_table import real_table


def packed(path: Path, package: str) -> str:
    """An archive with a package of one module, from which both were imported."""
    with ZipFile(path, "w") as archive:
        for name in ("__init__", "first", "second"):
            archive.writestr(f"{package}/{name}.py", f"NAME = {name!r}")
    sys.path.append(str(path))
    importlib.import_module(f"{package}.first")
    return str(path)


@pytest.fixture(name="clean", autouse=True)
def fixture_clean() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("first_of_"):
            del sys.modules[name]
    sys.path_importer_cache.clear()


def archives() -> set[str]:
    found = {one.archive for one in sys.path_importer_cache.values() if isinstance(one, zipimport.zipimporter)}
    return {os.path.basename(path) for path in found}  # noqa: PTH119 - text


def test_those_of_the_start_are_forgotten_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, of_a_job = packed(tmp_path / "ours.zip", "first_of_ours"), packed(tmp_path / "job.zip", "first_of_a_job")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/none", ours]))
    assert archives() == {"ours.zip", "job.zip"}
    forget_archive_finders()
    assert archives() == {"job.zip"}
    importlib.invalidate_caches()
    for package in ("first_of_ours", "first_of_a_job"):
        assert importlib.import_module(f"{package}.second").NAME == "second"
    with ZipFile(of_a_job, "a") as archive:
        archive.writestr("first_of_a_job/third.py", "NAME = 'third'")
    forget_archive_finders()
    importlib.invalidate_caches()
    assert importlib.import_module("first_of_a_job.third").NAME == "third"


@pytest.mark.parametrize("source", [pyspark_sfn, pyspark_sfn_log])
def test_each_request_to_a_source_forgets_them(
    source: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = real_table(tmp_path)
    monkeypatch.setenv("PYTHONPATH", packed(tmp_path / "ours.zip", "first_of_ours"))

    def anew() -> None:
        sys.path_importer_cache.clear()
        del sys.modules["first_of_ours.first"]
        importlib.import_module("first_of_ours.first")
        assert archives() == {"ours.zip"}

    one = source.DefaultSource({"path": made.directory})
    anew()
    schema = one.schema()
    assert not archives()
    anew()
    reader = one.reader(schema)
    partitions = reader.partitions()
    assert not archives()
    anew()
    assert list(reader.read(partitions[0]))
    assert not archives()
