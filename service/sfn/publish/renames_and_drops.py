"""Our files at the places where the table is not: moved, renamed, taken over, expired (specification, section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import BackwardStep, DeadLettered, DeadLetterReason, StepKind, Wakeup
from sfn.errors import LocationRefused
from sfn.publish.commit_files import complete_commit_files, remove_commit_files
from sfn.publish.context import PlanBuilder, PublishContext, Stage, is_same_file, match_listed_name
from sfn.publish.documents import clear_hint, tombstone_document
from sfn.publish.existing_files import OurFile, TableFiles, foreign_documents, parse_or_none
from sfn.publish.policy import OnDrop
from sfn.publish.queries import IsListed, IsStepAllowed
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document, DocumentState, Link, render
from sfn.sfnfile.locations import canonical, check_location
from sfn.sfnfile.naming import MAIN_BRANCH, PLACEMENT_FOLDERS, FileLayout, FileOwner


@dataclass(frozen=True, slots=True)
class RenameTarget:
    """The name that a table of ours has now.

    Attributes:
        name: the new name.
        table: the catalog's answer for it.
        location: its canonical location.
    """

    name: TableIdentifier
    table: Table
    location: str


def find_rename_targets(context: PublishContext, builder: PlanBuilder) -> dict[str, RenameTarget | None]:
    """Map each table UUID that our files mention, but that this name no longer has, to the name that has it now.

    The catalog must confirm the new name. The value is None if the location of the new name is refused. A table that
    was already dropped counts too: it may have come back, or have been missed before.
    """
    rename_targets: dict[str, RenameTarget | None] = {}
    for doc in context.documents:
        uuid = doc.guid
        if uuid is None or uuid in rename_targets or not may_forward(context, doc):
            continue
        if context.table is not None and uuid == context.table.uuid:
            continue
        for candidate in _candidates(context, uuid):
            found = context.observations.answer_for(candidate.table).found
            if not isinstance(found, Table):
                # `wake_listed_name` wakes another spelling of our name.
                builder.wake([candidate] if candidate.table != context.listed_name else [])
            elif found.uuid == uuid and found.skip_reason is None:
                rename_targets[uuid] = to_rename_target(context, _as_listed(context, candidate.table, found), found)
                break
    return rename_targets


def _as_listed(context: PublishContext, name: TableIdentifier, table: Table) -> TableIdentifier:
    """Return the name that has the table's file, because an event may spell the name in another way."""
    if name != context.job.pending.renamed_to or context.policy.event_only:
        return name
    return match_listed_name(context.observations, context.policy, name, table, fresh=True) or name


def to_rename_target(context: PublishContext, name: TableIdentifier, table: Table) -> RenameTarget | None:
    """Return a name with its table; None if a location of the table is refused."""
    try:
        check_location(table.metadata_location, context.policy.allowed_locations)
        return RenameTarget(name, table, check_location(table.location, context.policy.allowed_locations))
    except LocationRefused:
        return None


def may_forward(context: PublishContext, doc: Document) -> bool:
    """Return whether a document becomes `renamed` if its table has another name.

    A document that is `renamed` stays as it is, unless its target file is gone or belongs to another table.
    """
    if doc.is_live or is_expired(context, doc):
        return doc.is_live
    return doc.state is DocumentState.DROPPED or (
        doc.state is DocumentState.RENAMED and _forwards_nowhere(context, doc)
    )


def _forwards_nowhere(context: PublishContext, doc: Document) -> bool:
    """Return whether a document leads to a file in our folders that is not the table's.

    Other folders are not checked. An unreadable folder must not keep the next table of this name from being published.
    """
    key = doc.moved_to.sfn_file_path if doc.moved_to is not None else ""
    if not key.startswith(tuple(table_files.layout.folder for table_files in context.existing)):
        return False
    target = parse_or_none(context.observations.file(key))
    return target is None or target.guid != doc.guid


def is_expired(context: PublishContext, doc: Document) -> bool:
    """Return whether a tombstone has expired."""
    return doc.expires_at is not None and context.answer.answered_at >= doc.expires_at


