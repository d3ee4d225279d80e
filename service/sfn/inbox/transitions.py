"""How a row of the inbox changes: pure, and the same for every adapter.

    from            event                        to
    (none), queued  a hint                       queued, due now or when its pause ends; a retry keeps its time
    leased          a hint                       leased; noticed when the claim settles
    dead            a hint                       queued: at once where it waits for others, else one try a cap
    queued and due  claim                        leased: token and attempt counted
    leased          done, nothing newer came     queued, for a look of our own accord; or forgotten
    leased          done, something newer came   queued, due now or when its pause ends
    leased          later                        queued then; the wish stays
    leased          retry                        queued then; the memo is dropped
    leased          dead                         dead; queued, with its letter open, while it has files to look after
    leased          released                     queued then, the attempt given back
    leased          lease ran out                queued now, the crash counted; much later, as poison, after too many
    any held        released by an operator      queued now, waived once
    any given up    replayed by an operator      queued now, behind what was told since; waived once if it was held

No row is due before its pause ends (`Row.not_before`), whatever is said of its due time. A moment that is further away
than any pause can be was set by a clock that was ahead, and does not count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import replace as tellings_replace
from datetime import datetime, timedelta
from typing import assert_never

from msgspec import structs
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

# ── transitions: How a row of the inbox changes

_IMMEDIATE_REASONS = frozenset(
    {
        None,
        DeadLetterReason.HELD_DROP,
        DeadLetterReason.FOREIGN_CATALOG,
        DeadLetterReason.FOREIGN_FILE,
        DeadLetterReason.LOCATION_REFUSED,
    }
)
"""Why a row may be dead that a hint brings back without a pause, as its cause lies beside the table; None for one that
is not."""

MAX_PAUSE = timedelta(hours=1)
"""Between two publishes of a row."""
SWEEP_PAUSE = timedelta(seconds=30)
"""Between two sweeps of a catalog, at most."""


def on_notification(job: Job | None, notification: Notification, seq: int, now: datetime, cap: timedelta) -> Job:
    """The row after a hint.

    Args:
        job: as it was, None for a subject that has none.
        seq: the hint's number.
        cap: the longest pause of a retry.
    """
    job = job or Job(notification.subject, now)
    pending = PendingChange(
        # What a row was told of before it was given up may have been rolled back since.
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
    """The row after another row's publish asked it to look; None where nothing changes.

    An ask with a location only teaches: a row that knows the location is left alone. One with news of the table does
    what an event does.

    Args:
        cap: as for `hinted`.
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
    """The row leased once more; the attempt is counted before it starts.

    Args:
        fencing_token: greater than that of any claim before, of whatever row: one that is forgotten may come again.
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
    """The row with its lease prolonged."""
    return replace(job, lease_until=now + lease)


def on_lease_expired(job: Job, now: datetime, config: InboxConfig) -> Job:
    """The row when its lease ran out: whoever had it died or hangs.

    A table may then count as poison, and may only have been beside it: it is looked at again by and by. A catalog only
    pauses; nobody would look at its tables any more.
    """
    job = replace(_keep_pending_since(job), crashes=job.crashes + 1, lease_until=None, cache=PublishCache())
    if job.crashes < config.max_crashes:
        return _queued(job, now, now)
    if isinstance(job.subject, TableIdentifier):
        job = replace(job, reason=DeadLetterReason.POISON, failing_since=None)
        return _queued(job, now + config.poison_pause, now)
    return _queued(job, now + config.retry_cap, now)


def is_poison(job: Job, config: InboxConfig) -> bool:
    """Whether a row that expired just now counts as poison."""
    return job.reason is DeadLetterReason.POISON and job.crashes >= config.max_crashes


def on_settle(job: Job, leased: LeasedJob, outcome: Outcome, now: datetime, cap: timedelta) -> Job | None:
    """The row after its claim ended; None: it may go.

    Args:
        cap: as for `hinted`.
    """
    newer = job.notified_seq > leased.notified_seq
    job = replace(job, lease_until=None, crashes=0, last_result=LastResult(*describe(outcome), now))
    match outcome:
        case Done(due_at, findings, forget):
            if forget and not newer:
                return None
            job = _mark_processed(_apply_result(job, leased, findings), leased)
            return (
                _requeue_for_newer(job, leased, PendingChange(), now)
                if newer
                else _queued(replace(job, pending=PendingChange()), due_at, now)
            )
        case SweepCompleted(due_at):
            # Whoever sends what can't be taken, time and again, must not have the catalog swept without end.
            job = _mark_processed(replace(job, not_before=now + min((due_at - now) / 10, SWEEP_PAUSE)), leased)
            return _queued(job, now, now) if newer else _queued(replace(job, pending=PendingChange()), due_at, now)
        case Rescheduled(at, _, pending, findings):
            job = _mark_processed(_apply_result(job, leased, findings), leased)
            return (
                _requeue_for_newer(job, leased, pending, now)
                if newer
                else _queued(replace(job, pending=pending), at, now)
            )
        case Retry(at, _):
            return _queued(replace(_keep_pending_since(job), cache=PublishCache()), at, now)
        case DeadLettered(reason, _, findings, look_at):
            job = _apply_result(job, leased, findings) if findings is not None else replace(job, cache=PublishCache())
            pending = dataclasses.replace(job.pending, reported_changes=mark_doubtful(job.pending.reported_changes))
            job = replace(job, state=JobState.DEAD, reason=reason, pending=pending, pending_since=None)
            if look_at is not None:
                job = _queued(
                    replace(job, attempt=0, failing_since=None, processed_seq=leased.notified_seq), look_at, now
                )
            if newer:
                state, due_at = _due_after_notification(job, now, cap)
                job = replace(job, state=state, due_at=due_at)
            return job
        case Returned(at, _):
            # Whose trouble it was spends nobody's budget: neither an attempt nor the time that it took.
            job = replace(
                _keep_pending_since(job), attempt=max(0, job.attempt - 1), failing_since=None, cache=PublishCache()
            )
            return _queued(job, at, now)
    assert_never(outcome)


def on_release_hold(job: Job, now: datetime) -> Job:
    """A held row that an operator lets pass once; whoever has it leased is fenced."""
    table_state = dataclasses.replace(job.table_state, on_hold=False, limit_overridden=True)
    job = replace(
        job, table_state=table_state, attempt=0, failing_since=None, pending_since=None, reason=None, lease_until=None
    )
    return _queued(job, now, now)


def on_replay(job: Job, now: datetime) -> Job:
    """A row that was given up and that an operator wants to have looked at; whoever has it leased is fenced.

    It takes its turn with what only time asks for: many replays at once must not hold up what was told since.
    """
    if job.reason is DeadLetterReason.HELD_DROP:
        return on_release_hold(job, now)
    job = replace(
        job, processed_seq=job.notified_seq, attempt=0, crashes=0, failing_since=None, pending_since=None, reason=None
    )
    return _queued(replace(job, lease_until=None, cache=PublishCache()), now, now)


def _apply_result(job: Job, leased: LeasedJob, result: PublishResult) -> Job:
    """The row with what its publish found; that it is to be held may have been said since."""
    on_hold = job.table_state.on_hold and not leased.table_state.on_hold
    return replace(
        job,
        table_state=dataclasses.replace(result.table_state, on_hold=True) if on_hold else result.table_state,
        cache=result.cache,
        locations=job.locations - result.vacated,
        not_before=result.not_before or job.not_before,
    )


def _requeue_for_newer(job: Job, leased: LeasedJob, still_pending: PendingChange, now: datetime) -> Job:
    """The row due for what was told during its claim; a drop that the claim saw through is not told once more.

    One that was told before and again meanwhile counts as the same: without it an absence takes longer, no more.
    """
    drop = job.pending.drop and (still_pending.drop or not leased.pending.drop)
    purge = job.pending.purge and (still_pending.purge or not leased.pending.purge)
    return _queued(replace(job, pending=dataclasses.replace(job.pending, drop=drop, purge=purge)), now, now)


def _mark_processed(job: Job, leased: LeasedJob) -> Job:
    return replace(
        job, attempt=0, failing_since=None, pending_since=None, reason=None, processed_seq=leased.notified_seq
    )


def _start_pending(job: Job, now: datetime) -> Job:
    """The row before a hint: where that does not make it due, since when it waits is to be remembered."""
    busy = job.state is JobState.LEASED or (job.state is JobState.QUEUED and job.attempt > 0)
    return replace(job, pending_since=now) if busy and job.notified_seq <= job.processed_seq else job


def _keep_pending_since(job: Job) -> Job:
    """The row before its due time is put off, though what was told of it is not seen through."""
    first = job.pending_since is None and job.notified_seq > job.processed_seq
    return replace(job, pending_since=job.due_at) if first else job


def _queued(job: Job, at: datetime, now: datetime) -> Job:
    return replace(job, state=JobState.QUEUED, due_at=_after_pause(job, at, now))


def _after_pause(job: Job, at: datetime, now: datetime) -> datetime:
    pause_ends = job.not_before
    return at if pause_ends is None or pause_ends > now + MAX_PAUSE else max(at, pause_ends)


def _due_after_notification(job: Job, now: datetime, cap: timedelta) -> tuple[JobState, datetime]:
    """State and due time after a hint: it makes a row due, but not one that is leased or waits for its next attempt."""
    if job.state is JobState.LEASED or (job.state is JobState.QUEUED and job.due_at <= now):
        return job.state, job.due_at
    if job.state is JobState.QUEUED and job.attempt > 0:
        return job.state, min(job.due_at, _after_pause(job, now + cap, now))
    due = _after_pause(job, _recheck_at(job, now, cap), now)
    return JobState.QUEUED, due if job.state is JobState.DEAD else min(job.due_at, due)


def _recheck_at(job: Job, now: datetime, cap: timedelta) -> datetime:
    """When a hint has a row looked at: one that was given up once a cap at most, however much is told of it."""
    if job.reason in _IMMEDIATE_REASONS:
        return now
    tried_at = job.last_result.at if job.last_result is not None else now
    # A last try later than now was noted by a clock that was ahead.
    return max(now, min(tried_at, now) + cap)


# ── tellings: What hints tell of names in a catalog that nobody can ask

MAX_REPORTED_CHANGES = 16
"""Tellings of a row that wait to be heard."""
_HOPS = 8
"""Names that a table may have had since a late event named it."""


def event_history_of(job: Job) -> EventHistory | None:
    """All that was told of a row's name; None for nothing."""
    history = tellings_replace(
        job.table_state.event_history or EventHistory(), reported_changes=job.pending.reported_changes
    )
    return history if history != EventHistory() else None


