"""Each rule of the design, broken on purpose: the one promise that must notice does notice.

A mutant is a patch. It is applied to a copy of the tree, and its test is run there, against the copy.
"""

from __future__ import annotations

import multiprocessing
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mutants.mutant import ROOT, Ended, Mutant, copied, run
from tests.mutants.table import TABLE

PATCHES = ROOT / "tests" / "mutants"
UNBROKEN = "no patch"
"""In the place of a patch: a copy that nobody broke."""
ELSEWHERE = {"ack-before-commit.patch"}
"""A patch that another test applies."""


@pytest.fixture(name="endings", scope="module")
def fixture_endings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ended]]]:
    """How the test of each chosen mutant ends, by patch: as many at a time as there are processors.

    And how those of a copy that nobody broke do, which take longest, if that is asked for.
    """
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    mutants = [params["mutant"] for params in chosen if "mutant" in params]
    live = test_what_kills_the_mutants_lets_a_copy_that_nobody_broke_live.__name__
    whole = any(item.name == live for item in request.session.items)
    with ThreadPoolExecutor(multiprocessing.cpu_count()) as runs:
        first = {UNBROKEN: runs.submit(unbroken, tmp_path_factory.mktemp("unbroken"))} if whole else {}
        yield first | {one.patch: runs.submit(ending, one, tmp_path_factory.mktemp(one.patch)) for one in mutants}


def ending(mutant: Mutant, tree: Path) -> Ended:
    """Apply a mutant to a copy of the tree and run its test there."""
    patch = PATCHES / f"{mutant.patch}.patch"
    copied(tree, changed=re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE))
    command = ["patch", "-p1", "--fuzz=0", "--force", "--no-backup-if-mismatch", "--input", str(patch)]
    applied = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert applied.returncode == 0, f"{patch.name} no longer applies, refresh it:\n{applied.stdout}{applied.stderr}"
    return run(tree, mutant.killer)


def unbroken(tree: Path) -> Ended:
    """Run one test of each file in a copy of the tree."""
    copied(tree)
    return run(tree, *{mutant.killer.partition("::")[0]: mutant.killer for mutant in TABLE}.values())


def complaints(output: str) -> str:
    """Pytest's lines that say which assertion failed, and how."""
    lines = [line for line in output.splitlines() if re.match(r"(>|E) ", line)]
    return "\n".join(lines).replace("first extra item: (", "first item: (").replace("one more item: (", "first item: (")


@pytest.mark.parametrize("mutant", TABLE, ids=lambda mutant: mutant.patch)
def test_a_mutant_is_killed_by_the_promise_that_it_breaks(mutant: Mutant, endings: dict[str, Future[Ended]]) -> None:
    ended = endings[mutant.patch].result()
    assert ended.status == 1, f"rule {mutant.rule}: {mutant.patch} lives\n{ended.output}"
    assert mutant.promise in complaints(ended.output), f"{mutant.patch} was killed by something else\n{ended.output}"


def test_what_kills_the_mutants_lets_a_copy_that_nobody_broke_live(endings: dict[str, Future[Ended]]) -> None:
    """One test of each file: all of them are run on the code itself."""
    ended = endings[UNBROKEN].result()
    assert ended.status == 0, ended.output


def test_every_rule_has_a_mutant_and_every_mutant_a_test() -> None:
    assert {mutant.rule for mutant in TABLE} == {*range(1, 12), 13, 14, 15, 16}
    assert {f"{mutant.patch}.patch" for mutant in TABLE} | ELSEWHERE == {path.name for path in PATCHES.glob("*.patch")}
