"""State transitions of a job, and of the tables that events report in event-only catalogs. Pure.

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
    dead            retry of an operator's sweep queued now; a hold stays
    dead            replayed by an operator      queued now, behind newer events; limit overridden once if it was held

No job is due before its pause ends (`Job.not_before`). A pause that ends later than the longest possible pause was set
by a clock that was ahead, and is ignored.

Start with `on_notification`, `on_claim` and `on_settle`.

In event-only catalogs, notifications carry the state itself: a job has the tables of its name, and `on_report` changes
them, one event at a time. Events arrive late, twice and in any order, so a rule must not depend on the order where the
events themselves decide:

- Of two metadata files of one table, the one with the greater version number is newer, whatever came first.
- A table is created once. It comes back to a name that it lost only by a registration or a rename with a metadata file
  that is not older. A commit brings no table back, and takes no name from a table that was created there.
- A drop or a rename ends the table with the uuid of the event, also if it comes before all other events of the table.
- What is reported under a former name follows the table to its new name.

Events without a uuid are about the table that has the name now. Their order of arrival decides. After an end, a commit
without a uuid may be of the next table or a late one: the metadata file decides (`sfn.catalogs.event_sourced`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias, assert_never

from msgspec.structs import replace

from sfn.domain.events import Notification, TableOrigin, TableReport, current_table
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
from sfn.inbox.model import InboxConfig, Job, JobState, LastResult, closes_dead_letter
from sfn.sfnfile.locations import MetadataOrder, compare_metadata, newer_floor

MAX_TRACES = 4
"""Most traces of a job: each fold writes them."""
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
        forced_since_claim=job.pending.forced_since_claim or (notification.force and job.state is JobState.LEASED),
        adopt_catalog_id=notification.adopt_catalog_id or job.pending.adopt_catalog_id,
        is_guessed=notification.is_guessed and (job.pending.is_guessed or job.pending == PendingChange()),
    )
    table_state = replace(job.table_state, on_hold=True) if notification.hold_drops else job.table_state
    if notification.retry and job.reason is not None and job.state is not JobState.LEASED:
        # An operator's retry waits for no pause, and has all attempts again.
        job, cap = replace(job, attempt=0, failing_since=None), timedelta()
    state, due_at = _due_after_notification(job, now, cap)
    return replace(
        _start_pending(job, now),
        version=job.version + 1,
        event_seq=max(job.event_seq, seq),
        traces=_with_trace(job.traces, notification.trace),
        pending=pending,
        table_state=table_state,
        state=state,
        due_at=due_at,
    )


def _with_trace(traces: tuple[bytes, ...], trace: bytes) -> tuple[bytes, ...]:
    """Return the traces after one more notification: the first of all, and the last ones."""
    if not trace or trace in traces:
        return traces
    return (*traces[:1], *traces[1:][2 - MAX_TRACES :], trace)


def _without_traces(job: Job, leased: LeasedJob) -> Job:
    """Return the job without the traces that end with a claim; those of newer notifications stay."""
    if not job.traces:
        return job
    return replace(job, traces=tuple(one for one in job.traces if one not in leased.traces))


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
    if job.pending.forced_since_claim:
        job = replace(job, pending=replace(job.pending, forced_since_claim=False))
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


def on_unused_claim(job: Job, now: datetime) -> Job:
    """Return the job after a claim that no worker got: it counts neither as an attempt nor as an outcome."""
    attempt = max(0, job.attempt - 1)
    job = replace(job, attempt=attempt, failing_since=job.failing_since if attempt else None, lease_until=None)
    return _queued(job, min(job.due_at, now), now)


def on_lease_expired(job: Job, now: datetime, config: InboxConfig) -> Job:
    """Return the job after its lease expired: the worker died or hangs.

    After too many crashes a table counts as poison. It is claimed again after `poison_pause`, because another table may
    have caused the crashes. A catalog only pauses, because without it no table of the catalog would be swept.
    """
    job = replace(_keep_pending_since(job), crashes=job.crashes + 1, lease_until=None, cache=PublishCache())
    if job.crashes < config.max_crashes:
        return _queued(job, now, now)
    if isinstance(job.subject, TableIdentifier):
        since = job.pending_since or job.failing_since or now
        job = replace(job, reason=DeadLetterReason.POISON, failing_since=None, pending_since=since, has_letter=True)
        return _queued(job, now + config.poison_pause, now)
    return _queued(job, now + config.retry_cap, now)


def is_poison(job: Job, config: InboxConfig) -> bool:
    """Return True if a job counts as poison after its lease expired."""
    return job.reason is DeadLetterReason.POISON and job.crashes >= config.max_crashes


def _with_result(job: Job, result: LastResult) -> Job:
    """Return the job with a new result; in its history, equal failures and waits in a row are one outcome."""
    last = job.last_result
    if last is None or result.why is None or (result.outcome, result.why) != (last.outcome, last.why):
        return replace(job, last_result=result, outcomes=job.outcomes + 1, repeats=0, repeated_since=None)
    return replace(job, last_result=result, repeats=job.repeats + 1, repeated_since=job.repeated_since or last.at)


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
        _with_result(job, LastResult(*describe(outcome), now)),
        lease_until=None,
        crashes=0,
        has_letter=isinstance(outcome, DeadLettered) or (job.has_letter and not closes_dead_letter(outcome)),
    )
    match outcome:
        case Done(due_at, result, forget):
            if forget and not newer:
                return None
            job = _without_traces(_mark_processed(_apply_result(job, leased, result), leased), leased)
            return (
                _requeue_for_newer(job, leased, PendingChange(), now)
                if newer
                else _queued(replace(job, pending=PendingChange()), due_at, now)
            )
        case SweepCompleted(due_at):
            # A sender of many undecodable requests must not cause one sweep after another.
            job = _mark_processed(replace(job, not_before=now + min((due_at - now) / 10, SWEEP_PAUSE)), leased)
            # Only a request that this sweep does not answer makes the next one read files, too.
            pending = replace(job.pending, force=job.pending.forced_since_claim) if newer else PendingChange()
            job = _without_traces(job, leased)
            return _queued(replace(job, pending=pending), now if newer else due_at, now)
        case Rescheduled(at, _, pending, result):
            job = _mark_processed(_apply_result(job, leased, result), leased)
            # A change that is still pending goes on in its trace.
            job = job if pending != PendingChange() else _without_traces(job, leased)
            return (
                _requeue_for_newer(job, leased, pending, now)
                if newer
                else _queued(replace(job, pending=pending), at, now)
            )
        case Retry(at, _):
            return _queued(replace(_keep_pending_since(job), cache=PublishCache()), at, now)
        case DeadLettered(reason, _, result, recheck_at):
            job = _keep_pending_since(job)
            job = _apply_result(job, leased, result) if result is not None else replace(job, cache=PublishCache())
            since = job.pending_since or job.failing_since or now
            job = _without_traces(replace(job, state=JobState.DEAD, reason=reason, pending_since=since), leased)
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
    job = replace(job, processed_version=job.version, attempt=0, crashes=0, failing_since=None, reason=None)
    return _queued(replace(job, lease_until=None, cache=PublishCache()), now, now)


def on_check(job: Job, now: datetime) -> Job:
    """Return a job due now, after a notification of an operator: a retry or a job that was given up does not wait.

    A job that a worker has leased is checked again after that, because of the notification.
    """
    if job.state is not JobState.QUEUED:
        return job
    return replace(job, due_at=min(job.due_at, _after_pause(job, now, now)))


def on_discard(job: Job) -> Job:
    """Return a job after an operator discarded its dead letter: until the next event it does not count as late."""
    return replace(job, pending_since=None) if job.reason is not None else job


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
    if job.pending_since is not None:
        return job
    busy = job.state is JobState.LEASED or (job.state is JobState.QUEUED and job.attempt > 0)
    starts = job.reason is not None or (busy and job.version <= job.processed_version)
    return replace(job, pending_since=now) if starts else job


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
    if job.reason is None or job.reason.has_outside_cause:
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


# ── The tables that events report, by name

MAX_TABLES = 8
"""Most tables of one name that are remembered."""
MAX_LOCATIONS = 4
"""Most metadata locations of a table that wait for a publish, because their order is not known yet."""
_MAX_RENAMES = 8
"""Most renames that are followed from the name in a late event."""
_DOUBTFUL_REASONS = frozenset(
    {DeadLetterReason.LOCATION_REFUSED, DeadLetterReason.PERMANENT, DeadLetterReason.EXHAUSTED, DeadLetterReason.POISON}
)

Tables: TypeAlias = tuple[TableReport, ...]


def tables_of(job: Job | None) -> Tables:
    """Return the tables of a job's name, with what its last publish showed about the current one.

    The published file shows the table's uuid and, after a publish of all events, is its newest file. If the job is a
    dead letter that a wrong location may have caused, only the published location remains, so that the next event
    counts.
    """
    tables, published = (job.table_state.reported, job.table_state.live) if job is not None else ((), None)
    table = after = current_table(tables)
    if job is None or after is None:
        return tables
    is_doubtful, location = job.reason in _DOUBTFUL_REASONS, None
    if published is not None and after.uuid is None and published.metadata_location in after.locations:
        tables = tuple(one for one in tables if one is table or one.uuid != published.uuid)
        after = replace(after, uuid=published.uuid)
    if published is not None and after.uuid == published.uuid:
        location = published.metadata_location
    if is_doubtful:
        after = replace(after, locations=(location,) if location is not None else ())
    elif location in after.locations and job.pending == PendingChange():
        after = replace(after, locations=(location,))
    return _replace_table(tables, table, after)


def on_report(
    name: TableIdentifier, notification: Notification, seq: int, known: Callable[[TableIdentifier], Tables]
) -> dict[TableIdentifier, Tables]:
    """Return the tables of each name that an event of an event-only catalog changes.

    Args:
        name: the subject of the event.
        notification: the event.
        seq: its number.
        known: returns the tables of a name before the event.
    """
    report = _Report(seq, known)
    report.fold(name, notification)
    return {name: tables for name, tables in report.tables.items() if tables != report.before[name]}


class _Report:
    """One event.

    Attributes:
        before: the tables of the names that the event is about.
        tables: these tables after the event.
    """

    def __init__(self, seq: int, known: Callable[[TableIdentifier], Tables]) -> None:
        self._seq, self._known = seq, known
        self.before: dict[TableIdentifier, Tables] = {}
        self.tables: dict[TableIdentifier, Tables] = {}

    def fold(self, name: TableIdentifier, notification: Notification) -> None:
        uuid, location = normal_uuid(notification.uuid), notification.min_metadata_location
        locations = () if location is None else (location,)
        if notification.renamed_from is not None or notification.renamed_to is not None:
            self._rename(notification.renamed_from or name, notification.renamed_to or name, uuid, locations)
        elif notification.drop:
            self._end(name, uuid)
        elif locations:
            self._report(name, uuid, locations, notification.origin)

    def _of(self, name: TableIdentifier) -> Tables:
        if name not in self.tables:
            self.before[name] = self.tables[name] = self._known(name)
        return self.tables[name]

    def _replace(self, name: TableIdentifier, table: TableReport | None, after: TableReport) -> None:
        self.tables[name] = _replace_table(self._of(name), table, after)

    def _rename(self, old: TableIdentifier, new: TableIdentifier, uuid: str | None, locations: tuple[str, ...]) -> None:
        """Move a table to its new name, once: a rename is reported under both names, and perhaps again."""
        last = max(self._of(old), key=lambda one: max(one.created_seq, one.ended_seq or -1), default=None)
        table = (last if uuid is None else _with_uuid(self._of(old), uuid)) or TableReport(uuid)
        if table.ended_seq is None:
            self._end(old, uuid or table.uuid, new)
        elif table.renamed_to != new and uuid is None:
            return
        uuid = uuid or table.uuid
        if any(table.ended_seq is not None and one.created_seq >= table.ended_seq for one in self._of(new)):
            if locations:
                self._report(new, uuid, locations, None)
        elif (locations := (*table.locations, *locations)) or uuid is not None:
            self._report(new, uuid, locations, TableOrigin.REGISTER)

    def _end(self, name: TableIdentifier, uuid: str | None, renamed_to: TableIdentifier | None = None) -> None:
        """End the table of the event; without a uuid, all tables that have the name.

        Without a uuid, a table that is known by commits alone goes on if another one ends: its creation is late.
        """
        tables = self._of(name)
        if uuid is not None:
            found = _with_uuid(tables, uuid)
            ended = [found] if found is not None else []
        else:
            live = [table for table in tables if table.ended_seq is None]
            ended = [table for table in live if table.created_seq >= 0] or live
        if not ended and (uuid is not None or not tables):
            self._replace(name, None, TableReport(uuid, ended_seq=self._seq, renamed_to=renamed_to))
        for table in ended:
            if table.ended_seq is None:
                after = replace(table, uuid=table.uuid or uuid, ended_seq=self._seq, renamed_to=renamed_to)
                self._replace(name, table, after)

    def _report(
        self, name: TableIdentifier, uuid: str | None, locations: tuple[str, ...], origin: TableOrigin | None
    ) -> None:
        """Report metadata locations of a table, or its new name, and follow the table to the name that it has now."""
        for _ in range(_MAX_RENAMES):
            is_first = not self._of(name)
            if uuid is not None:
                table = _with_uuid(self._of(name), uuid)
            elif origin is None:
                table = current_table(self._of(name))
            else:
                table = None
                self.tables[name] = tuple(
                    other if other.ended_seq is not None else replace(other, ended_seq=self._seq)
                    for other in self._of(name)
                )
            created_seq = self._seq if origin is not None or is_first else -1
            after = _after_report(table or TableReport(uuid), uuid, locations, origin, created_seq)
            self._replace(name, table, after)
            if after.ended_seq is None or after.renamed_to is None or not locations:
                return
            name, origin = after.renamed_to, None


def _after_report(
    table: TableReport, uuid: str | None, locations: Sequence[str], origin: TableOrigin | None, created_seq: int
) -> TableReport:
    is_known = table.created_seq >= 0
    is_proven = table.uuid == uuid and (uuid is not None or is_known)
    created = table.created_seq if is_known else created_seq
    if table.ended_seq is not None:
        # A registration that the end overtook brings nothing back, nor does a late one with an older file.
        if origin is not TableOrigin.REGISTER or not is_known or _is_older(locations, table.locations):
            return replace(table, created_seq=created)
        table, created = TableReport(table.uuid), created_seq
    known = table.locations
    for location in locations:
        known = _add_location(known, location, is_proven=is_proven)
    return replace(table, uuid=table.uuid or uuid, locations=known, created_seq=created)


def _with_uuid(tables: Tables, uuid: str) -> TableReport | None:
    """Return the table with a uuid, else the current table if no event showed its uuid."""
    current = current_table(tables)
    unknown = current if current is not None and current.uuid is None else None
    return next((table for table in tables if table.uuid == uuid), unknown)


def _add_location(known: tuple[str, ...], location: str, *, is_proven: bool) -> tuple[str, ...]:
    """Return the locations that may be the newest one; an event that does not prove its table replaces none."""
    remaining = []
    for other in known:
        order = compare_metadata(other, (), location, ())
        if order is MetadataOrder.SAME or (is_proven and order is MetadataOrder.OLDER):
            return known
        if not (is_proven and order is MetadataOrder.NEWER):
            remaining.append(other)
    remaining.append(location)
    return tuple(remaining[-MAX_LOCATIONS:])


def _is_older(locations: Sequence[str], known: Sequence[str]) -> bool:
    """Return whether reported locations are not as new as the known ones; no location is not new either."""
    return not locations or any(compare_metadata(one, (), locations[-1], ()) is MetadataOrder.OLDER for one in known)


def _replace_table(tables: Tables, table: TableReport | None, after: TableReport) -> Tables:
    if table is not None:
        return tuple(after if one is table else one for one in tables)
    tables = (*tables, after)
    if len(tables) <= MAX_TABLES:
        return tables
    current = current_table(tables)
    oldest = min(
        (one for one in tables if one is not current and one is not after),
        key=lambda one: (one.ended_seq is None, max(one.created_seq, one.ended_seq or -1)),
    )
    return tuple(one for one in tables if one is not oldest)
