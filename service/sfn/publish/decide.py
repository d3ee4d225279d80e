"""Decides what one publish does. Pure: observations in; a query, a plan or an outcome out.

How the decision asks: it reads everything from `Observations`. If an observation is missing, the accessor raises
`NeedsQuery`, and `decide` returns the query of that exception. `publish.py` runs the query, stores the answer in the
observations and calls `decide` again from the start, until `decide` returns something else than a query. So
`decide` does no I/O, and only facts that it uses are fetched.

`decide` returns a `PublishQuery` if an observation is missing, a `PublishPlan` if files must change, and an outcome if
none must.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from msgspec import structs

from sfn.catalogs import NoSuchTable, StagedCreate
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    PublishResult,
    Rescheduled,
    StepKind,
    TableState,
    Wakeup,
)
from sfn.errors import LocationRefused
from sfn.publish.context import (
    FileChange,
    PlanBuilder,
    PublishContext,
    PublishPlan,
    Stage,
    find_aliases,
    find_listed_name,
    hint_at,
    known_locations,
    recheck_failed_listing,
    tested_aliases,
    wake_listed_name,
)
from sfn.publish.documents import is_our_hint
from sfn.publish.existing_files import FileFinder, TableFiles, conflict_letter, foreign_documents, has_identifier
from sfn.publish.plan import (
    likely_queries,
    needs_listing,
    next_refresh_at,
    outcome_of,
    outcome_of_staged_create,
    outcome_without_table,
    refresh_files,
    require_fresh,
    supported_changes,
    write_pointer,
)
from sfn.publish.policy import OnDrop, Policy
from sfn.publish.queries import (
    IsStepAllowed,
    ListFolder,
    NeedsQuery,
    Observations,
    PublishQuery,
    ReadFiles,
    TablesWithUuid,
    Together,
)
from sfn.publish.renames_and_drops import (
    drop_missing_tables,
    find_rename_targets,
    jobs_that_would_resurface,
    jobs_with_older_files,
    recheck_after_older,
    remove_files,
    update_files_elsewhere,
)
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import MetadataOrder, canonical, check_location, compare_metadata, is_at_or_after
from sfn.sfnfile.naming import MAIN_BRANCH, FileLayout, FileOwner

_MAX_ATTEMPTS_ELSEWHERE: Final = 5
"""A new table is published after this number of failed attempts to remove files of the previous table of its name."""

Decision: TypeAlias = PublishQuery | Together | PublishPlan | Done | Rescheduled | DeadLettered


def decide(job: LeasedJob, observations: Observations, policy: Policy, *, now: datetime, jitter: float) -> Decision:
    """Return the next step for a leased job of a table.

    Args:
        job: a leased job; its subject must be a table.
        observations: the answers so far.
        policy: the settings of the catalog.
        now: the start of the publish.
        jitter: a number in [0, 1) that spreads the refreshes.
    """
    adopted_id = job.pending.adopt_catalog_id
    if adopted_id is not None and isinstance(job.subject, TableIdentifier):
        policy = replace(policy, adopted=(job.subject, adopted_id))
    try:
        return _decide(job, observations, policy, now, jitter)
    except NeedsQuery as missing:
        return missing.query


def _decide(
    job: LeasedJob, observations: Observations, policy: Policy, now: datetime, jitter: float
) -> PublishPlan | Done | Rescheduled | DeadLettered:
    name = job.subject
    if not isinstance(name, TableIdentifier):
        raise TypeError(name)
    answer = observations.answer_for(name)
    if isinstance(answer.found, StagedCreate):
        return outcome_of_staged_create(job, answer, policy, jitter)
    table = answer.found if isinstance(answer.found, Table) else None
    location, refused = _check_locations(table, policy)
    layout = policy.layout(name, location) if location is not None else None
    refresh = job.table_state.refresh_at is not None and now >= job.table_state.refresh_at
    listed = job.table_state.listed_as if isinstance(answer.found, NoSuchTable) else None
    if table is not None and table.skip_reason is None and policy.publishes(name):
        listed = find_listed_name(job, observations, policy, name, table, refresh=refresh)
        if listed is None and (unlisted := recheck_failed_listing(job, observations, name)) is not None:
            return unlisted
        if listed not in {None, name}:
            table = location = layout = None
    # In an event-only catalog "no such table" only means that no event has named the table.
    is_excluded = (table is not None or policy.event_only) and not policy.table_filter.covers(name)
    is_removed = is_excluded or policy.is_retired or (table is not None and table.skip_reason is not None)
    if table is not None and layout is not None and not is_removed and layout.encoded not in job.locations:
        observations.ask_together(_queries_of_new_place(name, table, layout))
    finder = FileFinder.for_job(job, observations, policy, name)
    layouts = {FileLayout.parse(text) for text in job.locations} | ({layout} if layout is not None else set())
    existing = _existing_files(finder, layouts, table, layout)
    aliases = find_aliases(job, layout, existing, observations)
    if aliases:
        layouts = {aliases[one].layout if one in aliases else one for one in layouts}
        existing = _existing_files(finder, layouts, table, layout)
    context = PublishContext(
        job,
        observations,
        policy,
        name,
        answer,
        table,
        location,
        layout,
        finder,
        tuple(existing),
        conflict=refused if table is not None else None,
        listed_as=listed,
        aliases=aliases,
    )
    if is_removed:
        return _remove_all(context, refresh=refresh, jitter=jitter)
    return _follow_answer(context, refresh=refresh, jitter=jitter)


def _queries_of_new_place(name: TableIdentifier, table: Table, layout: FileLayout) -> list[PublishQuery]:
    """Return what the decision needs about a place where this job has published nothing yet."""
    keys = layout.keys(FileOwner(name.namespace, name.name, table.uuid))[:1]
    hint = (version_hint.key_of(layout.location),) if layout.has_version_hint else ()
    queries: list[PublishQuery] = [ReadFiles((*keys, *hint)), ListFolder(layout.folder)]
    return [*queries, TablesWithUuid(table.uuid)] if table.uuid is not None else queries


def _existing_files(
    finder: FileFinder, layouts: Iterable[FileLayout], table: Table | None, current: FileLayout | None
) -> list[TableFiles]:
    """Return our files at each of the layouts; `current` is the layout of the table's own files."""
    ordered = sorted(layouts, key=lambda one: one.encoded)
    return [table_files for one in ordered for table_files in finder.files_at(one, table, is_current=one == current)]


