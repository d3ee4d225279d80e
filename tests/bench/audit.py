"""`python -m tests.bench.audit`: an audit of very many tables, beside PyIceberg; 1 where a goal is missed.

The catalog is `tests.bench.many`, on this machine, and shares its processors; our files lie on its disk.
Each audit runs in a process of its own: `python -m tests.bench.audit one CONFIGURATION REPORT FOLDER`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from pyiceberg.catalog import load_catalog

from sfn.audit.spark_job import AuditRequest, run_audit
from sfn.audit.storage import parse_report_location
from sfn.settings import load
from tests.bench import many, record
from tests.bench.many import Many, Running
from tests.bench.record import ROOT, Figure, Goal, Run, Unmeasured
from tests.spark.session import spark_session, spark_settings

TABLES, RUNS, SERIAL = 100_000, 3, 10_000
"""Of the catalog; paired runs; tables that PyIceberg loads one after the other."""
CATALOG: Final = "big"

_WITHIN: Final = 900.0
"""Seconds for one audit."""
_TICK: Final = 0.05

Say = Callable[[str], None]

SLICES = 32
NO_CATALOG = "http://127.0.0.1:1"


@dataclass(frozen=True, slots=True)
class Lake:
    """The catalog and its tables.

    Attributes:
        folder: for all that is written.
        catalog: its process.
        configuration: a file that names it.
    """

    folder: Path
    catalog: Running
    configuration: Path


def measure(tables: int, runs: int, folder: Path, tell: Say) -> list[Figure]:
    """Look at all tables in each of the ways, a number of times."""
    with _lake(tables, folder, tell) as lake:
        rates = [_rates(lake, number, tell) for number in range(runs)]
        short = tables < TABLES or runs < RUNS
        figures = [
            _figure("reconcile_vs_pyiceberg", rates, "reconcile", "serial", Goal("ratio", ">=", 7), short=short),
            _figure("spark_audit_vs_pyiceberg", rates, "audit", "serial", Goal("ratio", ">=", 5), short=short),
            _figure("audit_unchanged_vs_changed", rates, "unchanged", "audit", Goal("ratio", ">=", 1.3), short=short),
        ]
        return [*figures, _resumed(lake, tables, tell, short=short), _memory(lake, tables, tell, short=short)]


def _figure(name: str, rates: list[dict[str, float]], ours: str, theirs: str, goal: Goal, *, short: bool) -> Figure:
    return Figure(
        name=name,
        unit="tables/s",
        runs=[Run(one[ours], one[theirs]) for one in rates],
        compared_with={"serial": "PyIceberg's load_table, one after the other", "audit": "a first audit"}[theirs],
        goal=goal,
        short=short,
    )


def _rates(lake: Lake, number: int, tell: Say) -> dict[str, float]:
    """Tables a second, each way."""
    made = lake.catalog.many
    tell(f"run {number + 1}: PyIceberg, one table after the other")
    serial = _serial(lake)
    tell(f"run {number + 1}: sfn reconcile --dry-run, {made.tables:,} tables")
    reconcile = _reconcile(lake)
    tell(f"run {number + 1}: an audit on Spark")
    report = lake.folder / f"report-{number}"
    first = _audit(lake, report)
    tell(f"run {number + 1}: the same, of tables that are unchanged")
    second = _audit(lake, report)
    if second["unchanged"] != made.tables:
        raise Unmeasured(f"of {made.tables} unchanged tables {second['unchanged']} were taken for such")
    rates = {"audit": made.tables / first["seconds"], "unchanged": made.tables / second["seconds"]}
    return {"serial": serial, "reconcile": reconcile, **rates}


def _serial(lake: Lake) -> float:
    catalog = load_catalog(CATALOG, type="rest", uri=lake.catalog.uri)
    names = [name for name, _ in zip(lake.catalog.many.all(), range(SERIAL), strict=False)]
    began = time.perf_counter()
    for name in names:
        catalog.load_table(name)
    return len(names) / (time.perf_counter() - began)


def _reconcile(lake: Lake) -> float:
    """All of the command: from its start to its end."""
    command = [sys.executable, "-m", "sfn", "reconcile", "--dry-run", "--config", str(lake.configuration)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WITHIN)
    took = time.perf_counter() - began
    if done.returncode != 0:
        raise Unmeasured(f"sfn reconcile: {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return lake.catalog.many.tables / took


def _command(lake: Lake, report: Path) -> list[str]:
    folder = lake.folder / f"spark-{time.monotonic_ns()}"
    return [sys.executable, "-m", "tests.bench.audit", "one", str(lake.configuration), str(report), str(folder)]


def _audit(lake: Lake, report: Path) -> Mapping[str, Any]:
    """One in a process of its own; the time is that of the audit, in a session that is there."""
    done = subprocess.run(
        _command(lake, report), capture_output=True, text=True, check=False, timeout=_WITHIN, cwd=ROOT, env=_environ()
    )
    if done.returncode != 0:
        raise Unmeasured(f"the audit ended with {done.returncode}: {done.stderr[-2_000:]}")
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["failed"] or found["states"].keys() != {"current"}:
        raise Unmeasured(f"the audit found {found['states']}, and no rows of {found['failed']}")
    return found


def _environ() -> dict[str, str]:
    ours = dict(os.environ)  # noqa: TID251 - a child's
    return {**ours, "PYTHONPATH": os.pathsep.join(path for path in (str(ROOT), ours.get("PYTHONPATH")) if path)}


def _resumed(lake: Lake, tables: int, tell: Say, *, short: bool) -> Figure:
    """How many of all tables are loaded once more, where a run is killed at half."""
    tell("an audit that is killed at half")
    report, before = lake.folder / "killed", lake.catalog.asked()["loads"]
    with (lake.folder / "killed.log").open("wb") as log:
        process = subprocess.Popen(
            _command(lake, report), stdout=log, stderr=log, cwd=ROOT, env=_environ(), start_new_session=True
        )
        while lake.catalog.asked()["loads"] - before < tables / 2:
            if process.poll() is not None:
                raise Unmeasured(f"it ended with {process.returncode} before it was killed")
            time.sleep(_TICK)
        os.killpg(process.pid, 9)
        process.wait()
    time.sleep(1)
    killed = lake.catalog.asked()["loads"]
    tell("and the next one, which goes on with it")
    found = _audit(lake, report)
    again = (lake.catalog.asked()["loads"] - killed) / tables
    note = f"killed with {(killed - before) / tables:.0%} loaded; {found['went_on']} slices were in the report"
    goal = Goal("value", "<=", 0.6)
    return Figure(name="audit_resumed_loads", unit="of all", runs=[Run(again)], goal=goal, short=short, note=note)


def _memory(lake: Lake, tables: int, tell: Say, *, short: bool) -> Figure:
    """How much more memory the driver takes for ten times as many tables."""
    tell("an audit of a tenth of the tables")
    fewer = Many(lake.catalog.many.warehouse, tables // 10)
    with many.running(lake.folder / "fewer", fewer) as catalog:
        part = Lake(lake.folder, catalog, _configured(lake.folder / "fewer.toml", catalog))
        least = _audit(part, lake.folder / "report-of-fewer")["rss"]
    tell("and once more of all")
    most = _audit(lake, lake.folder / "report-of-all")["rss"]
    return Figure(
        name="audit_driver_rss",
        unit="MB more",
        runs=[Run((most - least) / 2**20)],
        goal=Goal("value", "<", 50),
        short=short,
        note=f"{least >> 20} MB at {tables // 10:,} tables, {most >> 20} MB at {tables:,}: the driver's Python",
    )


@contextmanager
def _lake(tables: int, folder: Path, tell: Say) -> Iterator[Lake]:
    made = Many(folder / "lake", tables)
    tell(f"{tables:,} tables with their files")
    for namespace, name in made.all():
        made.publish(namespace, name, made.document(namespace, name, CATALOG))
    os.sync()  # or the disk would be busy with them for minutes of what is measured
    with many.running(folder / "catalog", made) as catalog:
        yield Lake(folder, catalog, _configured(folder / "sfn.toml", catalog))


def _configured(file: Path, catalog: Running) -> Path:
    stores = f'[stores.lake]\nprefix = "{catalog.many.warehouse}"\n'
    file.write_text(f'[catalogs.{CATALOG}]\nuri = "{catalog.uri}"\ncatalog_id = "{CATALOG}"\n\n{stores}')
    return file


def audit_once(configuration: Path, report: str, folder: Path) -> None:
    """Audit all catalogs on two processors; print seconds, tables, how many were unchanged, and memory in bytes."""
    folder.mkdir(parents=True)
    known = load(configuration, {})
    order = AuditRequest(known, tuple(known.catalogs), parse_report_location(report, known, {}), SLICES, None, 60.0)
    # A JVM as it is outside of tests.
    told = {**spark_settings(folder, NO_CATALOG), "spark.driver.extraJavaOptions": "-Duser.timezone=UTC"}
    with spark_session(folder, told) as spark:
        spark.range(2).collect()
        driver, most = psutil.Process(), 0

        def moved(_done: int, _total: int) -> None:
            nonlocal most
            most = max(most, driver.memory_info().rss)

        began = time.perf_counter()
        found = run_audit(spark, order, None, moved)
        took = time.perf_counter() - began
    said = {"seconds": took, "tables": sum(found.states.values()), "unchanged": found.unchanged, "rss": most}
    print(json.dumps({**said, "states": found.states, "failed": found.failed, "went_on": found.resumed_slices}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        audit_once(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
        sys.exit()
    numbers = {"tables": (TABLES, "of the catalog"), "runs": (RUNS, "paired runs")}
    sys.exit(record.ran("tests.bench.audit", numbers, lambda chosen, *rest: measure(chosen.tables, chosen.runs, *rest)))
