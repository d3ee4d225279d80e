"""Jobs of the inbox: the leased job, the stored state of its table, and the outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, TypeAlias, assert_never

import msgspec

from sfn.domain.events import TableReport
from sfn.domain.identifiers import JobKey, Table, TableIdentifier, normal_uuid


class Priority(StrEnum):
    """The reason for which a job is claimed."""

    SHORT_LIVED = "short-lived"
    """An event about a table with metadata files that are soon deleted: first of all jobs."""
    LIVE = "live"
    """An event."""
    BACKGROUND = "chore"
    """Refresh, expiry and other checks that are due by time."""
    SWEEP = "sweep"
    """The job of a whole catalog."""


_EVENT_DRIVEN = frozenset({Priority.SHORT_LIVED, Priority.LIVE})


@dataclass(frozen=True, slots=True, order=True)
class ConcurrencyGroup:
    """Jobs that share a circuit breaker and a limit of concurrent leases.

    Attributes:
        catalog: the configured name of the catalog.
        store: scheme and authority of the table's location; "" until a location is known.
        priority: the priority of the jobs in this group.
    """

    catalog: str
    store: str
    priority: Priority

    @property
    def is_event_driven(self) -> bool:
        """True if events made the jobs of this group due."""
        return self.priority in _EVENT_DRIVEN


@dataclass(frozen=True, slots=True)
class Capacity:
    """The number of jobs that may still be claimed.

    Attributes:
        total: tables, over all groups.
        live: tables with an event; less than `total`, so that background jobs always have room.
        sweeps: catalogs.
        per_group: tables of one group, if a circuit breaker allows less.
        per_catalog: tables of one catalog, if other catalogs must have room too.
        short_lived: tables in short-lived groups; less than `live`, so that they never block all others. None: as many
            as `live`.
    """

    total: int
    live: int
    sweeps: int
    per_group: Mapping[ConcurrencyGroup, int] = field(default_factory=dict)
    per_catalog: Mapping[str, int] = field(default_factory=dict)
    short_lived: int | None = None

    @property
    def by_priority(self) -> Mapping[Priority, int]:
        """The free slots of all groups of a priority; those of short-lived groups are part of the live ones."""
        short_lived = self.live if self.short_lived is None else min(self.short_lived, self.live)
        return {
            Priority.SHORT_LIVED: short_lived,
            Priority.LIVE: self.live,
            Priority.BACKGROUND: self.total,
            Priority.SWEEP: self.sweeps,
        }

    def available_in(self, group: ConcurrencyGroup) -> int:
        """Return the free slots of a group."""
        most = self.by_priority[group.priority]
        if group.priority is not Priority.SWEEP:
            most = min(most, self.total, self.per_catalog.get(group.catalog, self.total))
        return max(0, min(most, self.per_group.get(group, self.total + self.sweeps)))


class StoredObject(msgspec.Struct, frozen=True):
    """A file as it was read or written.

    Attributes:
        body: the content.
        etag: the store's identifier of exactly this content (an entity tag, a generation, a digest).
    """

    body: bytes
    etag: str


class PublishCache(msgspec.Struct, frozen=True, omit_defaults=True):
    """The observations of the last publish. They are dropped on any failure and never needed.

    Attributes:
        table: the catalog's last answer, with its `etag`.
        objects: files by key; None for a file that does not exist.
        has_woken: a publish has settled since the last failure, and has woken the other jobs at all its places.
    """

    table: Table | None = None
    etag: str | None = None
    objects: Mapping[str, StoredObject | None] = msgspec.field(default_factory=dict)
    has_woken: bool = False


class PendingChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The coalesced notifications since the last settled publish.

    Attributes:
        min_metadata_location: the newest metadata location in them.
        renamed_to: the last new name.
        drop: a drop was reported.
        purge: the drop deletes the table's files.
        is_unspecific: at least one notification said no more than that the table may have changed.
        is_rechecked: the one extra check for an event that the answer does not show was made.
        force: ignore the cache; in the job of a catalog: the sweep reads the files of its tables.
        forced_since_claim: a notification with `force` came after the last claim.
        adopt_catalog_id: files with this `catalog_id` under the job's identifier count as the job's own.
        is_guessed: all notifications have `Notification.is_guessed`.
        is_relayed: all notifications came from another spelling of the name, and are not sent back there.
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
    forced_since_claim: bool = False


class PublishedPointer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pointer in a job's live file.

    Attributes:
        metadata_location: the metadata location.
        uuid: the table uuid, as `normal_uuid` spells it.
        location: the normalised table location of the file.
        written_at: `written_at` of the document.
        catalog_id: `catalog_id` of the document; None if it was not recorded.
        asked_at: `asked_at` of the document; None if it has none.
    """

    metadata_location: str
    uuid: str | None
    location: str
    written_at: datetime
    catalog_id: str | None = None
    asked_at: datetime | None = None

    @property
    def as_of(self) -> datetime:
        """The time by which the files of a table are ordered, as of the document."""
        return self.asked_at or self.written_at

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "uuid", normal_uuid(self.uuid))


