"""The files of a table's other branches: each says what the leading one does, of its own branch."""

from __future__ import annotations

from dataclasses import replace

from sfn.domain.identifiers import Table
from sfn.publish.changes import PlanBuilder, Stage
from sfn.publish.documents import tombstone_document
from sfn.publish.obstacles import conflict_letter
from sfn.publish.own import OurFile, TableFiles
from sfn.publish.scene import PublishContext
from sfn.sfnfile.document import Document, DocumentState, render


def write_branch_files(
    context: PublishContext,
    table: Table,
    table_files: TableFiles,
    main_document: Document,
    builder: PlanBuilder,
    *,
    rewrite: bool,
) -> None:
    """Bring the files of branches in line with the leading document.

    Args:
        table_files: the table's files so far.
        main_document: the leading document, as it is or will be.
        rewrite: it is written now: then all are, for they share its metadata file.
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
    """Whether a branch's document says nothing else; when it was asked for does not count."""
    return (
        replace(existing, asked_at=doc.asked_at, written_at=doc.written_at, writer=doc.writer, turned=doc.turned) == doc
    )


def _retire_branch(context: PublishContext, file: OurFile, builder: PlanBuilder) -> None:
    """A branch that is not there any more, or is not published: nobody may take it for one, and later its file goes."""
    if file.doc.is_live:
        builder.put(
            Stage.TOMBSTONE, file.key, render(tombstone_document(context, file.doc, DocumentState.DROPPED)), file.stored
        )
    elif file.doc.expires_at is not None and context.answer.answered_at >= file.doc.expires_at:
        builder.remove(Stage.DELETE, file.key, file.stored)