def _follow_answer(
    context: PublishContext, *, refresh: bool, jitter: float
) -> PublishPlan | Done | Rescheduled | DeadLettered:
    builder = PlanBuilder()
    table = context.table
    if table is not None:
        context.observations.ask_together(likely_queries(context, table))
        reason_to_stop = why_not_follow(context, table, builder) or _remove_older_first(
            context, table, refresh=refresh, jitter=jitter
        )
        if isinstance(reason_to_stop, DeadLettered):
            return _hold(context, reason_to_stop, refresh=refresh, jitter=jitter)
        if reason_to_stop is not None:
            return reason_to_stop
        context = _with_conflict(context)
        if context.layout is not None and context.conflict is None:
            if needs_listing(context, table, refresh=refresh):
                if context.layout.has_version_hint:
                    context.observations.require_read(version_hint.key_of(context.layout.location))
                context = replace(context, foreign_documents=foreign_documents(context.finder, context.layout))
            write_pointer(context, table, builder, turned=is_not_forward(context, table), refresh=refresh)
    else:
        recheck_missing_table(context, builder)
    wake_listed_name(context, builder)
    _update_elsewhere(context, builder)
    if table is None and not context.documents:
        return outcome_without_table(context, builder)
    if builder.dead_letter is not None:
        table_state = structs.replace(context.job.table_state, missing_since=builder.missing_since, on_hold=True)
        return _hold(
            context, replace(builder.dead_letter, result=PublishResult(table_state)), refresh=refresh, jitter=jitter
        )
    if refresh:
        refresh_files(context, builder)
    return _finish(context, builder, refresh=refresh, jitter=jitter)


def _update_elsewhere(context: PublishContext, builder: PlanBuilder) -> None:
    """Forward, drop or expire our files of other tables and at other places, if there are any."""
    if context.has_documents_elsewhere:
        nowhere = update_files_elsewhere(context, find_rename_targets(context, builder), builder)
        drop_missing_tables(context, nowhere, builder)


