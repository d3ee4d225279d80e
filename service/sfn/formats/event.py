"""What a dialect is given: one event, the request that it came in, and whose that is.

It belongs to no dialect, so that each may import it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

import msgspec

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import Rejected

# ── event: What a dialect is given

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""As ASGI gives them: names in lower case, in the order of arrival."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A configured origin of events, after its secret was checked.

    Attributes:
        name: as the configuration calls it.
        catalogs: the catalogs that it may speak for: its own name of each, and ours.
        event_format: the only one that it speaks; None: whichever its events are recognised to be of.
    """

    name: str
    catalogs: Mapping[str, str]
    event_format: str | None = None


class EventRequest(NamedTuple):
    """A request whose sender is known.

    Attributes:
        path: of the request, percent-encoded as it came, without a query.
        headers: of the request.
        body: all of it.
        sender: who sent it.
    """

    path: str
    headers: Headers
    body: bytes
    sender: Sender


class Event(NamedTuple):
    """One event of a request.

    Attributes:
        request: what it came in.
        content: the JSON object; of a CloudEvent its attributes and `data`, whichever way it came.
        body: its bytes as they arrived, the first `MAX_STORED_EVENT`: what waits for the disk must fit into memory.
        at: the place of what `content` holds: in the body, a JSON pointer as URI fragment (RFC 6901, section 6); of
            attributes that came as headers `headers`.
        data_at: the place of a CloudEvent's `data`; None where the event is none.
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
        """The catalogs that the sender may speak for: its own name of each, and ours."""
        return self.request.sender.catalogs

    @property
    def data(self) -> Mapping[str, object] | None:
        """The JSON object in a CloudEvent; None where the event is none, or holds something else."""
        data = None if self.data_at is None else self.content.get("data")
        return data if isinstance(data, dict) else None

    def has_header(self, name: bytes) -> bool:
        """Whether the request has a header of that name, in lower case."""
        return any(key == name for key, _ in self.request.headers)

    def mapped_catalog(self, external_name: str) -> str | None:
        """Our name of the catalog that the sender's events call `external_name`; None where nobody said which that
        is.
        """
        return self.catalogs.get(external_name)

    def require_catalog(self, external_name: str | None, at: str) -> str:
        """Our name of the catalog that the sender itself calls `external_name`; None is the only one it speaks for.

        Args:
            external_name: the sender's name of it.
            at: where that was said.

        Raises:
            Rejected: 422, where the sender has no such catalog, or several and named none.
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


# ── fields: The fields of what somebody else wrote

MAX_LEVELS: Final = 64
"""Most levels of a namespace."""
MAX_NAME: Final = 512
"""Most characters of a level, a name, a ref, an event id, a catalog."""
MAX_LOCATION: Final = 4_096
"""Most characters of a location."""
CONTROL_CHARACTERS: Final = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
"""Characters that no text may hold, as a class of a regular expression: they end lines and turn what is read around."""

_CONTROL: Final = re.compile(f"[{CONTROL_CHARACTERS}]")


def require_text(value: object, at: str, key: str | int, limit: int = MAX_NAME, *, status: int = 422) -> str:
    """The value as a text: not empty, not too long, without control characters.

    Args:
        value: what was found.
        at: the place of what holds it.
        key: which of its values it is.
        limit: most characters.
        status: that of the refusal.

    Raises:
        Rejected: it is not; the place of the value is named.
    """
    if not isinstance(value, str):
        raise field_error(at, key, "a string", json_kind(value), status=status)
    if not value:
        raise field_error(at, key, "a string that is not empty", "an empty one", status=status)
    if len(value) > limit:
        raise field_error(at, key, f"at most {limit} characters", str(len(value)), status=status)
    # Nearly every name is plain: only the others are worth a search.
    if not (value.isascii() and value.isprintable()) and (control := _CONTROL.search(value)) is not None:
        raise field_error(at, key, "a string without control characters", f"U+{ord(control[0]):04X}", status=status)
    return value


def optional_text(content: Mapping[str, object], key: str, at: str, limit: int = MAX_NAME) -> str | None:
    """A text that may be absent, or null; arguments and errors as of `checked`."""
    value = content.get(key)
    return None if value is None else require_text(value, at, key, limit)


