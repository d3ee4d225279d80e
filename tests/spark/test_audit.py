"""An audit on Spark, of a catalog and of files on disk: what it finds, spares, resumes and survives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sfn
from sfn.audit import read, storage
from sfn.audit.spark_job import (
    MAX_FAILURES_IN_A_ROW,
    AuditFindings,
    AuditNotification,
    AuditRequest,
    EventPoster,
    run_audit,
    spark_error_text,
)
from sfn.audit.storage import parse_report_location
from sfn.cli.client import EventAccess, ServiceAccess
from sfn.demo.environment import RestCatalogServer
from sfn.settings import load
from sfn.settings.root import Settings
from tests.bench import many
from tests.bench.many import Many, Running
from tests.spark.tables import publish

TABLES, SLICES = 120, 4


@dataclass(frozen=True, slots=True)
class Audited:
    """A catalog whose tables all have the right files, and where reports of it go."""

    catalog: Running
    folder: Path

    @property
    def settings(self) -> Settings:
        file = self.folder / "sfn.toml"
        file.write_text(
            f'[catalogs.big]\nuri = "{self.catalog.uri}"\ncatalog_id = "big"\n\n'
            f'[stores.lake]\nprefix = "{self.catalog.many.warehouse}"\n'
        )
        return load(file, {})

    @property
    def audit_request(self) -> AuditRequest:
        settings = self.settings
        report = parse_report_location(str(self.folder / "report"), settings, {})
        return AuditRequest(settings, tuple(settings.catalogs), report, SLICES, None, 0.5)

    def rows(self, columns: tuple[str, ...] = ("identifier", "state")) -> list[tuple[object, ...]]:
        """What the report has of the newest run."""
        table = storage.find_report(self.audit_request.report)
        assert table is not None
        run = read.read_report(table, "", None, 1, 1).run
        found = table.scan(row_filter=f"run = '{run}'").to_arrow().select(columns).to_pylist()
        return sorted((tuple(row.values()) for row in found), key=str)


@pytest.fixture(name="audited")
def fixture_audited(tmp_path: Path) -> Iterator[Audited]:
    made = Many(tmp_path / "lake", TABLES, is_odd=False)
    with many.running(tmp_path / "catalog", made) as catalog:
        for namespace, name in made.all():
            made.publish(namespace, name, made.document(namespace, name, "big"))
        yield Audited(catalog, tmp_path)


def run(spark: SparkSession, audit_request: AuditRequest, poster: EventPoster | None = None) -> AuditFindings:
    return run_audit(spark, audit_request, poster, lambda _done, _total: None)


def test_what_is_right_is_current_and_the_next_run_is_told_so(spark: SparkSession, audited: Audited) -> None:
    first = run(spark, audited.audit_request)
    assert (first.states, first.unchanged, first.failures, first.failed) == ({"current": TABLES}, 0, [], {})
    second = run(spark, audited.audit_request)
    assert (second.states, second.unchanged) == ({"current": TABLES}, TABLES)
    assert audited.catalog.asked() == {"loads": 2 * TABLES, "unchanged": TABLES}
    assert sfn.read(audited.folder / "report").num_rows == 2 * TABLES  # by its own SFN file, as any table


def test_each_planted_fault_is_found_and_nothing_else(spark: SparkSession, audited: Audited) -> None:
    made = audited.catalog.many
    expected = {}
    run(spark, audited.audit_request)
    for at, (namespace, name) in enumerate(made.all()):
        right = made.document(namespace, name, "big")
        match at:
            case 7:
                made.publish(namespace, name, replace(right, metadata_file_path=made.pointer(namespace, name, 22)))
                expected[name] = "behind"
            case 20:
                made.publish(namespace, name, right).unlink()
                expected[name] = "missing"
            case 60:
                made.publish(namespace, name, replace(right, catalog_id="another"))
                expected[name] = "foreign-catalog"
            case 119:
                made.publish(namespace, name, right).write_text("{ torn")
                expected[name] = "foreign-file"
            case _:
                pass
    found = run(spark, audited.audit_request)
    states = {f"{identifier}": state for identifier, state in audited.rows()}
    assert {name: states.pop(f"ns0000.{name}") for name in expected} == expected
    assert set(states.values()) == {"current"}
    assert found.unchanged == TABLES - len(expected)
    behind = [
        row for row in audited.rows(("identifier", "commits_behind", "previous_versions_max", "notified")) if row[1]
    ]
    assert behind == [("ns0000.t0000007", 3, None, True)]


def test_a_run_that_was_ended_goes_on_where_it_was(spark: SparkSession, audited: Audited) -> None:
    class Killed(Exception):
        pass

    def stop_early(done: int, _total: int) -> None:
        assert done
        raise Killed

    with pytest.raises(Killed):
        run_audit(spark, replace(audited.audit_request, slices=8, rate=40.0), None, stop_early)
    done = sfn.read(audited.folder / "report").num_rows
    assert 0 < done < TABLES
    rest = run(spark, audited.audit_request)
    assert rest.resumed_slices
    assert rest.states == {"current": TABLES - done}
    # What was under way when it was ended was in vain.
    assert audited.catalog.asked()["loads"] <= 1.6 * TABLES
    assert [row[1] for row in audited.rows()] == ["current"] * TABLES
    assert len({row[0] for row in audited.rows()}) == TABLES


def test_a_file_of_a_table_that_is_gone_is_found(spark: SparkSession, audited: Audited) -> None:
    """The service may have been away for longer than the catalog reports a drop."""
    run(spark, audited.audit_request)
    fewer = Many(audited.catalog.many.warehouse, TABLES - 1)
    with many.running(audited.folder / "later", fewer) as catalog:
        later = replace(audited, catalog=catalog)
        found = run(spark, later.audit_request)
        assert found.states == {"current": TABLES - 1, "gone": 1}
        assert ("ns0000.t0000119", "gone") in later.rows()


def test_what_cannot_be_looked_at_is_said_and_all_else_is(spark: SparkSession, audited: Audited) -> None:
    odd = replace(audited.catalog.many, is_odd=True)
    with many.running(audited.folder / "odd", odd) as catalog:
        strange = replace(audited, catalog=catalog)
        found = run(spark, strange.audit_request)
    assert found.states == {"current": TABLES, "withheld": 1, "unknown": 1}
    said = dict(found.failures)
    assert "ForbiddenException" in said["big:forbidden"]
    assert "garbled/tables/garbage" in said["big:garbled.garbage"]


def test_a_catalog_that_is_away_costs_the_others_nothing(spark: SparkSession, audited: Audited) -> None:
    settings = audited.settings
    away = settings.catalogs["big"].model_copy(update={"uri": "http://127.0.0.1:9"})
    both = settings.model_copy(update={"catalogs": {**settings.catalogs, "away": away}})
    found = run(spark, replace(audited.audit_request, settings=both, catalogs=("big", "away")))
    assert found.states == {"current": TABLES, "unlisted": 1}
    ((name, why),) = found.failures
    assert name == "away:"
    assert "127.0.0.1:9" in why


def test_a_catalog_that_goes_away_in_the_middle_is_waited_for_once(spark: SparkSession, audited: Audited) -> None:
    """The tables of before are all rows; of those since it is said why there is nothing of them."""
    run(spark, audited.audit_request)
    gone = replace(audited.audit_request, settings=audited.settings)
    with many.running(audited.folder / "short", audited.catalog.many) as catalog:
        settings = replace(audited, catalog=catalog).settings
    # It answered the listing of the run before; now nothing does.
    found = run(spark, replace(gone, settings=settings))
    assert found.failed == {}
    assert found.states == {"unknown": TABLES, "unlisted": 1}
    # The next run still has the answers of the first one, and takes the catalog as a whole for no table.
    later = run(spark, audited.audit_request)
    assert (later.states, later.unchanged) == ({"current": TABLES}, TABLES)


def test_a_report_of_an_older_version_gets_the_columns_that_it_lacks(spark: SparkSession, audited: Audited) -> None:
    run(spark, audited.audit_request)
    table = storage.find_report(audited.audit_request.report)
    assert table is not None
    with table.update_schema(allow_incompatible_changes=True) as update:
        for column in ("etag", "lifetime_seconds", "deep"):
            update.delete_column(column)
    assert run(spark, audited.audit_request).states == {"current": TABLES}
    assert audited.rows(("deep", "lifetime_seconds")) == [(None, None)] * TABLES


def test_a_disk_that_takes_nothing_more_is_said_and_made_up_for(spark: SparkSession, audited: Audited) -> None:
    table = storage.open_report(audited.audit_request.report, SLICES)
    with table.transaction() as change:
        change.set_properties({"write.data.path": "file:///dev/full"})
    found = run(spark, audited.audit_request)
    assert len(found.failed) == SLICES
    assert all("/dev/full" in why for why in found.failed.values())
    with table.transaction() as change:
        change.remove_properties("write.data.path")
    assert run(spark, audited.audit_request).states == {"current": TABLES}


def test_old_runs_are_forgotten_with_their_files(spark: SparkSession, audited: Audited) -> None:
    for _ in range(3):
        run(spark, replace(audited.audit_request, keep=2))
    table = storage.find_report(audited.audit_request.report)
    assert table is not None
    assert len(read.read_report(table, "", None, 1, 9).trend) == 2
    assert len(list((audited.folder / "report" / "data").glob("*/*/*.parquet"))) == 2 * SLICES
    assert sfn.read(audited.folder / "report").num_rows == 2 * TABLES


NAMESPACE, OWNER = "audited", "0123456789abcdef0123456789abcdef"


@pytest.fixture(name="deep_request", scope="module")
def fixture_deep_request(
    spark: SparkSession, catalog: RestCatalogServer, tmp_path_factory: pytest.TempPathFactory
) -> AuditRequest:
    """Of three tables: one is whole, one lacks a data file, one has no rows."""
    spark.sql(f"CREATE NAMESPACE lake.{NAMESPACE}")
    directories = []
    for name in ("whole", "broken", "empty"):
        spark.sql(f"CREATE TABLE lake.{NAMESPACE}.{name} (id BIGINT) USING iceberg")
        if name != "empty":
            spark.sql(f"INSERT INTO lake.{NAMESPACE}.{name} VALUES (1)")
        with catalog.client() as client:
            directories.append(publish(client, f"{NAMESPACE}.{name}"))
        if name == "broken":
            (file,) = Path(directories[-1], "data").glob("*.parquet")
            file.unlink()
    configuration = tmp_path_factory.mktemp("audit") / "sfn.toml"
    configuration.write_text(
        f'[catalogs.prod]\nuri = "{catalog.uri}"\ncatalog_id = "{OWNER}"\ninclude = ["{NAMESPACE}.*"]\n\n'
        f'[stores.lake]\nprefix = "{Path(directories[0]).parents[1]}"\n'
    )
    settings = load(configuration, {})
    return AuditRequest(
        settings, ("prod",), parse_report_location("prod:ops.report", settings, {}), 2, 200.0, 5.0, deep=True
    )


def test_the_report_has_both_pointers_and_what_a_snapshot_needs_that_is_not_there(
    spark: SparkSession, deep_request: AuditRequest
) -> None:
    found = run_audit(spark, deep_request, None, lambda _done, _total: None)
    assert (found.states, found.failures, found.failed) == ({"current": 3}, [], {})
    rows = spark.sql("SELECT * FROM lake.ops.report").collect()
    assert all(row.metadata_location == row.sfn_metadata_location for row in rows)
    deep = {row.identifier.removeprefix(f"{NAMESPACE}."): row.deep for row in rows}
    assert (deep.pop("whole"), deep.pop("empty")) == ("", "")
    assert "expected a file, found none" in deep["broken"]


LOST_WORKER = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.runJob.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0: Python worker exited (crashed)
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.io.EOFException
"""
PYTHON_ERROR = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
ModuleNotFoundError: No module named 'sfn'

