"""The gateway of a simulated process, which is the service's own, and the clients behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import anyio

from sfn.domain.events import InboxMessage, PutResult
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, FatalError, OutcomeUnknown
from sfn.gateway.commits import CommitRecorder, IntentOptions, OnInboxFailure, OwedSweeps
from sfn.gateway.proxy import GatewayOptions, Proxy, UpstreamResponse
from sfn.gateway.routes import CatalogMapping
from sfn.gateway.upstream import UpstreamRequest
from tests.simulation.faults import CUT
from tests.simulation.loop import PROCESS
from tests.simulation.operations import Life
from tests.simulation.rest_catalog import (
    CatalogServer,
    Reply,
    Request,
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

if TYPE_CHECKING:
    from tests.simulation.node import Node

SILENCE: Final = 600.0
"""Seconds for which a gateway waits for an answer."""
NAME: Final = "gateway.sim"
PEER: Final = "10.0.0.1"

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


class Gateway:
    """Where clients reach the catalog through one process.

    Args:
        node: the process.
        server: the catalog.
        on_failure: what becomes of commits that the inbox does not take.

    Attributes:
        debts: what it owes to the inbox.
    """

    def __init__(self, node: Node, server: CatalogServer, on_failure: OnInboxFailure) -> None:
        self._node = node
        self._context = node.context.copy()
        self._context.run(PROCESS.set, node)
        self._unnoted: set[asyncio.Task[Any] | None] = set()
        self._paying = False
        self.debts = OwedSweeps(self)
        rng = node.service.rng
        noting = IntentOptions(NAME, on_failure, lambda: f"{rng.getrandbits(64):016x}")
        commits = CommitRecorder(noting, node.inbox, self.debts, self._broken, self)
        matters = node.service.policy.table_filter.covers
        reach = CatalogMapping(node.service.truth.name, {}, matters, requires_credentials=False)
        self._proxy = Proxy(Wire(node, server), commits, reach, GatewayOptions("http://catalog", None, 1 << 20), self)

    @property
    def owes(self) -> bool:
        """Whether something would be lost with the process: a commit that passed without a note, or its sweep."""
        return bool(self.debts._owed or self._unnoted or self._paying)

    def open(self) -> None:
        """Do what a gateway does of its own accord."""
        self._node.service.loop.create_task(self.debts.run(), context=self._context)

    def doubts(self) -> None:
        """Take it from now on that the catalog refuses whoever does not say who it is."""
        self._proxy._accepts_anonymous = False

    def ask(self, request: Request, *, goes: bool = False) -> asyncio.Future[int]:
        """The status that a client is answered with; it may never hear one.

        Args:
            goes: the client is gone before its body is here.
        """
        loop = self._node.service.loop
        status: asyncio.Future[int] = loop.create_future()

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.disconnect"} if goes else {"type": "http.request", "body": request.body}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and not status.done():
                status.set_result(message["status"])

        answering = self._proxy.answer("", _scope(request), receive, send)
        loop.create_task(answering, context=self._context)
        return status

    async def put(self, notes: Sequence[InboxMessage]) -> PutResult:
        """Pay a debt."""
        self._paying = True
        try:
            return await self._node.inbox.put(notes)
        finally:
            self._paying = False

    def answered(self, *, change: bool, status: int | None, seconds: float) -> None:
        """See `sfn.gateway.proxy.GatewayRequestMetrics`."""
        self._node.service.count("forwarded" if status is not None else "not answered")

    def count_unmapped(self) -> None:
        """See `sfn.gateway.proxy.GatewayRequestMetrics`."""
        self._node.service.count("unmapped")

    def count_unrecorded(self) -> None:
        """See `sfn.gateway.commits.GatewayCommitMetrics`."""
        self._node.service.count("unnoted")
        task = asyncio.current_task()
        self._unnoted.add(task)
        if task is not None:
            task.add_done_callback(self._unnoted.discard)

    def _broken(self, broken: FatalError) -> None:
        self._node.service.observer.blame("broken", str(broken))


class Wire:
    """Implements `sfn.gateway.proxy.CatalogUpstream`: requests on their way to the server, and answers back."""

    def __init__(self, node: Node, server: CatalogServer) -> None:
        self._node, self._server = node, server

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        target = request.target.decode()
        where = f"{request.method} {target}"
        await self._node.step("before forward")
        self._node.maybe_fail(where)
        asked = Request(request.method, target, await _whole(request.body))
        try:
            with anyio.fail_after(SILENCE):
                reply = await self._server.take(asked)
        except TimeoutError as error:
            raise OutcomeUnknown(where, scope=ErrorScope.CATALOG, expected="an answer", found="none in time") from error
        await self._node.step("after forward")
        if reply.status == CUT:
            raise OutcomeUnknown(where, scope=ErrorScope.CATALOG, expected="an answer", found="none")
        return Coming(self._node, reply)

    async def close(self) -> None:
        """There is nothing to close."""


class Coming:
    """Implements `sfn.gateway.proxy.UpstreamResponse`."""

    def __init__(self, node: Node, reply: Reply) -> None:
        self._node, self._reply = node, reply
        self.status = reply.status
        self.fields = [(b"content-type", b"application/json")]

    async def parts(self, limit: int | None = None) -> AsyncIterator[bytes]:
        half = len(self._reply.body) // 2
        yield self._reply.body[:half]
        if not self._reply.whole:
            raise OutcomeUnknown("catalog", scope=ErrorScope.CATALOG, expected="a whole answer", found="a part of it")
        await self._node.step("amid the answer")
        yield self._reply.body[half:]

    def release(self) -> None:
        """There is nothing to let go of."""


def _scope(request: Request) -> MutableMapping[str, Any]:
    return {
        "type": "http",
        "method": request.method,
        "raw_target": request.target.encode(),
        "headers": [(b"host", b"gateway"), (b"content-length", b"%d" % len(request.body))],
        "client": (PEER, 1),
        "scheme": "http",
    }


async def _whole(body: bytes | AsyncIterator[bytes] | None) -> bytes:
    if body is None or isinstance(body, bytes):
        return body or b""
    return b"".join([part async for part in body])


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
        if status not in DONE and not self.world.faults.calm and self.rng.random() < AGAIN:
            await asyncio.sleep(self.rng.uniform(0.1, 5))
            await self._ask(request)

    def _gateway(self) -> Gateway | None:
        """Of some process that lives."""
        nodes = [node for service in self.world.services for node in service.nodes]
        return self.rng.choice(nodes).gateway if nodes else None