def _remove_older_first(context: PublishContext, table: Table, *, refresh: bool, jitter: float) -> PublishPlan | None:
    """Return the plan that first removes files of the previous table of this name; None if none can be removed now.

    Such files remain elsewhere if a publish crashed on its way. If the newest file were replaced first, a reader could
    still reach an older one and see old data.
    """
    here, policy = context.current_files, context.policy
    doc = here.main_document if here is not None else None
    if context.conflict is not None or policy.on_drop is OnDrop.KEEP or context.job.attempt > _MAX_ATTEMPTS_ELSEWHERE:
        return None
    if here is None or doc is None or not doc.is_live or doc.guid in {None, table.uuid}:
        return None
    if not any(
        _names_other_metadata(table_files, doc)
        for table_files in context.existing
        if not context.is_current(table_files)
    ):
        return None
    builder = PlanBuilder()
    _update_elsewhere(context, builder)
    if builder.dead_letter is not None:
        return None
    builder.recheck_at(
        context.answer.answered_at + policy.recheck_delay, "older files of the replaced table are removed first"
    )
    plan = _finish(context, builder, refresh=refresh, jitter=jitter)
    # If the older files cannot be removed now, publish the new table anyway: perhaps they can never be removed.
    if not isinstance(plan, PublishPlan) or not isinstance(plan.outcome, Rescheduled):
        return None
    # The event about the new table is still pending.
    pending = structs.replace(plan.outcome.pending, min_metadata_location=context.job.pending.min_metadata_location)
    return replace(plan, outcome=replace(plan.outcome, pending=pending))


def _names_other_metadata(table_files: TableFiles, newest: Document) -> bool:
    doc = table_files.main_document
    if doc is None or not doc.is_live or (doc.guid, doc.catalog_id) != (newest.guid, newest.catalog_id):
        return False
    return canonical(doc.metadata_file_path) != canonical(newest.metadata_file_path)


def _hold(context: PublishContext, dead: DeadLettered, *, refresh: bool, jitter: float) -> PublishPlan | DeadLettered:
    """Return the dead letter of a held job, or a plan that first rewrites its files if their refresh is due."""
    table_state = dead.result.table_state if dead.result is not None else context.job.table_state
    if refresh or table_state.refresh_at is None:
        table_state = structs.replace(table_state, refresh_at=next_refresh_at(context.answer, context.policy, jitter))
    builder = PlanBuilder()
    if refresh:
        refresh_files(context, builder)
    for location in (
        {table_files.layout.location for table_files in context.existing if table_files.layout.has_version_hint}
        if refresh
        else ()
    ):
        hint = hint_at(context.observations, location)
        if hint is not None and is_our_hint(context, location, hint):
            builder.put(Stage.HINT, version_hint.key_of(location), hint.body, hint)
    changes = builder.ordered_changes()
    dead = replace(dead, result=PublishResult(table_state), recheck_at=table_state.refresh_at)
    if not changes:
        return dead
    require_fresh(context, changes)
    return _to_plan(context, builder, changes, dead)


def _remove_all(
    context: PublishContext, *, refresh: bool, jitter: float
) -> PublishPlan | Done | Rescheduled | DeadLettered:
    """Remove our files of a table that is excluded or skipped, or of a retired catalog."""
    builder = PlanBuilder()
    context = replace(context, table=None, location=None, layout=None)
    if not context.documents:
        return outcome_without_table(context, builder)
    for table_files in context.existing:
        remove_files(context, table_files, builder)
    if refresh:
        refresh_files(context, builder)
    return _finish(context, builder, refresh=refresh, jitter=jitter)


def _finish(
    context: PublishContext, builder: PlanBuilder, *, refresh: bool, jitter: float
) -> PublishPlan | Done | Rescheduled | DeadLettered:
    changes = supported_changes(builder.ordered_changes(), context.observations)
    require_fresh(context, changes)
    outcome = outcome_of(context, builder, changes, refresh=refresh, jitter=jitter)
    return _to_plan(context, builder, changes, outcome) if changes else outcome


def _to_plan(
    context: PublishContext,
    builder: PlanBuilder,
    changes: tuple[FileChange, ...],
    outcome: Done | Rescheduled | DeadLettered,
) -> PublishPlan:
    pairs = tuple((alias.key, alias.other) for alias in tested_aliases(context.aliases, changes).values())
    return PublishPlan(changes, outcome, pairs, builder.unchanged_keys)


def _with_conflict(context: PublishContext) -> PublishContext:
    """Return the context with the conflict at the table's place, if there is one."""
    table_files = context.current_files
    if table_files is None or table_files.conflict is None:
        return context
    return replace(context, conflict=conflict_letter(table_files, context.name))


def _check_locations(table: Table | None, policy: Policy) -> tuple[str | None, DeadLettered | None]:
    if table is None:
        return None, None
    try:
        check_location(table.metadata_location, policy.allowed_locations)
        return check_location(table.location, policy.allowed_locations), None
    except LocationRefused as refused:
        return None, DeadLettered(DeadLetterReason.LOCATION_REFUSED, str(refused))


# ── Whether the answer is followed now; a replica may lag (specification, section 4)


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
    published = structs.replace(
        table_state.live, metadata_location=doc.metadata_file_path, written_at=doc.written_at, asked_at=doc.asked_at
    )
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
