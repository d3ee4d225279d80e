"""Values of the inbox: jobs, their status, dead letters, audit entries and the configuration.

Pure, and shared by all adapters. `sfn.inbox.transitions` changes jobs.
"""

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
from sfn.sfnfile.locations import store_prefix
from sfn.sfnfile.naming import layout_location


class LastResult(msgspec.Struct, frozen=True):
    """The result of the last claim of a job.

    Attributes:
        outcome: name of the outcome, such as `done` or `retry`.
        why: the reason for waiting, or the error; None if all is well.
        at: when the claim ended.
    """

    outcome: str
    why: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """One outcome in the history of a job.

    Attributes:
        outcome, why: see `LastResult`.
        at: when the claim ended.
        claimed_at: when it began.
        attempt: attempts since the last success, with this one.
        times: how often it came in a row. Equal failures and waits are one record, that of the last of them: a long
            outage must not hide how it began.
        first_at: when the first of these claims ended.
    """

    outcome: str
    why: str | None
    at: datetime
    claimed_at: datetime | None
    attempt: int
    times: int
    first_at: datetime


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The newest event of a job that is still in the log.

    Attributes:
        sender: name of the sender; empty for the service's own notifications.
        event_id: the sender's id of the event.
        received_at: when the event arrived.
        body: the first bytes of the body as received; empty for the service's own notifications.
    """

    sender: str
    event_id: str | None
    received_at: datetime
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class OpenIntentStats:
    """Open intents of a catalog or a table.

    Attributes:
        count: number of intents.
        since: start of the oldest intent's schedule.
        due_at: time of the next check.
    """

    count: int
    since: datetime
    due_at: datetime


MAX_UNLISTED_NAMESPACES: Final = 1_000
"""Most unlisted namespaces that are recorded per sweep: each claim compares its table with them."""


@dataclass(frozen=True, slots=True)
class LastSweep:
    """The last complete sweep of a catalog.

    Attributes:
        started_at: when the sweep began.
        unlisted_namespaces: dotted names of the namespaces that could not be listed.
    """

    started_at: datetime
    unlisted_namespaces: frozenset[str] = frozenset()

    @classmethod
    def from_completed(cls, completed: SweepCompleted) -> LastSweep:
        """Return the record of a sweep; with too many unlisted namespaces the whole catalog counts as unlisted."""
        too_many = len(completed.unlisted_namespaces) > MAX_UNLISTED_NAMESPACES
        return cls(completed.started_at, frozenset({""}) if too_many else completed.unlisted_namespaces)

    def swept_at(self, subject: JobKey) -> datetime | None:
        """Return when a subject was swept; None if its namespace could not be listed."""
        is_unlisted = isinstance(subject, TableIdentifier) and is_in_namespaces(subject, self.unlisted_namespaces)
        return None if is_unlisted else self.started_at


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    LEASED = "leased"
    DEAD = "dead"


NO_CACHE: Final = PublishCache()


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """The work for one table or one catalog.

    A msgspec struct, because each event creates a new one and a frozen dataclass takes twenty times as long.

    Attributes:
        subject: the table or catalog.
        state: state of the job.
        due_at: when the job may be claimed, if it is queued.
        not_before: the earliest time of the next claim, in spite of new events.
        version: number of changes that were reported for the job. Versions, and not numbers of log records, say
            whether something newer came during a lease: records are not committed in the order of their numbers.
        processed_version: the version that a publish has completely processed.
        leased_version: the version at the last claim.
        event_seq: number of the newest event in the log; 0 for none.
        fencing_token: token of the last claim. No other claim of the job, before or after, has the same one.
        lease_until: end of the last claim's lease.
        claimed_at: start of the last claim.
        attempt: claims since the last success; returned claims do not count.
        crashes: leases that expired since the last settled claim.
        failing_since: start of the first of consecutive failures.
        pending_since: since when a change is unpublished, for a job that failed, has a dead letter, or was leased when
            the notification came; else None, and the time is `due_at`.
        reason: reason of the open dead letter.
        last_result: the result of the last claim.
        outcomes: number of outcomes in its history, with those that it does not hold any more.
        repeats: number of results just before the last one that it repeats; 0 for a success.
        repeated_since: when the first of these came; None without one.
        has_letter: False if the job certainly has no open dead letter.
        traces: the trace contexts of the pending notifications that have one: that of the first, and the last ones.
        pending, locations, table_state, cache: see `sfn.domain.jobs.LeasedJob`.
    """

    subject: JobKey
    due_at: datetime
    state: JobState = JobState.QUEUED
    not_before: datetime | None = None
    version: int = 0
    processed_version: int = 0
    leased_version: int = 0
    event_seq: int = 0
    fencing_token: int = 0
    lease_until: datetime | None = None
    claimed_at: datetime | None = None
    attempt: int = 0
    crashes: int = 0
    failing_since: datetime | None = None
    pending_since: datetime | None = None
    reason: DeadLetterReason | None = None
    last_result: LastResult | None = None
    outcomes: int = 0
    repeats: int = 0
    repeated_since: datetime | None = None
    has_letter: bool = False
    traces: tuple[bytes, ...] = ()
    pending: PendingChange = PendingChange()
    locations: frozenset[str] = frozenset()
    table_state: TableState = TableState()
    cache: PublishCache = NO_CACHE


def stat_state(job: Job) -> str:
    """Return which of `sfn.inbox.STAT_STATES` the job of a table counts as."""
    if job.state is JobState.LEASED:
        return "leased"
    if job.reason is not None:
        return "held" if job.reason is DeadLetterReason.HELD_DROP else "dead"
    if job.attempt > 0:
        return "retrying"
    return "due" if job.version > job.processed_version else "scheduled"


def waiting_since(job: Job) -> datetime | None:
    """Return since when the files of a table may be behind its catalog; None if they are not known to be.

    A held drop waits on purpose, and so does a table with a discarded dead letter.
    """
    if not isinstance(job.subject, TableIdentifier) or job.reason is DeadLetterReason.HELD_DROP:
        return None
    if job.reason is None and job.version > job.processed_version:
        return job.pending_since or job.due_at
    return job.pending_since


def table_missing_since(table_state: TableState) -> datetime | None:
    """Return since when the catalog does not show the table of the job's live file; None if it does."""
    return table_state.missing_since.get(table_state.live.uuid or "") if table_state.live is not None else None


