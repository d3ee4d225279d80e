"""Where events come in, as a bare ASGI application: 202 and 204 mean that the hints are on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import structlog

from sfn.domain.events import MAX_STORED_BODY, Notification, PutResult, UndecodableRequest
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.errors import FatalError, Rejected, Transient
from sfn.formats import POLARIS_NOTIFICATIONS, DecodedRequest, as_structured, decode, notifications_for_unread, polaris
from sfn.formats.event import EventRequest, Sender
from sfn.http import body, responses, signature
from sfn.http.responses import EventsResponse, ResponseFormat
from sfn.http.senders import PossibleSigner, Senders
from sfn.http.signature import signed_parts, trusted_catalogs, with_message_id
from sfn.inbox import InboxWriter
from sfn.limits import EXHAUSTED_MESSAGE, RETRY_AFTER, BodyMemory, BodyMemoryExhausted, BodyReservation
from sfn.telemetry.logs import LogThrottle, RejectionLog
from sfn.telemetry.metrics import EventMetrics

# ── Relevant events


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events matter.

    Attributes:
        covers: whether a table is published.
        event_only: catalogs that nobody can ask: what events do not say of them nobody will ever know.
    """

    covers: Callable[[TableIdentifier], bool]
    event_only: Collection[str] = ()

    def decode(self, request: EventRequest) -> DecodedRequest:
        """Return all that a request says; raises `Rejected` as `decode` does."""
        return decode(request, self.event_only)

    def relevant(self, notifications: Sequence[Notification]) -> list[Notification]:
        """Those hints that matter.

        What is told of a catalog that nobody can ask always does: the table may get files again, once its catalog comes
        back or the settings change, and then nobody could tell where it is.
        """
        return [notification for notification in notifications if self.is_relevant(notification.subject)]

    def is_relevant(self, subject: JobKey) -> bool:
        """Return whether what is told of a table or a catalog matters."""
        return isinstance(subject, CatalogName) or subject.catalog in self.event_only or self.covers(subject)


# ── Undecodable requests

_UNSIGNED: Final = "#unsigned"
"""Behind the path of what was signed, where that path or the headers say something: no path that is taken ends so."""


def to_undecodable(request: EventRequest, refusal: Rejected, *, is_signed: bool) -> UndecodableRequest:
    """Return all that says what a request is about, and the beginning of its body.

    Args:
        request: what nobody understood.
        refusal: why.
        is_signed: its sender is known by a signature, of the body alone.
    """
    whole = as_structured(request)
    says_more = whole is not request or polaris.parse_notification_path(request.path) is not None
    content_type = next((value.decode("latin-1") for name, value in whole.headers if name == b"content-type"), None)
    return UndecodableRequest(
        sender=request.sender.name,
        path=f"{request.path}{_UNSIGNED}" if is_signed and says_more else request.path,
        content_type=content_type,
        body=whole.body[:MAX_STORED_BODY],
        size=len(whole.body),
        detail=str(refusal),
    )


def to_request(event: UndecodableRequest, sender: Sender, event_only: Collection[str]) -> EventRequest:
    """What is kept of a request, as it arrived.

    Args:
        event: that.
        sender: whose it is, as it is configured now.
        event_only: our names of catalogs that nobody can ask.

    Raises:
        Rejected: 422, what no signature covers would be believed, however the sender shows now who it is.
    """
    path = event.path.removesuffix(_UNSIGNED)
    if path != event.path and (catalogs := trusted_catalogs(sender, event_only)):
        raise Rejected(
            "path",
            status=422,
            expected=f"what a signature covers, as what is told of {catalogs} is believed",
            found="a path or headers that it does not",
            remedy="have the sender tell it again, and show a token",
        )
    kind = [] if event.content_type is None else [(b"content-type", event.content_type.encode("latin-1"))]
    return EventRequest(path, kind, event.body, sender)


# ── Ingest

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
            FatalError: the inbox can't be trusted any more.
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
            FatalError: the inbox can't be trusted any more.
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
            _log.info(event, sender=sender.name, found=found, remedy=remedy, suppressed=suppressed)

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


# ── Readiness

DRAINING: Final = "draining"


class Readiness:
    """Why the process is not ready; it is ready when no reason is left.

    Args:
        waiting_for: reasons that hold from the start.
    """

    def __init__(self, *waiting_for: str) -> None:
        self._reasons = dict.fromkeys(waiting_for)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What stands against it, in the order in which it came up."""
        return tuple(self._reasons)

    @property
    def is_draining(self) -> bool:
        """Return whether the process is on its way out: nothing new is taken."""
        return DRAINING in self._reasons

    def add_reason(self, reason: str) -> None:
        """Something stands against it."""
        self._reasons[reason] = None

    def clear_reason(self, reason: str) -> None:
        """It does no longer. There is no way back from draining."""
        if reason != DRAINING:
            self._reasons.pop(reason, None)

    def drain(self) -> None:
        """Take nothing new from here on."""
        self.add_reason(DRAINING)


# ── Endpoint

EVENTS_PATH: Final = "/v1/events"
"""Where all dialects are taken but for Polaris' notifications, which have paths of their own."""

