"""Branches and tags: by a file of their own where they have one, else as the metadata file has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sfn
from sfn.errors import Ambiguous, MalformedMetadata, RefNotFound, WrongTable
from sfn.reader.files import RequestCounts
from sfn.sfnfile.document import DocumentState
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, UUID, Naming
from tests.unit.directory import OTHER_UUID, Directory
from tests.unit.directory import UUID as GUID

REFS = {
    "main": {"snapshot-id": 1, "type": "branch"},
    "audit": {"snapshot-id": 2, "type": "branch"},
    "v1": {"snapshot-id": 3, "type": "tag"},
}


def placed(tmp_path: Path, naming: Naming = IDENTIFIER, **more: Any) -> Directory:  # noqa: ANN401 - any JSON
    place = Directory(tmp_path / "orders", naming=naming)
    place.metadata(**{"refs": REFS, "current_snapshot_id": 1, **more})
    place.write(snapshot_id=1)
    return place


ASKED = [(None, None), ("sales.orders", None), (None, GUID)]


@pytest.mark.parametrize(("table", "uuid"), ASKED)
@pytest.mark.parametrize("naming", [IDENTIFIER, UUID], ids=lambda naming: naming.setting)
def test_a_branch_that_is_published_is_found_by_its_own_file(
    tmp_path: Path, naming: Naming, table: str | None, uuid: str | None
) -> None:
    place = placed(tmp_path, naming)
    file = place.write(ref="audit", snapshot_id=22)
    found = sfn.resolve(place.path, table, uuid, "audit")
    assert (found.sfn_file, found.ref, found.snapshot_id) == (file.as_uri(), "audit", 22)
    main = sfn.resolve(place.path, table, uuid)
    assert (main.ref, main.snapshot_id, main.document.ref) == ("main", 1, "main")


@pytest.mark.parametrize(("table", "uuid"), ASKED)
@pytest.mark.parametrize("naming", [IDENTIFIER, ORDINAL, UUID], ids=lambda naming: naming.setting)
@pytest.mark.parametrize(("ref", "snapshot"), [("audit", 2), ("v1", 3)])
def test_a_ref_without_a_file_is_found_in_the_metadata(
    tmp_path: Path, naming: Naming, table: str | None, uuid: str | None, ref: str, snapshot: int
) -> None:
    place = placed(tmp_path, naming)
    found = sfn.resolve(place.path, table, uuid, ref)
    assert (found.ref, found.snapshot_id, found.document.ref) == (ref, snapshot, "main")


@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_a_ref_that_is_nowhere_is_refused_with_those_that_there_are(tmp_path: Path, table: str | None) -> None:
    place = placed(tmp_path)
    place.write(ref="gone", state=DocumentState.DROPPED)
    for ref in ("nowhere", "gone"):
        with pytest.raises(RefNotFound, match=f"a branch or tag {ref}, found audit, main, v1"):
            sfn.resolve(place.path, table, ref=ref)


def test_of_many_refs_the_refusal_names_some(tmp_path: Path) -> None:
    place = placed(tmp_path, refs={f"b{number:03}": {"snapshot-id": number} for number in range(500)})
    with pytest.raises(RefNotFound, match=r"b000, .* and 481 more"):
        sfn.resolve(place.path, ref="nowhere")


def test_files_of_branches_are_never_taken_for_tables(tmp_path: Path) -> None:
    place = placed(tmp_path)
    for ref in ("audit", "a_main", "main_a", "head", "x_head", "20231114T221320000"):
        place.write(ref=ref, guid=OTHER_UUID)
    assert sfn.resolve(place.path).document.guid == GUID


def test_a_branch_whose_name_ends_like_main_is_found(tmp_path: Path) -> None:
    place = placed(tmp_path)
    file = place.write(ref="a_main", snapshot_id=7)
    for table in (None, "sales.orders"):
        assert sfn.resolve(place.path, table, ref="a_main").sfn_file == file.as_uri()


def test_a_branch_does_not_make_one_table_of_two(tmp_path: Path) -> None:
    place = placed(tmp_path)
    place.write("sales.other", guid=OTHER_UUID)
    place.write(ref="audit")
    with pytest.raises(Ambiguous):
        sfn.resolve(place.path, ref="audit")


def test_another_tables_branch_under_a_shared_name_is_passed_over(tmp_path: Path) -> None:
    place = Directory(tmp_path / "orders")
    place.metadata(refs=REFS)
    place.write("a_b.c", ref="audit", guid=OTHER_UUID)
    place.write("a.b_c")
    for table in ("a.b_c", None):
        assert sfn.resolve(place.path, table, ref="audit").snapshot_id == 2


def test_a_broken_file_of_a_branch_does_not_hide_the_branch(tmp_path: Path) -> None:
    place = placed(tmp_path)
    place.sfn_file(ref="audit").write_bytes(b"{")
    for table in (None, "sales.orders"):
        assert sfn.resolve(place.path, table, ref="audit").snapshot_id == 2


def test_the_requests_for_a_branch_and_for_a_tag(tmp_path: Path) -> None:
    place = placed(tmp_path)
    place.write(ref="audit")
    assert sfn.resolve(place.path, "sales.orders", ref="audit").requests == RequestCounts(2, 0)
    assert sfn.resolve(place.path, ref="audit").requests == RequestCounts(3, 1)
    # Whether there is a file of that name is asked as well.
    assert sfn.resolve(place.path, "sales.orders", ref="v1").requests == RequestCounts(3, 0)


def test_an_old_table_without_refs_has_its_main_branch(tmp_path: Path) -> None:
    place = placed(tmp_path, refs=None, current_snapshot_id=-1)
    with pytest.raises(RefNotFound, match="found main"):
        sfn.resolve(place.path, ref="v1")


def test_metadata_of_another_table_is_refused_for_a_tag_too(tmp_path: Path) -> None:
    place = placed(tmp_path)
    place.metadata(uuid=OTHER_UUID, refs=REFS)
    with pytest.raises(WrongTable, match=f"found {OTHER_UUID}"):
        sfn.resolve(place.path, ref="v1")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"refs": []}', b"\x1f\x8b\x00", b"[" * 100_000])
def test_what_is_no_metadata_is_refused_for_a_tag(tmp_path: Path, body: bytes) -> None:
    place = placed(tmp_path)
    place.metadata(body=body)
    with pytest.raises(MalformedMetadata, match="ask the catalog"):
        sfn.resolve(place.path, ref="v1")
