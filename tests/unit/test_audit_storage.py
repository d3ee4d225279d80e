"""The storage of an audit report."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

import sfn
from sfn.audit import read, report, storage, writer
from sfn.audit.report import PARTITIONS, SCHEMA, AuditState, ReportRow, RunTotals
from sfn.audit.storage import DirectoryCatalog, ReportLocation, parse_report_location
from sfn.audit.writer import SliceResult, write_data_file
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import SfnError
from sfn.publish.dry_run import DifferenceKind
from sfn.settings import load
from sfn.settings.root import Settings
from sfn.settings.sources import ConfigurationError
from sfn.sfnfile import document

AT = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> ReportLocation:
    return storage.parse_report_location(str(tmp_path / "report"), Settings(), {})


def reported(table: Table, slices: int = 2, at: datetime = AT) -> writer.RunProgress:
    """One run of ten tables, written."""
    run = writer.begin_run(at, slices, ("prod",), writer.list_runs(table), deep=False)
    for number in range(slices):
        write(table, run, number, [entry for entry in entries_of(run) if entry.slice == number])
    return run


def entries_of(run: writer.RunProgress) -> list[ReportRow]:
    """The rows of ten tables."""
    names = [TableIdentifier("prod", ("ns",), f"t{number}") for number in range(10)]
    return [run.run.row(name, AuditState.CURRENT, run.run.began_at) for name in names]


def write(table: Table, run: writer.RunProgress, number: int, entries: list[ReportRow]) -> None:
    file = write_data_file(table.metadata.model_dump_json(), {}, number, entries)
    writer.commit_slices(table, run, [SliceResult(number, RunTotals.of_rows(entries), file)])


def test_whoever_reads_directories_reads_it(place: ReportLocation, tmp_path: Path) -> None:
    reported(storage.open_report(place, 2))
    assert sfn.read(tmp_path / "report").num_rows == 10
    found = sfn.resolve(tmp_path / "report", table="sfn.audit")
    hint = (tmp_path / "report" / "metadata" / "version-hint.text").read_text()
    assert found.metadata_location.endswith(f"/{hint}.metadata.json")


def test_of_two_writers_at_once_one_comes_later_and_nothing_is_lost(place: ReportLocation) -> None:
    mine, theirs = storage.open_report(place, 2), storage.open_report(place, 2)
    reported(theirs)
    reported(mine, at=AT.replace(hour=13))
    found = storage.find_report(place)
    assert found is not None
    assert found.scan().to_arrow().num_rows == 20
    assert [one.is_ended for one in writer.list_runs(found)] == [True, True]


def test_two_that_make_it_at_once_make_one(place: ReportLocation) -> None:
    assert place.directory is not None
    storage.open_report(place, 2)
    with pytest.raises(CommitFailedException):
        DirectoryCatalog(place.directory, {}, {}).create(SCHEMA, PARTITIONS, {})


def test_a_slice_without_tables_is_done_too(place: ReportLocation) -> None:
    table = storage.open_report(place, 2)
    run = writer.begin_run(AT, 2, ("prod",), [], deep=False)
    write(table, run, 0, [])
    write(table, run, 1, [])
    assert [(one.done, one.is_ended) for one in writer.list_runs(table)] == [({0, 1}, True)]


def test_an_unfinished_run_is_gone_on_with_only_where_it_did_the_same(place: ReportLocation) -> None:
    table = storage.open_report(place, 2)
    run = writer.begin_run(AT, 2, ("prod",), [], deep=False)
    write(table, run, 1, [])
    known = writer.list_runs(table)
    found = writer.find_unfinished(known, ("prod",), AT, deep=False)
    assert found is not None
    assert (found.run.name, found.done) == (run.run.name, {1})
    assert writer.find_unfinished(known, ("prod", "other"), AT, deep=False) is None
    assert writer.find_unfinished(known, ("prod",), AT, deep=True) is None
    assert writer.find_unfinished(known, ("prod",), AT + timedelta(hours=48), deep=False) is None


def test_a_file_of_an_older_version_has_fewer_columns(place: ReportLocation) -> None:
    older = Schema(*(field for field in SCHEMA.fields if field.name not in {"etag", "sfn_file", "skip_reason"}))
    assert place.directory is not None
    table = DirectoryCatalog(place.directory, {}, {}).create(older, PARTITIONS, {storage.SLICES_PROPERTY: "2"})
    reported(table)
    (path, *_) = [task.file.file_path for task in table.scan().plan_files()]
    found = report.read_previous_rows(load_file_io({}, path), [path], lambda _catalog, _identifier: True)
    assert found
    assert {one.remembered for one in found.values()} == {None}
    fitted = storage.open_report(place, 2)
    assert set(SCHEMA.column_names) == set(fitted.schema().column_names)


OTHER = Schema(*(one for one in SCHEMA.fields if one.name != "detail"), NestedField(99, "detail", LongType()))


@pytest.mark.parametrize(
    ("schema", "spec", "said"),
    [
        (SCHEMA, PartitionSpec(), "partitions by run and slice, found none"),
        (OTHER, PARTITIONS, "a column detail of type string, found long"),
    ],
)
def test_a_table_that_is_no_report_is_refused(
    place: ReportLocation, schema: Schema, spec: PartitionSpec, said: str
) -> None:
    assert place.directory is not None
    DirectoryCatalog(place.directory, {}, {}).create(schema, spec, {storage.SLICES_PROPERTY: "2"})
    with pytest.raises(SfnError) as refused:
        storage.open_report(place, 2)
    assert said in str(refused.value)
    assert "--report" in str(refused.value)


def test_somebody_else_s_sfn_file_is_left_alone(place: ReportLocation, tmp_path: Path) -> None:
    reported(storage.open_report(place, 2))
    file = tmp_path / "report" / "metadata" / "_sfn" / "sfn_audit_main.ver"
    other = document.render(replace(document.parse(file.read_bytes()), catalog_id="another"))
    file.write_bytes(other)
    with pytest.raises(SfnError, match="expected the SFN file of a report, found one of another"):
        storage.open_report(place, 2)
    assert file.read_bytes() == other


def test_old_runs_go_and_their_files_too(place: ReportLocation, tmp_path: Path) -> None:
    table = storage.open_report(place, 2)
    for day in (1, 2, 3):
        reported(table, at=AT.replace(day=day))
    assert writer.remove_old_runs(table, 2, AT) == 1
    assert [one.run.began_at.day for one in writer.list_runs(table)] == [2, 3]
    assert sfn.read(tmp_path / "report").num_rows == 20
    assert len(list((tmp_path / "report" / "data").glob("run=20261101*/*/*"))) == 0


@pytest.mark.slow
def test_of_a_run_that_ended_one_snapshot_stays_and_says_all_of_it(place: ReportLocation, tmp_path: Path) -> None:
    table = storage.open_report(place, 8)
    for day in (1, 2):
        reported(table, 8, AT.replace(day=day))
    begun = writer.begin_run(AT.replace(day=3), 8, ("prod",), writer.list_runs(table), deep=False)
    write(table, begun, 0, [])
    write(table, begun, 1, [])
    assert writer.remove_old_runs(table, None, AT.replace(day=5)) == 0
    assert len(table.snapshots()) == 4
    known = writer.list_runs(table)
    assert [(one.totals.tables, one.is_ended, len(one.done)) for one in known] == [
        (10, True, 8),
        (10, True, 8),
        (0, False, 2),
    ]
    assert sfn.read(tmp_path / "report").num_rows == 20
    # Each that is left has a list, and all that these name is there.
    lists = {one.manifest_list.removeprefix("file://") for one in table.snapshots()}
    manifests = {
        one.manifest_path.removeprefix("file://") for each in table.snapshots() for one in each.manifests(table.io)
    }
    assert {str(file) for file in (tmp_path / "report" / "metadata").glob("*.avro")} == lists | manifests


def test_what_is_read_names_few_and_counts_all(place: ReportLocation) -> None:
    table = storage.open_report(place, 1)
    reported(table, 1)
    run = writer.begin_run(AT.replace(day=23), 1, ("prod",), writer.list_runs(table), deep=True)
    states = (
        [DifferenceKind.BEHIND] * 3
        + [DifferenceKind.FOREIGN_FILE] * 2
        + [AuditState.UNKNOWN] * 2
        + [AuditState.CURRENT] * 3
    )
    entries = [
        run.run.row(TableIdentifier("prod", ("ns",), f"t{number}"), state, AT) for number, state in enumerate(states)
    ]
    for number, entry in enumerate(entries):
        entry.deep, entry.sfn_age_seconds = "", float(number)
        if entry.state == DifferenceKind.BEHIND:
            entry.lag_seconds, entry.commits_behind, entry.previous_versions_max = 10.0 * number, 1 + number, 4
        entry.error = "away" if entry.state == AuditState.UNKNOWN else None
    entries[-1].deep, entries[-1].unchanged = "a file is missing", True
    write(table, run, 0, entries)
    found = read.read_report(table, "here", None, 1, 5)
    assert found.states == {"prod": {"behind": 3, "current": 3, "foreign-file": 2, "unknown": 2}}
    assert [row.table for row in found.worst_lag] == ["ns.t2"]
    assert ([row.table for row in found.foreign], found.foreign_total) == (["ns.t3"], 2)
    assert ([row.table for row in found.unchecked], found.unchecked_total) == (["ns.t5"], 2)
    assert ([row.table for row in found.near_retention], found.near_retention_total) == (["ns.t1"], 2)
    assert ([row.detail for row in found.missing_files], found.missing_files_total) == (["a file is missing"], 1)
    assert found.oldest_file_seconds == 9
    assert [
        (one.tables, one.differing, one.unchecked, one.unchanged, one.worst_lag_seconds) for one in found.trend
    ] == [(10, 0, 0, 0, None), (10, 5, 2, 1, 20)]


def test_of_two_processes_at_one_run_each_slice_is_in_the_report_once(place: ReportLocation) -> None:
    """The second took the first for killed: a slice that the other has committed meanwhile is left out."""
    mine, theirs = storage.open_report(place, 2), storage.open_report(place, 2)
    run = writer.begin_run(AT, 2, ("prod",), [], deep=False)
    parts = [[entry for entry in entries_of(run) if entry.slice == number] for number in range(2)]
    write(mine, run, 0, parts[0])
    gone_on = writer.find_unfinished(writer.list_runs(theirs.refresh()), ("prod",), AT, deep=False)
    assert gone_on is not None
    write(mine, run, 1, parts[1])
    write(theirs, gone_on, 1, parts[1])
    for table, one in ((mine, run), (theirs, gone_on)):
        assert (len(one.done), one.totals.tables) == (2, 10)
        assert table.refresh().scan().to_arrow().num_rows == 10
    assert [(one.totals.tables, one.is_ended) for one in writer.list_runs(mine)] == [(10, True)]


def test_whom_the_service_was_not_told_of_is_counted_whichever_slice_another_has_committed(
    place: ReportLocation,
) -> None:
    table = storage.open_report(place, 2)
    run = writer.begin_run(AT, 2, ("prod",), [], deep=False)
    write(table, run, 0, [])
    gone_on = writer.find_unfinished(writer.list_runs(table), ("prod",), AT, deep=False)
    assert gone_on is not None
    writer.commit_slices(table, gone_on, [SliceResult(number, RunTotals(), None) for number in (0, 1)], unnotified=3)
    assert [(one.totals.unnotified, one.is_ended) for one in writer.list_runs(table)] == [(3, True)]


def test_a_run_that_is_under_way_loses_nothing_to_another_that_ended(place: ReportLocation) -> None:
    table = storage.open_report(place, 2)
    under_way = writer.begin_run(AT, 2, ("other",), [], deep=False)
    write(table, under_way, 0, [])
    late = storage.open_report(place, 2)
    reported(table, at=AT.replace(hour=13))
    assert writer.remove_old_runs(table, 1, AT.replace(hour=14)) == 0
    assert len(table.snapshots()) == 3
    write(late, under_way, 1, [])
    assert [one.is_ended for one in writer.list_runs(late)] == [True, True]
    writer.remove_old_runs(late, 1, AT.replace(hour=15))
    assert len(late.snapshots()) == 2


def test_runs_of_which_no_snapshot_tells_any_more_go_too(place: ReportLocation) -> None:
    """Whoever maintains the catalog's tables may have removed them."""
    table = storage.open_report(place, 2)
    for day in (1, 2, 3):
        reported(table, at=AT.replace(day=day))
    current = table.current_snapshot()
    assert current is not None
    table.maintenance.expire_snapshots().by_ids(
        [one.snapshot_id for one in table.snapshots() if one != current]
    ).commit()
    assert writer.remove_old_runs(table, 1, AT) == 2
    assert table.scan().to_arrow().num_rows == 10


