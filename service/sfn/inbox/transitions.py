"""State transitions of a job. Pure, and shared by all adapters.

    from            event                        to
    (none), queued  notification                 queued, due now or when its pause ends; a retry keeps its time
    leased          notification                 leased; the notification counts when the claim settles
    dead            notification                 queued: at once if the cause is outside the table, else one retry per
                                                 `retry_cap`
    queued and due  claim                        leased: new token, attempt counted
    leased          Done, nothing newer          queued for the next refresh; or deleted
    leased          Done, newer notification     queued, due now or when its pause ends
    leased          Rescheduled                  queued for the given time; the pending change stays
    leased          Retry                        queued for the given time; the cache is dropped
    leased          DeadLettered                 dead; or queued with an open letter, if a recheck is set
    leased          Returned                     queued for the given time, the attempt not counted
    leased          lease expired                queued now, crash counted; after too many crashes much later, as poison
    held            released by an operator      queued now, limit overridden once
    dead            replayed by an operator      queued now, behind newer events; limit overridden once if it was held

No job is due before its pause ends (`Job.not_before`). A pause that ends later than the longest possible pause was set
by a clock that was ahead, and is ignored.

Start with `on_notification`, `on_claim` and `on_settle`. The last section is about event-only catalogs, where
notifications carry the state itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace

from sfn.domain.events import EventHistory, Notification, ReportedChange, TableHistory, TableOrigin
from sfn.domain.identifiers import JobKey, TableIdentifier, normal_uuid
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    Outcome,
    PendingChange,
    PublishCache,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    SweepCompleted,
    TableState,
    Wakeup,
    describe,
)
from sfn.inbox.model import InboxConfig, Job, JobState, LastResult, event_seq_of
from sfn.sfnfile import event_history
from sfn.sfnfile.event_history import mark_doubtful
from sfn.sfnfile.ordering import metadata_version, newer_floor

_IMMEDIATE_REASONS = frozenset(
    {
        None,
        DeadLetterReason.HELD_DROP,
        DeadLetterReason.FOREIGN_CATALOG,
        DeadLetterReason.FOREIGN_FILE,
        DeadLetterReason.LOCATION_REFUSED,
    }
)
"""Reasons with a cause outside the table: a notification makes such a job due without a pause. None: not dead."""

MAX_PAUSE = timedelta(hours=1)
"""Longest pause between two publishes of a table."""
SWEEP_PAUSE = timedelta(seconds=30)
"""Longest enforced pause between two sweeps of a catalog."""


def on_notification(job: Job | None, notification: Notification, seq: int, now: datetime, cap: timedelta) -> Job:
    """Return the job after a notification.

    Args:
        job: the job before; None for a subject without one.
        notification: the notification.
        seq: number of the notification.
        now: the present.
        cap: longest pause between retries.
    """
    job = job or Job(notification.subject, now)
    pending = PendingChange(
        # A location that was reported before the job became dead may have been rolled back since.
        min_metadata_location=(notification.min_metadata_location or job.pending.min_metadata_location)
        if job.reason is not None
        else newer_floor(job.pending.min_metadata_location, notification.min_metadata_location),
        renamed_to=notification.renamed_to or job.pending.renamed_to,
        drop=notification.drop or job.pending.drop,
        purge=notification.purge or job.pending.purge,
        is_unspecific=notification.is_unspecific or job.pending.is_unspecific,
        force=notification.force or job.pending.force,
        adopt_catalog_id=notification.adopt_catalog_id or job.pending.adopt_catalog_id,
        is_guessed=notification.is_guessed and (job.pending.is_guessed or job.pending == PendingChange()),
        reported_changes=job.pending.reported_changes,
    )
    table_state = dataclasses.replace(job.table_state, on_hold=True) if notification.hold_drops else job.table_state
    state, due_at = _due_after_notification(job, now, cap)
    return replace(
        _start_pending(job, now),
        notified_seq=seq,
        event_seq=None,
        pending=pending,
        table_state=table_state,
        state=state,
        due_at=due_at,
    )


def on_wakeup(job: Job | None, wakeup: Wakeup, seq: int, now: datetime, cap: timedelta) -> Job | None:
    """Return the job after a wakeup by another job's publish; None if nothing changes.

    A wakeup with a location only adds the location: a job that knows the location does not change. A wakeup that
    reports a change of the table acts as an event.

    Args:
        job: the job before; None for a table without one.
        wakeup: the wakeup.
        seq: number of the wakeup.
        now: the present.
        cap: longest pause between retries.
    """
    if wakeup.counts_as_event:
        notification = Notification(
            wakeup.table,
            min_metadata_location=wakeup.min_metadata_location,
            drop=wakeup.drop,
            purge=wakeup.purge,
            renamed_to=wakeup.renamed_to,
        )
        is_relayed = job is None or job.pending.is_relayed or job.pending == PendingChange()
        after = on_notification(job, notification, seq, now, cap)
        pending = dataclasses.replace(after.pending, is_relayed=is_relayed)
        return replace(after, pending=pending, event_seq=event_seq_of(job) if job is not None else 0)
    if wakeup.location is not None:
        if job is not None and wakeup.location in job.locations:
            return None
        fresh = job or Job(wakeup.table, now, table_state=TableState(has_settled=True))
        job = replace(fresh, locations=fresh.locations | {wakeup.location})
    job = _start_pending(job, now) if job is not None else Job(wakeup.table, now)
    job = replace(job, notified_seq=seq, event_seq=event_seq_of(job))
    waits = job.state is JobState.QUEUED and job.attempt == 0
    return replace(job, due_at=min(job.due_at, _after_pause(job, now, now))) if waits else job


def on_claim(job: Job, fencing_token: int, now: datetime, lease: timedelta) -> Job:
    """Return the job leased; the attempt is counted before it starts.

    Args:
        job: the job before.
        fencing_token: greater than the token of every earlier claim of any job, because a deleted job may come back.
        now: the present.
        lease: duration of the lease.
    """
    return replace(
        job,
        state=JobState.LEASED,
        fencing_token=fencing_token,
        attempt=job.attempt + 1,
        lease_until=now + lease,
        failing_since=job.failing_since or now,
    )


def on_renew(job: Job, now: datetime, lease: timedelta) -> Job:
    return replace(job, lease_until=now + lease)


def on_lease_expired(job: Job, now: datetime, config: InboxConfig) -> Job:
    """Return the job after its lease expired: the worker died or hangs.

    After too many crashes a table counts as poison. It is claimed again after `poison_pause`, because another table may
    have caused the crashes. A catalog only pauses, because without it no table of the catalog would be swept.
    """
    job = replace(_keep_pending_since(job), crashes=job.crashes + 1, lease_until=None, cache=PublishCache())
    if job.crashes < config.max_crashes:
        return _queued(job, now, now)
    if isinstance(job.subject, TableIdentifier):
        job = replace(job, reason=DeadLetterReason.POISON, failing_since=None)
        return _queued(job, now + config.poison_pause, now)
    return _queued(job, now + config.retry_cap, now)


def is_poison(job: Job, config: InboxConfig) -> bool:
    """Return True if a job counts as poison after its lease expired."""
    return job.reason is DeadLetterReason.POISON and job.crashes >= config.max_crashes


def on_settle(job: Job, leased: LeasedJob, outcome: Outcome, now: datetime, cap: timedelta) -> Job | None:
    """Return the job after its claim ended; None if the job is deleted.

    Args:
        job: the job before.
        leased: the claim.
        outcome: the outcome of the claim.
        now: the present.
        cap: longest pause between retries.
    """
    newer = job.notified_seq > leased.notified_seq
    job = replace(job, lease_until=None, crashes=0, last_result=LastResult(*describe(outcome), now))
    match outcome:
        case Done(due_at, result, forget):
            if forget and not newer:
                return None
            job = _mark_processed(_apply_result(job, leased, result), leased)
            return (
                _requeue_for_newer(job, leased, PendingChange(), now)
                if newer
                else _queued(replace(job, pending=PendingChange()), due_at, now)
            )
        case SweepCompleted(due_at):
            # A sender of many undecodable requests must not cause one sweep after another.
            job = _mark_processed(replace(job, not_before=now + min((due_at - now) / 10, SWEEP_PAUSE)), leased)
            return _queued(job, now, now) if newer else _queued(replace(job, pending=PendingChange()), due_at, now)
        case Rescheduled(at, _, pending, result):
            job = _mark_processed(_apply_result(job, leased, result), leased)
            return (
                _requeue_for_newer(job, leased, pending, now)
                if newer
                else _queued(replace(job, pending=pending), at, now)
            )
        case Retry(at, _):
            return _queued(replace(_keep_pending_since(job), cache=PublishCache()), at, now)
        case DeadLettered(reason, _, result, recheck_at):
            job = _apply_result(job, leased, result) if result is not None else replace(job, cache=PublishCache())
            pending = dataclasses.replace(job.pending, reported_changes=mark_doubtful(job.pending.reported_changes))
            job = replace(job, state=JobState.DEAD, reason=reason, pending=pending, pending_since=None)
            if recheck_at is not None:
                job = _queued(
                    replace(job, attempt=0, failing_since=None, processed_seq=leased.notified_seq), recheck_at, now
                )
            if newer:
                state, due_at = _due_after_notification(job, now, cap)
                job = replace(job, state=state, due_at=due_at)
            return job
        case Returned(at, _):
            # The problem is not the table's, so it costs the table neither an attempt nor time of its retry budget.
            job = replace(
                _keep_pending_since(job), attempt=max(0, job.attempt - 1), failing_since=None, cache=PublishCache()
            )
            return _queued(job, at, now)
    assert_never(outcome)


def on_release_hold(job: Job, now: datetime) -> Job:
    """Return a held job released: its drop passes once, and a worker that has it leased loses the lease."""
    table_state = dataclasses.replace(job.table_state, on_hold=False, limit_overridden=True)
    job = replace(
        job, table_state=table_state, attempt=0, failing_since=None, pending_since=None, reason=None, lease_until=None
    )
    return _queued(job, now, now)


def on_replay(job: Job, now: datetime) -> Job:
    """Return a dead job queued again for an operator; a worker that has it leased loses the lease.

    The job gets background priority, so that many replays do not delay newer events.
    """
    if job.reason is DeadLetterReason.HELD_DROP:
        return on_release_hold(job, now)
    job = replace(
        job, processed_seq=job.notified_seq, attempt=0, crashes=0, failing_since=None, pending_since=None, reason=None
    )
    return _queued(replace(job, lease_until=None, cache=PublishCache()), now, now)


def _apply_result(job: Job, leased: LeasedJob, result: PublishResult) -> Job:
    """Return the job with the result of its publish; a hold that a sweep set during the claim stays."""
    on_hold = job.table_state.on_hold and not leased.table_state.on_hold
    return replace(
        job,
        table_state=dataclasses.replace(result.table_state, on_hold=True) if on_hold else result.table_state,
        cache=result.cache,
        locations=job.locations - result.vacated,
        not_before=result.not_before or job.not_before,
    )


def _requeue_for_newer(job: Job, leased: LeasedJob, still_pending: PendingChange, now: datetime) -> Job:
    """Return the job due for notifications that came during its claim, without a drop that the claim processed.

    A drop that was reported before and during the claim counts as one drop. If that is wrong, the missing table is
    only noticed later.
    """
    drop = job.pending.drop and (still_pending.drop or not leased.pending.drop)
    purge = job.pending.purge and (still_pending.purge or not leased.pending.purge)
    return _queued(replace(job, pending=dataclasses.replace(job.pending, drop=drop, purge=purge)), now, now)


def _mark_processed(job: Job, leased: LeasedJob) -> Job:
    return replace(
        job, attempt=0, failing_since=None, pending_since=None, reason=None, processed_seq=leased.notified_seq
    )


def _start_pending(job: Job, now: datetime) -> Job:
    """Return the job with the start of its wait, if a notification comes that does not make it due."""
    busy = job.state is JobState.LEASED or (job.state is JobState.QUEUED and job.attempt > 0)
    return replace(job, pending_since=now) if busy and job.notified_seq <= job.processed_seq else job


def _keep_pending_since(job: Job) -> Job:
    """Return the job with the start of its wait, before its due time is moved while a notification is unprocessed."""
    first = job.pending_since is None and job.notified_seq > job.processed_seq
    return replace(job, pending_since=job.due_at) if first else job


def _queued(job: Job, at: datetime, now: datetime) -> Job:
    return replace(job, state=JobState.QUEUED, due_at=_after_pause(job, at, now))


def _after_pause(job: Job, at: datetime, now: datetime) -> datetime:
    pause_ends = job.not_before
    return at if pause_ends is None or pause_ends > now + MAX_PAUSE else max(at, pause_ends)


def _due_after_notification(job: Job, now: datetime, cap: timedelta) -> tuple[JobState, datetime]:
    """Return state and due time after a notification; a leased job and a retry do not become due."""
    if job.state is JobState.LEASED or (job.state is JobState.QUEUED and job.due_at <= now):
        return job.state, job.due_at
    if job.state is JobState.QUEUED and job.attempt > 0:
        return job.state, min(job.due_at, _after_pause(job, now + cap, now))
    due = _after_pause(job, _recheck_at(job, now, cap), now)
    return JobState.QUEUED, due if job.state is JobState.DEAD else min(job.due_at, due)


def _recheck_at(job: Job, now: datetime, cap: timedelta) -> datetime:
    """Return when a notification makes a job due; a dead job at most once per `cap`, for any number of events."""
    if job.reason in _IMMEDIATE_REASONS:
        return now
    tried_at = job.last_result.at if job.last_result is not None else now
    # A last attempt later than now was recorded by a clock that was ahead.
    return max(now, min(tried_at, now) + cap)


MAX_REPORTED_CHANGES = 16
"""Most reported changes of a job that wait for a publish."""
_MAX_RENAMES = 8
"""Most renames that are followed from the name in a late event."""


def event_history_of(job: Job) -> EventHistory | None:
    """Return what events reported about the table of a job; None without any report."""
    history = dataclasses.replace(
        job.table_state.event_history or EventHistory(), reported_changes=job.pending.reported_changes
    )
    return history if history != EventHistory() else None


def jobs_after_notification(
    notification: Notification, seq: int, now: datetime, config: InboxConfig, load: Callable[[JobKey], Job | None]
) -> dict[JobKey, Job]:
    """Return the jobs that a notification changes, by subject.

    These are the job of its subject and, in an event-only catalog, the jobs of other names of the table.

    Args:
        notification: the notification.
        seq: number of the notification.
        now: the present.
        config: configuration of the inbox.
        load: returns the job of a subject.
    """
    name = notification.subject
    jobs: dict[JobKey, Job] = {name: on_notification(load(name), notification, seq, now, config.retry_cap)}
    if name.catalog not in config.event_only_catalogs or not isinstance(name, TableIdentifier):
        return jobs

    def row_of(other: TableIdentifier) -> Job | None:
        return jobs.get(other) or load(other)

    for change in _reported_changes(notification, seq, row_of):
        for target, addressed in _address_change(name, change, row_of):
            job = row_of(target)
            if job is None or target != name:
                job = on_notification(
                    job,
                    Notification(target, min_metadata_location=addressed.metadata_location),
                    seq,
                    now,
                    config.retry_cap,
                )
            jobs[target] = replace(
                job,
                pending=dataclasses.replace(
                    job.pending, reported_changes=_add_change(job.pending.reported_changes, addressed)
                ),
            )
    return jobs


def _reported_changes(
    notification: Notification, seq: int, job_of: Callable[[TableIdentifier], Job | None]
) -> Iterator[ReportedChange]:
    notification = dataclasses.replace(notification, uuid=normal_uuid(notification.uuid))
    if notification.renamed_from is not None:
        before = job_of(notification.renamed_from)
        yield from _changes_moved_by_rename(notification, seq, event_history_of(before) if before is not None else None)
    elif notification.drop or notification.renamed_to is not None:
        yield ReportedChange(seq, uuid=notification.uuid, is_end=True, renamed_to=notification.renamed_to)
    elif notification.min_metadata_location is not None:
        yield ReportedChange(seq, notification.min_metadata_location, notification.uuid, notification.origin)


def _changes_moved_by_rename(
    notification: Notification, seq: int, history: EventHistory | None
) -> Iterator[ReportedChange]:
    """Yield the changes that move to the new name: the location in the rename event, and earlier reports."""
    origin: TableOrigin | None = TableOrigin.REGISTER
    if notification.min_metadata_location is not None:
        yield ReportedChange(seq, notification.min_metadata_location, notification.uuid, origin)
        origin = None
    if history is None:
        return
    if history.reported_changes and history.reported_changes[-1].renamed_to == notification.subject:
        # The last report under the old name is the rename itself.
        history = dataclasses.replace(history, reported_changes=history.reported_changes[:-1])
    known = event_history.apply_known(history)
    table = (
        event_history.current(known)
        if notification.uuid is None
        else event_history.history_of(known, notification.uuid)
    )
    for location, uuid in _known_locations(history, known, table):
        yield ReportedChange(seq, location, uuid, origin)
        origin = None


def _known_locations(
    history: EventHistory, known: EventHistory, table: TableHistory | None
) -> Iterator[tuple[str, str | None]]:
    """Yield the possible metadata locations of a table, each with its uuid if known, the certain one first."""
    before = event_history.history_of(history, table.uuid) if table is not None else None
    if before is not None and before.metadata_location is not None:
        yield before.metadata_location, before.uuid
    unplaced = [change for change in known.reported_changes if change.seq > known.ended_seq]
    placed = [
        one for one in history.reported_changes if table is not None and one.uuid is not None and one.uuid == table.uuid
    ]
    # A creation is certainly of this table; a commit may be a late one of an earlier table of this name.
    created = [change for change in unplaced if change.origin is not None][-1:]
    for change in dict.fromkeys((*placed, *created, *unplaced)):
        if change.metadata_location is not None:
            yield change.metadata_location, change.uuid


def _address_change(
    name: TableIdentifier, change: ReportedChange, job_of: Callable[[TableIdentifier], Job | None]
) -> Iterator[tuple[TableIdentifier, ReportedChange]]:
    """Yield the names that a change is about: the name in the event, and the name that the table has now."""
    if change.uuid is None or change.is_end:
        yield name, change
        return
    for _ in range(_MAX_RENAMES):
        job = job_of(name)
        before = event_history.apply_known((event_history_of(job) if job is not None else None) or EventHistory())
        yield name, change
        table = event_history.history_of(before, change.uuid)
        # The table was created before and has ended, so another creation means that the table came back.
        returns = change.origin is not None and table.created_seq >= 0
        if table.renamed_to is None or event_history.is_alive(before, table) or returns:
            return
        name = table.renamed_to
        change = dataclasses.replace(change, origin=TableOrigin.REGISTER if change.origin is not None else None)


def _add_change(changes: tuple[ReportedChange, ...], change: ReportedChange) -> tuple[ReportedChange, ...]:
    if change.is_end and changes and dataclasses.replace(change, seq=changes[-1].seq) == changes[-1]:
        return changes
    remaining = [*(one for one in changes if not _is_superseded(one, change)), change]
    while len(remaining) > MAX_REPORTED_CHANGES:
        remaining.remove(_least_useful(remaining))
    return tuple(remaining)


def _is_superseded(one: ReportedChange, by: ReportedChange) -> bool:
    """Return True if a later report makes a commit obsolete: a repetition, or a higher version of the same table."""
    if one.origin is not None or by.origin is not None or one.is_end or by.is_end:
        return False
    if (one.metadata_location, one.uuid) == (by.metadata_location, by.uuid):
        return True
    return one.uuid is not None and one.uuid == by.uuid and _is_lower(one, by)


def _least_useful(changes: list[ReportedChange]) -> ReportedChange:
    """Return the change to forget: the oldest commit that a later report outnumbers, else the oldest commit."""
    commits = [one for one in changes if one.origin is None and not one.is_end]
    oldest, highest = None, -1
    for one in reversed(commits):
        number = metadata_version(one.metadata_location or "")
        if number is not None and number < highest:
            oldest = one
        highest = max(highest, -1 if number is None else number)
    return oldest or (commits or changes)[0]


def _is_lower(one: ReportedChange, other: ReportedChange) -> bool:
    a, b = metadata_version(one.metadata_location or ""), metadata_version(other.metadata_location or "")
    return a is not None and b is not None and a < b
