"""What senders say, turned into hints: one file a dialect, one line in `EVENT_FORMATS`.

A dialect is a pair of pure functions over one event. It imports neither another dialect nor this module, but what
belongs to none: `event`, `fields`, `outcome` and `envelope`. All events of a request are decoded, or none is.

Polaris' notifications stand beside the table: their path says what they are, one a request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from sfn.dialects import (
    cloudevents,
    envelope,
    glue,
    iceberg,
    lakekeeper,
    nessie,
    own,
    polaris,
    polaris_events,
    polaris_webhook,
    reports,
    splitting,
)
from sfn.dialects.envelope import EnvelopeMode
from sfn.dialects.event import Event, EventRequest, Headers, Sender
from sfn.dialects.fields import is_too_deep
from sfn.dialects.outcome import DecodedEvent, UnmappedCatalog
from sfn.dialects.splitting import MAX_EVENTS, MAX_STORED_EVENT, unknown_format_error
from sfn.errors import Rejected
from sfn.words import CatalogName, Notification

__all__ = [
    "EVENT_FORMATS",
    "FORMAT_NAMES",
    "MAX_EVENTS",
    "MAX_NOTIFICATIONS",
    "MAX_STORED_EVENT",
    "NATIVE",
    "POLARIS_NOTIFICATIONS",
    "DecodedRequest",
    "Event",
    "EventFormat",
    "EventRequest",
    "Headers",
    "Sender",
    "as_structured",
    "decode",
    "notifications_for_unread",
]

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
    EventFormat(
        "polaris-webhook", polaris_webhook.is_polaris_webhook, polaris_webhook.decode_polaris_webhook, _FLAT_DEPTH
    ),
    EventFormat("polaris-events", polaris_events.is_polaris_event, polaris_events.decode_polaris_event, _FLAT_DEPTH),
    # What nobody reads may be as deep as what Lakekeeper's carry.
    EventFormat(
        "cloudevents",
        cloudevents.is_cloud_event,
        cloudevents.decoder_of_data(own.is_native_event, own.decode_native_event),
        _SCHEMA_DEPTH,
    ),
    EventFormat("glue", glue.is_glue_event, glue.decode_glue_event, _FLAT_DEPTH),
    EventFormat("iceberg", iceberg.is_iceberg_event, iceberg.decode_iceberg_event, _SCHEMA_DEPTH),
    # Other content than tables, and what operators add to events, is of shapes that nobody knows.
    EventFormat("nessie", nessie.is_nessie_event, nessie.decode_nessie_event, 2 * _FLAT_DEPTH),
    # A scan's filter is as deep as it has terms.
    EventFormat("reports", reports.is_metrics_report, reports.decode_metrics_report, _SCHEMA_DEPTH),
    EventFormat(NATIVE, own.is_native_event, own.decode_native_event, _FLAT_DEPTH),
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
            or envelope.detect_mode(request.headers) is not EnvelopeMode.BINARY
        ):
            return request
        body = envelope.to_structured(request.headers, request.body, "headers")
    except Rejected:
        return request
    return request._replace(headers=[(b"content-type", envelope.STRUCTURED_MEDIA_TYPE)], body=body)


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
    content = splitting.parse_body(request.body)
    _check_depth(content, _SCHEMA_DEPTH, "#", status=400)
    notifications = polaris.decode_polaris_notification(table, sender.name, content, request.body[:MAX_STORED_EVENT])
    return DecodedRequest(notifications, int(not notifications), POLARIS_NOTIFICATIONS)


def _decode_events(request: EventRequest, event_only: Collection[str]) -> DecodedRequest:
    sender, body = request.sender, request.body
    mode = envelope.detect_mode(request.headers)
    is_native = mode is EnvelopeMode.PLAIN and (sender.event_format is None or sender.event_format == NATIVE)
    if is_native and len(sender.catalogs) == 1 and len(body) <= MAX_STORED_EVENT:
        notification = own.decode_plain_event(body, sender.name, *sender.catalogs.values())
        if notification is not None:
            _check_event_only((notification,), event_only, "#")
            return DecodedRequest((notification,), 0, NATIVE)
    return _decode_each(request, mode, event_only)


def _decode_each(request: EventRequest, mode: EnvelopeMode, event_only: Collection[str]) -> DecodedRequest:
    formats = EVENT_FORMATS if request.sender.event_format is None else _BY_NAME[request.sender.event_format]
    notifications: list[Notification] = []
    ignored, unmapped, name = 0, 0, None
    unmapped_catalogs: dict[str, None] = {}
    for event in splitting.split_events(request, mode):
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