def jobs_after_notification(
    notification: Notification, seq: int, now: datetime, config: InboxConfig, load: Callable[[JobKey], Job | None]
) -> dict[JobKey, Job]:
    """The rows that a hint changes: its own, and in a catalog that nobody can ask those that it tells something too.

    Args:
        seq: the hint's number.
        load: a subject's row.
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
            jobs[target] = structs.replace(
                job,
                pending=tellings_replace(
                    job.pending, reported_changes=_add_change(job.pending.reported_changes, addressed)
                ),
            )
    return jobs


def _reported_changes(
    notification: Notification, seq: int, job_of: Callable[[TableIdentifier], Job | None]
) -> Iterator[ReportedChange]:
    notification = tellings_replace(notification, uuid=normal_uuid(notification.uuid))
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
    """What a table takes along to its new name: the location that its rename told, and what was told before."""
    origin: TableOrigin | None = TableOrigin.REGISTER
    if notification.min_metadata_location is not None:
        yield ReportedChange(seq, notification.min_metadata_location, notification.uuid, origin)
        origin = None
    if history is None:
        return
    if history.reported_changes and history.reported_changes[-1].renamed_to == notification.subject:
        # The rename itself, under the old name.
        history = tellings_replace(history, reported_changes=history.reported_changes[:-1])
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
    """Where a table's metadata lies, or may lie, with its uuid as far as it was told; what is sure first."""
    before = event_history.history_of(history, table.uuid) if table is not None else None
    if before is not None and before.metadata_location is not None:
        yield before.metadata_location, before.uuid
    unplaced = [change for change in known.reported_changes if change.seq > known.ended_seq]
    placed = [
        one for one in history.reported_changes if table is not None and one.uuid is not None and one.uuid == table.uuid
    ]
    # By a birth it is this table more surely than by a commit, which may be a late one of a table before it.
    created = [change for change in unplaced if change.origin is not None][-1:]
    for change in dict.fromkeys((*placed, *created, *unplaced)):
        if change.metadata_location is not None:
            yield change.metadata_location, change.uuid


