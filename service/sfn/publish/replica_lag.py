"""Whether an answer of the catalog is followed now (specification, section 4): it may come from a replica that lags."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

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
from sfn.publish.renames_and_drops import recheck_after_older, rows_that_would_resurface, rows_with_older_files
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH
from sfn.sfnfile.ordering import MetadataOrder, compare_metadata, is_at_or_after


def why_not_follow(context: PublishContext, table: Table, builder: PlanBuilder) -> Rescheduled | DeadLettered | None:
    """Why the catalog's answer is not followed now, if it is not; else what must be looked at once more."""
    order = _order(context, table)
    answer, policy, job = context.answer, context.policy, context.job
    trusted_at = _trusted_at(context, table, order)
    if answer.asked_at < trusted_at:
        return Rescheduled(
            trusted_at, "the answer may be older than what is held", job.pending, PublishResult(job.table_state)
        )
    if order is MetadataOrder.OLDER and not _may_step_back(context, table):
        detail = f"{context.name} stepped back to {table.metadata_location}, and the brake is on; release it to follow"
        return DeadLettered(DeadLetterReason.HELD_DROP, detail, PublishResult(replace(job.table_state, on_hold=True)))
    if context.current_files is None or context.current_files.conflict is not None:
        return _apparent_duplicate(context, table)
    older = _older_than_replaced(context, table) + _older_of_same_name(context, context.current_files)
    if older:
        table_state = replace(_state_by_file(context), older_files_at=known_locations(older))
        return Rescheduled(*recheck_after_older(context), job.pending, PublishResult(table_state, wakeups=older))
    if is_not_forward(context, table):
        builder.recheck_at(answer.answered_at + policy.replica_lag, "the order of the pointers is unknown or turned")
    # What nobody can ask is made of all that was told by now: no event is ahead of it.
    if policy.event_only:
        return None
    if job.pending.min_metadata_location is not None and not is_at_or_after(
        table.metadata_location, table.metadata_log, job.pending.min_metadata_location
    ):
        builder.recheck_at(
            answer.answered_at + policy.replica_lag, "an event told of a pointer that the catalog did not show"
        )
    if _is_unconfirmed(context, table) and policy.replica_lag > timedelta(0):
        builder.recheck_unconfirmed = True
        builder.recheck_at(answer.answered_at + policy.replica_lag, "nothing new was found: a replica may lag")
    return None


def recheck_missing_table(context: PublishContext, builder: PlanBuilder) -> None:
    """An event told of a table, and the answer shows none: look once more, unless events are all that it is made of.

    Where another one told of its end nobody knows which came first: it may be there again.
    """
    pending, lag = context.job.pending, context.policy.replica_lag
    is_reported = (pending.min_metadata_location is not None or pending.is_unspecific) and context.listed_name is None
    if is_reported and not context.policy.event_only and not pending.is_rechecked and lag > timedelta(0):
        builder.recheck_unconfirmed = True
        builder.recheck_at(context.answer.answered_at + lag, "an event told of a table that the catalog did not show")


def recheck_unapplied(context: PublishContext, builder: PlanBuilder) -> None:
    """Of what was told some means nothing yet: look again, ever less often, and give up at last. All else goes on."""
    answer, policy = context.answer, context.policy
    for one in answer.applied.unapplied if answer.applied is not None else ():
        since = one.change.missing_since or answer.answered_at
        waited = answer.answered_at - since
        if one.reason is None and waited < policy.refresh_after:
            builder.recheck_at(answer.answered_at + max(policy.recheck_delay, waited / 2), one.detail)
        else:
            builder.given_up = DeadLettered(one.reason or DeadLetterReason.EXHAUSTED, one.detail)
        builder.unapplied += (replace(one.change, missing_since=since),)


def keep_unapplied(context: PublishContext, builder: PlanBuilder) -> None:
    """What was told of a table without files and means nothing yet stays told, but nobody is bothered with it."""
    applied = context.answer.applied
    builder.unapplied = tuple(one.change for one in applied.unapplied) if applied is not None else ()


