"""What was measured, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sfn.spark.read_table import ENGINES
from tests.spark.matrix.matrix import Matrix
from tests.spark.matrix.outcome import REFUSES, SAME
from tests.support.pages import Shown

_MODULE: Final = "tests.spark.matrix"
LEGEND: Final = (
    "✓: rows, names and types are those that Iceberg's own library shows through the catalog. refuses: `NotSupported`, "
    "which says what it is and names an engine that can, if one can."
)


def pages(matrix: Matrix) -> list[Shown]:
    """Where it is shown."""
    return [Shown("docs/evidence/spark.md", _MODULE, rendered(matrix))]


def rendered(matrix: Matrix) -> str:
    """A row for each look at a table, a column for each engine."""
    told = ", ".join(f"{package} {number}" for package, number in matrix.versions.items())
    names = [engine.name for engine in ENGINES]
    rows = ([title, *(_short(row[name]) for name in names)] for title, row in matrix.cells.items())
    return f"\n{LEGEND} Measured with {told}.\n\n{_table(['the table', *(f'`{name}`' for name in names)], rows)}\n"


def _short(cell: str) -> str:
    if cell == SAME:
        return "✓"
    return cell if cell.startswith(REFUSES) else f"**{cell}**"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
