"""Older files of a table go before its newest: without that one a reader of the directory would go back to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import Wakeup
from sfn.publish.heirs import to_rename_target
from sfn.publish.inventory import foreign_documents
from sfn.publish.own import TableFiles
from sfn.publish.policy import OnDrop
from sfn.publish.scene import PublishContext
from sfn.sfnfile.document import Document
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import MAIN_BRANCH, FileLayout


def rows_with_older_files(
    context: PublishContext, uuid: str, existing: Sequence[TableFiles], *, is_gone: bool = True
) -> list[Wakeup]:
    """Rows whose file names an older pointer of the table; none where files of dropped tables stay.

    Rows that have settled are known; one that died before it could is found by its file. So is one that was known
    before, and has published another table elsewhere since (`Story.older_at`). Who knows of its file is not woken: it
    looks of its own accord, and two that wake one another never rest. A branch's file goes with its leading one,
    however old it is.

    Args:
        uuid: a table that these live files of ours name.
        is_gone: the table is nowhere. If it is not, a file that was written before and names the same pointer is not
            older: its readers see the same rows, and its row may have the table again.
    """
    if context.policy.on_drop is OnDrop.KEEP:
        return []
    written = last_written_at(existing)
    newest = max(
        (table_files.main_document for table_files in existing if table_files.main_document is not None),
        key=lambda doc: doc.as_of,
    )
    pointer = canonical(newest.metadata_file_path)
    older = {
        Wakeup(row.table, context.policy.layout(row.table, live.location).encoded): None
        for row, live in context.observations.other_tables_with(uuid, context.name)
        if live.written_at < written and not row.is_stuck and (is_gone or canonical(live.metadata_location) != pointer)
    }
    # Also where the table was before: from there our file leads to the newest, and would lead there no more.
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
    """Whether a row is stuck that may have published another table meanwhile."""
    table = context.observations.answer_for(name).found
    others = (
        context.observations.other_tables_with(table.uuid, context.name)
        if isinstance(table, Table) and table.uuid
        else []
    )
    return any(row.table == name and row.is_stuck for row, _ in others)


def rows_that_would_resurface(context: PublishContext, table_files: TableFiles) -> list[Wakeup]:
    """Rows whose file lies beside ours that leads on, names the same table, and will not stay what it is.

    The table is elsewhere by the catalog's word, or nowhere: a reader that followed ours would come back to that file.
    None where files of dropped tables stay.
    """
    doc = table_files.main_document
    if doc is None or doc.guid is None or doc.moved_to is None or context.policy.on_drop is OnDrop.KEEP:
        return []
    stuck = {row.table for row, _ in context.observations.other_tables_with(doc.guid, context.name) if row.is_stuck}
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
    """Whether a name has the table at a site, or where no file of ours may follow it.

    The site may have another name there: then the same document is found by it.
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
    """When to look again at what makes room for `older_files`, and why: these mostly wait for an absence."""
    return (
        context.answer.answered_at + context.policy.long_recheck_delay,
        "a row with an older file of the same table goes first",
    )


def last_written_at(existing: Iterable[TableFiles]) -> datetime:
    """When the youngest of these documents was written."""
    return max(
        table_files.main_document.written_at for table_files in existing if table_files.main_document is not None
    )
