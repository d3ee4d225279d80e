"""The messages that go into the inbox, and the tables that events report in event-only catalogs.

The messages are msgspec structs: one is made for each event, which costs a frozen dataclass twenty times as much, and
the inbox stores them as they are (`sfn.inbox.schema`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from typing_extensions import override

from sfn.domain.identifiers import JobKey, TableIdentifier

_TRACEPARENT: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})"
    r"-[0-9a-f][13579bdf](?P<more>-.*)?"
)


def parse_traceparent(value: object) -> bytes:
    """Return the trace context that an event carries as `traceparent` (W3C Trace Context, section 3.2).

    Returns:
        The ids of the trace and of the span, 16 and 8 bytes; empty if `value` is no trace context, or not sampled.
    """
    found = _TRACEPARENT.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found["version"] == "00" and found["more"] is not None):
        return b""
    return bytes.fromhex(found["trace"] + found["span"])


def without_body(message: Notification | UndecodableRequest) -> str:
    """Return the representation of a message without its body, which may hold secrets and must not be logged."""
    fields = ((name, getattr(message, name)) for name in message.__struct_fields__ if name != "body")
    return f"{type(message).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """A commit is about to be forwarded. Until its outcome is known, the catalog is asked several times.

    An intent is stored on its own: the success of another commit of the same table proves nothing about this one.

    Attributes:
        id: the unique id of the request.
        subjects: the tables that the commit may change; the catalog if the tables are not known.
        sender: the gateway, as the sender of the resulting notifications.
        peer: the client's address. The limit of open intents for unknown tables applies per peer.
    """

    id: str
    subjects: tuple[JobKey, ...]
    sender: str = ""
    peer: str = ""


class IntentOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The commit of an intent was answered, or is known to never be answered.

    Attributes:
        intent_id: the id of the intent.
        is_known: the outcome is known, so the intent is closed. Otherwise the intent stays open until its last
            check, and the times at which the catalog is asked count from now.
    """

    intent_id: str
    is_known: bool


class TableOrigin(StrEnum):
    """The event that gave a table its name."""

    CREATE = "create"
    """The table is new."""
    REGISTER = "register"
    """The table's metadata existed before: the table was registered or renamed."""


class TableReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest that events reported of one table under one name, in an event-only catalog.

    Attributes:
        uuid: the table's uuid, as `normal_uuid` spells it; None as long as neither an event nor a publish showed it.
        locations: the newest reported metadata location. Several, in order of arrival, if neither their names nor the
            uuids in the events decide which one is newest; none if only a rename or an end was reported.
        created_seq: the number of the notification that gave the table the name; -1 if only commits were reported.
        ended_seq: the number of the notification that took the name away; None if the table has the name.
        renamed_to: the name that the table was renamed to.
    """

    uuid: str | None = None
    locations: tuple[str, ...] = ()
    created_seq: int = -1
    ended_seq: int | None = None
    renamed_to: TableIdentifier | None = None


def current_table(tables: Sequence[TableReport]) -> TableReport | None:
    """Return the table that has the name now: of those that did not lose the name, the one that got it last."""
    live = [table for table in reversed(tables) if table.ended_seq is None]
    return max(live, key=lambda table: table.created_seq, default=None)


class Notification(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table, or a whole catalog, may have changed. The catalog, not the notification, is the source of truth.

    Attributes:
        subject: the table, or the catalog for a sweep.
        sender: the name of the sender; with `event_id` the key of de-duplication.
        event_id: the sender's id of the event; None is never de-duplicated.
        min_metadata_location: the metadata location in the event; the catalog's answer should be at or after it.
        renamed_to: the table's new name, if the event reports a rename.
        drop: the event reports a drop.
        purge: the drop deletes the table's files.
        uuid: the table uuid in the event.
        origin: how the table got its name, if the event reports that.
        renamed_from: the table's old name, if the subject is its new one.
        hold_drops: a sweep found too many missing tables: drops wait for a release by an operator.
        force: ignore the cache of the table's files, because another writer may have changed them; a catalog's sweep
            reads the files of its tables.
        retry: an operator asks for another attempt of a table that was given up. A hold of the drop limit stays.
        adopt_catalog_id: an operator takes over the files with this `catalog_id`.
        is_guessed: the name is one reading of a path at a gateway, and possibly no table has it.
        body: the beginning of the event as received, for operators that inspect the table's last event; never logged.
        trace: the trace context of the event, as `parse_traceparent` returns it; empty for none.
    """

    subject: JobKey
    sender: str = ""
    event_id: str | None = None
    min_metadata_location: str | None = None
    renamed_to: TableIdentifier | None = None
    drop: bool = False
    purge: bool = False
    uuid: str | None = None
    origin: TableOrigin | None = None
    renamed_from: TableIdentifier | None = None
    hold_drops: bool = False
    force: bool = False
    adopt_catalog_id: str | None = None
    is_guessed: bool = False
    body: bytes = b""
    retry: bool = False
    trace: bytes = b""

    @override
    def __repr__(self) -> str:
        return without_body(self)

    @property
    def is_unspecific(self) -> bool:
        """True if the notification has nothing to compare with the catalog's answer."""
        return self.min_metadata_location is None and self.renamed_to is None and not (self.drop or self.hold_drops)


MAX_STORED_BODY = 65_536
"""Bytes of an undecodable request that are stored for inspection."""


class UndecodableRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request of a known sender that no event format could decode. It is stored so that it can be decoded again.

    Attributes:
        sender: the name of the sender.
        path: the path of the request, percent-encoded as received, without a query. `#unsigned` is appended if the
            sender signs and path or headers carried data, because no signature covers these.
        content_type: the content type as sent; None without one.
        body: the first `MAX_STORED_BODY` bytes. Attributes of a CloudEvent that came as headers are included.
        size: bytes of the whole body.
        detail: what was wrong with the request, for people.
    """

    sender: str
    path: str
    content_type: str | None
    body: bytes
    size: int
    detail: str

    @override
    def __repr__(self) -> str:
        return without_body(self)


class PutResult(msgspec.Struct, frozen=True):
    """The result of one `InboxWriter.put`; all of it is durable.

    Attributes:
        accepted: new messages.
        duplicates: messages with a known sender and event id.
    """

    accepted: int
    duplicates: int


InboxMessage: TypeAlias = Notification | UndecodableRequest | Intent | IntentOutcome
