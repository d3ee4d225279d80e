"""A request's body on its way to the catalog: never more of it in memory than what somebody has to read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import anyio

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]


STALLED: Final = 60.0
"""Seconds for which a client may send nothing of its body, or take nothing of its answer. Until then it keeps one of
the few connections to the catalog from others."""


class Gone(Exception):
    """The client went away in the middle of its body, or of its answer."""


class Stalled(Gone):
    """It did not, and went on with neither."""


@contextmanager
def unstalled() -> Iterator[None]:
    """Has what is done within end in time.

    Raises:
        Stalled: it did not.
    """
    try:
        with anyio.fail_after(STALLED):
            yield
    except TimeoutError:
        raise Stalled from None


class Body:
    """A body as it comes in.

    Args:
        receive: ASGI's.
        awaited: whether the request has a body, by its header.
    """

    def __init__(self, receive: Receive, *, awaited: bool) -> None:
        self._receive = receive
        self._more = awaited
        self._held: list[bytes] = []

    async def within(self, limit: int) -> bytes | None:
        """All of the body, if it is no longer than so many bytes; what was read of it is sent on all the same.

        Raises:
            Gone: the client went away, or stalled.
        """
        size = sum(map(len, self._held))
        while self._more and size <= limit:
            part = await self._next()
            self._held.append(part)
            size += len(part)
        return None if self._more or size > limit else b"".join(self._held)

    async def outgoing(self) -> bytes | AsyncIterator[bytes] | None:
        """The body for the catalog: at once where all of it has come; None for none.

        Raises:
            Gone: the client went away, or stalled.
        """
        if self._more and not self._held:
            self._held.append(await self._next())
        if self._more:
            return self._parts()
        return b"".join(self._held) if self._held else None

    async def is_gone(self) -> bool:
        """Whether the client is known to have gone away by now. While its body is read, whoever reads it is told."""
        if self._more:
            return False
        # A server says so at once, and has nothing to say otherwise.
        with anyio.move_on_after(0):
            return bool((await self._receive())["type"] != "http.request")
        return False

    async def _parts(self) -> AsyncIterator[bytes]:
        while self._held:
            yield self._held.pop(0)
        while self._more:
            yield await self._next()

    async def _next(self) -> bytes:
        with unstalled():
            message = await self._receive()
        if message["type"] != "http.request":
            raise Gone
        self._more = message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part
