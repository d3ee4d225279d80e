"""What `service/READING.md` and the README have a reader write does what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sfn import history
from tests.acceptance.command import sfn
from tests.unit.real_table import RealTable, real_table

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "service/READING.md")
EXAMPLE = "/warehouse/sales/orders"


@pytest.fixture(name="made", scope="module")
def fixture_made(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    return real_table(tmp_path_factory.mktemp("lake"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_its_python_runs(page: str, made: RealTable, capsys: pytest.CaptureFixture[str]) -> None:
    # Those for Spark have a test beside Spark's.
    (block,) = (block for block in blocks(page, "python") if "import sfn.spark" not in block)
    names: dict[str, object] = {}
    exec(block.replace(EXAMPLE, made.directory), names)  # noqa: S102 - it is ours
    assert getattr(names["found"], "metadata_location", None) == made.pointer
    told = [commit.metadata_location for commit in history(made.directory)] if "history" in block else []
    assert re.findall(r"file://\S+", capsys.readouterr().out) == told


async def test_its_commands_run(made: RealTable) -> None:
    (block,) = blocks("service/READING.md", "sh")
    for line in block.splitlines():
        command, *arguments = shlex.split(line.partition("  # ")[0].replace(EXAMPLE, made.directory))
        told = await sfn(*arguments)
        assert (command, told.status, told.err) == ("sfn", 0, ""), line
        assert told.out
