"""Each rule of the design, broken on purpose: the one promise that must notice does notice.

A mutant is a patch. It is applied to a copy of the tree, and its test is run there, against the copy.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.mutants.mutant import Mutant
from tests.mutants.table import TABLE

ROOT = Path(__file__).resolve().parents[2]
PATCHES = ROOT / "tests" / "mutants"
ELSEWHERE = {"ack-before-commit.patch"}
"""Patches that other tests apply."""
LONGEST = 100
Ended: TypeAlias = subprocess.CompletedProcess[str]


@pytest.fixture(name="endings", scope="module")
def fixture_endings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ended]]]:
    """How the test of each chosen mutant ends, by patch: as many at a time as there are processors."""
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    mutants = [params["mutant"] for params in chosen if "mutant" in params]
    with ThreadPoolExecutor(multiprocessing.cpu_count()) as runs:
        yield {one.patch: runs.submit(ending, one, tmp_path_factory.mktemp(one.patch)) for one in mutants}


def ending(mutant: Mutant, tree: Path) -> Ended:
    """Apply a mutant to a copy of the tree and run its test there."""
    copy(tree)
    patch = PATCHES / f"{mutant.patch}.patch"
    command = ["patch", "-p1", "--fuzz=0", "--force", "--no-backup-if-mismatch", "--input", str(patch)]
    applied = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert applied.returncode == 0, f"{patch.name} no longer applies, refresh it:\n{applied.stdout}{applied.stderr}"
    return outcome_of(tree, mutant.killer)


def copy(tree: Path) -> None:
    """Copy what the mutants and their tests are made of."""
    for part in ("service", "tests"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)


def run(tree: Path, *arguments: str) -> Ended:
    """Run Python in a copy of the tree, with the copy's packages before the installed ones."""
    inherited = os.environ  # noqa: TID251 - handed on to a process
    environment = {name: value for name, value in inherited.items() if not name.startswith(("PYTEST_", "COV"))}
    environment["PYTHONPATH"] = os.pathsep.join([str(tree / "service"), str(tree)])
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    # To import the others' plugins takes longer than most of these tests.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    environment["COLUMNS"] = "400"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )


def outcome_of(tree: Path, *nodes: str) -> Ended:
    """Run tests in a copy of the tree, having seen that it is the copy which they import."""
    origin = run(tree, "-c", "import sfn, tests.simulation; print(sfn.__file__, tests.simulation.__file__)")
    assert origin.stdout.split() == [
        str(tree / "service" / "sfn" / "__init__.py"),
        str(tree / "tests" / "simulation" / "__init__.py"),
    ], origin.stderr
    return run(tree, "-m", "pytest", "-q", "-x", "-p", "anyio", "-p", "no:cacheprovider", *nodes)


def complaints(output: str) -> str:
    """Pytest's lines that say which assertion failed, and how."""
    lines = [line for line in output.splitlines() if re.match(r"(>|E) ", line)]
    return "\n".join(lines).replace("first extra item: (", "first item: (").replace("one more item: (", "first item: (")


@pytest.mark.parametrize("mutant", TABLE, ids=lambda mutant: mutant.patch)
def test_a_mutant_is_killed_by_the_promise_that_it_breaks(mutant: Mutant, endings: dict[str, Future[Ended]]) -> None:
    ended = endings[mutant.patch].result()
    assert ended.returncode == 1, f"rule {mutant.rule}: {mutant.patch} lives\n{ended.stdout}{ended.stderr}"
    assert mutant.promise in complaints(ended.stdout), f"{mutant.patch} was killed by something else\n{ended.stdout}"


def test_what_kills_the_mutants_lets_a_copy_that_nobody_broke_live(tmp_path: Path) -> None:
    """One test of each file: all of them are run on the code itself."""
    copy(tmp_path)
    ended = outcome_of(tmp_path, *{mutant.killer.partition("::")[0]: mutant.killer for mutant in TABLE}.values())
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}"


def test_every_rule_has_a_mutant_and_every_mutant_a_test() -> None:
    assert {mutant.rule for mutant in TABLE} == {*range(1, 12), 13, 14}
    assert {f"{mutant.patch}.patch" for mutant in TABLE} | ELSEWHERE == {path.name for path in PATCHES.glob("*.patch")}
