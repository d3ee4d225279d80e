"""When a table counts as dropped (specification, section 4, "Absent")."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import BackwardStep, DeadLettered, DeadLetterReason, StepKind, Wakeup
from sfn.publish.changes import PlanBuilder
from sfn.publish.elsewhere import drop_files
from sfn.publish.facts import IsListed, IsStepAllowed
from sfn.publish.inventory import foreign_documents
from sfn.publish.older import last_written_at, recheck_after_older, rows_with_older_files
from sfn.publish.own import TableFiles
from sfn.publish.policy import OnDrop
from sfn.publish.scene import PublishContext
from sfn.sfnfile import version_hint
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH


def drop_missing_tables(context: PublishContext, nowhere: Mapping[str, list[TableFiles]], builder: PlanBuilder) -> None:
    """Give up the files of tables that are nowhere any more, once every test for it has been passed."""
    if not nowhere or context.policy.on_drop is OnDrop.KEEP:
        return
    on_hold = context.job.table_state.on_hold and not context.job.table_state.limit_overridden
    if on_hold and not context.has_table:
        known = context.job.table_state.missing_since
        builder.missing_since.update({uuid: known.get(uuid, context.answer.answered_at) for uuid in nowhere})
        builder.dead_letter = _on_hold(context, builder.missing_since)
        return
    for uuid, existing in nowhere.items():
        if _is_certainly_dropped(context, uuid, existing, builder):
            if not _drop_limit_allows(context, uuid, existing):
                builder.dead_letter = _on_hold(context, builder.missing_since)
                return
            for table_files in existing:
                delete = context.policy.on_drop is OnDrop.DELETE or _is_purged(context, table_files)
                drop_files(context, table_files, builder, delete=delete)


def _is_certainly_dropped(context: PublishContext, uuid: str, existing: list[TableFiles], builder: PlanBuilder) -> bool:
    policy, answer = context.policy, context.answer
    written = last_written_at(existing)
    older = rows_with_older_files(context, uuid, existing) if uuid else []
    if older:
        builder.wait_for(older, *recheck_after_older(context))
        return False
    if _would_expose_older(context, existing, builder):
        builder.recheck_at(*recheck_after_older(context))
        return False
    if answer.asked_at - written < policy.replica_lag:
        builder.recheck_at(written + policy.replica_lag, "the answer may be older than what is held")
        return False
    if (rename_target := _rename_target_in_folder(context, uuid, existing)) is not None:
        builder.wake([rename_target])
        builder.recheck_at(
            answer.answered_at + policy.recheck_delay, f"{rename_target.table} has this table, and must say so first"
        )
        return False
    if not context.has_table and context.observations.is_true(IsListed(context.name)):
        builder.recheck_at(answer.answered_at + policy.long_recheck_delay, "not found, and yet the namespace lists it")
        return False
    return _was_absent_long_enough(context, uuid, builder)


def _would_expose_older(context: PublishContext, existing: list[TableFiles], builder: PlanBuilder) -> bool:
    """Whether an older table of the name would be what readers find by it, once these files are none any more.

    Each of them has its own file where files are called by the uuid.
    """
    goes = {change.key for change in builder.changes}
    newest = {
        table_files.layout: table_files.main_document.as_of
        for table_files in existing
        if table_files.main_document is not None and table_files.layout.naming.is_by_uuid
    }
    return any(
        other.main_document is not None
        and other.main_document.is_live
        and other.key not in goes
        and other.main_document.as_of < newest[other.layout]
        for other in context.existing
        if other not in existing and other.layout in newest
    )


def _rename_target_in_folder(context: PublishContext, uuid: str, existing: list[TableFiles]) -> Wakeup | None:
    """Who has the table by the catalog's word, and by a file beside these.

    What a row publishes is known to the others once it has settled, and a sweep does not wait for those that it finds.
    """
    catalog_id = context.policy.catalog_id
    for table_files in existing if uuid else ():
        for doc in foreign_documents(context.finder, table_files.layout):
            if doc.is_live and doc.ref == MAIN_BRANCH and (doc.guid, doc.catalog_id) == (uuid, catalog_id):
                name = TableIdentifier(context.name.catalog, doc.namespace, doc.name)
                found = (
                    context.observations.answer_for(name).found if context.policy.table_filter.covers(name) else None
                )
                if isinstance(found, Table) and found.uuid == uuid and found.skip_reason is None:
                    return Wakeup(name, table_files.layout.encoded)
    return None


def _was_absent_long_enough(context: PublishContext, uuid: str, builder: PlanBuilder) -> bool:
    policy, answer, live = context.policy, context.answer, context.job.table_state.live
    # It was told of the name: what it says of a table that was last published under it, it does not say of others.
    drop = context.job.pending.drop and live is not None and live.uuid == (uuid or None)
    # What nobody can ask is missing only where that was told.
    is_reported = drop or policy.event_only
    wait = policy.replica_lag if is_reported else max(policy.absence_delay, policy.replica_lag)
    since = context.job.table_state.missing_since.get(uuid)
    builder.missing_since[uuid] = since or answer.answered_at
    if since is None or answer.asked_at < since + wait:
        builder.recheck_at(
            (since or answer.answered_at) + wait, "absent: looked at once more before it counts as dropped"
        )
        return False
    swept = context.job.swept_at
    if policy.is_swept and not drop and (swept is None or swept < since):
        pause = max(policy.sweep_every / 4, timedelta(seconds=1))
        builder.recheck_at(
            answer.answered_at + pause, "absent: a sweep must come first, it finds a table that was renamed"
        )
        return False
    return True


def _drop_limit_allows(context: PublishContext, uuid: str, existing: list[TableFiles]) -> bool:
    if context.has_table or context.job.table_state.limit_overridden:
        return True
    doc = existing[-1].main_document
    pointer = doc.metadata_file_path if doc is not None else ""
    return context.observations.is_true(IsStepAllowed(BackwardStep(StepKind.DROP, uuid, pointer)))


def _is_purged(context: PublishContext, table_files: TableFiles) -> bool:
    doc, location = table_files.main_document, table_files.layout.location
    if doc is None or canonical(doc.metadata_file_path.rpartition("/")[0]) != f"{location}/metadata":
        # Where the metadata lies in another folder nothing can be told from this one, and the event is believed.
        return context.is_purged
    # Else it is not: a late one may be of a table that had the name before. Where files are left a tombstone is too.
    return set(context.observations.folder(f"{location}/metadata/")) <= {version_hint.key_of(location)}


def _on_hold(context: PublishContext, absent: Mapping[str, datetime]) -> DeadLettered:
    catalog = context.name.catalog
    since = min(absent.values(), default=context.answer.answered_at)
    return DeadLettered(
        DeadLetterReason.HELD_DROP,
        f"{context.name} is missing from the catalog since {since:%F %H:%M:%S} UTC, and more tables of {catalog} than "
        "the limit allows: its files stay as they were. `sfn status` says how many. If the catalog lost its tables, "
        f"restore them: the next sweep closes this letter. If they were dropped on purpose: sfn release {catalog}",
    )