_NO_PAGES: Final = (
    "a web page may not send events (Origin) while none needs a token; "
    'configure [senders.NAME] secrets = { main = "…" } and send that token'
)
_ENDS: Final = "the service is shutting down"
_SEND_FEWER: Final = "let the sender send these events again, fewer in one request, or raise listener.body_limit"
_SEND_PLAIN: Final = "let the sender send these events again, and none compressed"
_COMPRESSED: Final = Rejected("", status=415, expected="a body that is not compressed", found="a Content-Encoding")
_PLAIN: Final = (b"accept-encoding", b"identity")


def handles(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request (ASGI 3, scope `http`) is for `EventsEndpoint`, by its path."""
    return scope["path"] == EVENTS_PATH or polaris.parse_notification_path(_raw_path(scope)) is not None


class EventsEndpoint:
    """Takes events: sender, body, hints, inbox, answer, in this order; who signs is known after the body.

    Args:
        inbox: where hints go.
        senders: who may send.
        readiness: whether anything is taken at all.
        limits: what a body may cost.
        event_filter: which events matter.
        on_fatal: told once the inbox can't be trusted any more, so that the process may end.
        metrics: told of every answer.
        memory: for the bodies of those who have not shown who they are; who shows a token needs none of it.
    """

    def __init__(  # noqa: PLR0913 - the parts that it is made of
        self,
        inbox: InboxWriter,
        senders: Senders,
        readiness: Readiness,
        *,
        limits: body.BodyLimits,
        event_filter: EventFilter,
        on_fatal: Callable[[FatalError], None],
        metrics: EventMetrics,
        memory: BodyMemory | None = None,
    ) -> None:
        self._service = IngestService(inbox, event_filter=event_filter, metrics=metrics)
        self._senders = senders
        self._readiness = readiness
        self._limits = limits
        self._on_fatal = on_fatal
        self._metrics = metrics
        self._memory = memory or BodyMemory()
        self._throttle = LogThrottle()
        self._refusals = RejectionLog("events", self._throttle)

    async def __call__(self, scope: MutableMapping[str, Any], receive: body.Receive, send: responses.Send) -> None:
        """Answer one request (ASGI 3, scope `http`)."""
        response_format = responses.NATIVE if scope["path"] == EVENTS_PATH else responses.ICEBERG
        try:
            answer = await self._answer(response_format, scope, receive)
        except Rejected as refusal:
            answer = response_format.rejected(refusal)
        except Transient as trouble:
            self._log_not_stored(trouble)
            answer = _unavailable(response_format, "the events could not be stored", trouble.retry_after)
        except BodyMemoryExhausted:
            answer = _unavailable(response_format, EXHAUSTED_MESSAGE, RETRY_AFTER, [responses.CLOSE_HEADER])
        except FatalError as broken:
            self._on_fatal(broken)
            answer = _unavailable(response_format, "the inbox failed, the service is restarting", None)
        except asyncio.CancelledError:
            # The process ends, by an error or since its drain is over: whoever sent it is to send it again.
            answer = _unavailable(response_format, _ENDS, None, [responses.CLOSE_HEADER])
        except Exception:  # noqa: BLE001 - the edge of the process: logged with its traceback, answered as 500
            _log.exception("request failed")
            answer = response_format.error(500, "this is an error of the service; its log says more")
        if answer is None:
            return
        if answer.status >= HTTPStatus.BAD_REQUEST:
            self._metrics.count_rejected(
                answer.status, None if response_format is responses.NATIVE else POLARIS_NOTIFICATIONS
            )
        await responses.send_response(send, answer)

    async def _answer(
        self, response_format: ResponseFormat, scope: MutableMapping[str, Any], receive: body.Receive
    ) -> EventsResponse | None:
        if scope["method"] != "POST":
            return self._answer_other_method(response_format, scope)
        if self._readiness.is_draining:
            return _unavailable(response_format, _ENDS, None, [responses.CLOSE_HEADER])
        head = _read_headers(scope["headers"])
        who = self._senders.identify(head.authorization, scope["headers"])
        if who is None:
            return self._unauthorized(response_format, scope)
        if not isinstance(who, Sender):
            return await self._answer_signed(response_format, scope, receive, head, who)
        if head.is_from_a_page and self._senders.is_open(who):
            return self._reject(response_format, scope, 403, _NO_PAGES)
        if (wait := self._senders.seconds_to_wait(who)) is not None:
            return self._too_many(response_format, who, wait)
        path = _raw_path(scope)
        if head.encoding != b"identity":
            return await self._reject_compressed(response_format, path, who)
        with self._memory.reserve() if self._senders.is_open(who) else nullcontext() as reservation:
            content = await self._read(receive, head.length, path, who, reservation)
            if content is None:
                return None
            return response_format.accepted(
                *await self._service.ingest(EventRequest(path, scope["headers"], content, who))
            )

    async def _answer_signed(
        self,
        response_format: ResponseFormat,
        scope: MutableMapping[str, Any],
        receive: body.Receive,
        head: _RequestHead,
        signers: Sequence[PossibleSigner],
    ) -> EventsResponse | None:
        """Whose it is its body alone tells: of one that is not read nobody can say what to look at instead."""
        if head.encoding != b"identity":
            return self._reject(
                response_format, scope, _COMPRESSED.status, responses.problem_detail(_COMPRESSED), _PLAIN
            )
        try:
            with self._memory.reserve() as reservation:
                content = await body.read_body(receive, head.length, self._limits, reservation)
                verified = None if content is None else await self._senders.verify_signer(signers, content)
        except Rejected as refusal:
            self._refusals.log_rejected(refusal.status, responses.problem_detail(refusal), _client(scope))
            raise
        if content is None:
            return None
        if verified is None:
            return self._unauthorized(response_format, scope)
        if (wait := self._senders.seconds_to_wait(verified.sender)) is not None:
            return self._too_many(response_format, verified.sender, wait)
        request = EventRequest(_raw_path(scope), scope["headers"], content, verified.sender)
        return response_format.accepted(*await self._service.ingest(request, verified.message_id, is_signed=True))

    async def _read(
        self, receive: body.Receive, length: int | None, path: str, sender: Sender, reservation: BodyReservation | None
    ) -> bytes | None:
        try:
            return await body.read_body(receive, length, self._limits, reservation)
        except Rejected as refusal:
            log_rejected(refusal, sender)
            if refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                await self._service.schedule_recheck(path, sender, _SEND_FEWER)
            raise

    async def _reject_compressed(self, response_format: ResponseFormat, path: str, sender: Sender) -> EventsResponse:
        """Return a body that nobody opens: a small one may hold more than fits into memory."""
        log_rejected(_COMPRESSED, sender)
        await self._service.schedule_recheck(path, sender, _SEND_PLAIN)
        return response_format.error(_COMPRESSED.status, responses.problem_detail(_COMPRESSED), [_PLAIN])

    def _answer_other_method(self, response_format: ResponseFormat, scope: MutableMapping[str, Any]) -> EventsResponse:
        permits = response_format is responses.NATIVE and self._senders.are_configured
        if permits and scope["method"] == "OPTIONS":
            return signature.answer_handshake(response_format, scope["headers"], self._senders.least_rate)
        allowed = signature.ALLOW_HEADER if permits else (b"allow", b"POST")
        return self._reject(response_format, scope, 405, "events are sent with POST", allowed)

    def _unauthorized(self, response_format: ResponseFormat, scope: MutableMapping[str, Any]) -> EventsResponse:
        """Return the same answer whatever is wrong: it tells nobody how near they were."""
        return self._reject(
            response_format, scope, 401, "a valid bearer token is needed", (b"www-authenticate", b"Bearer")
        )

    def _too_many(self, response_format: ResponseFormat, sender: Sender, wait: float) -> EventsResponse:
        if (suppressed := self._throttle.allow(("too many", sender.name))) is not None:
            _log.warning("events refused", sender=sender.name, status=429, suppressed=suppressed)
        return response_format.error(429, "more requests a minute than this sender may make", [_retry_after(wait)])

    def _reject(
        self,
        response_format: ResponseFormat,
        scope: MutableMapping[str, Any],
        status: int,
        why: str,
        *headers: tuple[bytes, bytes],
    ) -> EventsResponse:
        """Return a request is refused of which nobody knows who sent it."""
        self._refusals.log_rejected(status, why, _client(scope))
        return response_format.error(status, why, headers)

    def _log_not_stored(self, trouble: Transient) -> None:
        if (suppressed := self._throttle.allow("not taken")) is not None:
            _log.warning("events not taken", error=str(trouble), suppressed=suppressed)


class _RequestHead(NamedTuple):
    authorization: bytes | None
    length: int | None
    encoding: bytes
    is_from_a_page: bool


def _read_headers(headers: Iterable[tuple[bytes, bytes]]) -> _RequestHead:
    authorization: bytes | None = None
    length: int | None = None
    encoding = b"identity"
    is_from_a_page = False
    for name, value in headers:
        if name == b"authorization":
            # Two of them are no answer to the question who it is (RFC 9110, section 5.3).
            authorization = value if authorization is None else b""
        elif name == b"content-length":
            length = int(value) if value.isdigit() else None
        elif name == b"content-encoding":
            encoding = value.strip().lower()
        elif name == b"origin":
            # Browsers send it with every POST, whatever page has it sent (Fetch, section 3.2), and nobody else does.
            is_from_a_page = True
    return _RequestHead(authorization, length, encoding, is_from_a_page)


def _client(scope: MutableMapping[str, Any]) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


def _raw_path(scope: MutableMapping[str, Any]) -> str:
    raw: bytes = scope["raw_path"]
    return raw.decode("ascii")


def _unavailable(
    response_format: ResponseFormat, detail: str, retry_after: float | None, headers: responses.ResponseHeaders = ()
) -> EventsResponse:
    return response_format.error(503, detail, [*headers, _retry_after(retry_after)])


def _retry_after(seconds: float | None) -> tuple[bytes, bytes]:
    return b"retry-after", b"%d" % responses.retry_after_seconds(seconds)
