"""An audit on Spark, of a catalog and of files on disk: what it finds, spares, resumes and survives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sfn
from sfn.audit import read, storage
from sfn.audit.spark_job import AuditFindings, AuditRequest, EventPoster, run_audit
from sfn.audit.storage import parse_report_location
from sfn.settings import load
from sfn.settings.root import Settings
from tests.bench import many
from tests.bench.many import Many, Running

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
    def order(self) -> AuditRequest:
        settings = self.settings
        report = parse_report_location(str(self.folder / "report"), settings, {})
        return AuditRequest(settings, tuple(settings.catalogs), report, SLICES, None, 0.5)

    def rows(self, columns: tuple[str, ...] = ("identifier", "state")) -> list[tuple[object, ...]]:
        """What the report has of the newest run."""
        table = storage.find_report(self.order.report)
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


def run(spark: SparkSession, order: AuditRequest, teller: EventPoster | None = None) -> AuditFindings:
    return run_audit(spark, order, teller, lambda _done, _total: None)


def test_what_is_right_is_current_and_the_next_run_is_told_so(spark: SparkSession, audited: Audited) -> None:
    first = run(spark, audited.order)
    assert (first.states, first.unchanged, first.failures, first.failed) == ({"current": TABLES}, 0, [], {})
    second = run(spark, audited.order)
    assert (second.states, second.unchanged) == ({"current": TABLES}, TABLES)
    assert audited.catalog.asked() == {"loads": 2 * TABLES, "unchanged": TABLES}
    assert sfn.read(audited.folder / "report").num_rows == 2 * TABLES  # by its own SFN file, as any table


def test_each_planted_fault_is_found_and_nothing_else(spark: SparkSession, audited: Audited) -> None:
    made = audited.catalog.many
    expected = {}
    run(spark, audited.order)
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
    found = run(spark, audited.order)
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

    def soon(done: int, _total: int) -> None:
        assert done
        raise Killed

    with pytest.raises(Killed):
        run_audit(spark, replace(audited.order, slices=8, rate=40.0), None, soon)
    done = sfn.read(audited.folder / "report").num_rows
    assert 0 < done < TABLES
    rest = run(spark, audited.order)
    assert rest.resumed_slices
    assert rest.states == {"current": TABLES - done}
    # What was under way when it was ended was in vain.
    assert audited.catalog.asked()["loads"] <= 1.6 * TABLES
    assert [row[1] for row in audited.rows()] == ["current"] * TABLES
    assert len({row[0] for row in audited.rows()}) == TABLES


def test_a_file_of_a_table_that_is_gone_is_found(spark: SparkSession, audited: Audited) -> None:
    """The service may have been away for longer than the catalog tells of a drop."""
    run(spark, audited.order)
    fewer = Many(audited.catalog.many.warehouse, TABLES - 1)
    with many.running(audited.folder / "later", fewer) as catalog:
        later = replace(audited, catalog=catalog)
        found = run(spark, later.order)
        assert found.states == {"current": TABLES - 1, "gone": 1}
        assert ("ns0000.t0000119", "gone") in later.rows()


def test_what_cannot_be_looked_at_is_said_and_all_else_is(spark: SparkSession, audited: Audited) -> None:
    odd = replace(audited.catalog.many, is_odd=True)
    with many.running(audited.folder / "odd", odd) as catalog:
        strange = replace(audited, catalog=catalog)
        found = run(spark, strange.order)
    assert found.states == {"current": TABLES, "withheld": 1, "unknown": 1}
    said = dict(found.failures)
    assert "ForbiddenException" in said["big:forbidden"]
    assert "garbled/tables/garbage" in said["big:garbled.garbage"]


def test_a_catalog_that_is_away_costs_the_others_nothing(spark: SparkSession, audited: Audited) -> None:
    settings = audited.settings
    away = settings.catalogs["big"].model_copy(update={"uri": "http://127.0.0.1:9"})
    both = settings.model_copy(update={"catalogs": {**settings.catalogs, "away": away}})
    found = run(spark, replace(audited.order, settings=both, catalogs=("big", "away")))
    assert found.states == {"current": TABLES, "unlisted": 1}
    ((name, why),) = found.failures
    assert name == "away:"
    assert "127.0.0.1:9" in why


def test_a_catalog_that_goes_away_in_the_middle_is_waited_for_once(spark: SparkSession, audited: Audited) -> None:
    """The tables of before are all rows; of those since it is said why there is nothing of them."""
    run(spark, audited.order)
    gone = replace(audited.order, settings=audited.settings)
    with many.running(audited.folder / "short", audited.catalog.many) as catalog:
        settings = replace(audited, catalog=catalog).settings
    # It answered the listing of the run before; now nothing does.
    found = run(spark, replace(gone, settings=settings))
    assert found.failed == {}
    assert found.states == {"unknown": TABLES, "unlisted": 1}
    # The next one still has what the first was told, and takes the catalog as a whole for no table.
    later = run(spark, audited.order)
    assert (later.states, later.unchanged) == ({"current": TABLES}, TABLES)


def test_a_report_of_an_older_version_gets_the_columns_that_it_lacks(spark: SparkSession, audited: Audited) -> None:
    run(spark, audited.order)
    table = storage.find_report(audited.order.report)
    assert table is not None
    with table.update_schema(allow_incompatible_changes=True) as update:
        for column in ("etag", "lifetime_seconds", "deep"):
            update.delete_column(column)
    assert run(spark, audited.order).states == {"current": TABLES}
    assert audited.rows(("deep", "lifetime_seconds")) == [(None, None)] * TABLES


def test_a_disk_that_takes_nothing_more_is_said_and_made_up_for(spark: SparkSession, audited: Audited) -> None:
    table = storage.open_report(audited.order.report, SLICES)
    with table.transaction() as change:
        change.set_properties({"write.data.path": "file:///dev/full"})
    found = run(spark, audited.order)
    assert len(found.failed) == SLICES
    assert all("/dev/full" in why for why in found.failed.values())
    with table.transaction() as change:
        change.remove_properties("write.data.path")
    assert run(spark, audited.order).states == {"current": TABLES}


def test_old_runs_are_forgotten_with_their_files(spark: SparkSession, audited: Audited) -> None:
    for _ in range(3):
        run(spark, replace(audited.order, keep=2))
    table = storage.find_report(audited.order.report)
    assert table is not None
    assert len(read.read_report(table, "", None, 1, 9).trend) == 2
    assert len(list((audited.folder / "report" / "data").glob("*/*/*.parquet"))) == 2 * SLICES
    assert sfn.read(audited.folder / "report").num_rows == 2 * TABLES