def _candidates(context: PublishContext, uuid: str) -> list[Wakeup]:
    """Return the jobs that may have the table now.

    A job with a live file of the table that knows about it is not woken. Otherwise two names that were both dropped
    would wake each other without end.
    """
    renamed_to, others = context.job.pending.renamed_to, context.observations.other_tables_with(uuid, context.name)
    wakeups = [Wakeup(context.listed_name)] if context.listed_name is not None else []
    wakeups += [Wakeup(renamed_to)] if renamed_to is not None and renamed_to != context.name else []
    wakeups += [Wakeup(entry.table, live.location) for entry, live in others if entry.table != renamed_to]
    return [wakeup for wakeup in wakeups if context.policy.table_filter.covers(wakeup.table)]


def jobs_with_older_files(
    context: PublishContext, uuid: str, existing: Sequence[TableFiles], *, is_gone: bool = True
) -> list[Wakeup]:
    """Return the jobs with a file that names an older metadata file of the table; none if files of dropped tables stay.

    Settled jobs are known to the inbox. A job that crashed before it settled is found by its file. So is a job that was
    known before and has published another table elsewhere since (`TableState.older_files_at`). A job that knows of its
    file is not woken: it runs on its own schedule, and two jobs that wake each other would never rest. The order is the
    same by inbox and by files, or two jobs would wait for each other for ever. A branch file goes with its main file,
    whatever its age.

    Args:
        uuid: the uuid of a table that these live files of ours name.
        is_gone: the table does not exist any more. If it does, an earlier file that names the same metadata file is not
            older: its readers see the same rows, and its job may have the table again.
    """
    if context.policy.on_drop is OnDrop.KEEP:
        return []
    newest = max(
        (table_files.main_document for table_files in existing if table_files.main_document is not None),
        key=lambda doc: doc.as_of,
    )
    pointer = canonical(newest.metadata_file_path)
    older = {
        Wakeup(entry.table, context.policy.layout(entry.table, live.location).encoded): None
        for entry, live in context.observations.other_tables_with(uuid, context.name)
        if live.as_of < newest.as_of
        and not entry.is_stuck
        and (is_gone or canonical(live.metadata_location) != pointer)
    }
    # Earlier places of the table count too: a tombstone there leads to the newest file and would lead nowhere.
    layouts = {
        table_files.layout: None
        for table_files in context.existing
        if table_files in existing or (table_files.main_document is not None and table_files.main_document.guid == uuid)
    }
    before = {
        layout: None
        for layout in map(FileLayout.parse, sorted(context.job.table_state.older_files_at))
        if layout not in layouts
    }
    for layout in (*layouts, *before):
        for doc in foreign_documents(context.finder, layout):
            name = TableIdentifier(context.name.catalog, doc.namespace, doc.name)
            is_of_the_table = (
                doc.is_live and doc.ref == MAIN_BRANCH and (doc.guid, doc.catalog_id) == (uuid, newest.catalog_id)
            )
            is_older = doc.as_of < newest.as_of and (is_gone or canonical(doc.metadata_file_path) != pointer)
            if is_of_the_table and is_older and not (layout in before and _is_stuck(context, name)):
                older[Wakeup(name, layout.encoded)] = None
    return list(older)


def _is_stuck(context: PublishContext, name: TableIdentifier) -> bool:
    """Return whether a job is stuck that may have published another table meanwhile."""
    table = context.observations.answer_for(name).found
    others = (
        context.observations.other_tables_with(table.uuid, context.name)
        if isinstance(table, Table) and table.uuid
        else []
    )
    return any(entry.table == name and entry.is_stuck for entry, _ in others)


