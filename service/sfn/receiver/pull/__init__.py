"""Where events are fetched from, beside the receiver to whom they are sent: the port to a source's server.

What is fetched ends in the same inbox by the same steps, and is acknowledged after it is on disk there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from sfn.errors import SfnError
from sfn.formats.event import Headers


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
            Away: it was not told.
        """
        ...

    async def redeliver(self, after: float) -> bool:
        """Have it delivered again; False where the server keeps nothing that it delivered.

        Args:
            after: seconds from now.

        Raises:
            Away: it was not told; then the message is delivered again as well.
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
            Away: none will come any more.
        """
        ...

    async def drain(self) -> FinalBatch:
        """Have nothing more delivered, and hand on what was and nobody keeps. What is kept comes again by itself."""
        ...


class PullServer(Protocol):
    """One source's server, or several of which one is enough."""

    @property
    def is_durable(self) -> bool:
        """Whether it keeps what is published while nobody is connected, and what was not acknowledged."""
        ...

    def connect(self) -> AbstractAsyncContextManager[MessageFeed]:
        """A new connection; closed in the end, what was delivered on it and not looked at given back.

        Raises:
            Away: none is to be had.
        """
        ...
