"""Measurements by a process of its own: what readers bring along (threads, handlers of signals) ends with it."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from tests.integration.pages import ROOT, Shown
from tests.real_catalog import runtime


class Measured(Protocol):
    """What was measured at some time."""

    def named(self) -> Iterator[tuple[str, str]]:
        """Cells, and what names each."""


def differences(expected: Measured, found: Measured) -> list[str]:
    """What was found otherwise another time: a line each, which names the cell."""
    here, there = dict(expected.named()), dict(found.named())
    return [
        f"{name}: expected {here.get(name, 'nothing')!r}, found {there.get(name, 'nothing')!r}"
        for name in {**here, **there}
        if here.get(name) != there.get(name)
    ]


def apart(module: str, folder: Path, patience: float) -> str:
    """What a module measures with a real catalog.

    Args:
        module: takes the options of `asked`.
        folder: for whatever it writes.
        patience: seconds after which it hangs.
    """
    found, log, into = runtime(), folder / "log", folder / "found.json"
    command = [sys.executable, "-m", module, f"--only-into={into}", f"--java={found.java}", f"--jars={found.jars}"]
    with log.open("wb") as output:
        # No variable of the user's: a proxy would be asked for the catalog.
        surroundings = {"TMPDIR": str(folder), "TZ": "UTC"}
        status = subprocess.run(
            command, cwd=ROOT, env=surroundings, stdout=output, stderr=output, timeout=patience, check=False
        ).returncode
    assert status == 0, log.read_text(errors="replace")
    return into.read_text()


def options(purpose: str | None) -> ArgumentParser:
    """The options of a module that measures: where Java and the catalog are, and where to the result goes."""
    parser = ArgumentParser(description=purpose)
    parser.add_argument("--java", type=Path, help="else what `make jars` found")
    parser.add_argument("--jars", type=Path, help="else what `make jars` fetched")
    parser.add_argument("--only-into", type=Path, help="a file for what was measured; nothing else is written")
    return parser


def write_down(text: str, expected: Path, pages: Sequence[Shown]) -> None:
    """For the test to compare with, and for people to read."""
    expected.write_text(text)
    for shown in pages:
        shown.write()