class TableState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The durable state of a job's table, except for its locations.

    Attributes:
        live: the last published pointer that is still live; None before the first and after the end.
        has_settled: a publish has settled before.
        missing_since: when each of our table uuids was first missing from the catalog.
        on_hold: drops and backward steps wait for an operator.
        limit_overridden: an operator let the next such step pass.
        version_hints: the version hints that the listener wrote, by location.
        foreign_version_hint: the beginning of a foreign version hint at the table's place that differs from ours; it is
            not changed.
        renamed_to: the new name of the table, if its file says so.
        refresh_at: when the next refresh is due.
        misses: consecutive checks that found neither a table nor a file.
        reported: in an event-only catalog, the tables of the name. The inbox changes it with each event, and a publish
            never.
        foreign_catalog_id: the `catalog_id` of a foreign file at the table's own key; None without one.
        is_short_lived: the table's metadata files are soon deleted (`sfn.sfnfile.version_hint`).
        listed_as: the name under which the catalog last listed the table: the job's own name or another spelling of it.
            None if it is not known.
        older_files_at: encoded layouts at which other jobs had older files of the table that this job replaces or
            drops. Those files go first, even if their jobs have published another table elsewhere since.
    """

    live: PublishedPointer | None = None
    has_settled: bool = False
    missing_since: Mapping[str, datetime] = msgspec.field(default_factory=dict)
    on_hold: bool = False
    limit_overridden: bool = False
    version_hints: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    foreign_version_hint: str | None = None
    renamed_to: TableIdentifier | None = None
    refresh_at: datetime | None = None
    misses: int = 0
    reported: tuple[TableReport, ...] = ()
    foreign_catalog_id: str | None = None
    is_short_lived: bool = False
    listed_as: TableIdentifier | None = None
    older_files_at: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A job leased to this worker.

    Attributes:
        subject: the table, or the catalog to sweep.
        group: the concurrency group that the job was claimed from.
        fencing_token: the number of the lease; a later claim of the job has another one.
        version: the job's version at the claim: a later one means that something newer came.
        attempt: the number of this attempt, from 1; counted durably at its start.
        failing_since: the first of the current failures in a row, or the time of the claim.
        pending: the coalesced notifications.
        locations: all places where files of this name may lie, each as `sfn.sfnfile.naming.FileLayout.encoded`.
        table_state: the durable state.
        cache: the cache of the last publish.
        swept_at: the start of the last complete sweep of the catalog; None if the table's namespace could not be
            listed.
        traces: the traces of the notifications, see `sfn.inbox.model.Job`.
    """

    subject: JobKey
    group: ConcurrencyGroup
    fencing_token: int
    version: int
    attempt: int
    failing_since: datetime
    pending: PendingChange = PendingChange()
    locations: frozenset[str] = frozenset()
    table_state: TableState = TableState()
    cache: PublishCache = PublishCache()
    swept_at: datetime | None = None
    traces: tuple[bytes, ...] = ()