def jobs_that_would_resurface(context: PublishContext, table_files: TableFiles) -> list[Wakeup]:
    """Return the jobs with a live file of the same table beside our forwarding tombstone, if that file will change.

    The table is elsewhere by the catalog, or gone. A reader that followed our tombstone would come back to that file.
    None if files of dropped tables stay.
    """
    doc = table_files.main_document
    if doc is None or doc.guid is None or doc.moved_to is None or context.policy.on_drop is OnDrop.KEEP:
        return []
    stuck = {
        entry.table for entry, _ in context.observations.other_tables_with(doc.guid, context.name) if entry.is_stuck
    }
    live_documents = {
        TableIdentifier(context.name.catalog, other.namespace, other.name): other
        for other in foreign_documents(context.finder, table_files.layout)
        if other.is_live and other.ref == MAIN_BRANCH and (other.guid, other.catalog_id) == (doc.guid, doc.catalog_id)
    }
    unsettled = sorted(live_documents.keys() - stuck)
    return [
        Wakeup(name, table_files.layout.encoded)
        for name in unsettled
        if not _keeps_document(context, name, live_documents[name], table_files)
    ]


def _keeps_document(context: PublishContext, name: TableIdentifier, other: Document, table_files: TableFiles) -> bool:
    """Return whether a name has the table at this layout, or at a location that is refused.

    The layout may have another name there; then the same document is found under that name.
    """
    table = context.observations.answer_for(name).found
    if not isinstance(table, Table) or table.uuid != other.guid:
        return False
    rename_target = to_rename_target(context, name, table)
    if rename_target is None or context.policy.layout(name, rename_target.location) == table_files.layout:
        return True
    other_finder = replace(context.finder, name=name, cached_keys=frozenset())
    return (
        other_finder.find_slot(context.policy.layout(name, rename_target.location), other.guid).main_document == other
    )


def recheck_after_older(context: PublishContext) -> tuple[datetime, str]:
    """Return when to check again after `jobs_with_older_files`, and why; these jobs mostly wait for a missing table."""
    return (
        context.answer.answered_at + context.policy.long_recheck_delay,
        "older SFN files of the same table must go first",
    )


def last_written_at(existing: Iterable[TableFiles]) -> datetime:
    """Return when the youngest of these documents was written."""
    return max(
        table_files.main_document.written_at for table_files in existing if table_files.main_document is not None
    )


def update_files_elsewhere(
    context: PublishContext, rename_targets: Mapping[str, RenameTarget | None], builder: PlanBuilder
) -> dict[str, list[TableFiles]]:
    """Update our files at other places than the table's own.

    Files of a table with a refused new location stay as they are. Otherwise a wrong setting, or a catalog that answers
    wrong locations, would drop all tables at once.

    Older files come first. A table has several files if a publish crashed on its way to new settings. A reader of the
    directory must not find an older file once the newest is no longer live.

    Returns:
        By table uuid, the live files of tables that exist nowhere any more, newest last.
    """
    nowhere: dict[str, list[TableFiles]] = {}
    existing_documents = [
        (table_files, table_files.main_document)
        for table_files in context.existing
        if table_files.main_document is not None and not context.is_current(table_files)
    ]
    for table_files, doc in sorted(existing_documents, key=lambda one: one[1].as_of):
        if context.table is not None and doc.guid == context.table.uuid:
            _update_moved(context, table_files, doc, builder)
        elif doc.guid is not None and doc.guid in rename_targets and may_forward(context, doc):
            _update_renamed(context, table_files, doc, rename_targets[doc.guid], builder)
        elif not doc.is_live:
            _expire(context, table_files, builder)
        elif _is_superseded(context, table_files, doc):
            _drop_after_older(context, table_files, doc, builder, stage=Stage.SUPERSEDE)
        else:
            nowhere.setdefault(doc.guid or "", []).append(table_files)
    return nowhere


def _update_moved(context: PublishContext, table_files: TableFiles, doc: Document, builder: PlanBuilder) -> None:
    if context.conflict is None:
        _forward_moved(context, table_files, builder)
    elif doc.is_live and context.conflict.reason is not DeadLetterReason.LOCATION_REFUSED:
        _drop_after_older(context, table_files, doc, builder)
    elif not doc.is_live:
        _expire(context, table_files, builder)


def _update_renamed(
    context: PublishContext,
    table_files: TableFiles,
    doc: Document,
    rename_target: RenameTarget | None,
    builder: PlanBuilder,
) -> None:
    if rename_target is not None:
        _forward_renamed(context, table_files, doc, rename_target, builder)
    elif not doc.is_live:
        _expire(context, table_files, builder)
    else:
        builder.recheck_at(
            context.answer.answered_at + context.policy.long_recheck_delay,
            "the table was renamed, and its new location is not allowed",
        )