def is_renamed(job: Job) -> bool:
    """Return True if an event or a sweep reported another name for the table, and no publish has processed that."""
    return job.pending.renamed_to not in {None, job.subject}


def has_unprocessed(job: Job | None) -> bool:
    """Return True if a notification still waits for a claim; a running claim has those from before it."""
    if job is None or job.state is JobState.DEAD:
        return False
    return job.version > (job.leased_version if job.state is JobState.LEASED else job.processed_version)


def group_of(job: Job, stores: Collection[str] = ()) -> ConcurrencyGroup:
    """Return the concurrency group of a job; `stores` are those of `InboxConfig`."""
    if not isinstance(job.subject, TableIdentifier):
        return ConcurrencyGroup(job.subject.catalog, "", Priority.SWEEP)
    live = (
        job.table_state.live.location
        if job.table_state.live is not None
        else layout_location(min(job.locations, default=""))
    )
    event_priority = Priority.SHORT_LIVED if job.table_state.is_short_lived else Priority.LIVE
    priority = event_priority if job.version > job.processed_version else Priority.BACKGROUND
    return ConcurrencyGroup(job.subject.catalog, store_prefix(live, stores) if live else "", priority)


def to_leased_job(job: Job, group: ConcurrencyGroup, last_sweep: LastSweep | None) -> LeasedJob:
    """Return the worker's view of a leased job."""
    return LeasedJob(
        subject=job.subject,
        group=group,
        fencing_token=job.fencing_token,
        version=job.version,
        attempt=job.attempt,
        failing_since=job.failing_since or job.due_at,
        pending=job.pending,
        locations=job.locations,
        table_state=job.table_state,
        cache=job.cache,
        swept_at=last_sweep.swept_at(job.subject) if last_sweep is not None else None,
        traces=job.traces,
    )