class DeadLetterReason(StrEnum):
    """The reason of a dead letter.

    held-drop         the drop limit holds a drop or a rollback
    foreign-catalog   the file belongs to the same identifier of another catalog
    foreign-file      a file that is not provably ours lies at the table's key
    location-refused  no file may be written to the location, or point into it
    permanent         the publish fails until somebody changes something
    exhausted         all attempts are used up
    poison            the process ended during the job, or failed by a defect of its own, again and again
    undecodable       no event format could decode the request
    """

    HELD_DROP = "held-drop"
    FOREIGN_CATALOG = "foreign-catalog"
    FOREIGN_FILE = "foreign-file"
    LOCATION_REFUSED = "location-refused"
    PERMANENT = "permanent"
    EXHAUSTED = "exhausted"
    POISON = "poison"
    UNDECODABLE = "undecodable"

    @property
    def has_outside_cause(self) -> bool:
        """True if the cause is outside the table: a notification makes such a job due without a pause."""
        return self in _OUTSIDE_CAUSES


_OUTSIDE_CAUSES = frozenset(
    {
        DeadLetterReason.HELD_DROP,
        DeadLetterReason.FOREIGN_CATALOG,
        DeadLetterReason.FOREIGN_FILE,
        DeadLetterReason.LOCATION_REFUSED,
    }
)


class FailureCause(StrEnum):
    """The cause of an attempt that neither settled its job nor gave it up.

    table                     a failure of this table alone
    catalog, store, inbox     a failure that affects more tables
    process                   this process lacks descriptors, threads or memory
    defect                    an unexpected error
    stop                      the service stops
    """

    TABLE = "table"
    CATALOG = "catalog"
    STORE = "store"
    INBOX = "inbox"
    PROCESS = "process"
    DEFECT = "defect"
    STOP = "stop"


class StepKind(StrEnum):
    """A step that the drop limit counts."""

    DROP = "drop"
    OLDER = "older"


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """One step for which the drop limit is asked.

    Attributes:
        kind: a drop, or a rollback to an older metadata file of the same table.
        uuid: the table's uuid.
        metadata_location: the metadata location that is dropped or rolled back to.
    """

    kind: StepKind
    uuid: str | None
    metadata_location: str


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Another job to wake, because of an observation here. By itself it says nothing about that table.

    Attributes:
        table: the name of the job; the job is created if there is none.
        location: the encoded layout where a file under that name was seen, to be recorded with the job.
        min_metadata_location: the catalog's metadata location of the table, as answered under another spelling of the
            name.
        drop, purge, renamed_to: an event of a drop or a rename under another spelling of the name, see `Notification`.
    """

    table: TableIdentifier
    location: str | None = None
    min_metadata_location: str | None = None
    drop: bool = False
    purge: bool = False
    renamed_to: TableIdentifier | None = None

    @property
    def counts_as_event(self) -> bool:
        """True if the wakeup must be handled like an event of the table."""
        return self.min_metadata_location is not None or self.drop or self.renamed_to is not None


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The result of a publish, settled in one transaction with its outcome.

    Attributes:
        table_state: the new state.
        cache: the new cache.
        wakeups: jobs to wake.
        wake_locations: locations; the other jobs there are woken.
        vacated: those of the job's `locations` where none of our files remains.
        written_keys: the files written or deleted, in order.
        not_before: the earliest start of the next publish, whatever notifications arrive.
    """

    table_state: TableState = TableState()
    cache: PublishCache = PublishCache()
    wakeups: tuple[Wakeup, ...] = ()
    wake_locations: frozenset[str] = frozenset()
    vacated: frozenset[str] = frozenset()
    written_keys: tuple[str, ...] = ()
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The job is complete.

    Attributes:
        due_at: when the next check is due without an event.
        result: the result to settle.
        forget: the job is not needed any more and may be deleted.
    """

    label: ClassVar[str] = "done"
    """The outcome's name in logs, metrics and answers."""

    due_at: datetime
    result: PublishResult = PublishResult()
    forget: bool = False


