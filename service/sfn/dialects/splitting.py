"""A request's body, taken apart into its events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from sfn.dialects import envelope
from sfn.dialects.envelope import EnvelopeMode
from sfn.dialects.event import Event, EventRequest, Sender
from sfn.dialects.fields import field_error, json_kind
from sfn.errors import Rejected

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
        content = envelope.read_binary(request.headers, body, _HEADERS)
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
        or envelope.has_required_attributes(content)
        or (mode is EnvelopeMode.MARKED and "event_type" not in content)
    ):
        yield Event(request, envelope.read_structured(content, at), body[:MAX_STORED_EVENT], at, f"{at}/data")
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
