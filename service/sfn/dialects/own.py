"""Our own format: what anything that can send JSON can say.

    {"namespace": ["a", "b"] | "a.b", "name": "t",
     "operation": "commit" | "create" | "register" | "rename" | "drop",       commit when absent
     "destination": {"namespace": …, "name": …},                              with rename, and only there
     "purge": true,                                                           with drop, and only there
     "catalog": …, "event_id": …, "metadata_location": …, "table_uuid": …, "ref": …, "occurred_at": …}

Null is the same as absent, an unknown key is passed over. `ref` and `occurred_at` are checked and then left to the
event log: the catalog knows better. So is `table_uuid`, unless there is no catalog to ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from sfn.dialects.event import Event
from sfn.dialects.fields import MAX_LEVELS, MAX_LOCATION, MAX_NAME, checked, kind, levels, split, text, wrong
from sfn.dialects.outcome import renamed
from sfn.words import Birth, Hint, TableName

OPERATIONS: Final = ("commit", "create", "register", "rename", "drop")

_BIRTHS: Final = {"create": Birth.CREATE, "register": Birth.REGISTER}

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


def recognises(event: Event) -> bool:
    """Whether it names a table the way that we do."""
    return event.data_at is None and "namespace" in event.content and "name" in event.content


def hints(event: Event) -> tuple[Hint, ...]:
    """One hint, or for a rename two: the old name with `renamed_to`, and the new one, of which the location was told.

    Raises:
        Rejected: 422, with the JSON pointer of the wrong field.
    """
    content, at = event.content, event.at
    operation = _operation(content, at)
    table = _table(content, at, event.catalog(text(content, "catalog", at), f"{at}/catalog"))
    event_id = text(content, "event_id", at)
    floor = text(content, "metadata_location", at, MAX_LOCATION)
    uuid = text(content, "table_uuid", at)
    text(content, "ref", at)
    _timestamp(content, "occurred_at", at)
    destination = _destination(content, at, table.catalog, operation)
    purge = _purge(content, at, operation)
    sender, body = event.sender, event.body
    if destination is not None:
        return renamed(Hint(table, sender, event_id, floor, uuid=uuid, body=body), table, destination, at)
    if operation == "drop":
        return (Hint(table, sender, event_id, drop=True, purge=purge, uuid=uuid, body=body),)
    return (Hint(table, sender, event_id, floor, uuid=uuid, birth=_BIRTHS.get(operation), body=body),)


def _operation(content: Mapping[str, object], at: str) -> str:
    operation = text(content, "operation", at)
    if operation is None:
        return OPERATIONS[0]
    if operation not in OPERATIONS:
        raise wrong(at, "operation", f"one of {', '.join(OPERATIONS)}", ascii(operation[:40]))
    return operation


def _destination(content: Mapping[str, object], at: str, catalog: str, operation: str) -> TableName | None:
    destination = content.get("destination")
    if operation != "rename":
        if destination is not None:
            raise wrong(at, "destination", "none without the operation rename", kind(destination))
        return None
    if not isinstance(destination, dict):
        raise wrong(at, "destination", "an object with the new namespace and name", kind(destination))
    return _table(destination, f"{at}/destination", catalog)


def _purge(content: Mapping[str, object], at: str, operation: str) -> bool:
    purge = content.get("purge")
    if purge is None or purge is False:
        return False
    if purge is not True:
        raise wrong(at, "purge", "true or false", kind(purge))
    if operation != "drop":
        raise wrong(at, "purge", "none without the operation drop", "true")
    return True


def _table(content: Mapping[str, object], at: str, catalog: str) -> TableName:
    return TableName(catalog, _namespace(content.get("namespace"), at), checked(content.get("name"), at, "name"))


def _namespace(value: object, at: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return split(value, ".", at, "namespace")
    return levels(value, at, "namespace", "an array of strings or one dotted string")


def _timestamp(content: Mapping[str, object], key: str, at: str) -> None:
    moment = text(content, key, at)
    if moment is not None and _TIMESTAMP.fullmatch(moment) is None:
        raise wrong(at, key, "a time with its offset as in RFC 3339", ascii(moment[:40]))
