"""The event that a format decodes, and helpers for its fields and notifications.

This module imports no format, so that every format can import it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Rejected

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Headers as in ASGI: names in lower case, in the order of arrival."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A configured sender of events, after its secret was verified.

    Attributes:
        name: the name in the settings.
        catalogs: the catalogs that the sender may report about: the sender's name of each, and ours.
        event_format: the only format that the sender may use; None to recognise the format of each event.
    """

    name: str
    catalogs: Mapping[str, str]
    event_format: str | None = None


class EventRequest(msgspec.Struct, frozen=True):
    """A request of a known sender.

    Attributes:
        path: the path, percent-encoded as received, without a query.
        headers: the headers.
        body: the whole body.
        sender: the sender.
    """

    path: str
    headers: Headers
    body: bytes
    sender: Sender


class Event(msgspec.Struct, frozen=True):
    """One event of a request.

    Attributes:
        request: the request with the event.
        content: the JSON object; of a CloudEvent the attributes and `data`, in whatever mode they came.
        body: the first `MAX_STORED_EVENT` bytes as received, because events that wait for the disk must fit into
            memory.
        at: the place of `content`: a JSON pointer into the body as URI fragment (RFC 6901, section 6), or `headers` for
            attributes in headers.
        data_at: the place of a CloudEvent's `data`; None if the event is no CloudEvent.
    """

    request: EventRequest
    content: Mapping[str, object]
    body: bytes
    at: str
    data_at: str | None = None

    @property
    def sender(self) -> str:
        """The sender's name."""
        return self.request.sender.name

    @property
    def catalogs(self) -> Mapping[str, str]:
        """The catalogs that the sender may report about: the sender's name of each, and ours."""
        return self.request.sender.catalogs

    @property
    def data(self) -> Mapping[str, object] | None:
        """The JSON object in a CloudEvent; None if the event is no CloudEvent or contains something else."""
        data = None if self.data_at is None else self.content.get("data")
        return data if isinstance(data, dict) else None

    def has_header(self, name: bytes) -> bool:
        """Return whether the request has a header of this lower-case name."""
        return any(key == name for key, _ in self.request.headers)

    def mapped_catalog(self, external_name: str) -> str | None:
        """Return our name of the catalog that the sender calls `external_name`; None if the name is not mapped."""
        return self.catalogs.get(external_name)

    def require_catalog(self, external_name: str | None, at: str) -> str:
        """Return our name of a catalog that must be mapped; None stands for the sender's only catalog.

        Args:
            external_name: the sender's name of the catalog.
            at: the place of that name in the event.

        Raises:
            Rejected: 422, the sender has no such catalog, or several and the event names none.
        """
        catalogs = self.catalogs
        if external_name is None and len(catalogs) == 1:
            return next(iter(catalogs.values()))
        if external_name is not None and external_name in catalogs:
            return catalogs[external_name]
        raise Rejected(
            at,
            status=422,
            expected=f"one of {', '.join(catalogs)}" if catalogs else "a sender with a catalog",
            found="none" if external_name is None else "another one",
        )


MAX_LEVELS: Final = 64
"""Most levels of a namespace."""
MAX_NAME: Final = 512
"""Most characters of a level, a name, a ref, an event id, a catalog."""
MAX_LOCATION: Final = 4_096
"""Most characters of a location."""
CONTROL_CHARACTERS: Final = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
"""Characters that no text may contain, as a regular expression class: they end lines or reverse the text direction."""

_CONTROL: Final = re.compile(f"[{CONTROL_CHARACTERS}]")

TEXT_PATTERN: Final = rf"^[^{CONTROL_CHARACTERS}]+$(?!\n)"
"""Pattern of a text. In Python, unlike in JSON Schema, `$` also matches before a line feed at the end."""
Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME, pattern=TEXT_PATTERN)]
"""A level, a name, a ref, an event id, a catalog."""
Location: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LOCATION, pattern=TEXT_PATTERN)]
"""A location of a file."""
TIMESTAMP_PATTERN: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$(?!\n)"
)
Timestamp: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=TIMESTAMP_PATTERN, extra_json_schema={"format": "date-time"})
]
"""A date and time."""

_FORMS: Final = {TIMESTAMP_PATTERN: "a date and time of RFC 3339, such as 2026-01-31T12:00:00Z"}
"""What an error calls a pattern; others are in the schema."""

