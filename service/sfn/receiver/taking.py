"""What becomes of events whose sender is known, however they came: hints, inbox, counts."""

from __future__ import annotations

from typing import Final, NamedTuple

import structlog

from sfn.domain.events import PutResult
from sfn.errors import Rejected
from sfn.formats import DecodedRequest, notifications_for_unread
from sfn.formats.event import EventRequest, Sender
from sfn.inbox import InboxWriter
from sfn.receiver.concern import EventFilter
from sfn.receiver.covered import signed_parts, with_message_id
from sfn.receiver.letter import to_undecodable
from sfn.telemetry.metrics import EventMetrics
from sfn.telemetry.refusals import LogThrottle

_NOTHING: Final = PutResult(0, 0)

_log = structlog.stdlib.get_logger(__name__)


class IngestResult(NamedTuple):
    """What became of a request.

    Attributes:
        stored: what became of that which went into the inbox.
        ignored: events that are understood and of no concern.
    """

    stored: PutResult
    ignored: int


class IngestService:
    """Takes what arrived: once it returns, the hints are on disk, or what nobody understood is.

    Args:
        inbox: where hints go.
        event_filter: which events matter.
        metrics: told of what was taken; of what was not, whoever answers its sender tells.
    """

    def __init__(self, inbox: InboxWriter, *, event_filter: EventFilter, metrics: EventMetrics) -> None:
        self._inbox = inbox
        self._filter, self._event_only = event_filter, frozenset(event_filter.event_only)
        self._metrics = metrics
        self._throttle = LogThrottle()

    async def ingest(
        self, request: EventRequest, message: str | None = None, *, is_signed: bool = False
    ) -> IngestResult:
        """Have all events of a request on disk.

        Args:
            message: the id of what they came in, for those that have none of their own.
            is_signed: its sender is known by a signature: what that does not cover is not believed.

        Raises:
            Rejected: nobody understands it; it is kept as a dead letter.
            Transient: scope inbox: nothing was taken.
            Broken: the inbox can't be trusted any more.
        """
        decoded = await self._decode(request, is_signed=is_signed)
        relevant = self._filter.relevant(with_message_id(decoded.notifications, message))
        stored = await self._inbox.put(relevant) if relevant else _NOTHING
        ignored = decoded.ignored + len(decoded.notifications) - len(relevant)
        self._metrics.count_ingested(decoded.event_format, stored, ignored, decoded.unmapped_events)
        if decoded.unmapped_events:
            self._log_unmapped(decoded, request.sender)
        return IngestResult(stored, ignored + decoded.unmapped_events)

    async def schedule_recheck(self, path: str, sender: Sender, remedy: str) -> None:
        """Have looked at what something may tell of that nobody read; but for catalogs that are told of alone none can.

        Args:
            path: where it was sent to.
            sender: who sent it.
            remedy: what to do about such a catalog.

        Raises:
            Transient: scope inbox: nothing will be looked at.
            Broken: the inbox can't be trusted any more.
        """
        notifications = self._filter.relevant(notifications_for_unread(path, sender))
        if lost := sorted({notification.subject.catalog for notification in notifications} & self._event_only):
            _log.error("events lost", sender=sender.name, catalogs=lost, remedy=remedy)
        if instead := [
            notification for notification in notifications if notification.subject.catalog not in self._event_only
        ]:
            await self._inbox.put(instead)

    def _log_unmapped(self, decoded: DecodedRequest, sender: Sender) -> None:
        if (suppressed := self._throttle.allow(("unmapped", sender.name))) is not None:
            found = decoded.unmapped_catalogs
            remedy = f'senders.{sender.name}.catalogs = {{ "{found[0]}" = "…" }}, if it is one of ours'
            event = "event of an unmapped catalog"
            _log.info(event, sender=sender.name, found=found, remedy=remedy, left_out=suppressed)

    async def _decode(self, request: EventRequest, *, is_signed: bool) -> DecodedRequest:
        try:
            if is_signed:
                request = signed_parts(request, self._event_only)
            return self._filter.decode(request)
        except Rejected as refusal:
            log_rejected(refusal, request.sender)
            # Who is refused does not send it again. So first it is on disk; if it can't be, the answer is 503.
            await self._inbox.put([to_undecodable(request, refusal, is_signed=is_signed)])
            raise


def log_rejected(refusal: Rejected, sender: Sender) -> None:
    """Log that something is not taken, by its sender's fault."""
    _log.info("events refused", sender=sender.name, status=refusal.status, error=str(refusal))
