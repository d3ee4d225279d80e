"""`sfn history`: a table's commits from its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfn.sfnfile.document import DocumentState
from sfn.sfnfile.naming import ORDINAL
from tests.acceptance.command import on_terminal, sfn
from tests.support.table_directory import FIRST_ORDINAL, Directory


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> Directory:
    place = Directory(tmp_path / "orders", naming=ORDINAL)
    for minutes in (1, 3):
        place.commit(minutes, snapshot_id=minutes, gap=minutes - 1)
    place.metadata()
    place.write(ordinal=FIRST_ORDINAL + 3 * 60_000)
    return place


async def test_it_prints_a_line_for_each_commit_and_what_is_lost(place: Directory) -> None:
    told = await sfn("history", str(place.path))
    assert told.status == 0
    head, first, second, lost = told.out.splitlines()
    assert head.split() == ["ORDINAL", "SNAPSHOT", "GAP", "STATE", "SOURCE", "METADATA", "FILE"]
    file = f"file:{place.path}/metadata/0000"
    assert first.split() == ["20231114T221420000", "1", "current", "commit", "file", f"{file}1-a.metadata.json"]
    assert second.split() == ["20231114T221620000", "3", "2", "current", "commit", "file", f"{file}3-a.metadata.json"]
    assert lost == "2 commits in gaps could not be rebuilt"


async def test_it_prints_json(place: Directory) -> None:
    told = (await sfn("history", str(place.path), "--table", "sales.orders", "--json")).json
    assert told["commits"][0] == {
        "Ordinal": "20231114T221420000",
        "metadata_location": f"file:{place.path}/metadata/00001-a.metadata.json",
        "snapshot_id": 1,
        "gap": 0,
        "written_at": "2026-08-21T12:01:00.000Z",
        "state": "current",
        "source": "commit file",
    }


async def test_it_prints_the_newest_where_no_more_are_wanted(place: Directory) -> None:
    told = await sfn("history", str(place.path), "--limit", "1")
    assert "20231114T221420000" not in told.out
    assert told.out.endswith("only the newest 1 are shown; raise --limit for more\n")
    assert (await sfn("history", str(place.path), "--limit", "0")).status == 2


async def test_a_refusal_is_one_line_and_1(tmp_path: Path) -> None:
    place = Directory(tmp_path / "gone")
    place.write(state=DocumentState.DROPPED)
    told = await sfn("history", str(place.path))
    assert (told.status, told.out, told.err.count("\n")) == (1, "", 1)
    assert "sales.orders was dropped" in told.err


async def test_a_terminal_gets_a_table(place: Directory) -> None:
    assert "20231114T221620000" in await on_terminal("history", str(place.path))
