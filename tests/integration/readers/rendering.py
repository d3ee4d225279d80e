"""What was measured, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.integration.readers.matrix import Matrix
from tests.integration.readers.outcome import REFUSES, SAME
from tests.integration.readers.readers import READERS
from tests.support.pages import Shown

_MODULE = "tests.integration.readers"
LEGEND = (
    "✓: the rows that the catalog has at that moment. refuses: an error, and no rows. **old rows**: those of the step "
    "before. **wrong rows**: neither; some that the catalog does not have (too many), or not all that it has (missing)."
)
_DIRECTORY = "/warehouse/sales/orders"
_FILE = f"{_DIRECTORY}/metadata/_sfn/sales_orders_main.ver"


def pages(matrix: Matrix) -> list[Shown]:
    """Where it is shown: the cells on two pages, all else on another."""
    cells = f"\n{LEGEND}\n\n{_cells(matrix)}\n"
    return [
        Shown("docs/evidence/readers.md", _MODULE, rendered(matrix)),
        Shown("README.md", _MODULE, cells),
        Shown("docs/read/README.md", _MODULE, cells),
    ]


def rendered(matrix: Matrix) -> str:
    """Two tables: the lines, and what refusals say."""
    tables = [
        _table(["reader", "what its user writes", "measured with"], _lines(matrix)),
        _table(["reader", "how it refuses"], _refusals(matrix)),
    ]
    return "\n" + "\n".join(tables) + "\n"


def _cells(matrix: Matrix) -> str:
    names = [reader.name for reader in READERS]
    return _table(
        ["after", *names], ([step, *(_short(row[name]) for name in names)] for step, row in matrix.cells.items())
    )


def _lines(matrix: Matrix) -> Iterator[list[str]]:
    for reader in READERS:
        packages = ", ".join(f"{package} {matrix.versions[package]}" for package in reader.packages)
        yield [reader.name, f"`{reader.line_for(_DIRECTORY, _FILE)}`", packages]


def _refusals(matrix: Matrix) -> Iterator[list[str]]:
    for reader in READERS:
        cells = [row[reader.name] for row in matrix.cells.values()]
        said = dict.fromkeys(cell.removeprefix(f"{REFUSES}: ") for cell in cells if cell.startswith(REFUSES))
        if said:
            yield [reader.name, "; ".join(f"`{why}`" for why in said)]


def _short(cell: str) -> str:
    if cell == SAME:
        return "✓"
    return REFUSES if cell.startswith(REFUSES) else f"**{cell}**"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
