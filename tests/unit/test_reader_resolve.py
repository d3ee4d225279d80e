"""Resolution of a directory to a table, a branch or a tag."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sfn
from sfn.errors import (
    Ambiguous,
    Dropped,
    MalformedDocument,
    MalformedMetadata,
    NameTaken,
    NotFound,
    RefNotFound,
    Stale,
    TooManyHops,
    Unreachable,
    Unreadable,
    Unsafe,
    WrongTable,
)
from sfn.reader.files import FileSystemOptions, RequestCounts, directory_url, run_synchronously
from sfn.reader.lookup import MAX_HOPS
from sfn.reader.resolve import Question, resolve_question
from sfn.sfnfile.document import DocumentState, Link
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, Naming
from sfn.sfnfile.naming import UUID as BY_UUID
from tests.support.table_directory import OTHER_UUID, UUID, Directory, RewrittenFiles
from tests.support.table_directory import UUID as GUID


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> Directory:
    place = Directory(tmp_path / "warehouse" / "orders")
    place.metadata()
    return place


@pytest.mark.parametrize("table", [None, "sales.orders", ["sales", "orders"], ("sales", "orders")])
async def test_a_table_is_found_by_its_directory_and_by_its_name(place: Directory, table: str | None) -> None:
    file = place.write()
    found = sfn.resolve(place.path, table)
    assert found.metadata_location == f"file:{place.path}/metadata/00001-a.metadata.json"
    assert (found.sfn_file, found.document) == (file.as_uri(), place.document())
    assert found.written_at == place.document().written_at
    assert await sfn.aresolve(place.path, table) == found


def test_a_directory_is_a_path_a_relative_path_or_a_url(place: Directory) -> None:
    place.write()
    relative = os.path.relpath(place.path)
    pointers = {sfn.resolve(text).metadata_location for text in (str(place.path), relative, place.path.as_uri())}
    assert len(pointers) == 1


def test_a_slash_at_the_end_of_a_directory_means_nothing(place: Directory) -> None:
    place.write()
    assert sfn.resolve(f"{place.path}/") == sfn.resolve(place.path)


def test_a_second_slash_at_the_start_of_a_directory_makes_no_host_of_its_first_folder(place: Directory) -> None:
    place.write()
    assert sfn.resolve(f"/{place.path}").document == place.document()


@pytest.mark.parametrize("table", ["", ".", "sales.", ("sales", ""), ()])
def test_an_identifier_with_empty_parts_is_a_mistake_of_the_caller(place: Directory, table: str) -> None:
    with pytest.raises(ValueError, match="identifier"):
        sfn.resolve(place.path, table)


def test_a_name_whose_plain_file_is_another_tables_is_looked_for_under_the_strict_one(place: Directory) -> None:
    place.write("a_b.c")
    place.metadata("2.metadata.json", uuid=OTHER_UUID)
    pointer = f"{place.path}/metadata/2.metadata.json"
    place.write("a.b_c", strict=True, guid=OTHER_UUID, metadata_file_path=pointer)
    assert sfn.resolve(place.path, "a.b_c").metadata_location == pointer
    assert sfn.resolve(place.path, "a_b.c").document.namespace == ("a_b",)


@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_a_directory_without_our_files_is_refused_with_what_was_looked_for(place: Directory, table: str | None) -> None:
    with pytest.raises(NotFound, match="metadata/_sfn/"):
        sfn.resolve(place.path, table)
    with pytest.raises(NotFound):
        sfn.resolve(place.path / "nowhere", table)


def test_a_name_that_is_not_here_is_refused_also_where_another_table_is(place: Directory) -> None:
    place.write()
    with pytest.raises(NotFound, match=r"sales\.customers"):
        sfn.resolve(place.path, "sales.customers")


def test_two_tables_in_one_directory_are_refused_by_name_and_told_apart_by_name(place: Directory) -> None:
    place.write()
    place.metadata("2.metadata.json", uuid=OTHER_UUID)
    place.write("sales.b", guid=OTHER_UUID, metadata_file_path=f"{place.path}/metadata/2.metadata.json")
    with pytest.raises(Ambiguous, match=r"sales\.b, sales\.orders"):
        sfn.resolve(place.path)
    assert sfn.resolve(place.path, "sales.b").document.guid == OTHER_UUID


def test_two_tables_without_a_uuid_in_one_directory_are_not_one(place: Directory) -> None:
    place.write(guid=None)
    place.write("sales.b", guid=None, minutes=1)
    with pytest.raises(Ambiguous, match=r"sales\.b, sales\.orders"):
        sfn.resolve(place.path)


@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_a_dropped_table_is_refused(place: Directory, table: str | None) -> None:
    place.write(state=DocumentState.DROPPED)
    with pytest.raises(Dropped) as refused:
        sfn.resolve(place.path, table)
    assert refused.value.found == "that sales.orders was dropped, as the catalog said at 2026-08-21T12:00:00.000Z"


@pytest.mark.parametrize("table", [None, "sales.orders", "sales.archive"])
def test_a_rename_is_followed(place: Directory, table: str | None) -> None:
    place.renamed("sales.orders", "sales.archive")
    place.write("sales.archive")
    assert sfn.resolve(place.path, table).document.name == "archive"


def test_of_two_documents_of_one_table_the_younger_is_right(place: Directory) -> None:
    place.write("sales.orders", minutes=1)
    place.write("sales.archive", minutes=2)
    assert sfn.resolve(place.path).document.name == "archive"


def test_a_table_that_lies_here_wins_over_one_that_left(place: Directory, tmp_path: Path) -> None:
    there = Directory(tmp_path / "there")
    there.metadata(uuid=OTHER_UUID)
    there.write("sales.left", guid=OTHER_UUID)
    place.write("sales.left", guid=OTHER_UUID, state=DocumentState.MOVED, moved_to=there.link("sales.left"))
    assert sfn.resolve(place.path).document.name == "left"
    place.write()
    assert sfn.resolve(place.path).document.name == "orders"


def test_a_name_that_another_table_has_taken_is_refused_with_both_names(place: Directory) -> None:
    place.renamed("sales.orders", "sales.archive", name_now=place.link("sales.orders"))
    place.write("sales.archive")
    with pytest.raises(NameTaken, match=r"sales\.archive.*sales\.orders"):
        sfn.resolve(place.path, "sales.orders")
    assert sfn.resolve(place.path).document.name == "archive"


def test_it_is_refused_with_the_name_that_the_table_has_by_now(place: Directory) -> None:
    place.renamed("sales.orders", "sales.archive", name_now=place.link("sales.orders"))
    place.renamed("sales.archive", "sales.attic", minutes=1)
    place.write("sales.attic", minutes=2)
    with pytest.raises(NameTaken, match=r"it is now sales\.attic, and that another table is sales\.orders"):
        sfn.resolve(place.path, "sales.orders")


def test_it_is_refused_where_only_a_later_file_of_the_name_says_so(place: Directory) -> None:
    """Its files were called otherwise by earlier settings: the first one leads to the one that was renamed."""
    place.renamed("sales.orders", "sales.archive", name_now=place.link("sales.orders"), minutes=1)
    place.write("sales.archive", minutes=2)
    first = next(place.path.glob("metadata/_sfn/*orders*"))
    second = first.rename(first.with_name("orders_before.ver"))
    said = json.loads(second.read_text())
    link = said["moved_to"] | {"table_identifier": "sales.orders", "name": "orders", "sfn_file_path": str(second)}
    first.write_text(
        json.dumps({key: said[key] for key in said if key != "name_now"} | {"state": "moved", "moved_to": link})
    )
    with pytest.raises(NameTaken, match=r"it is now sales\.archive, and that another table is sales\.orders"):
        sfn.resolve(place.path, "sales.orders")


def test_a_table_that_came_back_to_its_name_is_found_by_it(place: Directory) -> None:
    there = Directory(place.path.parent / "there")
    place.renamed("sales.orders", "sales.archive", name_now=there.link("sales.orders"))
    place.write("sales.archive", state=DocumentState.RENAMED, moved_to=there.link("sales.orders"), minutes=1)
    there.metadata()
    there.write(minutes=2)
    assert sfn.resolve(place.path, "sales.orders").document.name == "orders"


@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_a_rename_that_leads_nowhere_or_to_another_table_is_a_drop(place: Directory, table: str | None) -> None:
    place.renamed("sales.orders", "sales.archive")
    with pytest.raises(Dropped):
        sfn.resolve(place.path, table)
    place.write("sales.archive", guid=OTHER_UUID)
    with pytest.raises(Dropped):
        sfn.resolve(place.path, "sales.orders")


def chain(place: Directory, hops: int) -> None:
    names = ["sales.orders", *(f"sales.t{number}" for number in range(1, hops + 1))]
    for old, new in pairwise(names):
        place.renamed(old, new)
    place.write(names[-1])


def test_as_many_hops_are_followed_as_the_specification_says(place: Directory) -> None:
    chain(place, MAX_HOPS)
    assert sfn.resolve(place.path, "sales.orders").document.name == f"t{MAX_HOPS}"


def test_one_hop_more_is_refused(place: Directory) -> None:
    chain(place, MAX_HOPS + 1)
    with pytest.raises(TooManyHops, match="at most 8"):
        sfn.resolve(place.path, "sales.orders")


@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_a_circle_of_renames_is_refused(place: Directory, table: str | None) -> None:
    place.renamed("sales.orders", "sales.archive")
    place.renamed("sales.archive", "sales.orders")
    with pytest.raises(TooManyHops, match="found a circle"):
        sfn.resolve(place.path, table)


def test_one_broken_file_does_not_hide_the_table_beside_it(place: Directory) -> None:
    place.raw(b"{", "sales.broken")
    place.write()
    assert sfn.resolve(place.path).document.name == "orders"


def test_other_files_in_our_folder_are_passed_over(place: Directory) -> None:
    body = place.write("sales.other", guid=OTHER_UUID).read_bytes()
    place.sfn_file("sales.other").unlink()
    place.write()
    for name in ("notes.txt", "sales_other_main.ver~", ".sales_other_main.ver"):
        (place.folder / name).write_bytes(body)
    assert sfn.resolve(place.path).document.name == "orders"


def test_a_metadata_file_that_is_gone_is_stale_with_its_age(place: Directory) -> None:
    file = place.write(metadata_file_path=f"{place.path}/metadata/gone.metadata.json")
    with pytest.raises(Stale, match="no such file") as caught:
        sfn.resolve(place.path)
    assert "2026-08-21T12:00:00.000Z" in str(caught.value)
    assert file.as_uri() in str(caught.value)


def test_another_tables_metadata_is_stale(place: Directory) -> None:
    place.write()
    place.metadata(uuid=OTHER_UUID)
    with pytest.raises(Stale, match=f"found {OTHER_UUID}"):
        sfn.resolve(place.path)


@pytest.mark.parametrize("name", ["00001-a.gz.metadata.json", "00001-a.metadata.json.gz"])
def test_compressed_metadata_is_checked_too(place: Directory, name: str) -> None:
    file = place.metadata(name, gzip.compress(json.dumps({"table-uuid": UUID}).encode()))
    place.write(metadata_file_path=file.as_uri())
    assert sfn.resolve(place.path).metadata_location == file.as_uri()
    place.metadata(name, gzip.compress(json.dumps({"table-uuid": OTHER_UUID}).encode()))
    with pytest.raises(Stale, match=f"found {OTHER_UUID}"):
        sfn.resolve(place.path)


def test_a_table_without_uuid_has_metadata_without_one(place: Directory) -> None:
    place.write(guid=None)
    with pytest.raises(WrongTable, match=f"expected no table-uuid, as .* says, found {UUID}"):
        sfn.resolve(place.path)
    place.metadata(uuid=None)
    assert sfn.resolve(place.path).document.guid is None


@pytest.mark.parametrize("identifier", [None, ("sales", "orders")])
def test_a_file_that_is_replaced_while_it_is_read_is_read_again(
    place: Directory, identifier: tuple[str, ...] | None
) -> None:
    file = place.write(metadata_file_path=f"{place.path}/metadata/gone.metadata.json")
    files = RewrittenFiles(file, replace(place.document(), ordinal=1_800_000_000_000))
    url = directory_url(place.path)
    found = run_synchronously(resolve_question(files, Question(url, identifier), FileSystemOptions(url)))
    assert found.document.ordinal == 1_800_000_000_000


def test_what_waits_for_something_cannot_be_run_without_a_loop() -> None:
    with pytest.raises(RuntimeError, match="must not suspend"):
        run_synchronously(asyncio.sleep(0))


def test_another_machines_files_are_refused() -> None:
    with pytest.raises(Unreachable, match="another scheme or host"):
        sfn.resolve("file://host/orders")


def test_a_folder_that_may_not_be_read_is_refused_and_not_taken_for_empty(place: Directory) -> None:
    place.folder.rmdir()
    place.folder.symlink_to(place.folder)
    with pytest.raises(Unsafe, match="circle"):
        sfn.resolve(place.path)


def test_a_pipe_in_the_place_of_a_file_does_not_hang_the_reader(place: Directory) -> None:
    os.mkfifo(place.sfn_file())
    code = "import sys, sfn\ntry: sfn.resolve(sys.argv[1])\nexcept sfn.Unreadable as refusal: print(refusal)"
    told = subprocess.run([sys.executable, "-c", code, place.path], capture_output=True, timeout=30, check=True)
    assert b"a pipe or a device" in told.stdout


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param(b"", "JSONDecodeError", id="empty"),
        pytest.param(b"x" * (10 << 20), "65537 or more", id="10 MiB"),
        pytest.param(b'{"version": "\xff"}', "UnicodeDecodeError", id="not UTF-8"),
        pytest.param('{"version": 1}'.encode("utf-16"), "UnicodeDecodeError", id="UTF-16"),
        pytest.param('{"version": 1}'.encode("utf-32-le"), "JSONDecodeError", id="UTF-32 without a mark"),
        pytest.param('{"version": 1}'.encode("utf-8-sig"), "JSONDecodeError", id="byte order mark"),
        pytest.param(b"[" * 60_000, "Error", id="deep"),
        pytest.param(b"[]", "a JSON list", id="no object"),
        pytest.param(b"{}", "version None", id="no version"),
        pytest.param(b'{"version": 2}', "version 2; read it with", id="future version"),
        pytest.param(b'{"version": true}', "version True", id="no number"),
        pytest.param(b'{"version": 1}', "catalog_id is NoneType", id="a key is missing"),
    ],
)
@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_what_is_no_document_is_refused_with_its_place(
    place: Directory, table: str | None, body: bytes, found: str
) -> None:
    file = place.raw(body)
    with pytest.raises(MalformedDocument, match=found) as caught:
        sfn.resolve(place.path, table)
    assert caught.value.where == file.as_uri()


def renamed(place: Directory, target: str) -> None:
    """A tombstone of another table that forwards somewhere."""
    link = Link(("sales",), "target", target)
    place.write("sales.was", guid=OTHER_UUID, state=DocumentState.RENAMED, moved_to=link)


@pytest.mark.parametrize("target", ["s3://lake/x.ver", "", "file:///a\0b", "file:///a\ud800b", "nonsense", "itself"])
def test_a_tombstone_that_leads_nowhere_hides_no_live_table(place: Directory, target: str) -> None:
    renamed(place, place.sfn_file("sales.was").as_uri() if target == "itself" else target)
    with pytest.raises(Unreadable):
        sfn.resolve(place.path)
    place.write()
    assert sfn.resolve(place.path).document.name == "orders"


def test_of_several_that_are_gone_the_last_one_is_named(place: Directory) -> None:
    place.write("sales.before", guid=OTHER_UUID, state=DocumentState.DROPPED)
    place.renamed("sales.orders", "sales.archive")
    place.write("sales.archive", state=DocumentState.DROPPED, minutes=1)
    with pytest.raises(Dropped, match=r"sales\.archive was dropped, .* at 2026-08-21T12:01:00\.000Z, nor is .* live"):
        sfn.resolve(place.path)
    with pytest.raises(Dropped, match=r"sales\.orders left for sales\.archive at .*, and no live table is there"):
        sfn.resolve(place.path, "sales.orders")


def test_a_malformed_file_beside_tombstones_is_told_of(place: Directory) -> None:
    place.write("sales.was", state=DocumentState.DROPPED)
    place.raw(b"{")
    with pytest.raises(MalformedDocument, match="sales_orders_main"):
        sfn.resolve(place.path)


def test_a_malformed_file_under_the_name_that_two_can_share_does_not_hide_the_other_name(place: Directory) -> None:
    place.raw(b"{", "a.b_c")
    with pytest.raises(MalformedDocument, match="a_b_c_main"):
        sfn.resolve(place.path, "a.b_c")
    place.write("a.b_c", strict=True)
    assert sfn.resolve(place.path, "a.b_c").document.name == "b_c"


@pytest.mark.parametrize("pointer", ["file:///a\0b", "file:///a\ud800b", "", "nonsense"])
def test_a_pointer_that_is_no_path_is_refused(place: Directory, pointer: str) -> None:
    place.write(metadata_file_path=pointer)
    with pytest.raises(Unreadable):
        sfn.resolve(place.path)


@pytest.mark.parametrize("table", [None, "sales.orders"])
@pytest.mark.parametrize("directory", ["/x/\ud800", "\ud800", "file:///x/\ud800"])
def test_a_directory_that_no_file_system_can_spell_is_refused(directory: str, table: str | None) -> None:
    with pytest.raises(Unreadable, match="lone surrogate"):
        sfn.resolve(directory, table)


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
@pytest.mark.parametrize("naming", [IDENTIFIER, BY_UUID], ids=lambda naming: naming.setting)
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
@pytest.mark.parametrize("naming", [IDENTIFIER, ORDINAL, BY_UUID], ids=lambda naming: naming.setting)
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
