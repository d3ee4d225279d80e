"""A file of no live table beside one that is: it hides nothing, and it is not passed over in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

import sfn
from sfn.errors import Dropped, MalformedDocument, Unreadable
from sfn.sfnfile.document import DocumentState, Link
from tests.unit.directory import OTHER_UUID, Directory


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> Directory:
    place = Directory(tmp_path / "warehouse" / "orders")
    place.metadata()
    return place


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
