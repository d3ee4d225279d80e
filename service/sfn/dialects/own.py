"""Our own format: what anything that can send JSON can say.

    {"namespace": ["a", "b"] | "a.b", "name": "t",
     "operation": "commit" | "create" | "register" | "rename" | "drop",       commit when absent
     "destination": {"namespace": …, "name": …},                              with rename, and only there
     "purge": true,                                                           with drop, and only there
     "catalog": …, "event_id": …, "metadata_location": …, "table_uuid": …, "ref": …, "occurred_at": …}

Null is the same as absent, an unknown key is passed over. `table_uuid`, `ref` and `occurred_at` are checked and then
left to the event log: the catalog knows better.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Protocol, TypeAlias

import msgspec

from sfn.errors import Rejected
from sfn.words import Hint, TableName

MAX_LEVELS: Final = 64
"""Most levels of a namespace."""
MAX_NAME: Final = 512
"""Most characters of a level, a name, a ref, an event id, a catalog."""
MAX_LOCATION: Final = 4_096
"""Most characters of a location."""

OPERATIONS: Final = ("commit", "create", "register", "rename", "drop")

_DESTINATION_ID: Final = "\x1fdestination"
"""Ends the event id of a rename's second hint: no id that arrives holds a control character."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)


_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
_Location: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LOCATION)]


class _Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What most events are: a commit, told of by these fields alone. No other format has no others."""

    namespace: Annotated[list[_Name], msgspec.Meta(max_length=MAX_LEVELS)]
    name: _Name
    event_id: _Name | None = None
    metadata_location: _Location | None = None


_plain: Final = msgspec.json.Decoder(_Plain).decode


class Told(Protocol):
    """What this dialect needs of an event."""

    @property
    def content(self) -> Mapping[str, object]:
        """The JSON object."""
        ...

    @property
    def body(self) -> bytes:
        """Its bytes as they arrived."""
        ...

    @property
    def at(self) -> str:
        """Its place, a JSON pointer."""
        ...

    @property
    def sender(self) -> str:
        """Who sent it."""
        ...

    def catalog(self, theirs: str | None, at: str) -> str:
        """Our name of the sender's catalog; raises `Rejected`."""
        ...


def at_once(body: bytes, sender: str, catalog: str) -> Hint | None:
    """The hint of a plain event, read in a fifth of the time; None for any other, be it right or wrong.

    Without escapes, DEL and what is not ASCII no text has a control character: JSON has none (RFC 8259, section 7).

    Args:
        body: the whole event.
        sender: who sent it.
        catalog: our name of the only catalog that the sender speaks for.
    """
    if not body.isascii() or b"\\" in body or b"\x7f" in body:
        return None
    try:
        event = _plain(body)
    except msgspec.DecodeError:
        return None
    table = TableName(catalog, tuple(event.namespace), event.name)
    return Hint(table, sender, event.event_id, event.metadata_location, body=body)


def recognises(event: Told) -> bool:
    """Whether it names a table the way that we do."""
    return "namespace" in event.content and "name" in event.content


def hints(event: Told) -> tuple[Hint, ...]:
    """One hint, or for a rename two: the old name with `renamed_to`, and the new one, of which no location was told.

    Raises:
        Rejected: 422, with the JSON pointer of the wrong field.
    """
    content, at = event.content, event.at
    operation = _operation(content, at)
    table = _table(content, at, event.catalog(_text(content, "catalog", at), f"{at}/catalog"))
    event_id = _text(content, "event_id", at)
    floor = _text(content, "metadata_location", at, MAX_LOCATION)
    _text(content, "table_uuid", at)
    _text(content, "ref", at)
    _timestamp(content, "occurred_at", at)
    destination = _destination(content, at, table, operation)
    purge = _purge(content, at, operation)
    sender, body = event.sender, event.body
    if destination is not None:
        arrival = None if event_id is None else event_id + _DESTINATION_ID
        return (
            Hint(table, sender, event_id, renamed_to=destination, body=body),
            Hint(destination, sender, arrival, body=body),
        )
    if operation == "drop":
        return (Hint(table, sender, event_id, drop=True, purge=purge, body=body),)
    return (Hint(table, sender, event_id, floor, body=body),)


def _operation(content: Mapping[str, object], at: str) -> str:
    operation = _text(content, "operation", at)
    if operation is None:
        return OPERATIONS[0]
    if operation not in OPERATIONS:
        raise _wrong(at, "operation", f"one of {', '.join(OPERATIONS)}", ascii(operation[:40]))
    return operation


def _destination(content: Mapping[str, object], at: str, source: TableName, operation: str) -> TableName | None:
    destination = content.get("destination")
    if operation != "rename":
        if destination is not None:
            raise _wrong(at, "destination", "none without the operation rename", _kind(destination))
        return None
    if not isinstance(destination, dict):
        raise _wrong(at, "destination", "an object with the new namespace and name", _kind(destination))
    table = _table(destination, f"{at}/destination", source.catalog)
    if table == source:
        raise _wrong(at, "destination", "another name than the old one", "the same")
    return table


def _purge(content: Mapping[str, object], at: str, operation: str) -> bool:
    purge = content.get("purge")
    if purge is None or purge is False:
        return False
    if purge is not True:
        raise _wrong(at, "purge", "true or false", _kind(purge))
    if operation != "drop":
        raise _wrong(at, "purge", "none without the operation drop", "true")
    return True


def _table(content: Mapping[str, object], at: str, catalog: str) -> TableName:
    return TableName(catalog, _namespace(content.get("namespace"), at), _checked(content.get("name"), at, "name"))


def _namespace(value: object, at: str) -> tuple[str, ...]:
    if isinstance(value, str):
        levels = value.split(".")
        checked = tuple(_checked(level, at, "namespace") for level in levels[: MAX_LEVELS + 1])
    elif isinstance(value, list):
        inside = f"{at}/namespace"
        checked = tuple(_checked(level, inside, index) for index, level in enumerate(value[: MAX_LEVELS + 1]))
    else:
        raise _wrong(at, "namespace", "an array of strings or one dotted string", _kind(value))
    if len(checked) > MAX_LEVELS:
        raise _wrong(at, "namespace", f"at most {MAX_LEVELS} levels", "more")
    return checked


def _timestamp(content: Mapping[str, object], key: str, at: str) -> None:
    text = _text(content, key, at)
    if text is not None and _TIMESTAMP.fullmatch(text) is None:
        raise _wrong(at, key, "a time with its offset as in RFC 3339", ascii(text[:40]))


def _text(content: Mapping[str, object], key: str, at: str, limit: int = MAX_NAME) -> str | None:
    value = content.get(key)
    return None if value is None else _checked(value, at, key, limit)


def _checked(value: object, at: str, key: str | int, limit: int = MAX_NAME) -> str:
    if not isinstance(value, str):
        raise _wrong(at, key, "a string", _kind(value))
    if not value:
        raise _wrong(at, key, "a string that is not empty", "an empty one")
    if len(value) > limit:
        raise _wrong(at, key, f"at most {limit} characters", str(len(value)))
    # Nearly every name is plain: only the others are worth a search.
    if not (value.isascii() and value.isprintable()) and (control := _CONTROL.search(value)) is not None:
        raise _wrong(at, key, "a string without control characters", f"U+{ord(control[0]):04X}")
    return value


def _wrong(at: str, key: str | int, expected: str, found: str) -> Rejected:
    return Rejected(f"{at}/{key}", status=422, expected=expected, found=found)


def _kind(value: object) -> str:
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
