"""Decode a request into notifications: split it into events, and decode each with its format of `EVENT_FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from sfn.domain.events import Notification, parse_traceparent
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

MAX_STORED_EVENT: Final = 4_096
"""Most bytes of an event that are stored, to show the last event of a table."""
MAX_EVENTS: Final = 1_000
"""Most events of one request."""

_HEADERS: Final = "headers"
_T = TypeVar("_T")
_ONE: Final = msgspec.json.Decoder()
_MANY: Final = msgspec.json.Decoder(list[msgspec.Raw])


class _EventPage(msgspec.Struct):
    """A page of events, as an Iceberg catalog answers it."""

    events: list[msgspec.Raw]


_PAGE: Final = msgspec.json.Decoder(_EventPage)


def split_events(request: EventRequest, mode: EnvelopeMode) -> Iterator[Event]:
    """Yield the events of a request.

    Args:
        request: the request.
        mode: the form of the events, according to the headers.

    Raises:
        Rejected: 400, not JSON (RFC 8259) or nested too deeply; 415, no object and no array of objects; 400 or 422, no
            CloudEvent where one is required; 422, too many events.
    """
    for index, event in enumerate(_split(request, mode)):
        if index == MAX_EVENTS:
            raise _too_many("more")
        yield event


def parse_body(body: bytes) -> object:
    """Return the content of a body that is one document.

    Raises:
        Rejected: 400, not JSON, or nested too deeply.
    """
    return _read(_ONE, body, "#")


def unknown_format_error(sender: Sender, at: str) -> Rejected:
    """Return the rejection of an event in no known format, or not in the sender's configured one."""
    if sender.event_format is None:
        expected = "an event in a known format"
        remedy = "the listener's own format is an object with `namespace` and `name`"
    else:
        expected = f"an event in the format {sender.event_format}"
        remedy = f"senders.{sender.name}.dialect allows no other format"
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
        found = (
            "bytes that are not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).partition(" - at ")[0]
        )
        raise Rejected(at, status=400, expected="JSON in UTF-8", found=found if body else "an empty body") from error
    except RecursionError as error:
        raise Rejected(at, status=400, expected="JSON", found="too many levels of nesting") from error


MAX_NOTIFICATIONS: Final = 2 * MAX_EVENTS
"""Most notifications of one request, enough if each event is a rename."""

_MAX_UNMAPPED_NAMES: Final = 8
"""Most names of unmapped catalogs that are reported for a request."""
_FLAT_DEPTH: Final = 8
"""Nesting levels of an event with lists and objects of texts, with room for later versions."""
_SCHEMA_DEPTH: Final = 100
"""Nesting levels of an event with table metadata: a struct in a schema takes three, so some thirty structs can nest."""


@dataclass(frozen=True, slots=True)
class EventFormat:
    """The event format of one kind of sender.

    Attributes:
        name: the name in logs, metrics and the setting `dialect`.
        matches: the recogniser; it accepts events of this format even if their fields are wrong.
        decode: the decoder of a recognised event; raises `Rejected` with 422.
        max_depth: most nesting levels of arrays and objects; the event itself is the first.
    """

    name: str
    matches: Callable[[Event], bool]
    decode: Callable[[Event], DecodedEvent]
    max_depth: int


NATIVE: Final = "own"
POLARIS_NOTIFICATIONS: Final = "polaris"
"""The format of Polaris' notifications. They have their own paths and are rejected on any other path."""
EVENT_FORMATS: Final[tuple[EventFormat, ...]] = (
    EventFormat(POLARIS_NOTIFICATIONS, polaris.is_polaris_notification, polaris.reject_misdirected, _SCHEMA_DEPTH),
    EventFormat("lakekeeper", lakekeeper.is_lakekeeper_event, lakekeeper.decode_lakekeeper_event, _SCHEMA_DEPTH),
    EventFormat("polaris-webhook", polaris.is_polaris_webhook, polaris.decode_polaris_webhook, _FLAT_DEPTH),
    EventFormat("polaris-events", polaris.is_polaris_event, polaris.decode_polaris_event, _FLAT_DEPTH),
    # An ignored CloudEvent may be nested as deeply as Lakekeeper's.
    EventFormat(
        "cloudevents",
        cloudevents.is_cloud_event,
        cloudevents.decoder_of_data(native.is_native_event, native.decode_native_event),
        _SCHEMA_DEPTH,
    ),
    EventFormat("glue", glue.is_glue_event, glue.decode_glue_event, _FLAT_DEPTH),
    EventFormat("iceberg", iceberg.is_iceberg_event, iceberg.decode_iceberg_event, _SCHEMA_DEPTH),
    # Content other than tables, and fields that operators add, have unknown shapes.
    EventFormat("nessie", nessie.is_nessie_event, nessie.decode_nessie_event, 2 * _FLAT_DEPTH),
    # A scan filter nests one level per term.
    EventFormat("reports", iceberg.is_metrics_report, iceberg.decode_metrics_report, _SCHEMA_DEPTH),
    EventFormat(NATIVE, native.is_native_event, native.decode_native_event, _FLAT_DEPTH),
)
"""All formats, in the order in which they are tried: the most specific first, our own last."""
FORMAT_NAMES: Final = tuple(one.name for one in EVENT_FORMATS)

_BY_NAME: Final = {one.name: (one,) for one in EVENT_FORMATS}


class DecodedRequest(msgspec.Struct, frozen=True):
    """The decoded content of a request.

    Attributes:
        notifications: the notifications, in the order of the events.
        ignored: the number of events that were understood and ignored.
        event_format: the name of the last event's format; None without events.
        unmapped_events: the number of events about unmapped catalogs.
        unmapped_catalogs: the names of these catalogs in the events, at most `_MAX_UNMAPPED_NAMES`.
    """

    notifications: tuple[Notification, ...]
    ignored: int
    event_format: str | None = None
    unmapped_events: int = 0
    unmapped_catalogs: tuple[str, ...] = ()


