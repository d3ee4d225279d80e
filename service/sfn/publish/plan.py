"""The files at the table's own place: SFN documents, branch files and the version hint."""

from __future__ import annotations

from dataclasses import replace

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import PublishedPointer, StoredObject
from sfn.publish.commit_files import write_commit_files
from sfn.publish.context import PlanBuilder, PublishContext, Put, Stage, hint_at
from sfn.publish.documents import (
    cleared_hint,
    current_document,
    is_our_hint,
    is_up_to_date,
    names_nothing,
    tombstone_document,
)
from sfn.publish.existing_files import OurFile, TableFiles, conflict_letter, has_identifier, pointer_files
from sfn.publish.queries import MAX_FOREIGN_FILES, FindFiles, PublishQuery, RecordLocation, TablesWithUuid
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document, DocumentState, render
from sfn.sfnfile.naming import FileLayout
from sfn.sfnfile.ordering import MetadataOrder, compare_metadata


def write_branch_files(
    context: PublishContext,
    table: Table,
    table_files: TableFiles,
    main_document: Document,
    builder: PlanBuilder,
    *,
    rewrite: bool,
) -> None:
    """Update the files of branches to match the main document.

    Args:
        table_files: the existing files of the table.
        main_document: the main document, as it is or will be.
        rewrite: the main document is written now. Then all branch files are, because they name the same metadata file.
    """
    refs = context.policy.branch_heads(table)
    placed = {table_files.key}
    for ref, snapshot in refs.items():
        slot = context.finder.find_slot(table_files.layout, table.uuid, ref)
        if slot.conflict is not None:
            builder.given_up = conflict_letter(slot, context.name)
            continue
        placed.add(slot.key)
        doc = replace(main_document, ref=ref, snapshot_id=snapshot, hint_was=(), gap=0, between=())
        if rewrite or slot.main_document is None or not _is_up_to_date(slot.main_document, doc):
            builder.put(Stage.BRANCH, slot.key, render(doc), slot.stored)
    for file in table_files.files:
        if file.key not in placed:
            _retire_branch(context, file, builder)


def _is_up_to_date(existing: Document, doc: Document) -> bool:
    """Return whether a branch document has no other content; times and writer do not count."""
    return (
        replace(existing, asked_at=doc.asked_at, written_at=doc.written_at, writer=doc.writer, turned=doc.turned) == doc
    )


def _retire_branch(context: PublishContext, file: OurFile, builder: PlanBuilder) -> None:
    """Write a tombstone for a branch that is gone or not published any more, and delete an expired one."""
    if file.doc.is_live:
        builder.put(
            Stage.TOMBSTONE, file.key, render(tombstone_document(context, file.doc, DocumentState.DROPPED)), file.stored
        )
    elif file.doc.expires_at is not None and context.answer.answered_at >= file.doc.expires_at:
        builder.remove(Stage.DELETE, file.key, file.stored)


MAX_FOREIGN_HINT_BYTES = 64
"""Bytes of a foreign version hint that are stored, to explain why the listener does not change that hint."""


def write_pointer(context: PublishContext, table: Table, builder: PlanBuilder, *, turned: bool, refresh: bool) -> None:
    """Update document and version hint at the table's place to match the catalog's answer.

    Args:
        turned: the step to the answer is not known to be forward.
        refresh: rewrite the files even if they are up to date.
    """
    table_files, layout = context.current_files, context.layout
    if table_files is None or layout is None:
        return
    hint = hint_at(context.observations, layout.location) if layout.has_version_hint else None
    context.observations.ask_together(_queries_of_place(context, table, layout))
    is_alone = not _has_second_table(context, table, layout)
    wanted = version_hint.content(table) if _wants_hint(context, layout) and is_alone else None
    hint_is_ours = is_our_hint(context, layout.location, hint)
    is_due = hint is None or hint.body != wanted or refresh
    if wanted is not None and hint_is_ours and is_due and _has_rival(context, table):
        wanted = None
    writes_hint = wanted is not None and hint_is_ours and not _is_behind_other_name(context, table)
    # The writer that cleared the hint may still write a tombstone over the current document. A rewrite prevents that.
    rewrites_hint = writes_hint and names_nothing(hint)
    rewrite = (
        not is_up_to_date(context, table_files.main_document, table)
        or table_files.stored is None
        or rewrites_hint
        or refresh
    )
    doc = table_files.main_document
    if rewrite or doc is None:
        hint_text = hint.body.decode(errors="replace") if hint and hint_is_ours else None
        doc = current_document(context, table, table_files, hint=hint_text, writes_hint=writes_hint, turned=turned)
    if layout.naming.has_commit_files:
        doc = write_commit_files(context, table, table_files, doc, builder, rewrite=rewrite)
    if rewrite:
        builder.put(Stage.POINTER, table_files.key, render(doc), table_files.stored)
    write_branch_files(context, table, table_files, doc, builder, rewrite=rewrite)
    if rewrite and not is_alone and layout.has_version_hint and names_nothing(hint):
        # The earlier table of this directory may have written the hint since, before it saw this file.
        builder.unchanged_keys = (*builder.unchanged_keys, version_hint.key_of(layout.location))
    if wanted is not None and not hint_is_ours and hint is not None and hint.body != wanted:
        builder.foreign_hint = hint.body[:MAX_FOREIGN_HINT_BYTES].decode(errors="replace")
    key = version_hint.key_of(layout.location)
    if wanted is None and hint is not None and hint_is_ours:
        builder.remove(Stage.HINT, key, hint, fallback_body=cleared_hint(context, hint, repeated=True))
    elif wanted is not None and writes_hint and (hint is None or hint.body != wanted or refresh):
        builder.changes.append(Put(Stage.HINT, key, wanted, hint, check=(table_files.key, layout)))


