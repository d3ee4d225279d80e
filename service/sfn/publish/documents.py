"""What our documents say: of a table that is there, and of one that is not there any more."""

from __future__ import annotations

from dataclasses import replace

from sfn.domain.identifiers import Table
from sfn.publish.hints import our_texts
from sfn.publish.inventory import has_identifier
from sfn.publish.own import TableFiles
from sfn.publish.scene import PublishContext
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import LAST_ORDINAL, MAX_HINT_WAS, Document, DocumentState
from sfn.sfnfile.locations import canonical, is_below
from sfn.sfnfile.naming import PLACEMENT_FOLDERS, FileLayout, Placement


def is_up_to_date(context: PublishContext, doc: Document | None, table: Table) -> bool:
    """Whether a leading document says what the catalog does."""
    return (
        doc is not None
        and has_identifier(doc, context.name)
        and doc.catalog_id == context.policy.catalog_id
        and doc.is_live
        and doc.guid == table.uuid
        and doc.metadata_file_path == table.metadata_location
        and doc.snapshot_id == table.snapshot_id
    )


def current_document(
    context: PublishContext, table: Table, table_files: TableFiles, *, hint: str | None, writes_hint: bool, turned: bool
) -> Document:
    """The leading document of a table.

    Args:
        table_files: its files so far.
        hint: what the version hint beside it says, where that is ours.
        writes_hint: the hint is to say what the document does.
        turned: the step to it is not known to be forward.
    """
    same = is_up_to_date(context, table_files.main_document, table)
    previous = context.last_ordinal
    ordinal = (
        table_files.main_document.ordinal
        if table_files.main_document and same
        else max(min(table.last_updated_ms, LAST_ORDINAL), previous + 1)
    )
    current_text = version_hint.text_for(table.metadata_location) or ""
    # A number is ours where a document says that it is, not where one names its file.
    is_noted = version_hint.is_numbered(current_text)
    earlier_texts = [current_text] if writes_hint and is_noted else []
    earlier_texts += [hint] if hint is not None else []
    if table_files.main_document is not None:
        earlier_texts.extend(our_texts([table_files.main_document]))
    hint_texts = tuple(text for text in dict.fromkeys(earlier_texts) if text and (is_noted or text != current_text))
    return Document(
        catalog_id=context.policy.catalog_id,
        namespace=context.name.namespace,
        name=context.name.name,
        guid=table.uuid,
        metadata_file_path=table.metadata_location,
        metadata_file_relative=relative_path(table_files.layout, table.metadata_location),
        ordinal=ordinal,
        snapshot_id=table.snapshot_id,
        asked_at=context.answer.asked_at,
        written_at=context.answer.answered_at,
        hint_was=hint_texts[:MAX_HINT_WAS],
        turned=turned or _is_recently_turned(context, table_files.main_document, same=same),
        writer=context.policy.writer,
    )


def _is_recently_turned(context: PublishContext, doc: Document | None, *, same: bool) -> bool:
    """A refresh within the replicas' lag must not forget that the step before it was a backward one."""
    recent = doc is not None and context.answer.answered_at - doc.written_at < context.policy.replica_lag
    return same and recent and doc is not None and doc.turned


def relative_path(layout: FileLayout, pointer: str) -> str | None:
    """A metadata file as seen from a site's folder, where both are below the table's location."""
    at = canonical(pointer)
    if layout.placement is Placement.ROOT or not is_below(at, layout.location):
        return None
    path, folder = at.removeprefix(layout.location), PLACEMENT_FOLDERS[layout.placement]
    metadata = "/metadata/"
    if folder.startswith(metadata) and path.startswith(metadata):
        path, folder = path.removeprefix("/metadata"), folder.removeprefix("/metadata")
    return "../" * (folder.count("/") - 1) + path.removeprefix("/")


def tombstone_document(context: PublishContext, doc: Document, state: DocumentState) -> Document:
    """A document that takes another's place at its key and says what became of the table."""
    return replace(
        doc,
        catalog_id=context.policy.catalog_id,
        state=state,
        ordinal=context.last_ordinal + 1,
        asked_at=context.answer.asked_at,
        written_at=context.answer.answered_at,
        expires_at=context.answer.answered_at + context.policy.expire_after,
        writer=context.policy.writer,
        gap=0,
        between=(),
        turned=False,
        moved_to=None,
        name_now=None,
    )
