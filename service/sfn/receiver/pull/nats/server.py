"""A source of NATS, as `Server` wants it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sfn.receiver.pull import MessageFeed
from sfn.receiver.pull.nats.connection import STEP_TIMEOUT, connect_nats
from sfn.receiver.pull.nats.consumer import JetStreamConsumer
from sfn.receiver.pull.nats.core import subscribe
from sfn.receiver.pull.nats.jetstream import consume
from sfn.receiver.pull.nats.login import LoginFiles
from sfn.receiver.pull.nats.terms import NatsOptions


class NatsServer:
    """Implements `Server`.

    Args:
        options: where it is, and what is fetched.
    """

    def __init__(self, options: NatsOptions) -> None:
        self._options, self._files = options, LoginFiles(options, STEP_TIMEOUT)

    @property
    def is_durable(self) -> bool:
        return self._options.durable is not None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[MessageFeed]:
        terms = self._options
        async with connect_nats(terms, await self._files.read()) as connection:
            if terms.durable is None:
                async with subscribe(connection, terms.subject, terms.group) as feed:
                    yield feed
                return
            await JetStreamConsumer(connection, terms.durable, terms.subject, terms.where).ensure()
            async with consume(connection, terms.durable, terms.where) as feed:
                yield feed

    async def probe(self) -> str:
        """What is there, tried without taking anything away from whoever fetches.

        Raises:
            Away: no server answers or lets us in, or the subject, the stream or its consumer can't be had.
        """
        terms = self._options
        async with connect_nats(terms, await self._files.read()) as connection:
            if terms.durable is None:
                # In no group: its messages are the service's.
                async with subscribe(connection, terms.subject, ""):
                    return f"{connection.url} answers; we may subscribe to {terms.subject}"
            is_there = await JetStreamConsumer(connection, terms.durable, terms.subject, terms.where).probe()
            stream, name = terms.durable.stream, terms.durable.name
            said = f"its consumer {name} is there" if is_there else f"the service will make its consumer {name}"
            return f"{connection.url} answers; the stream {stream} has {terms.subject}, {said}"
