"""Connections to PostgreSQL that are cut: before a statement of a transaction, before its COMMIT, or after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from enum import StrEnum

import anyio
from anyio.abc import SocketStream

from tests.servers.proxies import relaying

COMMIT = b"Q\0\0\0\x0bCOMMIT\0"
"""PostgreSQL manual, section 55.7, "Query"."""
ROLLBACK = b"Q\0\0\0\x0dROLLBACK\0"
STATEMENTS = (b"Q", b"B")
"""Kinds of messages that have a statement carried out: "Query" and "Bind"."""
_LENGTH = 4
_ENDED = (anyio.BrokenResourceError, anyio.ClosedResourceError)


class Cut(StrEnum):
    """When a connection is cut."""

    BEFORE = "before"
    """The server never gets the COMMIT, and undoes the transaction."""
    AFTER = "after"
    """The server commits and answers, and the answer is lost."""


@dataclass(slots=True)
class Messages:
    """What a client sends, message by message: a length, and before it, in all but the first, a byte for the kind."""

    _rest: bytes = b""
    _kind: int = 0

    def of(self, data: bytes) -> Iterator[bytes]:
        """The messages that are whole by now."""
        self._rest += data
        while len(self._rest) >= self._kind + _LENGTH:
            length = self._kind + int.from_bytes(self._rest[self._kind : self._kind + _LENGTH])
            if len(self._rest) < length:
                return
            message, self._rest = self._rest[:length], self._rest[length:]
            self._kind = 1
            yield message


@dataclass
class Cutter:
    """All connections to one server.

    Attributes:
        port: where clients connect to.
        cut: called at each COMMIT; returns when to cut the connection, or None.
        cuts_statement: called at each other statement but ROLLBACK; returns True if the server must not get it.
        counts: number of cuts around a COMMIT.
        commits: number of COMMITs.
        cut_statements: number of cuts at other statements.
    """

    port: int
    _target: int
    cut: Callable[[], Cut | None] = lambda: None
    counts: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    cuts_statement: Callable[[], bool] = lambda: False
    cut_statements: int = 0

    async def carry(self, client: SocketStream) -> None:
        """One connection, until either side ends it or it is cut."""
        deaf = anyio.Event()
        async with await anyio.connect_tcp("127.0.0.1", self._target) as server, anyio.create_task_group() as both:
            both.start_soon(self._ask, client, server, deaf, both.cancel_scope)
            both.start_soon(_answer, server, client, deaf, both.cancel_scope)

    async def _ask(self, client: SocketStream, server: SocketStream, deaf: anyio.Event, end: anyio.CancelScope) -> None:
        messages = Messages()
        with suppress(*_ENDED):
            async for data in client:
                whole = list(messages.of(data))
                cut = self._cut() if COMMIT in whole else None
                if cut is Cut.BEFORE or (COMMIT not in whole and self._cuts_statement(whole)):
                    break
                if cut is Cut.AFTER:
                    deaf.set()
                await server.send(b"".join(whole))
        if not deaf.is_set():
            end.cancel()

    def _cut(self) -> Cut | None:
        self.commits += 1
        cut = self.cut()
        if cut is not None:
            self.counts[cut.value] += 1
        return cut

    def _cuts_statement(self, messages: Sequence[bytes]) -> bool:
        """Return True if a statement among messages is cut off."""
        is_statement = any(message.startswith(STATEMENTS) and message != ROLLBACK for message in messages)
        is_cut = is_statement and self.cuts_statement()
        self.cut_statements += is_cut
        return is_cut


async def _answer(server: SocketStream, client: SocketStream, deaf: anyio.Event, end: anyio.CancelScope) -> None:
    with suppress(*_ENDED):
        async for data in server:
            # It answers a COMMIT once it is done.
            if deaf.is_set():
                break
            await client.send(data)
    end.cancel()


def cutting(target: int) -> AbstractAsyncContextManager[Cutter]:
    """A wire to a port of this machine."""
    return relaying(lambda port: Cutter(port, target))
