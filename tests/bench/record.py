"""Figures: what was measured, beside what, and whether it meets its goal; printed, and written to a JSON file."""

from __future__ import annotations

import argparse
import json
import operator
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from rich.console import Console
from rich.table import Table
from typing_extensions import override

from sfn.clock import Clock, SystemClock

ROOT: Final = Path(__file__).parents[2]

_COMPARED: Final = {"<": operator.lt, "<=": operator.le, ">=": operator.ge}

_WIDE: Final = 140
"""Columns of a table where no terminal says how many there are."""


class Unmeasured(Exception):
    """A figure can't be had, or would not be true: the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound that a figure is to keep.

    Attributes:
        of: what is bounded.
        sign: how.
        bound: the bound.
    """

    of: Literal["ratio", "value"]
    sign: Literal["<", "<=", ">="]
    bound: float

    @override
    def __str__(self) -> str:
        return f"{self.of} {self.sign} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of several.

    Attributes:
        value: what was measured.
        compared: the same of what it is compared with, in the same run.
    """

    value: float
    compared: float | None = None

    @property
    def ratio(self) -> float | None:
        """The first over the second."""
        return None if self.compared is None else self.value / self.compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What runs came to: the medians of their values and of their ratios.

    Attributes:
        name: its name in the record.
        unit: of the value.
        runs: one at least.
        compared_with: what the ratio is to.
        goal: what it is to keep, if anything.
        short: measured for less time than its goal is for: the goal is not met by that.
        note: for whoever looks on.
    """

    name: str
    unit: str
    runs: Sequence[Run]
    compared_with: str | None = None
    goal: Goal | None = None
    short: bool = False
    note: str = ""

    @property
    def value(self) -> float:
        """The median of the values."""
        return median(run.value for run in self.runs)

    @property
    def ratios(self) -> list[float]:
        """One for each run that has one."""
        return [ratio for run in self.runs if (ratio := run.ratio) is not None]

    @property
    def ratio(self) -> float | None:
        """The median of the runs' ratios: two figures of one run had the same machine."""
        return median(self.ratios) if self.ratios else None

    @property
    def kept(self) -> bool | None:
        """Whether what was measured keeps within the goal; None where there is none."""
        if self.goal is None:
            return None
        found = self.ratio if self.goal.of == "ratio" else self.value
        return found is not None and bool(_COMPARED[self.goal.sign](found, self.goal.bound))

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        return None if self.goal is None else bool(self.kept) and not self.short

    def entry(self, measured: Mapping[str, Any]) -> dict[str, Any]:
        """The figure as it is recorded.

        Args:
            measured: where and when.
        """
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            "compared_with": self.compared_with,
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "goal": None if self.goal is None else str(self.goal),
            "met": self.met,
            "runs": [{"value": round(run.value, 4), "compared": _rounded(run.compared)} for run in self.runs],
            "measured": {**measured, "short": self.short},
        }


def machine() -> dict[str, Any]:
    """What the figures depend on beside the code."""
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processors": os.cpu_count(),
    }


def _commit() -> str | None:
    """The commit that is measured, with a mark where the tree differs from it; None for a tree of no repository."""
    git = shutil.which("git")
    if git is None:
        return None
    told = subprocess.run(
        [git, "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or None


@dataclass(frozen=True, slots=True)
class Record:
    """The file of figures: a list with one entry a name."""

    path: Path
    clock: Clock
    _machine: Mapping[str, Any] = field(default_factory=machine)

    def add(self, figures: Sequence[Figure]) -> None:
        """Put figures in the place of those of their names, and leave the others."""
        measured = {"at": f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}", **self._machine}
        held = json.loads(self.path.read_bytes()) if self.path.exists() else []
        entries = {entry["name"]: entry for entry in held}
        entries |= {figure.name: figure.entry(measured) for figure in figures}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(json.dumps(list(entries.values()), indent=2) + "\n")
        new.replace(self.path)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


def shown(figures: Sequence[Figure]) -> None:
    """Print a table, and below it what the figures are beside their numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("figure", "value", "ratio", "least … most", "goal", "met"):
        table.add_column(heading, no_wrap=True)
    for figure in figures:
        table.add_row(*_cells(figure))
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    console.print(table)
    for figure in figures:
        beside = f"beside {figure.compared_with}" if figure.compared_with else ""
        if told := "; ".join(text for text in (beside, figure.note) if text):
            console.print(f"{figure.name}: {told}", soft_wrap=True, highlight=False)


def _cells(figure: Figure) -> list[str]:
    ratio = figure.ratio
    spread = figure.ratios or [run.value for run in figure.runs]
    return [
        figure.name,
        f"{_number(figure.value)} {figure.unit}",
        "" if ratio is None else f"{ratio:.2f}",
        f"{_number(min(spread))} … {_number(max(spread))}" if len(spread) > 1 else "",
        "" if figure.goal is None else str(figure.goal),
        _verdict(figure),
    ]


def _verdict(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    if figure.short:
        return "too short"
    return "[green]yes[/]" if figure.met else "[bold red]no[/]"


def _number(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def say(text: str) -> None:
    """How far it is: on a terminal in one line."""
    if sys.stderr.isatty():
        print(f"\r\033[2K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


Measure = Callable[[argparse.Namespace, Path, Callable[[str], None]], list[Figure]]


def ran(module: str, numbers: Mapping[str, tuple[int, str]], measure: Measure) -> int:
    """Measure, print a table, keep the figures; 1 where a goal is missed or nothing could be measured.

    Args:
        module: what `python -m` runs.
        numbers: options, each with what it is by default and what it says of itself.
        measure: is given what was chosen, a folder, and whom to tell how far it is.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, (default, said) in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=said)
    parser.add_argument("--record", type=Path, default=ROOT / "build" / "bench.json", help="the file of figures")
    parser.add_argument("--folder", type=Path, help="the disk to measure on; by default that of temporary files")
    chosen = parser.parse_args()
    with TemporaryDirectory(dir=chosen.folder) as folder:
        try:
            figures = measure(chosen, Path(folder), say)
        except Unmeasured as error:
            say(f"{error}\n")
            return 1
    say("")
    Record(chosen.record, SystemClock()).add(figures)
    shown(figures)
    return any(figure.kept is False and not figure.short for figure in figures)