def _is_superseded(context: PublishContext, table_files: TableFiles, doc: Document) -> bool:
    """Return whether a table of another uuid had the name later, by a file beside this one."""
    return table_files.layout.naming.is_by_uuid and any(
        other.layout == table_files.layout
        and (context.is_current(other) or (other.main_document is not None and other.main_document.as_of > doc.as_of))
        for other in context.existing
        if other is not table_files
    )


def drop_files(
    context: PublishContext,
    table_files: TableFiles,
    builder: PlanBuilder,
    *,
    delete: bool = False,
    stage: Stage = Stage.TOMBSTONE,
) -> None:
    """Mark a table as dropped: clear the hint, then write tombstones or delete the files, main file last.

    As long as the main file is live, the job knows that there is work left.
    """
    if table_files.main_document is None:
        return
    if delete:
        # Commit files that a failed drop has deleted must not be created again, because they would stay.
        remove_commit_files(context, table_files, builder)
    else:
        complete_commit_files(context, table_files, builder)
    clear_hint(context, table_files, builder)
    builder.wake_locations.add(table_files.layout.location)
    for file in reversed(table_files.files):
        dropped = render(tombstone_document(context, file.doc, DocumentState.DROPPED))
        if delete:
            builder.remove(Stage.DELETE, file.key, file.stored, fallback_body=dropped)
        elif file.doc.is_live:
            builder.put(stage, file.key, dropped, file.stored)


def _drop_after_older(
    context: PublishContext,
    table_files: TableFiles,
    doc: Document,
    builder: PlanBuilder,
    *,
    delete: bool = False,
    stage: Stage = Stage.TOMBSTONE,
) -> None:
    """Drop files without a successor, after the older files of the table are gone."""
    older = jobs_with_older_files(context, doc.guid, [table_files]) if doc.guid is not None else []
    if older:
        builder.wait_for(older, *recheck_after_older(context))
    else:
        drop_files(context, table_files, builder, delete=delete, stage=stage)


def remove_files(context: PublishContext, table_files: TableFiles, builder: PlanBuilder) -> None:
    """Remove live files at a layout; tombstones expire.

    Of a retired catalog, everything is removed.
    """
    if table_files.main_document is not None and table_files.main_document.is_live:
        _drop_after_older(context, table_files, table_files.main_document, builder, delete=True)
    elif table_files.main_document is not None:
        _expire(context, table_files, builder)


def _forward_moved(context: PublishContext, table_files: TableFiles, builder: PlanBuilder) -> None:
    """Write tombstones that lead to the table's files at its new location or under its new settings."""
    here, main_file = context.current_files, table_files.main_file
    if here is None or main_file is None:
        return
    outdated = [
        file
        for file in table_files.files
        if file.doc.state in {DocumentState.CURRENT, DocumentState.MOVED, main_file.doc.state}
    ]
    link = Link(context.name.namespace, context.name.name, here.key)
    outdated = [file for file in outdated if file.doc.moved_to != link]
    if main_file not in outdated:
        _expire(context, table_files, builder)
        return
    older = jobs_with_older_files(context, main_file.doc.guid, [table_files]) if main_file.doc.guid is not None else []
    if older and main_file.doc.is_live:
        # Only its file shows a job that the inbox lost. A reader must not come back to that file once ours is gone.
        builder.wait_for(older, *recheck_after_older(context))
        return
    builder.wake(older)
    complete_commit_files(context, table_files, builder)
    clear_hint(context, table_files, builder)
    builder.wake_locations.add(table_files.layout.location)
    for file in reversed(outdated):
        key = here.key if file is main_file else _branch_target(context, here, file)
        moved = replace(
            tombstone_document(context, file.doc, DocumentState.MOVED), moved_to=replace(link, sfn_file_path=key)
        )
        builder.put(Stage.TOMBSTONE, file.key, render(moved), file.stored)


