"""Port to the database: the operations of one transaction. `tables` implements the port in SQL.

Each statement sees what others committed before the statement, not before the transaction (READ COMMITTED), so a
transaction locks what must not change between two statements. To avoid deadlocks, all transactions lock in one order:

    locations, by number      `IndexStore.lock_locations`
    intents, by id and key    `OpenIntentStore.close`, `get` and `open`
    jobs, by key              `JobStore.get` with `Locking.WAIT`, once
    events, by their ids      `EventStore.log`
    new jobs, by key          `JobStore.save`
    letters, catalogs         the rest

`Locking.SKIP` and `OpenIntentStore.due` never wait. A claim locks intents first and jobs afterwards, so it may only
wait for a transaction that inserts the same job; and a transaction that waits for its intents has not locked a job yet.

If two transactions wait for each other nevertheless, the database ends one of them, and that one is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import ConcurrencyGroup, IndexedTable, PublishCache
from sfn.inbox.intents import DueRange, IntentChange, OpenIntent, OpenIntentStats
from sfn.inbox.model import (
    AdminCommand,
    AuditEntry,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterStatus,
    Job,
    LastEvent,
    LastSweep,
    NewDeadLetter,
)
from sfn.inbox.statistics import MissingTableStats, NamedTable


class Locking(StrEnum):
    """Locking of jobs that are read. No other transaction changes a locked job until this transaction ends."""

    NONE = ""
    """Read without a lock."""
    WAIT = "FOR UPDATE"
    """Lock, and wait for jobs that another transaction has."""
    SKIP = "FOR UPDATE SKIP LOCKED"
    """Lock, and leave out jobs that another transaction has."""


class RetryTransaction(Exception):
    """A request to roll back and retry the transaction, after a conflict or because a lock is missing."""


class JobChange(NamedTuple):
    """A change of a job.

    Attributes:
        before: the job as it was read; None if it did not exist.
        after: the job after the transaction; None to delete it.
    """

    before: Job | None
    after: Job | None


class LoggedEvent(NamedTuple):
    """A logged event.

    Attributes:
        seq: number of the event.
        notification: the notification.
        received: time of the put.
    """

    seq: int
    notification: Notification
    received: datetime


class LoadedJobs(NamedTuple):
    """Jobs that were read, without their caches, and numbers that were drawn afterwards.

    Attributes:
        rows: the existing jobs.
        numbers: ascending, each greater than all that any transaction drew before the rows were locked.
    """

    rows: dict[JobKey, Job]
    numbers: Sequence[int] = ()


class Overdue(NamedTuple):
    """Expired leases.

    Attributes:
        rows: the jobs, without their caches.
        next: when the next lease expires.
    """

    rows: list[Job]
    next: datetime | None


class Waiting(NamedTuple):
    """The due time of a queued job."""

    subject: JobKey
    due_at: datetime


class Due(NamedTuple):
    """A due job, without its cache, and a number that was drawn afterwards, as in `LoadedJobs`."""

    row: Job
    number: int


class TableLocation(NamedTuple):
    """A location of tables of a catalog."""

    catalog: str
    location: str


class JobStore(Protocol):
    """The jobs."""

    async def get(self, subjects: Collection[JobKey], locking: Locking, numbers: int = 0) -> LoadedJobs:
        """Return the existing ones of these jobs, and that many new numbers."""
        ...

    async def memos(self, subjects: Collection[JobKey]) -> dict[JobKey, PublishCache]:
        """Return the non-empty caches of jobs; only the cache of a locked job is sure to belong to the read job."""
        ...

    async def overdue(self, now: datetime, most: int, locking: Locking) -> Overdue:
        """Return at most `most` jobs with an expired lease."""
        ...

    async def queues(self, most: Callable[[ConcurrencyGroup], int]) -> dict[ConcurrencyGroup, list[Waiting]]:
        """Return all concurrency groups that ever had a job, with their first queued jobs by due time, not locked."""
        ...

    async def due(
        self, most: Mapping[ConcurrencyGroup, int], now: datetime, locking: Locking
    ) -> dict[ConcurrencyGroup, list[Due]]:
        """Return, by concurrency group, at most that many due jobs, by due time."""
        ...

    async def save(self, changes: Sequence[JobChange]) -> None:
        """Write changes of jobs that are locked or do not exist.

        A cache is written if it differs before and after, so a change that may drop a cache must have read it.

        Raises:
            RetryTransaction: another transaction inserted a missing job meanwhile.
        """
        ...


class EventStore(Protocol):
    """The log of events."""

    async def log(self, entries: Sequence[LoggedEvent]) -> Collection[int]:
        """Log events; return the numbers of the new ones, by sender and event id."""
        ...

    async def last(self, seq: int) -> LastEvent | None:
        """Return the event with a number; None if there is none."""
        ...

    async def prune(self, before: datetime, most: int) -> int:
        """Delete at most `most` of the oldest events from before a time; return their number."""
        ...


@dataclass(frozen=True, slots=True)
class IntentQuery:
    """A query for what is needed to apply messages about intents.

    Attributes:
        ids: ids of the open intents to read.
        known: subjects to check for a job.
        unresolved: subjects to check for unresolved intents.
        peers: peers to count the unknown tables of.
    """

    ids: Collection[str]
    known: Collection[JobKey]
    unresolved: Collection[JobKey]
    peers: Collection[str]


@dataclass(slots=True)
class FoundIntents:
    """The result of an `IntentQuery`; nothing is locked.

    Attributes:
        rows: open intents.
        known: subjects that have a job.
        unresolved_since: by subject, when its newest unresolved intent became unresolved.
        unknown_tables: by peer, the number of its intents for unknown tables.
    """

    rows: list[OpenIntent] = field(default_factory=list)
    known: set[JobKey] = field(default_factory=set)
    unresolved_since: dict[JobKey, datetime] = field(default_factory=dict)
    unknown_tables: dict[str, int] = field(default_factory=dict)


class DeadLetterStore(Protocol):
    """The dead letters, and the audit log."""

    async def open(self, letters: Sequence[tuple[NewDeadLetter, datetime]]) -> None:
        """Open one letter per subject, or update its open letter; the jobs of the subjects are locked."""
        ...

    async def keep(self, notes: Sequence[tuple[UndecodableRequest, datetime]]) -> None:
        """Open letters of undecodable requests; delete the oldest letters of a sender with too many."""
        ...

    async def close(
        self, subjects: Mapping[JobKey, datetime], status: DeadLetterStatus, actor: str | None = None
    ) -> None:
        """Close the open letters of subjects at the given times; the jobs of the subjects are locked."""
        ...

    async def end(
        self, numbers: Collection[int], status: DeadLetterStatus, now: datetime, actor: str
    ) -> list[JobKey | None]:
        """Close the open ones of these letters; return their subjects, by id."""
        ...

    async def list_after(self, letter_filter: DeadLetterFilter, after: int, limit: int) -> list[DeadLetter]:
        """Return the dead letters above the id `after`, by id, at most `limit`."""
        ...

    async def list_newest(self, letter_filter: DeadLetterFilter, limit: int) -> list[DeadLetter]:
        """Return the newest dead letters first, at most `limit`."""
        ...

    async def get_many(self, ids: Collection[int]) -> list[DeadLetter]:
        """Return the dead letters with these ids, by id."""
        ...

    async def request_of(self, letter_id: int) -> UndecodableRequest | None:
        """Return the request that the dead letter is about; None if it is about none."""
        ...

    async def counts(self) -> Mapping[tuple[str, str], int]: ...

    async def oldest(self) -> Mapping[str, datetime]:
        """Return the opening time of the oldest open letter by catalog, without held drops, which wait on purpose."""
        ...

    async def prune(self, before: datetime, most: int) -> int:
        """Delete at most `most` letters that were closed before a time; return their number."""
        ...

    async def note(self, action: str, order: AdminCommand, count: int) -> int:
        """Add a command to the audit log, and delete very old entries; return the id of the entry."""
        ...

    async def recount(self, entry: int, count: int) -> None:
        """Update the count of an entry in the audit log."""
        ...

    async def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        """Return the newest entries of the audit log below the id `before`, at most `limit`."""
        ...


class CatalogStore(Protocol):
    """The state of whole catalogs."""

    async def lock(self, catalog: str) -> None:
        """Lock the catalog's drop limit until the transaction ends."""
        ...

    async def tripped(self) -> frozenset[str]:
        """Return the catalogs in which no further step is allowed."""
        ...

    async def trip(self, catalog: str, *, tripped: bool) -> None:
        """Record whether a catalog allows no further step."""
        ...

    async def has_step(self, catalog: str, text: str, since: datetime) -> bool:
        """Return whether a step was allowed after a time."""
        ...

    async def count_steps(self, catalog: str, since: datetime) -> int:
        """Return how many steps were allowed after a time."""
        ...

    async def drops(self, catalog: str, since: datetime) -> list[NamedTable]:
        """Return the drops that were allowed after a time."""
        ...

    async def add_step(self, catalog: str, step: str, now: datetime, drop: NamedTable | None) -> None:
        """Record an allowed step, and the table that the step drops."""
        ...

    async def forget_steps(self, catalog: str, until: datetime | None = None) -> None:
        """Forget the steps that were allowed until a time; all steps for None."""
        ...

    async def swept_at(self, catalogs: Collection[str]) -> dict[str, LastSweep]:
        """Return the last complete sweep, by catalog."""
        ...

    async def note_sweep(self, catalog: str, sweep: LastSweep) -> None:
        """Record a complete sweep."""
        ...

    async def retire(self, catalog: str, *, retired: bool) -> None:
        """Record whether a catalog is retired: its tables get no files any more."""
        ...

    async def retired_catalogs(self) -> frozenset[str]: ...

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        """Record the `catalog_id` for which files are written."""
        ...

    async def owner_id(self, catalog: str) -> str | None:
        """Return the recorded `catalog_id`; None if there is none."""
        ...


