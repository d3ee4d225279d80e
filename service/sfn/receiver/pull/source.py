"""One source: fetches messages for as long as the service runs, and acknowledges what is on disk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import anyio
import structlog

from sfn.clock import Clock
from sfn.dialects import Arrived, Headers, Sender
from sfn.errors import Broken, Rejected, Transient
from sfn.receiver.ingest import PATH
from sfn.receiver.pull import Away, Feed, Message, Server
from sfn.receiver.pull.outage import Outage
from sfn.receiver.taking import Taking, tell
from sfn.telemetry.metrics import Events
from sfn.telemetry.pulls import Pulls
from sfn.telemetry.refusals import Seldom

FIRST_PAUSE: Final = 0.5
"""Seconds until a server that is away is asked again; doubled with each time, up to the longest."""
LONGEST_PAUSE: Final = 15.0
RETRY_AFTER: Final = 1.0
"""Seconds until the inbox is asked again, where it does not say."""
LAST_LOOK: Final = 2.0
"""Most seconds after a drain until the inbox knows that catalogs have to be looked at for what was given up."""
AFTER_DEFECT: Final = 60.0
"""Seconds until a message comes again of which an error of our own made nothing."""

_JSON: Final = (b"content-type", b"application/json")
_RAISE: Final = "have smaller messages published, or raise pull.{}.body_limit; and have these events told again"
_TELL_AGAIN: Final = "have the events of that time told again, or fetch them from a stream of JetStream"

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """What is configured of a source.

    Attributes:
        name: in the settings.
        sender: whom its events count as.
        size: most bytes of a message.
        drain: how long a stop waits for what is in hand.
    """

    name: str
    sender: Sender
    size: int
    drain: timedelta


class Source:
    """One source.

    Args:
        terms: what is configured of it.
        server: where it is.
        taking: takes its events.
        clock: the wall clock.
        counted: told of what was not taken.
        seen: told how the source is.
    """

    def __init__(
        self,
        terms: Terms,
        server: Server,
        taking: Taking,
        *,
        clock: Clock,
        counted: Events,
        seen: Pulls,
    ) -> None:
        self._terms, self._server, self._taking = terms, server, taking
        self._name, self._sender = terms.name, terms.sender
        self._counted, self._seen = counted, seen
        self._outage, self._seldom = Outage(terms.name, clock), Seldom()
        self._idle = anyio.CancelScope()
        """Around every wait that a stop ends at once."""
        self._pause = FIRST_PAUSE
        self._hold = 0.0
        """Seconds for which nothing more is fetched, as the inbox took nothing."""
        self._owes_a_look = not server.keeps
        """Something may have been published that never came here, so the catalogs have to be looked at: at first what
        was while nobody ran."""

    async def run(self, stop: anyio.Event) -> None:
        """Fetch until a stop, and end what is in hand within the drain.

        Raises:
            Broken: in a group; the inbox can't be trusted any more.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._heed, stop, tasks.cancel_scope)
            while not stop.is_set():
                try:
                    await self._connected(stop)
                except Away as away:
                    # What is published until there is a connection may never come here.
                    self._owes_a_look = self._owes_a_look or not self._server.keeps
                    self._outage.trouble(away)
                    await self._rest(stop, self._pause)
                    self._pause = min(2 * self._pause, LONGEST_PAUSE)
            tasks.cancel_scope.cancel()

    async def _heed(self, stop: anyio.Event, everything: anyio.CancelScope) -> None:
        await stop.wait()
        self._idle.cancel()
        await anyio.sleep(self._terms.drain.total_seconds())
        _log.warning("pulled messages given up", name=self._name)
        if not self._server.keeps:
            self._owes_a_look = True
            with anyio.move_on_after(LAST_LOOK):
                await self._make_up()
        everything.cancel()

    async def _connected(self, stop: anyio.Event) -> None:
        """Fetch by one connection until it is lost, or until a stop."""
        async with AsyncExitStack() as stack:
            feed: Feed | None = None
            with anyio.CancelScope() as self._idle:
                feed = await stack.enter_async_context(self._server.opened())
            if feed is None:
                return
            self._outage.reached()
            self._seen.connected(self._name, is_connected=True)
            stack.callback(self._seen.connected, self._name, is_connected=False)
            await self._fetch(feed, stop)

    async def _fetch(self, feed: Feed, stop: anyio.Event) -> None:
        lost, handled = 0, False
        while not stop.is_set():
            lost = self._counted_lost(feed, lost)
            await self._make_up()
            messages = await self._next(feed)
            if (handled or not messages) and not stop.is_set():
                # Who may fetch, and may not acknowledge, learns of it only after the first ones.
                self._works()
            handled = True
            await self._handle_all(messages)
            hold, self._hold = self._hold, 0.0
            await self._rest(stop, hold)
        await self._finish(feed, lost)

    async def _finish(self, feed: Feed, lost: int) -> None:
        """Take what was delivered here and nobody else will ever have."""
        last = await feed.end()
        self._counted_lost(feed, lost)
        self._owes_a_look = self._owes_a_look or not last.is_all
        await self._handle_all(last.messages)
        await self._make_up()

    def _works(self) -> None:
        self._outage.over()
        self._pause = FIRST_PAUSE

    def _counted_lost(self, feed: Feed, before: int) -> int:
        lost = feed.lost
        if lost > before:
            self._owes_a_look = True
            self._seen.dropped(self._name, lost - before)
            _log.warning("pulled messages dropped", name=self._name, count=lost - before)
        return lost

    async def _next(self, feed: Feed) -> list[Message]:
        messages: list[Message] = []
        with anyio.CancelScope() as self._idle:
            messages += await feed.next()
        return messages

    async def _rest(self, stop: anyio.Event, seconds: float) -> None:
        if not stop.is_set():
            with anyio.CancelScope() as self._idle:
                await anyio.sleep(seconds)

    async def _make_up(self) -> None:
        """Have looked at what never came here, once the inbox takes it."""
        if self._owes_a_look:
            try:
                await self._taking.make_up(PATH, self._sender, _TELL_AGAIN)
            except Transient as trouble:
                self._tell_not_taken(trouble)
            except Broken:
                raise
            except Exception:  # noqa: BLE001 - as below
                _log.exception("catalogs not looked at", name=self._name)
            else:
                self._owes_a_look = False

    async def _handle_all(self, messages: Sequence[Message]) -> None:
        async with anyio.create_task_group() as tasks:
            for message in messages:
                tasks.start_soon(self._handle, message)

    async def _handle(self, message: Message) -> None:
        # Who can't be told that a message is taken delivers it again, and the connection is lost anyway.
        with suppress(Away):
            if await self._is_done(message):
                await message.taken()

    async def _is_done(self, message: Message) -> bool:
        """Whether a message need not come again; where nobody keeps it, it is kept in hand until the inbox takes it."""
        while True:
            try:
                await self._take(message)
            except Rejected as refusal:
                self._counted.turned_down(refusal.status)
            except Transient as trouble:
                self._tell_not_taken(trouble)
                self._counted.turned_down(HTTPStatus.SERVICE_UNAVAILABLE)
                after = trouble.retry_after or RETRY_AFTER
                if await message.again(after):
                    self._hold = max(self._hold, after)
                    return False
                await anyio.sleep(after)
                continue
            except Broken:
                raise
            except Exception:  # noqa: BLE001 - the edge of the process: logged with its traceback
                _log.exception("pulled message failed", name=self._name)
                self._owes_a_look = self._owes_a_look or not await message.again(AFTER_DEFECT)
                return False
            return True

    async def _take(self, message: Message) -> None:
        size = len(message.body)
        if size > self._terms.size:
            expected = f"at most {self._terms.size} bytes"
            refusal = Rejected("#", status=413, expected=expected, found=f"{size}")
            tell(refusal, self._sender)
            await self._taking.make_up(PATH, self._sender, _RAISE.format(self._name))
            raise refusal
        await self._taking.take(Arrived(PATH, _with_type(message.headers), message.body, self._sender))

    def _tell_not_taken(self, trouble: Transient) -> None:
        if (left_out := self._seldom.passing("not taken")) is not None:
            _log.warning("events not taken", source=self._name, error=str(trouble), left_out=left_out)


def _with_type(headers: Headers) -> Headers:
    """Headers with a content type: without one an event is known by its own fields."""
    return headers if any(name == _JSON[0] for name, _ in headers) else [*headers, _JSON]