def _branch_target(context: PublishContext, here: TableFiles, file: OurFile) -> str:
    """Return the new key of a branch file; a branch that is no longer published leads to the main file."""
    if context.table is None or file.doc.ref not in context.policy.branch_heads(context.table):
        return here.key
    return context.finder.find_slot(here.layout, context.table.uuid, file.doc.ref).key


def _forward_renamed(
    context: PublishContext, table_files: TableFiles, doc: Document, rename_target: RenameTarget, builder: PlanBuilder
) -> None:
    layout = context.policy.layout(rename_target.name, rename_target.location)
    other_finder = replace(context.finder, name=rename_target.name, cached_keys=frozenset())
    for key in layout.keys(FileOwner(rename_target.name.namespace, rename_target.name.name, doc.guid)):
        # Two names can share a plain file name, so our cache may have an old state of the other name's file.
        context.observations.require_read(key)
    target = other_finder.find_slot(layout, doc.guid)
    if target.conflict is None and is_same_file(table_files, target):
        _transfer(context, table_files, rename_target, builder)
        return
    if target.conflict is not None and context.answer.asked_at - doc.written_at >= context.policy.replica_lag:
        if doc.is_live:
            _drop_after_older(context, table_files, doc, builder)
        else:
            _expire(context, table_files, builder)
        return
    if target.main_document is None or not _is_current(target.main_document, doc, rename_target):
        builder.wake([Wakeup(rename_target.name)])
        builder.recheck_at(
            context.answer.answered_at + context.policy.recheck_delay, f"{rename_target.name} must be published first"
        )
        return
    if context.answer.asked_at - doc.written_at < context.policy.replica_lag:
        builder.recheck_at(
            doc.written_at + context.policy.replica_lag, "the catalog's answer may be older than the SFN file"
        )
        return
    older = jobs_with_older_files(context, doc.guid, [table_files]) if doc.is_live and doc.guid is not None else []
    others = [wakeup for wakeup in older if wakeup.table != rename_target.name]
    if others:
        # Once the table is dropped, a reader of this directory would come back to an older file. If the inbox is lost
        # before that, no job knows this directory any more.
        builder.wait_for(others, *recheck_after_older(context))
        return
    complete_commit_files(context, table_files, builder)
    clear_hint(context, table_files, builder)
    builder.wake_locations.add(table_files.layout.location)
    for file in reversed(table_files.files):
        if file.doc.is_live or file.doc.state is doc.state:
            branch = target if file is table_files.main_file else other_finder.find_slot(layout, doc.guid, file.doc.ref)
            renamed = _renamed_document(
                context,
                file,
                branch if branch.main_document is not None and branch.main_document.is_live else target,
                rename_target,
            )
            builder.put(Stage.TOMBSTONE, file.key, render(renamed), file.stored)


def _transfer(
    context: PublishContext, table_files: TableFiles, rename_target: RenameTarget, builder: PlanBuilder
) -> None:
    """Leave the files named by uuid to the rename target; end those of branches that the target does not publish."""
    branches = context.policy.branch_heads(rename_target.table)
    ended_files = [file for file in table_files.files if table_files.stored is None and file.doc.ref not in branches]
    for file in (file for file in ended_files if file.doc.is_live):
        builder.put(
            Stage.TOMBSTONE, file.key, render(tombstone_document(context, file.doc, DocumentState.DROPPED)), file.stored
        )
    if len(ended_files) < len(table_files.files):
        builder.wake([Wakeup(rename_target.name)])
        builder.recheck_at(
            context.answer.answered_at + context.policy.recheck_delay,
            f"{rename_target.name} has to take over this file first",
        )
    elif not any(file.doc.is_live for file in ended_files):
        _expire(context, table_files, builder)


def _renamed_document(
    context: PublishContext, file: OurFile, target: TableFiles, rename_target: RenameTarget
) -> Document:
    return replace(
        tombstone_document(context, file.doc, DocumentState.RENAMED),
        moved_to=Link(rename_target.name.namespace, rename_target.name.name, target.key),
        name_now=_current_link(context, file.doc),
    )


