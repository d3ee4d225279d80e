"""The gateway of a simulated process: the service's own, before a simulated catalog."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio

from sfn.domain.events import InboxMessage, PutResult
from sfn.errors import ErrorScope, FatalError, OutcomeUnknown
from sfn.gateway.commits import CommitRecorder, IntentOptions, OnInboxFailure, OwedSweeps
from sfn.gateway.proxy import GatewayOptions, Proxy, UpstreamResponse
from sfn.gateway.routes import CatalogMapping
from sfn.gateway.upstream import UpstreamRequest
from tests.simulation.fates import CUT
from tests.simulation.loop import PROCESS
from tests.simulation.served import CatalogServer, Reply, Request

if TYPE_CHECKING:
    from tests.simulation.node import Node

SILENCE: Final = 600.0
"""Seconds for which a gateway waits for an answer."""
NAME: Final = "gateway.sim"
PEER: Final = "10.0.0.1"


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
        self._node.service.witness.blame("broken", str(broken))


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
