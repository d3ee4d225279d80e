"""A row of the inbox and what it is seen as: pure, and the same for every adapter. How it changes is `transitions`'."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from sfn.domain.identifiers import JobKey, TableIdentifier, is_in_namespaces
from sfn.domain.jobs import (
    ConcurrencyGroup,
    DeadLetterReason,
    Done,
    LeasedJob,
    Outcome,
    PendingChange,
    Priority,
    PublishCache,
    Rescheduled,
    SweepCompleted,
    TableState,
)
from sfn.errors import ErrorScope, Transient
from sfn.inbox.intents import OpenIntentStats
from sfn.sfnfile.locations import store_prefix
from sfn.sfnfile.naming import layout_location

# ── standing: What is durably known of one table


@dataclass(frozen=True, slots=True)
class LastResult:
    """How a row's last claim ended.

    Attributes:
        outcome: its name, such as `done` or `retry`.
        why: what is waited for, or what went wrong; None where all is as it should be.
        at: when.
    """

    outcome: str
    why: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The newest event of a row that is still in the log.

    Attributes:
        sender: whose; empty for the service's own hints.
        event_id: the sender's id of it.
        received_at: when it came.
        body: as it was received, its beginning; empty for the service's own hints.
    """

    sender: str
    event_id: str | None
    received_at: datetime
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table's row.

    Attributes:
        state: `queued`, `leased` or `dead`.
        due_at: when it is looked at, if it is queued.
        not_before: no earlier, whatever is told.
        attempt: attempts since the last success.
        failing_since: when the first of a row of failures began.
        reason: why it has an open dead letter.
        has_unprocessed: something was told that no publish has seen through.
        pending: what was told.
        skip_reason: why the table gets no files, as the catalog last had it; None: it may have some.
        table_state: what was published, and what is waited for.
        locations: where files of this name may lie.
        last_result: how the last claim ended.
        last_event: the newest event.
        open_intents: commits of the table through a gateway whose outcome is not known; None for none.
    """

    state: str
    due_at: datetime
    not_before: datetime | None
    attempt: int
    failing_since: datetime | None
    reason: DeadLetterReason | None
    has_unprocessed: bool
    pending: PendingChange
    skip_reason: str | None
    table_state: TableState
    locations: frozenset[str]
    last_result: LastResult | None
    last_event: LastEvent | None
    open_intents: OpenIntentStats | None = None


# ── row: A row of the inbox and what it is seen as

MAX_UNLISTED_NAMESPACES: Final = 1_000
"""Namespaces of one sweep that are noted: each claim compares its table with them."""


@dataclass(frozen=True, slots=True)
class LastSweep:
    """The last complete sweep of a catalog.

    Attributes:
        started_at: when it began.
        unlisted_namespaces: namespaces that it could not list, dotted.
    """

    started_at: datetime
    unlisted_namespaces: frozenset[str] = frozenset()

    @classmethod
    def from_completed(cls, completed: SweepCompleted) -> LastSweep:
        """Return what is noted of a sweep; of one that could list too few namespaces, that it listed none."""
        is_much = len(completed.unlisted_namespaces) > MAX_UNLISTED_NAMESPACES
        return cls(completed.started_at, frozenset({""}) if is_much else completed.unlisted_namespaces)

    def swept_at(self, subject: JobKey) -> datetime | None:
        """Return when a subject was swept, None where its namespace could not be listed."""
        is_withheld = isinstance(subject, TableIdentifier) and is_in_namespaces(subject, self.unlisted_namespaces)
        return None if is_withheld else self.started_at


class JobState(StrEnum):
    """Where a row is."""

    QUEUED = "queued"
    LEASED = "leased"
    DEAD = "dead"


class Job(msgspec.Struct, frozen=True):
    """One subject's row. No dataclass: each event makes one anew, which takes a frozen dataclass twenty times as long.

    Attributes:
        subject: whose.
        state: where it is.
        due_at: when it may be claimed, if it is queued.
        not_before: no claim earlier, whatever comes.
        notified_seq: number of its newest hint.
        processed_seq: number of the newest hint that a publish has seen through.
        event_seq: number of the newest hint that was an event, where another row's publish asked for a look since;
            None: it is `notified_seq`.
        fencing_token: of the last claim; no claim of any row ever had it before.
        lease_until: of the last claim.
        attempt: claims since the last success; a released one does not count.
        crashes: leases that ran out since the last settled claim.
        failing_since: the first of a row of failures.
        pending_since: of a row that failed, or was leased when it was told of: since when what was told is not seen
            through; else None, and it is since `due_at`.
        reason: why it is dead.
        last_result: how its last claim ended.
        pending, locations, story, memo: see `sfn.domain.Claim`.
    """

    subject: JobKey
    due_at: datetime
    state: JobState = JobState.QUEUED
    not_before: datetime | None = None
    notified_seq: int = 0
    processed_seq: int = 0
    event_seq: int | None = None
    fencing_token: int = 0
    lease_until: datetime | None = None
    attempt: int = 0
    crashes: int = 0
    failing_since: datetime | None = None
    pending_since: datetime | None = None
    reason: DeadLetterReason | None = None
    last_result: LastResult | None = None
    pending: PendingChange = PendingChange()
    locations: frozenset[str] = frozenset()
    table_state: TableState = TableState()
    cache: PublishCache = PublishCache()


def stat_state(job: Job) -> str:
    """Which of `sfn.inbox.statistics.STAT_STATES` a table's row counts as."""
    if job.state is JobState.LEASED:
        return "leased"
    if job.reason is not None:
        return "held" if job.reason is DeadLetterReason.HELD_DROP else "dead"
    if job.attempt > 0:
        return "retrying"
    return "due" if job.notified_seq > job.processed_seq else "scheduled"


