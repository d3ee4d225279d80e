"""What tests of Spark share. Where it is missing none of their files is imported, and each says so."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from typing_extensions import override

from sfn.demo.environment import RestCatalogServer
from tests.support.programs import IS_CI, runtime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _WithoutSpark(pytest.Module):
    @override
    def collect(self) -> NoReturn:
        missing = "no PySpark: run `make spark`"
        if IS_CI:
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return None if find_spec("pyspark") else _WithoutSpark.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let PySpark leave to Python to close what it read a result from, which it does at once."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(name="catalog", scope="session")
def fixture_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """The real catalog, which Spark writes to as `lake`."""
    with RestCatalogServer(tmp_path_factory.mktemp("lake"), runtime()) as server:
        yield server


@pytest.fixture(name="spark", scope="session")
def fixture_spark(catalog: RestCatalogServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests of a process: a test has tables, and a namespace, of its own."""
    from tests.spark.session import SMALL_TABLES, spark_session, spark_settings, warm_python  # noqa: PLC0415 - PySpark may be missing

    folder = tmp_path_factory.mktemp("spark")
    options = {**spark_settings(folder, catalog.uri), **SMALL_TABLES}
    with spark_session(folder, options, warm_python(folder)) as session:
        yield session