def holds_lease(job: Job | None, leased: LeasedJob) -> bool:
    """Return True if a claim still has its lease; every write of a worker is checked with this."""
    return job is not None and job.state is JobState.LEASED and job.fencing_token == leased.fencing_token


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The state of one job, for operators.

    Attributes:
        job: the job, with its cache.
        last_event: the newest event; None if it was pruned.
        open_intents: gateway commits of the table with unknown outcome; None if there are none.
        unapplied: number of accepted events that are not part of this state yet.
    """

    job: Job
    last_event: LastEvent | None = None
    open_intents: OpenIntentStats | None = None
    unapplied: int = 0

    @property
    def has_unprocessed(self) -> bool:
        """True if a notification waits for a complete publish."""
        return self.job.version > self.job.processed_version


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What one fold did.

    Attributes:
        records: number of records that were folded.
        coalesced: notifications among them that found one waiting for the same table: one check covers both.
        has_more: more records may wait.
    """

    records: int = 0
    coalesced: int = 0
    has_more: bool = False


MAX_UNDECODABLE_PER_SENDER = 1_000
"""Most undecodable requests that are stored per sender; the oldest is deleted."""

_CAUSE: Final = re.compile(r": (expected .+?, found .+?)(?:;|$)", re.DOTALL)
"""The part of an `SfnError`'s text between the place and the remedy."""

RELEASE_BATCH_SIZE = 500
"""Held jobs that are released per transaction: few, because puts wait meanwhile."""


class DeadLetterStatus(StrEnum):
    """Status of a dead letter."""

    OPEN = "open"
    SUPERSEDED = "superseded"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class NewDeadLetter:
    """A dead letter of a table or catalog, before it has an id.

    Attributes:
        subject: the table or catalog.
        reason: kind of problem.
        detail: description of the problem and its remedy.
        attempts: number of attempts.
    """

    subject: JobKey
    reason: DeadLetterReason
    detail: str
    attempts: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A stored dead letter; a subject has at most one open letter.

    Attributes:
        id: increasing number, never reused.
        subject: the table or catalog; None for an undecodable request.
        sender: sender of the undecodable request; None for the letter of a subject.
        reason, detail, attempts: see `NewDeadLetter`.
        status: open, or how the letter was closed.
        opened_at: when the letter was opened.
        changed_at: time of the last change.
        actor: the operator who replayed or discarded the letter.
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
        """The problem without the name of the file or table: letters of one outage share it."""
        return cause_of(self.reason, self.detail)


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """A filter of dead letters; None matches everything.

    Attributes:
        status: status of the letter.
        catalog: catalog of the letter's subject.
        table: subject of the letter.
        reason: kind of problem.
        sender: sender of the undecodable request.
        opened_before: exclusive end of the time of opening.
        opened_since: inclusive start of the time of opening.
        id_below: exclusive end of the ids, for the next page of the newest letters.
    """

    status: DeadLetterStatus | None = DeadLetterStatus.OPEN
    catalog: str | None = None
    table: TableIdentifier | None = None
    reason: DeadLetterReason | None = None
    sender: str | None = None
    opened_before: datetime | None = None
    opened_since: datetime | None = None
    id_below: int | None = None


@dataclass(frozen=True, slots=True)
class AdminCommand:
    """A command of an operator, for the audit log.

    Attributes:
        actor: name of the operator.
        target: description of what the command applies to.
        at: time of the command.
    """

    actor: str
    target: str
    at: datetime


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A command of an operator that was carried out.

    Attributes:
        id: increasing number.
        at: time of the command.
        actor: name of the operator.
        action: `reconcile`, `replay`, `discard`, `release`, `retire`, `unretire` or `adopt`.
        target: description of what the command applied to.
        count: number of letters or jobs that changed.
    """

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    count: int


_CAUSES: Final = {
    DeadLetterReason.HELD_DROP: "the drop limit holds its drop or rollback",
    DeadLetterReason.FOREIGN_CATALOG: "the file in its place belongs to the same table of another catalog",
    DeadLetterReason.FOREIGN_FILE: "a file that this service did not write lies in the place of its SFN file",
    DeadLetterReason.LOCATION_REFUSED: "no file may be written to its location",
    DeadLetterReason.POISON: "its attempts ended the process, or lost their lease, again and again",
    DeadLetterReason.UNDECODABLE: "no event format could decode the request",
}
"""Causes of letters without a more general one in their detail."""


def cause_of(reason: DeadLetterReason, detail: str, otherwise: str = "") -> str:
    """Return the part of a letter's detail that letters of one outage share, or else what its reason means.

    Args:
        reason: the reason.
        detail: the detail.
        otherwise: the cause if the detail has no such part, in place of what the reason means.
    """
    found = _CAUSE.search(detail)
    return found[1] if found is not None else otherwise or _CAUSES.get(reason, reason.value)


def closes_dead_letter(outcome: Outcome) -> bool:
    """Return True if an outcome closes the subject's open dead letter: written files count as success."""
    return isinstance(outcome, Done | SweepCompleted) or (
        isinstance(outcome, Rescheduled) and bool(outcome.result.written_keys)
    )


