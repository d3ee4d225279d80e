"""What the command line says about itself, about wrong settings, and in `sfn check`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.command_line import executed, forked, place, sfn
from tests.support.service import configure, lake

READING = ["resolve", "history", "inspect", "verify"]
WITHOUT_SERVICE = [
    "init",
    "config",
    "serve",
    "check",
    "demo",
    "demo-catalog",
    "facade",
    *READING,
    "audit",
    "healthcheck",
]
WITH_SERVICE = ["status", "tables", "audit-log", "notify", "reconcile", "dead-letters", "release", "adopt", "retire"]
COMMANDS = [
    *((name,) for name in WITHOUT_SERVICE + WITH_SERVICE),
    *(("dead-letters", name) for name in ("list", "show", "replay", "discard")),
    *(("config", "show"), ("audit", "run"), ("audit", "report")),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_each_command_says_what_it_does_and_every_option_is_explained(command: tuple[str, ...]) -> None:
    told = await sfn(*command, "--help", environ={"COLUMNS": "200"})
    assert (told.status, told.err) == (0, "")
    assert f"Usage: sfn {' '.join(command)}" in told.out
    assert "<bool>" not in told.out
    for line in told.out.splitlines():
        if re.match(r"│ +--", line):
            assert re.search(r"  [A-Z`].*\w.* │$", line), line
    if command[0] not in WITHOUT_SERVICE and command != ("dead-letters",):
        for option in ("--config", "--url", "--token-file", "--ca-file", "--json"):
            assert option in told.out


async def test_the_first_page_names_all_commands() -> None:
    told = await sfn("--help", environ={"COLUMNS": "200"})
    assert {name for name, *_ in COMMANDS} == set(re.findall(r"^│ ([a-z][a-z-]*) {2,}[A-Z]", told.out, re.MULTILINE))
    assert "<bool>" not in told.out
    for option in ("--version", "--install-completion", "--show-completion"):
        assert option in told.out


async def test_a_shell_gets_its_completion() -> None:
    surroundings = {
        "_SFN_COMPLETE": "complete_bash",
        "COMP_WORDS": "sfn dead-letters list --reason p",
        "COMP_CWORD": "4",
    }
    told = await sfn(environ=surroundings)
    assert told.out.split() == ["permanent", "poison"]


def test_the_help_waits_for_no_web_server() -> None:
    heavy = ("aiohttp", "fastapi", "httpx", "msgspec", "pydantic", "rich", "structlog", "uvicorn")
    code = f"import sys, sfn.cli; print([name for name in {heavy} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.strip() == "[]"


FORGOTTEN = (
    "settings: expected a configuration file, found neither sfn.toml nor /etc/sfn/sfn.toml; "
    "write one: sfn init; or name it: --config FILE or SFN_CONFIG; or set each key as SFN_SECTION__KEY"
)


def test_the_version_is_printed() -> None:
    done = executed("--version")
    assert (done.status, done.out) == (0, f"sfn {version('iceberg-sfn')}\n")


def test_wrong_settings_are_all_named_and_exit_with_2(tmp_path: Path) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text("[listener]\nprot = 1\n[admin]\ntoken = 's3cret with spaces'\n")
    done = executed("serve", "--config", str(file), environ={"SFN_WORKER__CONCURRENCY": "many"})
    assert (done.status, done.out) == (2, "")
    assert sorted(line.split(": expected")[0] for line in done.err.splitlines()) == [
        "SFN_WORKER__CONCURRENCY",
        "sfn.toml: [admin] token",
        "sfn.toml: [listener] prot",
    ]
    assert "did you mean port?" in done.err
    assert "s3cret" not in done.err


def test_a_settings_file_that_is_not_there_exits_with_2(tmp_path: Path) -> None:
    done = forked("serve", "--config", str(tmp_path / "absent.toml"))
    assert done.status == 2
    assert "absent.toml" in done.err


def test_without_any_settings_it_shows_what_to_write(tmp_path: Path) -> None:
    done = forked("serve", folder=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        f"{FORGOTTEN}\nsettings: catalogs: expected at least one, found none; "
        'write [catalogs.NAME] uri = "https://…", or set SFN_CATALOGS__NAME__URI\n'
    )


@pytest.mark.parametrize(
    "arguments", [("status",), ("audit-log",), ("notify", "sales.orders"), ("reconcile",), ("reconcile", "--dry-run")]
)
def test_forgotten_configuration_is_named_before_all_that_it_lacks(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = forked(*arguments, folder=tmp_path)
    assert (done.status, done.out) == (2, "")
    first, *rest = done.err.splitlines()
    assert (first, len(rest)) == (FORGOTTEN, 1)


def test_a_check_names_a_forgotten_configuration_first(tmp_path: Path) -> None:
    done = forked("check", folder=tmp_path)
    assert (done.status, done.err) == (2, "")
    assert done.out.splitlines()[:2] == [
        "error    settings: expected a configuration file, found neither sfn.toml nor /etc/sfn/sfn.toml",
        f"         → {FORGOTTEN.partition('; ')[2]}",
    ]


def test_what_is_wrong_in_a_configuration_is_all_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text("[admin]\n")
    done = forked("status", "--config", str(file))
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "admin.token" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[worker]\nlease = ['30s']", "sfn.toml: [worker] lease: expected a duration such as 30s"),
        (
            "[catalogs.prod]\nuri = 'http://catalog'\ntoken = 's3cret'\ntoken_file = '/x'",
            "catalogs.prod: expected valid settings of a REST catalog",
        ),
    ],
)
def test_one_wrong_setting_is_one_line_and_2(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "sfn.toml"
    file.write_text(text)
    done = forked("serve", "--config", str(file))
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(said)
    assert done.err.count("\n") == 1
    assert "s3cret" not in done.err


def test_an_unknown_command_exits_with_2() -> None:
    assert executed("srve").status == 2


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


@pytest.mark.parametrize("by_file", [True, False])
def test_the_check_names_the_source_of_its_settings(tmp_path: Path, by_file: bool) -> None:
    """Without a name it reads the file `sfn.toml` of the working folder."""
    inbox, uri = f"sqlite:///{tmp_path}/inbox.db", "http://127.0.0.1:1"
    if by_file:
        (tmp_path / "sfn.toml").write_text(f'[inbox]\nurl = "{inbox}"\n[catalogs.prod]\nuri = "{uri}"\n')
    environ = {} if by_file else {"SFN_INBOX__URL": inbox, "SFN_CATALOGS__PROD__URI": uri}
    done = forked("check", folder=tmp_path, environ=environ)
    source = "sfn.toml" if by_file else "environment and defaults"
    assert done.out.startswith(f"ok       settings: {source}: 1 catalog, ")


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
