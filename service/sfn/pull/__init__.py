"""Where events are fetched from, beside the receiver to whom they are sent: the port to a source's server.

What is fetched ends in the same inbox by the same steps, and is acknowledged after it is on disk there.
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
    """A source's server does not answer, or does not let us have what we ask for: it is asked again for ever."""


class Message(Protocol):
    """What a server delivered."""

    @property
    def headers(self) -> Headers:
        """As those of a request: names in lower case."""
        ...

    @property
    def body(self) -> bytes:
        """All of it."""
        ...

    async def acknowledge(self) -> None:
        """Tell the server that it need not be delivered again; where that gets lost it is.

        Raises:
            SourceUnavailable: it was not told.
        """
        ...

    async def redeliver(self, after: float) -> bool:
        """Have it delivered again; False where the server keeps nothing that it delivered.

        Args:
            after: seconds from now.

        Raises:
            SourceUnavailable: it was not told; then the message is delivered again as well.
        """
        ...


class FinalBatch(NamedTuple):
    """What is left in the end.

    Attributes:
        messages: that were delivered and nobody keeps, in the order of arrival.
        is_complete: none was on its way that did not come here.
    """

    messages: Sequence[Message]
    is_complete: bool


class MessageFeed(Protocol):
    """A connection that messages arrive on."""

    @property
    def dropped(self) -> int:
        """Messages that there was no room for since it was opened, and that will not be delivered again."""
        ...

    async def next(self) -> Sequence[Message]:
        """Those that are here, a bounded number of them, in the order of arrival; none where none came for a while.

        Raises:
            SourceUnavailable: none will come any more.
        """
        ...

    async def drain(self) -> FinalBatch:
        """Have nothing more delivered, and hand on what was and nobody keeps. What is kept comes again by itself."""
        ...


class PullServer(Protocol):
    """One source's server, or several of which one is enough."""

    @property
    def is_durable(self) -> bool:
        """Return whether it keeps what is published while nobody is connected, and what was not acknowledged."""
        ...

    def connect(self) -> AbstractAsyncContextManager[MessageFeed]:
        """Return a new connection; closed in the end, what was delivered on it and not looked at given back.

        Raises:
            SourceUnavailable: none is to be had.
        """
        ...


# ── Outage log

_log = structlog.stdlib.get_logger(__name__)


class Outage:
    """Tells that a source is away, and that it works again.

    Args:
        source: its name in the settings.
        clock: the wall clock.
    """

    def __init__(self, source: str, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._since: datetime | None = None
        self._logged_at: datetime | None = None
        self._suppressed = 0
        self._lasts = False
        self._is_known = False

    def on_unavailable(self, error: SourceUnavailable) -> None:
        """It is away, or still is."""
        now = self._clock.now()
        self._since = self._since or now
        # A clock that was set back must not silence anything for longer.
        if self._logged_at is not None and self._logged_at <= now < self._logged_at + LOG_INTERVAL:
            self._suppressed += 1
            return
        since, suppressed = self._since.isoformat(), self._suppressed
        self._logged_at, self._suppressed, self._lasts = now, 0, True
        _log.warning("pull source away", name=self._source, since=since, error=str(error), suppressed=suppressed)

    def on_connected(self) -> None:
        """It lets us in; whether it delivers is not known yet."""
        if not self._is_known:
            self._is_known = True
            _log.info("pull source connected", name=self._source)

    def on_recovered(self) -> None:
        """It delivers."""
        since, self._since = self._since, None
        if since is not None and self._lasts:
            self._lasts = False
            seconds = round((self._clock.now() - since).total_seconds(), 1)
            _log.info("pull source works again", name=self._source, seconds=seconds)
