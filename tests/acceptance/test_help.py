"""What the command line says about itself."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.acceptance.command import sfn

COMMANDS = [
    ("serve",),
    ("check",),
    ("demo",),
    ("facade",),
    ("resolve",),
    ("history",),
    ("inspect",),
    ("verify",),
    ("status",),
    ("audit",),
    ("healthcheck",),
    ("notify",),
    ("reconcile",),
    ("report",),
    ("dead-letters",),
    ("dead-letters", "list"),
    ("dead-letters", "show"),
    ("dead-letters", "replay"),
    ("dead-letters", "discard"),
    ("release",),
    ("adopt",),
    ("retire",),
]
WITHOUT_SERVICE = {
    *("serve", "check", "demo", "facade", "resolve", "history", "inspect", "verify", "report", "healthcheck"),
}


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
