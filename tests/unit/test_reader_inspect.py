"""The walk from the metadata to the data: all that is there, no more than is wanted, and what is broken is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.types import DateType, LongType

import sfn
from sfn.errors import CommitNotFound
from sfn.reader import inspect, pyiceberg_files, verify
from sfn.reader.inspect import MetadataWalk, WalkLimits
from sfn.reader.table import load_metadata, metadata_at_ref
from tests.support.real_table import RealTable
from tests.support.table_directory import OTHER_UUID, Directory


def walked(made: RealTable, extent: WalkLimits | None = None, ref: str = "main") -> inspect.MetadataNode:
    found = sfn.resolve(made.directory, ref=ref)
    whole = load_metadata(found)
    head = metadata_at_ref(whole, ref, found.metadata_location).current_snapshot_id
    return MetadataWalk(found.metadata_location, whole, found.files).metadata(head, extent or WalkLimits(100))


def snapshot(seen: inspect.MetadataNode) -> inspect.SnapshotContents:
    (one,) = [one.contents for one in seen.snapshots if one.contents is not None]
    return one


def found(made: RealTable, *, deep: bool = True, ref: str = "main") -> list[verify.VerifyFinding]:
    return verify.verify(
        lambda: sfn.resolve(made.directory, ref=ref), deep=deep, on_progress=lambda _done, _total: None
    )[1]


def wrong(made: RealTable, *, deep: bool = True, ref: str = "main") -> list[str]:
    return [f"{one.what}: {one.text}" for one in found(made, deep=deep, ref=ref) if not one.ok]


def test_everything_is_in_the_tree(made: RealTable) -> None:
    seen = walked(made, WalkLimits(100, files=True))
    assert seen.columns == ["id: long", "day: string", "note: string"]
    assert seen.partition_fields == ["day: identity"]
    assert [(ref.name, ref.type) for ref in seen.refs] == [("audit", "branch"), ("main", "branch"), ("v1", "tag")]
    assert {one.snapshot_id: one.refs for one in seen.snapshots} == {
        made.tagged: ["v1"],
        made.main: ["main"],
        made.audit: ["audit"],
    }
    manifests = snapshot(seen).manifests
    assert [one.partitions for one in manifests] == [
        [inspect.PartitionBounds("day", "2026-11-02", "2026-11-02", has_null=False)],
        [inspect.PartitionBounds("day", "2026-11-01", "2026-11-01", has_null=False)],
    ]
    sizes = {f"file://{file}": file.stat().st_size for file in made.files("parquet")}
    for one in manifests:
        (file,), (kind,) = one.files, one.kinds
        assert (file.content, file.format, file.records, file.bytes) == ("data", "parquet", 1, sizes[file.path])
        assert (kind.content, kind.format, kind.files, kind.records, kind.bytes) == (
            *("data", "parquet", 1, 1),
            sizes[file.path],
        )
    assert manifests[0].files[0].partition == {"day": "2026-11-02"}
    assert seen.problems == []


@pytest.mark.parametrize(("ref", "days"), [("audit", {"2026-11-01", "2026-11-03"}), ("v1", {"2026-11-01"})])
def test_a_ref_is_walked_from_its_own_head(made: RealTable, ref: str, days: set[str]) -> None:
    seen = snapshot(walked(made, WalkLimits(100, files=True), ref))
    assert {file.partition["day"] for one in seen.manifests for file in one.files} == days


def test_no_more_is_listed_than_is_wanted_and_what_is_left_out_is_told(made: RealTable) -> None:
    moved: list[tuple[int, int]] = []
    seen = walked(made, WalkLimits(1, on_progress=lambda done, total: moved.append((done, total))))
    assert (len(seen.snapshots), seen.snapshots_omitted, len(seen.refs), seen.refs_omitted) == (1, 2, 1, 2)
    assert seen.snapshots[0].snapshot_id == made.main
    one = snapshot(seen)
    assert (len(one.manifests), one.manifests_omitted, one.manifests[0].files) == (1, 1, [])
    assert moved == [(1, 1)]


def test_a_snapshot_that_is_not_there_is_refused(made: RealTable) -> None:
    table = sfn.resolve(made.directory)
    with pytest.raises(CommitNotFound, match=f"a snapshot 7, found the newest: .*{made.main}"):
        MetadataWalk(table.metadata_location, load_metadata(table), table.files).metadata(7, WalkLimits(1))


def removed(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:300])


def overwritten(file: Path) -> None:
    file.write_bytes(b"\xff" * 1_000)


@pytest.mark.parametrize("harm", [removed, emptied, torn, overwritten])
@pytest.mark.parametrize("kind", ["manifest list", "manifest"])
def test_a_broken_file_on_the_way_is_named_and_hides_no_other(
    made: RealTable, harm: Callable[[Path], None], kind: str
) -> None:
    listed = snapshot(walked(made))
    path = listed.manifest_list if kind == "manifest list" else listed.manifests[0].path
    harm(Path(path.removeprefix("file://")))
    seen = walked(made)
    (problem,) = seen.problems
    assert path in problem
    assert harm is removed or "expected a whole Avro file, found " in problem
    assert len(snapshot(seen).manifests) == (0 if kind == "manifest list" else 2)
    assert any(path in text for text in wrong(made))


def test_a_file_of_metadata_is_read_as_far_as_it_may_be(made: RealTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyiceberg_files, "MAX_MANIFEST_SIZE", 1_000)
    assert all("expected at most" in problem for problem in walked(made).problems)


@pytest.mark.parametrize("ref", ["main", "audit", "v1"])
def test_a_table_that_is_right_is_found_so(made: RealTable, ref: str) -> None:
    assert wrong(made, ref=ref) == []
    assert [one.what for one in found(made)] == ["SFN file", "metadata file", "ref", "manifest list", "files"]
    assert found(made)[-1].text == "4 manifests, data and delete files exist with the recorded sizes"


def test_a_missing_and_a_torn_data_file_are_found_only_where_they_are_looked_for(made: RealTable) -> None:
    first, second, *_ = made.files("parquet")
    first.unlink()
    torn(second)
    assert wrong(made, deep=False) == []
    assert sorted(wrong(made)) == [
        f"data file: file://{first}: expected a file, found none",
        f"data file: file://{second}: expected 1,224 bytes, found 300",
    ]


def test_of_many_missing_files_some_are_named_and_all_counted(made: RealTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "MAX_MISSING_NAMED", 1)
    for file in made.files("parquet"):
        file.unlink()
    assert [text.partition(":")[0] for text in wrong(made)] == ["data file", "files"]
    assert wrong(made)[1] == "files: and 1 more"


def test_a_missing_manifest_list_is_found_without_looking_deep(made: RealTable) -> None:
    for file in made.files("avro"):
        if file.name.startswith(f"snap-{made.main}"):
            file.unlink()
    (text,) = wrong(made, deep=False)
    assert text.startswith("manifest list: ")
    assert text.endswith("expected a file, found none")


def test_a_snapshot_that_the_metadata_does_not_have_is_found(made: RealTable) -> None:
    made.place.write(snapshot_id=7, guid=sfn.resolve(made.directory).document.guid, metadata_file_path=made.pointer)
    assert wrong(made) == [
        f"ref: {made.place.sfn_file().as_uri()}: expected the snapshot {made.main}, as the metadata file says, found 7"
    ]


def test_what_a_reader_refuses_is_the_only_finding(made: RealTable) -> None:
    made.place.write(guid=OTHER_UUID, metadata_file_path=made.pointer)
    (text,) = wrong(made)
    assert f"metadata file: {made.pointer}: expected table-uuid {OTHER_UUID}" in text


def test_an_empty_table_is_right(tmp_path: Path) -> None:
    place = Directory(tmp_path / "orders")
    place.metadata()
    place.write()
    findings = verify.verify(lambda: sfn.resolve(place.path), deep=False, on_progress=lambda _done, _total: None)[1]
    assert all(one.ok for one in findings)
    assert findings[-1].text == "main is at no snapshot"


@pytest.mark.parametrize("body", [b"{", b'{"table-uuid": "UUID", "snapshots": 7}'])
def test_a_metadata_file_that_is_none_is_named_once(made: RealTable, body: bytes) -> None:
    uuid = sfn.resolve(made.directory).document.guid or ""
    Path(made.pointer.removeprefix("file://")).write_bytes(body.replace(b"UUID", uuid.encode()))
    (text,) = wrong(made)
    assert text.startswith(f"metadata file: {made.pointer}: expected ")
    assert [one.what for one in found(made) if one.ok] == (["SFN file"] if b"uuid" in body else [])


def test_a_refusal_is_named_by_what_it_is_about(made: RealTable, tmp_path: Path) -> None:
    assert [text.partition(":")[0] for text in wrong(made, ref="v2")] == ["ref"]
    nowhere = verify.verify(
        lambda: sfn.resolve(tmp_path / "absent"), deep=False, on_progress=lambda _done, _total: None
    )[1]
    assert [one.what for one in nowhere] == ["directory"]
    Path(made.pointer.removeprefix("file://")).unlink()
    assert [text.partition(":")[0] for text in wrong(made)] == ["metadata file"]
    made.place.sfn_file().write_bytes(b"")
    assert [text.partition(":")[0] for text in wrong(made)] == ["SFN file"]


def test_a_bound_of_another_width_is_a_problem_and_hides_no_file(
    made: RealTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MetadataWalk, "_source", lambda _self, _field: LongType())
    seen = walked(made)
    assert len(seen.problems) == 2
    assert all(": expected a readable metadata file, found error: unpack requires" in one for one in seen.problems)
    assert [one.kinds[0].files for one in snapshot(seen).manifests] == [1, 1]


def test_a_day_beyond_every_calendar_is_shown_as_its_number(made: RealTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataWalk, "_source", lambda _self, _field: DateType())
    monkeypatch.setattr("sfn.reader.inspect.from_bytes", lambda _type, _encoded: 4_000_000)
    seen = walked(made)
    assert seen.problems == []
    assert {bound.lower for one in snapshot(seen).manifests for bound in one.partitions} == {"4000000"}
