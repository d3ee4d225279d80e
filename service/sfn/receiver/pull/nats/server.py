"""A source of NATS, as `Server` wants it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sfn.receiver.pull import Feed
from sfn.receiver.pull.nats.connection import PATIENCE, connected
from sfn.receiver.pull.nats.consumer import Consumer
from sfn.receiver.pull.nats.core import subscribed
from sfn.receiver.pull.nats.jetstream import consumed
from sfn.receiver.pull.nats.login import Files
from sfn.receiver.pull.nats.terms import Terms


class NatsServer:
    """Implements `Server`.

    Args:
        terms: where it is, and what is fetched.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms, self._files = terms, Files(terms, PATIENCE)

    @property
    def keeps(self) -> bool:
        return self._terms.durable is not None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Feed]:
        terms = self._terms
        async with connected(terms, await self._files.read()) as connection:
            if terms.durable is None:
                async with subscribed(connection, terms.subject, terms.group) as feed:
                    yield feed
                return
            await Consumer(connection, terms.durable, terms.subject, terms.where).ensured()
            async with consumed(connection, terms.durable, terms.where) as feed:
                yield feed

    async def proven(self) -> str:
        """What is there, tried without taking anything away from whoever fetches.

        Raises:
            Away: no server answers or lets us in, or the subject, the stream or its consumer can't be had.
        """
        terms = self._terms
        async with connected(terms, await self._files.read()) as connection:
            if terms.durable is None:
                # In no group: its messages are the service's.
                async with subscribed(connection, terms.subject, ""):
                    return f"{connection.url} answers; we may subscribe to {terms.subject}"
            is_there = await Consumer(connection, terms.durable, terms.subject, terms.where).proven()
            stream, name = terms.durable.stream, terms.durable.name
            said = f"its consumer {name} is there" if is_there else f"the service will make its consumer {name}"
            return f"{connection.url} answers; the stream {stream} has {terms.subject}, {said}"
