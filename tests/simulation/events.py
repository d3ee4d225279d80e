"""The delivery of events, and operations on tables of an event-only catalog.

Such a catalog's events are sent until they are acknowledged.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace
from typing_extensions import override

from sfn.catalogs import NoSuchTable
from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ExternalError
from tests.simulation.catalog import first_version
from tests.simulation.operations import OPERATIONS, Life
from tests.simulation.rules import SKEW

if TYPE_CHECKING:
    from tests.simulation.node import Node, Service
    from tests.simulation.world import World

BY_UUID, IN_ORDER = "by uuid", "in order"
ANSWERED_WITHIN = 5.0
"""Seconds after which a sender takes a request for lost, and sends it again."""
SENT_AGAIN = 1.0
"""Seconds after which a sender sends again what was not taken."""
TWICE_AT_ONCE = 0.3
"""Of the events that go to one of several replicas: another one gets them at the same time."""

TELLABLE = {name: weight for name, weight in OPERATIONS.items() if name != "rollback"} | {"register": 1.0}
"""A step back can't be told: what is older by log or number is taken for a late event."""
CONVERGING = {name: weight for name, weight in TELLABLE.items() if name not in {"swap", "blue_green"}}
"""What comes to the same whatever the order in which its events arrive: no table comes back to a name that it had."""


