"""All that was seen: each scenario in each naming, with one catalog server and one service for all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sfn.demo.fixture import RestCatalogServer, Runtime
from sfn.pointer.naming import NAMINGS
from tests.integration.scenarios import (
    commits,
    ends,
    leftalone,
    names,
    placements,
    places,
    renames,
    rivals,
    several,
    stopped,
)
from tests.integration.scenarios.pauses import Pauses
from tests.integration.scenarios.scenario import Scenario
from tests.integration.scenarios.sections import Section, founded
from tests.integration.scenarios.service import Service
from tests.integration.scenarios.stage import Pause, Stage, World
from tests.integration.scenarios.truth import Truth

EXPECTED = Path(__file__).with_name("expected.json")
_THEMES = (commits, renames, ends, places, placements, several, leftalone, names, stopped)
SCENARIOS: tuple[Scenario, ...] = tuple(one for theme in _THEMES for one in theme.SCENARIOS)
AT_A_TIME = 12
"""Scenarios that play beside each other: most of their time they wait."""

Cell = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Matrix:
    """What was seen.

    Attributes:
        cells: by scenario and naming, what each look showed.
    """

    cells: Mapping[str, Mapping[str, Cell]]

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(json.loads(text))

    def text(self) -> str:
        return json.dumps(self.cells, indent=1, ensure_ascii=False) + "\n"

    def differences(self, found: Self) -> list[str]:
        """What was seen otherwise another time: a line each, which names the cell."""
        here, there = dict(self._named()), dict(found._named())
        return [
            f"{name}: expected {here.get(name, 'nothing')!r}, found {there.get(name, 'nothing')!r}"
            for name in {**here, **there}
            if here.get(name) != there.get(name)
        ]

    def _named(self) -> Iterator[tuple[str, str]]:
        for scenario, row in self.cells.items():
            for naming, cell in row.items():
                yield from ((f"{scenario}, {naming} naming, by {how}", seen) for how, seen in cell.items())


def measured(folder: Path, runtime: Runtime, scenarios: Sequence[Scenario] = SCENARIOS) -> Matrix:
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
        rival = Service(folder / "rival", server.warehouse, rivals.followed(folder))
        stack.enter_context(closing(service))
        stack.enter_context(closing(rival))
        world = World(server.client, warehouse, service, rival, folder)
        service.start()
        rival.start()
        parts = [one for one in scenarios if not one.stops], [one for one in scenarios if one.stops]
        cells = _played(world, parts[0], nullcontext, AT_A_TIME)
        if parts[1]:
            pauses = Pauses(service, len(parts[1]) * len(NAMINGS))
            cells |= _played(world, parts[1], pauses.pause, len(parts[1]) * len(NAMINGS), pauses)
        service.stop()
        rival.stop()
    return Matrix({one.title: {naming: cells[one.title, naming] for naming in NAMINGS} for one in scenarios})


def _played(
    world: World, scenarios: Sequence[Scenario], pause: Pause, at_a_time: int, pauses: Pauses | None = None
) -> dict[tuple[str, str], Cell]:
    def play(which: tuple[Scenario, str]) -> Cell:
        scenario, naming = which
        try:
            section = Section(NAMINGS[naming], scenario.placement, world.warehouse)
            return _cell(Stage(world, section, scenario.key, pause), scenario)
        except BaseException as error:
            error.add_note(f"in {scenario.title!r}, {naming} naming")
            if pauses is not None:
                pauses.give_up()
            raise

    jobs = [(scenario, naming) for scenario in scenarios for naming in NAMINGS]
    with ThreadPoolExecutor(at_a_time) as pool:
        futures = {(one.title, naming): pool.submit(play, (one, naming)) for one, naming in jobs}
    wrong = [error for future in futures.values() if isinstance(error := future.exception(), Exception)]
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} of {len(futures)} scenarios", wrong)
    return {key: future.result() for key, future in futures.items()}


def _cell(stage: Stage, scenario: Scenario) -> Cell:
    looks = scenario.play(stage)
    truth = Truth(stage)
    if wrong := truth.untrue():
        raise AssertionError("\n".join(wrong))
    cell = {look.how: look.see(truth) for look in looks}
    if len(cell) < len(looks):
        raise AssertionError(f"looks with names of their own, not {[look.how for look in looks]}")
    return cell
