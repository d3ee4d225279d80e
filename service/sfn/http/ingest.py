"""The endpoint for events, as a plain ASGI application. It answers 202 or 204 after the notifications are on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, MutableMapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog

from sfn.domain.events import MAX_STORED_BODY, Notification, PutResult, UndecodableRequest
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.errors import FatalError, Rejected, Transient
from sfn.formats import polaris
from sfn.formats.decode import POLARIS_NOTIFICATIONS, DecodedRequest, as_structured, decode, notifications_for_unread
from sfn.formats.event import EventRequest, Headers, Sender
from sfn.http import responses, signature
from sfn.http.recent_requests import RecentRequests
from sfn.http.responses import EventsResponse, ResponseFormat
from sfn.http.senders import PossibleSigner, Senders
from sfn.http.signature import signed_parts, trusted_catalogs, with_message_id
from sfn.inbox import InboxWriter
from sfn.limits import (
    EXHAUSTED_MESSAGE,
    RETRY_AFTER,
    BodyLimits,
    BodyMemory,
    BodyMemoryExhausted,
    BodyReservation,
    Receive,
    read_body,
)
from sfn.telemetry import tracing
from sfn.telemetry.logs import LogThrottle, RejectionLog
from sfn.telemetry.metrics import EventMetrics


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A filter for the events that concern published tables.

    Attributes:
        covers: predicate for published tables.
        event_only: names of the event-only catalogs. Their state is known from events only.
    """

    covers: Callable[[TableIdentifier], bool]
    event_only: Collection[str] = ()

    def decode(self, request: EventRequest) -> DecodedRequest:
        """Return the decoded request; raise `Rejected` as `sfn.formats.decode.decode` does."""
        return decode(request, self.event_only)

    def relevant(self, notifications: Sequence[Notification]) -> list[Notification]:
        """Return the relevant ones of some notifications.

        All notifications of an event-only catalog are relevant. If the table is published later, because its catalog
        comes back or the settings change, its location is known from these events only.
        """
        return [notification for notification in notifications if self.is_relevant(notification.subject)]

    def is_relevant(self, subject: JobKey) -> bool:
        """Return whether notifications for a table or a catalog are relevant."""
        return isinstance(subject, CatalogName) or subject.catalog in self.event_only or self.covers(subject)


_UNSIGNED: Final = "#unsigned"
"""Suffix of the stored path of a signed request with unsigned information in its path or headers. No route ends so."""


def to_undecodable(request: EventRequest, refusal: Rejected, *, is_signed: bool) -> UndecodableRequest:
    """Return what is stored of an undecodable request: its metadata and the beginning of its body.

    Args:
        request: the undecodable request.
        refusal: the reason.
        is_signed: the sender was identified by a signature, which covers the body only.
    """
    whole = as_structured(request)
    has_unsigned_parts = whole is not request or polaris.parse_notification_path(request.path) is not None
    # The last one, because a format is recognized by the last one.
    content_types = [value.decode("latin-1") for name, value in whole.headers if name == b"content-type"]
    return UndecodableRequest(
        sender=request.sender.name,
        path=f"{request.path}{_UNSIGNED}" if is_signed and has_unsigned_parts else request.path,
        content_type=content_types[-1] if content_types else None,
        body=whole.body[:MAX_STORED_BODY],
        size=len(whole.body),
        detail=str(refusal),
    )


def to_request(event: UndecodableRequest, sender: Sender, event_only: Collection[str]) -> EventRequest:
    """Return a stored request in the form in which it arrived.

    Args:
        event: the stored request.
        sender: its sender, as configured now.
        event_only: names of the event-only catalogs.

    Raises:
        Rejected: 422; parts that the signature did not cover would decide about an event-only catalog, whatever
            authentication the sender uses now.
    """
    path = event.path.removesuffix(_UNSIGNED)
    if path != event.path and (catalogs := trusted_catalogs(sender, event_only)):
        raise Rejected(
            "path",
            status=422,
            expected=f"a request that its signature covers whole, because the catalogs {catalogs} are event-only",
            found="a path or headers that the signature does not cover",
            remedy="let the sender send the event again with a token",
        )
    kind = [] if event.content_type is None else [(b"content-type", event.content_type.encode("latin-1"))]
    return EventRequest(path, kind, event.body, sender)