def require_object(value: object, at: str, key: str) -> Mapping[str, object]:
    """The value as an object; arguments and errors as of `checked`."""
    if not isinstance(value, dict):
        raise field_error(at, key, "an object", json_kind(value))
    return value


def namespace_levels(value: object, at: str, key: str, expected: str = "an array of strings") -> tuple[str, ...]:
    """The levels of a namespace, from an array of them; arguments and errors as of `checked`."""
    if not isinstance(value, list):
        raise field_error(at, key, expected, json_kind(value))
    if len(value) > MAX_LEVELS:
        raise field_error(at, key, f"at most {MAX_LEVELS} levels", "more")
    return tuple(require_text(level, f"{at}/{key}", index) for index, level in enumerate(value))


def split_namespace(value: str, separator: str, at: str, key: str) -> tuple[str, ...]:
    """The levels of a namespace, from one text of them; arguments and errors as of `checked`."""
    parts = value.split(separator, MAX_LEVELS)
    if len(parts) > MAX_LEVELS:
        raise field_error(at, key, f"at most {MAX_LEVELS} levels", "more")
    return tuple(require_text(level, at, key) for level in parts)


def identifier_from_array(value: object, at: str, key: str) -> tuple[tuple[str, ...], str]:
    """A namespace's levels and a name, from one array of all of them; arguments and errors as of `checked`."""
    if not isinstance(value, list) or not value:
        raise field_error(
            at, key, "an array of a namespace's levels and a name", json_kind(value) if value else "nothing"
        )
    name = require_text(value[-1], f"{at}/{key}", len(value) - 1)
    return namespace_levels(value[:-1], at, key), name


def identifier_from_object(value: object, at: str, key: str) -> tuple[tuple[str, ...], str]:
    """A namespace's levels and a name, from an object of both; arguments and errors as of `checked`."""
    content, place = require_object(value, at, key), f"{at}/{key}"
    return namespace_levels(content.get("namespace"), place, "namespace"), require_text(
        content.get("name"), place, "name"
    )


def is_too_deep(value: object, most: int) -> bool:
    """Whether arrays and objects lie in each other on more than so many levels; without recursion."""
    inside = [value]
    for _ in range(most + 1):
        holders = [one for one in inside if isinstance(one, dict | list)]
        if not holders:
            return False
        inside = [part for one in holders for part in (one.values() if isinstance(one, dict) else one)]
    return True


def field_error(at: str, key: str | int, expected: str, found: str, *, status: int = 422) -> Rejected:
    """The refusal of one value."""
    return Rejected(f"{at}/{key}", status=status, expected=expected, found=found)


def json_kind(value: object) -> str:
    """What JSON calls a value, in words: what is wrong is not repeated."""
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


# ── outcome: What an event comes to

_PART: Final = "\x1f"
"""Before what tells the hints of one event apart: no id that arrives holds a control character."""


@dataclass(frozen=True, slots=True)
class UnmappedCatalog:
    """The event is of a catalog of which nobody said which of ours it is.

    Attributes:
        name: what the event calls it.
    """

    name: str


DecodedEvent: TypeAlias = tuple[Notification, ...] | UnmappedCatalog
"""Of an event that is understood and of no concern, no hint."""


def global_event_id(source: str, event_id: str) -> str:
    """The id of an event whose id is one among those of its source alone (CloudEvents, section "id").

    No two pairs have the same: a source is a URI reference, so that the first space is where it ends.
    """
    joined = f"{source} {event_id}"
    if " " not in source and len(joined) <= MAX_NAME:
        return joined
    return sha256(msgspec.json.encode((source, event_id))).hexdigest()


def partial_event_id(event_id: str | None, name: str) -> str | None:
    """The id of one hint of an event that has several: None where the event has none."""
    return None if event_id is None else f"{event_id}{_PART}{name}"


def rename_notifications(
    notification: Notification, source: TableIdentifier, destination: TableIdentifier, at: str
) -> tuple[Notification, Notification]:
    """The hints of a rename: the old name with `renamed_to`, and the new one, of which the location was told.

    Args:
        notification: what the event says of the table, whatever it is called.
        source: the old name.
        destination: the new one.
        at: the place of what holds the destination.

    Raises:
        Rejected: 422, both are the same.
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
