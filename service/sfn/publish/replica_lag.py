"""The decision whether an answer of the catalog is followed now (specification, section 4); a replica may lag."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import structs

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    DeadLettered,
    DeadLetterReason,
    PublishResult,
    Rescheduled,
    StepKind,
    TableState,
    Wakeup,
)
from sfn.publish.context import PlanBuilder, PublishContext, known_locations
from sfn.publish.existing_files import TableFiles, foreign_documents, has_identifier
from sfn.publish.queries import IsStepAllowed
from sfn.publish.renames_and_drops import jobs_that_would_resurface, jobs_with_older_files, recheck_after_older
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH
from sfn.sfnfile.ordering import MetadataOrder, compare_metadata, is_at_or_after


def why_not_follow(context: PublishContext, table: Table, builder: PlanBuilder) -> Rescheduled | DeadLettered | None:
    """Return the outcome if the answer is not followed now; None if it is, with any rechecks in the builder."""
    order = _order(context, table)
    answer, policy, job = context.answer, context.policy, context.job
    if _is_behind_file(context, table, order):
        detail = (
            f"{context.name}: events name {table.metadata_location}, but the SFN file names a newer state. The files "
            "stay as they are. Send the table's newest event again. If the older state is right: "
            f"sfn release {context.name.catalog}"
        )
        return DeadLettered(
            DeadLetterReason.HELD_DROP, detail, PublishResult(structs.replace(job.table_state, on_hold=True))
        )
    trusted_at = _trusted_at(context, table, order)
    if answer.asked_at < trusted_at:
        return Rescheduled(
            trusted_at,
            "the catalog's answer may be older than the SFN file",
            job.pending,
            PublishResult(job.table_state),
        )
    if order is MetadataOrder.OLDER and not _may_step_back(context, table):
        detail = (
            f"{context.name} was rolled back to {table.metadata_location}, and the drop limit is reached: "
            f"the files stay as they are. If the rollback is right: sfn release {context.name.catalog}"
        )
        return DeadLettered(
            DeadLetterReason.HELD_DROP, detail, PublishResult(structs.replace(job.table_state, on_hold=True))
        )
    if context.current_files is None or context.current_files.conflict is not None:
        return _apparent_duplicate(context, table)
    older = _older_than_replaced(context, table) + _older_of_same_name(context, context.current_files)
    if older:
        table_state = structs.replace(_state_by_file(context), older_files_at=known_locations(older))
        return Rescheduled(*recheck_after_older(context), job.pending, PublishResult(table_state, wakeups=older))
    if _is_not_forward(context, order):
        builder.recheck_at(
            answer.answered_at + policy.replica_lag, "the catalog's new answer is not known to be newer than the last"
        )
    # The answer of an event-only catalog is made of all events so far, so no event is ahead of it.
    if policy.event_only:
        return None
    if job.pending.min_metadata_location is not None and not is_at_or_after(
        table.metadata_location, table.metadata_log, job.pending.min_metadata_location
    ):
        builder.recheck_at(
            answer.answered_at + policy.replica_lag, "the catalog does not show the metadata file of the event yet"
        )
    if _is_unconfirmed(context, table) and policy.replica_lag > timedelta(0):
        builder.recheck_unconfirmed = True
        builder.recheck_at(
            answer.answered_at + policy.replica_lag, "the catalog does not show the change of the event yet"
        )
    return None


def recheck_missing_table(context: PublishContext, builder: PlanBuilder) -> None:
    """Check once more if an event named a table that the answer does not show, unless the catalog is event-only.

    If another event reported the table's end, the order of the two events is unknown, so the table may exist again.
    """
    pending, lag = context.job.pending, context.policy.replica_lag
    is_reported = (pending.min_metadata_location is not None or pending.is_unspecific) and context.listed_name is None
    if is_reported and not context.policy.event_only and not pending.is_rechecked and lag > timedelta(0):
        builder.recheck_unconfirmed = True
        builder.recheck_at(context.answer.answered_at + lag, "the catalog does not show the table of the event yet")


def _trusted_at(context: PublishContext, table: Table, order: MetadataOrder | None) -> datetime:
    """Return from when on an answer is followed that steps back, or that follows a backward step.

    Before that time, a replica may not have the last change. The table's files under other names count too, because the
    answer may be from before a rename.
    """
    newest = context.newest_document
    written = []
    if newest is not None and (_is_backward(context, order) or (newest.turned and order is not MetadataOrder.SAME)):
        written.append(newest.written_at)
    if order is not MetadataOrder.SAME and table.uuid is not None:
        written += [
            live.written_at
            for _, live in context.observations.other_tables_with(table.uuid, context.name)
            if compare_metadata(live.metadata_location, (), table.metadata_location, table.metadata_log)
            in {MetadataOrder.OLDER, MetadataOrder.UNKNOWN}
        ]
    return max(written, default=context.answer.asked_at - context.policy.replica_lag) + context.policy.replica_lag


def _older_than_replaced(context: PublishContext, table: Table) -> tuple[Wakeup, ...]:
    """Return the jobs with older files of the table that is replaced at its place by another one.

    See `jobs_with_older_files` and `jobs_that_would_resurface`.
    """
    here = context.current_files
    doc = here.main_document if here is not None else None
    if here is None or doc is None or doc.guid is None or doc.guid == table.uuid:
        return ()
    return tuple(
        jobs_with_older_files(context, doc.guid, [here], is_gone=False)
        if doc.is_live
        else jobs_that_would_resurface(context, here)
    )


def _older_of_same_name(context: PublishContext, here: TableFiles) -> tuple[Wakeup, ...]:
    """Return the job from which a file is taken over, as long as an older file there has that name too.

    Without this wakeup, readers that ask for the table by that name would go back to the older file.
    """
    doc = here.main_document
    if doc is None or not doc.is_live or has_identifier(doc, context.name):
        return ()
    name = TableIdentifier(context.name.catalog, doc.namespace, doc.name)
    stuck = [
        entry.table
        for entry, _ in context.observations.other_tables_with(doc.guid or "", context.name)
        if entry.is_stuck
    ]
    older = (
        other.is_live
        and other.ref == MAIN_BRANCH
        and has_identifier(other, name)
        and other.catalog_id == doc.catalog_id
        and other.as_of < doc.as_of
        for other in foreign_documents(context.finder, here.layout)
    )
    return (Wakeup(name, here.layout.encoded),) if name not in stuck and any(older) else ()


def _apparent_duplicate(context: PublishContext, table: Table) -> Rescheduled | None:
    """Return a recheck if another name seems to have this table, with its file.

    A replica may lag behind a rename, so this counts only if the second answer says the same.
    """
    found, pending = (
        context.current_files.conflicting_document if context.current_files is not None else None,
        context.job.pending,
    )
    if (
        found is None
        or pending.is_rechecked
        or (found.guid, found.catalog_id) != (table.uuid, context.policy.catalog_id)
    ):
        return None
    twin = TableIdentifier(context.name.catalog, found.namespace, found.name)
    if twin == context.name:
        return None
    at, why = (
        context.answer.answered_at + context.policy.recheck_delay,
        f"{twin} seems to be the same table: checked again",
    )
    return Rescheduled(
        at,
        why,
        structs.replace(pending, is_rechecked=True),
        PublishResult(context.job.table_state, wakeups=(Wakeup(twin),)),
    )


def _state_by_file(context: PublishContext) -> TableState:
    """Return the known state, updated from a file of a publish that crashed before it settled.

    Otherwise two jobs that each take the other's file for the older one would wait for each other forever.
    """
    table_state, here = context.job.table_state, context.current_files
    doc = here.main_document if here is not None else None
    if table_state.live is None or here is None or doc is None:
        return table_state
    if (doc.guid, here.layout.location) != (table_state.live.uuid, table_state.live.location):
        return table_state
    published = structs.replace(table_state.live, metadata_location=doc.metadata_file_path, written_at=doc.written_at)
    return structs.replace(table_state, live=published)


def _order(context: PublishContext, table: Table) -> MetadataOrder | None:
    newest = context.newest_document
    if newest is None or not newest.is_live or newest.guid != table.uuid:
        return None
    cached = context.job.cache.table
    log = cached.metadata_log if cached is not None and cached.metadata_location == newest.metadata_file_path else ()
    return compare_metadata(newest.metadata_file_path, log, table.metadata_location, table.metadata_log)


def _is_backward(context: PublishContext, order: MetadataOrder | None) -> bool:
    """Return whether the answer has an older metadata file or another uuid, or undoes a drop."""
    return context.newest_document is not None and order in {None, MetadataOrder.OLDER}


def is_not_forward(context: PublishContext, table: Table) -> bool:
    """Return whether the step is not known to be forward; the state before it may be answered once more."""
    return _is_not_forward(context, _order(context, table))


def _is_not_forward(context: PublishContext, order: MetadataOrder | None) -> bool:
    return _is_backward(context, order) or order is MetadataOrder.UNKNOWN


def _is_behind_file(context: PublishContext, table: Table, order: MetadataOrder | None) -> bool:
    """Return whether the answer of an event-only catalog is older than our files of the table.

    No such catalog steps back by itself: an event was late, and the inbox that knew the newer one is lost.
    """
    newest, table_state = context.newest_document, context.job.table_state
    if not context.policy.event_only or table_state.limit_overridden or newest is None or newest.guid != table.uuid:
        return False
    if newest.is_live:
        return order is MetadataOrder.OLDER
    tombstone_order = compare_metadata(newest.metadata_file_path, (), table.metadata_location, table.metadata_log)
    # A tombstone under another name says nothing about this one.
    is_ended = has_identifier(newest, context.name) and not table_state.has_settled
    return is_ended and tombstone_order in {MetadataOrder.SAME, MetadataOrder.OLDER}


def _may_step_back(context: PublishContext, table: Table) -> bool:
    table_state = context.job.table_state
    if table_state.limit_overridden:
        return True
    return not table_state.on_hold and context.observations.is_true(
        IsStepAllowed(BackwardStep(StepKind.OLDER, table.uuid, table.metadata_location))
    )


def _is_unconfirmed(context: PublishContext, table: Table) -> bool:
    """Return whether the answer shows nothing of the event, so that it may come from a replica that lags.

    After a lost race, the files may be from this very publish. That they match the event proves nothing then.
    """
    pending, newest = context.job.pending, context.newest_document
    if pending.is_rechecked or newest is None or not newest.is_live or context.observations.must_list_folders:
        return False
    if pending.drop or pending.renamed_to is not None:
        return newest.guid == table.uuid
    return pending.is_unspecific and canonical(newest.metadata_file_path) == canonical(table.metadata_location)
