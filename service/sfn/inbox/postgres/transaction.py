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
    """What a transaction makes of a row.

    Attributes:
        before: as it was read; None for one that was not there.
        after: as it is to be; None: it goes.
    """

    before: Job | None
    after: Job | None


class LoggedEvent(NamedTuple):
    """One event.

    Attributes:
        seq: its number.
        hint: what it said.
        received: when.
    """

    seq: int
    hint: Notification
    received: datetime


class LoadedJobs(NamedTuple):
    """Rows that were read, without their memos, and numbers that were drawn afterwards.

    Attributes:
        rows: those that there are.
        numbers: ascending, each greater than all that any transaction drew before the rows were locked.
    """

    rows: dict[JobKey, Job]
    numbers: Sequence[int] = ()


class Overdue(NamedTuple):
    """Leases that have run out.

    Attributes:
        rows: the jobs, without their caches.
        next: when the next lease expires.
    """

    rows: list[Job]
    next: datetime | None


class Waiting(NamedTuple):
    """A queued row, from afar."""

    subject: JobKey
    due_at: datetime


class Due(NamedTuple):
    """A queued row that is due, without its memo, and a number that was drawn for it afterwards, as of `Found`."""

    row: Job
    number: int


class TableLocation(NamedTuple):
    """A location, of a catalog's tables."""

    catalog: str
    location: str


class JobStore(Protocol):
    """The rows."""

    async def get(self, subjects: Collection[JobKey], locking: Locking, numbers: int = 0) -> LoadedJobs:
        """Return the existing ones of these jobs, and that many new numbers."""
        ...

    async def memos(self, subjects: Collection[JobKey]) -> dict[JobKey, PublishCache]:
        """The memos of rows, those that are not empty. Only of a locked row it is the one that goes with the row."""
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
        """Write changes of rows that are locked, or are not there.

        A row's memo is written where the two differ by it: who may drop one must have read it.

        Raises:
            RetryTransaction: somebody made a row meanwhile that was not there.
        """
        ...


class EventStore(Protocol):
    """The log of events."""

    async def log(self, entries: Sequence[LoggedEvent]) -> Collection[int]:
        """Log events; return the numbers of the new ones, by sender and event id."""
        ...

    async def last(self, seq: int) -> LastEvent | None:
        """The event of a number."""
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
        """Close the open ones of these letters; return their subjects, by number."""
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
        """By catalog when the oldest open letter was opened of a table that is given up; held ones wait on purpose."""
        ...

    async def prune(self, before: datetime, most: int) -> int:
        """Delete at most `most` letters that were closed before a time; return their number."""
        ...

    async def note(self, action: str, order: AdminCommand, count: int) -> int:
        """Remember an order that was carried out, and forget very old ones; the entry's id."""
        ...

    async def recount(self, entry: int, count: int) -> None:
        """Remember how far an order is that was noted."""
        ...

    async def audit_log(self, before: int | None, limit: int) -> list[AuditEntry]:
        """Return the newest entries of the audit log below the id `before`, at most `limit`."""
        ...


class CatalogStore(Protocol):
    """What is noted of whole catalogs."""

    async def lock(self, catalog: str) -> None:
        """Have the catalog's brake alone until the transaction ends."""
        ...

    async def tripped(self) -> frozenset[str]:
        """Return the catalogs in which no further step is allowed."""
        ...

    async def trip(self, catalog: str, *, tripped: bool) -> None:
        """Note that they do, or do no more."""
        ...

    async def has_step(self, catalog: str, text: str, since: datetime) -> bool:
        """Whether a step got leave later than a moment."""
        ...

    async def count_steps(self, catalog: str, since: datetime) -> int:
        """How many steps got leave later than a moment."""
        ...

    async def drops(self, catalog: str, since: datetime) -> list[NamedTable]:
        """Return the drops that were allowed after a moment."""
        ...

    async def add_step(self, catalog: str, step: str, now: datetime, drop: NamedTable | None) -> None:
        """Note a step that was allowed, and the table that the step drops."""
        ...

    async def forget_steps(self, catalog: str, until: datetime | None = None) -> None:
        """Forget the steps that got leave by a moment; all of them for None."""
        ...

    async def swept_at(self, catalogs: Collection[str]) -> dict[str, LastSweep]:
        """The last complete sweep, by catalog."""
        ...

    async def note_sweep(self, catalog: str, sweep: LastSweep) -> None:
        """A sweep is complete."""
        ...

    async def retire(self, catalog: str, *, retired: bool) -> None:
        """Note whether a catalog's tables get no files any more."""
        ...

    async def retired_catalogs(self) -> frozenset[str]:
        """Return the retired catalogs."""
        ...

    async def record_owner(self, catalog: str, catalog_id: str) -> None:
        """Note for which `catalog_id` files are written."""
        ...

    async def owner_id(self, catalog: str) -> str | None:
        """For which that was noted last."""
        ...


