"""What every event becomes: a note that something may have changed."""

from __future__ import annotations

from dataclasses import dataclass, field

from sfn.words.table import JobKey, TableIdentifier
from sfn.words.told import TableOrigin


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
