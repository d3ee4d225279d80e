"""What happens to tables of a catalog behind gateways: nobody sends an event, and nobody hears what became of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, Final

from sfn.domain.identifiers import Table, TableIdentifier
from tests.simulation.life import Life
from tests.simulation.requests import (
    committed,
    committed_first,
    committed_together,
    created,
    dropped,
    emptied,
    registered,
    renamed,
    unregistered,
)
from tests.simulation.served import Request

if TYPE_CHECKING:
    from tests.simulation.gateway import Gateway

PASSING: Final = {
    "create_table": 2.0,
    "stage_table": 1.0,
    "update_table": 6.0,
    "commit_transaction": 1.5,
    "move_table": 1.0,
    "rename_table": 2.0,
    "drop_table": 2.0,
    "unregister_table": 0.5,
    "register_table": 1.0,
    "recreate_table": 1.0,
    "drop_namespace": 0.15,
}
"""What clients do, mostly as the REST specification calls it."""
AGAIN: Final = 0.4
"""Of the requests that are not known to have been done: they are sent again."""
GONE: Final = 0.03
"""Of the requests: the client is gone before its body is there."""
DONE = range(200, 300)


class Passing(Life):
    """The operations of one catalog's clients, each a request through some process."""

    first: ClassVar[str] = "create_table"

    async def create_table(self, live: dict[TableIdentifier, Table]) -> None:
        for name, place in self._chosen(live):
            await self._ask(created(name, place))

    async def stage_table(self, live: dict[TableIdentifier, Table]) -> None:
        """A create that is staged, and its first commit."""
        for name, place in self._chosen(live):
            await self._ask(created(name, place, staged=True))
            await self._ask(committed_first(name, place))

    async def update_table(self, live: dict[TableIdentifier, Table]) -> None:
        """By one writer, or by two at once."""
        name = self.rng.choice(list(live))
        requests = [
            committed(name, live[name], exactly=self.rng.random() < 0.4) for _ in range(self.rng.choice([1, 2]))
        ]
        await asyncio.wait([self.world.loop.create_task(self._ask(request)) for request in requests])

    async def commit_transaction(self, live: dict[TableIdentifier, Table]) -> None:
        """A commit to several tables."""
        await self._ask(committed_together(self.rng.sample(list(live.items()), min(2, len(live)))))

    async def move_table(self, live: dict[TableIdentifier, Table]) -> None:
        name, places = self.rng.choice(list(live)), self._free(live)
        if places:
            await self._ask(committed(name, live[name], place=self.rng.choice(places)))

    async def rename_table(self, live: dict[TableIdentifier, Table]) -> None:
        free = [name for name in self.names if name not in live]
        if free:
            await self._ask(renamed(self.rng.choice(list(live)), self.rng.choice(free)))

    async def drop_table(self, live: dict[TableIdentifier, Table]) -> None:
        await self._drop_one(self.rng.choice(list(live)), live)

    async def unregister_table(self, live: dict[TableIdentifier, Table]) -> None:
        """A table is no table of the catalog any more."""
        name = self.rng.choice(list(live))
        self.dropped.append((name, live[name]))
        await self._ask(unregistered(name))

    async def register_table(self, live: dict[TableIdentifier, Table]) -> None:
        free = [name for name in self.names if name not in live]
        if self.dropped and free:
            _, table = self.rng.choice(self.dropped)
            await self._ask(registered(self.rng.choice(free), table.metadata_location))

    async def recreate_table(self, live: dict[TableIdentifier, Table]) -> None:
        name = self.rng.choice(list(live))
        await self._drop_one(name, live)
        await self._ask(created(name, live[name].location))

    async def drop_namespace(self, live: dict[TableIdentifier, Table]) -> None:
        """A namespace is dropped with all that is in it."""
        await self._ask(emptied(self.rng.choice(list(live))))

    def _chosen(self, live: dict[TableIdentifier, Table]) -> list[tuple[TableIdentifier, str]]:
        """A name and a place for one more table, if there are such."""
        free, places = [name for name in self.names if name not in live], self._free(live)
        return [(self.rng.choice(free), self.rng.choice(places))] if free and places else []

    async def _drop_one(self, name: TableIdentifier, live: dict[TableIdentifier, Table]) -> None:
        self.dropped.append((name, live[name]))
        await self._ask(dropped(name, purge=self.rng.random() < 0.2))

    async def _ask(self, request: Request) -> None:
        """Send a request, wait for the answer for as long as one has patience, and perhaps send it again."""
        gateway = self._gateway()
        status = None
        if gateway is not None:
            answer = gateway.ask(request, goes=self.rng.random() < GONE)
            await asyncio.wait({answer}, timeout=self.rng.choice([1, 10, 60]))
            status = answer.result() if answer.done() else None
        if status not in DONE and not self.world.weather.calm and self.rng.random() < AGAIN:
            await asyncio.sleep(self.rng.uniform(0.1, 5))
            await self._ask(request)

    def _gateway(self) -> Gateway | None:
        """Of some process that lives."""
        nodes = [node for service in self.world.services for node in service.nodes]
        return self.rng.choice(nodes).gateway if nodes else None