def test_old_runs_stay_while_a_tag_may_need_them(place: ReportLocation) -> None:
    table = storage.open_report(place, 2)
    for day in (1, 2):
        reported(table, at=AT.replace(day=day))
    current = table.current_snapshot()
    assert current is not None
    table.manage_snapshots().create_tag(current.snapshot_id, "kept").commit()
    assert writer.remove_old_runs(table, 1, AT) == 0


ASSUMED = 'auth = "sigv4"\nsigning_region = "eu-west-1"\nsigning_name = "glue"\nrole_arn = "arn:aws:iam::1:role/x"'


def properties(folder: Path, more: str) -> dict[str, Any]:
    file = folder / "sfn.toml"
    file.write_text(f'[catalogs.prod]\nuri = "https://catalog.example/iceberg"\nwarehouse = "w"\n{more}\n')
    return dict(parse_report_location("prod:ops.report", load(file, {}), {"s3.region": "eu"}).properties)


def test_whom_it_trusts(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.touch()
    found = properties(tmp_path, f'ca_file = "{authority}"\ntoken = "secret"')
    assert found == {
        "type": "rest",
        "uri": "https://catalog.example/iceberg",
        "warehouse": "w",
        "token": "secret",
        "ssl": {"cabundle": str(authority)},
        "s3.region": "eu",
    }


def test_who_asks_by_google(tmp_path: Path) -> None:
    found = properties(tmp_path, 'auth = "google"')["auth"]
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    assert found == {"type": "google", "google": {"credentials_path": None, "scopes": scopes}}


def test_who_asks_by_a_role_cannot(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match="--report: expected a catalog that PyIceberg can open, or a directory"
    ):
        properties(tmp_path, ASSUMED)
