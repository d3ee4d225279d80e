"""Every change that a publish of any kind makes as the moment of a `kill -9`; of one kind every call of a port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from multiprocessing.pool import Pool
from typing import Any

import pytest

from sfn.domain.identifiers import Table
from sfn.sfnfile.naming import ORDINAL, UUID
from tests.simulation.script import ELSEWHERE, PLACE, KilledAt, Stage, changes, named
from tests.simulation.settings import Files, Setting

Script = Callable[[Stage], Coroutine[Any, Any, None]]


async def create(stage: Stage) -> None:
    stage.create("a")
    await stage.hint("a")


async def commit(stage: Stage) -> None:
    stage.commit("a")
    await stage.hint("a")


async def rename(stage: Stage) -> None:
    stage.rename("a", "b")
    await stage.hint("a", renamed_to=None)
    await stage.hint("b")


async def relocate(stage: Stage) -> None:
    stage.commit("a", place=ELSEWHERE)
    await stage.hint("a")


async def drop(stage: Stage) -> None:
    stage.drop("a")
    await stage.hint("a", drop=True)


async def purge(stage: Stage) -> None:
    table = stage.world.truths[0].true(named("a"))
    assert isinstance(table, Table)
    stage.drop("a")
    stage.world.purge(table)
    await stage.hint("a", drop=True, purge=True)


async def recreate_here(stage: Stage) -> None:
    stage.drop("a")
    stage.create("a", PLACE)
    await stage.hint("a")


async def recreate_elsewhere(stage: Stage) -> None:
    stage.drop("a")
    stage.create("a", ELSEWHERE)
    await stage.hint("a")


async def relocate_and_drop(stage: Stage) -> None:
    stage.commit("a", place=ELSEWHERE)
    await stage.hint("a")
    await asyncio.sleep(3)
    stage.drop("a")
    await stage.hint("a", drop=True)


async def three_commits(stage: Stage) -> None:
    for _ in range(3):
        stage.commit("a")
    await stage.hint("a")


async def branch(stage: Stage) -> None:
    stage.commit("a", branches={"r-1": 7})
    await stage.hint("a")


async def unbranch_and_drop(stage: Stage) -> None:
    stage.commit("a", branches={})
    await stage.hint("a")
    await asyncio.sleep(3)
    stage.drop("a")
    await stage.hint("a", drop=True)


SCRIPTS = [create, commit, rename, relocate, drop, purge, recreate_here, recreate_elsewhere, relocate_and_drop]
FILES: dict[str, Files] = {
    "identifier": {},
    "ordinal": {"naming": ORDINAL},
    "uuid": {"naming": UUID, "branches": ("main", "r-*")},
}
OF_ALL = [script for script in SCRIPTS if script not in {commit, relocate_and_drop}]
NAMED = {
    "identifier": SCRIPTS,
    "ordinal": [three_commits, relocate_and_drop, *OF_ALL],
    "uuid": [branch, unbranch_and_drop, *OF_ALL],
}
CASES = [(naming, script) for naming, scripts in NAMED.items() for script in scripts]


def killed_at(number: int, script: Script, naming: str) -> tuple[list[str], list[tuple[str, str]]]:
    """One history in which a process is killed at the n-th call after the script began: the calls, what was broken."""
    stage, killer = Stage(setting=Setting(policies=(FILES[naming],))), KilledAt(number)

    async def act() -> None:
        if script is not create:
            stage.create("a")
            if script is unbranch_and_drop:
                stage.commit("a", branches={"r-1": 7, "r-2": 8})
            await stage.hint("a")
            await asyncio.sleep(20)
        stage.service.script = killer
        await script(stage)
        await asyncio.sleep(100)

    bad = stage.run(act, briefly=number > 0)
    if script is purge:
        bad += [("left by a purge", key) for key in stage.world.files.bodies if key.endswith(".ver")]
    return killer.seen, bad


@pytest.mark.parametrize(("naming", "script"), CASES, ids=lambda case: case if isinstance(case, str) else case.__name__)
def test_a_kill_at_any_call_is_mended(naming: str, script: Script, workers: Pool) -> None:
    """Whatever call of whatever port a process dies at, readers are never lied to and all is right at rest."""
    calls, bad = killed_at(0, script, naming)
    assert bad == []
    assert len(calls) >= 10
    chosen = range(1, len(calls) + 1) if (naming, script) == ("identifier", rename) else changes(calls)
    killed = workers.map(partial(killed_at, script=script, naming=naming), chosen, chunksize=1)
    for number, (seen, broken) in zip(chosen, killed, strict=True):
        assert len(seen) >= number
        assert broken == [], f"killed at call {number}: {seen[number - 1]}"