def decode(request: EventRequest, event_only: Collection[str] = ()) -> DecodedRequest:
    """Return the notifications of a request: of a Polaris notification by its path, else of one event or several.

    Args:
        request: the request.
        event_only: our names of event-only catalogs. Their events must be complete, because no catalog can be asked.

    Raises:
        Rejected: 400, not JSON (RFC 8259) or nested too deeply; 415, no known format or not the sender's configured
            one; 422, a wrong field, too many events, or an event of an event-only catalog without a metadata location.
            For a Polaris notification, 400 replaces 422, and 404 means a catalog that the sender does not have. `where`
            points at the wrong value.
    """
    is_notification = request.path.endswith(polaris.NOTIFICATION_SUFFIX)
    address = polaris.parse_notification_path(request.path) if is_notification else None
    if address is not None:
        return _decode_polaris_notification(request, address)
    sender, body = request.sender, request.body
    mode = cloudevents.detect_mode(request.headers)
    is_native = mode is EnvelopeMode.PLAIN and (sender.event_format is None or sender.event_format == NATIVE)
    if is_native and len(sender.catalogs) == 1:
        (catalog,) = sender.catalogs.values()
        notifications = _decode_plain(body, sender.name, catalog) if catalog not in event_only else ()
        if notifications:
            return DecodedRequest(notifications, 0, NATIVE)
    return _decode_each(request, mode, event_only)


def _decode_plain(body: bytes, sender: str, catalog: str) -> tuple[Notification, ...]:
    """Return the notifications of a plain event, or of an array of plain events; none for anything else."""
    documents: Iterable[bytes] = (body,)
    if body.startswith(b"["):
        try:
            parts = _MANY.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ()
        if len(parts) > MAX_EVENTS:
            return ()
        documents = map(bytes, parts)
    notifications = []
    for document in documents:
        is_short = len(document) <= MAX_STORED_EVENT
        notification = native.decode_plain_event(document, sender, catalog) if is_short else None
        if notification is None:
            return ()
        notifications.append(notification)
    return tuple(notifications)


def as_structured(request: EventRequest) -> EventRequest:
    """Return a request that has all its information in path, content type and body, for storage.

    A CloudEvent in binary mode becomes structured, unless its headers are unreadable. Other requests are unchanged.
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
    headers = [(b"content-type", cloudevents.STRUCTURED_MEDIA_TYPE)]
    return msgspec.structs.replace(request, headers=headers, body=body)


def notifications_for_unread(path: str, sender: Sender) -> tuple[Notification, ...]:
    """Return the notifications that replace a body that was too large to be read.

    The path of a Polaris notification names the table. For other events, the sender's catalogs are swept.

    Args:
        path: the path of the request, percent-encoded.
        sender: the sender.
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


def _decode_each(request: EventRequest, mode: EnvelopeMode, event_only: Collection[str]) -> DecodedRequest:
    formats = EVENT_FORMATS if request.sender.event_format is None else _BY_NAME[request.sender.event_format]
    notifications: list[Notification] = []
    ignored, unmapped, name = 0, 0, None
    unmapped_catalogs: dict[str, None] = {}
    for event in split_events(request, mode):
        event_format = next((one for one in formats if one.matches(event)), None)
        if event_format is None:
            _reject_half_a_table(event)
            raise unknown_format_error(request.sender, event.at)
        name = event_format.name
        _check_depth(event.content, event_format.max_depth, event.at)
        decoded = event_format.decode(event)
        if isinstance(decoded, UnmappedCatalog):
            unmapped += 1
            if len(unmapped_catalogs) < _MAX_UNMAPPED_NAMES:
                unmapped_catalogs[decoded.name] = None
            continue
        # CloudEvents, extension "Distributed Tracing". Our own format may have it, too.
        if trace := parse_traceparent(event.content.get("traceparent")):
            decoded = tuple(msgspec.structs.replace(one, trace=trace) for one in decoded)
        _check_event_only(decoded, event_only, event.at)
        notifications.extend(decoded)
        ignored += not decoded
        if len(notifications) > MAX_NOTIFICATIONS:
            raise Rejected("#", status=422, expected=f"events of at most {MAX_NOTIFICATIONS} changes", found="more")
    return DecodedRequest(tuple(notifications), ignored, name, unmapped, tuple(unmapped_catalogs))


def _reject_half_a_table(event: Event) -> None:
    """Reject an event of the listener's own format with 422 that lacks one of the two keys by which it is recognised.

    A sender that is written for this format then learns which key is missing.
    """
    is_allowed = event.request.sender.event_format in {None, NATIVE}
    if is_allowed and native.names_half_a_table(event) and not any(one.matches(event) for one in EVENT_FORMATS):
        native.decode_native_event(event)


def _check_depth(content: object, most: int, at: str, *, status: int = 422) -> None:
    if is_too_deep(content, most):
        raise Rejected(at, status=status, expected=f"at most {most} levels of nesting", found="more")


def _check_event_only(notifications: Iterable[Notification], event_only: Collection[str], at: str) -> None:
    """Reject events of event-only catalogs that carry no metadata location."""
    for notification in notifications:
        is_news = (
            notification.min_metadata_location is not None
            or notification.drop
            or notification.renamed_to is not None
            or notification.renamed_from is not None
        )
        if notification.subject.catalog in event_only and not is_news:
            expected = f"metadata_location, because the catalog {notification.subject.catalog} cannot be queried"
            raise Rejected(at, status=422, expected=expected, found=f"none for {notification.subject}")
