"""What was seen, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sfn.pointer.naming import NAMINGS
from tests.integration.pages import Shown
from tests.integration.scenarios.looks import STANDARD
from tests.integration.scenarios.matrix import Cell, Matrix

_MODULE = "tests.integration.scenarios"
_LETTERS = {how: how[0].upper() for how in STANDARD}
_ESCAPED = str.maketrans({"|": r"\|", "&": "&amp;", "<": "&lt;", "`": "'"})


def pages(matrix: Matrix) -> list[Shown]:
    """Where it is shown."""
    return [Shown(page, _MODULE, rendered(matrix)) for page in ("service/SCENARIOS.md", "README.md")]


def rendered(matrix: Matrix) -> str:
    """One table: a row for each scenario, a column for each naming."""
    lines = [["what happened", *NAMINGS], ["---"] * (1 + len(NAMINGS))]
    lines += [[title.translate(_ESCAPED), *_columns(row)] for title, row in matrix.cells.items()]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _columns(row: Mapping[str, Cell]) -> Iterator[str]:
    """Cells; one that is the same as the first is not told twice."""
    first = _told(row[next(iter(NAMINGS))])
    yield first
    for naming in [*NAMINGS][1:]:
        told = _told(row[naming])
        yield "same" if told == first else told


def _told(cell: Cell) -> str:
    places: dict[str, dict[str, str]] = {}
    for how, seen in cell.items():
        of, _, by = how.rpartition(": ")
        places.setdefault(of, {})[by] = seen
    return "<br>".join(f"{of}: {_seen(looks)}" if of else _seen(looks) for of, looks in places.items())


def _seen(looks: Mapping[str, str]) -> str:
    """Looks that show the same, together."""
    alike: dict[str, list[str]] = {}
    for by, seen in looks.items():
        alike.setdefault(seen, []).append(by)
    return ", ".join(f"{_called(bys)} {seen.translate(_ESCAPED)}" for seen, bys in alike.items())


def _called(bys: list[str]) -> str:
    if tuple(bys) == STANDARD:
        return "✓"
    letters = [_LETTERS[by] for by in bys if by in _LETTERS]
    others = [by for by in bys if by not in _LETTERS]
    return " ".join([*letters, *([f"{' and '.join(others)}:"] if others else [])])
