"""CloudEvents of anybody: those that carry our own format are read, all others are of no concern.

{"specversion": "1.0", "id": …, "source": …, "type": …, "data": {"namespace": …, "name": …}}
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from sfn.domain.events import Notification
from sfn.errors import Rejected
from sfn.formats.event import Event, Headers, field_error, global_event_id, json_kind, require_text

# ── envelope: CloudEvents

REQUIRED_ATTRIBUTES: Final = ("specversion", "id", "source", "type")
POLARIS_EVENT_HEADER: Final = b"x-polaris-event"
"""Apache Polaris' webhook says with it that its body is an event."""

STRUCTURED_MEDIA_TYPE: Final = b"application/cloudevents+json"
"""The content type of what `gathered` makes."""

_VERSION: Final = "1.0"
_MEDIA_TYPE: Final = b"application/cloudevents"
_PREFIXES: Final = (b"ce-", b"ce_")
"""Of attributes that are headers; the second one is Kafka's, which what carries messages over may leave as it is."""
_BINARY: Final = frozenset(prefix + name.encode() for prefix in _PREFIXES for name in REQUIRED_ATTRIBUTES)
_OF_DATA: Final = frozenset({"data", "data_base64", "datacontenttype"})
_PLAIN_JSON: Final = (b"content-type", b"application/json")
_RELEVANT_HEADERS: Final = _BINARY | {_PLAIN_JSON[0], POLARIS_EVENT_HEADER}
_JSON: Final = re.compile(rb"\s*([\w.-]+/([\w.-]+\+)?json)?\s*(;.*)?", re.IGNORECASE | re.DOTALL)
"""A media type of JSON, or none."""
_QUOTED: Final = re.compile(rb'"(.*)"', re.DOTALL)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)


class EnvelopeMode(Enum):
    """How the headers say that events come."""

    PLAIN = auto()
    """They say nothing: the body tells."""
    MARKED = auto()
    """Polaris' webhook says that it is one."""
    STRUCTURED = auto()
    """The body is a CloudEvent."""
    BATCH = auto()
    """It is an array of them."""
    BINARY = auto()
    """It is a CloudEvent's `data`, the attributes are headers."""


def detect_mode(headers: Headers) -> EnvelopeMode:
    """How events come.

    Raises:
        Rejected: 415, as CloudEvents in another format than JSON.
    """
    # Of nearly every request: to look through its headers takes less than to note them all.
    for header in headers:
        if header[0] in _RELEVANT_HEADERS and header != _PLAIN_JSON:
            return _mode_of_headers(headers)
    return EnvelopeMode.PLAIN


def has_required_attributes(content: Mapping[str, object]) -> bool:
    """Whether an object of which no header tells is a CloudEvent."""
    return all(name in content for name in REQUIRED_ATTRIBUTES)


def read_structured(content: Mapping[str, object], at: str) -> dict[str, object]:
    """A CloudEvent of which the body has all.

    Args:
        content: the JSON object.
        at: its place.

    Raises:
        Rejected: 422, an attribute that each must have is missing or wrong, or `data_base64` is.
    """
    event = {name: value for name, value in content.items() if value is not None}
    encoded = event.pop("data_base64", None)
    _check(event, at)
    if encoded is not None:
        if "data" in event:
            raise field_error(at, "data_base64", "none beside data", "both")
        event["data"] = _decoded(encoded, event.get("datacontenttype"), at)
    return event


def read_binary(headers: Headers, body: bytes, at: str) -> dict[str, object]:
    """A CloudEvent of which the headers have the attributes.

    Args:
        headers: of the request.
        body: the `data`; none at all, or null, where there is none.
        at: how a refusal calls the headers.

    Raises:
        Rejected: 400, a header is there twice or is not UTF-8, or the body is not the JSON that it should be; 422 as
            `structured`.
    """
    event, media_type = _attributes(headers, at)
    _check(event, at)
    if (data := _read(body, media_type)) is not None:
        event["data"] = data
    return event


def to_structured(headers: Headers, body: bytes, at: str) -> bytes:
    """A binary event in structured mode, whether or not it is a right one: its JSON says all that both said.

    Args:
        headers: of the request.
        body: the `data`.
        at: how a refusal calls the headers.

    Raises:
        Rejected: 400, a header is there twice or is not UTF-8.
    """
    attributes, media_type = _attributes(headers, at)
    # A header may have any name, but what tells of the body is the body and its content type.
    event: dict[str, object] = {name: value for name, value in attributes.items() if name not in _OF_DATA}
    if media_type:
        event["datacontenttype"] = media_type.decode("latin-1")
    if _is_json(body):
        event["data"] = msgspec.Raw(body)
    elif body:
        event["data_base64"] = b2a_base64(body, newline=False).decode()
    return msgspec.json.encode(event)


