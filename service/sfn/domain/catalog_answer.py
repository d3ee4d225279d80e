"""The answers of a catalog about one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from sfn.domain.events import EventHistory, ReportedChange
from sfn.domain.identifiers import Table
from sfn.domain.jobs import DeadLetterReason


@dataclass(frozen=True, slots=True)
class UnappliedChange:
    """A reported change that cannot be applied yet.

    Attributes:
        change: the change.
        reason: the reason of the dead letter; None if the change may still become applicable.
        detail: what is missing or wrong, for people.
    """

    change: ReportedChange
    reason: DeadLetterReason | None
    detail: str


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    """The events that an answer of an event-only catalog is made of.

    Attributes:
        history: the history to pass with the next request, together with newer events.
        unapplied: the changes that cannot be applied yet.
    """

    history: EventHistory
    unapplied: tuple[UnappliedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """The catalog has the table.

    Attributes:
        table: the table's current metadata.
        etag: the entity tag of this answer.
        applied: the applied events, in an event-only catalog.
    """

    table: Table
    etag: str | None = None
    applied: AppliedChanges | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NotModified:
    """The answer has not changed since the entity tag that was sent (RFC 9110, section 13.1.2).

    Attributes:
        applied: as in `Loaded`.
    """

    applied: AppliedChanges | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NoSuchTable:
    """The catalog answered, in Iceberg's own error format, that it has no such table.

    Attributes:
        applied: as in `Loaded`.
    """

    applied: AppliedChanges | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class StagedCreate:
    """The table exists without a metadata file (a staged create): it is neither present nor missing."""


LoadResult: TypeAlias = Loaded | NotModified | NoSuchTable | StagedCreate


@dataclass(frozen=True, slots=True)
class VendedCredential:
    """One entry of a table's `storage-credentials`, or the `config` of its load (REST specification,
    `LoadTableResult`).

    Attributes:
        prefix: the canonical location that the credential covers, with everything below it; "" for the table's
            location.
        config: settings by Iceberg's names, such as `s3.access-key-id`; contains secrets.
        expires_at: the end of validity; None if the catalog does not say.
    """

    prefix: str
    config: Mapping[str, str] = field(repr=False)
    expires_at: datetime | None = None