def _is_current(target: Document, doc: Document, rename_target: RenameTarget) -> bool:
    """Return whether a file may be forwarded to: it names our pointer or the catalog's, or is younger than our file."""
    if not target.is_live or target.guid != doc.guid:
        return False
    pointers = {canonical(doc.metadata_file_path), canonical(rename_target.table.metadata_location)}
    return canonical(target.metadata_file_path) in pointers or target.written_at >= doc.written_at


def _current_link(context: PublishContext, doc: Document) -> Link | None:
    """Return a link to the file of the table that has the name now, also under another spelling of the name."""
    here, found = context.current_files, context.answer.found
    if here is not None:
        return Link(context.name.namespace, context.name.name, here.key)
    if context.listed_name is None or not isinstance(found, Table) or found.uuid == doc.guid:
        return None
    rename_target = to_rename_target(context, context.listed_name, found)
    if rename_target is None:
        return None
    other_finder = replace(context.finder, name=rename_target.name, cached_keys=frozenset())
    key = other_finder.find_slot(context.policy.layout(rename_target.name, rename_target.location), found.uuid).key
    return Link(rename_target.name.namespace, rename_target.name.name, key)


def _expire(context: PublishContext, table_files: TableFiles, builder: PlanBuilder) -> None:
    """Delete an expired tombstone, main file last; add the link to the table that has the name now to a younger one."""
    main_file = table_files.main_file
    if main_file is None:
        return
    if is_expired(context, main_file.doc) or context.policy.is_retired:
        clear_hint(context, table_files, builder, repeated=True)
        remove_commit_files(context, table_files, builder)
        for file in reversed(table_files.files):
            builder.remove(Stage.DELETE, file.key, file.stored)
        return
    for file in table_files.files:
        name_now = _current_link(context, file.doc) if file.doc.state is DocumentState.RENAMED else None
        if file.doc.name_now is None and name_now is not None:
            named = replace(file.doc, name_now=name_now, ordinal=context.last_ordinal + 1)
            builder.put(Stage.TOMBSTONE, file.key, render(named), file.stored)
    clear_hint(context, table_files, builder, repeated=True)


def drop_missing_tables(context: PublishContext, nowhere: Mapping[str, list[TableFiles]], builder: PlanBuilder) -> None:
    """Drop the files of tables that exist nowhere any more, once every check has passed."""
    if not nowhere or context.policy.on_drop is OnDrop.KEEP:
        return
    on_hold = context.job.table_state.on_hold and not context.job.table_state.limit_overridden
    if on_hold and not context.has_table:
        known = context.job.table_state.missing_since
        builder.missing_since.update({uuid: known.get(uuid, context.answer.answered_at) for uuid in nowhere})
        builder.dead_letter = _on_hold(context, builder.missing_since)
        return
    *_, newest = nowhere
    for uuid, existing in nowhere.items():
        if _is_certainly_dropped(context, uuid, existing, builder):
            if not _drop_limit_allows(context, uuid, existing):
                builder.dead_letter = _on_hold(context, builder.missing_since)
                return
            for table_files in existing:
                # Files are deleted last, and a tombstone beside younger files may lead to an older file.
                delete = uuid == newest and (
                    context.policy.on_drop is OnDrop.DELETE or _is_purged(context, table_files)
                )
                drop_files(context, table_files, builder, delete=delete)


def _is_certainly_dropped(context: PublishContext, uuid: str, existing: list[TableFiles], builder: PlanBuilder) -> bool:
    policy, answer = context.policy, context.answer
    written = last_written_at(existing)
    older = jobs_with_older_files(context, uuid, existing) if uuid else []
    if older:
        builder.wait_for(older, *recheck_after_older(context))
        return False
    if _would_expose_older(context, existing, builder) or _leads_to_older(context, existing, builder):
        builder.recheck_at(*recheck_after_older(context))
        return False
    if answer.asked_at - written < policy.replica_lag:
        builder.recheck_at(written + policy.replica_lag, "the catalog's answer may be older than the SFN file")
        return False
    if (rename_target := _rename_target_in_folder(context, uuid, existing)) is not None:
        builder.wake([rename_target])
        builder.recheck_at(
            answer.answered_at + policy.recheck_delay,
            f"{rename_target.table} has this table and must be published first",
        )
        return False
    if not context.has_table and context.observations.is_true(IsListed(context.name)):
        builder.recheck_at(
            answer.answered_at + policy.long_recheck_delay, "the catalog does not find the table, but lists it"
        )
        return False
    return _was_absent_long_enough(context, uuid, builder)


