"""What the pages on reading show works as it stands there, and what they list is what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import sfn
from sfn import errors
from tests.support.real_table import RealTable, real_table

DOCS = Path(__file__).parents[2] / "docs"
ERRORS = DOCS / "reference" / "errors.md"
BIN = Path(sys.executable).parent


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(name="made", scope="module")
def fixture_made(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    return real_table(tmp_path_factory.mktemp("lake"))


def test_its_python_runs(made: RealTable) -> None:
    (block,) = blocks("read/python-api.md", "python")
    code = block.replace("/warehouse/sales/orders", made.directory)
    told = subprocess.run([BIN / "python", "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert made.pointer in told.stdout


@pytest.mark.parametrize("command", blocks("read/command-line.md", "sh")[0].splitlines())
def test_its_commands_run(made: RealTable, command: str) -> None:
    here = command.replace("/warehouse/sales/orders", made.directory)
    told = subprocess.run(
        ["/bin/sh", "-c", here], env={"PATH": f"{BIN}:/usr/bin:/bin"}, capture_output=True, check=True
    )
    assert told.stderr == b""


def test_it_lists_every_refusal() -> None:
    section = ERRORS.read_text().partition("## What is refused")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`([A-Z]\w+)`", section))
    refusals = {name for name in sfn.__all__ if issubclass(vars(errors).get(name, object), errors.Unreadable)}
    assert refusals - listed == {"Unreadable"} - listed