_NOTHING: Final = PutResult(0, 0)

_log = structlog.stdlib.get_logger(__name__)


class IngestResult(msgspec.Struct, frozen=True):
    """The result of an ingested request.

    Attributes:
        stored: result of the inbox.
        ignored: number of decoded events that are not relevant.
    """

    stored: PutResult
    ignored: int


class IngestService:
    """The step from a request of an identified sender to durable notifications, or to a durable undecodable request.

    Args:
        inbox: inbox for the notifications.
        event_filter: filter for relevant events.
        metrics: counters of ingested events. The caller counts rejected ones.
        recent: the last requests. The caller records refused ones.

    Attributes:
        recent: see Args.
    """

    def __init__(
        self,
        inbox: InboxWriter,
        *,
        event_filter: EventFilter,
        metrics: EventMetrics,
        recent: RecentRequests | None = None,
    ) -> None:
        self._inbox = inbox
        self.recent = recent or RecentRequests()
        self._filter, self._event_only = event_filter, frozenset(event_filter.event_only)
        self._metrics = metrics
        self._throttle = LogThrottle()

    async def ingest(
        self,
        request: EventRequest,
        message: str | None = None,
        *,
        is_signed: bool = False,
        client: str | None = None,
    ) -> IngestResult:
        """Store all events of a request durably.

        Args:
            request: the request.
            message: id of the message, for events without an id of their own.
            is_signed: the sender was identified by a signature. Parts that the signature does not cover are not
                trusted.
            client: address of the client; None for pulled events.

        Raises:
            Rejected: the request is undecodable; it is stored as a dead letter.
            Transient: scope inbox: nothing was stored.
            FatalError: the inbox can't be trusted any more.
        """
        try:
            request = signed_parts(request, self._event_only) if is_signed else request
            decoded = self._filter.decode(request)
        except Rejected as refusal:
            log_rejected(refusal, request.sender)
            # A sender does not repeat a rejected request. So it is stored first; if that fails, the answer is 503.
            await self._inbox.put([to_undecodable(request, refusal, is_signed=is_signed)])
            raise
        notifications: Sequence[Notification] = decoded.notifications
        if message is not None:
            notifications = with_message_id(notifications, message)
        relevant = self._filter.relevant(notifications)
        stored = await self._inbox.put(relevant) if relevant else _NOTHING
        ignored = decoded.ignored + len(decoded.notifications) - len(relevant)
        self._metrics.count_ingested(decoded.event_format, stored, ignored, decoded.unmapped_events)
        if decoded.unmapped_events:
            self._log_unmapped(decoded, request.sender)
        result = IngestResult(stored, ignored + decoded.unmapped_events)
        self.recent.record_accepted(
            request.sender.name, client, decoded.event_format, notifications, stored, result.ignored
        )
        return result

    async def schedule_recheck(self, path: str, sender: Sender, remedy: str) -> None:
        """Schedule a check of everything that an unread request may concern.

        Event-only catalogs cannot be queried: for these the loss is logged.

        Args:
            path: path of the request.
            sender: its sender.
            remedy: how to send the lost events of an event-only catalog again.

        Raises:
            Transient: scope inbox: no check is scheduled.
            FatalError: the inbox can't be trusted any more.
        """
        notifications = self._filter.relevant(notifications_for_unread(path, sender))
        if lost := sorted({notification.subject.catalog for notification in notifications} & self._event_only):
            _log.error("events lost", sender=sender.name, catalogs=lost, remedy=remedy)
        if checks := [
            notification for notification in notifications if notification.subject.catalog not in self._event_only
        ]:
            await self._inbox.put(checks)

    def _log_unmapped(self, decoded: DecodedRequest, sender: Sender) -> None:
        if (suppressed := self._throttle.allow(("unmapped", sender.name))) is not None:
            found = decoded.unmapped_catalogs
            _log.info(
                "event of an unmapped catalog",
                sender=sender.name,
                found=found,
                remedy=f'set senders.{sender.name}.catalogs = {{ "{found[0]}" = "…" }} if it is a configured catalog',
                suppressed=suppressed,
            )


