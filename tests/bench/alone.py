"""What a benchmark that is a command of its own does around its measuring."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console

from sfn.clock import SystemClock
from tests.bench.record import ROOT, Figure, Record, Unmeasured
from tests.bench.table import say, shown

_WIDE: Final = 140
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
    shown(figures, Console(width=None if sys.stdout.isatty() else _WIDE))
    return any(figure.kept is False and not figure.short for figure in figures)
