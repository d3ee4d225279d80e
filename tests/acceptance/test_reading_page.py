"""What the pages on Python and the shell have a reader write does what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sfn import history
from tests.acceptance.command import sfn
from tests.support.real_table import RealTable, real_table

ROOT = Path(__file__).parents[2]
PYTHON, SHELL = "docs/read/python-api.md", "docs/read/command-line.md"
EXAMPLE = "/warehouse/sales/orders"


@pytest.fixture(name="made", scope="module")
def fixture_made(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    return real_table(tmp_path_factory.mktemp("lake"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def test_its_python_runs(made: RealTable, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks(PYTHON, "python")
    names: dict[str, object] = {}
    exec(block.replace(EXAMPLE, made.directory), names)  # noqa: S102 - it is ours
    assert getattr(names["found"], "metadata_location", None) == made.pointer
    told = [commit.metadata_location for commit in history(made.directory)]
    assert re.findall(r"file://\S+", capsys.readouterr().out) == told


async def test_its_commands_run(made: RealTable) -> None:
    (block,) = blocks(SHELL, "sh")
    for line in block.splitlines():
        command, *arguments = shlex.split(line.partition("  # ")[0].replace(EXAMPLE, made.directory))
        told = await sfn(*arguments)
        assert (command, told.status, told.err) == ("sfn", 0, ""), line
        assert told.out