def _trusted_at(context: PublishContext, table: Table, order: MetadataOrder | None) -> datetime:
    """From when on an answer is followed that steps back, or over a step back: replicas may not have heard before.

    What the table's files say under its other names counts too: the answer may be of before it was renamed.
    """
    newest = context.newest_document
    written = []
    if newest is not None and (_is_backward(context, table) or (newest.turned and order is not MetadataOrder.SAME)):
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
    """Rows with older files of the table whose file makes room for another's, see `older_files` and `left_behind`."""
    here = context.current_files
    doc = here.main_document if here is not None else None
    if here is None or doc is None or doc.guid is None or doc.guid == table.uuid:
        return ()
    return tuple(
        rows_with_older_files(context, doc.guid, [here], is_gone=False)
        if doc.is_live
        else rows_that_would_resurface(context, here)
    )


def _older_of_same_name(context: PublishContext, here: TableFiles) -> tuple[Wakeup, ...]:
    """The row from which a file is taken over, while an older file there has that name too.

    Without this one, whoever asks for the table by that name would go back to the older.
    """
    doc = here.main_document
    if doc is None or not doc.is_live or has_identifier(doc, context.name):
        return ()
    name = TableIdentifier(context.name.catalog, doc.namespace, doc.name)
    stuck = [
        row.table for row, _ in context.observations.other_tables_with(doc.guid or "", context.name) if row.is_stuck
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
    """Another name has the table's file and, as far as the catalog says, the table. A replica may lag behind a rename,
    so that counts only if it is still said later.
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
        f"{twin} seems to be the same table: looked at once more",
    )
    return Rescheduled(
        at, why, replace(pending, is_rechecked=True), PublishResult(context.job.table_state, wakeups=(Wakeup(twin),))
    )


def _state_by_file(context: PublishContext) -> TableState:
    """What is known, with what the file says that a publish wrote and did not live to settle.

    Two rows that each take the other's file for the older one would else wait for one another for ever.
    """
    table_state, here = context.job.table_state, context.current_files
    doc = here.main_document if here is not None else None
    if table_state.live is None or here is None or doc is None:
        return table_state
    if (doc.guid, here.layout.location) != (table_state.live.uuid, table_state.live.location):
        return table_state
    published = replace(table_state.live, metadata_location=doc.metadata_file_path, written_at=doc.written_at)
    return replace(table_state, live=published)


def _order(context: PublishContext, table: Table) -> MetadataOrder | None:
    newest = context.newest_document
    if newest is None or not newest.is_live or newest.guid != table.uuid:
        return None
    cached = context.job.cache.table
    log = cached.metadata_log if cached is not None and cached.metadata_location == newest.metadata_file_path else ()
    return compare_metadata(newest.metadata_file_path, log, table.metadata_location, table.metadata_log)


def _is_backward(context: PublishContext, table: Table) -> bool:
    """An older pointer, another uuid, an undrop."""
    if context.newest_document is None:
        return False
    return _order(context, table) in {None, MetadataOrder.OLDER}


def is_not_forward(context: PublishContext, table: Table) -> bool:
    """A step that is not known to be forward: what was left by it may be answered once more."""
    return _is_backward(context, table) or _order(context, table) is MetadataOrder.UNKNOWN


def _may_step_back(context: PublishContext, table: Table) -> bool:
    table_state = context.job.table_state
    if table_state.limit_overridden:
        return True
    return not table_state.on_hold and context.observations.is_true(
        IsStepAllowed(BackwardStep(StepKind.OLDER, table.uuid, table.metadata_location))
    )


def _is_unconfirmed(context: PublishContext, table: Table) -> bool:
    """A hint that the answer does not show at all: it may come from a replica that has not heard yet.

    After a lost race what is held may be what this very publish wrote, and that it shows the event tells nothing.
    """
    pending, newest = context.job.pending, context.newest_document
    if pending.is_rechecked or newest is None or not newest.is_live or context.observations.must_list_folders:
        return False
    if pending.drop or pending.renamed_to is not None:
        return newest.guid == table.uuid
    return pending.is_unspecific and canonical(newest.metadata_file_path) == canonical(table.metadata_location)
