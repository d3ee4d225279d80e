"""What the pages on Spark say to write and to run does what they say: Python, and the commands of an audit."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from sfn import history
from sfn.audit.__main__ import app
from sfn.cli.main import app as sfn
from sfn.demo.environment import RestCatalogServer
from sfn.sfnfile.document import render_ordinal
from sfn.sfnfile.naming import ORDINAL
from sfn.spark import start
from tests.bench import many
from tests.bench.many import Many
from tests.spark.session import JVM_OPTIONS, spark_environment
from tests.spark.tables import write_sfn_file
from tests.support.logs import as_before

ROOT = Path(__file__).parents[2]
EXAMPLE = "/warehouse/sales/orders"
EXPECTED_IDS = {
    "docs/spark/README.md": {"orders": [1, 2], "before": [1], "added": [2], "loaded": [1, 2]},
    "docs/spark/reading.md": {"orders": [1, 2], "added": [2]},
}
"""The rows that names of their examples have in the end, where these are the table's."""
EXPECTED_COUNTS = {"docs/spark/README.md": {"history": 2}, "docs/spark/reading.md": {"commits": 4, "pointer": 1}}
STREAMS = {"docs/spark/README.md": "commits", "docs/spark/reading.md": "stream"}


@pytest.fixture(name="directory", scope="module")
def fixture_directory(spark: SparkSession, catalog: RestCatalogServer) -> str:
    """A table of four commits, of which the third is a tag."""
    spark.sql("CREATE NAMESPACE lake.pages")
    directory = ""
    with catalog.client() as client:
        for statement in (
            "CREATE TABLE {} (id BIGINT) USING iceberg",
            "INSERT INTO {} VALUES (1)",
            "ALTER TABLE {} CREATE TAG v1",
            "INSERT INTO {} VALUES (2)",
        ):
            spark.sql(statement.format("lake.pages.orders"))
            directory = write_sfn_file(client.load_table("pages.orders"), "pages.orders", ORDINAL)
    return directory


@pytest.mark.parametrize("page", EXPECTED_IDS)
def test_its_python_runs(page: str, spark: SparkSession, directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "check_java", lambda _home: None)  # the JVM of these tests was started before
    text = (ROOT / page).read_text()
    (block,) = (
        one for one in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if "sfn.spark" in one
    )
    _, first, _, last = (render_ordinal(commit.ordinal) for commit in history(directory))
    block = block.replace(EXAMPLE, directory).replace("20261122T120000000", first).replace("20261123T120000000", last)
    names: dict[str, object] = {}
    exec(block, names)  # noqa: S102 - it is ours
    assert isinstance(names["spark"], SparkSession)
    assert names["spark"].version == spark.version
    frames = {name: value for name, value in names.items() if isinstance(value, DataFrame)}
    stream = frames.pop(STREAMS[page])
    assert stream.isStreaming
    assert stream.columns[0] == "ordinal"
    found = {name: sorted(row.id for row in frames.pop(name).collect()) for name in EXPECTED_IDS[page]}
    assert found == EXPECTED_IDS[page]
    assert {name: frame.count() for name, frame in frames.items()} == EXPECTED_COUNTS[page]


AUDITED_TABLES, CATALOG_ID = 12, "0123456789abcdef0123456789abcdef"
TIMEOUT: Final = 120.0
"""Seconds for each."""


def audit_commands() -> list[list[str]]:
    """Those of the page, in order."""
    text = (ROOT / "docs" / "spark" / "audit.md").read_text()
    return [shlex.split(line, comments=True) for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE)]


RUN_HERE, RUN_BY_SPARK_SUBMIT, SHOW_REPORT = audit_commands()


@pytest.fixture(name="configuration")
def fixture_configuration(tmp_path: Path) -> Path:
    return tmp_path / "sfn.toml"


def write_configuration(file: Path, catalog: many.Running) -> None:
    """One catalog whose tables have the files that they should, and one for the report."""
    for namespace, name in catalog.many.all():
        catalog.many.publish(namespace, name, catalog.many.document(namespace, name, CATALOG_ID))
    database = f"sqlite:///{file.with_name('catalog.db')}"
    load_catalog("prod", type="sql", uri=database).create_namespace("ops")
    file.write_text(
        f'[catalogs.lake]\nuri = "{catalog.uri}"\ncatalog_id = "{CATALOG_ID}"\n\n'
        f'[catalogs.prod]\ntype = "pyiceberg"\nexclude = ["ops.*"]\n[catalogs.prod.properties]\ntype = "sql"\n'
        f'uri = "{database}"\nwarehouse = "{file.parent.as_uri()}/own"\n\n[stores.lake]\nprefix = "{file.parent}"\n'
    )


def with_local_paths(command: list[str], folder: Path) -> list[str]:
    """One with its paths in a folder, and Spark on this machine."""
    words = [word.replace("/warehouse", str(folder)).replace("…", "local[1]") for word in command]
    places = {"sfn.toml": folder, "service/sfn/audit/__main__.py": ROOT}
    local = [str(places[word] / word) if word in places else word for word in words]
    # Of a dozen tables: each slice takes its time, whatever it has.
    return [*local, "--slices", "1"] if "--report" in local else local


def run_spark_submit(command: list[str], folder: Path) -> str:
    """What it prints of one that Spark starts, where Spark's own log is written to a folder."""
    tool, *words = command
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": str(folder)}
    conf = [word for key, value in log.items() for word in ("--conf", f"{key}={value}")]
    arguments = [
        str(Path(sys.executable).with_name(tool)),
        "--driver-java-options",
        " ".join(JVM_OPTIONS),
        *conf,
        *words,
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("spark")
def test_they_find_what_is_there(configuration: Path, tmp_path: Path) -> None:
    with (
        spark_environment(tmp_path),
        as_before(),
        many.running(tmp_path / "c", Many(tmp_path / "lake", AUDITED_TABLES)) as catalog,
    ):
        write_configuration(configuration, catalog)
        assert RUN_HERE[:3] == ["sfn", "audit", "run"]
        alone = CliRunner().invoke(app, with_local_paths(RUN_HERE, tmp_path)[3:])
        assert (alone.exit_code, f"{AUDITED_TABLES} rows; 0 unchanged" in alone.stdout) == (0, True), alone.output
        (events := tmp_path / "events").mkdir()
        printed = run_spark_submit(with_local_paths(RUN_BY_SPARK_SUBMIT, tmp_path), events)
        assert f"{AUDITED_TABLES} rows; 0 unchanged" in printed
        # That it runs where spark-submit says, not here.
        assert any('"spark.master":"local[1]"' in file.read_text() for file in events.rglob("*") if file.is_file())
        with_catalog = [*SHOW_REPORT[:3], RUN_BY_SPARK_SUBMIT[-1], *RUN_BY_SPARK_SUBMIT[-4:-2]]
        for one in (SHOW_REPORT, with_catalog):
            report = CliRunner().invoke(sfn, with_local_paths(one, tmp_path)[1:])
            assert (report.exit_code, "current" in report.stdout) == (0, True), report.output
