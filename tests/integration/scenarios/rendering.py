"""What was seen, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sfn.sfnfile.naming import NAMINGS
from tests.integration.scenarios.looks import STANDARD
from tests.integration.scenarios.matrix import Cell, Matrix
from tests.integration.scenarios.scenario import Telling
from tests.support.pages import Shown

_MODULE = "tests.integration.scenarios"
_LETTERS = {how: how[0].upper() for how in STANDARD}
LEGEND = (
    "**D** goes by the directory, **N** by the table's name in it, **U** by its uuid, **H** by the version hint; **✓** "
    "is all four. `t`: the rows of that table as the catalog has them; `→ t`: the same, where one file led on to "
    "another; `Dropped` and the like: refusals. `same`: as with `identifier`; in the last two columns, as with an "
    "event of each change."
)
_ESCAPED = str.maketrans({"|": r"\|", "&": "&amp;", "<": "&lt;", "`": "'"})


def pages(matrix: Matrix) -> list[Shown]:
    """Where it is shown."""
    return [Shown("docs/evidence/scenarios.md", _MODULE, rendered(matrix))]


def rendered(matrix: Matrix) -> str:
    """One table: a row for each scenario, a column for each naming, and one for each other way to learn of it."""
    head = ["what happened", *NAMINGS, *Telling]
    lines = [head, ["---"] * len(head)]
    for title, row in matrix.cells.items():
        others = (matrix.otherwise.get(telling, {}).get(title) for telling in Telling)
        lines.append([title.translate(_ESCAPED), *_columns(row), *map(_differences, others)])
    return f"\n{LEGEND}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _differences(row: Mapping[str, Cell] | None) -> str:
    """What is otherwise, and with which namings; nothing of what was not played."""
    if row is None:
        return ""
    alike: dict[str, list[str]] = {}
    for naming, cell in row.items():
        if cell:
            alike.setdefault(_told(cell), []).append(naming)
    return "<br>".join(f"{' and '.join(namings)}: {told}" for told, namings in alike.items()) or "same"


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
    named = [*([" ".join(letters)] if letters else []), *others]
    return " and ".join(named) + (":" if others else "")
