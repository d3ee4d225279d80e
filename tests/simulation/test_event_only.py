"""Directed histories of an event-only catalog: what events may, and may not, make of its tables' files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from multiprocessing.pool import Pool
from typing import Any

import pytest

from sfn.domain.events import TableOrigin
from sfn.domain.identifiers import Table
from tests.simulation.catalog import metadata_file
from tests.simulation.events import BY_UUID
from tests.simulation.script import ELSEWHERE, PLACE, KilledAt, Stage, changes, history, named
from tests.simulation.settings import Setting

FILE = f"{PLACE}/metadata/_sfn/n_a_main.ver"
LAG = 6


class EventOnlyStage(Stage):
    """A world whose catalog is event-only."""

    def __init__(self, **setting: Any) -> None:
        super().__init__(setting=Setting(event_only=BY_UUID, **setting))

    async def tell(self, name: str, table: Table, birth: TableOrigin | None = None, *, uuid: bool = True) -> None:
        """An event of a pointer."""
        told = table.uuid if uuid else None
        await self.hint(name, min_metadata_location=table.metadata_location, origin=birth, uuid=told)

    async def tell_created(self, name: str = "a", place: str = PLACE, *, opaque: bool = False) -> Table:
        """A new table, told of and published."""
        table = self.create(name, place, opaque=opaque)
        await self.tell(name, table, TableOrigin.CREATE)
        await asyncio.sleep(20)
        return table

    async def tell_renamed(self, old: str, new: str, table: Table) -> None:
        """A rename that tells no location."""
        self.rename(old, new)
        await self.hint(old, renamed_to=named(new), uuid=table.uuid)
        await self.hint(new, renamed_from=named(old), uuid=table.uuid)

    def pointer(self) -> str:
        """What the file of `a` names."""
        return str(self.world.checker.document(FILE)["metadata_file_path"])

    def said(self, state: str) -> bool:
        """Whether any file ever said so."""
        return any(f".ver = {state} " in line for line in self.world.trace)


@pytest.mark.parametrize("opaque", [False, True], ids=["by number", "by log"])
@history(EventOnlyStage)
async def test_a_late_event_does_not_lead_back(stage: EventOnlyStage, opaque: bool) -> None:
    await stage.tell_created(opaque=opaque)
    second, third = stage.commit("a", opaque=opaque), stage.commit("a", opaque=opaque)
    logged = replace(third, metadata_log=(second.metadata_location,))
    stage.world.files.bodies[third.metadata_location] = metadata_file(logged)
    await stage.tell("a", third)
    await asyncio.sleep(20)
    await stage.tell("a", second)
    await asyncio.sleep(20)
    assert stage.pointer() == third.metadata_location


@history(EventOnlyStage)
async def test_a_commit_of_another_table_takes_no_name(stage: EventOnlyStage) -> None:
    """It is a late one of the table that had the name before, or its table's birth is still to be told of."""
    await stage.tell_created()
    last = stage.commit("a")
    stage.drop("a")
    await stage.hint("a", drop=True)
    second = stage.create("a", ELSEWHERE)
    await stage.tell("a", second, TableOrigin.CREATE)
    await asyncio.sleep(20)
    await stage.tell("a", last, uuid=False)
    await asyncio.sleep(60)
    document = stage.world.checker.document(FILE.replace(PLACE, ELSEWHERE))
    assert (document["state"], document["guid"]) == ("current", second.uuid)


@history(EventOnlyStage)
async def test_a_commit_that_overtakes_the_birth_of_its_table_is_not_lost(stage: EventOnlyStage) -> None:
    await stage.tell_created()
    stage.drop("a")
    second = stage.create("a", ELSEWHERE)
    third = stage.commit("a")
    await stage.tell("a", third)
    await stage.hint("a", drop=True)
    await asyncio.sleep(20)
    await stage.tell("a", second, TableOrigin.CREATE)


@history(EventOnlyStage)
async def test_a_drop_waits_whether_another_event_says_more(stage: EventOnlyStage) -> None:
    """Within the lag a table that was made anew may be told of."""
    await stage.tell_created()
    stage.drop("a")
    await stage.hint("a", drop=True)
    await asyncio.sleep(LAG / 2)
    again = stage.create("a")
    await stage.tell("a", again, TableOrigin.CREATE)
    await asyncio.sleep(20)
    assert not stage.said("dropped")
    assert stage.pointer() == again.metadata_location


