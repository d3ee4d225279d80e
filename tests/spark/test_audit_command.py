"""The audit command, and the service that it notifies of differences."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner, Result

from sfn.app.catalogs import open_read_only
from sfn.audit.__main__ import app
from sfn.cli.main import app as sfn
from sfn.settings import load
from tests.bench import many, servers
from tests.bench.many import Many
from tests.bench.servers import CATALOG, Setting
from tests.pages.json_keys import JSON_KEYS
from tests.support.logs import as_before

pytestmark = pytest.mark.usefixtures("spark")

TABLES = 40
TIMEOUT = 30.0


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """What the command makes of logging, which is this process's too."""
    with as_before():
        yield


@pytest.fixture(name="made")
def fixture_made(tmp_path: Path) -> Many:
    (tmp_path / "lake").mkdir()
    return Many(tmp_path / "lake", TABLES)


def run_audit_command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


async def catalog_id_of(configuration: Path) -> str:
    """The `catalog_id` of the configured catalog."""
    async with open_read_only(load(configuration, {})) as parts:
        return await parts.catalogs[CATALOG].identity()


def wait_until(until: Callable[[], bool]) -> None:
    """Wait for what the service does in its own time."""
    give_up_at = time.monotonic() + TIMEOUT
    while not until():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)


@pytest.fixture(name="configuration")
def fixture_configuration(tmp_path: Path, made: Many) -> Iterator[Path]:
    """Of a catalog, and of the service, which runs."""
    with (
        many.running(tmp_path / "catalog", made) as catalog,
        servers.service(Setting(tmp_path / "service", catalog.uri, made.warehouse)) as running,
    ):
        file = tmp_path / "service" / "sfn.toml"
        file.write_text(file.read_text().replace("port = 0", f"port = {running.url.rpartition(':')[2]}"))
        yield file


def test_a_catalog_without_files_gets_them_and_the_next_run_finds_nothing(
    configuration: Path, tmp_path: Path, made: Many
) -> None:
    report = tmp_path / "report"
    command = ("--config", configuration, "--report", report, "--slices", 2)
    first = run_audit_command(*command, "--json")
    assert first.exit_code == 0, first.output
    printed = json.loads(first.stdout)
    assert tuple(printed) == JSON_KEYS["audit run"]
    assert (printed["states"], printed["notified"]) == ({"missing": TABLES}, TABLES)
    files = [made.publish(namespace, name, None) for namespace, name in made.all()]
    wait_until(lambda: all(file.exists() for file in files))
    second = run_audit_command(*command)
    assert second.exit_code == 0, second.output
    assert f"{TABLES} rows; {TABLES} unchanged" in second.stdout
    report_output = CliRunner().invoke(sfn, ["audit", "report", str(report), "--json"])
    printed = json.loads(report_output.stdout)
    assert tuple(printed) == JSON_KEYS["audit report"]
    assert [(one["tables"], one["differing"]) for one in printed["trend"]] == [(TABLES, TABLES), (TABLES, 0)]
    assert "current" in CliRunner().invoke(sfn, ["audit", "report", str(report)]).stdout


def test_after_the_hints_and_what_its_letters_call_for_nothing_differs(
    configuration: Path, tmp_path: Path, made: Many
) -> None:
    """What is behind or missing the service mends by itself; what is not ours, or torn, somebody must decide about."""
    ours = anyio.run(catalog_id_of, configuration)
    right = {name: made.document(namespace, name, ours) for namespace, name in made.all()}
    at = {name: made.publish(namespace, name, right[name]) for namespace, name in made.all()}
    behind, missing, foreign, torn, *_ = right
    old = made.pointer("ns0000", behind, 22)
    made.publish("ns0000", behind, replace(right[behind], metadata_file_path=old, ordinal=right[behind].ordinal - 1))
    at[missing].unlink()
    made.publish("ns0000", foreign, replace(right[foreign], catalog_id="another"))
    at[torn].write_text("{ torn")

    def audited() -> dict[str, int]:
        found = run_audit_command("--config", configuration, "--report", tmp_path / "report", "--slices", 2, "--json")
        states: dict[str, int] = json.loads(found.stdout)["states"]
        return states

    def operated(*words: str) -> str:
        done = CliRunner().invoke(sfn, [*words, "--config", str(configuration)])
        assert done.exit_code == 0, done.output
        return done.stdout

    odd = {"behind": 1, "missing": 1, "foreign-catalog": 1, "foreign-file": 1}
    assert audited() == {"current": TABLES - len(odd), **odd}
    wait_until(lambda: old not in at[behind].read_text() and at[missing].exists())
    wait_until(lambda: len(json.loads(operated("dead-letters", "list", "--json"))["dead_letters"]) == 2)
    operated("adopt", CATALOG, "--from", "another", "--yes")
    at[torn].unlink()
    operated("dead-letters", "replay", "--table", f"ns0000.{torn}", "--yes")
    wait_until(lambda: "another" not in at[foreign].read_text() and at[torn].exists())
    assert audited() == {"current": TABLES}


def test_a_service_that_is_away_is_said_and_the_report_is_whole(tmp_path: Path, made: Many) -> None:
    with many.running(tmp_path / "catalog", made) as catalog:
        file = Setting(tmp_path / "service", catalog.uri, made.warehouse).write()
        away = run_audit_command(
            "--config", file, "--report", tmp_path / "report", "--url", "http://127.0.0.1:9", "--slices", 2
        )
    assert away.exit_code == 1
    assert f"{TABLES} notifications failed: http://127.0.0.1:9: expected a running service" in away.stdout
    printed = json.loads(CliRunner().invoke(sfn, ["audit", "report", str(tmp_path / "report"), "--json"]).stdout)
    assert (printed["is_whole"], printed["states"]) == (True, {CATALOG: {"missing": TABLES}})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--slices", "3"), "--slices: expected a power of two up to 65536, found 3"),
        (("--catalog", "lak"), "lake"),
        (("--report", "nowhere:ops.audit"), "--report: expected a configured catalog before the colon (lake)"),
        (("--report", "lake:audit"), "--report: expected a namespace and a name after the colon"),
        (("--sender", "nobody"), "--sender: expected a configured sender (bench), found nobody"),
    ],
)
def test_what_is_typed_wrongly_is_said_before_anything_runs(
    tmp_path: Path, made: Many, words: tuple[str, ...], said: str
) -> None:
    file = Setting(tmp_path / "service", "http://127.0.0.1:9", made.warehouse).write()
    found = run_audit_command("--config", file, "--report", tmp_path / "report", *words)
    assert found.exit_code == 2
    assert said in found.stderr
    assert not (tmp_path / "report").exists()


def test_a_report_that_is_not_there_is_said(tmp_path: Path) -> None:
    found = CliRunner().invoke(sfn, ["audit", "report", str(tmp_path)])
    assert found.exit_code == 1
    assert "expected a report, found none; write one: sfn audit run" in found.stderr


def test_a_report_whose_own_catalog_is_away_is_said(tmp_path: Path, made: Many) -> None:
    file = Setting(tmp_path / "service", "http://127.0.0.1:9", made.warehouse).write()
    written = run_audit_command("--config", file, "--report", "lake:ops.audit", "--no-notify")
    report_output = CliRunner().invoke(sfn, ["audit", "report", "lake:ops.audit", "--config", str(file)])
    for found in (written, report_output):
        assert found.exit_code == 1, found.output
        assert (
            "report lake:ops.audit: expected a catalog or store that accepts it, found ConnectionError" in found.stderr
        )
        assert len(found.stderr.splitlines()) == 1
