"""The page's commands of an audit, as they stand there: on this machine, by spark-submit, and what was found."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from pyiceberg.catalog import load_catalog
from typer.testing import CliRunner

from sfn.audit.__main__ import app
from sfn.cli.main import app as sfn
from tests.bench import many
from tests.bench.many import Many
from tests.spark.running import FAST, surroundings
from tests.support.logs import as_before

ROOT = Path(__file__).parents[2]
TABLES, OWNER = 12, "0123456789abcdef0123456789abcdef"
WITHIN: Final = 120.0
"""Seconds for each."""


def commands() -> list[list[str]]:
    """Those of the page, in order."""
    text = (ROOT / "docs" / "spark" / "audit.md").read_text()
    return [shlex.split(line, comments=True) for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE)]


ALONE, SUBMITTED, SHOWN = commands()


@pytest.fixture(name="configuration")
def fixture_configuration(tmp_path: Path) -> Path:
    return tmp_path / "sfn.toml"


def configured(file: Path, catalog: many.Running) -> None:
    """One catalog whose tables have the files that they should, and one for the report."""
    for namespace, name in catalog.many.all():
        catalog.many.publish(namespace, name, catalog.many.document(namespace, name, OWNER))
    database = f"sqlite:///{file.with_name('catalog.db')}"
    load_catalog("prod", type="sql", uri=database).create_namespace("ops")
    file.write_text(
        f'[catalogs.lake]\nuri = "{catalog.uri}"\ncatalog_id = "{OWNER}"\n\n'
        f'[catalogs.prod]\ntype = "pyiceberg"\nexclude = ["ops.*"]\n[catalogs.prod.properties]\ntype = "sql"\n'
        f'uri = "{database}"\nwarehouse = "{file.parent.as_uri()}/own"\n\n[stores.lake]\nprefix = "{file.parent}"\n'
    )


def typed(command: list[str], folder: Path) -> list[str]:
    """One with its paths in a folder, and Spark on this machine."""
    words = [word.replace("/warehouse", str(folder)).replace("…", "local[1]") for word in command]
    places = {"sfn.toml": folder, "service/sfn/audit/__main__.py": ROOT}
    typed = [str(places[word] / word) if word in places else word for word in words]
    # Of a dozen tables: each slice takes its time, whatever it has.
    return [*typed, "--slices", "1"] if "--report" in typed else typed


def submitted(command: list[str], folder: Path) -> str:
    """What it prints of one that Spark starts, where Spark's own log is written to a folder."""
    tool, *words = command
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": str(folder)}
    conf = [word for key, value in log.items() for word in ("--conf", f"{key}={value}")]
    told = [str(Path(sys.executable).with_name(tool)), "--driver-java-options", " ".join(FAST), *conf, *words]
    done = subprocess.run(told, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("spark")
def test_they_find_what_is_there(configuration: Path, tmp_path: Path) -> None:
    with surroundings(tmp_path), as_before(), many.running(tmp_path / "c", Many(tmp_path / "lake", TABLES)) as catalog:
        configured(configuration, catalog)
        assert ALONE[:3] == ["python", "-m", "sfn.audit"]
        alone = CliRunner().invoke(app, typed(ALONE, tmp_path)[3:])
        assert (alone.exit_code, f"{TABLES} rows; 0 unchanged" in alone.stdout) == (0, True), alone.output
        (events := tmp_path / "events").mkdir()
        assert f"{TABLES} rows; 0 unchanged" in submitted(typed(SUBMITTED, tmp_path), events)
        # That it runs where spark-submit says, not here.
        assert any('"spark.master":"local[1]"' in file.read_text() for file in events.rglob("*") if file.is_file())
        with_catalog = [*SHOWN[:2], SUBMITTED[-1], *SUBMITTED[-4:-2]]
        for one in (SHOWN, with_catalog):
            shown = CliRunner().invoke(sfn, typed(one, tmp_path)[1:])
            assert (shown.exit_code, "current" in shown.stdout) == (0, True), shown.output
