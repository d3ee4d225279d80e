"""Directed histories that the mutants need and `tests/simulation/test_directed.py` has no room for.

Most are of a process that sleeps as a whole, so that its lease runs out while it is in the midst of something.
"""

from __future__ import annotations

import asyncio
import json

from tests.simulation.node import Node
from tests.simulation.script import PLACE, Stage, named
from tests.simulation.world import Setting

FILE = f"{PLACE}/metadata/_sfn/n_a_main.ver"
HINT = f"{PLACE}/metadata/version-hint.text"
LEASE = 30
"""Seconds after which somebody else has the row of who sleeps."""


class Asleep:
    """The first process that comes to a call sleeps, all of it, until it is woken; the rest of it wakes a bit later."""

    def __init__(self, stage: Stage, call: str) -> None:
        self._call = call
        self.reached, self.woken = asyncio.Event(), asyncio.Event()
        self._node: Node | None = None
        stage.service.script = self

    async def __call__(self, node: Node, call: str) -> None:
        if call.endswith(" put"):
            return  # a script's events come through whichever process is first
        if self._node is None and call == self._call:
            self._node = node
            self.reached.set()
            await self.woken.wait()
        elif node is self._node and not self.woken.is_set():
            await self.woken.wait()
            await asyncio.sleep(1)


def test_who_read_the_tag_after_the_answer_asks_again() -> None:
    """Rule 4: who slept between the answer and the tag has the tag of a newer document, and an older answer."""
    stage = Stage()

    async def act() -> None:
        stage.create("a", opaque=True)
        asleep = Asleep(stage, f"before read {FILE}")
        await stage.hint("a")
        await asleep.reached.wait()
        stage.commit("a", opaque=True)
        await asyncio.sleep(LEASE)
        row = stage.row("a")
        assert row is not None
        assert row.attempt == 0
        asleep.woken.set()
        await asyncio.sleep(10)

    assert stage.run(act) == []


def test_a_late_hint_is_found_out_by_the_document() -> None:
    """Rule 9: a hint's content can repeat, so its swap alone does not tell who slept that the document is another's."""
    stage = Stage()

    async def act() -> None:
        first = stage.create("a")
        await stage.hint("a")
        await asyncio.sleep(20)
        second = stage.commit("a")
        asleep = Asleep(stage, f"before write {HINT}")
        await stage.hint("a", floor=second.metadata_location)
        await asleep.reached.wait()
        stage.roll_back("a", first)
        await asyncio.sleep(2 * LEASE)
        assert stage.world.checker.document(FILE)["metadata_file_path"] == first.metadata_location
        asleep.woken.set()
        await asyncio.sleep(10)

    stage.world.checker.ignore_moves_back = True
    assert stage.run(act, briefly=True) == []


def test_a_late_delete_meets_what_came_in_the_tombstones_place() -> None:
    """Rule 10: where a delete has no condition, who slept before it would delete a live file."""
    stage = Stage(setting=Setting(conditional_delete=False))

    async def act() -> None:
        stage.create("a")
        await stage.hint("a")
        await asyncio.sleep(20)
        stage.drop("a")
        await stage.hint("a", drop=True)
        await asyncio.sleep(60)
        asleep = Asleep(stage, f"before delete {FILE}")
        await asyncio.sleep(5200)
        stage.create("a")
        await stage.hint("a")
        await asyncio.sleep(2 * LEASE)
        assert json.loads(stage.world.files.bodies[FILE])["state"] == "current"
        asleep.woken.set()
        await asyncio.sleep(10)

    assert stage.run(act) == []


def test_an_abandoned_pointer_does_not_come_back() -> None:
    """Rule 8: a lagging answer that shows what was rolled back is newer than what is held, and yet not followed."""
    stage = Stage()

    async def act() -> None:
        first = stage.create("a")
        stage.commit("a")
        await stage.hint("a")
        await asyncio.sleep(30)
        stage.roll_back("a", first)
        await stage.hint("a")
        await asyncio.sleep(0.8)
        assert stage.world.checker.document(FILE)["metadata_file_path"] == first.metadata_location
        stage.world.weather.lagging = 1.0
        held = stage.hold(f"after load {named('a')}")
        await stage.hint("a")
        await held.reached.wait()
        stage.world.weather.lagging = 0.0
        await asyncio.sleep(15)
        held.go.set()

    assert stage.run(act) == []


def test_a_slot_that_is_freed_after_the_bell_rang_is_taken() -> None:
    """Whoever is woken by a settled claim may find its slot still taken: it must look again once it is free."""
    stage = Stage()
    names = [f"t{number}" for number in range(12)]

    async def slowly(_node: Node, call: str) -> None:
        if call == "after settle":
            await asyncio.sleep(1)

    async def act() -> None:
        stage.service.script = slowly
        for number, name in enumerate(names):
            stage.create(name, f"s3://lake/t{number}")
        await asyncio.gather(*(stage.hint(name) for name in names))  # noqa: TID251 - they come together
        await asyncio.sleep(10)
        assert stage.states(names)["current"] == 12

    assert stage.run(act, briefly=True) == []


def test_events_of_drops_pass_no_more_than_the_brake_allows() -> None:
    """Rule 8: of many tables that events say were dropped, so many are believed as the brake lets pass."""
    stage = Stage(setting=Setting(max_drops=3))
    names = [f"t{number}" for number in range(8)]

    async def act() -> None:
        for number, name in enumerate(names):
            stage.create(name, f"s3://lake/t{number}")
            await stage.hint(name)
        await asyncio.sleep(30)
        stage.world.truths[0].blank.append((stage.world.time, stage.world.time + 60))
        for name in names:
            await stage.hint(name, drop=True)
        await asyncio.sleep(50)
        assert stage.states(names) == {"current": 5, "dropped": 3}

    stage.run(act, briefly=True)
