"""Figures: what was measured, beside what, and whether that meets its goal; kept in a JSON file."""

from __future__ import annotations

import json
import operator
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from typing_extensions import override

from sfn.clock import Clock

ROOT: Final = Path(__file__).parents[2]

_COMPARED: Final = {"<": operator.lt, "<=": operator.le, ">=": operator.ge}


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