_StructT = TypeVar("_StructT", bound=msgspec.Struct)
_WORDS: Final = {
    "str": "a string",
    "array": "an array",
    "object": "an object",
    "bool": "true or false",
    "int": "a whole number",
}
_MISSING: Final = re.compile(r"Object missing required field `(.+)`")
_WRONG: Final = re.compile(
    r"Expected `([^`]+)`(?: of length ([<>]=) (\d+)| (matching) regex .*| ([<>]=) .*|.*)", re.DOTALL
)


def convert_object(
    content: Mapping[str, object], kind: type[_StructT], at: str, choices: Sequence[str], *, status: int = 422
) -> _StructT:
    """Return an object as a struct; the types of its fields define what is valid.

    Args:
        content: the object.
        kind: the struct.
        at: the place of the object.
        choices: the values of the only field of the struct with a fixed set of values, for the error.
        status: the HTTP status of the rejection.

    Raises:
        Rejected: a field is missing or wrong; the error names its place.
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise _invalid_object(str(error), content, at, choices, status) from None


def _invalid_object(
    message: str, content: Mapping[str, object], at: str, choices: Sequence[str], status: int
) -> Rejected:
    """Return the rejection for a message such as "Expected `str`, got `int` - at `$.namespace[1]`"."""
    message, *path = message.rsplit(" - at `$", maxsplit=1)
    value: Any = content
    for key in re.findall(r"[^.\[\]`]+", "".join(path)):
        at, value = f"{at}/{key}", value[int(key) if isinstance(value, list | tuple) else key]
    if (missing := _MISSING.fullmatch(message)) is not None:
        return field_error(at, missing[1], "a value", "none", status=status)
    if (wrong := _WRONG.fullmatch(message)) is not None:
        kinds, comparison, length, pattern, bound = wrong.groups()
        expected = " or ".join(_WORDS.get(kind, kind) for kind in kinds.split(" | ") if kind != "null")
        if (comparison, length) == (">=", "1"):
            expected, found = f"{expected} that is not empty", "an empty one"
        elif length is not None:
            units = "characters" if isinstance(value, str) else "parts"
            expected += f" of at {'most' if comparison == '<=' else 'least'} {length} {units}"
            found = str(len(value))
        elif bound is not None or (type(value) in {int, float} and kinds.startswith("int")):
            expected, found = f"{expected} of 64 bits, without a fraction", "another number"
        elif pattern is not None and (control := _CONTROL.search(value)) is not None:
            expected, found = f"{expected} without control characters", f"U+{ord(control[0]):04X}"
        elif pattern is not None:
            form = next((words for one, words in _FORMS.items() if repr(one) in message), None)
            expected, found = form or f"{expected} in the form that /openapi.json describes", ascii(value[:40])
        else:
            found = json_kind(value)
        return Rejected(at, status=status, expected=expected, found=found)
    return Rejected(at, status=status, expected=f"one of {', '.join(choices)}", found=ascii(str(value)[:40]))


def require_text(value: object, at: str, key: str | int, limit: int = MAX_NAME, *, status: int = 422) -> str:
    """Return a value as a text: not empty, not too long, without control characters.

    Args:
        value: the value.
        at: the place of the object or array around it.
        key: the key or the index of the value.
        limit: most characters.
        status: the HTTP status of the rejection.

    Raises:
        Rejected: the value is wrong; the error names its place.
    """
    if not isinstance(value, str):
        raise field_error(at, key, "a string", json_kind(value), status=status)
    if not value:
        raise field_error(at, key, "a string that is not empty", "an empty one", status=status)
    if len(value) > limit:
        raise field_error(at, key, f"at most {limit} characters", str(len(value)), status=status)
    # Nearly every name is printable ASCII. The slower search is for the others only.
    if not (value.isascii() and value.isprintable()) and (control := _CONTROL.search(value)) is not None:
        raise field_error(at, key, "a string without control characters", f"U+{ord(control[0]):04X}", status=status)
    return value


def optional_text(content: Mapping[str, object], key: str, at: str, limit: int = MAX_NAME) -> str | None:
    """Return a text that may be absent or null; arguments and errors as in `require_text`."""
    value = content.get(key)
    return None if value is None else require_text(value, at, key, limit)


def require_object(value: object, at: str, key: str) -> Mapping[str, object]:
    """Return a value as an object; arguments and errors as in `require_text`."""
    if not isinstance(value, dict):
        raise field_error(at, key, "an object", json_kind(value))
    return value


def namespace_levels(value: object, at: str, key: str, expected: str = "an array of strings") -> tuple[str, ...]:
    """Return the levels of a namespace from an array; arguments and errors as in `require_text`."""
    if not isinstance(value, list):
        raise field_error(at, key, expected, json_kind(value))
    if len(value) > MAX_LEVELS:
        raise field_error(at, key, f"at most {MAX_LEVELS} levels", "more")
    return tuple(require_text(level, f"{at}/{key}", index) for index, level in enumerate(value))


def split_namespace(value: str, separator: str, at: str, key: str) -> tuple[str, ...]:
    """Return the levels of a namespace from one text; arguments and errors as in `require_text`."""
    parts = value.split(separator, MAX_LEVELS)
    if len(parts) > MAX_LEVELS:
        raise field_error(at, key, f"at most {MAX_LEVELS} levels", "more")
    return tuple(require_text(level, at, key) for level in parts)


def identifier_from_array(value: object, at: str, key: str) -> tuple[tuple[str, ...], str]:
    """Return namespace and name from one array; arguments and errors as in `require_text`."""
    if not isinstance(value, list) or not value:
        raise field_error(
            at, key, "an array of a namespace's levels and a name", json_kind(value) if value else "nothing"
        )
    name = require_text(value[-1], f"{at}/{key}", len(value) - 1)
    return namespace_levels(value[:-1], at, key), name


def identifier_from_object(value: object, at: str, key: str) -> tuple[tuple[str, ...], str]:
    """Return namespace and name from an object with both; arguments and errors as in `require_text`."""
    content, place = require_object(value, at, key), f"{at}/{key}"
    return namespace_levels(content.get("namespace"), place, "namespace"), require_text(
        content.get("name"), place, "name"
    )


def is_too_deep(value: object, most: int) -> bool:
    """Return whether arrays and objects are nested in more than `most` levels; without recursion."""
    inside = [value]
    for _ in range(most + 1):
        holders = [one for one in inside if isinstance(one, dict | list)]
        if not holders:
            return False
        inside = [part for one in holders for part in (one.values() if isinstance(one, dict) else one)]
    return True


def field_error(at: str, key: str | int, expected: str, found: str, *, status: int = 422) -> Rejected:
    """Return the rejection of one value."""
    return Rejected(f"{at}/{key}", status=status, expected=expected, found=found)


def json_kind(value: object) -> str:
    """Return the JSON type of a value in words, so that an error does not repeat a wrong value."""
    match value:
        case None:
            return "none"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"


_PART: Final = "\x1f"
"""The separator in ids of several notifications of one event; no received id contains a control character."""


class UnmappedCatalog(msgspec.Struct, frozen=True):
    """The event is about a catalog that is not mapped to one of ours.

    Attributes:
        name: the name in the event.
    """

    name: str


DecodedEvent: TypeAlias = tuple[Notification, ...] | UnmappedCatalog
"""The notifications of an event; none for an event that is ignored."""


def global_event_id(source: str, event_id: str) -> str:
    """Return a globally unique id of an event with an id that is unique for its source only (CloudEvents, section
    "id").

    No two pairs have the same result: a source is a URI reference, so it ends at the first space.
    """
    joined = f"{source} {event_id}"
    if " " not in source and len(joined) <= MAX_NAME:
        return joined
    return sha256(msgspec.json.encode((source, event_id))).hexdigest()


def partial_event_id(event_id: str | None, name: str) -> str | None:
    """Return the id of one notification of an event with several; None if the event has no id."""
    return None if event_id is None else f"{event_id}{_PART}{name}"


def rename_notifications(
    notification: Notification, source: TableIdentifier, destination: TableIdentifier, at: str
) -> tuple[Notification, Notification]:
    """Return the notifications of a rename: the old name with `renamed_to`, and the new name with the metadata
    location.

    Args:
        notification: the event's content, under any name.
        source: the old name.
        destination: the new name.
        at: the place of the object with the destination.

    Raises:
        Rejected: 422, both names are the same.
    """
    if destination == source:
        raise field_error(at, "destination", "another name than the old one", "the same")
    return (
        replace(notification, subject=source, min_metadata_location=None, renamed_to=destination),
        replace(
            notification,
            subject=destination,
            event_id=partial_event_id(notification.event_id, "destination"),
            renamed_from=source,
        ),
    )
