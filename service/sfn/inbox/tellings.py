"""What hints tell of names in a catalog that nobody can ask: kept on their rows until a publish has heard it. Pure.

A hint says it of its own row. A rename takes along to the new name what was told under the old one, and what is told
under the old one late follows it there, as far as the table's uuid tells that it belongs there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from msgspec import structs

from sfn.domain.events import EventHistory, Notification, ReportedChange, TableHistory, TableOrigin
from sfn.domain.identifiers import JobKey, TableIdentifier, normal_uuid
from sfn.inbox.row import Job
from sfn.inbox.terms import InboxConfig
from sfn.inbox.transitions import on_notification
from sfn.sfnfile import event_history
from sfn.sfnfile.ordering import metadata_version

MAX_REPORTED_CHANGES = 16
"""Tellings of a row that wait to be heard."""
_HOPS = 8
"""Names that a table may have had since a late event named it."""


def event_history_of(job: Job) -> EventHistory | None:
    """All that was told of a row's name; None for nothing."""
    history = replace(job.table_state.event_history or EventHistory(), reported_changes=job.pending.reported_changes)
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
                job, pending=replace(job.pending, reported_changes=_add_change(job.pending.reported_changes, addressed))
            )
    return jobs


def _reported_changes(
    notification: Notification, seq: int, job_of: Callable[[TableIdentifier], Job | None]
) -> Iterator[ReportedChange]:
    notification = replace(notification, uuid=normal_uuid(notification.uuid))
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
        history = replace(history, reported_changes=history.reported_changes[:-1])
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
        change = replace(change, origin=TableOrigin.REGISTER if change.origin is not None else None)


def _add_change(changes: tuple[ReportedChange, ...], change: ReportedChange) -> tuple[ReportedChange, ...]:
    if change.is_end and changes and replace(change, seq=changes[-1].seq) == changes[-1]:
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