def likely_queries(context: PublishContext, table: Table) -> list[PublishQuery]:
    """Return what `write_pointer` and the steps before it will ask for.

    The location is asked for only if it is recorded already, because it is recorded for good.
    """
    layout = context.layout
    if layout is None or context.conflict is not None:
        return []
    queries: list[PublishQuery] = [TablesWithUuid(table.uuid)] if table.uuid is not None else []
    if layout.encoded in context.job.locations:
        queries += _queries_of_place(context, table, layout)
    return queries


def _queries_of_place(context: PublishContext, table: Table, layout: FileLayout) -> list[PublishQuery]:
    queries: list[PublishQuery] = [RecordLocation(layout.encoded, table.uuid)]
    rival = version_hint.shadowing_file(table)
    if rival is not None and _wants_hint(context, layout):
        hint = hint_at(context.observations, layout.location)
        if hint is None or hint.body != version_hint.content(table):
            queries.append(FindFiles((rival,)))
    return queries


def needs_listing(context: PublishContext, table: Table, *, refresh: bool) -> bool:
    """Return whether the folder must be listed to find other tables in it.

    That is so on a refresh, if no live file of this table is there, if no publish of this job has settled it, and if
    the version hint is missing or foreign.
    """
    table_files, layout = context.current_files, context.layout
    if table_files is None or layout is None or table_files.conflict is not None:
        return False
    live = context.job.table_state.live
    settled = live is not None and (live.uuid, live.location) == (table.uuid, layout.location)
    written = (
        table_files.main_document is not None
        and table_files.main_document.is_live
        and table_files.main_document.guid == table.uuid
    )
    if refresh or context.observations.must_list_folders or not (settled and written):
        return True
    if layout.naming.has_commit_files and not is_up_to_date(context, table_files.main_document, table):
        # The commit files are listed below anyway.
        return True
    hint = hint_at(context.observations, layout.location) if layout.has_version_hint else None
    return _may_create_hint(context, table, layout, hint) or not is_our_hint(context, layout.location, hint)


def _wants_hint(context: PublishContext, layout: FileLayout) -> bool:
    return context.policy.version_hint and layout.has_version_hint


def _has_rival(context: PublishContext, table: Table) -> bool:
    """Return whether a reader would open another file by the hint, because a file of that name exists."""
    rival = version_hint.shadowing_file(table)
    return rival is not None and rival in context.observations.existing([rival])


def _may_create_hint(context: PublishContext, table: Table, layout: FileLayout, hint: StoredObject | None) -> bool:
    wanted = _wants_hint(context, layout) and version_hint.content(table) is not None
    return names_nothing(hint) and wanted and not _has_second_table(context, table, layout)


def _has_second_table(context: PublishContext, table: Table, layout: FileLayout) -> bool:
    """Return whether another live table is in the directory, by the inbox or by files of other catalogs or names."""
    pointers_here = pointer_files(context.observations.folders.get(layout.folder, ()))
    if (
        context.observations.table_names(RecordLocation(layout.encoded, table.uuid))
        or len(pointers_here) > MAX_FOREIGN_FILES
    ):
        return True
    return any(
        doc.is_live and (doc.guid != table.uuid or doc.catalog_id != context.policy.catalog_id)
        for doc in context.foreign_documents
    )


def _is_behind_other_name(context: PublishContext, table: Table) -> bool:
    """Return whether the table's file under another name here is ahead. Then that file determines the hint."""
    if table.uuid is None:
        return False
    return any(
        compare_metadata(live.metadata_location, (), table.metadata_location, table.metadata_log) is MetadataOrder.OLDER
        and _has_file_here(context, entry.table, live, table.uuid)
        for entry, live in context.observations.other_tables_with(table.uuid, context.name)
    )


def _has_file_here(context: PublishContext, name: TableIdentifier, live: PublishedPointer, uuid: str) -> bool:
    """Return whether the file of another name lies in this table's directory; that name's table may be elsewhere."""
    if context.layout is None or live.location == context.layout.location:
        return context.layout is not None
    other_finder = replace(context.finder, name=name, cached_keys=frozenset())
    doc = other_finder.find_slot(context.layout, uuid).main_document
    return doc is not None and doc.is_live and has_identifier(doc, name)
