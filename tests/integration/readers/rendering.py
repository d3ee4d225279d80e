"""What was measured, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.integration.readers.matrix import Matrix
from tests.integration.readers.outcome import REFUSES, SAME
from tests.integration.readers.readers import READERS

PAGE = Path(__file__).parents[3] / "service" / "READERS.md"
_BEGIN, _END = (
    "<!-- measured: written by python -m tests.integration.readers -->\n",
    "<!-- end of what was measured -->\n",
)
_DIRECTORY = "/warehouse/sales/orders"
_FILE = f"{_DIRECTORY}/metadata/_sfn/sales_orders_main.ver"


def brought_up_to_date(page: str, matrix: Matrix) -> str:
    """A page with what was measured between its markers.

    Raises:
        ValueError: it has no markers.
    """
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"a page with the lines {_BEGIN!r} and {_END!r}")
    return f"{before}{_BEGIN}{rendered(matrix)}{_END}{after}"


def rendered(matrix: Matrix) -> str:
    """Three tables: the lines, the cells, what refusals say."""
    names = [reader.name for reader in READERS]
    cells = [[step, *(_short(row[name]) for name in names)] for step, row in matrix.cells.items()]
    tables = [
        _table(["reader", "what its user writes", "measured with"], _lines(matrix)),
        _table(["after", *names], cells),
        _table(["reader", "how it refuses"], _refusals(matrix)),
    ]
    return "\n" + "\n".join(tables) + "\n"


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
