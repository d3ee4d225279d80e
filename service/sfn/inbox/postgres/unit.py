"""The port to the database: what the ledger asks of one transaction. `tables` says it in SQL.

Transactions read what others committed before the statement, not before the transaction (READ COMMITTED): what must not
change between two statements is locked, or held. No transaction waits for another in a circle, as all of them take what
they wait for in one order:

    held places, by number    `Roster.hold`
    intents, by id and key    `OpenIntentStore.close`, `get` and `open`
    rows, by key              `Rows.get` with `Locking.WAIT`, once
    events, by their ids      `Events.log`
    new rows, by key          `Rows.save`
    letters, catalogs         the rest

What is taken with `Locking.SKIP` or `OpenIntentStore.due` waits for nobody. So a claim, which begins with intents
and takes rows afterwards, may wait for who makes the same row, no more; and who waits for its intents has taken no
row yet.

Where two turn out to wait for each other all the same, the database ends one of them, and it is begun anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import ConcurrencyGroup, IndexedTable, PublishCache
from sfn.inbox.model import Job, LastEvent
from sfn.inbox.postgres.notes import CatalogStore, DeadLetterStore, OpenIntentStore
from sfn.inbox.statistics import MissingTableStats


class Locking(StrEnum):
    """What becomes of rows that are read. A locked row is changed by nobody else until the transaction ends."""

    NONE = ""
    """They are read, no more."""
    WAIT = "FOR UPDATE"
    """They are locked; those that another transaction has are waited for, and read as it left them."""
    SKIP = "FOR UPDATE SKIP LOCKED"
    """They are locked; those that another transaction has are left out."""


class RetryTransaction(Exception):
    """The transaction is to be undone and begun anew: another one was quicker, or it needs what it did not lock."""


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
        rows: whose, without their memos.
        next: when the first of the others will.
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
        """Those of these rows that there are, and so many numbers."""
        ...

    async def memos(self, subjects: Collection[JobKey]) -> dict[JobKey, PublishCache]:
        """The memos of rows, those that are not empty. Only of a locked row it is the one that goes with the row."""
        ...

    async def overdue(self, now: datetime, most: int, locking: Locking) -> Overdue:
        """So many of the rows whose lease ended by now."""
        ...

    async def queues(self, most: Callable[[ConcurrencyGroup], int]) -> dict[ConcurrencyGroup, list[Waiting]]:
        """Every lane that ever had a row; so many of its queued rows, those first that are due first; not locked."""
        ...

    async def due(
        self, most: Mapping[ConcurrencyGroup, int], now: datetime, locking: Locking
    ) -> dict[ConcurrencyGroup, list[Due]]:
        """So many of each lane's queued rows that are due by now, those first that are due first."""
        ...

    async def save(self, changes: Sequence[JobChange]) -> None:
        """Write changes of rows that are locked, or are not there.

        A row's memo is written where the two differ by it: who may drop one must have read it.

        Raises:
            Again: somebody made a row meanwhile that was not there.
        """
        ...


class EventStore(Protocol):
    """The log of events."""

    async def log(self, entries: Sequence[LoggedEvent]) -> Collection[int]:
        """Log events; the numbers of those that are new: (sender, event id) was not known, nor told of before."""
        ...

    async def last(self, seq: int) -> LastEvent | None:
        """The event of a number."""
        ...

    async def prune(self, before: datetime, most: int) -> int:
        """Delete the oldest events that were received before a moment, so many at most; how many."""
        ...


class IndexStore(Protocol):
    """What the rows say of all tables together: read, not locked."""

    async def lock_locations(self, places: Iterable[TableLocation]) -> None:
        """Keep others that do the same from these places until the transaction ends: before anything else is locked.

        Who adds a row to those that may have files at a place, and who tells all of them that it is free, must see
        one what the other did.
        """
        ...

    async def known(self, catalog: str, after: str, limit: int) -> list[tuple[str, IndexedTable]]:
        """A page of a catalog's table rows; each with a mark, by which the next page begins `after` it."""
        ...

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        """Rows whose live file carries the uuid, by name."""
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
        """See `Figures.missing`."""
        ...

    async def held(self, catalog: str, after: str, limit: int) -> list[tuple[str, JobKey]]:
        """A page of the rows that the brake holds, each with its mark, as of `known`."""
        ...

    async def is_any_held(self, catalog: str) -> bool:
        """Whether the brake holds a row."""
        ...

    async def counts(self) -> Mapping[tuple[str, str], int]:
        """See `Figures.tables`: every row is looked at."""
        ...

    async def oldest(self, now: datetime) -> dict[str, datetime]:
        """See `Figures.oldest_due`."""
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
        """Whether nobody else tends the inbox now; then nobody does until the transaction ends."""
        ...
