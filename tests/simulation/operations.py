"""Random operations on tables. Every operation sends its events, which may be lost, doubled or late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import msgspec

from sfn.catalogs import NoSuchTable, StagedCreate
from sfn.domain.events import Notification
from sfn.domain.identifiers import Table, TableIdentifier
from tests.simulation.catalog import first_version, next_version

if TYPE_CHECKING:
    from tests.simulation.world import World

OPERATIONS = {
    "create": 2.0,
    "commit": 6.0,
    "rollback": 1.0,
    "rename": 2.0,
    "swap": 1.0,
    "blue_green": 1.5,
    "relocate": 2.0,
    "drop": 1.5,
    "recreate": 2.0,
}

RETURNS = {"drop": 3.0, "undrop": 2.5, "register": 2.0, "stage": 1.5}
"""A table that was dropped comes back; one is begun, and committed later or never."""
BRANCHES = {"branch": 3.0, "unbranch": 1.5}
SWITCHES = {"switch": 3.0, "stray": 1.5}
"""After these a table gets no files of ours, until it does again."""
REFUSED = "http://nowhere/"
"""Where no store is."""


@dataclass(slots=True)
class Life:
    """The operations of one catalog's users.

    Attributes:
        names: identifiers in use.
        places: locations in use.
        shared: several tables may live at one place.
        lost: the chance that an event never comes.
        pace: see `Setting`.
        first: what happens where there is no table.
        dropped: what was dropped and whose metadata files are still there.
    """

    first: ClassVar[str] = "create"
    world: World
    catalog: int
    names: list[TableIdentifier]
    places: list[str]
    weights: dict[str, float] = field(default_factory=lambda: dict(OPERATIONS))
    shared: bool = False
    lost: float = 0.15
    pace: float = 1.0
    dropped: list[tuple[TableIdentifier, Table]] = field(default_factory=list)

    @property
    def rng(self) -> random.Random:
        return self.world.rng

    async def run(self, steps: int) -> None:
        """A number of operations, with pauses from none to minutes; those that changed anything are counted."""
        for _ in range(steps):
            await asyncio.sleep(self.rng.choice([0.2, 2, 5, 12, 45]) * self.rng.expovariate(self.pace))
            live = self.world.truths[self.catalog].live()
            name = self.rng.choices(list(self.weights), list(self.weights.values()))[0] if live else self.first
            operation: Callable[[dict[TableIdentifier, Table]], object] = getattr(self, name)
            before = self.world.truths[self.catalog].changes
            work = operation(live)
            if asyncio.iscoroutine(work):
                await work
            if self.world.truths[self.catalog].changes > before:
                self.world.count(name)

    def create(self, live: dict[TableIdentifier, Table]) -> None:
        free, places = [name for name in self.names if name not in live], self._free(live)
        if free and places:
            self._create(self.rng.choice(free), self.rng.choice(places))

    async def commit(self, live: dict[TableIdentifier, Table]) -> None:
        name = self.rng.choice(list(live))
        for _ in range(self.rng.choice([1, 1, 1, 2, 6])):
            table = self.world.truths[self.catalog].live().get(name)
            if table is not None:
                self._set(name, next_version(self.rng, table, self.world.time))
                await asyncio.sleep(self.rng.expovariate(1))

    def rollback(self, live: dict[TableIdentifier, Table]) -> None:
        name = self.rng.choice(list(live))
        table = live[name]
        if table.metadata_log and table.metadata_log[-1].startswith(table.location + "/"):
            self._set(name, self._stepped_back(table))

    def rename(self, live: dict[TableIdentifier, Table]) -> None:
        free = [name for name in self.names if name not in live]
        if free:
            self._rename(self.rng.choice(list(live)), self.rng.choice(free))

    async def swap(self, live: dict[TableIdentifier, Table]) -> None:
        between = msgspec.structs.replace(self.names[0], name="between")
        if len(live) > 1 and between not in live:
            first, second = self.rng.sample(list(live), 2)
            await self._rename_all([(first, between), (second, first), (between, second)])

    async def blue_green(self, live: dict[TableIdentifier, Table]) -> None:
        free = [name for name in self.names if name not in live]
        if len(live) > 1 and free:
            table, successor = self.rng.sample(list(live), 2)
            await self._rename_all([(table, self.rng.choice(free)), (successor, table)])

    def relocate(self, live: dict[TableIdentifier, Table]) -> None:
        name = self.rng.choice(list(live))
        table = live[name]
        places = [place for place in self._free(live) if place != table.location]
        if places:
            metadata_at = f"{table.location}/metadata" if self.rng.random() < 0.2 else None
            place = self.rng.choice(places)
            self._set(name, next_version(self.rng, table, self.world.time, location=place, metadata_at=metadata_at))

    def branch(self, live: dict[TableIdentifier, Table]) -> None:
        """A commit to a branch, which is made where there is none."""
        name, ref = self.rng.choice(list(live)), self.rng.choice(["r-1", "r-2", "dev"])
        table = next_version(self.rng, live[name], self.world.time)
        branches = {**dict(table.branches), ref: self.rng.getrandbits(40)}
        after = replace(table, snapshot_id=live[name].snapshot_id, branches=tuple(sorted(branches.items())))
        self._set(name, after)

    def unbranch(self, live: dict[TableIdentifier, Table]) -> None:
        name = self.rng.choice(list(live))
        table = next_version(self.rng, live[name], self.world.time)
        self._set(name, replace(table, snapshot_id=live[name].snapshot_id, branches=table.branches[1:]))

    def switch(self, live: dict[TableIdentifier, Table]) -> None:
        name = self.rng.choice(list(live))
        table = next_version(self.rng, live[name], self.world.time)
        self._set(name, replace(table, skip_reason="it is switched off" if table.skip_reason is None else None))

    def stray(self, live: dict[TableIdentifier, Table]) -> None:
        """`SET LOCATION` to where the service writes nothing; a relocation ends it."""
        name = self.rng.choice(list(live))
        place = f"{REFUSED}{name.name}"
        self._set(name, next_version(self.rng, live[name], self.world.time, location=place))

    def drop(self, live: dict[TableIdentifier, Table]) -> None:
        self._drop(self.rng.choice(list(live)), purge=self.rng.random() < 0.2)

    def undrop(self, live: dict[TableIdentifier, Table]) -> None:
        """It comes back as it was."""
        self._return(live, [(name, table) for name, table in self.dropped if name not in live])

    def register(self, live: dict[TableIdentifier, Table]) -> None:
        """Some metadata file of a dropped table gets a name, perhaps another one."""
        free = [name for name in self.names if name not in live]
        if self.dropped and free:
            _, table = self.rng.choice(self.dropped)
            has_older = bool(table.metadata_log) and table.metadata_log[-1].startswith(table.location + "/")
            chosen = self._stepped_back(table) if has_older and self.rng.random() < 0.3 else table
            self._return(live, [(self.rng.choice(free), chosen)])

    async def stage(self, live: dict[TableIdentifier, Table]) -> None:
        """A create that is staged: there is a name without a table, until it is committed or given up."""
        free, places = [name for name in self.names if name not in live], self._free(live)
        if not free or not places:
            return
        name, place, truth = self.rng.choice(free), self.rng.choice(places), self.world.truths[self.catalog]
        self.world.set(self.catalog, name, StagedCreate())
        self.tell(Notification(name))
        await asyncio.sleep(self.rng.choice([0.1, 5, 30]))
        if truth.true(name) == StagedCreate() and self.rng.random() < 0.5 and place in self._free(truth.live()):
            self._create(name, place)
        elif truth.true(name) == StagedCreate():
            self.world.set(self.catalog, name, NoSuchTable())

    async def recreate(self, live: dict[TableIdentifier, Table]) -> None:
        name = self.rng.choice(list(live))
        free = self._free(live)
        place = live[name].location if self.rng.random() < 0.5 or not free else self.rng.choice(free)
        self._drop(name, purge=False)
        await asyncio.sleep(self.rng.choice([0, 0.1, 5]))
        now = self.world.truths[self.catalog].live()
        if name not in now and (self.shared or place not in {table.location for table in now.values()}):
            self._create(name, place)

    def _free(self, live: dict[TableIdentifier, Table]) -> list[str]:
        taken = {table.location for table in live.values()}
        return self.places if self.shared else [place for place in self.places if place not in taken]

    def _return(self, live: dict[TableIdentifier, Table], which: list[tuple[TableIdentifier, Table]]) -> None:
        """One of these tables is there again, if nobody is in its place."""
        known, places = {table.uuid for table in live.values()}, self._free(live)
        which = [(name, table) for name, table in which if table.uuid not in known and table.location in places]
        if which:
            self._set(*self.rng.choice(which))

    def _stepped_back(self, table: Table) -> Table:
        self.world.ranks.rolled_back[table.uuid].append(self.world.loop.now())
        log, times = table.metadata_log, table.log_times
        heads = dict(self.world.ranks.heads[log[-1]])
        back = replace(table, metadata_location=log[-1], metadata_log=log[:-1], log_times=times[:-1])
        return replace(back, snapshot_id=heads.pop("main"), branches=tuple(sorted(heads.items())))

    def _create(self, name: TableIdentifier, place: str) -> None:
        self._set(name, first_version(self.rng, place, self.world.time))

    def _set(self, name: TableIdentifier, table: Table) -> None:
        self.world.set(self.catalog, name, table)
        self.tell(
            Notification(name, min_metadata_location=table.metadata_location if self.rng.random() < 0.7 else None)
        )

    def _drop(self, name: TableIdentifier, *, purge: bool) -> None:
        table = self.world.truths[self.catalog].true(name)
        self.world.set(self.catalog, name, NoSuchTable())
        if purge and isinstance(table, Table):
            self.dropped = [(other, gone) for other, gone in self.dropped if gone.uuid != table.uuid]
            self.world.purge(table)
        elif isinstance(table, Table):
            self.dropped.append((name, table))
        self.tell(Notification(name, drop=True, purge=purge))

    def _rename(self, old: TableIdentifier, new: TableIdentifier) -> None:
        table = self.world.truths[self.catalog].true(old)
        taken = isinstance(self.world.truths[self.catalog].true(new), Table)
        if isinstance(table, Table) and not taken:
            self.world.set(self.catalog, new, table)
            self.world.set(self.catalog, old, NoSuchTable())
            self.tell(Notification(old, renamed_to=new))
            self.tell(Notification(new))

    async def _rename_all(self, pairs: list[tuple[TableIdentifier, TableIdentifier]]) -> None:
        gap = self.rng.choice([0, 0, 3, 20])
        for old, new in pairs:
            self._rename(old, new)
            await asyncio.sleep(gap)

    def tell(self, hint: Notification) -> None:
        """Send an event, perhaps never, twice or late."""
        if self.rng.random() < self.lost:
            return
        event_id = f"e{self.world.next_event()}"
        for _ in range(1 + (self.rng.random() < 0.15)):
            delay = self.rng.expovariate(0.5)
            self.world.deliver(self.catalog, msgspec.structs.replace(hint, sender="test", event_id=event_id), delay)
