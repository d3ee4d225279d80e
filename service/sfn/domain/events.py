"""The messages that go into the inbox, and the history of tables in event-only catalogs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from sfn.domain.identifiers import JobKey, TableIdentifier


@dataclass(frozen=True, slots=True)
class Intent:
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


@dataclass(frozen=True, slots=True)
class IntentOutcome:
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


@dataclass(frozen=True, slots=True)
class ReportedChange:
    """The change that one event reported.

    Attributes:
        seq: the number of the notification; later events have greater numbers.
        metadata_location: the metadata location; None for an end.
        uuid: the table uuid; None if the event has none.
        origin: how the table got the name; None for a commit and for an end.
        is_end: the table was dropped or renamed.
        renamed_to: the new name.
        missing_since: since when the change cannot be applied, for example because its metadata file is missing.
        is_doubtful: the job was dead-lettered with this change. While it cannot be applied, other changes go first.
    """

    seq: int
    metadata_location: str | None = None
    uuid: str | None = None
    origin: TableOrigin | None = None
    is_end: bool = False
    renamed_to: TableIdentifier | None = None
    missing_since: datetime | None = None
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class TableHistory:
    """One table that a name has or had. Each point in time is the number of a notification, -1 for none.

    Attributes:
        uuid: the table's uuid.
        metadata_location: the newest metadata location; None if only an end was reported.
        changed_seq: when that location was last reported.
        created_seq: when the table got the name.
        ended_seq: when the table was dropped or renamed.
        renamed_to: the name that the table was renamed to.
    """

    uuid: str | None
    metadata_location: str | None = None
    changed_seq: int = -1
    created_seq: int = -1
    ended_seq: int = -1
    renamed_to: TableIdentifier | None = None


@dataclass(frozen=True, slots=True)
class EventHistory:
    """The history of one name in an event-only catalog.

    Attributes:
        tables: the tables of the name.
        ended_seq: the last end that named no table; it ended every table created before.
        reported_changes: changes that are not part of `tables` yet.
    """

    tables: tuple[TableHistory, ...] = ()
    ended_seq: int = -1
    reported_changes: tuple[ReportedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Notification:
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
        force: ignore the cache of the table's files, because another writer may have changed them.
        adopt_catalog_id: an operator takes over the files with this `catalog_id`.
        is_guessed: the name is one reading of a path at a gateway, and possibly no table has it.
        body: the beginning of the event as received, for operators that inspect the table's last event; never logged.
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
    body: bytes = field(default=b"", repr=False)

    @property
    def is_unspecific(self) -> bool:
        """True if the notification has nothing to compare with the catalog's answer."""
        return self.min_metadata_location is None and self.renamed_to is None and not (self.drop or self.hold_drops)


MAX_STORED_BODY = 65_536
"""Bytes of an undecodable request that are stored for inspection."""


@dataclass(frozen=True, slots=True)
class UndecodableRequest:
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
    body: bytes = field(repr=False)
    size: int
    detail: str


@dataclass(frozen=True, slots=True)
class PutResult:
    """The result of one `InboxWriter.put`; all of it is durable.

    Attributes:
        accepted: new messages.
        duplicates: messages with a known sender and event id.
        coalesced: accepted messages for a job that already had a pending notification; one check of the table covers
            both.
    """

    accepted: int
    duplicates: int
    coalesced: int = 0


InboxMessage: TypeAlias = Notification | UndecodableRequest | Intent | IntentOutcome
