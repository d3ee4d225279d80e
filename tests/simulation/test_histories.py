"""Random histories: a few of every kind, and that there is something in them. `make simulate` runs thousands."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from multiprocessing.pool import Pool

import pytest

from tests.simulation.faults import Fate, Faults
from tests.simulation.gateway import PASSING
from tests.simulation.histories import KINDS, history_in_brief
from tests.simulation.operations import BRANCHES, OPERATIONS, RETURNS, SWITCHES, Life
from tests.simulation.script import named
from tests.simulation.settings import Setting
from tests.simulation.world import World, life_of

FIRST = 100_001
EACH, OF_REPLICAS = 1, 3
"""Histories of a kind: those of replicas are short. `make simulate` runs many of every kind.

`FIRST` is a seed with which one history of each kind has enough operations: some random histories are short."""
AT_LEAST = 3
"""Operations of a history, whose number is drawn; which they are is a matter of luck where it is short."""


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_stale_or_falsified(kind: str, workers: Pool) -> None:
    """Whatever happens, whenever a process dies: readers are never lied to, and all is right at rest."""
    each = OF_REPLICAS if KINDS[kind].replicas and not KINDS[kind].gateway else EACH
    seeds = range(FIRST + 1, FIRST + 1 + each)
    reports = workers.map(partial(history_in_brief, kind=kind), seeds, chunksize=1)
    bad = {report.seed: report.bad[:3] for report in reports if report.bad}
    assert not bad, f"replay one with: python -m tests.simulation --kind {kind} --show SEED"
    assert sum(report.counts["killed"] for report in reports) > each
    happened = sum(report.counts[name] for report in reports for name in KINDS[kind].operations)
    assert happened > AT_LEAST * each


@pytest.mark.parametrize("operation", sorted(OPERATIONS | RETURNS | BRANCHES | SWITCHES))
def test_every_operation_happens(operation: str) -> None:
    """However seldom it is chosen: there are tables that it can happen to."""
    world = World(FIRST, Setting())
    names = [named(letter) for letter in "abcd"]
    weights = {"create": 1.0, "commit": 1.0, "drop": 1.0} | {operation: 3.0}
    life = Life(world, 0, names, [f"s3://lake/{number}" for number in range(6)], weights, lost=1.0)
    world.play(life.run(60))
    world.loop.close()
    assert world.counts[operation] > 2


def test_every_request_is_made_and_done() -> None:
    """Of clients behind gateways: there are tables that it can be made for."""
    setting = replace(KINDS["gateway"], operations=dict.fromkeys(PASSING, 1.0))
    world = World(FIRST, setting, Faults(kill=0, stop=0, fail=0))
    world.servers[0].fate = lambda _: Fate()

    async def history() -> None:
        world.start()
        await life_of(world, 0).run(120)

    world.play(history())
    world.loop.close()
    assert [operation for operation in PASSING if not world.counts[operation]] == []