class OpenIntentStore(Protocol):
    """The open intents. No other transaction changes a locked one until this transaction ends."""

    async def span(self) -> DueRange:
        """When they are due; not locked."""
        ...

    async def due(self, now: datetime, most: int) -> list[OpenIntent]:
        """Lock and return at most `most` due intents, the oldest first; skip those that another transaction has."""
        ...

    async def close(self, ids: Collection[str]) -> None:
        """Delete those of these ids that were not left open; what another transaction has is waited for."""
        ...

    async def get(self, ids: Collection[str]) -> list[OpenIntent]:
        """All of these ids, locked; what another transaction has is waited for, and read as it left it."""
        ...

    async def find(self, sought: IntentQuery) -> FoundIntents:
        """What notes rest on."""
        ...

    async def open(self, rows: Sequence[OpenIntent]) -> None:
        """Add those that are not there; a catalog's own that is gets the other's times, but is put off no further."""
        ...

    async def save(self, changes: Sequence[IntentChange]) -> None:
        """Write changes of those that are locked."""
        ...

    async def counts(self) -> Mapping[str, OpenIntentStats]:
        """Return the statistics of open intents, by catalog; reads every intent."""
        ...

    async def of(self, subject: JobKey) -> OpenIntentStats | None:
        """What is open of a subject; None for nothing."""
        ...


class IndexStore(Protocol):
    """What the rows say of all tables together: read, not locked."""

    async def lock_locations(self, places: Iterable[TableLocation]) -> None:
        """Lock locations until the transaction ends, before anything else is locked.

        A transaction that adds a table to a location, and one that notifies all tables of a free location, must see
        each other's changes.
        """
        ...

    async def known(self, catalog: str, after: str, limit: int) -> list[tuple[str, IndexedTable]]:
        """A page of a catalog's table rows; each with a mark, by which the next page begins `after` it."""
        ...

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        """Return the tables with this uuid in their live file, by name."""
        ...

    async def live_at(self, place: TableLocation) -> dict[TableIdentifier, str | None]:
        """Rows with a live file at a place, each with its table uuid."""
        ...

    async def visitors(self, places: Iterable[TableLocation]) -> list[TableIdentifier]:
        """Rows that may have a file at one of these places, live or not, by name."""
        ...

    async def live_count(self, catalog: str, most: int | None = None) -> int:
        """Return how many tables have a live file, at most `most`: where they are many to count all takes long.

        An old name of a renamed table is no table of its own, see `sfn.inbox.statistics`.
        """
        ...

    async def without_file(self, subjects: Collection[JobKey]) -> int:
        """Return how many of these have no row with a live file."""
        ...

    async def missing(self) -> Mapping[str, MissingTableStats]:
        """Return `QueueStats.missing`."""
        ...

    async def held(self, catalog: str, after: str, limit: int) -> list[tuple[str, JobKey]]:
        """A page of the rows that the brake holds, each with its mark, as of `known`."""
        ...

    async def is_any_held(self, catalog: str) -> bool:
        """Whether the brake holds a row."""
        ...

    async def counts(self) -> Mapping[tuple[str, str], int]:
        """Return `QueueStats.tables`; reads every job."""
        ...

    async def oldest(self, now: datetime) -> dict[str, datetime]:
        """Return the start of the longest wait of a job, by catalog."""
        ...


class InboxTransaction(Protocol):
    """One transaction. What is done by it is seen by others, and on disk, once it has ended well; else it is undone."""

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
