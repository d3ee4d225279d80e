"""Pages that show measurements between two marks, and measurements by a process of its own.

What readers bring along (threads, handlers of signals) ends with that process.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support.programs import runtime

ROOT = Path(__file__).parents[2]
_END = "<!-- end of what was measured -->\n"


@dataclass(frozen=True, slots=True)
class Shown:
    """What one page shows of a measurement.

    Attributes:
        page: below the project's root.
        module: measures, and writes it down: it stands in the mark.
        text: what is between the marks.
    """

    page: str
    module: str
    text: str

    @property
    def path(self) -> Path:
        """The page's file."""
        return ROOT / self.page

    def brought_up_to_date(self) -> str:
        """The page with the text between its marks.

        Raises:
            ValueError: it has no such marks.
        """
        mark = f"<!-- measured: written by python -m {self.module} -->\n"
        before, begin, rest = self.path.read_text().partition(mark)
        _, end, after = rest.partition(_END)
        if not begin or not end:
            raise ValueError(f"{self.page} with the lines {mark!r} and {_END!r}")
        return f"{before}{mark}{self.text}{_END}{after}"

    def write(self) -> None:
        """Bring the page up to date."""
        self.path.write_text(self.brought_up_to_date())


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
