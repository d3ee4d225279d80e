"""Storage credentials that a catalog vends for one table: kept in memory, never logged, never stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


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
