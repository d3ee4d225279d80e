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

Start with `on_notification`, `on_claim` and `on_settle`. In event-only catalogs, notifications carry the state itself:
`sfn.inbox.reported_tables`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace

from sfn.domain.events import Notification
from sfn.domain.identifiers import JobKey, TableIdentifier
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
from sfn.inbox.model import InboxConfig, Job, JobState, LastResult, closes_dead_letter
from sfn.inbox.reported_tables import on_report, tables_of
from sfn.sfnfile.ordering import newer_floor

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
        seq: number of the notification in the log; 0 for one that no event reported.
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
    )
    table_state = replace(job.table_state, on_hold=True) if notification.hold_drops else job.table_state
    state, due_at = _due_after_notification(job, now, cap)
    return replace(
        _start_pending(job, now),
        version=job.version + 1,
        event_seq=max(job.event_seq, seq),
        pending=pending,
        table_state=table_state,
        state=state,
        due_at=due_at,
    )


def on_wakeup(job: Job | None, wakeup: Wakeup, now: datetime, cap: timedelta) -> Job | None:
    """Return the job after a wakeup by another job's publish; None if nothing changes.

    A wakeup with a location only adds the location: a job that knows the location does not change. A wakeup that
    reports a change of the table acts as an event.

    Args:
        job: the job before; None for a table without one.
        wakeup: the wakeup.
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
        after = on_notification(job, notification, 0, now, cap)
        return replace(after, pending=replace(after.pending, is_relayed=is_relayed))
    if wakeup.location is not None:
        if job is not None and wakeup.location in job.locations:
            return None
        fresh = job or Job(wakeup.table, now, table_state=TableState(has_settled=True))
        job = replace(fresh, locations=fresh.locations | {wakeup.location})
    job = _start_pending(job, now) if job is not None else Job(wakeup.table, now)
    job = replace(job, version=job.version + 1)
    waits = job.state is JobState.QUEUED and job.attempt == 0
    return replace(job, due_at=min(job.due_at, _after_pause(job, now, now))) if waits else job


def on_claim(job: Job, fencing_token: int, now: datetime, lease: timedelta) -> Job:
    """Return the job leased; the attempt is counted before it starts.

    Args:
        job: the job before.
        fencing_token: a token that no earlier claim of a job of this name had, because a deleted job may come back.
        now: the present.
        lease: duration of the lease.
    """
    return replace(
        job,
        state=JobState.LEASED,
        fencing_token=fencing_token,
        leased_version=job.version,
        claimed_at=now,
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
        job = replace(job, reason=DeadLetterReason.POISON, failing_since=None, has_letter=True)
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
    newer = job.version > leased.version
    job = replace(
        job,
        lease_until=None,
        crashes=0,
        last_result=LastResult(*describe(outcome), now),
        outcomes=job.outcomes + 1,
        has_letter=isinstance(outcome, DeadLettered) or (job.has_letter and not closes_dead_letter(outcome)),
    )
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
            job = replace(job, state=JobState.DEAD, reason=reason, pending_since=None)
            if recheck_at is not None:
                job = _queued(
                    replace(job, attempt=0, failing_since=None, processed_version=leased.version), recheck_at, now
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
    table_state = replace(job.table_state, on_hold=False, limit_overridden=True)
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
        job, processed_version=job.version, attempt=0, crashes=0, failing_since=None, pending_since=None, reason=None
    )
    return _queued(replace(job, lease_until=None, cache=PublishCache()), now, now)


def _apply_result(job: Job, leased: LeasedJob, result: PublishResult) -> Job:
    """Return the job with the result of its publish; a hold that a sweep set during the claim stays.

    What events reported of the table stays too, because events alone change it.
    """
    on_hold = job.table_state.on_hold and not leased.table_state.on_hold
    table_state = replace(result.table_state, on_hold=True) if on_hold else result.table_state
    if table_state.reported != job.table_state.reported:
        table_state = replace(table_state, reported=job.table_state.reported)
    return replace(
        job,
        table_state=table_state,
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
    return _queued(replace(job, pending=replace(job.pending, drop=drop, purge=purge)), now, now)


def _mark_processed(job: Job, leased: LeasedJob) -> Job:
    return replace(
        job, attempt=0, failing_since=None, pending_since=None, reason=None, processed_version=leased.version
    )


def _start_pending(job: Job, now: datetime) -> Job:
    """Return the job with the start of its wait, if a notification comes that does not make it due."""
    busy = job.state is JobState.LEASED or (job.state is JobState.QUEUED and job.attempt > 0)
    return replace(job, pending_since=now) if busy and job.version <= job.processed_version else job


def _keep_pending_since(job: Job) -> Job:
    """Return the job with the start of its wait, before its due time is moved while a notification is unprocessed."""
    first = job.pending_since is None and job.version > job.processed_version
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
    subject, cap = notification.subject, config.retry_cap
    jobs: dict[JobKey, Job] = {subject: on_notification(load(subject), notification, seq, now, cap)}
    if subject.catalog not in config.event_only_catalogs or not isinstance(subject, TableIdentifier):
        return jobs
    for name, tables in on_report(subject, notification, seq, lambda name: tables_of(load(name))).items():
        job = jobs.get(name) or on_notification(load(name), Notification(name), seq, now, cap)
        jobs[name] = replace(job, table_state=replace(job.table_state, reported=tables))
    return jobs
