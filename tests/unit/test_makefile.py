"""`make test` where the catalog server can't be had."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"
MAKE = str(shutil.which("make"))


@pytest.fixture(name="tree")
def fixture_tree(tmp_path: Path) -> Path:
    """A source tree whose virtual environment is there, and notes what is run in it; it can fetch nothing."""
    shutil.copy(MAKEFILE, tmp_path)
    (tmp_path / "deploy").mkdir()
    for source in ("deploy/requirements.lock", "pyproject.toml"):
        (tmp_path / source).touch()
    commands = tmp_path / ".venv" / "bin"
    commands.mkdir(parents=True)
    for name in ("python", "pytest", "ruff", "mypy", "lint-imports", "hadolint", "check-jsonschema"):
        (commands / name).write_text(f"#!/bin/sh\necho {name} >>ran\nexit {int(name == 'python')}\n")
        (commands / name).chmod(0o755)
    (tmp_path / ".venv" / "installed").touch()
    return tmp_path


def made(tree: Path, *, ci: str | None) -> subprocess.CompletedProcess[str]:
    surroundings = {"PATH": os.environ["PATH"], **({} if ci is None else {"CI": ci})}  # noqa: TID251 - a child's
    return subprocess.run(
        [MAKE, "test"], cwd=tree, env=surroundings, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("ci", [None, "", "false"])
def test_every_other_test_is_run(tree: Path, ci: str | None) -> None:
    done = made(tree, ci=ci)
    assert done.returncode == 0, done.stderr
    assert (tree / "ran").read_text().split()[-2:] == ["python", "pytest"]
    assert "the tests that need it are skipped" in done.stderr


def test_on_ci_it_is_a_failure(tree: Path) -> None:
    assert made(tree, ci="true").returncode != 0
    assert (tree / "ran").read_text().split()[-1] == "python"


def test_where_it_is_had_nothing_is_said(tree: Path) -> None:
    (tree / ".venv" / "bin" / "python").write_text("#!/bin/sh\n")
    done = made(tree, ci=None)
    assert (done.returncode, done.stderr) == (0, "")