def table_missing_since(table_state: TableState) -> datetime | None:
    """Return since when the catalog does not show the table of the row's live file; None where it does."""
    return table_state.missing_since.get(table_state.live.uuid or "") if table_state.live is not None else None


def is_renamed(job: Job) -> bool:
    """Return whether an event or a sweep reported another name for the row's table that no look has settled yet."""
    return job.pending.renamed_to not in {None, job.subject}


def has_unprocessed(job: Job | None) -> bool:
    """Whether something told of the row still waits for its look; a running claim took up what came before it."""
    if job is None or job.state is JobState.DEAD:
        return False
    # Hints and claims are numbered from one source.
    return job.notified_seq > (job.fencing_token if job.state is JobState.LEASED else job.processed_seq)


def group_of(job: Job, stores: Collection[str] = ()) -> ConcurrencyGroup:
    """The lane that a row would be claimed from; `stores` are those of the terms."""
    if not isinstance(job.subject, TableIdentifier):
        return ConcurrencyGroup(job.subject.catalog, "", Priority.SWEEP)
    live = (
        job.table_state.live.location
        if job.table_state.live is not None
        else layout_location(min(job.locations, default=""))
    )
    event_priority = Priority.SHORT_LIVED if job.table_state.is_short_lived else Priority.LIVE
    priority = event_priority if job.notified_seq > job.processed_seq else Priority.BACKGROUND
    return ConcurrencyGroup(job.subject.catalog, store_prefix(live, stores) if live else "", priority)


def to_leased_job(job: Job, group: ConcurrencyGroup, last_sweep: LastSweep | None) -> LeasedJob:
    """What the worker gets to see of a leased row."""
    return LeasedJob(
        subject=job.subject,
        group=group,
        fencing_token=job.fencing_token,
        notified_seq=job.notified_seq,
        attempt=job.attempt,
        failing_since=job.failing_since or job.due_at,
        pending=job.pending,
        locations=job.locations,
        table_state=job.table_state,
        cache=job.cache,
        swept_at=last_sweep.swept_at(job.subject) if last_sweep is not None else None,
    )


def event_seq_of(job: Job) -> int:
    """The number that the newest event of a row has in the log."""
    return job.notified_seq if job.event_seq is None else job.event_seq