class OpenIntentStore(Protocol):
    """The open intents. No other transaction changes a locked one until this transaction ends."""

    async def span(self) -> DueRange:
        """Return when the intents are due, without a lock."""
        ...

    async def due(self, now: datetime, most: int) -> list[OpenIntent]:
        """Lock and return at most `most` due intents, the oldest first; skip those that another transaction has."""
        ...

    async def close(self, ids: Collection[str]) -> None:
        """Delete the intents with these ids that are not unresolved; wait for those that another transaction has."""
        ...

    async def get(self, ids: Collection[str]) -> list[OpenIntent]:
        """Lock and return the intents with these ids; wait for those that another transaction has."""
        ...

    async def find(self, sought: IntentQuery) -> FoundIntents:
        """Return the state that new messages depend on."""
        ...

    async def open(self, rows: Sequence[OpenIntent]) -> None:
        """Insert missing intents; an existing one for a whole catalog gets the new times, but is never due later."""
        ...

    async def save(self, changes: Sequence[IntentChange]) -> None:
        """Write changes of locked intents."""
        ...

    async def counts(self) -> Mapping[str, OpenIntentStats]:
        """Return the statistics of open intents, by catalog; reads every intent."""
        ...

    async def of(self, subject: JobKey) -> OpenIntentStats | None:
        """Return the statistics of the open intents of a subject; None without any."""
        ...


