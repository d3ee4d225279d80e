"""A catalog that loses tables, all or half, at once or one by one: no more are given up than the limit allows."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING

from sfn.domain.catalog_answer import NoSuchTable
from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.inbox.model import AdminCommand
from sfn.publish.existing_files import pointer_files
from sfn.sfnfile.naming import MAIN_BRANCH

if TYPE_CHECKING:
    from tests.simulation.world import World

NOTICED = 600.0
"""Seconds within which each missing table was looked at, by event or sweep, as often as a drop takes."""


class Losses:
    """What the first catalog of a world loses, and what the service gives up of it.

    All of a history's time before its end is less than an hour: drops within it count together.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._given_up: set[tuple[str, ...]] = set()
        self._is_watched = False

    def plan(self) -> None:
        """Have tables disappear."""
        rng = self._world.rng
        self._is_watched = True
        self._world.loop.call_later(rng.uniform(60, 0.7 * self._world.setting.busy), self._begin)

    def changed(self, key: str, new: bytes | None) -> None:
        """A service wrote a file: blame it where half of the tables, two or more, are given up by now."""
        doc = json.loads(new) if self._is_watched and new is not None and pointer_files([key]) else {}
        if not doc or doc["state"] != "dropped" or doc["ref"] != MAIN_BRANCH:
            return
        self._given_up.add((*doc["namespace"], doc["name"]))
        gone = len(self._given_up)
        if gone >= 2 and 2 * gone >= len(self._given_up | self._live()):
            self._world.checker.blame("half of the tables given up", f"{sorted(self._given_up)}")

    async def end(self) -> None:
        """Wait until all was noticed; then the database is restored, or an operator says that they were dropped."""
        world, truth = self._world, self._world.truths[0]
        await asyncio.sleep(NOTICED)
        self._is_watched = False
        if world.rng.random() < 0.5:
            world.say("the database is restored")
            world.count("restored")
            truth.restore()
            return
        for name in list(truth.lost):
            world.set(0, name, NoSuchTable())
        world.say("released")
        world.count("released")
        for service in world.services:
            await service.kept.release(truth.name, AdminCommand("", "", world.loop.now()))

    def _begin(self) -> None:
        world, truth, rng = self._world, self._world.truths[0], self._world.rng
        tables = list(truth.live())
        rng.shuffle(tables)
        lost = tables[: rng.choice([len(tables), (len(tables) + 1) // 2])]
        gap = rng.choice([0.0, 5.0, 30.0])
        world.say(f"{len(lost)} of {len(tables)} tables are lost, {gap} s apart")
        # Whoever asks now is told that they are nowhere.
        world.ranks.ended |= {table.uuid for name, table in truth.live().items() if name in lost}
        for number, name in enumerate(lost):
            world.loop.call_later(number * gap, self._lose, name)

    def _lose(self, name: TableIdentifier) -> None:
        world, rng = self._world, self._world.rng
        world.truths[0].lost[name] = world.time, math.inf
        world.count("lost")
        if rng.random() < 0.6:
            event_id = f"e{world.next_event()}"
            world.deliver(0, Notification(name, sender="test", event_id=event_id, drop=rng.random() < 0.5), 0)

    def _live(self) -> set[tuple[str, ...]]:
        """The names whose leading file is live."""
        docs = [doc for place in self._world.checker.places for _, doc in self._world.checker.documents(place)]
        return {
            (*doc["namespace"], doc["name"]) for doc in docs if doc["state"] == "current" and doc["ref"] == MAIN_BRANCH
        }
