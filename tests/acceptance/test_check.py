"""`sfn check`, before anything is served."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.acceptance.command import place, sfn
from tests.support.service import configure, lake


def severities(findings: Sequence[dict[str, str]]) -> dict[str, str]:
    """The gravest severity of each part."""
    order = ("ok", "warning", "error")
    found: dict[str, str] = {}
    for one in findings:
        part = one["where"].split(".")[0]
        found[part] = max(found.get(part, "ok"), one["severity"], key=order.index)
    return found


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def test_a_configuration_that_works_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    async with lake(tmp_path) as catalog:
        catalog.commit("orders")
        configuration = configure(catalog, '[admin]\ntoken = "a-token-of-operators"\n')
        before = entries(tmp_path)
        told = await sfn("check", environ={"SFN_CONFIG": str(configuration)})
        assert (told.status, told.err) == (0, "")
        assert told.out.startswith(f"ok       settings: {configuration}: 1 catalog, 1 store, 1 sender\n")
        assert told.out.endswith("passed: no errors, 0 warnings\n")
        assert entries(tmp_path) == before


async def test_of_what_other_roles_do_nothing_is_said(tmp_path: Path) -> None:
    async with lake(tmp_path) as catalog:
        configuration = configure(catalog, '[facade]\ntoken = "a-token-of-readers"\n')
        for roles, is_shown in (("receiver,worker,facade", True), ("receiver,worker", False)):
            told = await sfn("check", "--json", "--config", str(configuration), "--roles", roles)
            assert ("facade" in severities(told.json["findings"])) is is_shown


async def test_each_part_that_does_not_work_is_told_with_its_remedy(tmp_path: Path) -> None:
    async with lake(tmp_path) as catalog:
        configuration = configure(catalog)
    (tmp_path / "warehouse").rmdir()
    told = await sfn("check", "--json", "--config", str(configuration))
    assert (told.status, told.err) == (1, "")
    assert severities(told.json["findings"]) == {
        "settings": "ok",
        "tokens": "ok",
        "senders": "ok",
        "admin": "warning",
        "inbox": "ok",
        "listener": "ok",
        "catalogs": "error",
        "stores": "error",
    }
    assert all(one["remedy"] for one in told.json["findings"] if one["severity"] != "ok")


async def test_a_table_that_soon_deletes_its_metadata_is_compared_with_how_late_files_are(tmp_path: Path) -> None:
    """By the running service's own word, else by the time from sweep to sweep."""
    async with place(tmp_path) as here:
        deletes, keeps = "write.metadata.delete-after-commit.enabled", "write.metadata.previous-versions-max"
        here.lake.properties |= {deletes: "true", keeps: "2"}
        here.lake.commit("orders")
        here.lake.commit("orders")
        await here.publish("orders")
        port = {"SFN_LISTENER__PORT": here.url.rpartition(":")[2]}
        command = ("check", "--json", "--config", str(here.configuration))
        assert severities((await sfn(*command, environ=port)).json["findings"])["catalogs"] == "ok"
        here.daemon.process.terminate()
        await here.daemon.ended()
        (found,) = [one for one in (await sfn(*command)).json["findings"] if one["severity"] == "warning"]
        assert found["where"] == "catalogs.prod: sales.orders"
        assert "by up to 15 min (sweep.every, if no event comes)" in found["text"]


async def test_wrong_settings_are_findings_too_and_2(tmp_path: Path) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text("[listener]\nprot = 1\n[admin]\ntoken = 's3cret with spaces'\n")
    told = await sfn("check", "--config", str(file))
    assert (told.status, told.err) == (2, "")
    assert told.out.splitlines()[-1] == "2 errors, 0 warnings"
    assert "         → did you mean port?\n" in told.out
    assert "s3cret" not in told.out
    exact = await sfn("check", "--json", "--config", str(file))
    assert exact.status == 2
    assert '"severity": "error"' in exact.out


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        (
            "receiver",
            "--roles: expected worker among them, as only one process can open an inbox in SQLite, found receiver",
        ),
        ("reciever", "--roles: expected some of receiver, worker, gateway, facade, admin, found 'reciever'"),
    ],
)
async def test_roles_that_would_not_be_served_are_findings_and_2(tmp_path: Path, roles: str, said: str) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text("[catalogs.prod]\nuri = 'http://127.0.0.1:1'\n")
    named = await sfn("check", "--config", str(file), "--roles", roles)
    assert (named.status, named.err) == (2, "")
    first, remedy, last = named.out.splitlines()
    assert first == f"error    {said}"
    assert remedy.startswith("         → ")
    assert last == "1 error, 0 warnings"
    surroundings = await sfn("check", "--config", str(file), environ={"SFN_ROLES": roles})
    assert surroundings == named
    assert (await sfn("serve", "--config", str(file), "--roles", roles)).status == 2
