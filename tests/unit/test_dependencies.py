"""What the project says that it needs is what it imports, no more and no less."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.shape.wording import syntax_tree

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGE = ROOT / "service" / "sfn"
DEMO = sorted(PACKAGE.glob("demo/*.py"))
DRIVER = [PACKAGE / "inbox" / "postgres_connections.py"]
NATS = sorted(PACKAGE.glob("pull/nats*.py"))
TRACES = PACKAGE / "telemetry" / "tracing.py"
LIBRARY = sorted(PACKAGE.glob("catalogs/pyiceberg*.py"))
SPARK = [*PACKAGE.glob("spark/**/*.py"), *PACKAGE.parent.glob("pyspark_sfn*.py")]
_OF_TABLES = "avro_check data_file inspect predicate pyiceberg_files scan table"
READERS = [PACKAGE / "reader" / f"{name}.py" for name in _OF_TABLES.split()]
_ON_SPARK = {PACKAGE / "audit" / name for name in ("spark_job.py", "run.py", "__main__.py")}
TABLES = [*READERS, *sorted(set(PACKAGE.glob("audit/*.py")) - _ON_SPARK)]
CLOUDS = {
    "s3": ([PACKAGE / "aws_auth.py", PACKAGE / "storage" / "s3.py"], "botocore"),
    "azure": ([PACKAGE / "storage" / "azure.py"], "azure"),
    "gcs": ([PACKAGE / "google_auth.py", PACKAGE / "storage" / "gcs.py"], "google"),
}
"""What is there for an extra, and what that brings by fsspec's driver."""
OPTIONAL = {file for files, _ in CLOUDS.values() for file in files} | {TRACES, *DRIVER, *NATS}
SERVICE = sorted(
    set(PACKAGE.rglob("*.py")) - set(DEMO) - set(LIBRARY) - set(SPARK) - set(TABLES) - _ON_SPARK - OPTIONAL
)

BY_NAME = {"httptools", "uvloop"}
"""uvicorn and anyio are told to use them."""
BROUGHT = {"markupsafe", "multidict", "pydantic_core", "starlette", "yarl"}
"""Parts of another one's interface, and of its version."""
SESSIONS = {"requests"}
"""PyIceberg's, in the same way, to the demo."""
BENEATH = {"botocore", "sqlalchemy"}
"""What PyIceberg's extras bring to speak to AWS and to databases."""
WITH_SPARK = {"py4j", "pyroaring"}
"""Parts of PySpark and of PyIceberg."""
EXTENSIONS = {"duckdb_extension_avro", "duckdb_extension_iceberg"}
"""Files that DuckDB loads."""


def declared(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in requirements}


def walked(node: ast.AST) -> Iterator[ast.AST]:
    """What runs of a module: what is there for type checkers alone is left out."""
    yield node
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    for child in ast.iter_child_nodes(node):
        yield from walked(child)


def imported(files: Iterable[Path]) -> set[str]:
    names: set[str] = set()
    for file in files:
        for node in walked(syntax_tree(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"sfn"}


def test_the_command_line_starts_without_what_only_commands_need() -> None:
    slow = "aiohttp anyio fastapi fsspec httpx pyarrow pydantic pyiceberg pyspark rich.console structlog"
    code = f"import sys, sfn.cli.main; print(*(sys.modules.keys() & set({slow.split()!r})))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == []


@pytest.mark.slow
def test_the_service_needs_what_it_imports() -> None:
    assert declared(PROJECT["dependencies"]) == (imported(SERVICE) - BROUGHT) | BY_NAME


@pytest.mark.slow
def test_catalogs_of_pyiceberg_need_what_they_import_beside() -> None:
    needed = imported(LIBRARY) - imported(SERVICE) - BENEATH
    assert declared(PROJECT["optional-dependencies"]["pyiceberg"]) == needed


@pytest.mark.slow
def test_a_source_of_nats_needs_what_it_imports_beside() -> None:
    distributions = {"nats": "nats_py"}
    needed = {distributions.get(name, name) for name in imported(NATS) - imported(SERVICE)}
    assert declared(PROJECT["optional-dependencies"]["nats"]) == needed


def test_traces_need_the_sdk_and_the_exporter_that_one_module_imports() -> None:
    assert imported([TRACES]) - imported(SERVICE) == {"opentelemetry"}
    needed = {"opentelemetry_sdk", "opentelemetry_exporter_otlp_proto_http"}
    assert declared(PROJECT["optional-dependencies"]["otel"]) == needed


@pytest.mark.slow
@pytest.mark.parametrize("extra", CLOUDS)
def test_a_cloud_needs_what_its_extra_brings(extra: str) -> None:
    files, brought = CLOUDS[extra]
    assert imported(files) - imported(SERVICE) - BROUGHT == {brought}
    assert extra in PROJECT["optional-dependencies"]


@pytest.mark.slow
def test_an_inbox_in_postgresql_needs_what_one_module_of_it_imports() -> None:
    assert declared(PROJECT["optional-dependencies"]["postgres"]) == imported(DRIVER) - imported(SERVICE)


@pytest.mark.slow
def test_reading_tables_needs_what_is_imported_for_it() -> None:
    for_spark = {"numpy"}
    assert declared(PROJECT["optional-dependencies"]["read"]) == imported(TABLES) - imported(SERVICE) - for_spark


@pytest.mark.slow
def test_reading_on_spark_needs_what_it_imports_beside() -> None:
    by_name = {"pandas"}  # PySpark is content with versions that it does not run with
    needed = (imported([*SPARK, *READERS]) - imported(SERVICE) - WITH_SPARK) | by_name
    assert declared(PROJECT["optional-dependencies"]["spark"]) == needed


@pytest.mark.slow
def test_the_demo_needs_what_it_imports_beside() -> None:
    needed = (imported(DEMO) - imported(SERVICE) - SESSIONS) | EXTENSIONS
    assert declared(PROJECT["optional-dependencies"]["demo"]) == needed


def test_what_it_says_to_install_is_there_to_be_installed() -> None:
    """It is on no index yet: no page names it without a file, and extras are those of the project."""
    pages = [*PACKAGE.rglob("*.py"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*.toml"), ROOT / "README.md"]
    texts = {page: page.read_text() for page in pages}
    from_an_index = re.compile(rf"{PROJECT['name']}\[[a-z0-9,]+\](?! @)")
    assert [page for page, text in texts.items() if from_an_index.search(text)] == []
    told = {
        extra
        for text in texts.values()
        for named in re.findall(r"(?:'\.|whl|iceberg-sfn)\[([a-z0-9,]+)\]", text)
        for extra in named.split(",")
    }
    assert {"s3", "postgres"} <= told <= set(PROJECT["optional-dependencies"])
