"""A wire between us and a database's server, which may be cut, laid elsewhere or fall silent at any moment."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from enum import Enum, auto

import anyio
from anyio.abc import SocketStream

from tests.servers.relay import relaying

ENDED = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class Cut(Enum):
    """When a wire is cut."""

    BEFORE = auto()
    """The server never gets the words."""
    AFTER = auto()
    """The server gets them and answers, and the answer is lost."""


class Wire:
    """All connections to one server.

    Attributes:
        port: where to connect to.
        target: the port of the server; of new connections.
        words: whatever client sends them next has its connection cut, once.
        cut: how.
        is_silent: nothing is passed on any more, in either direction.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self.words = b""
        self.cut = Cut.BEFORE
        self.is_silent = False
        self._forgotten = anyio.Event()

    def cut_at(self, words: bytes, cut: Cut) -> None:
        """Cut the connection of the next one that sends these words."""
        self.words, self.cut = words, cut

    def forget(self) -> None:
        """Have nothing pass any more over the connections that there are, and tell neither side."""
        self._forgotten.set()
        self._forgotten = anyio.Event()

    async def carry(self, client: SocketStream) -> None:
        """One connection, until either side ends it."""
        lost, forgotten = anyio.Event(), self._forgotten
        server = await anyio.connect_tcp("127.0.0.1", self.target)
        async with client, server:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._ask, client, server, lost, tasks.cancel_scope)
                tasks.start_soon(self._answer, server, client, lost, tasks.cancel_scope)
                await forgotten.wait()
                tasks.cancel_scope.cancel()
            if forgotten.is_set():
                await anyio.sleep_forever()

    async def _ask(self, client: SocketStream, server: SocketStream, lost: anyio.Event, end: anyio.CancelScope) -> None:
        with suppress(*ENDED):
            async for data in client:
                await self._pause()
                is_last = bool(self.words) and self.words in data
                if is_last:
                    self.words = b""
                    lost.set()
                if is_last and self.cut is Cut.BEFORE:
                    break
                await server.send(data)
        if not lost.is_set() or self.cut is Cut.BEFORE:
            end.cancel()

    async def _answer(
        self, server: SocketStream, client: SocketStream, lost: anyio.Event, end: anyio.CancelScope
    ) -> None:
        with suppress(*ENDED):
            async for data in server:
                await self._pause()
                if lost.is_set():
                    break
                await client.send(data)
        end.cancel()

    async def _pause(self) -> None:
        while self.is_silent:  # noqa: ASYNC110 - it is over when a test says so
            await anyio.sleep(0.01)


def wire_to(target: int) -> AbstractAsyncContextManager[Wire]:
    """A wire to a port of this machine."""
    return relaying(lambda port: Wire(port, target))
