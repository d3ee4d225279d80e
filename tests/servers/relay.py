"""A port between a client and a server, for those who would tamper with what goes over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import anyio
from anyio.abc import SocketAttribute, SocketStream


class Carrier(Protocol):
    """Carries connections."""

    async def carry(self, client: SocketStream) -> None:
        """One connection, until it is over."""


C = TypeVar("C", bound=Carrier)


@asynccontextmanager
async def relaying(carrier: Callable[[int], C]) -> AsyncIterator[C]:
    """What carries all connections to a new port of this machine.

    Args:
        carrier: makes it, given the port.
    """
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    made = carrier(listener.extra(SocketAttribute.local_port))  # noqa: S610 - it is anyio's, not Django's
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, made.carry)
        try:
            yield made
        finally:
            tasks.cancel_scope.cancel()