class IndexStore(Protocol):
    """The table index: queries over the jobs of all tables, without locks."""

    async def lock_locations(self, places: Iterable[TableLocation]) -> None:
        """Lock locations until the transaction ends, before anything else is locked.

        A transaction that adds a table to a location, and one that notifies all tables of a free location, must see
        each other's changes.
        """
        ...

    async def known(self, catalog: str, after: str, limit: int) -> list[tuple[str, IndexedTable]]:
        """Return a page of a catalog's tables, each with a key; the next page starts `after` the last key."""
        ...

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        """Return the tables with this uuid in their live file, by name."""
        ...

    async def live_at(self, place: TableLocation) -> dict[TableIdentifier, str | None]:
        """Return the tables with a live file at a location, each with its uuid."""
        ...

    async def visitors(self, places: Iterable[TableLocation]) -> list[TableIdentifier]:
        """Return the tables that may have a file at one of these locations, live or not, by name."""
        ...

    async def live_count(self, catalog: str, most: int | None = None) -> int:
        """Return how many tables have a live file, at most `most`, because counting many tables takes long.

        An old name of a renamed table is no table of its own, see `sfn.inbox.statistics`.
        """
        ...

    async def without_file(self, subjects: Collection[JobKey]) -> int:
        """Return how many of these have no job with a live file."""
        ...

    async def missing(self) -> Mapping[str, MissingTableStats]:
        """Return `QueueStats.missing`."""
        ...

    async def held(self, catalog: str, after: str, limit: int) -> list[tuple[str, JobKey]]:
        """Return a page of the jobs that the drop limit holds, each with its key, as `known` does."""
        ...

    async def is_any_held(self, catalog: str) -> bool:
        """Return whether the drop limit holds a job."""
        ...

    async def counts(self) -> Mapping[tuple[str, str], int]:
        """Return `QueueStats.tables`; reads every job."""
        ...

    async def oldest(self, now: datetime) -> dict[str, datetime]:
        """Return the start of the longest wait of a job, by catalog."""
        ...


class InboxTransaction(Protocol):
    """One transaction. Its changes are visible to others, and on disk, after its commit."""

    @property
    def rows(self) -> JobStore: ...

    @property
    def events(self) -> EventStore: ...

    @property
    def intents(self) -> OpenIntentStore: ...

    @property
    def letters(self) -> DeadLetterStore: ...

    @property
    def catalogs(self) -> CatalogStore: ...

    @property
    def table_index(self) -> IndexStore: ...

    async def alone(self) -> bool:
        """Return True, until the transaction ends, if no other process maintains the inbox now."""
        ...
