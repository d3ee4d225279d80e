"""Scripted histories: nothing happens by chance, one process can be held or killed at a chosen call."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from sfn.domain.catalog_answer import NoSuchTable
from sfn.domain.events import Notification
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.inbox.model import Job
from sfn.sfnfile import version_hint
from tests.simulation.node import Node, Service
from tests.simulation.setting import Setting
from tests.simulation.truth import first_version, next_version
from tests.simulation.weather import Weather
from tests.simulation.world import World

PLACE = "s3://lake/0"
ELSEWHERE = "s3://lake/1"


def named(name: str) -> TableIdentifier:
    """A table of the first catalog."""
    return TableIdentifier("cat0", ("n",), name)


class Held:
    """A process that waits at a call until it is let go.

    Args:
        call: which.
        by: the one process that is meant; None for the first that comes to it.

    Attributes:
        node: the process, once it has come there.
    """

    def __init__(self, call: str, by: Node | None = None) -> None:
        self.call, self.node, self._by = call, by, by
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, node: Node, call: str) -> None:
        if call == self.call and not self.reached.is_set() and self._by in {None, node}:
            self.node = node
            self.reached.set()
            await self.go.wait()


class KilledAt:
    """Kills a process at the n-th call of a publish; counts them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen: list[str] = []

    async def __call__(self, node: Node, call: str) -> None:
        if not node.alive or not self._is_counted(call):
            return
        self.seen.append(call)
        if len(self.seen) == self.number:
            node.service.crash(node)
            await asyncio.Future()

    def _is_counted(self, call: str) -> bool:
        """Everything but the idle turns of the worker and what brought the hint."""
        return call.split(" ", 2)[1] not in {"claim", "put", "renew", "known", "tables", "limit"}


