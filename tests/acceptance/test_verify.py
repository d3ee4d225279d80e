"""`sfn verify`: is what lies in a directory right, and is it what the catalog says?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command import on_terminal, place, sfn
from tests.support.real_table import RealTable, real_table


@pytest.fixture(name="made")
def fixture_made(tmp_path: Path) -> RealTable:
    return real_table(tmp_path)


async def test_a_table_that_is_right_is_0_and_one_that_is_not_1_with_a_list(made: RealTable) -> None:
    told = await sfn("verify", made.directory, "--deep")
    assert (told.status, told.err) == (0, "")
    assert [line.split()[0] for line in told.out.splitlines()] == ["ok"] * 5
    for file in made.files("parquet"):
        file.unlink()
    assert (await sfn("verify", made.directory)).status == 0
    told = await sfn("verify", made.directory, "--deep")
    assert told.status == 1
    assert sum(line.startswith("wrong  data file: file:///") for line in told.out.splitlines()) == 2


async def test_it_prints_json(made: RealTable) -> None:
    told = (await sfn("verify", made.directory, "--json")).json
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
        # Nobody tells the service.
        newer = here.lake.commit("orders")
        told = await sfn("verify", directory, *config)
        assert told.status == 1
        assert f"expected {newer}, which is current in prod, found {pointer}, 1 commit behind" in told.out
        here.lake.drop("orders")
        told = await sfn("verify", directory, *config)
        assert "expected the table sales.orders in prod, found no such table" in told.out


async def test_a_catalog_that_nobody_configured_can_not_be_asked(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        made = real_table(tmp_path)
        told = await sfn("verify", made.directory, "--config", str(here.configuration))
        assert told.status == 1
        expected = "expected a configured catalog with the catalog_id 0123456789abcdef0123456789abcdef, found prod ("
        assert expected in told.out


async def test_a_terminal_sees_how_far_it_is(made: RealTable) -> None:
    shown = await on_terminal("verify", made.directory, "--deep")
    assert "manifests" in shown
    assert "2/2" in shown
    assert "exist with the recorded sizes" in shown


async def test_what_was_found_is_not_lost_to_a_catalog_in_trouble(tmp_path: Path) -> None:
    made = real_table(tmp_path)
    config = tmp_path / "sfn.toml"
    config.write_text("[catalogs.far]\nuri = 'http://127.0.0.1:1'\n[catalogs.near]\nuri = 'http://127.0.0.1:2'\n")
    told = (await sfn("verify", made.directory, "--json", "--config", str(config))).json
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


async def test_wrong_settings_are_told_before_anything_is_looked_at(made: RealTable, tmp_path: Path) -> None:
    (tmp_path / "sfn.toml").write_text("[catalogs.far]\nurl = 'http://127.0.0.1:1'\n")
    told = await sfn("verify", f"{made.directory}/absent", "--config", str(tmp_path / "sfn.toml"))
    assert (told.status, told.out) == (2, "")
    assert "the unknown url" in told.err


async def test_an_owner_that_does_not_load_is_a_finding(tmp_path: Path) -> None:
    made = real_table(tmp_path)
    config = tmp_path / "sfn.toml"
    config.write_text("[catalogs.far]\nuri = 'http://127.0.0.1:1'\ncatalog_id = '0123456789abcdef0123456789abcdef'\n")
    told = await sfn("verify", made.directory, "--config", str(config))
    assert (told.status, told.err) == (1, "")
    assert told.out.splitlines()[-1].startswith("wrong  catalog: ")
