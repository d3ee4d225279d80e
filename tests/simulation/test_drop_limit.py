"""Directed histories of a small catalog that loses its tables: it keeps their files until somebody has looked."""

from __future__ import annotations

import asyncio

import pytest

from sfn.inbox.model import AdminCommand
from tests.simulation.script import Replicated, Stage, history, named
from tests.simulation.settings import Setting

BLANK = 450.0
"""Seconds in which the catalog finds nothing: several sweeps, and long enough for drops to be certain."""


def lose(stage: Stage, seconds: float = BLANK) -> None:
    now = stage.world.time
    stage.world.truths[0].blank.append((now, now + seconds))
    stage.world.ranks.ended |= {table.uuid for table in stage.world.truths[0].live().values()}


@pytest.mark.parametrize("count", [2, 6, 10])
@pytest.mark.parametrize("told", [True, False], ids=["by events", "by sweeps"])
def test_a_catalog_that_loses_all_tables_gives_up_less_than_half(count: int, *, told: bool) -> None:
    """Rule 8: a sweep holds all of them; of those that events tell of first, fewer than half go, or a single one."""
    stage = Stage(setting=Setting(max_drops=None))
    names = [f"t{number}" for number in range(count)]

    async def act() -> None:
        await stage.publish(*names)
        lose(stage)
        for name in names if told else ():
            await stage.hint(name, drop=True)
        await asyncio.sleep(0.9 * BLANK)
        dropped = stage.states(names)["dropped"]
        assert dropped == (max(1, (count - 1) // 2) if told else 0)
        await asyncio.sleep(0.2 * BLANK)

    assert stage.run(act, briefly=True) == []
    # Restored, they are held no more: nobody had to release anything.
    assert stage.states(names) == {"current": count}
    assert not any(state == "held" for _, state in stage.service.kept.tables())


@history(lambda: Stage(setting=Setting(max_drops=None)), briefly=True)
async def test_a_single_table_that_is_dropped_is_believed(stage: Stage) -> None:
    await stage.publish("a")
    stage.drop("a")
    await stage.hint("a", drop=True)
    await asyncio.sleep(60)
    assert stage.states(["a"]) == {"dropped": 1}


@history(lambda: Stage(setting=Setting(max_drops=None)), briefly=True)
async def test_tables_that_are_dropped_by_hand_go_once_they_are_released(stage: Stage) -> None:
    await stage.publish("a", "b", "c")
    for name in "ab":
        stage.drop(name)
        await stage.hint(name, drop=True)
        await asyncio.sleep(60)
    assert stage.states(["a", "b", "c"]) == {"dropped": 1, "current": 2}
    await stage.service.kept.release("cat0", AdminCommand("", "", stage.world.loop.now()))
    await asyncio.sleep(30)
    assert stage.states(["a", "b", "c"]) == {"dropped": 2, "current": 1}


async def renamed_at_once(stage: Stage, names: list[str]) -> None:
    """Create and rename tables so quickly that files of both names are live: each old name waits for its rename."""
    for number, name in enumerate(names):
        stage.create(name, f"s3://lake/at-once/{number}")
        await stage.hint(name)
    await asyncio.sleep(0.7)
    for name in names:
        stage.rename(name, f"new-{name}")
        await stage.hint(name, renamed_to=named(f"new-{name}"))
        await stage.hint(f"new-{name}")
    await asyncio.sleep(0.7)
    both = [*names, *(f"new-{name}" for name in names)]
    assert stage.states(both) == {"current": 2 * len(names)}


@history(lambda: Stage(setting=Setting(max_drops=None)), briefly=True)
async def test_a_table_that_is_renamed_and_dropped_at_once_counts_once(stage: Stage) -> None:
    await stage.publish("b")
    await renamed_at_once(stage, ["a"])
    stage.drop("new-a")
    await stage.hint("new-a", drop=True)
    # Under its old name the table is missing too, and no event reported a drop: a sweep comes first.
    await asyncio.sleep(250)
    assert stage.states(["a", "new-a", "b"]) == {"dropped": 2, "current": 1}
    # The next one is the catalog's last one.
    stage.drop("b")
    await stage.hint("b", drop=True)
    await asyncio.sleep(60)
    assert stage.states(["b"]) == {"current": 1}
    await stage.service.kept.release("cat0", AdminCommand("", "", stage.world.loop.now()))


def test_a_catalog_that_loses_its_tables_while_they_are_renamed_gives_up_none() -> None:
    """Files of both names are live when the tables disappear: a sweep holds them under either name."""
    stage = Stage(2, Setting(max_drops=None))
    names = [f"t{number}" for number in range(5)]

    async def act() -> None:
        await renamed_at_once(stage, names)
        lose(stage)
        for name in names:
            await stage.hint(f"new-{name}", drop=True)
        await asyncio.sleep(0.9 * BLANK)
        assert stage.states([f"new-{name}" for name in names]) == {"current": 5}
        await asyncio.sleep(0.2 * BLANK)

    assert stage.run(act, briefly=True) == []
    assert stage.states([f"new-{name}" for name in names]) == {"current": 5}


@history(lambda: Replicated(Setting(max_drops=None)), briefly=True)
async def test_replicas_together_give_up_less_than_half(stage: Replicated) -> None:
    names = [f"t{number}" for number in range(6)]
    await stage.publish(*names)
    for name in names:
        stage.drop(name)
        await stage.hint(name, drop=True)
    await asyncio.sleep(60)
    assert stage.states(names) == {"current": 4, "dropped": 2}
    await stage.kept.release("cat0", AdminCommand("", "", stage.world.loop.now()))