class Post:
    """How events get to the service.

    Attributes:
        told: metadata locations that are on their way, or arrived.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._line = asyncio.Lock()
        self._ends: dict[tuple[tuple[str, ...], str | None], datetime | None] = {}
        self.told: set[str] = set()

    def send(self, hints: list[Notification], delay: float) -> None:
        """Send one request, after a while."""
        self.told.update(hint.min_metadata_location for hint in hints if hint.min_metadata_location is not None)
        self._ends = dict.fromkeys(_ended(hints)) | self._ends
        in_order = self._world.setting.event_only == IN_ORDER
        self._world.loop.create_task(self._in_line(hints, delay) if in_order else self._sent(hints, delay))

    def is_end_unheard(self, identifier: tuple[str, ...], uuid: str, at: datetime) -> bool:
        """Whether a table has lost a name, and nobody was told so by a time, on whichever clock."""
        if (identifier, uuid) not in self._ends:
            return False
        heard = self._ends[identifier, uuid]
        return heard is None or heard > at - SKEW

    async def deliver(self, service: Service, hint: Notification, delay: float) -> None:
        """Send one event that may be lost with the process that got it; what is refused is sent again."""
        await asyncio.sleep(delay)
        if not service.nodes:
            return
        world, kept = self._world, service.kept
        node = world.rng.choice(service.nodes)
        if world.setting.replicas and world.rng.random() < TWICE_AT_ONCE:
            other = world.rng.choice(service.nodes)
            world.loop.create_task(_is_put(other, [hint]), context=other.context)
        if not await world.loop.create_task(_is_put(node, [hint]), context=node.context):
            await self.deliver(service, hint, SENT_AGAIN)
        elif service.kept is kept:
            world.acknowledged.add((world.services.index(service), str(hint.event_id)))

    async def _in_line(self, hints: list[Notification], delay: float) -> None:
        async with self._line:
            await self._sent(hints, delay)

    async def _sent(self, hints: list[Notification], delay: float) -> None:
        await asyncio.sleep(delay)
        if not await self._is_taken(hints):
            await self._sent(hints, SENT_AGAIN)

    async def _is_taken(self, hints: list[Notification]) -> bool:
        """Whether some process acknowledged; one that dies or hangs never answers."""
        world = self._world
        (service,) = world.services
        if not service.nodes:
            return False
        node = world.rng.choice(service.nodes)
        put = world.loop.create_task(_is_put(node, hints), context=node.context)
        done, _ = await asyncio.wait({put}, timeout=ANSWERED_WITHIN)
        is_taken = bool(done) and put.result()
        if is_taken:
            world.acknowledged.update((0, str(hint.event_id)) for hint in hints)
            self._ends |= {end: self._ends[end] or world.loop.now() for end in _ended(hints)}
        return is_taken


def _ended(hints: list[Notification]) -> list[tuple[tuple[str, ...], str | None]]:
    """The tables of which hints tell that they lost a name, each with that name."""
    return [
        ((*hint.subject.namespace, hint.subject.name), hint.uuid)
        for hint in hints
        if isinstance(hint.subject, TableIdentifier) and (hint.drop or hint.renamed_to is not None)
    ]


async def _is_put(node: Node, hints: list[Notification]) -> bool:
    """Whether a process acknowledged, which it may never do."""
    try:
        await node.inbox.put(hints)
    except ExternalError:
        return False
    return True


class EventOnlyLife(Life):
    """The operations of one catalog's users, each told of with all that a listener needs."""

    @override
    def register(self, live: dict[TableIdentifier, Table]) -> None:
        """A table is dropped, and its metadata file gets a name again."""
        name = self.rng.choice(list(live))
        free = [other for other in self.names if other not in live]
        targets = free if self._by_uuid else [name, *free]
        fresh = [target for target in targets if self._is_free_for(live[name], target)]
        if fresh:
            self._drop(name, purge=False)
            self._begin(self.rng.choice(fresh), live[name], TableOrigin.REGISTER)

    @override
    def rename(self, live: dict[TableIdentifier, Table]) -> None:
        name = self.rng.choice(list(live))
        free = [other for other in self.names if other not in live and self._is_free_for(live[name], other)]
        if free:
            self._rename(name, self.rng.choice(free))

    @property
    def _by_uuid(self) -> bool:
        return self.world.setting.event_only == BY_UUID

    def _is_free_for(self, table: Table, name: TableIdentifier) -> bool:
        """Whether it can be told, whatever comes first, that the table has the name now: it never had it before."""
        catalog_id = self.world.truths[self.catalog].catalog_id
        had = self.world.ranks.names.get((catalog_id, (*name.namespace, name.name)), set())
        return not self._by_uuid or table.uuid not in had

    @override
    def _create(self, name: TableIdentifier, place: str) -> None:
        self._begin(name, first_version(self.rng, place, self.world.time), TableOrigin.CREATE)

    def _begin(self, name: TableIdentifier, table: Table, birth: TableOrigin) -> None:
        self.world.set(self.catalog, name, table)
        self._tell(Notification(name, min_metadata_location=table.metadata_location, origin=birth), table)

    @override
    def _set(self, name: TableIdentifier, table: Table) -> None:
        self.world.set(self.catalog, name, table)
        self._tell(Notification(name, min_metadata_location=table.metadata_location), table)

    @override
    def _drop(self, name: TableIdentifier, *, purge: bool) -> None:
        table = self.world.truths[self.catalog].true(name)
        if not isinstance(table, Table):
            return
        self.world.set(self.catalog, name, NoSuchTable())
        if purge:
            self.world.purge(table)
        self._tell(Notification(name, drop=True, purge=purge), table)

    @override
    def _rename(self, old: TableIdentifier, new: TableIdentifier) -> None:
        table = self.world.truths[self.catalog].true(old)
        taken = isinstance(self.world.truths[self.catalog].true(new), Table)
        if isinstance(table, Table) and not taken:
            self.world.set(self.catalog, new, table)
            self.world.set(self.catalog, old, NoSuchTable())
            self._tell(Notification(old, renamed_to=new), table, Notification(new, renamed_from=old))

    def _tell(self, hint: Notification, table: Table, *more: Notification) -> None:
        """Send an event, perhaps twice: as the same one, or where nobody can be misled by it as another."""
        uuid = table.uuid if self._by_uuid else None
        again = 1 + (self.rng.random() < 0.15)
        new_ids = self._by_uuid and hint.origin is not TableOrigin.REGISTER and not more and self.rng.random() < 0.5
        number = self.world.next_event()
        for _ in range(again):
            number = self.world.next_event() if new_ids else number
            hints = [
                replace(one, sender="test", event_id=f"e{number}.{part}", uuid=uuid)
                for part, one in enumerate((hint, *more))
            ]
            self.world.post.send(hints, self.rng.expovariate(0.5))
