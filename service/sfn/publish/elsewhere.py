"""Our files at the places where the table is not: moved, renamed, taken over, expired (specification, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sfn.domain.identifiers import Table
from sfn.domain.jobs import DeadLetterReason, Wakeup
from sfn.publish.aliases import is_same_file
from sfn.publish.changes import PlanBuilder, Stage
from sfn.publish.commits import complete_commit_files, remove_commit_files
from sfn.publish.documents import tombstone_document
from sfn.publish.heirs import RenameTarget, is_expired, may_forward, to_rename_target
from sfn.publish.hints import clear_hint
from sfn.publish.older import recheck_after_older, rows_with_older_files
from sfn.publish.own import OurFile, TableFiles
from sfn.publish.scene import PublishContext
from sfn.sfnfile.document import Document, DocumentState, Link, render
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import FileOwner


def update_files_elsewhere(
    context: PublishContext, rename_targets: Mapping[str, RenameTarget | None], builder: PlanBuilder
) -> dict[str, list[TableFiles]]:
    """Follow what became of our files away from the table's place.

    Those of a table whose new location is refused stay as they are: a wrong setting, or a catalog that answers wrong
    locations, would else give up every table at once.

    Older files first: a table has several where a publish died on its way to new settings, and a reader of the
    directory must not meet an older one once the newest is live no more.

    Returns:
        By table uuid: the live files whose table is nowhere any more, the newest last.
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
            context.answer.answered_at + context.policy.long_recheck_delay, "renamed to a location that is refused"
        )


def _is_superseded(context: PublishContext, table_files: TableFiles, doc: Document) -> bool:
    """Whether a table of another uuid had the name later, by a file beside this one: then it is this one's no more."""
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
    """Say that the table is gone: the hint first, then its documents become `dropped`, or go too, the leading one last.

    While that one is live the row still knows what there is to do.
    """
    if table_files.main_document is None:
        return
    if delete:
        # What a drop that failed has deleted must not be made again: it would stay.
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
    """Drop what has no successor, once older files of the table went."""
    older = rows_with_older_files(context, doc.guid, [table_files]) if doc.guid is not None else []
    if older:
        builder.wait_for(older, *recheck_after_older(context))
    else:
        drop_files(context, table_files, builder, delete=delete, stage=stage)


def remove_files(context: PublishContext, table_files: TableFiles, builder: PlanBuilder) -> None:
    """Take back what speaks of a live table at a site; what speaks of a table that is gone expires.

    Of a catalog that retired nothing is left either way.
    """
    if table_files.main_document is not None and table_files.main_document.is_live:
        _drop_after_older(context, table_files, table_files.main_document, builder, delete=True)
    elif table_files.main_document is not None:
        _expire(context, table_files, builder)


def _forward_moved(context: PublishContext, table_files: TableFiles, builder: PlanBuilder) -> None:
    """Lead on to where the table's files are now: another location, or other settings for what they are called."""
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
    if main_file.doc.guid is not None:
        # Of a row that the inbox lost only its file still tells: a reader must not come back to it once ours is gone.
        builder.wake(rows_with_older_files(context, main_file.doc.guid, [table_files]))
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
    """Where a file's branch is now; a branch that is not published any more leads to the table."""
    if context.table is None or file.doc.ref not in context.policy.branch_heads(context.table):
        return here.key
    return context.finder.find_slot(here.layout, context.table.uuid, file.doc.ref).key


def _forward_renamed(
    context: PublishContext, table_files: TableFiles, doc: Document, rename_target: RenameTarget, builder: PlanBuilder
) -> None:
    layout = context.policy.layout(rename_target.name, rename_target.location)
    other_finder = replace(context.finder, name=rename_target.name, cached_keys=frozenset())
    for key in layout.keys(FileOwner(rename_target.name.namespace, rename_target.name.name, doc.guid)):
        # Two names can share a plain file name, so what is remembered of ours may be an old state of theirs.
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
        builder.recheck_at(doc.written_at + context.policy.replica_lag, "the answer may be older than what is held")
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
    """The heir takes over the files that are called by the uuid; of branches that it has no file of, ours end here."""
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
            f"{rename_target.name} has this file now, and must take it",
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
    """Whether the heir's file may be forwarded to: it names our pointer or the catalog's, or was written after ours."""
    if not target.is_live or target.guid != doc.guid:
        return False
    pointers = {canonical(doc.metadata_file_path), canonical(rename_target.table.metadata_location)}
    return canonical(target.metadata_file_path) in pointers or target.written_at >= doc.written_at


def _current_link(context: PublishContext, doc: Document) -> Link | None:
    """The file of the table that has the name by now, also where another spelling of the name has that file."""
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
    """What speaks of a table that is gone goes in its time, the leading file last."""
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
