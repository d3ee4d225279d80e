"""`sfn inspect`: a table as a tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.command import Done, on_terminal, sfn
from tests.support.real_table import RealTable, real_table


@pytest.fixture(name="made", scope="module")
def fixture_made(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    return real_table(tmp_path_factory.mktemp("lake"))


def late(pointer: Path) -> None:
    metadata = json.loads(pointer.read_text())
    metadata["last-updated-ms"] = metadata["snapshots"][0]["timestamp-ms"] = 10**18
    pointer.write_text(json.dumps(metadata))


async def inspected(made: RealTable, *arguments: str) -> Done:
    return await sfn("inspect", made.directory, *arguments)


def depths(text: str) -> list[tuple[int, str]]:
    """How deep each line is, and its first words."""
    lines = [line for line in text.splitlines() if line]
    return [((len(line) - len(line.lstrip())) // 2, " ".join(line.split()[:2])) for line in lines]


async def test_a_pipe_gets_an_indented_tree(made: RealTable) -> None:
    told = await inspected(made)
    assert (told.status, told.err) == (0, "")
    shown = depths(told.out)
    assert shown[0] == (0, "SFN file")
    for line in ((1, "metadata file"), (2, "branch audit"), (2, "tag v1"), (3, "manifest list"), (4, "manifest of")):
        assert line in shown
    assert [line for line in shown if line == (4, "manifest of")] == [(4, "manifest of")] * 2
    assert "1 file of data in parquet: 1 record, " in told.out
    assert "partition day: 2026-11-01 … 2026-11-01" in told.out
    assert "data data/day=2026-11-01/" not in told.out


async def test_files_are_listed_where_they_are_asked_for(made: RealTable) -> None:
    told = await inspected(made, "--files", "--ref", "v1")
    (line,) = [line.strip() for line in told.out.splitlines() if ".parquet" in line]
    assert line.startswith("data data/day=2026-11-01/")
    assert line.endswith(", parquet, 1 record, 939 B, day=2026-11-01")


async def test_any_snapshot_is_walked(made: RealTable) -> None:
    told = (await inspected(made, "--snapshot", str(made.audit), "--json")).json
    walked = [one["snapshot_id"] for one in told["metadata"]["snapshots"] if one["contents"]]
    assert walked == [made.audit]
    told_wrong = await inspected(made, "--snapshot", "7")
    assert (told_wrong.status, told_wrong.out, told_wrong.err.count("\n")) == (1, "", 1)


async def test_json_has_all_of_it(made: RealTable) -> None:
    told = (await inspected(made, "--json", "--files")).json
    assert told["sfn"]["metadata_location"] == told["metadata"]["path"] == made.pointer
    assert told["problems"] == []
    (walked,) = [one["contents"] for one in told["metadata"]["snapshots"] if one["contents"]]
    assert [file["partition"] for one in walked["manifests"] for file in one["files"]] == [
        {"day": "2026-11-02"},
        {"day": "2026-11-01"},
    ]


async def test_what_is_left_out_is_counted(made: RealTable) -> None:
    told = await inspected(made, "--limit", "1")
    for text in ("… and 2 refs more: --limit", "… and 2 older snapshots more", "… and 1 manifest more"):
        assert text in told.out


async def test_what_is_broken_is_shown_in_its_place_and_1(tmp_path: Path) -> None:
    made = real_table(tmp_path)
    for file in made.files("avro"):
        if file.name.startswith(f"snap-{made.main}"):
            file.unlink()
    told = await inspected(made)
    assert told.status == 1
    assert "expected a file that the table's metadata names, found no such file" in told.out
    assert (await inspected(made, "--ref", "v1")).status == 0


async def test_a_refusal_is_one_line_and_1(tmp_path: Path) -> None:
    told = await sfn("inspect", str(tmp_path))
    assert (told.status, told.out, told.err.count("\n")) == (1, "", 1)
    assert "expected an SFN file, found none" in told.err


async def test_a_terminal_gets_guides(made: RealTable) -> None:
    shown = await on_terminal("inspect", made.directory)
    assert "└── " in shown
    assert "tag v1" in shown


async def test_a_time_beyond_every_calendar_is_shown_as_its_number(tmp_path: Path) -> None:
    made = real_table(tmp_path)
    late(Path(made.pointer.removeprefix("file://")))
    told = await inspected(made)
    assert (told.status, told.err) == (0, "")
    assert "changed 1000000000000000000 ms" in told.out
    assert f"snapshot {made.tagged}, 1000000000000000000 ms" in told.out
