"""CloudEvents in JSON, in any mode. Those with our own format as `data` are decoded, all others are ignored.

{"specversion": "1.0", "id": …, "source": …, "type": …, "data": {"namespace": …, "name": …}}
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, Literal
from urllib.parse import unquote_to_bytes

import msgspec

from sfn.domain.events import Notification
from sfn.errors import Rejected
from sfn.formats.event import Event, Headers, Text, convert_object, field_error, global_event_id, json_kind


class CloudEvent(msgspec.Struct, frozen=True):
    """A CloudEvent of any source. Its `data` is a `NativeEvent`, or data of a catalog that sends CloudEvents."""

    specversion: Literal["1.0"]
    id: Text
    source: Text
    type: Text


REQUIRED_ATTRIBUTES: Final = CloudEvent.__struct_fields__
POLARIS_EVENT_HEADER: Final = b"x-polaris-event"
"""The header by which Apache Polaris' webhook marks its body as an event."""

STRUCTURED_MEDIA_TYPE: Final = b"application/cloudevents+json"
"""The content type of the result of `to_structured`."""

_MEDIA_TYPE: Final = b"application/cloudevents"
_PREFIXES: Final = (b"ce-", b"ce_")
"""Prefixes of attributes in headers; `ce_` is Kafka's, and a bridge to HTTP may leave it unchanged."""
_BINARY: Final = frozenset(prefix + name.encode() for prefix in _PREFIXES for name in REQUIRED_ATTRIBUTES)
_OF_DATA: Final = frozenset({"data", "data_base64", "datacontenttype"})
_PLAIN_JSON: Final = (b"content-type", b"application/json")
_RELEVANT_HEADERS: Final = _BINARY | {_PLAIN_JSON[0], POLARIS_EVENT_HEADER}
_JSON: Final = re.compile(rb"\s*([\w.-]+/([\w.-]+\+)?json)?\s*(;.*)?", re.IGNORECASE | re.DOTALL)
"""A media type of JSON, or none."""
_QUOTED: Final = re.compile(rb'"(.*)"', re.DOTALL)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)


class EnvelopeMode(Enum):
    """The form of the events in a request, according to its headers."""

    PLAIN = auto()
    """The headers say nothing; the body decides."""
    MARKED = auto()
    """The header of Polaris' webhook is set."""
    STRUCTURED = auto()
    """The body is a CloudEvent."""
    BATCH = auto()
    """The body is an array of CloudEvents."""
    BINARY = auto()
    """The body is a CloudEvent's `data`, and the attributes are headers."""


def detect_mode(headers: Headers) -> EnvelopeMode:
    """Return the form of the events in a request.

    Raises:
        Rejected: 415, CloudEvents in another format than JSON.
    """
    # This loop is faster than building a dict, and nearly all requests need no more.
    for header in headers:
        if header[0] in _RELEVANT_HEADERS and header != _PLAIN_JSON:
            return _mode_of_headers(headers)
    return EnvelopeMode.PLAIN


def has_required_attributes(content: Mapping[str, object]) -> bool:
    """Return whether an object is a CloudEvent, if no header says so."""
    return all(name in content for name in REQUIRED_ATTRIBUTES)


def read_structured(content: Mapping[str, object], at: str) -> dict[str, object]:
    """Return the content of a CloudEvent that is entirely in the body.

    Args:
        content: the JSON object.
        at: the place of the object.

    Raises:
        Rejected: 422, a required attribute is missing or wrong, or `data_base64` is wrong.
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
    """Return the content of a CloudEvent with its attributes in headers.

    Args:
        headers: the headers of the request.
        body: the `data`; empty or null without any.
        at: the name of the headers in an error.

    Raises:
        Rejected: 400, a header is there twice or is not UTF-8, or the body is not the JSON that it should be; 422 as in
            `read_structured`.
    """
    event, media_type = _attributes(headers, at)
    _check(event, at)
    if (data := _read(body, media_type)) is not None:
        event["data"] = data
    return event


def to_structured(headers: Headers, body: bytes, at: str) -> bytes:
    """Return a binary event in structured mode, without any loss, even if the event is invalid.

    Args:
        headers: the headers of the request.
        body: the `data`.
        at: the name of the headers in an error.

    Raises:
        Rejected: 400, a header is there twice or is not UTF-8.
    """
    attributes, media_type = _attributes(headers, at)
    # Headers may have any name. The content of `data` comes from the body and its content type alone.
    event: dict[str, object] = {name: value for name, value in attributes.items() if name not in _OF_DATA}
    if media_type:
        event["datacontenttype"] = media_type.decode("latin-1")
    if _is_json(body):
        event["data"] = msgspec.Raw(body)
    elif body:
        event["data_base64"] = b2a_base64(body, newline=False).decode()
    return msgspec.json.encode(event)


def _attributes(headers: Headers, at: str) -> tuple[dict[str, object], bytes]:
    """Return the attributes in headers, and the media type of the body."""
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
    convert_object(event, CloudEvent, at, ["1.0"])


def _value(header: bytes, at: str, attribute: str) -> str:
    quoted = _QUOTED.fullmatch(header)
    plain = header if quoted is None else _ESCAPED.sub(rb"\1", quoted[1])
    try:
        return unquote_to_bytes(plain).decode()
    except UnicodeDecodeError:
        raise field_error(at, attribute, "percent-encoded UTF-8", "other bytes", status=400) from None


def _read(body: bytes, media_type: bytes) -> object:
    """Return the `data` in a body; None for a body that is no JSON and has another media type."""
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
    """Return the `data` in base64; None for content that is no JSON and has another media type."""
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


def is_cloud_event(event: Event) -> bool:
    return event.data_at is not None


def decoder_of_data(
    matches: Callable[[Event], bool], decode: Callable[[Event], tuple[Notification, ...]]
) -> Callable[[Event], tuple[Notification, ...]]:
    """Return a decoder for CloudEvents with `data` in a given format.

    Args:
        matches: the recogniser of that format.
        decode: the decoder of that format.
    """

    def decode_data(event: Event) -> tuple[Notification, ...]:
        """Decode the `data`; the id of the envelope is the id of the event. Raises `Rejected` as `decode` does."""
        data, content = event.data, event.content
        if data is None:
            return ()
        event_id = global_event_id(str(content["source"]), str(content["id"]))
        inner = Event(event.request, {**data, "event_id": event_id}, event.body, str(event.data_at))
        return decode(inner) if matches(inner) else ()

    return decode_data
