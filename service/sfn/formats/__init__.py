"""What senders say, turned into hints: one file a dialect, one line in `EVENT_FORMATS`.

A dialect is a pair of pure functions over one event. It imports neither another dialect nor this module, but what
belongs to none: `event`, `fields`, `outcome` and `envelope`. All events of a request are decoded, or none is.

Polaris' notifications stand beside the table: their path says what they are, one a request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import msgspec

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName
from sfn.errors import Rejected
from sfn.formats import cloudevents, glue, iceberg, lakekeeper, native, nessie, polaris
from sfn.formats.cloudevents import EnvelopeMode
from sfn.formats.event import (
    DecodedEvent,
    Event,
    EventRequest,
    Sender,
    UnmappedCatalog,
    field_error,
    is_too_deep,
    json_kind,
)

# ── splitting: A request's body

MAX_STORED_EVENT: Final = 4_096
"""Bytes of an event that are kept, for whoever asks what was told of a table last."""
MAX_EVENTS: Final = 1_000
"""Most events of one request."""

_HEADERS: Final = "headers"
_T = TypeVar("_T")
_ONE: Final = msgspec.json.Decoder()
_MANY: Final = msgspec.json.Decoder(list[msgspec.Raw])


class _EventPage(msgspec.Struct):
    """What an Iceberg catalog answers that is asked for events."""

    events: list[msgspec.Raw]


_PAGE: Final = msgspec.json.Decoder(_EventPage)


def split_events(request: EventRequest, mode: EnvelopeMode) -> Iterator[Event]:
    """The events of a request.

    Args:
        request: what arrived.
        mode: how its headers say that events come.

    Raises:
        Rejected: 400 not JSON (RFC 8259) or nested too deeply; 415 no object, or no array of objects; 400 or 422 no
            CloudEvent where one must be; 422 too many events.
    """
    for index, event in enumerate(_split(request, mode)):
        if index == MAX_EVENTS:
            raise _too_many("more")
        yield event


def parse_body(body: bytes) -> object:
    """What a body that is one document holds.

    Raises:
        Rejected: 400 not JSON, or nested too deeply.
    """
    return _read(_ONE, body, "#")


def unknown_format_error(sender: Sender, at: str) -> Rejected:
    """The refusal of what is of no known format, or not of the one that the sender is pinned to."""
    if sender.event_format is None:
        expected = "an event in a known format"
        remedy = 'our own format is an object with "namespace" and "name"'
    else:
        expected = f"an event in the format {sender.event_format}"
        remedy = f"senders.{sender.name}.dialect says that it sends no others"
    return Rejected(at, status=415, expected=expected, found="something else", remedy=remedy)


def _split(request: EventRequest, mode: EnvelopeMode) -> Iterator[Event]:
    body = request.body
    if mode is EnvelopeMode.BINARY:
        content = cloudevents.read_binary(request.headers, body, _HEADERS)
        yield Event(request, content, body[:MAX_STORED_EVENT], _HEADERS, "#")
    elif body.lstrip(b" \t\r\n").startswith(b"[") and mode is not EnvelopeMode.STRUCTURED:
        parts = _read(_MANY, body, "#")
        if len(parts) > MAX_EVENTS:
            raise _too_many(str(len(parts)))
        for index, part in enumerate(parts):
            yield from _events_of_document(request, bytes(part), f"#/{index}", mode)
    elif mode is EnvelopeMode.BATCH:
        _read(_ONE, body, "#")
        raise Rejected("#", status=422, expected="an array of CloudEvents", found="something else")
    else:
        yield from _events_of_document(request, body, "#", mode)


def _too_many(found: str) -> Rejected:
    return Rejected("#", status=422, expected=f"at most {MAX_EVENTS} events", found=found)


def _events_of_document(request: EventRequest, body: bytes, at: str, mode: EnvelopeMode) -> Iterator[Event]:
    content = _read(_ONE, body, at)
    is_cloud_event = mode in {EnvelopeMode.STRUCTURED, EnvelopeMode.BATCH}
    if not isinstance(content, dict):
        if is_cloud_event:
            raise Rejected(at, status=422, expected="a CloudEvent, an object", found=json_kind(content))
        raise unknown_format_error(request.sender, at)
    if (
        is_cloud_event
        or cloudevents.has_required_attributes(content)
        or (mode is EnvelopeMode.MARKED and "event_type" not in content)
    ):
        yield Event(request, cloudevents.read_structured(content, at), body[:MAX_STORED_EVENT], at, f"{at}/data")
    elif "events" in content and "continuation-token" in content:
        yield from _events_of_page(request, body, at)
    else:
        yield Event(request, content, body[:MAX_STORED_EVENT], at)


def _events_of_page(request: EventRequest, body: bytes, at: str) -> Iterator[Event]:
    try:
        page = _PAGE.decode(body)
    except msgspec.DecodeError:
        raise field_error(at, "events", "an array", "something else") from None
    for index, part in enumerate(page.events):
        place = f"{at}/events/{index}"
        content = _read(_ONE, bytes(part), place)
        if not isinstance(content, dict):
            raise unknown_format_error(request.sender, place)
        yield Event(request, content, bytes(part)[:MAX_STORED_EVENT], place)


def _read(decoder: msgspec.json.Decoder[_T], body: bytes, at: str) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(at, status=400, expected="JSON in UTF-8", found=str(error)) from error
    except RecursionError as error:
        raise Rejected(at, status=400, expected="JSON", found="too many levels of nesting") from error


# ── dialects: What senders say

MAX_NOTIFICATIONS: Final = 2 * MAX_EVENTS
"""Most hints of one request: as many as there are if each event is a rename."""

_MAX_UNMAPPED_NAMES: Final = 8
"""Most names of unmapped catalogs that are told of a request."""
_FLAT_DEPTH: Final = 8
"""Levels of a document that has lists and objects of texts in it, and room for what a later version adds."""
_SCHEMA_DEPTH: Final = 100
"""Levels of one that carries metadata: each struct in a schema is three, so that some thirty fit into one another."""


@dataclass(frozen=True, slots=True)
class EventFormat:
    """One sender's event format.

    Attributes:
        name: for logs and metrics, and what a sender is pinned to.
        matches: whether an event is of this format, whether or not its fields are right.
        decode: what a recognised event says, nothing where it is of no concern; raises `Rejected` with 422.
        max_depth: most levels of arrays and objects in each other, of which the event itself is the first.
    """

    name: str
    matches: Callable[[Event], bool]
    decode: Callable[[Event], DecodedEvent]
    max_depth: int


NATIVE: Final = "own"
POLARIS_NOTIFICATIONS: Final = "polaris"
"""The dialect of notifications, which have paths of their own: elsewhere they are recognised to be refused."""
EVENT_FORMATS: Final[tuple[EventFormat, ...]] = (
    EventFormat(POLARIS_NOTIFICATIONS, polaris.is_polaris_notification, polaris.reject_misdirected, _SCHEMA_DEPTH),
    EventFormat("lakekeeper", lakekeeper.is_lakekeeper_event, lakekeeper.decode_lakekeeper_event, _SCHEMA_DEPTH),
    EventFormat("polaris-webhook", polaris.is_polaris_webhook, polaris.decode_polaris_webhook, _FLAT_DEPTH),
    EventFormat("polaris-events", polaris.is_polaris_event, polaris.decode_polaris_event, _FLAT_DEPTH),
    # What nobody reads may be as deep as what Lakekeeper's carry.
    EventFormat(
        "cloudevents",
        cloudevents.is_cloud_event,
        cloudevents.decoder_of_data(native.is_native_event, native.decode_native_event),
        _SCHEMA_DEPTH,
    ),
    EventFormat("glue", glue.is_glue_event, glue.decode_glue_event, _FLAT_DEPTH),
    EventFormat("iceberg", iceberg.is_iceberg_event, iceberg.decode_iceberg_event, _SCHEMA_DEPTH),
    # Other content than tables, and what operators add to events, is of shapes that nobody knows.
    EventFormat("nessie", nessie.is_nessie_event, nessie.decode_nessie_event, 2 * _FLAT_DEPTH),
    # A scan's filter is as deep as it has terms.
    EventFormat("reports", iceberg.is_metrics_report, iceberg.decode_metrics_report, _SCHEMA_DEPTH),
    EventFormat(NATIVE, native.is_native_event, native.decode_native_event, _FLAT_DEPTH),
)
"""In the order in which they are asked: the most telling first, our own last."""
FORMAT_NAMES: Final = tuple(dialect.name for dialect in EVENT_FORMATS)
"""Of all dialects."""

_BY_NAME: Final = {dialect.name: (dialect,) for dialect in EVENT_FORMATS}


class DecodedRequest(NamedTuple):
    """What a request says.

    Attributes:
        notifications: in the order of the events.
        ignored: events that are understood and of no concern.
        event_format: the format's name; of several that of the last event, None without any.
        unmapped_events: events of catalogs of which nobody said which of ours they are.
        unmapped_catalogs: what the events call these, some of them.
    """

    notifications: tuple[Notification, ...]
    ignored: int
    event_format: str | None = None
    unmapped_events: int = 0
    unmapped_catalogs: tuple[str, ...] = ()


def decode(request: EventRequest, event_only: Collection[str] = ()) -> DecodedRequest:
    """The hints of a request: of a notification where the path is one's, else of one event or an array of events.

    Args:
        request: what arrived.
        event_only: our names of catalogs that nobody can ask: what events leave out of them nobody will ever know.

    Raises:
        Rejected: 400 not JSON (RFC 8259) or nested too deeply, 415 no known format or not the one that the sender is
            pinned to, 422 a known format with a wrong field, too many events, or one that says too little of a
            `event_only` catalog. Of a notification 400 for all of this but 415, and 404 for a catalog that the
            sender does not have. `where` points at the culprit.
    """
    address = polaris.parse_notification_path(request.path)
    return _decode_events(request, event_only) if address is None else _decode_polaris_notification(request, address)


def as_structured(request: EventRequest) -> EventRequest:
    """A request of which path, content type and body say all that it said, for whoever keeps no more of it.

    It is another one where a CloudEvent's attributes came as headers, unless these can't be read.
    """
    try:
        if (
            polaris.parse_notification_path(request.path) is not None
            or cloudevents.detect_mode(request.headers) is not EnvelopeMode.BINARY
        ):
            return request
        body = cloudevents.to_structured(request.headers, request.body, "headers")
    except Rejected:
        return request
    return request._replace(headers=[(b"content-type", cloudevents.STRUCTURED_MEDIA_TYPE)], body=body)


def notifications_for_unread(path: str, sender: Sender) -> tuple[Notification, ...]:
    """What makes up for a body that was too large to be read, which is none the less told of.

    A notification's path names the table; what events told of, a walk over the sender's catalogs finds.

    Args:
        path: of the request, percent-encoded.
        sender: who sent it.
    """
    address = polaris.parse_notification_path(path)
    if address is None:
        return tuple(
            Notification(CatalogName(catalog), sender.name) for catalog in dict.fromkeys(sender.catalogs.values())
        )
    try:
        return (Notification(polaris.table_of_path(address, sender.catalogs), sender.name),)
    except Rejected:
        return ()


def _decode_polaris_notification(request: EventRequest, address: polaris.PolarisNotificationPath) -> DecodedRequest:
    sender = request.sender
    if sender.event_format not in {None, POLARIS_NOTIFICATIONS}:
        raise unknown_format_error(sender, "#")
    table = polaris.table_of_path(address, sender.catalogs)
    content = parse_body(request.body)
    _check_depth(content, _SCHEMA_DEPTH, "#", status=400)
    notifications = polaris.decode_polaris_notification(table, sender.name, content, request.body[:MAX_STORED_EVENT])
    return DecodedRequest(notifications, int(not notifications), POLARIS_NOTIFICATIONS)


def _decode_events(request: EventRequest, event_only: Collection[str]) -> DecodedRequest:
    sender, body = request.sender, request.body
    mode = cloudevents.detect_mode(request.headers)
    is_native = mode is EnvelopeMode.PLAIN and (sender.event_format is None or sender.event_format == NATIVE)
    if is_native and len(sender.catalogs) == 1 and len(body) <= MAX_STORED_EVENT:
        notification = native.decode_plain_event(body, sender.name, *sender.catalogs.values())
        if notification is not None:
            _check_event_only((notification,), event_only, "#")
            return DecodedRequest((notification,), 0, NATIVE)
    return _decode_each(request, mode, event_only)


def _decode_each(request: EventRequest, mode: EnvelopeMode, event_only: Collection[str]) -> DecodedRequest:
    formats = EVENT_FORMATS if request.sender.event_format is None else _BY_NAME[request.sender.event_format]
    notifications: list[Notification] = []
    ignored, unmapped, name = 0, 0, None
    unmapped_catalogs: dict[str, None] = {}
    for event in split_events(request, mode):
        event_format = next((one for one in formats if one.matches(event)), None)
        if event_format is None:
            raise unknown_format_error(request.sender, event.at)
        name = event_format.name
        _check_depth(event.content, event_format.max_depth, event.at)
        decoded = event_format.decode(event)
        if isinstance(decoded, UnmappedCatalog):
            unmapped += 1
            if len(unmapped_catalogs) < _MAX_UNMAPPED_NAMES:
                unmapped_catalogs[decoded.name] = None
            continue
        _check_event_only(decoded, event_only, event.at)
        notifications.extend(decoded)
        ignored += not decoded
        if len(notifications) > MAX_NOTIFICATIONS:
            raise Rejected("#", status=422, expected=f"events of at most {MAX_NOTIFICATIONS} changes", found="more")
    return DecodedRequest(tuple(notifications), ignored, name, unmapped, tuple(unmapped_catalogs))


def _check_depth(content: object, most: int, at: str, *, status: int = 422) -> None:
    if is_too_deep(content, most):
        raise Rejected(at, status=status, expected=f"at most {most} levels of nesting", found="more")


def _check_event_only(notifications: Iterable[Notification], event_only: Collection[str], at: str) -> None:
    """Raise `Rejected` where a catalog would have to be asked that nobody can ask."""
    for notification in notifications:
        is_news = (
            notification.min_metadata_location is not None
            or notification.drop
            or notification.renamed_to is not None
            or notification.renamed_from is not None
        )
        if notification.subject.catalog in event_only and not is_news:
            expected = f"metadata_location, as nobody can ask {notification.subject.catalog} for it"
            raise Rejected(at, status=422, expected=expected, found=f"none for {notification.subject}")