def holds_lease(job: Job | None, leased: LeasedJob) -> bool:
    """Whether a claim still has its row: the fence of every write of a worker."""
    return job is not None and job.state is JobState.LEASED and job.fencing_token == leased.fencing_token


def to_table_status(job: Job, last_event: LastEvent | None, open_intents: OpenIntentStats | None) -> TableStatus:
    """What an operator gets to see of it."""
    return TableStatus(
        state=job.state.value,
        due_at=job.due_at,
        not_before=job.not_before,
        attempt=job.attempt,
        failing_since=job.failing_since,
        reason=job.reason,
        has_unprocessed=job.notified_seq > job.processed_seq,
        pending=job.pending,
        skip_reason=job.cache.table.skip_reason if job.cache.table is not None else None,
        table_state=job.table_state,
        locations=job.locations,
        last_result=job.last_result,
        last_event=last_event,
        open_intents=open_intents,
    )


# ── letters: Dead letters

MAX_UNDECODABLE_PER_SENDER = 1_000
"""Requests of one sender that nobody understood which are kept; the oldest goes."""

_CAUSE: Final = re.compile(r": (expected .+?, found .+?)(?:;|$)", re.DOTALL)
"""What an `SfnError` says after the place that is wrong, and before the remedy."""

RELEASE_BATCH_SIZE = 500
"""Rows that an operator releases which are let go in one transaction: few, because puts wait for it."""


