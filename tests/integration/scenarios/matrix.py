"""All that was seen: each scenario in each naming, with one catalog server and one service for all, and its page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from sfn.demo.environment import RestCatalogServer, ServerRuntime
from sfn.sfnfile.naming import NAMINGS
from tests.integration.scenarios.changes import COMMITS, ENDS, LEFT_ALONE, RENAMES
from tests.integration.scenarios.looks import STANDARD, Scenario, Telling, Truth
from tests.integration.scenarios.places import NAMES, PLACEMENTS, PLACES, SEVERAL, followed
from tests.integration.scenarios.service import Section, Service, founded
from tests.integration.scenarios.stage import Hearing, Outage, Silence, Stage, Told, World
from tests.support.pages import Shown

EXPECTED = Path(__file__).with_name("expected.json")
SCENARIOS: tuple[Scenario, ...] = (*COMMITS, *RENAMES, *ENDS, *PLACES, *PLACEMENTS, *SEVERAL, *LEFT_ALONE, *NAMES)
AT_A_TIME = 24
"""Scenarios that play beside each other: most of their time they wait."""

Cell = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Matrix:
    """What was seen.

    Attributes:
        cells: by scenario and naming, what each look showed.
        otherwise: by how else the service learnt of it, scenario and naming, the looks that showed something else then.
    """

    cells: Mapping[str, Mapping[str, Cell]]
    otherwise: Mapping[str, Mapping[str, Mapping[str, Cell]]]

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    def named(self) -> Iterator[tuple[str, str]]:
        """Cells, and what names each."""
        for scenario, naming, cell in _each(self.cells):
            yield from ((f"{scenario}, {naming} naming, by {how}", seen) for how, seen in cell.items())
        for telling, rows in self.otherwise.items():
            for scenario, naming, cell in _each(rows):
                yield from ((f"{scenario}, {telling}, {naming} naming, by {how}", it) for how, it in cell.items())


@dataclass(frozen=True, slots=True)
class _Played:
    """One scenario in one naming, and how the service learns of it.

    Attributes:
        telling: None for each change as it happens.
    """

    scenario: Scenario
    naming: str
    telling: Telling | None = None

    @property
    def key(self) -> str:
        """It, in the names of its namespaces."""
        return self.scenario.key if self.telling is None else f"{self.scenario.key}_{self.telling.name.lower()}"


def measured(folder: Path, runtime: ServerRuntime, scenarios: Sequence[Scenario] = SCENARIOS) -> Matrix:
    """Play the scenarios.

    Args:
        folder: an empty one, for catalog, services and tables.
        runtime: runs the catalog.
        scenarios: which.

    Raises:
        ExceptionGroup: what was wrong in any of them.
    """
    for name in ("catalog", "service", "rival"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(RestCatalogServer(folder / "catalog", runtime))
        warehouse = Path(server.warehouse.removeprefix("file://"))
        told = [section.followed(server.settings) for section in founded(warehouse)]
        service = Service(folder / "service", server.warehouse, told)
        rival = Service(folder / "rival", server.warehouse, followed(folder))
        stack.enter_context(closing(service))
        stack.enter_context(closing(rival))
        world = World(server.client(), warehouse, service, rival, folder)
        service.start()
        rival.start()
        seen = _all_played(world, scenarios)
        service.stop()
        rival.stop()
    return _compared(seen, scenarios)


def _all_played(world: World, scenarios: Sequence[Scenario]) -> dict[_Played, Cell]:
    """The outage comes last: whoever plays in it is alone."""
    seen = _seen(world, [_Played(one, naming) for one in scenarios for naming in NAMINGS], Told(), AT_A_TIME)
    for telling, hearing in ((Telling.NONE, Silence), (Telling.LAST, Outage)):
        plays = [_Played(one, naming, telling) for one in scenarios if telling in one.again for naming in NAMINGS]
        if plays:
            seen |= _seen(world, plays, hearing(world.service, len(plays)), len(plays))
    return seen


def _seen(world: World, plays: Sequence[_Played], hearing: Hearing, at_a_time: int) -> dict[_Played, Cell]:
    def play(it: _Played) -> Cell:
        try:
            section = Section(NAMINGS[it.naming], it.scenario.placement, world.warehouse, it.scenario.expires)
            return _cell(Stage(world, section, it.key, hearing), it.scenario)
        except BaseException as error:
            error.add_note(f"in {it.scenario.title!r}, {it.telling or 'an event of each change'}, {it.naming} naming")
            hearing.give_up()
            raise

    with ThreadPoolExecutor(at_a_time) as pool:
        futures = {it: pool.submit(play, it) for it in plays}
    wrong = [error for future in futures.values() if isinstance(error := future.exception(), Exception)]
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} of {len(futures)} scenarios", wrong)
    return {it: future.result() for it, future in futures.items()}


def _cell(stage: Stage, scenario: Scenario) -> Cell:
    looks = scenario.play(stage)
    truth = Truth(stage)
    if wrong := truth.untrue():
        raise AssertionError("\n".join(wrong))
    cell = {look.how: look.see(truth) for look in looks}
    if len(cell) < len(looks):
        raise AssertionError(f"looks with names of their own, not {[look.how for look in looks]}")
    return cell


def _compared(seen: Mapping[_Played, Cell], scenarios: Sequence[Scenario]) -> Matrix:
    cells = {one.title: {naming: seen[_Played(one, naming)] for naming in NAMINGS} for one in scenarios}
    otherwise: dict[str, dict[str, dict[str, Cell]]] = {telling.value: {} for telling in Telling}
    for it, cell in seen.items():
        if it.telling is not None:
            there = cells[it.scenario.title][it.naming]
            row = otherwise[it.telling].setdefault(it.scenario.title, {})
            row[it.naming] = {how: what for how, what in cell.items() if there[how] != what}
    return Matrix(cells, otherwise)


def _each(rows: Mapping[str, Mapping[str, Cell]]) -> Iterator[tuple[str, str, Cell]]:
    return ((scenario, naming, cell) for scenario, row in rows.items() for naming, cell in row.items())


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
    return "<br>".join(f"{of}: {_alike(looks)}" if of else _alike(looks) for of, looks in places.items())


def _alike(looks: Mapping[str, str]) -> str:
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
