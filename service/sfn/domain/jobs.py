"""One piece of work, as the inbox hands it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, TypeAlias, assert_never

from sfn.domain.events import EventHistory, ReportedChange
from sfn.domain.identifiers import JobKey, Table, TableIdentifier, normal_uuid

# ── claim: One piece of work


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
            `sfn.inbox.transitions.MAX_REPORTED_CHANGES`.
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
        is_short_lived: its metadata files are soon deleted (`sfn.sfnfile.version_hint`).
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
        locations: every place where files of this name may lie, each as the text of a `sfn.sfnfile.naming.FileLayout`.
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


# ── outcome: What became of a piece of work


class DeadLetterReason(StrEnum):
    """Why something is a dead letter.

    held-drop         the brake holds a drop or a step back
    foreign-catalog   the file belongs to the same identifier of another catalog
    foreign-file      a file that cannot be told to be ours lies in its place
    location-refused  no file may be written to its location, or point into it
    permanent         it will not work until somebody changes something
    exhausted         the budget of its attempts is spent
    poison            the process ended beside it, or failed by an error of its own, time and again
    undecodable       a request that nobody understood
    """

    HELD_DROP = "held-drop"
    FOREIGN_CATALOG = "foreign-catalog"
    FOREIGN_FILE = "foreign-file"
    LOCATION_REFUSED = "location-refused"
    PERMANENT = "permanent"
    EXHAUSTED = "exhausted"
    POISON = "poison"
    UNDECODABLE = "undecodable"


class FailureCause(StrEnum):
    """Why an attempt ended that neither saw its row through nor gave it up.

    table                     the table's own trouble
    catalog, store, inbox     trouble that reaches further
    process                   this process lacks descriptors, threads or memory
    defect                    an error that nobody expected
    stop                      the service ends
    """

    TABLE = "table"
    CATALOG = "catalog"
    STORE = "store"
    INBOX = "inbox"
    PROCESS = "process"
    DEFECT = "defect"
    STOP = "stop"


class StepKind(StrEnum):
    """A step that the brake counts."""

    DROP = "drop"
    OLDER = "older"


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """One step that asks the brake's leave.

    Attributes:
        kind: a drop, or an older pointer of the same table.
        uuid: the table's uuid.
        metadata_location: the pointer that is given up or stepped back to.
    """

    kind: StepKind
    uuid: str | None
    metadata_location: str


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Another row that should look, because of what was seen here. Alone it says nothing about the table itself.

    Attributes:
        table: whose row; it is made where there is none.
        location: the text of the site where a file under that name was seen, to be remembered.
        min_metadata_location: the catalog's pointer of the table, as it answered under another spelling of the name.
        drop, purge, renamed_to: an event of a drop or a rename had another spelling of the name, see `Notification`.
    """

    table: TableIdentifier
    location: str | None = None
    min_metadata_location: str | None = None
    drop: bool = False
    purge: bool = False
    renamed_to: TableIdentifier | None = None

    @property
    def counts_as_event(self) -> bool:
        """Whether it has to be followed like an event of the table."""
        return self.min_metadata_location is not None or self.drop or self.renamed_to is not None


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What a publish leaves behind, settled in one transaction with its outcome.

    Attributes:
        table_state: what is known now.
        cache: what to remember.
        wakeups: other rows that should look.
        wake_locations: locations whose other rows should look.
        vacated: those of the row's `locations` where none of our files lies any more.
        written_keys: the files written or deleted, in order.
        not_before: no publish of the row may start earlier, whatever hints come.
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
    """All is as it should be.

    Attributes:
        due_at: when to look again of our own accord.
        result: what else there is to settle.
        forget: the row has nothing left to say and may go.
    """

    label: ClassVar[str] = "done"
    """Its name in logs, metrics and answers."""

    due_at: datetime
    result: PublishResult = PublishResult()
    forget: bool = False


@dataclass(frozen=True, slots=True)
class SweepCompleted:
    """A catalog's row: one sweep is complete.

    Attributes:
        due_at: when to sweep again.
        started_at: when this one began.
        within_limit: it found no more absences than the brake allows.
        tables: how many were looked at.
        differing: how many differ from what was published or are gone; those that the brake holds as well.
        unlisted_namespaces: namespaces that could not be listed, dotted: for their tables, and those below, there
            was no sweep.
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
    """Right as far as can be told; look again then.

    Attributes:
        at: when.
        why: what is waited for, in words.
        pending: what stays open of the wish, unless newer hints came.
        result: what else there is to settle.
    """

    label: ClassVar[str] = "rescheduled"

    at: datetime
    why: str
    pending: PendingChange = PendingChange()
    result: PublishResult = PublishResult()


@dataclass(frozen=True, slots=True)
class Retry:
    """The table's own trouble: the attempt counts."""

    label: ClassVar[str] = "retry"

    at: datetime
    error: str
    cause: FailureCause = FailureCause.TABLE


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """A dead letter: nothing more is tried until a new event, an operator, or `recheck_at`.

    Attributes:
        reason: which kind.
        detail: what happened and what to do, for a person.
        result: what else there is to settle; None leaves what is known as it was.
        recheck_at: when it is looked at again all the same; None for a row that waits for an operator.
    """

    label: ClassVar[str] = "dead"

    reason: DeadLetterReason
    detail: str
    result: PublishResult | None = None
    recheck_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """Given back unfinished (a lane's trouble, a shutdown): the attempt does not count."""

    label: ClassVar[str] = "returned"

    at: datetime
    why: str
    cause: FailureCause = FailureCause.STOP


Outcome: TypeAlias = Done | SweepCompleted | Rescheduled | Retry | DeadLettered | Returned


def describe(outcome: Outcome) -> tuple[str, str | None]:
    """An outcome's name, and why it is not simply done, in words."""
    name = outcome.label
    match outcome:
        case Done():
            return name, None
        case SweepCompleted(within_limit=calm):
            return name, None if calm else "more absences than the brake lets pass: they are held"
        case Rescheduled(why=why) | Returned(why=why):
            return name, why
        case Retry(error=error):
            return name, error
        case DeadLettered(detail=detail):
            return name, detail
    assert_never(outcome)


# ── roster: What is known of all tables


@dataclass(frozen=True, slots=True)
class IndexedTable:
    """A row of the roster.

    Attributes:
        table: its name.
        live: the pointer last published, if one is live.
        etag: entity tag of the catalog's last answer.
        reason: why the row has an open dead letter, None without one.
        min_metadata_location: `PendingChange.floor` of the row, None while no wish is open. While the catalog still
            answers it, a sweep has no news for a row that was given up.
        foreign_catalog_id: see `Story`.
        adopt_catalog_id: see `PendingChange`.
        missing_uuids: uuids of tables of ours that the row misses.
        is_renamed: see `sfn.inbox.statistics.NamedTable`.
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
        """Whether the brake holds a step of it."""
        return self.reason is DeadLetterReason.HELD_DROP

    @property
    def catalog_id_in_file(self) -> str | None:
        """The `catalog_id` in the file at the table's place, ours or not; None where there is none, or nobody knows."""
        return self.live.catalog_id if self.live is not None else self.foreign_catalog_id

    @property
    def is_stuck(self) -> bool:
        """Whether an operator must look first, or many hours pass: nobody waits for it, and no sweep tells it more."""
        return self.reason in {DeadLetterReason.HELD_DROP, DeadLetterReason.POISON}
