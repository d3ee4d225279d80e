"""`make test` where the catalog server can't be had, and what is told while things are fetched."""

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


def test_packages_are_told_of_as_they_are_fetched(tree: Path) -> None:
    (tree / ".venv" / "installed").unlink()
    (tree / "deploy" / "requirements.lock").write_text("a==1\nb==2\n")
    pip = tree / ".venv" / "bin" / "pip"
    pip.write_text(
        "#!/bin/sh\n"
        "echo 'Collecting a==1'\n"
        "echo '  Downloading a-1-py3-none-any.whl.metadata (2 kB)'\n"
        "echo '  Downloading a-1-py3-none-any.whl (41.5 MB)'\n"
        "echo 'Downloading https://index.example/packages/b-2.whl (1 kB)'\n"
        "echo 'Installing collected packages: a, b'\n"
    )
    pip.chmod(0o755)
    (tree / "python").write_text("#!/bin/sh\n")
    (tree / "python").chmod(0o755)
    done = subprocess.run(
        [MAKE, "venv", "PYTHON=./python"], cwd=tree, capture_output=True, text=True, timeout=60, check=False
    )
    first, *others = done.stderr.splitlines()
    assert done.returncode == 0
    assert first.startswith("make: 2 Python packages into .venv")
    assert others == ["  a-1-py3-none-any.whl (41.5 MB)", "  b-2.whl (1 kB)", "  … and installing them"]
    pip.write_text("#!/bin/sh\nexit 1\n")
    (tree / ".venv" / "installed").unlink()
    failed = subprocess.run([MAKE, "venv", "PYTHON=./python"], cwd=tree, capture_output=True, check=False, timeout=60)
    assert failed.returncode != 0
