"""Pull sources: servers from which the listener fetches events, instead of receiving them over HTTP.

Fetched messages take the same steps into the inbox as events over HTTP. A message is acknowledged
to its server only after the inbox has stored it.

This module has the port to a server: `PullServer`, `MessageFeed` and `Message`. Start with `source`: `PullSource`
fetches messages from such a server and ingests them. `nats` implements the port for core NATS and JetStream, on
connections of `nats_connection`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import NamedTuple, Protocol

import structlog

from sfn.clock import Clock
from sfn.errors import SfnError
from sfn.formats.event import Headers
from sfn.worker.capacity import LOG_INTERVAL


class SourceUnavailable(SfnError):
    """The server of a pull source does not answer, or denies access. The source retries for ever."""


class Message(Protocol):
    """A delivered message."""

    @property
    def headers(self) -> Headers:
        """The headers, as of a request: names in lower case."""
        ...

    @property
    def body(self) -> bytes:
        """The whole body."""
        ...

    async def acknowledge(self) -> None:
        """Acknowledge the message to the server. If the acknowledgement is lost, the message is delivered again.

        Raises:
            SourceUnavailable: the acknowledgement was not sent.
        """
        ...

    async def redeliver(self, after: float) -> bool:
        """Request another delivery; return False if the server does not store delivered messages.

        Args:
            after: seconds from now.

        Raises:
            SourceUnavailable: the request was not sent. The server delivers the message again anyway.
        """
        ...


class FinalBatch(NamedTuple):
    """The last messages of a feed.

    Attributes:
        messages: delivered messages that the server does not store, in the order of arrival.
        is_complete: no message was lost on its way.
    """

    messages: Sequence[Message]
    is_complete: bool


class MessageFeed(Protocol):
    """The messages of one connection."""

    @property
    def dropped(self) -> int:
        """Number of messages that were lost for lack of memory since the connection was opened."""
        ...

    async def next(self) -> Sequence[Message]:
        """Return a bounded number of arrived messages in their order; none if no message arrives for a while.

        Raises:
            SourceUnavailable: no more messages will arrive.
        """
        ...

    async def drain(self) -> FinalBatch:
        """Stop deliveries and return the delivered messages that the server does not store."""
        ...


class PullServer(Protocol):
    """The server of one source, or several equivalent ones."""

    @property
    def is_durable(self) -> bool:
        """Return whether the server stores messages until they are acknowledged, even without a connection."""
        ...

    def connect(self) -> AbstractAsyncContextManager[MessageFeed]:
        """Open a connection. At its end, unprocessed messages are given back to a durable server.

        Raises:
            SourceUnavailable: no connection is possible.
        """
        ...


_log = structlog.stdlib.get_logger(__name__)


class SourceState(NamedTuple):
    """The state of a pull source, for operators.

    Attributes:
        name: its name in the settings.
        is_connected: True if it was connected and no outage began since.
        unavailable_since: start of the outage; None without one.
        error: why it is not available; None without an outage.
    """

    name: str
    is_connected: bool
    unavailable_since: datetime | None
    error: str | None


class Outage:
    """The log of a source's outages: the start, a reminder per `LOG_INTERVAL`, and the recovery.

    Args:
        source: name of the source in the settings.
        clock: wall clock.
    """

    def __init__(self, source: str, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._since: datetime | None = None
        self._logged_at: datetime | None = None
        self._suppressed = 0
        self._is_logged = False
        self._was_connected = False
        self._error: str | None = None

    @property
    def state(self) -> SourceState:
        """The state of the source."""
        return SourceState(self._source, self._was_connected and self._since is None, self._since, self._error)

    def on_unavailable(self, error: SourceUnavailable) -> None:
        """Log an outage or its continuation."""
        now = self._clock.now()
        self._since = self._since or now
        self._error = str(error)
        # A clock that was set back must not suppress records for longer.
        if self._logged_at is not None and self._logged_at <= now < self._logged_at + LOG_INTERVAL:
            self._suppressed += 1
            return
        since, suppressed = self._since.isoformat(), self._suppressed
        self._logged_at, self._suppressed, self._is_logged = now, 0, True
        _log.warning("pull source unreachable", name=self._source, since=since, error=str(error), suppressed=suppressed)

    def on_connected(self) -> None:
        """Log the first connection. It does not prove yet that messages arrive."""
        if not self._was_connected:
            self._was_connected = True
            _log.info("pull source connected", name=self._source)

    def on_recovered(self) -> None:
        """Log the end of an outage: messages arrive."""
        since, self._since, self._error = self._since, None, None
        if since is not None and self._is_logged:
            self._is_logged = False
            seconds = round((self._clock.now() - since).total_seconds(), 1)
            _log.info("pull source recovered", name=self._source, seconds=seconds)