def log_rejected(refusal: Rejected, sender: Sender) -> None:
    """Log that a request was rejected because of its content."""
    _log.info("events rejected", sender=sender.name, status=refusal.status, error=str(refusal))


DRAINING: Final = "draining"


class Readiness:
    """The reasons why the process is not ready for traffic. Without a reason it is ready.

    Args:
        waiting_for: reasons at the start.
    """

    def __init__(self, *waiting_for: str) -> None:
        self._reasons = dict.fromkeys(waiting_for)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons, oldest first."""
        return tuple(self._reasons)

    @property
    def is_draining(self) -> bool:
        """Return whether the process is shutting down and accepts nothing new."""
        return DRAINING in self._reasons

    def add_reason(self, reason: str) -> None:
        self._reasons[reason] = None

    def clear_reason(self, reason: str) -> None:
        """Remove a reason. Draining cannot be undone."""
        if reason != DRAINING:
            self._reasons.pop(reason, None)

    def drain(self) -> None:
        """Accept nothing new from now on."""
        self.add_reason(DRAINING)


EVENTS_PATH: Final = "/v1/events"
"""Path for all event formats except Polaris' notifications, which have paths of their own."""

_SPAN_NAMES: Final = {True: f"POST {EVENTS_PATH}", False: "POST notifications of Polaris"}
_NO_PAGES: Final = (
    "a web page (Origin header) may not send events without a token; "
    'configure [senders.NAME] secrets = { main = "…" } and send that token'
)
_NO_CREDENTIALS: Final = "a valid bearer token, or a valid signature with a current timestamp, is needed"
_NO_SIGNER: Final = (
    "no single sender's secret made this signature: the secret is another one, or the body was changed after it was "
    "signed"
)
_NOT_STORED: Final = "the inbox does not store events at present; send the request again"
_SHUTTING_DOWN: Final = "the service is shutting down"
_SEND_FEWER: Final = "let the sender send these events again, fewer in one request, or raise listener.body_limit"
_SEND_PLAIN: Final = "let the sender send these events again, uncompressed"
_COMPRESSED: Final = Rejected(
    "", status=415, expected="a body that is not compressed", found="a Content-Encoding or Transfer-Encoding"
)
_PLAIN: Final = (b"accept-encoding", b"identity")


def handles(scope: MutableMapping[str, Any]) -> bool:
    """Return whether the path of a request (ASGI 3, scope `http`) belongs to `EventsEndpoint`."""
    return scope["path"] == EVENTS_PATH or polaris.parse_notification_path(_raw_path(scope)) is not None


class RequestHead(msgspec.Struct):
    """A request for the events endpoint, without its body.

    Attributes:
        method: the method.
        path: the path, percent-encoded as received, without a query.
        headers: all headers.
        client: the client's address; None if unknown.
        authorization: value of the `Authorization` header; None without one, empty for several.
        length: `Content-Length` in bytes; None without a valid one.
        encoding: `Content-Encoding` in lower case; `identity` without one.
        is_from_a_page: the request has the header `Origin`.
        sender: name of the sender, once it is identified.
        refusal: why the request is refused, for operators, if that is more than the answer says; else "".
    """

    method: str
    path: str
    headers: Headers
    client: str | None
    authorization: bytes | None = None
    length: int | None = None
    encoding: bytes = b"identity"
    is_from_a_page: bool = False
    sender: str | None = None
    refusal: str = ""


