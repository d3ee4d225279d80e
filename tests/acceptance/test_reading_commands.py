"""`sfn resolve`, `history`, `inspect` and `verify`: what a table's directory says."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sfn.sfnfile import document
from sfn.sfnfile.document import DocumentState
from sfn.sfnfile.naming import ORDINAL
from tests.support.command_line import Done, forked, on_terminal, place, sfn
from tests.support.real_table import RealTable, real_table
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


@pytest.mark.parametrize("more", [(), ("--table", "sales.orders"), ("--table", "prod:sales.orders")])
def test_it_prints_the_location_and_nothing_else(place: Directory, more: tuple[str, ...]) -> None:
    assert resolve(place.path, *more) == (0, f"file:{place.path}/metadata/00001-a.metadata.json\n", "")


def test_a_part_of_a_name_may_be_percent_encoded(place: Directory) -> None:
    (place.folder / "a%2Eb_c%25d_main.ver").write_bytes(
        document.render(replace(place.document(), namespace=("a.b",), name="c%d"))
    )
    assert resolve(place.path, "--table", "a%2Eb.c%25d")[0] == 0
    status, _, complaint = resolve(place.path, "--table", "a.b.c")
    assert (status, "expected the SFN file of a.b.c" in complaint) == (1, True)


def test_resolve_prints_json(place: Directory) -> None:
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
    status, _, complaint = resolve("memory://lake/orders", "--storage-option", f"@{options}")
    assert (status, "memory://lake/orders: expected a table's directory, found no such" in complaint) == (1, True)


def test_a_message_does_not_steer_the_terminal(place: Directory) -> None:
    place.write(guid=None, name="\x1b[2Jorders")
    place.write("sales.b", guid=None)
    _, _, complaint = resolve(place.path)
    assert ("\x1b" in complaint, "\\x1b[2Jorders" in complaint) == (False, True)


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
        ("a", "--storage-option", "@/nowhere"),
        ("a", "--storage-option", "@/dev/null"),
        ("a", "--storage-option", "anon"),
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


@pytest.fixture(name="recorded")
def fixture_recorded(tmp_path: Path) -> Directory:
    recorded = Directory(tmp_path / "orders", naming=ORDINAL)
    for minutes in (1, 3):
        recorded.commit(minutes, snapshot_id=minutes, gap=minutes - 1)
    recorded.metadata()
    recorded.write(ordinal=FIRST_ORDINAL + 3 * 60_000)
    return recorded


async def test_it_prints_a_line_for_each_commit_and_what_is_lost(recorded: Directory) -> None:
    told = await sfn("history", str(recorded.path))
    assert told.status == 0
    head, first, second, lost = told.out.splitlines()
    assert head.split() == ["ORDINAL", "SNAPSHOT", "GAP", "STATE", "SOURCE", "METADATA", "FILE"]
    file = f"file:{recorded.path}/metadata/0000"
    assert first.split() == ["20231114T221420000", "1", "current", "commit", "file", f"{file}1-a.metadata.json"]
    assert second.split() == ["20231114T221620000", "3", "2", "current", "commit", "file", f"{file}3-a.metadata.json"]
    assert lost == "2 commits in gaps could not be rebuilt"


async def test_history_prints_json(recorded: Directory) -> None:
    told = (await sfn("history", str(recorded.path), "--table", "sales.orders", "--json")).json
    assert told["commits"][0] == {
        "Ordinal": "20231114T221420000",
        "metadata_location": f"file:{recorded.path}/metadata/00001-a.metadata.json",
        "snapshot_id": 1,
        "gap": 0,
        "written_at": "2026-08-21T12:01:00.000Z",
        "state": "current",
        "source": "commit file",
    }


async def test_it_prints_the_newest_where_no_more_are_wanted(recorded: Directory) -> None:
    told = await sfn("history", str(recorded.path), "--limit", "1")
    assert "20231114T221420000" not in told.out
    assert told.out.endswith("only the newest 1 are shown; raise --limit for more\n")
    assert (await sfn("history", str(recorded.path), "--limit", "0")).status == 2


async def test_a_refusal_of_history_is_one_line_and_1(tmp_path: Path) -> None:
    recorded = Directory(tmp_path / "gone")
    recorded.write(state=DocumentState.DROPPED)
    told = await sfn("history", str(recorded.path))
    assert (told.status, told.out, told.err.count("\n")) == (1, "", 1)
    assert "sales.orders was dropped" in told.err


async def test_a_terminal_gets_a_table(recorded: Directory) -> None:
    assert "20231114T221620000" in await on_terminal("history", str(recorded.path))


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


async def test_a_refusal_of_inspect_is_one_line_and_1(tmp_path: Path) -> None:
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


@pytest.fixture(name="fresh")
def fixture_fresh(tmp_path: Path) -> RealTable:
    return real_table(tmp_path)


async def test_a_table_that_is_right_is_0_and_one_that_is_not_1_with_a_list(fresh: RealTable) -> None:
    told = await sfn("verify", fresh.directory, "--deep")
    assert (told.status, told.err) == (0, "")
    assert [line.split()[0] for line in told.out.splitlines()] == ["ok"] * 5
    for file in fresh.files("parquet"):
        file.unlink()
    assert (await sfn("verify", fresh.directory)).status == 0
    told = await sfn("verify", fresh.directory, "--deep")
    assert told.status == 1
    assert sum(line.startswith("wrong  data file: file:///") for line in told.out.splitlines()) == 2


async def test_verify_prints_json(fresh: RealTable) -> None:
    told = (await sfn("verify", fresh.directory, "--json")).json
    assert told["ok"]
    assert [one["what"] for one in told["findings"]] == ["SFN file", "metadata file", "ref", "manifest list"]


async def test_what_a_reader_refuses_is_a_finding(tmp_path: Path) -> None:
    told = await sfn("verify", str(tmp_path))
    assert (told.status, told.err) == (1, "")
    assert told.out.startswith("wrong  SFN file: ")


async def test_the_catalog_is_asked_where_a_configuration_names_it(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        pointer = await here.publish("orders")
        directory, config = str(here.lake.directory("orders")), ["--config", str(here.configuration)]
        told = await sfn("verify", directory, *config)
        assert (told.status, told.err) == (0, "")
        assert told.out.endswith("ok     catalog: prod has the same metadata file\n")
        assert (await sfn("verify", directory, *config, "--catalog", "prod")).status == 0
        assert (await sfn("verify", directory, *config, "--catalog", "nobody")).status == 2
        # No event reports this commit.
        newer = here.lake.commit("orders")
        told = await sfn("verify", directory, *config)
        assert told.status == 1
        assert f"expected {newer}, which is current in prod, found {pointer}, 1 commit behind" in told.out
        here.lake.drop("orders")
        told = await sfn("verify", directory, *config)
        assert "expected the table sales.orders in prod, found no such table" in told.out


async def test_a_catalog_that_nobody_configured_can_not_be_asked(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        fresh = real_table(tmp_path)
        told = await sfn("verify", fresh.directory, "--config", str(here.configuration))
        assert told.status == 1
        expected = "expected a configured catalog with the catalog_id 0123456789abcdef0123456789abcdef, found prod ("
        assert expected in told.out


async def test_a_terminal_sees_how_far_it_is(fresh: RealTable) -> None:
    shown = await on_terminal("verify", fresh.directory, "--deep")
    assert "manifests" in shown
    assert "2/2" in shown
    assert "exist with the recorded sizes" in shown


async def test_what_was_found_is_not_lost_to_a_catalog_in_trouble(tmp_path: Path) -> None:
    fresh = real_table(tmp_path)
    config = tmp_path / "sfn.toml"
    config.write_text("[catalogs.far]\nuri = 'http://127.0.0.1:1'\n[catalogs.near]\nuri = 'http://127.0.0.1:2'\n")
    told = (await sfn("verify", fresh.directory, "--json", "--config", str(config))).json
    *found, asked = told["findings"]
    assert [one["what"] for one in found] == ["SFN file", "metadata file", "ref", "manifest list"]
    assert (told["ok"], asked["what"], asked["ok"]) == (False, "catalog", False)
    assert asked["text"].count("does not answer: catalog") == 2


async def test_a_catalog_that_cannot_be_asked_hides_no_other(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.publish("orders")
        settings = here.configuration.read_text()
        here.configuration.write_text(f"[catalogs.far]\nuri = 'http://127.0.0.1:1'\n{settings}")
        directory, config = str(here.lake.directory("orders")), ["--config", str(here.configuration)]
        told = await sfn("verify", directory, *config)
        assert (told.status, told.err) == (0, "")
        assert told.out.endswith("ok     catalog: prod has the same metadata file\n")


async def test_wrong_settings_are_told_before_anything_is_looked_at(fresh: RealTable, tmp_path: Path) -> None:
    (tmp_path / "sfn.toml").write_text("[catalogs.far]\nurl = 'http://127.0.0.1:1'\n")
    told = await sfn("verify", f"{fresh.directory}/absent", "--config", str(tmp_path / "sfn.toml"))
    assert (told.status, told.out) == (2, "")
    assert "the unknown url" in told.err


async def test_an_owner_that_does_not_load_is_a_finding(tmp_path: Path) -> None:
    fresh = real_table(tmp_path)
    config = tmp_path / "sfn.toml"
    config.write_text("[catalogs.far]\nuri = 'http://127.0.0.1:1'\ncatalog_id = '0123456789abcdef0123456789abcdef'\n")
    told = await sfn("verify", fresh.directory, "--config", str(config))
    assert (told.status, told.err) == (1, "")
    assert told.out.splitlines()[-1].startswith("wrong  catalog: ")
