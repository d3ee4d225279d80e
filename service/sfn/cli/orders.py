"""What the service's admin routes are sent."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, field


class Filter(Struct, frozen=True, omit_defaults=True):
    """Which dead letters are meant; None for any. Opened before one moment, and at another or later."""

    catalog: str | None = None
    table: str | None = None
    reason: str | None = None
    sender: str | None = None
    before: datetime | None = None
    since: datetime | None = None


class Batch(Struct, frozen=True, omit_defaults=True):
    """A request to replay or discard: of `ids`, or what `filter` covers above the id `after`."""

    ids: list[int] | None = None
    filter: Filter | None = None
    after: int | None = None
    limit: int | None = None


class Adoption(Struct, frozen=True):
    """A request to take over files of another catalog id; `tables` None for all of the catalog."""

    source: str = field(name="from")
    tables: list[str] | None
    force: bool = False
