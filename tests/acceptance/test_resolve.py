"""`sfn resolve`, as a shell script meets it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sfn.pointer import document
from sfn.pointer.document import State
from tests.unit.directory import UUID, Directory

SFN = Path(sys.executable).with_name("sfn")


def resolve(*arguments: str | Path) -> tuple[int, str, str]:
    done = subprocess.run([SFN, "resolve", *arguments], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


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
    assert json.loads(told) == {
        "metadata_location": f"file:{place.path}/metadata/00001-a.metadata.json",
        "table_identifier": "sales.orders",
        "namespace": ["sales"],
        "name": "orders",
        "guid": UUID,
        "catalog_id": "0123456789abcdef0123456789abcdef",
        "Ordinal": "20231114T221320000",
        "written_at": "2026-08-21T12:00:00.000Z",
        "sfn_file": place.sfn_file().as_uri(),
    }


def test_its_help_promises_no_more_than_it_prints(place: Directory) -> None:
    _, told, _ = resolve(place.path, "--json")
    _, usage, _ = resolve("--help")
    promised = " ".join(re.sub(r"[│╭╮╰╯─]", " ", usage).split())
    assert f"Print as JSON: {', '.join(json.loads(told))}." in promised


def test_a_refusal_is_one_line_on_standard_error_and_1(place: Directory) -> None:
    place.write(state=State.DROPPED)
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
    "arguments", [(), ("a", "b"), ("a", "--table", "sales."), ("a", "--table", "a.%ff"), ("a", "--uuidd", "x")]
)
def test_wrong_usage_is_2(arguments: tuple[str, ...]) -> None:
    status, told, complaint = resolve(*arguments)
    assert (status, told) == (2, "")
    assert "Usage: sfn resolve" in complaint
