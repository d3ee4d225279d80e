"""Scripted histories of clients that reach the catalog through a gateway; nothing else tells of what happens."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, JobKey, Table
from sfn.inbox.intents import CHECK_DELAYS
from tests.simulation.fates import Fate
from tests.simulation.gateway import Gateway
from tests.simulation.node import Node
from tests.simulation.requests import created
from tests.simulation.script import PLACE, Stage, named
from tests.simulation.served import CatalogServer, Request
from tests.simulation.setting import Setting
from tests.simulation.times import UNSWEPT
from tests.simulation.world import ASKED

FIRST, SECOND, THIRD, LAST = (pause.total_seconds() for pause in CHECK_DELAYS)
MINUTE: Final = 60.0
SOON: Final = 3.0
"""Seconds within which something is published that is looked at now."""
LAGGING: Final = 20.0
"""Seconds after which no answer is too old any more."""
HALF_AN_HOUR: Final = 1790.0
"""For which Iceberg's own server tries a commit."""


class KilledAt:
    """Kills the first process that comes to a call for so many times."""

    def __init__(self, call: str, times: int = 1) -> None:
        self._call, self._left = call, times

    async def __call__(self, node: Node, call: str) -> None:
        self._left -= call == self._call
        if call == self._call and self._left == 0:
            node.service.crash(node)
            await asyncio.Future()


class Gated(Stage):
    """A quiet world behind a gateway, whose catalog does at once what it is asked for, unless a script says else.

    Args:
        gateway, replicas: see `Setting`.
        lagging: see `Weather`.
        policy: of a `Policy` what is to be otherwise.
    """

    def __init__(self, gateway: str = "refuse", *, replicas: int = 0, lagging: float = 0.0, **policy: Any) -> None:
        setting = Setting(gateway=gateway, replicas=replicas, policies=(UNSWEPT | policy,))
        super().__init__(2, setting, lagging=lagging)
        self._fates: dict[Request, deque[Fate]] = defaultdict(deque)
        self.server.fate = self._fate

    @property
    def server(self) -> CatalogServer:
        """The catalog's."""
        return self.world.servers[0]

    @property
    def gateway(self) -> Gateway:
        """That of the first process."""
        gateway = self.service.nodes[0].gateway
        assert gateway is not None
        return gateway

    def send(self, request: Request, fate: Fate | None = None, *, goes: bool = False) -> asyncio.Future[int]:
        """Send a request, and wait for nothing: what it is answered with, if it ever is."""
        if fate is not None:
            self._fates[request].append(fate)
        return self.gateway.ask(request, goes=goes)

    async def ask(self, request: Request, fate: Fate | None = None) -> int:
        """What a request is answered with; by then all is noted that is noted of it."""
        status = await self.send(request, fate)
        await asyncio.sleep(1)
        return status

    async def begin(self, name: str = "a", place: str = PLACE) -> Table:
        """A table that is created, and published."""
        assert await self.ask(created(named(name), place)) == 200
        await asyncio.sleep(LAGGING)
        assert self.is_published(name)
        return self.table(name)

    def table(self, name: str) -> Table:
        """A table as it is."""
        table = self.world.truths[0].true(named(name))
        assert isinstance(table, Table)
        return table

    def is_published(self, name: str) -> bool:
        """Whether a table's file says what is true."""
        body = self.world.files.bodies.get(f"{self.table(name).location}/metadata/_sfn/n_{name}_main.ver", b"")
        return f'"{self.table(name).metadata_location}"'.encode() in body and b'"current"' in body

    def open_intents(self) -> list[JobKey]:
        """Of what intents are open."""
        return [subject for _, subject in self.service.kept.intents()]

    def kill(self) -> None:
        """Kill the first process."""
        self.service.crash(self.service.nodes[0])

    async def sweep(self) -> None:
        """Have the catalog swept, as at a start."""
        await self.service.kept.put(Notification(CatalogName(self.service.truth.name), sender="start"))

    @override
    def run(self, script: Callable[[], Coroutine[Any, Any, None]], *, briefly: bool = True) -> list[tuple[str, str]]:
        """As `Stage.run`; nothing is asked for any more when all is looked at."""

        async def asked() -> None:
            await script()
            self.world.weather.is_still = True
            await asyncio.sleep(ASKED)

        return super().run(asked, briefly=briefly)

    def _fate(self, request: Request) -> Fate:
        fates = self._fates[request]
        return fates.popleft() if fates else Fate()