@history(EventOnlyStage)
async def test_a_table_that_was_dropped_is_not_brought_back_by_what_was_told_late(stage: EventOnlyStage) -> None:
    first = await stage.tell_created()
    second = stage.commit("a")
    stage.drop("a")
    await stage.hint("a", drop=True, uuid=first.uuid)
    await asyncio.sleep(20)
    assert stage.world.checker.document(FILE)["state"] == "dropped"
    await stage.tell("a", second)
    await stage.tell("a", first, TableOrigin.CREATE)
    await asyncio.sleep(20)
    assert stage.world.checker.document(FILE)["state"] == "dropped"


@history(EventOnlyStage)
async def test_an_end_that_overtakes_its_tables_birth_still_ends_it(stage: EventOnlyStage) -> None:
    first = stage.create("a")
    stage.drop("a")
    await stage.hint("a", drop=True, uuid=first.uuid)
    await asyncio.sleep(60)
    await stage.tell("a", first, TableOrigin.CREATE)
    await asyncio.sleep(20)
    assert not stage.said("current")


@pytest.mark.parametrize("limit", [3, None])
def test_drops_that_are_told_of_pass_no_more_than_the_brake_allows(limit: int | None) -> None:
    """Without a setting fewer than half of the tables go: three of eight."""
    stage = EventOnlyStage(max_drops=limit)
    names = [f"t{number}" for number in range(8)]

    async def act() -> None:
        for number, name in enumerate(names):
            table = stage.create(name, f"s3://lake/t{number}")
            await stage.tell(name, table, TableOrigin.CREATE)
        await asyncio.sleep(30)
        for name in names:
            await stage.hint(name, drop=True)
        await asyncio.sleep(50)
        assert stage.states(names) == {"current": 5, "dropped": 3}

    stage.run(act, briefly=True)


@history(EventOnlyStage)
async def test_a_rename_takes_along_what_was_told_and_what_is_told_late_follows(stage: EventOnlyStage) -> None:
    await stage.tell_created()
    second = stage.commit("a")
    await stage.tell_renamed("a", "b", second)
    await asyncio.sleep(10)
    await stage.tell("a", second)


@history(EventOnlyStage)
async def test_a_metadata_file_that_comes_late_is_found(stage: EventOnlyStage) -> None:
    await stage.tell_created()
    second = stage.commit("a")
    body = stage.world.files.bodies.pop(second.metadata_location)
    await stage.tell("a", second)
    await asyncio.sleep(100)
    stage.world.files.bodies[second.metadata_location] = body


Script = Callable[[EventOnlyStage, Table], Coroutine[Any, Any, None]]


async def commit(stage: EventOnlyStage, _: Table) -> None:
    await stage.tell("a", stage.commit("a"))


async def relocate(stage: EventOnlyStage, _: Table) -> None:
    await stage.tell("a", stage.commit("a", place=ELSEWHERE))


async def rename(stage: EventOnlyStage, table: Table) -> None:
    await stage.tell_renamed("a", "b", table)


async def drop(stage: EventOnlyStage, table: Table) -> None:
    stage.drop("a")
    await stage.hint("a", drop=True, uuid=table.uuid)


async def recreate(stage: EventOnlyStage, table: Table) -> None:
    await drop(stage, table)
    await stage.tell("a", stage.create("a"), TableOrigin.CREATE)
    await stage.tell("a", stage.commit("a"))


SCRIPTS = [commit, relocate, rename, drop, recreate]


def killed_at(number: int, script: Script) -> tuple[list[str], list[tuple[str, str]]]:
    """One history in which a process is killed at the n-th call after the script began: the calls, what was broken."""
    stage, killer = EventOnlyStage(), KilledAt(number)

    async def act() -> None:
        table = await stage.tell_created()
        stage.service.script = killer
        await script(stage, table)
        await asyncio.sleep(100)

    bad = stage.run(act, briefly=number > 0)
    return killer.seen, bad


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_kill_at_any_change_is_mended(script: Script, workers: Pool) -> None:
    calls, bad = killed_at(0, script)
    assert bad == []
    assert len(calls) >= 10
    chosen = changes(calls)
    killed = workers.map(partial(killed_at, script=script), chosen, chunksize=1)
    for number, (seen, broken) in zip(chosen, killed, strict=True):
        assert len(seen) >= number
        assert broken == [], f"killed at call {number}: {seen[number - 1]}"
