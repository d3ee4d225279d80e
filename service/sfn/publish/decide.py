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
from datetime import datetime
from typing import Final, TypeAlias

from msgspec import structs

from sfn.domain.catalog_answer import NoSuchTable, StagedCreate
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, LeasedJob, PublishResult, Rescheduled
from sfn.errors import LocationRefused
from sfn.publish.commit_files import refresh_commit_files
from sfn.publish.context import (
    FileChange,
    PlanBuilder,
    PublishContext,
    PublishPlan,
    Put,
    Stage,
    find_aliases,
    hint_at,
    tested_aliases,
)
from sfn.publish.documents import is_our_hint
from sfn.publish.existing_files import FileFinder, TableFiles, conflict_letter, foreign_documents
from sfn.publish.outcome import next_refresh_at, outcome_of, outcome_of_staged_create, outcome_without_table
from sfn.publish.plan import likely_queries, needs_listing, write_pointer
from sfn.publish.policy import OnDrop, Policy
from sfn.publish.queries import (
    ListFolder,
    NeedsQuery,
    Observations,
    PublishQuery,
    ReadFiles,
    TablesWithUuid,
    Together,
)
from sfn.publish.renames_and_drops import drop_missing_tables, find_rename_targets, remove_files, update_files_elsewhere
from sfn.publish.replica_lag import is_not_forward, recheck_missing_table, why_not_follow
from sfn.publish.spellings import find_listed_name, recheck_failed_listing, wake_listed_name
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import canonical, check_location
from sfn.sfnfile.naming import FileLayout, FileOwner

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
    rename_targets = find_rename_targets(context, builder)
    nowhere = update_files_elsewhere(context, rename_targets, builder)
    drop_missing_tables(context, nowhere, builder)
    if table is None and not context.documents:
        return outcome_without_table(context, builder)
    if builder.dead_letter is not None:
        table_state = structs.replace(context.job.table_state, missing_since=builder.missing_since, on_hold=True)
        return _hold(
            context, replace(builder.dead_letter, result=PublishResult(table_state)), refresh=refresh, jitter=jitter
        )
    if refresh:
        _refresh_files(context, builder)
    return _finish(context, builder, refresh=refresh, jitter=jitter)


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
    nowhere = update_files_elsewhere(context, find_rename_targets(context, builder), builder)
    drop_missing_tables(context, nowhere, builder)
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
        _refresh_files(context, builder)
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
    _require_fresh(context, changes)
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
        _refresh_files(context, builder)
    return _finish(context, builder, refresh=refresh, jitter=jitter)


def _finish(
    context: PublishContext, builder: PlanBuilder, *, refresh: bool, jitter: float
) -> PublishPlan | Done | Rescheduled | DeadLettered:
    changes = _supported_changes(builder.ordered_changes(), context.observations)
    _require_fresh(context, changes)
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


def _refresh_files(context: PublishContext, builder: PlanBuilder) -> None:
    """Rewrite unchanged files, because orphan cleaners delete unknown files by age."""
    changed = {change.key for change in builder.changes}
    for file in (file for table_files in context.existing for file in table_files.files):
        if file.key not in changed:
            builder.put(Stage.TOMBSTONE, file.key, file.stored.body, file.stored)
    for table_files in context.existing:
        refresh_commit_files(context, table_files, builder)


def _supported_changes(changes: Iterable[FileChange], observations: Observations) -> tuple[FileChange, ...]:
    """Return the changes; a deletion becomes a write of its fallback if the store has no conditional delete."""
    supported: list[FileChange] = []
    for change in changes:
        if isinstance(change, Put) or observations.guarantees(change.key).conditional_delete:
            supported.append(change)
        elif change.fallback_body is not None:
            supported.append(Put(change.stage, change.key, change.fallback_body, change.replacing))
    return tuple(supported)


def _require_fresh(context: PublishContext, changes: tuple[FileChange, ...]) -> None:
    """Require fresh observations before a write, and before the decision that no write is needed.

    A file must be read before the catalog is asked. Then a newer document makes our conditional write fail.
    """
    if changes:
        context.observations.require_answer_after(context.name, tuple(change.key for change in changes))
        return
    name = context.name
    for alias in context.aliases.values():
        context.observations.require_read(alias.other)
    for table_files in context.existing:
        guid = context.table.uuid if context.table is not None else None
        # The conflicting file may have the plain or the strict name.
        keys = (
            table_files.layout.keys(FileOwner(name.namespace, name.name, guid))
            if table_files.conflict is not None
            else [table_files.key]
        )
        hints = [version_hint.key_of(table_files.layout.location)] if table_files.layout.has_version_hint else []
        for key in (*keys, *(file.key for file in table_files.files), *hints):
            if context.observations.file(key) is not None:
                context.observations.require_read(key)