def _attributes(headers: Headers, at: str) -> tuple[dict[str, object], bytes]:
    """The attributes in headers, and the media type of the body beside them."""
    attributes: dict[str, object] = {}
    media_type = b""
    for name, value in headers:
        if name == b"content-type":
            media_type = value
        elif name.startswith(_PREFIXES):
            attribute = name[3:].decode("latin-1")
            if attribute in attributes:
                raise field_error(at, attribute, "one such attribute", "two", status=400)
            attributes[attribute] = _value(value, at, attribute)
    return attributes, media_type


def _mode_of_headers(headers: Headers) -> EnvelopeMode:
    named = dict(headers)
    media_type = named.get(b"content-type", b"").lower()
    if media_type.startswith(_MEDIA_TYPE):
        return _mode_of_media_type(media_type.partition(b";")[0].strip())
    if not _BINARY.isdisjoint(named):
        return EnvelopeMode.BINARY
    return EnvelopeMode.MARKED if POLARIS_EVENT_HEADER in named else EnvelopeMode.PLAIN


def _mode_of_media_type(media_type: bytes) -> EnvelopeMode:
    match media_type.removeprefix(_MEDIA_TYPE):
        case b"" | b"+json":
            return EnvelopeMode.STRUCTURED
        case b"-batch" | b"-batch+json":
            return EnvelopeMode.BATCH
        case _:
            expected = "application/cloudevents+json or application/cloudevents-batch+json"
            raise Rejected("#", status=415, expected=expected, found="CloudEvents in another format")


def _check(event: Mapping[str, object], at: str) -> None:
    for name in REQUIRED_ATTRIBUTES:
        require_text(event.get(name), at, name)
    if event["specversion"] != _VERSION:
        raise field_error(at, "specversion", f"a CloudEvent of version {_VERSION}", "another version")


def _value(header: bytes, at: str, attribute: str) -> str:
    quoted = _QUOTED.fullmatch(header)
    plain = header if quoted is None else _ESCAPED.sub(rb"\1", quoted[1])
    try:
        return unquote_to_bytes(plain).decode()
    except UnicodeDecodeError:
        raise field_error(at, attribute, "percent-encoded UTF-8", "other bytes", status=400) from None


def _read(body: bytes, media_type: bytes) -> object:
    """The `data` in a body; None for what is no JSON and does not claim to be any."""
    if not body:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if _JSON.fullmatch(media_type) is None:
            return None
        found = "too many levels of nesting" if isinstance(error, RecursionError) else str(error)
        raise Rejected("#", status=400, expected="JSON in UTF-8", found=found) from error


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _decoded(encoded: object, media_type: object, at: str) -> object:
    """The `data` in base64; None for what is no JSON and does not claim to be any."""
    if not isinstance(encoded, str):
        raise field_error(at, "data_base64", "a string", json_kind(encoded))
    try:
        content = a2b_base64(encoded, strict_mode=True)
    except (Error, ValueError):
        raise field_error(at, "data_base64", "base64", "something else") from None
    try:
        return _read(content, media_type.encode("utf-8", "replace") if isinstance(media_type, str) else b"")
    except Rejected:
        raise field_error(at, "data_base64", "JSON in UTF-8", "something else") from None


# ── cloudevents: CloudEvents of anybody


def is_cloud_event(event: Event) -> bool:
    """Whether it is a CloudEvent."""
    return event.data_at is not None


def decoder_of_data(
    matches: Callable[[Event], bool], decode: Callable[[Event], tuple[Notification, ...]]
) -> Callable[[Event], tuple[Notification, ...]]:
    """What a CloudEvent says whose `data` is in a format.

    Args:
        matches: whether an event is of that format.
        decode: what it says then.
    """

    def hints(event: Event) -> tuple[Notification, ...]:
        """What is carried; the envelope's id is the event's. Raises `Rejected` as `told` does."""
        data, content = event.data, event.content
        if data is None:
            return ()
        event_id = global_event_id(str(content["source"]), str(content["id"]))
        carried = Event(event.request, {**data, "event_id": event_id}, event.body, str(event.data_at))
        return decode(carried) if matches(carried) else ()

    return hints
