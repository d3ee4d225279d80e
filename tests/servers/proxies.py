"""nginx as one worker, and relays that tamper with what goes over a connection."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final, Protocol, TypeVar

import anyio
from anyio.abc import SocketAttribute, SocketStream
from typing_extensions import override

from tests.servers.process import Server

LISTEN: Final = "listen 8080;"
_SETTINGS: Final = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
access_log off;
{kept}
{http}
}}
"""


class Nginx(Server):
    """The server.

    Args:
        program: where it is.
        http: what its section `http` has; `listen 8080;` in it becomes the server's own port.
    """

    title = "nginx"

    def __init__(self, program: str, http: str) -> None:
        super().__init__()
        assert http.count(LISTEN) == 1, http
        self._program, self._http = program, http.replace(LISTEN, f"listen 127.0.0.1:{self.port};")

    @override
    def start(self) -> None:
        places = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        kept = "\n".join(f"{place}_temp_path {self.folder}/{place};" for place in places)
        (self.folder / "conf").write_text(_SETTINGS.format(folder=self.folder, kept=kept, http=self._http))
        super().start()

    @override
    def _answers(self) -> bool:
        """It listens: what it would answer itself may be up to whoever waits here."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5.0).close()
        except OSError:
            return False
        return True

    @override
    def _command(self) -> Sequence[str | Path]:
        return [self._program, "-e", self.folder / "error.log", "-c", self.folder / "conf", "-g", "user root;"]


class Carrier(Protocol):
    """Carries connections."""

    async def carry(self, client: SocketStream) -> None:
        """One connection, until it is over. The caller closes it."""


C = TypeVar("C", bound=Carrier)


@asynccontextmanager
async def relaying(carrier: Callable[[int], C]) -> AsyncIterator[C]:
    """What carries all connections to a new port of this machine.

    Args:
        carrier: makes it, given the port.
    """
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    made = carrier(listener.extra(SocketAttribute.local_port))  # noqa: S610 - it is anyio's, not Django's

    async def take(client: SocketStream) -> None:
        # Also if this ends while the carrier still connects to its server.
        async with client:
            await made.carry(client)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, take)
        try:
            yield made
        finally:
            tasks.cancel_scope.cancel()


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
        words: whatever client sends them next has its connection cut.
        times: number of clients that have their connection cut so.
        cut: how.
        is_silent: nothing is passed on any more, in either direction.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self.words = b""
        self.times = 1
        self.cut = Cut.BEFORE
        self.is_silent = False
        self._forgotten = anyio.Event()

    def cut_at(self, words: bytes, cut: Cut, times: int = 1) -> None:
        """Cut the connection of the next one that sends these words, or of the next ones."""
        self.words, self.cut, self.times = words, cut, times

    def forget(self) -> None:
        """Have nothing pass any more over the connections that there are, and tell neither side."""
        self._forgotten.set()
        self._forgotten = anyio.Event()

    async def carry(self, client: SocketStream) -> None:
        """One connection, until either side ends it."""
        lost, forgotten = anyio.Event(), self._forgotten
        async with await anyio.connect_tcp("127.0.0.1", self.target) as server:
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
                    self.times -= 1
                    self.words = self.words if self.times else b""
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