def poison_letter(subject: JobKey, crashes: int, attempts: int) -> NewDeadLetter:
    """Return the dead letter of a subject with too many consecutive crashes."""
    detail = f"{subject}: {crashes} attempts in a row ended the process or lost their lease"
    return NewDeadLetter(subject, DeadLetterReason.POISON, detail, attempts)


@dataclass(frozen=True, slots=True)
class InboxConfig:
    """Configuration of every adapter.

    Attributes:
        lease: duration of a lease.
        retry_cap: longest pause between retries.
        max_crashes: consecutive expired leases after which a job counts as poison.
        max_drops: by catalog, the drops and rollbacks per hour that pass. Without an entry the greater of 10 and 1 % of
            the tables pass; of drops fewer than half of the tables, or a single one.
        drop_limit_window: time span over which the drop limit counts.
        stores: canonical location prefixes of the configured stores; each has its own concurrency groups and breaker.
        poison_pause: pause until a poison job is claimed again.
        late_after: how long a table may wait for its publish before it counts as late.
        event_only_catalogs: catalogs that cannot be queried. The tables that events report there are stored with the
            jobs (`TableState.reported`).
    """

    lease: timedelta = timedelta(seconds=30)
    retry_cap: timedelta = timedelta(minutes=5)
    max_crashes: int = 5
    max_drops: Mapping[str, int] = field(default_factory=dict)
    drop_limit_window: timedelta = timedelta(hours=1)
    poison_pause: timedelta = timedelta(hours=8)
    late_after: timedelta = timedelta(seconds=60)
    stores: tuple[str, ...] = ()
    event_only_catalogs: frozenset[str] = frozenset()

    def max_steps(self, catalog: str, live: int) -> int:
        """Return how many drops and rollbacks pass in an hour.

        Args:
            catalog: name of the catalog.
            live: number of its tables with a live file.
        """
        return self.max_drops.get(catalog, max(10, live // 100))

    def max_drops_of(self, catalog: str, tables: int) -> int:
        """Return how many tables may disappear in an hour: fewer than half of them, or a single one.

        A configured `max_drops` replaces this rule as well.

        Args:
            catalog: name of the catalog.
            tables: number of tables with a live file, plus those that were dropped within the hour.
        """
        return self.max_drops.get(catalog, max(1, (tables - 1) // 2))

    def allowed_drops(self, catalog: str, live: int, dropped: int = 0) -> int:
        """Return how many tables may disappear, within an hour or in one sweep.

        Args:
            catalog: name of the catalog.
            live: number of its tables with a live file.
            dropped: number of other tables that were dropped within the hour.
        """
        return min(self.max_steps(catalog, live), self.max_drops_of(catalog, live + dropped))


RETRY_AFTER: Final = 1.0
"""Seconds that a caller should wait after a rejected transaction."""


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """A transaction that is on disk.

    Attributes:
        calls: number of calls that it answers.
        messages: number of messages that it stored.
        seconds: duration of the transaction.
    """

    calls: int
    messages: int
    seconds: float


def queue_full_error(where: str, limit: int, waiting: int, more: int, remedy: str) -> Transient:
    """Return the error of a put that finds the queue full.

    Args:
        where: name of the queue.
        limit: most messages that may wait.
        waiting: messages that wait.
        more: messages of the put.
        remedy: what to do.
    """
    return Transient(
        where,
        scope=ErrorScope.INBOX,
        expected=f"at most {limit} messages that wait for the disk",
        found=f"{waiting} and {more} more",
        remedy=remedy,
        retry_after=RETRY_AFTER,
    )