def _would_expose_older(context: PublishContext, existing: list[TableFiles], builder: PlanBuilder) -> bool:
    """Return whether readers of the name would find an older table of it once these files are gone.

    With naming by uuid, each table of the name has its own file.
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


def _leads_to_older(context: PublishContext, existing: list[TableFiles], builder: PlanBuilder) -> bool:
    """Return whether a tombstone beside these files leads to a live file of an older table of the name.

    Once these files are gone, readers would follow the tombstone. This job is woken with the place of the older file if
    only an inbox that is lost knew it.
    """
    goes = {change.key for change in builder.changes}
    layouts = {table_files.layout for table_files in existing}
    current = context.table.uuid if context.table is not None else None
    for table_files in context.existing:
        doc = table_files.main_document
        if table_files.layout not in layouts or doc is None or doc.state is not DocumentState.MOVED or not doc.moved_to:
            continue
        key, folder = doc.moved_to.sfn_file_path, PLACEMENT_FOLDERS[table_files.layout.placement].rstrip("/")
        place = replace(table_files.layout, location=key.rpartition("/")[0].removesuffix(folder))
        owner = FileOwner(context.name.namespace, context.name.name, doc.guid)
        if key in goes or key not in place.keys(owner) or doc.guid == current:
            continue
        try:
            check_location(place.location, context.policy.allowed_locations)
        except LocationRefused:
            # This job may not look there, nor change anything.
            continue
        context.observations.require_read(key)
        target = parse_or_none(context.observations.file(key))
        if target is not None and target.is_live and target.guid == doc.guid:
            builder.wake([Wakeup(context.name, place.encoded)])
            return True
    return False


def _rename_target_in_folder(context: PublishContext, uuid: str, existing: list[TableFiles]) -> Wakeup | None:
    """Return the job that has the table by the catalog and by a file in the same folder.

    Other jobs see the files of a job only after it has settled, and a sweep does not wait for the jobs that it finds.
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
    # A drop event is about the name. It counts for the table last published under the name, not for others.
    drop = context.job.pending.drop and live is not None and live.uuid == (uuid or None)
    # In an event-only catalog a table is missing only if an event said so.
    is_reported = drop or policy.event_only
    wait = policy.replica_lag if is_reported else max(policy.absence_delay, policy.replica_lag)
    since = context.job.table_state.missing_since.get(uuid)
    builder.missing_since[uuid] = since or answer.answered_at
    if since is None or answer.asked_at < since + wait:
        builder.recheck_at((since or answer.answered_at) + wait, "missing: checked again before it counts as dropped")
        return False
    swept = context.job.swept_at
    if policy.is_swept and not drop and (swept is None or swept < since):
        pause = max(policy.sweep_every / 4, timedelta(seconds=1))
        builder.recheck_at(answer.answered_at + pause, "missing: a sweep comes first, because it finds a renamed table")
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
        # If the metadata lies in another folder, this one proves nothing, so the event decides.
        return context.is_purged
    # Otherwise the folder decides, because a late event may be about an earlier table. Leftover files keep a tombstone.
    return set(context.observations.folder(f"{location}/metadata/")) <= {version_hint.key_of(location)}


def _on_hold(context: PublishContext, missing_since: Mapping[str, datetime]) -> DeadLettered:
    catalog = context.name.catalog
    since = min(missing_since.values(), default=context.answer.answered_at)
    return DeadLettered(
        DeadLetterReason.HELD_DROP,
        f"{context.name} is missing from the catalog since {since:%F %H:%M:%S} UTC, and more tables of {catalog} are "
        "missing than the drop limit allows. Its files stay as they are. `sfn status` shows the number of tables. If "
        "the catalog lost its tables, restore them: the next sweep closes this dead letter. If they were dropped on "
        f"purpose: sfn release {catalog}",
    )