JVM stacktrace:
org.apache.spark.SparkException
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOST_WORKER, "Job aborted due to stage failure: Lost task 0.0: Python worker exited (crashed)"),
        (PYTHON_ERROR, "RuntimeError: ModuleNotFoundError: No module named 'sfn'"),
        ("", "RuntimeError: no reason"),
    ],
)
def test_the_line_that_says_why_and_no_stack(text: str, expected: str) -> None:
    assert spark_error_text(RuntimeError(text)).endswith(expected)


class ClosingServer:
    """Takes connections, and ends each at once; counts them."""

    def __init__(self) -> None:
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection:
                if connection.recv(1) == b".":
                    return
                self.connections += 1

    def close(self) -> None:
        with socket.create_connection(self._listening.getsockname()) as last:
            last.send(b".")
        self._thread.join()
        self._listening.close()


@pytest.fixture(name="closing_server")
def fixture_closing_server() -> Iterator[ClosingServer]:
    one = ClosingServer()
    yield one
    one.close()


def test_who_takes_nothing_is_asked_no_more(closing_server: ClosingServer) -> None:
    catalogs = [f"c{number}" for number in range(4 * MAX_FAILURES_IN_A_ROW)]
    poster = EventPoster(
        {catalog: EventAccess(ServiceAccess(closing_server.url), None, catalog) for catalog in catalogs}
    )
    hints = [AuditNotification(catalog, ("ns",), f"t{number}", None) for catalog in catalogs for number in range(2)]
    assert poster.post(hints) == len(hints)
    connections = closing_server.connections
    assert 0 < connections < len(catalogs)
    assert poster.post(hints) == len(hints)
    assert closing_server.connections == connections
    assert closing_server.url in poster.error
