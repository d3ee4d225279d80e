"""`sfn resolve`, as a shell script meets it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sfn.sfnfile import document
from sfn.sfnfile.document import DocumentState
from sfn.sfnfile.naming import ORDINAL
from tests.acceptance.command import forked
from tests.support.table_directory import FIRST_ORDINAL, OTHER_UUID, UUID, Directory


def resolve(*arguments: str | Path) -> tuple[int, str, str]:
    done = forked("resolve", *map(str, arguments))
    return done.status, done.out, done.err


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> Directory:
    place = Directory(tmp_path / "orders")
    place.metadata()
    place.write()
    return place


@pytest.mark.parametrize("more", [(), ("--table", "sales.orders")])
def test_it_prints_the_location_and_nothing_else(place: Directory, more: tuple[str, ...]) -> None:
    assert resolve(place.path, *more) == (0, f"file:{place.path}/metadata/00001-a.metadata.json\n", "")


def test_a_part_of_a_name_may_be_percent_encoded(place: Directory) -> None:
    (place.folder / "a%2Eb_c%25d_main.ver").write_bytes(
        document.render(replace(place.document(), namespace=("a.b",), name="c%d"))
    )
    assert resolve(place.path, "--table", "a%2Eb.c%25d")[0] == 0
    status, _, complaint = resolve(place.path, "--table", "a.b.c")
    assert (status, "expected the SFN file of a.b.c" in complaint) == (1, True)


def test_it_prints_json(place: Directory) -> None:
    status, told, complaint = resolve(place.path, "--json")
    assert (status, complaint) == (0, "")
    found = json.loads(told)
    assert found.pop("age_seconds") > 0
    assert found == {
        "metadata_location": f"file:{place.path}/metadata/00001-a.metadata.json",
        "table_identifier": "sales.orders",
        "namespace": ["sales"],
        "name": "orders",
        "guid": UUID,
        "catalog_id": "0123456789abcdef0123456789abcdef",
        "ref": "main",
        "snapshot_id": None,
        "Ordinal": "20231114T221320000",
        "written_at": "2026-08-21T12:00:00.000Z",
        "sfn_file": place.sfn_file().as_uri(),
        "found_by": "listing",
        "via": [],
        "missing_commits": 0,
        "requests": {"gets": 2, "lists": 1},
    }


def test_a_branch_of_one_of_several_tables_is_asked_for(place: Directory) -> None:
    place.write("sales.other", guid=OTHER_UUID)
    place.metadata(refs={"v1": {"snapshot-id": 7, "type": "tag"}})
    for whose in (("--table", "sales.orders"), ("--uuid", UUID)):
        status, told, complaint = resolve(place.path, *whose, "--ref", "v1", "--json")
        assert (status, complaint, json.loads(told)["snapshot_id"]) == (0, "", 7)
    status, _, complaint = resolve(place.path, "--table", "sales.orders", "--ref", "v2")
    assert (status, "expected a branch or tag v2, found main, v1; name one of them" in complaint) == (1, True)


def test_what_was_current_then_is_told_with_what_nobody_knows(tmp_path: Path) -> None:
    place = Directory(tmp_path / "log", naming=ORDINAL)
    for minutes in (1, 3):
        place.commit(minutes, gap=minutes - 1)
    place.metadata()
    place.write(ordinal=FIRST_ORDINAL + 3 * 60_000)
    status, told, complaint = resolve(place.path, "--as-of", "20231114T221500")
    assert (status, told) == (0, f"file:{place.path}/metadata/00001-a.metadata.json\n")
    assert (
        complaint
        == "2 commits right after this one could not be rebuilt: one of them may have been current at that time\n"
    )
    for time in ("2023-11-14T22:15:00Z", "2023-11-14T23:15:00+01:00", f"{FIRST_ORDINAL + 100_000}"):
        assert resolve(place.path, "--as-of", time)[:2] == (status, told)


def test_a_mount_and_a_copy_are_read_as_they_are(place: Directory, tmp_path: Path) -> None:
    there = Directory(tmp_path / "there")
    pointer = f"file:{there.metadata()}"
    place.write(metadata_file_path=pointer, metadata_file_relative="../00001-a.metadata.json")
    assert resolve(place.path)[1] == f"{pointer}\n"
    assert resolve(place.path, "--relative")[1] == f"file://{place.path}/metadata/00001-a.metadata.json\n"
    assert resolve(place.path, "--allow", "/nowhere", "--allow", str(there.path))[1] == f"{pointer}\n"
    status, _, complaint = resolve(place.path, "--allow", "/nowhere")
    assert (status, "expected a location below" in complaint) == (1, True)


def test_a_store_has_its_options_from_a_file(tmp_path: Path) -> None:
    options = tmp_path / "options.json"
    options.write_text('{"use_listings_cache": false}')
    status, _, complaint = resolve("memory://lake/orders", "--storage-options", str(options))
    assert (status, "memory://lake/orders: expected a table's directory, found no such" in complaint) == (1, True)


def test_a_message_does_not_steer_the_terminal(place: Directory) -> None:
    place.write(guid=None, name="\x1b[2Jorders")
    place.write("sales.b", guid=None)
    _, _, complaint = resolve(place.path)
    assert ("\x1b" in complaint, "\\x1b[2Jorders" in complaint) == (False, True)


def test_its_help_promises_no_more_than_it_prints(place: Directory) -> None:
    _, told, _ = resolve(place.path, "--json")
    _, usage, _ = resolve("--help")
    promised = " ".join(re.sub(r"[│╭╮╰╯─]", " ", usage).split())
    assert f"Print as JSON: {', '.join(json.loads(told))}." in promised


def test_a_refusal_is_one_line_on_standard_error_and_1(place: Directory) -> None:
    place.write(state=DocumentState.DROPPED)
    status, told, complaint = resolve(place.path, "--json")
    assert (status, told, complaint.count("\n")) == (1, "", 1)
    said = "expected a live table, found that sales.orders was dropped, as the catalog said at 2026-08-21T12:00:00.000Z"
    assert said in complaint


@pytest.mark.parametrize("more", [(), ("--table", "sales.orders")])
def test_a_directory_that_is_missing_is_told_from_one_without_our_files(tmp_path: Path, more: tuple[str, ...]) -> None:
    status, told, complaint = resolve(tmp_path / "absent", *more)
    said = f"file://{tmp_path}/absent: expected a table's directory, found no such directory; check the path"
    assert (status, told, complaint.startswith(said)) == (1, "", True)
    assert "found none; check the directory" in resolve(tmp_path, *more)[2]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("a", "b"),
        ("a", "--table", "sales."),
        ("a", "--table", "a.%ff"),
        ("a", "--uuidd", "x"),
        ("a", "--as-of", "yesterday"),
        ("a", "--as-of", "2023-11-14T22:15:00"),
        ("a", "--as-of", "-1"),
        ("a", "--as-of", "20261125"),
        ("a", "--storage-options", "/nowhere"),
        ("a", "--storage-options", "/dev/null"),
    ],
)
def test_wrong_usage_is_2(arguments: tuple[str, ...]) -> None:
    status, told, complaint = resolve(*arguments)
    assert (status, told) == (2, "")
    assert "Usage: sfn resolve" in complaint


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_name_that_is_no_utf_8_is_refused(place: Directory, more: tuple[str, ...]) -> None:
    body = json.loads(document.render(place.document())) | {"name": "\ud800"}
    place.raw(json.dumps(body).encode())
    status, told, complaint = resolve(place.path, *more)
    assert (status, told, "name has a lone surrogate in it" in complaint) == (1, "", True)


def test_a_directory_of_any_name_is_told_as_json(tmp_path: Path) -> None:
    place = Directory(tmp_path / os.fsdecode(b"\xff"))
    there = Directory(tmp_path / "there")
    place.write(metadata_file_path=f"file:{there.metadata()}")
    status, told, complaint = resolve(place.path, "--json")
    assert (status, complaint) == (0, "")
    assert json.loads(told)["sfn_file"] == f"file://{place.sfn_file()}"
