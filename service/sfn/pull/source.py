"""A pull source: it fetches messages while the service runs, and acknowledges them after they are on disk."""

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
from sfn.errors import FatalError, Rejected, Transient
from sfn.formats.event import EventRequest, Headers, Sender
from sfn.http.ingest import EVENTS_PATH, IngestService, log_rejected
from sfn.http.responses import problem_detail
from sfn.pull import Message, MessageFeed, Outage, PullServer, SourceState, SourceUnavailable
from sfn.telemetry import tracing
from sfn.telemetry.logs import LogThrottle
from sfn.telemetry.metrics import EventMetrics, PullMetrics

FIRST_PAUSE: Final = 0.5
"""Seconds until the first attempt to reconnect; doubled with each attempt, up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Final = 15.0
RETRY_AFTER: Final = 1.0
"""Seconds until the next attempt to put a message into the inbox, if the inbox names no delay."""
FINAL_RECHECK_TIMEOUT: Final = 2.0
"""Most seconds after a drain to schedule sweeps for abandoned messages."""
AFTER_DEFECT: Final = 60.0
"""Seconds until the next delivery of a message after an unexpected error."""

_JSON: Final = (b"content-type", b"application/json")
_RAISE_LIMIT: Final = "publish smaller messages, or raise pull.{}.body_limit; then publish these events again"
_RESEND: Final = "publish the events of that time again, or fetch them from a JetStream stream"

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PullOptions:
    """The configuration of a source.

    Attributes:
        name: name in the settings.
        sender: sender of its events.
        max_size: most bytes of a message.
        drain: most time that a stop waits for messages in progress.
    """

    name: str
    sender: Sender
    max_size: int
    drain: timedelta


class PullSource:
    """A pull source.

    Args:
        options: configuration of the source.
        server: server of the source.
        service: service that ingests the events.
        clock: wall clock.
        event_metrics: counters of rejected events.
        pull_metrics: metrics of the connection.
    """

    def __init__(
        self,
        options: PullOptions,
        server: PullServer,
        service: IngestService,
        *,
        clock: Clock,
        event_metrics: EventMetrics,
        pull_metrics: PullMetrics,
    ) -> None:
        self._options, self._server, self._service = options, server, service
        self._name, self._sender = options.name, options.sender
        self._event_metrics, self._pull_metrics = event_metrics, pull_metrics
        self._outage, self._throttle = Outage(options.name, clock), LogThrottle()
        self._idle = anyio.CancelScope()
        """Scope of the current wait, which a stop cancels."""
        self._pause = FIRST_PAUSE
        self._inbox_pause = 0.0
        """Seconds without fetching, because the inbox is unavailable."""
        self._needs_recheck = not server.is_durable
        """Messages may have been lost, so the catalogs must be swept. At the start, a server that is not durable has
        lost all earlier messages."""

    @property
    def state(self) -> SourceState:
        """The state of the connection."""
        return self._outage.state

    async def run(self, stop: anyio.Event) -> None:
        """Fetch until a stop, then complete the messages in progress within the drain.

        Raises:
            FatalError: in an exception group; the inbox can't be trusted any more.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_after_drain, stop, tasks.cancel_scope)
            while not stop.is_set():
                try:
                    await self._run_connection(stop)
                except SourceUnavailable as error:
                    # Without a durable server, messages are lost until the next connection.
                    self._needs_recheck = self._needs_recheck or not self._server.is_durable
                    self._outage.on_unavailable(error)
                    await self._pause_for(stop, self._pause)
                    self._pause = min(2 * self._pause, LONGEST_PAUSE)
            tasks.cancel_scope.cancel()

    async def _stop_after_drain(self, stop: anyio.Event, everything: anyio.CancelScope) -> None:
        await stop.wait()
        self._idle.cancel()
        await anyio.sleep(self._options.drain.total_seconds())
        _log.warning("pulled messages abandoned", source=self._name)
        if not self._server.is_durable:
            self._needs_recheck = True
            with anyio.move_on_after(FINAL_RECHECK_TIMEOUT):
                await self._recheck_if_needed()
        everything.cancel()

    async def _run_connection(self, stop: anyio.Event) -> None:
        """Fetch over one connection until it is lost, or until a stop."""
        async with AsyncExitStack() as stack:
            feed: MessageFeed | None = None
            with anyio.CancelScope() as self._idle:
                feed = await stack.enter_async_context(self._server.connect())
            if feed is None:
                return
            self._outage.on_connected()
            self._pull_metrics.set_connected(self._name, is_connected=True)
            stack.callback(self._pull_metrics.set_connected, self._name, is_connected=False)
            await self._fetch(feed, stop)

    async def _fetch(self, feed: MessageFeed, stop: anyio.Event) -> None:
        lost, handled = 0, False
        while not stop.is_set():
            lost = self._count_dropped(feed, lost)
            await self._recheck_if_needed()
            messages = await self._next(feed)
            if (handled or not messages) and not stop.is_set():
                # Missing permission to acknowledge shows only after the first messages.
                self._mark_recovered()
            handled = True
            await self._handle_all(messages)
            pause, self._inbox_pause = self._inbox_pause, 0.0
            await self._pause_for(stop, pause)
        await self._finish(feed, lost)

    async def _finish(self, feed: MessageFeed, lost: int) -> None:
        """Process the delivered messages that the server does not store."""
        last = await feed.drain()
        self._count_dropped(feed, lost)
        self._needs_recheck = self._needs_recheck or not last.is_complete
        await self._handle_all(last.messages)
        await self._recheck_if_needed()

    def _mark_recovered(self) -> None:
        self._outage.on_recovered()
        self._pause = FIRST_PAUSE

    def _count_dropped(self, feed: MessageFeed, before: int) -> int:
        lost = feed.dropped
        if lost > before:
            self._needs_recheck = True
            self._pull_metrics.count_dropped(self._name, lost - before)
            _log.warning("pulled messages dropped", source=self._name, count=lost - before)
        return lost

    async def _next(self, feed: MessageFeed) -> list[Message]:
        messages: list[Message] = []
        with anyio.CancelScope() as self._idle:
            messages += await feed.next()
        return messages

    async def _pause_for(self, stop: anyio.Event, seconds: float) -> None:
        if not stop.is_set():
            with anyio.CancelScope() as self._idle:
                await anyio.sleep(seconds)

    async def _recheck_if_needed(self) -> None:
        """Schedule sweeps for lost messages, as soon as the inbox accepts them."""
        if self._needs_recheck:
            try:
                await self._service.schedule_recheck(EVENTS_PATH, self._sender, _RESEND)
            except Transient as trouble:
                self._log_not_stored(trouble)
            except FatalError:
                raise
            except Exception:  # noqa: BLE001 - the edge of the process: logged with its traceback
                _log.exception("sweep not scheduled", source=self._name)
            else:
                self._needs_recheck = False

    async def _handle_all(self, messages: Sequence[Message]) -> None:
        async with anyio.create_task_group() as tasks:
            for message in messages:
                tasks.start_soon(self._handle, message)

    async def _handle(self, message: Message) -> None:
        # If the acknowledgement fails, the connection is lost and the server delivers the message again.
        with suppress(SourceUnavailable):
            if await self._ingest_with_retries(message):
                await message.acknowledge()

    async def _ingest_with_retries(self, message: Message) -> bool:
        """Ingest a message; return False if the server has to deliver it again.

        If the server does not store the message, retry until the inbox accepts it.
        """
        while True:
            try:
                await self._ingest(message)
            except Rejected as refusal:
                self._event_metrics.count_rejected(refusal.status)
                self._service.recent.record_refused(refusal.status, problem_detail(refusal), self._sender.name, None)
            except Transient as trouble:
                self._log_not_stored(trouble)
                self._event_metrics.count_rejected(HTTPStatus.SERVICE_UNAVAILABLE)
                after = trouble.retry_after or RETRY_AFTER
                if await message.redeliver(after):
                    self._inbox_pause = max(self._inbox_pause, after)
                    return False
                await anyio.sleep(after)
                continue
            except FatalError:
                raise
            except Exception:  # noqa: BLE001 - the edge of the process: logged with its traceback
                _log.exception("pulled message failed", source=self._name)
                self._needs_recheck = self._needs_recheck or not await message.redeliver(AFTER_DEFECT)
                return False
            return True

    async def _ingest(self, message: Message) -> None:
        size = len(message.body)
        if size > self._options.max_size:
            expected = f"at most {self._options.max_size} bytes"
            refusal = Rejected("#", status=413, expected=expected, found=f"{size}")
            log_rejected(refusal, self._sender)
            await self._service.schedule_recheck(EVENTS_PATH, self._sender, _RAISE_LIMIT.format(self._name))
            raise refusal
        with tracing.serve(f"receive {self._name}", message.headers, kind="consumer"):
            await self._service.ingest(
                EventRequest(EVENTS_PATH, _with_type(message.headers), message.body, self._sender)
            )

    def _log_not_stored(self, trouble: Transient) -> None:
        if (suppressed := self._throttle.allow("not stored")) is not None:
            _log.warning("events not stored", source=self._name, error=str(trouble), suppressed=suppressed)


def _with_type(headers: Headers) -> Headers:
    """Return the headers with a content type; JSON if there is none. The event's fields then decide on its format."""
    return headers if any(name == _JSON[0] for name, _ in headers) else [*headers, _JSON]


_ONE: Final = "*"
_REST: Final = ">"


def subjects_overlap(one: str, other: str) -> bool:
    """Return whether some subject matches both of two NATS subjects with wildcards."""
    left, right = one.split("."), other.split(".")
    for first, second in zip(left, right, strict=False):
        if _REST in {first, second}:
            return True
        if first != second and _ONE not in {first, second}:
            return False
    return len(left) == len(right)
