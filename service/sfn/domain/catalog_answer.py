"""The answers of a catalog about one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from sfn.domain.identifiers import Table


@dataclass(frozen=True, slots=True)
class Loaded:
    """The catalog has the table.

    Attributes:
        table: the table's current metadata.
        etag: the entity tag of this answer.
    """

    table: Table
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class NotModified:
    """The answer has not changed since the entity tag that was sent (RFC 9110, section 13.1.2)."""


@dataclass(frozen=True, slots=True)
class NoSuchTable:
    """The catalog answered, in Iceberg's own error format, that it has no such table."""


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
