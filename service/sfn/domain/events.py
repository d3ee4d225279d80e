"""What every event becomes: a note that something may have changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from sfn.domain.identifiers import JobKey, TableIdentifier

# ── intent: Commits that pass through a gateway


@dataclass(frozen=True, slots=True)
class Intent:
    """A commit is about to be forwarded. Until its outcome is known the catalog is asked for it, time and again.

    It is a row of its own: that another commit of the same table succeeded says nothing of this one.

    Attributes:
        id: of the request, and of no other ever.
        subjects: the tables that it may change; the catalog where these can't be told.
        sender: the gateway, as whom the hints are put that come of it.
        peer: whose intents for tables that were never seen are counted together: the client's address.
    """

    id: str
    subjects: tuple[JobKey, ...]
    sender: str = ""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class IntentOutcome:
    """The commit of an intent was answered, or is known never to be.

    Attributes:
        intent_id: its id.
        is_known: the outcome is known, whatever it is: the intent is closed. Else it stays open, and the times at which
            the catalog is asked are counted from now; nothing closes it any more.
    """

    intent_id: str
    is_known: bool


# ── told: What was told of a name in a catalog that nobody can ask


class TableOrigin(StrEnum):
    """How a table came to its name."""

    CREATE = "create"
    """It is new."""
    REGISTER = "register"
    """Its metadata was there before: it was registered, or it had another name."""


@dataclass(frozen=True, slots=True)
class ReportedChange:
    """What one event said.

    Attributes:
        seq: number of its hint: what was told later has a greater one.
        metadata_location: metadata location; None for an end.
        uuid: table uuid, None where the event did not say it.
        origin: how the table came to the name; None for a commit, and for an end.
        is_end: the table was dropped or has another name now.
        renamed_to: that name.
        missing_since: since when it means nothing, such as while its metadata file is not there.
        is_doubtful: its row was given up with it: while it means nothing, it stands back for what else is told.
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
    """One table that a name has or had; each moment is the number of the hint that told of it, -1 for none.

    Attributes:
        uuid: its uuid.
        metadata_location: its newest metadata location, None while only its end was told of.
        changed_seq: when that was told last.
        created_seq: when it came to the name.
        ended_seq: when it was dropped or renamed.
        renamed_to: the name that it was renamed to.
    """

    uuid: str | None
    metadata_location: str | None = None
    changed_seq: int = -1
    created_seq: int = -1
    ended_seq: int = -1
    renamed_to: TableIdentifier | None = None


@dataclass(frozen=True, slots=True)
class EventHistory:
    """All that was told of one name.

    Attributes:
        tables: what is known of its tables by now.
        ended_seq: the last end of a table that was not named: it ended what was born before.
        reported_changes: what was told since, and is not part of that yet.
    """

    tables: tuple[TableHistory, ...] = ()
    ended_seq: int = -1
    reported_changes: tuple[ReportedChange, ...] = ()


# ── hint: What every event becomes


@dataclass(frozen=True, slots=True)
class Notification:
    """This table, or this whole catalog, may have changed. A hint is never the truth; the catalog is.

    Attributes:
        subject: the table, or the catalog for a sweep.
        sender: who told: with `event_id` the key of de-duplication.
        event_id: the sender's id of the event; None is never de-duplicated.
        min_metadata_location: metadata location that the event told of; the answer should be at or after it.
        renamed_to: the table's new name, where the event tells of a rename.
        drop: the event tells of a drop.
        purge: the drop was to delete the table's files.
        uuid: table uuid that the event told of.
        origin: how the table came to its name, where the event tells of that.
        renamed_from: the table's old name, where the subject is its new one.
        hold_drops: put by a sweep that found too many absences: absence must be released by an operator.
        force: nothing remembered of its files may be trusted: somebody may have written behind the row's back.
        adopt_catalog_id: an operator said that files of that `catalog_id` are to be taken over.
        is_guessed: the name is one reading of a path that a gateway passed on, and perhaps no table has it.
        body: the event as received, its beginning: for whoever asks what the table was told last, and for no log.
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
        """Whether nothing in it could be compared with the catalog's answer."""
        return self.min_metadata_location is None and self.renamed_to is None and not (self.drop or self.hold_drops)


MAX_STORED_BODY = 65_536
"""Bytes of a request that nobody understood which are kept for whoever looks at it."""


@dataclass(frozen=True, slots=True)
class UndecodableRequest:
    """A request of a known sender that no dialect could make hints of: kept, so that it can be decoded again.

    Attributes:
        sender: whose.
        path: of the request, percent-encoded as it came, without a query; with `#unsigned` behind it where its sender
            signs, and the path or the headers said something: no signature covers these.
        content_type: as the sender said it; None where it said none.
        body: its first `MAX_STORED_BODY` bytes. A CloudEvent whose attributes came as headers has them in it.
        size: bytes of the whole body.
        detail: what was wrong with it, for a person.
    """

    sender: str
    path: str
    content_type: str | None
    body: bytes = field(repr=False)
    size: int
    detail: str


@dataclass(frozen=True, slots=True)
class PutResult:
    """What became of the notes of one `Intake.put`; all of it is durable.

    Attributes:
        accepted: notes that are new.
        duplicates: notes whose (sender, event id) was known.
        coalesced: of the accepted ones those of a subject that had news waiting already: one look answers both.
    """

    accepted: int
    duplicates: int
    coalesced: int = 0


# ── note: What may be put into the inbox

InboxMessage: TypeAlias = Notification | UndecodableRequest | Intent | IntentOutcome
