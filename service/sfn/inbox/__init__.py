"""Durable queue of jobs, with the log of what was accepted, dead letters, intents and the log of commands.

Accepting an event only appends it to the log. There is one job for each table, and one for each catalog: its sweep,
which checks all tables of the catalog. Jobs follow from the log: before a claim, the records that wait are folded into
them. `sfn.inbox.inbox.Inbox` is the whole inbox; the ports below are the parts of it that receivers, workers and
publishes need.

    inbox           receivers and workers, and what a process remembers between transactions
    administration  queries and commands of operators
    operations      fold, claim, settle and others, each in one transaction
    model           a job and other values                     transitions      how a job changes
    jobs            stored jobs and dead letters               catalogs, intents
    transaction     port to the database                       schema           its tables, and how values are stored
    sqlite          an inbox in a file; `sqlite_writer` has its thread
    postgres        an inbox that processes share; `postgres_server`, `postgres_connections`

Start with `JobQueue` below, then `sfn.inbox.operations.Operations.claim`.

States of a job, and the calls that lead to them:

    queued(due_at)  fold, settle, replay, release, expired lease  the job waits for its time
    leased          claim                                         a worker has the job; the attempt is counted
    dead            settle                                        the job waits for a new event or an operator

Most dead letters have a time at which the table is checked again. Then the job is queued, and the letter is open.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from sfn.domain.events import InboxMessage, PutResult, TableReport
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import BackwardStep, Capacity, IndexedTable, LeasedJob, Outcome
from sfn.inbox.model import FoldResult, NewDeadLetter


class InboxWriter(Protocol):
    """Port of the receiver: the way into the inbox."""

    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        """Append all messages or none to the log, in one transaction that is on disk when this call returns.

        What follows from them happens when they are folded: before the next claim, or within about a second. A
        request that could not be decoded becomes a dead letter. A sender with too many of them loses the oldest one.

        An intent stays open until an answer with a known outcome closes it, or until its last check. While it is
        open, its tables are checked after 30 seconds, 2, 10 and 35 minutes. An answer with an unknown outcome
        restarts these times. Inserting an existing intent is a no-op, and so is a second answer to an intent. If a
        client of the gateway has too many open intents for tables without a job, one intent of the whole catalog
        replaces the rest. Put the answer to a commit and the notification of its change in one call. `PutResult`
        counts notifications only.

        Raises:
            Transient: scope inbox: the queue is full or the commit failed. Nothing was stored, and `retry_after` is
                set.
            FatalError: the inbox cannot be trusted any more.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The answer to one claim.

    Attributes:
        jobs: the leased jobs.
        next_due: when the next job that was not claimed, or the next intent, is due; None if none waits.
        poison_letters: dead letters of jobs that became poison since the last claim.
        expired_leases: number of leases that expired since the last claim, or that the previous process left.
        fold: what the claim folded before.
    """

    jobs: tuple[LeasedJob, ...]
    next_due: datetime | None
    poison_letters: tuple[NewDeadLetter, ...] = ()
    expired_leases: int = 0
    fold: FoldResult = FoldResult()

    @property
    def has_news(self) -> bool:
        """True if there is something that a worker must know."""
        return bool(self.jobs or self.poison_letters or self.expired_leases)


class JobQueue(Protocol):
    """Port of the worker: claim, renew and settle jobs."""

    async def claim(
        self, capacity: Capacity, running: Sequence[LeasedJob] = (), until: datetime | None = None
    ) -> ClaimResult:
        """Lease due jobs, in turn over the concurrency groups, and count their attempts durably.

        Before that, apply what was accepted to the jobs, and notify the subjects of due intents, a bounded number at
        once. The clock is read when the transaction starts, so waiting for the inbox does not shorten a lease.

        A caller that is cancelled gets no job: what was leased for it is given back, uncounted.

        Args:
            capacity: the free capacity.
            running: the jobs that the caller still works on. Their leases can expire if the inbox was slow, or the
                process was suspended. This call proves that the worker lives, so they are renewed.
            until: how long to wait for a job that is due; None to answer at once. If the last claim leased jobs and
                `interrupt` was not called since, nothing else is due: then the wait begins at once.
        """
        ...

    def interrupt(self) -> None:
        """End the wait of the claim that is under way, because the capacity of its worker has changed."""
        ...

    async def renew(self, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        """Renew leases, counted from the start of the transaction, and return those that are not lost."""
        ...

    async def record_location(
        self, claim: LeasedJob, layout_key: str, uuid: str | None
    ) -> frozenset[TableIdentifier] | None:
        """Record the key of a `sfn.sfnfile.naming.FileLayout` durably, before a file is written there.

        Returns:
            The other tables that have a live file there with another uuid. On the first call for this layout, their
            jobs are made due. None if the lease is lost.
        """
        ...

    async def allow_step(self, claim: LeasedJob, step: BackwardStep, now: datetime) -> bool:
        """Return True if the drop limit of the catalog allows a drop or rollback, and record that durably.

        A repeated call for an allowed step returns True again. The answer is False also if the lease is lost.
        """
        ...

    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        """End a claim; return False, and change nothing, if the lease is lost."""
        ...


class TableIndex(Protocol):
    """Port of publishes and readers: the known tables."""

    def tables(self, catalog: str) -> AsyncIterator[IndexedTable]:
        """Yield every known table of a catalog."""
        ...

    async def with_uuid(self, catalog: str, uuid: str) -> list[IndexedTable]:
        """Return the tables that have this uuid in their live file, by name."""
        ...

    async def reported_tables(self, table: TableIdentifier) -> tuple[TableReport, ...]:
        """Return the tables that events reported under a name of an event-only catalog; none for other catalogs."""
        ...

    async def at_location(self, table: TableIdentifier, location: str) -> frozenset[TableIdentifier]:
        """Return the other tables that have a live file at the location, whatever their uuid."""
        ...


STAT_STATES: Final = ("due", "scheduled", "retrying", "leased", "dead", "held")
"""States in which the job of a table is counted.

    due        a notification waits to be processed
    scheduled  the job waits for its next refresh
    retrying   the last attempt failed
    leased     a worker has the job
    dead       there is an open dead letter; an event, an operator or a late recheck makes the job due
    held       the drop limit holds the job