class DeadLetterStatus(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    SUPERSEDED = "superseded"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class NewDeadLetter:
    """Why a subject was given up.

    Attributes:
        subject: whose.
        reason: which kind.
        detail: what happened and what to do, for a person.
        attempts: how many there were.
    """

    subject: JobKey
    reason: DeadLetterReason
    detail: str
    attempts: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as the inbox keeps it; a subject has at most one that is open.

    Attributes:
        id: grows with each one, and is never used again.
        subject: whose; None for a request that nobody understood.
        sender: who sent that request; None for a subject's.
        reason, detail, attempts: as in `Letter`.
        status: what became of it.
        opened_at: when it was opened.
        changed_at: when anything of it last changed.
        actor: the operator who replayed or discarded it.
    """

    id: int
    subject: JobKey | None
    sender: str | None
    reason: DeadLetterReason
    detail: str
    attempts: int
    status: DeadLetterStatus
    opened_at: datetime
    changed_at: datetime
    actor: str | None = None

    @property
    def cause(self) -> str:
        """What is wrong, without the file or the table: letters of one outage have one cause."""
        return cause_of(self.reason, self.detail)


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters are looked for; what is None does not matter.

    Attributes:
        status: what became of them.
        catalog: of which catalog their subjects are.
        table: whose.
        reason: which kind.
        sender: who sent the request.
        opened_before, since: opened earlier than this moment; at it or later.
    """

    status: DeadLetterStatus | None = DeadLetterStatus.OPEN
    catalog: str | None = None
    table: TableIdentifier | None = None
    reason: DeadLetterReason | None = None
    sender: str | None = None
    opened_before: datetime | None = None
    opened_since: datetime | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Whether it is one of them."""
        catalog = letter.subject.catalog if letter.subject is not None else None
        return (
            (self.status is None or letter.status is self.status)
            and (self.catalog is None or catalog == self.catalog)
            and (self.table is None or letter.subject == self.table)
            and (self.reason is None or letter.reason is self.reason)
            and (self.sender is None or letter.sender == self.sender)
            and (self.opened_before is None or letter.opened_at < self.opened_before)
            and (self.opened_since is None or letter.opened_at >= self.opened_since)
        )


@dataclass(frozen=True, slots=True)
class AdminCommand:
    """What an operator told the service to do.

    Attributes:
        actor: who.
        target: what it was told of, in words.
        at: when.
    """

    actor: str
    target: str
    at: datetime


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An order that was carried out.

    Attributes:
        id: grows with each one.
        at, actor: when, and by whom.
        action: `reconcile`, `replay`, `discard`, `release`, `retire`, `unretire` or `adopt`.
        target: what it was told of.
        count: how many letters or rows it changed.
    """

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    count: int


def cause_of(reason: DeadLetterReason, detail: str) -> str:
    """The part of a letter's detail that it has in common with others; the reason, where there is none."""
    found = _CAUSE.search(detail)
    return found[1] if found is not None else reason.value


def closes_dead_letter(outcome: Outcome) -> bool:
    """Whether a claim that ended so closes its subject's open letter: files that were written are a success."""
    return isinstance(outcome, Done | SweepCompleted) or (
        isinstance(outcome, Rescheduled) and bool(outcome.result.written_keys)
    )


def poison_letter(subject: JobKey, crashes: int, attempts: int) -> NewDeadLetter:
    """The letter of a subject that nobody came back from."""
    detail = f"{subject}: {crashes} attempts in a row ended the process or lost their lease"
    return NewDeadLetter(subject, DeadLetterReason.POISON, detail, attempts)


# ── terms: The inbox's settings


@dataclass(frozen=True, slots=True)
class InboxConfig:
    """What every adapter is told.

    Attributes:
        lease: how long a claim lasts unless renewed.
        retry_cap: the longest pause of a retry.
        max_crashes: leases that may run out in a row before a row counts as poison.
        max_drops: drops and steps back an hour that pass, by catalog. Where it is missing the greater of 10 and 1 % of
            the tables pass, and of drops fewer than half of the tables, or a single one.
        drop_limit_window: how far back the brake counts.
        stores: canonical prefixes of locations, each a store with lanes and a breaker of its own.
        poison_pause: until a row that counts as poison is looked at again.
        event_only_catalogs: catalogs that nobody can ask: what hints tell of their tables is kept until it was heard.
    """

    lease: timedelta = timedelta(seconds=30)
    retry_cap: timedelta = timedelta(minutes=5)
    max_crashes: int = 5
    max_drops: Mapping[str, int] = field(default_factory=dict)
    drop_limit_window: timedelta = timedelta(hours=1)
    poison_pause: timedelta = timedelta(hours=8)
    stores: tuple[str, ...] = ()
    event_only_catalogs: frozenset[str] = frozenset()

    def max_steps(self, catalog: str, live: int) -> int:
        """Return how many drops and steps back pass in an hour.

        Args:
            catalog: the catalog's name.
            live: how many tables of the catalog have a live file.
        """
        return self.max_drops.get(catalog, max(10, live // 100))

    def max_drops_of(self, catalog: str, tables: int) -> int:
        """Return how many tables may disappear in an hour: fewer than half of them, or a single one.

        A configured `max_drops` replaces this rule as well.

        Args:
            catalog: the catalog's name.
            tables: the tables that have a live file now, and those that were dropped within the hour.
        """
        return self.max_drops.get(catalog, max(1, (tables - 1) // 2))

    def allowed_drops(self, catalog: str, live: int, dropped: int = 0) -> int:
        """Return how many tables may disappear, within an hour or in one sweep.

        Args:
            catalog: the catalog's name.
            live: how many tables of the catalog have a live file.
            dropped: how many others were dropped within the hour.
        """
        return min(self.max_steps(catalog, live), self.max_drops_of(catalog, live + dropped))


# ── commits: What a transaction of an inbox is told as

RETRY_AFTER: Final = 1.0
"""Seconds that a caller should wait after a transaction that was not taken."""


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """One transaction that is on disk.

    Attributes:
        calls: how many calls it answers.
        messages: how many notes it took in.
        may_make_due: something may have fallen due by it.
        seconds: how long it ran.
    """

    calls: int
    messages: int
    may_make_due: bool
    seconds: float


def queue_full_error(where: str, limit: int, waiting: int, more: int, remedy: str) -> Transient:
    """The refusal of a put where too many notes wait already.

    Args:
        limit: how many may.
        waiting: how many do.
        more: how many the put has.
    """
    return Transient(
        where,
        scope=ErrorScope.INBOX,
        expected=f"at most {limit} notes that wait for the disk",
        found=f"{waiting} and {more} more",
        remedy=remedy,
        retry_after=RETRY_AFTER,
    )
