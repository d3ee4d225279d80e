"""A row of the inbox and what it is seen as: pure, and the same for every adapter. How it changes is `transitions`'."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from sfn.domain.identifiers import JobKey, TableIdentifier, is_in_namespaces
from sfn.domain.jobs import (
    ConcurrencyGroup,
    DeadLetterReason,
    LeasedJob,
    PendingChange,
    Priority,
    PublishCache,
    SweepCompleted,
    TableState,
)
from sfn.inbox.intents import OpenIntentStats
from sfn.inbox.standing import LastEvent, LastResult, TableStatus
from sfn.sfnfile.locations import store_prefix
from sfn.sfnfile.naming import layout_location

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
    """Which of `sfn.inbox.figures.STAT_STATES` a table's row counts as."""
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