def parse_length(value: bytes) -> int | None:
    """Return a `Content-Length`; None if it is no number.

    The parser of the protocol accepts any number of leading zeros, but Python converts no more than 4,300 digits.
    """
    return int(value.lstrip(b"0") or b"0") if value.isdigit() else None


def read_head(method: str, path: str, headers: Headers, client: Sequence[Any] | None) -> RequestHead:
    """Return a request without its body.

    Args:
        method: the method.
        path: the path, percent-encoded as received, without a query.
        headers: all headers.
        client: the client's address and port; None if unknown.
    """
    head = RequestHead(method, path, headers, client[0] if client else None)
    for name, value in headers:
        if name == b"authorization":
            # Several `Authorization` headers identify no sender (RFC 9110, section 5.3).
            head.authorization = value if head.authorization is None else b""
        elif name == b"content-length":
            head.length = parse_length(value)
        elif name == b"content-encoding" or (name == b"transfer-encoding" and value.strip().lower() != b"chunked"):
            head.encoding = value.strip().lower()
        elif name == b"origin":
            # Browsers send `Origin` with every POST (Fetch, section 3.2); other clients do not send it.
            head.is_from_a_page = True
    return head


class EventsEndpoint:
    """The ASGI application for events.

    The steps are: identify the sender, read the body, decode it, store the notifications, answer. The sender of a
    signed request is identified after its body is read.

    Args:
        inbox: inbox for the notifications.
        senders: the configured senders.
        readiness: state of the process; while it drains, no event is accepted.
        limits: limits for one body.
        event_filter: filter for relevant events.
        on_fatal: callback for an inbox that can't be trusted any more. It ends the process.
        metrics: counters of all answers.
        memory: memory for the bodies of unidentified senders. Senders with a token do not use it.
        recent: the last requests.
    """

    def __init__(  # noqa: PLR0913 - the parts of the endpoint
        self,
        inbox: InboxWriter,
        senders: Senders,
        readiness: Readiness,
        *,
        limits: BodyLimits,
        event_filter: EventFilter,
        on_fatal: Callable[[FatalError], None],
        metrics: EventMetrics,
        memory: BodyMemory | None = None,
        recent: RecentRequests | None = None,
    ) -> None:
        self._recent = recent or RecentRequests()
        self._service = IngestService(inbox, event_filter=event_filter, metrics=metrics, recent=self._recent)
        self._senders = senders
        self._readiness = readiness
        self._limits = limits
        self._on_fatal = on_fatal
        self._metrics = metrics
        self._memory = memory or BodyMemory()
        self._throttle = LogThrottle()
        self._refusals = RejectionLog("events", self._throttle)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: responses.Send) -> None:
        """Answer one request (ASGI 3, scope `http`)."""
        response_format = responses.NATIVE if scope["path"] == EVENTS_PATH else responses.ICEBERG
        head = read_head(scope["method"], _raw_path(scope), scope["headers"], scope.get("client"))
        answer = await self.answer(response_format, head, receive)
        if answer is not None:
            await responses.send_response(send, answer)

    async def answer(
        self, response_format: ResponseFormat, head: RequestHead, receive: Receive, arrived: bytes | None = None
    ) -> EventsResponse | None:
        """Return the response to a request, whatever happens, and count it; None if the client disconnected.

        Args:
            response_format: format of the responses on this path.
            head: the request without its body.
            receive: ASGI's `receive`.
            arrived: the whole body if the server has it, so that `receive` is not needed; else None.
        """
        with tracing.serve(_SPAN_NAMES[response_format is responses.NATIVE], head.headers) as step:
            answer = await self._answer_whatever_happens(response_format, head, receive, arrived)
            if answer is not None:
                tracing.answered(step, answer.status, {"http.request.method": head.method, "sfn.sender": head.sender})
            return answer

    async def _answer_whatever_happens(
        self, response_format: ResponseFormat, head: RequestHead, receive: Receive, arrived: bytes | None
    ) -> EventsResponse | None:
        try:
            answer = await self._answer(response_format, head, receive, arrived)
        except Rejected as refusal:
            if refusal.where not in {"", "#"}:
                head.refusal = str(refusal)
            answer = response_format.rejected(refusal)
        except Transient as trouble:
            self._log_not_stored(trouble)
            answer = _unavailable(response_format, _NOT_STORED, trouble.retry_after)
        except BodyMemoryExhausted:
            answer = _unavailable(response_format, EXHAUSTED_MESSAGE, RETRY_AFTER, [responses.CLOSE_HEADER])
        except FatalError as broken:
            self._on_fatal(broken)
            answer = _unavailable(response_format, "the inbox failed, the service is restarting", None)
        except asyncio.CancelledError:
            # The process ends, because of an error or because its drain is over. The sender has to retry.
            answer = _unavailable(response_format, _SHUTTING_DOWN, None, [responses.CLOSE_HEADER])
        except Exception:  # noqa: BLE001 - the edge of the process: logged with its traceback, answered as 500
            _log.exception("request failed")
            answer = response_format.error(500, responses.INTERNAL_ERROR)
        if answer is not None and answer.status >= HTTPStatus.BAD_REQUEST:
            self._metrics.count_rejected(
                answer.status, None if response_format is responses.NATIVE else POLARIS_NOTIFICATIONS
            )
            reason = head.refusal or responses.detail_of(answer)
            self._recent.record_refused(answer.status, reason, head.sender, head.client)
        return answer

    async def _answer(
        self, response_format: ResponseFormat, head: RequestHead, receive: Receive, arrived: bytes | None
    ) -> EventsResponse | None:
        if head.method != "POST":
            return self._answer_other_method(response_format, head)
        if self._readiness.is_draining:
            return _unavailable(response_format, _SHUTTING_DOWN, None, [responses.CLOSE_HEADER])
        sender = self._senders.identify(head.authorization, head.headers)
        if sender is None:
            why = self._senders.explain_unidentified(head.authorization, head.headers)
            return self._unauthorized(response_format, head, why)
        if not isinstance(sender, Sender):
            return await self._answer_signed(response_format, head, receive, arrived, sender)
        head.sender = sender.name
        if (is_open := self._senders.is_open(sender)) and head.is_from_a_page:
            return self._reject(response_format, head, 403, _NO_PAGES)
        if (wait := self._senders.seconds_to_wait(sender)) is not None:
            return self._too_many(response_format, sender, wait)
        if head.encoding != b"identity":
            return await self._reject_compressed(response_format, head.path, sender)
        if is_open:
            with self._memory.reserve() as reservation:
                return await self._read_and_ingest(response_format, head, receive, arrived, sender, reservation)
        return await self._read_and_ingest(response_format, head, receive, arrived, sender, None)

    async def _read_and_ingest(
        self,
        response_format: ResponseFormat,
        head: RequestHead,
        receive: Receive,
        arrived: bytes | None,
        sender: Sender,
        reservation: BodyReservation | None,
    ) -> EventsResponse | None:
        try:
            content = await read_body(receive, head.length, self._limits, reservation, arrived)
        except Rejected as refusal:
            log_rejected(refusal, sender)
            if refusal.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                await self._service.schedule_recheck(head.path, sender, _SEND_FEWER)
            raise
        if content is None:
            return None
        request = EventRequest(head.path, head.headers, content, sender)
        result = await self._service.ingest(request, client=head.client)
        return response_format.accepted(result.stored, result.ignored)

    async def _answer_signed(
        self,
        response_format: ResponseFormat,
        head: RequestHead,
        receive: Receive,
        arrived: bytes | None,
        signers: Sequence[PossibleSigner],
    ) -> EventsResponse | None:
        """Answer a signed request.

        The sender is known only after the body is read. If the body is not read, no check can be scheduled for it.
        """
        if head.encoding != b"identity":
            return self._reject(
                response_format, head, _COMPRESSED.status, responses.problem_detail(_COMPRESSED), _PLAIN
            )
        try:
            with self._memory.reserve() as reservation:
                content = await read_body(receive, head.length, self._limits, reservation, arrived)
                verified = None if content is None else await self._senders.verify_signer(signers, content)
        except Rejected as refusal:
            self._refusals.log_rejected(refusal.status, responses.problem_detail(refusal), head.client)
            raise
        if content is None:
            return None
        if verified is None:
            return self._unauthorized(response_format, head, _NO_SIGNER)
        head.sender = verified.sender.name
        if (wait := self._senders.seconds_to_wait(verified.sender)) is not None:
            return self._too_many(response_format, verified.sender, wait)
        request = EventRequest(head.path, head.headers, content, verified.sender)
        result = await self._service.ingest(request, verified.message_id, is_signed=True, client=head.client)
        return response_format.accepted(result.stored, result.ignored)

    async def _reject_compressed(self, response_format: ResponseFormat, path: str, sender: Sender) -> EventsResponse:
        """Reject a compressed body unread: a small one may decompress to more than fits into memory."""
        log_rejected(_COMPRESSED, sender)
        await self._service.schedule_recheck(path, sender, _SEND_PLAIN)
        return response_format.error(_COMPRESSED.status, responses.problem_detail(_COMPRESSED), [_PLAIN])

    def _answer_other_method(self, response_format: ResponseFormat, head: RequestHead) -> EventsResponse:
        has_handshake = response_format is responses.NATIVE and self._senders.are_configured
        if has_handshake and head.method == "OPTIONS":
            return signature.answer_handshake(response_format, head.headers, self._senders.least_rate)
        allowed = signature.ALLOW_HEADER if has_handshake else (b"allow", b"POST")
        return self._reject(response_format, head, 405, "events are sent with POST", allowed)

    def _unauthorized(self, response_format: ResponseFormat, head: RequestHead, why: str) -> EventsResponse:
        """Return the same answer for every failure, so that an attacker learns nothing about the credentials.

        Args:
            response_format: format of the response.
            head: the request without its body.
            why: the reason, for operators only.
        """
        head.refusal = why
        self._refusals.log_rejected(401, why, head.client)
        return response_format.error(401, _NO_CREDENTIALS, [(b"www-authenticate", b"Bearer")])

    def _too_many(self, response_format: ResponseFormat, sender: Sender, wait: float) -> EventsResponse:
        if (suppressed := self._throttle.allow(("too many", sender.name))) is not None:
            _log.warning("events rejected", sender=sender.name, status=429, suppressed=suppressed)
        return response_format.error(429, self._senders.describe_rate(sender), [_retry_after(wait)])

    def _reject(
        self, response_format: ResponseFormat, head: RequestHead, status: int, why: str, *headers: tuple[bytes, bytes]
    ) -> EventsResponse:
        """Reject a request of an unidentified sender."""
        self._refusals.log_rejected(status, why, head.client)
        return response_format.error(status, why, headers)

    def _log_not_stored(self, trouble: Transient) -> None:
        if (suppressed := self._throttle.allow("not stored")) is not None:
            _log.warning("events not stored", error=str(trouble), suppressed=suppressed)


def _raw_path(scope: MutableMapping[str, Any]) -> str:
    raw: bytes = scope["raw_path"]
    return raw.decode("ascii")


def _unavailable(
    response_format: ResponseFormat, detail: str, retry_after: float | None, headers: responses.ResponseHeaders = ()
) -> EventsResponse:
    return response_format.error(503, detail, [*headers, _retry_after(retry_after)])


def _retry_after(seconds: float | None) -> tuple[bytes, bytes]:
    return b"retry-after", b"%d" % responses.retry_after_seconds(seconds)