def _address_change(
    name: TableIdentifier, change: ReportedChange, job_of: Callable[[TableIdentifier], Job | None]
) -> Iterator[tuple[TableIdentifier, ReportedChange]]:
    """Whom a telling concerns: the row that it names, and that of the name which its table has by now."""
    if change.uuid is None or change.is_end:
        yield name, change
        return
    for _ in range(_HOPS):
        job = job_of(name)
        before = event_history.apply_known((event_history_of(job) if job is not None else None) or EventHistory())
        yield name, change
        table = event_history.history_of(before, change.uuid)
        # A birth after an end that has its own birth is a return.
        returns = change.origin is not None and table.created_seq >= 0
        if table.renamed_to is None or event_history.is_alive(before, table) or returns:
            return
        name = table.renamed_to
        change = tellings_replace(change, origin=TableOrigin.REGISTER if change.origin is not None else None)


def _add_change(changes: tuple[ReportedChange, ...], change: ReportedChange) -> tuple[ReportedChange, ...]:
    if change.is_end and changes and tellings_replace(change, seq=changes[-1].seq) == changes[-1]:
        return changes
    remaining = [*(one for one in changes if not _is_superseded(one, change)), change]
    while len(remaining) > MAX_REPORTED_CHANGES:
        remaining.remove(_least_useful(remaining))
    return tuple(remaining)


def _is_superseded(one: ReportedChange, by: ReportedChange) -> bool:
    """Whether a commit need not be heard any more: it was told once more, or of the same table a higher number."""
    if one.origin is not None or by.origin is not None or one.is_end or by.is_end:
        return False
    if (one.metadata_location, one.uuid) == (by.metadata_location, by.uuid):
        return True
    return one.uuid is not None and one.uuid == by.uuid and _is_lower(one, by)


def _least_useful(changes: list[ReportedChange]) -> ReportedChange:
    """Of too many the one to forget: the oldest commit, first one that a later told one has left behind by number."""
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
