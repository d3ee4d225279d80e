"""A mutant, and the copy of the tree that its test runs in.

The process of such a test imports this project's code from the copy, and nothing from here. To import what others wrote
takes longer than most of these tests: it is imported once, by the process that each of these is a fork of.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.processes import into, status_of

OURS = {"sfn", "tests"}
ROOT = Path(__file__).resolve().parents[2]
LONGEST = 100.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule broken.

    Attributes:
        patch: file name without `.patch`, which begins with the number of the rule.
        killer: the test that must fail.
        promise: what its failure must say: the failed assertion, or the kind of promise that was broken first.
    """

    patch: str
    killer: str
    promise: str

    @property
    def rule(self) -> int:
        """The number of the design's rule.

        13 is "the timeline lacks no commit and every branch follows", 14 "nothing of ours grows old enough to be
        cleaned away", 15 "a commit through a gateway is asked for until its outcome is known", 16 "the facade shows
        what the SFN file says now, of tables below one root, and lets nobody clean up".
        """
        return int(self.patch.partition("-")[0])


def broken(kind: str) -> str:
    """The checker's first complaint."""
    return f"first item: ('{kind}'"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run of tests ended.

    Attributes:
        status: pytest's; None if it took too long.
        output: what it printed.
    """

    status: int | None
    output: str


def copied(tree: Path, changed: Iterable[str] = ()) -> None:
    """Make a tree of what the mutants and their tests are made of, compiled as it is here.

    Args:
        changed: files that will be other ones there; of the rest it gets links.
    """
    for part in ("service", "tests"):
        shutil.copytree(ROOT / part, tree / part, copy_function=_link)
    _link(ROOT / "pyproject.toml", tree / "pyproject.toml")
    for file in changed:
        (tree / file).unlink()
        shutil.copy2(ROOT / file, tree / file)


def run(tree: Path, *nodes: str) -> Ended:
    """Run tests of a copy until the first one fails."""
    output = tree / "output"
    status = status_of(_test, tree, nodes, output, within=LONGEST)
    return Ended(status, output.read_text(errors="replace") if output.exists() else "it did not start")


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _test(tree: Path, nodes: tuple[str, ...], output: Path) -> None:
    into(output, output)
    # A run is too short for garbage to matter, and to look for it takes a sixth of the time.
    gc.disable()
    os.chdir(tree)
    # To come here this module was imported, and what it is in.
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]
    sys.path[:0] = [str(tree / "service"), str(tree)]
    sys.dont_write_bytecode = True
    environment = os.environ  # noqa: TID251 - this process's own, for the tests in it
    for name in [name for name in environment if name.startswith(("PYTEST_", "COV"))]:
        del environment[name]
    # Of plugins only those that these tests need; and lines of assertions whole.
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "400"}
    plain = ["-q", "-x", "-p", "anyio", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    # Beside each other, runs that share pytest's own folder clean up under one another.
    plain.append(f"--basetemp={tree / 'temporary'}")
    status = int(pytest.main([*plain, *nodes]))
    ours = {name: getattr(sys.modules[name], "__file__", None) or tree for name in sys.modules if _is_ours(name)}
    elsewhere = [name for name, file in ours.items() if not str(file).startswith(str(tree))]
    assert not elsewhere, f"imported from elsewhere: {elsewhere}"
    sys.exit(status)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in OURS