@dataclass(frozen=True, slots=True)
class SweepCompleted:
    """A sweep of a catalog is complete.

    Attributes:
        due_at: when the next sweep is due.
        started_at: when this sweep began.
        within_limit: the sweep found no more missing tables than the drop limit allows.
        tables: the number of tables checked.
        differing: the number of tables that differ from what was published or are missing, including held ones.
        unlisted_namespaces: namespaces that could not be listed, dotted; their tables, and those below, were not swept.
    """

    label: ClassVar[str] = "swept"

    due_at: datetime
    started_at: datetime
    within_limit: bool
    tables: int = 0
    differing: int = 0
    unlisted_namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """The files are right as far as is known; the job is checked again later.

    Attributes:
        at: the time of the next check.
        why: what the job waits for, for people.
        pending: the change that stays pending, unless newer notifications came.
        result: the result to settle.
    """

    label: ClassVar[str] = "rescheduled"

    at: datetime
    why: str
    pending: PendingChange = PendingChange()
    result: PublishResult = PublishResult()


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed because of the table itself, and counts."""

    label: ClassVar[str] = "retry"

    at: datetime
    error: str
    cause: FailureCause = FailureCause.TABLE


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The job becomes a dead letter: no further attempt until a new event, an operator's action, or `recheck_at`.

    Attributes:
        reason: the reason.
        detail: what happened and what to do, for people.
        result: the result to settle; None leaves the state as it was.
        recheck_at: when the job is checked again anyway; None for a job that waits for an operator.
    """

    label: ClassVar[str] = "dead"

    reason: DeadLetterReason
    detail: str
    result: PublishResult | None = None
    recheck_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """The job is given back unfinished (trouble of its group, a shutdown): the attempt does not count."""

    label: ClassVar[str] = "returned"

    at: datetime
    why: str
    cause: FailureCause = FailureCause.STOP


Outcome: TypeAlias = Done | SweepCompleted | Rescheduled | Retry | DeadLettered | Returned


def describe(outcome: Outcome) -> tuple[str, str | None]:
    """Return an outcome's name, and the reason if the job is not simply done."""
    name = outcome.label
    match outcome:
        case Done():
            return name, None
        case SweepCompleted(within_limit=within_limit):
            return (
                name,
                None if within_limit else "more tables are missing than the drop limit allows: they are held",
            )
        case Rescheduled(why=why) | Returned(why=why):
            return name, why
        case Retry(error=error):
            return name, error
        case DeadLettered(detail=detail):
            return name, detail
    assert_never(outcome)


@dataclass(frozen=True, slots=True)
class IndexedTable:
    """An entry of the index of all tables.

    Attributes:
        table: the table's name.
        live: the last published pointer, if one is live.
        etag: the entity tag of the catalog's last answer.
        reason: the reason of the job's open dead letter; None without one.
        min_metadata_location: `PendingChange.min_metadata_location` of the job; None without a pending change. As long
            as the catalog still answers it, a sweep has nothing new for a dead-lettered job.
        foreign_catalog_id: see `TableState`.
        adopt_catalog_id: see `PendingChange`.
        missing_uuids: our table uuids that are missing from the catalog.
        is_renamed: see `sfn.inbox.catalogs.NamedTable`.
    """

    table: TableIdentifier
    live: PublishedPointer | None
    etag: str | None
    reason: DeadLetterReason | None = None
    min_metadata_location: str | None = None
    foreign_catalog_id: str | None = None
    adopt_catalog_id: str | None = None
    missing_uuids: frozenset[str] = frozenset()
    is_renamed: bool = False

    @property
    def is_on_hold(self) -> bool:
        """True if the drop limit holds a step of the table."""
        return self.reason is DeadLetterReason.HELD_DROP

    @property
    def catalog_id_in_file(self) -> str | None:
        """The `catalog_id` in the file at the table's key, ours or not; None if there is none or it is not known."""
        return self.live.catalog_id if self.live is not None else self.foreign_catalog_id

    @property
    def is_stuck(self) -> bool:
        """True if the job waits for an operator or for many hours. No other job and no sweep waits for it."""
        return self.reason in {DeadLetterReason.HELD_DROP, DeadLetterReason.POISON}