"""


@dataclass(frozen=True, slots=True)
class MissingTableStats:
    """Tables of one catalog that have a live file, and that the catalog does not show any more.

    Attributes:
        count: number of tables.
        since: when the first of them was found missing.
    """

    count: int
    since: datetime


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts of jobs, dead letters and intents. A catalog without any may be missing in each mapping.

    Attributes:
        tables: number of table jobs, by catalog and state (`STAT_STATES`).
        oldest_due: by catalog, the start of the longest wait of a table that may be behind the catalog, with its
            retries and dead letters but without deliberate pauses and held drops.
        late: number of tables that wait longer than `InboxConfig.late_after`, by catalog.
        dead_letters: number of open dead letters, by catalog and reason; the catalog of an undecodable request is "".
        letters_since: when the oldest of these letters was opened.
        swept: catalogs with a complete sweep.
        limit_reached: catalogs with a reached drop limit: it holds tables, or would hold the next step.
        open_intents: number of gateway commits with unknown outcome, by catalog.
        oldest_intent: by catalog, the start of the schedule of the oldest intent.
        missing: by catalog, the tables with a live file that the catalog does not show any more.
        unapplied: accepted messages that are not part of these counts yet.
        oldest_unapplied: when the oldest of them arrived.
        queued: messages of this process that wait for the disk.
        oldest_queued: when the oldest of them arrived.
    """

    tables: Mapping[tuple[str, str], int]
    oldest_due: Mapping[str, datetime]
    dead_letters: Mapping[tuple[str, str], int]
    limit_reached: frozenset[str]
    open_intents: Mapping[str, int] = field(default_factory=dict)
    oldest_intent: Mapping[str, datetime] = field(default_factory=dict)
    letters_since: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    swept: frozenset[str] = frozenset()
    late: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, MissingTableStats] = field(default_factory=dict)
    unapplied: int = 0
    oldest_unapplied: datetime | None = None
    queued: int = 0
    oldest_queued: datetime | None = None


@dataclass(frozen=True, slots=True)
class DropLimitState:
    """State of the drop limit of one catalog.

    Attributes:
        limit_reached: True if the limit holds tables, or allows no step until an operator releases it or a sweep stays
            within the limit.
        steps: drops and rollbacks within the window.
        limit: number of drops that pass.
        live_tables: tables of the catalog with a live file; the limit is a fraction of them.
    """

    limit_reached: bool
    steps: int
    limit: int
    live_tables: int
