"""What a catalog answers about one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from sfn.domain.events import EventHistory, ReportedChange
from sfn.domain.identifiers import Table
from sfn.domain.jobs import DeadLetterReason

# ── answer: What a catalog answers about one table


@dataclass(frozen=True, slots=True)
class UnappliedChange:
    """A telling that means nothing yet.

    Attributes:
        change: which.
        reason: of the dead letter that this is; None where it may come by itself.
        detail: what is waited for, or wrong, for a person.
    """

    change: ReportedChange
    reason: DeadLetterReason | None
    detail: str


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    """What a catalog without a memory of its own has heard.

    Attributes:
        history: what it wants to be given the next time, beside what was told since.
        unapplied: what of it means nothing yet.
    """

    history: EventHistory
    unapplied: tuple[UnappliedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """The catalog has the table.

    Attributes:
        table: as it is now.
        etag: entity tag of this answer.
        applied: where the answer is what was told.
    """

    table: Table
    etag: str | None = None
    applied: AppliedChanges | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NotModified:
    """The catalog's answer is the one whose entity tag was sent along (RFC 9110, 13.1.2).

    Attributes:
        applied: as of `Loaded`.
    """

    applied: AppliedChanges | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NoSuchTable:
    """The catalog answered, in Iceberg's own error shape, that it has no such table.

    Attributes:
        applied: as of `Loaded`.
    """

    applied: AppliedChanges | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class StagedCreate:
    """The table exists without a metadata file (a staged create): neither present nor absent."""


LoadResult: TypeAlias = Loaded | NotModified | NoSuchTable | StagedCreate


# ── grant: Storage credentials that a catalog vends for one table


@dataclass(frozen=True, slots=True)
class VendedCredential:
    """One of a table's `storage-credentials`, or the `config` of its load (REST specification, `LoadTableResult`).

    Attributes:
        prefix: canonical location that it is good for, with all that lies below; "" for wherever the table lies.
        config: by Iceberg's names, such as `s3.access-key-id`; holds secrets.
        expires_at: when it ends, None where the catalog does not say.
    """

    prefix: str
    config: Mapping[str, str] = field(repr=False)
    expires_at: datetime | None = None
