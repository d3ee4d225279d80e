"""SIGKILL under load: what was acknowledged is in the log, and in the end every file says what the catalog does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import anyio

from tests.faults import altered_service, fleet, inspection
from tests.faults.lake import Lake, serving
from tests.faults.senders import Clients, Trigger
from tests.faults.service import ROOT, Service, Setting, eventually, patched, started

ROUNDS = fleet.rounds(3)
"""One kill of each aim: enough to notice the mutant below. `make faults` runs sixty."""
MUTANT_ROUNDS = 3
TABLES = 12
SLOW = 0.05
HEALED_WITHIN = 12.0
"""Seconds: less than the lease of a claim that a killed process left."""
AIMS = ("ack", "load", "write")
MUTANT = ROOT / "tests" / "mutants" / "ack-before-commit.patch"
Record = Callable[[str, object], None]


@dataclass
class Figures:
    """What the rounds came to.

    Attributes:
        rounds: kills.
        acknowledged: events answered with 202.
        lost: those of them that are not in the log.
        unanswered: requests that the kills cut off.
        open_requests, open_claims: by round, at the kill.
        wrong: tables whose files differ from the catalog in the end.
        letters: dead letters by reason.
        healed_in: seconds from the last word of the clients until no file was wrong.
    """

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    unanswered: int = 0
    open_requests: list[int] = field(default_factory=list)
    open_claims: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    letters: dict[str, int] = field(default_factory=dict)
    healed_in: float = 0.0


async def test_nothing_acknowledged_is_lost_however_often_the_process_is_killed(
    tmp_path: Path, record_property: Record
) -> None:
    figures = await _rounds(tmp_path, ROUNDS, source=None)
    record_property("kills", asdict(figures))
    print("kills:", figures)
    assert figures.lost == 0
    assert figures.wrong == []
    assert figures.letters == {}
    assert figures.acknowledged > 10 * ROUNDS
    # The kills were aimed: each cut off a request and a claim.
    assert min(figures.open_requests) > 0
    assert min(figures.open_claims) > 0


async def test_it_notices_an_acknowledgement_before_the_commit(tmp_path: Path, record_property: Record) -> None:
    figures = await _rounds(tmp_path, MUTANT_ROUNDS, source=patched(tmp_path, MUTANT))
    record_property("mutant", asdict(figures))
    print("mutant:", figures)
    assert figures.lost > 0


async def _rounds(folder: Path, rounds: int, *, source: Path | None) -> Figures:
    """Kills, and what came of them; of a mutant's source whether all heals is nobody's question."""
    figures, chance = Figures(), random.Random(rounds)
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    lake = Lake(warehouse, delay=SLOW)
    for number in range(TABLES):
        lake.create(f"t{number}")
    clients = Clients(lake, chance)
    timeout = aiohttp.ClientTimeout(total=20)
    async with serving(lake), aiohttp.ClientSession(timeout=timeout) as session:
        setting = Setting(
            folder / "sfn", lake.uri, warehouse, module=altered_service.SLOW, source=source, interval="50ms"
        )
        for number in range(rounds):
            with started(setting, session) as service:
                await _round(service, lake, clients, AIMS[number % len(AIMS)], figures)
        if source is None:
            with started(setting, session) as service:
                await _healed(service, lake, clients, figures)
    figures.acknowledged, figures.unanswered = len(clients.acknowledged), clients.unanswered
    figures.lost = len(clients.acknowledged - inspection.logged(setting.database))
    figures.letters = inspection.letters(setting.database)
    return figures


async def _round(service: Service, lake: Lake, clients: Clients, aim: str, figures: Figures) -> None:
    """One life of a process, from its start to its kill."""
    lengths = lake.lengths()
    trigger = Trigger(service, aim, clients.chance, in_flight=lambda: clients.pending)
    await service.ready()
    lake.began = trigger.began
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trigger.watch)
        tasks.start_soon(clients.run, service, trigger.acknowledged)
        # A table that five lives in a row did not see through would count as poison, and rightly.
        await eventually(lambda: not lake.behind(lengths))
        await anyio.sleep(clients.chance.uniform(0.1, 0.5))
        trigger.arm()
    figures.rounds += 1
    figures.open_requests.append(trigger.open or 0)
    figures.open_claims.append(inspection.leased(service.setting.database))


async def _healed(service: Service, lake: Lake, clients: Clients, figures: Figures) -> None:
    """The last life: what was never acknowledged is told again, and then nothing may differ."""
    lake.began = lambda: None
    await service.ready()
    await clients.settle(service)
    began = anyio.current_time()
    with anyio.move_on_after(HEALED_WITHIN):
        await eventually(lambda: not lake.wrong())
    figures.wrong, figures.healed_in = lake.wrong(), round(anyio.current_time() - began, 2)
    assert service.process.terminate(10) == 0, service.tail()