class Stage:
    """A quiet world that a script acts in."""

    def __init__(self, seed: int = 1, setting: Setting | None = None, *, lagging: float = 0.0) -> None:
        chosen = setting or Setting()
        weather = Weather(kill=0, stop=0, fail=0, lagging=lagging, conditional_delete=chosen.conditional_delete)
        self.world = World(seed, chosen, weather)

    @property
    def service(self) -> Service:
        return self.world.services[0]

    def create(self, name: str, place: str = PLACE, *, opaque: bool = False) -> Table:
        """A new table; with `opaque`, its metadata files' names tell no order."""
        return self.create_as(named(name), place, opaque=opaque)

    def create_as(self, name: TableIdentifier, place: str = PLACE, *, opaque: bool = False) -> Table:
        """As `create`, under any identifier."""
        table = first_version(self.world.rng, place, self.world.time)
        if opaque:
            table = _opaque(table)
        self.world.set(0, name, table)
        return table

    def register_folder(self, name: str, place: str = PLACE, version: int = 2) -> Table:
        """A table that was nothing but a folder (Hadoop's) gets a name; its writers' version hint is there."""
        begun = first_version(self.world.rng, place, self.world.time)
        pointers = [f"{place}/metadata/v{number}.metadata.json" for number in range(1, version + 1)]
        table = replace(begun, metadata_location=pointers[-1], metadata_log=tuple(pointers[:-1]))
        key = version_hint.key_of(place)
        self.world.checker.theirs[key] = str(version).encode()
        self.world.files.lay(key, self.world.checker.theirs[key])
        self.world.set(0, named(name), table)
        return table

    def commit(
        self, name: str, *, place: str | None = None, opaque: bool = False, branches: Mapping[str, int] | None = None
    ) -> Table:
        """One more version, with these branches where they are given."""
        before = self.world.truths[0].true(named(name))
        if not isinstance(before, Table):
            raise TypeError(before)
        after = (
            _next_opaque(self.world, before)
            if opaque
            else next_version(self.world.rng, before, self.world.time, location=place)
        )
        if branches is not None:
            after = replace(after, branches=tuple(sorted(branches.items())))
        self.world.set(0, named(name), after)
        return after

    def drop(self, name: str) -> None:
        """The table is gone."""
        self.world.set(0, named(name), NoSuchTable())

    def rename(self, old: str, new: str) -> None:
        """It has another name."""
        table = self.world.truths[0].true(named(old))
        self.world.set(0, named(new), table)
        self.world.set(0, named(old), NoSuchTable())

    def roll_back(self, name: str, to: Table) -> None:
        """It points to an earlier version again."""
        self.world.ranks.rolled_back[to.uuid].append(self.world.loop.now())
        self.world.set(0, named(name), to)

    def row(self, name: str) -> Job | None:
        """The inbox's row of a table."""
        return self.service.kept.row(named(name))

    def states(self, names: list[str]) -> Counter[str]:
        """How many of the tables' files are in which state."""
        found: Counter[str] = Counter()
        for key, body in self.world.files.bodies.items():
            if key.endswith(".ver") and json.loads(body)["name"] in names:
                found[json.loads(body)["state"]] += 1
        return found

    async def hint(self, name: str, service: int = 0, **what: Any) -> None:
        """An event, durably accepted, by whichever process lives: none is killed for having taken it."""
        await self.hint_as(named(name), service, **what)

    async def hint_as(self, name: TableIdentifier, service: int = 0, **what: Any) -> None:
        """As `hint`, of any identifier."""
        self.world.post.told.add(what.get("min_metadata_location", ""))
        number = self.world.next_event()
        hint = Notification(name, sender="test", event_id=f"s{number}", **what)
        await self.world.services[service].kept.put(hint)
        await asyncio.sleep(0.04)

    def block(self, call: str) -> asyncio.Event:
        """Hold every process that comes to a call until the event is set."""
        free = asyncio.Event()

        async def blocked(_: Node, called: str) -> None:
            if called == call:
                await free.wait()

        self.service.script = blocked
        return free

    def hold(self, call: str) -> Held:
        """Hold the first process that comes to a call, `before …` or `after …`."""
        held = Held(call)
        self.service.script = held
        return held

    def run(self, script: Callable[[], Coroutine[Any, Any, None]], *, briefly: bool = False) -> list[tuple[str, str]]:
        """Act, let everything come to rest, and look: the promises that were broken."""
        weather = self.world.weather

        async def history() -> None:
            self.world.start()
            await asyncio.sleep(20)  # the sweep that every process wants at first is over
            await script()
            self.service.script = None
            weather.is_still = True
            await self.world.rest(briefly=briefly)

        self.world.play(history())
        return self.world.checker.bad


class Asleep:
    """The first process that comes to a call sleeps, all of it, until it is woken; the rest of it wakes a bit later."""

    def __init__(self, stage: Stage, call: str) -> None:
        self._call = call
        self.reached, self._woken = asyncio.Event(), asyncio.Event()
        self._node: Node | None = None
        stage.service.script = self

    def wake(self) -> None:
        """Let it go on."""
        self._woken.set()

    async def __call__(self, node: Node, call: str) -> None:
        if call.endswith(" put"):
            return  # a script's events come through whichever process is first
        if self._node is None and call == self._call:
            self._node = node
            self.reached.set()
            await self._woken.wait()
        elif node is self._node and not self._woken.is_set():
            await self._woken.wait()
            await asyncio.sleep(1)


def _opaque(table: Table) -> Table:
    folder, _, name = table.metadata_location.rpartition("/")
    return Table(table.uuid, table.location, f"{folder}/{name.split('-', 1)[1]}", (), table.last_updated_ms)


def _next_opaque(world: World, table: Table) -> Table:
    numbered = Table(
        table.uuid,
        table.location,
        table.metadata_location.replace("/metadata/", "/metadata/00001-"),
        (),
        table.last_updated_ms,
    )
    return _opaque(next_version(world.rng, numbered, world.time))
