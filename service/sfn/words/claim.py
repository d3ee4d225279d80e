"""One piece of work, as the inbox hands it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sfn.words.table import JobKey, Table, TableIdentifier, normal_uuid
from sfn.words.told import EventHistory, ReportedChange


class Priority(StrEnum):
    """What a row is claimed for."""

    SHORT_LIVED = "short-lived"
    """Something told of a change of a table whose metadata files are soon deleted: it goes before all others."""
    LIVE = "live"
    """Something told of a change."""
    BACKGROUND = "chore"
    """Refresh, expiry and other looks that only time asked for."""
    SWEEP = "sweep"
    """The row of a whole catalog."""


_EVENT_DRIVEN = frozenset({Priority.SHORT_LIVED, Priority.LIVE})


@dataclass(frozen=True, slots=True, order=True)
class ConcurrencyGroup:
    """What shares a breaker and a number of slots.

    Attributes:
        catalog: the catalog's configured name.
        store: scheme and authority of the table's location; "" until one is remembered.
        priority: what the rows of this lane are claimed for.
    """

    catalog: str
    store: str
    priority: Priority

    @property
    def is_event_driven(self) -> bool:
        """Whether something told of a change of its rows."""
        return self.priority in _EVENT_DRIVEN


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many rows may still be claimed.

    Attributes:
        total: tables, over all lanes.
        live: tables that something told of, less than `total` so that chores always have room.
        sweeps: catalogs.
        per_group: tables of one lane, where a breaker says less.
        per_catalog: tables of one catalog, where others must have room beside it.
        short_lived: tables in short-lived lanes, less than `live` so that they never hold up all others; None: as many.
    """

    total: int
    live: int
    sweeps: int
    per_group: Mapping[ConcurrencyGroup, int] = field(default_factory=dict)
    per_catalog: Mapping[str, int] = field(default_factory=dict)
    short_lived: int | None = None

    @property
    def by_priority(self) -> Mapping[Priority, int]:
        """The free slots of all lanes of an urgency; of one that goes first, within those of live lanes."""
        short_lived = self.live if self.short_lived is None else min(self.short_lived, self.live)
        return {
            Priority.SHORT_LIVED: short_lived,
            Priority.LIVE: self.live,
            Priority.BACKGROUND: self.total,
            Priority.SWEEP: self.sweeps,
        }

    def available_in(self, group: ConcurrencyGroup) -> int:
        """The free slots of a lane."""
        most = self.by_priority[group.priority]
        if group.priority is not Priority.SWEEP:
            most = min(most, self.total, self.per_catalog.get(group.catalog, self.total))
        return max(0, min(most, self.per_group.get(group, self.total + self.sweeps)))


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A file as it was read or written.

    Attributes:
        body: its content.
        etag: the store's word for exactly this content (an entity tag, a generation, a digest).
    """

    body: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class PublishCache:
    """What the last publish saw: a cache, dropped on any failure and never needed.

    Attributes:
        table: what the catalog last answered, with its `etag`.
        objects: files by key, None for one that was not there.
    """

    table: Table | None = None
    etag: str | None = None
    objects: Mapping[str, StoredObject | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PendingChange:
    """What the hints since the last settled publish said, coalesced.

    Attributes:
        min_metadata_location: the highest metadata location told of.
        renamed_to: the last new name told of.
        drop: a drop was told of.
        purge: its files were to be deleted.
        is_unspecific: some hint said no more than "look".
        is_rechecked: the one more look that a hint gets which the answer does not show was taken.
        force: nothing remembered may be trusted.
        adopt_catalog_id: files of that `catalog_id` under the row's identifier count as the row's own.
        is_guessed: every hint was `Notification.guessed`.
        is_relayed: every hint came from another spelling of the name, which must not have it back.
        reported_changes: of a catalog that can't be asked: what the events said, at most
            `sfn.inbox.tellings.MAX_REPORTED_CHANGES`.
    """

    min_metadata_location: str | None = None
    renamed_to: TableIdentifier | None = None
    drop: bool = False
    purge: bool = False
    is_unspecific: bool = False
    is_rechecked: bool = False
    force: bool = False
    adopt_catalog_id: str | None = None
    is_guessed: bool = False
    is_relayed: bool = False
    reported_changes: tuple[ReportedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedPointer:
    """The pointer that a row's live file last got.

    Attributes:
        metadata_location: metadata location.
        uuid: table uuid, as `normal_uuid` spells it.
        location: normalised table location where the file lies.
        written_at: the document's `written_at`.
        catalog_id: the document's; None for one of which it was not noted.
    """

    metadata_location: str
    uuid: str | None
    location: str
    written_at: datetime
    catalog_id: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "uuid", normal_uuid(self.uuid))


@dataclass(frozen=True, slots=True)
class TableState:
    """What is durably known about a row's table, beside its locations.

    Attributes:
        live: the pointer last published that is still live; None before the first and after the end.
        has_settled: a publish has settled before.
        missing_since: when each table uuid of ours was first seen missing from the catalog.
        on_hold: absence and backward steps wait for an operator.
        limit_overridden: an operator let the next such step pass.
        version_hints: contents of the version hint that we wrote, by location.
        foreign_version_hint: the beginning of the version hint at the table's place, where it is somebody else's and
            says something else than ours would: it is left alone.
        renamed_to: the name that the table went on under, where its file says so.
        refresh_at: when all of it is looked at anew.
        misses: looks in a row that found neither a table nor a file.
        event_history: of a catalog that can't be asked: what is known of the name's tables.
        foreign_catalog_id: the `catalog_id` of the file that lies where the table's own would; None where none does.
        is_short_lived: its metadata files are soon deleted (`sfn.pointer.retention`).
        listed_as: the name under which the catalog listed the table when that was last asked: the row's own, or another
            spelling of that. None where it is not known.
        older_files_at: texts of sites where other rows had older files of what the row is to replace or to drop;
            those go first, also once their rows have published another table elsewhere.
    """

    live: PublishedPointer | None = None
    has_settled: bool = False
    missing_since: Mapping[str, datetime] = field(default_factory=dict)
    on_hold: bool = False
    limit_overridden: bool = False
    version_hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    foreign_version_hint: str | None = None
    renamed_to: TableIdentifier | None = None
    refresh_at: datetime | None = None
    misses: int = 0
    event_history: EventHistory | None = None
    foreign_catalog_id: str | None = None
    is_short_lived: bool = False
    listed_as: TableIdentifier | None = None
    older_files_at: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A row leased to this worker.

    Attributes:
        subject: the table, or the catalog to sweep.
        group: the lane that it was claimed from.
        fencing_token: fences the lease: a later claim of the row has another one.
        notified_seq: number of the newest hint that the row had when it was claimed.
        attempt: which attempt this is, from 1; counted durably when it started.
        failing_since: when the row first failed in a row of failures, or when it was claimed.
        pending: what the hints said.
        locations: every place where files of this name may lie, each as the text of a `sfn.pointer.site.FileLayout`.
        table_state: what is durably known.
        cache: what is remembered.
        swept_at: when the last complete sweep of the catalog began; None where it could not list the table's namespace.
    """

    subject: JobKey
    group: ConcurrencyGroup
    fencing_token: int
    notified_seq: int
    attempt: int
    failing_since: datetime
    pending: PendingChange = PendingChange()
    locations: frozenset[str] = frozenset()
    table_state: TableState = TableState()
    cache: PublishCache = PublishCache()
    swept_at: datetime | None = None
