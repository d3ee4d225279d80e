"""The contents of SFN documents and version hints, and the rules by which a version hint is ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import StoredObject, Wakeup
from sfn.publish.context import PlanBuilder, PublishContext, Stage, hint_at, key_at_location
from sfn.publish.existing_files import TableFiles, foreign_documents, has_identifier
from sfn.publish.queries import TablesAtLocation
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import LAST_ORDINAL, MAX_HINT_WAS, Document, DocumentState
from sfn.sfnfile.locations import canonical, is_below
from sfn.sfnfile.naming import PLACEMENT_FOLDERS, FileLayout, FileOwner, Placement


def is_up_to_date(context: PublishContext, doc: Document | None, table: Table) -> bool:
    """Return whether a main document matches the catalog's answer."""
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
    """Return the main document of a table.

    Args:
        table_files: the existing files of the table.
        hint: the text of the version hint beside it, if the hint is ours.
        writes_hint: the hint is written with this document.
        turned: the step to the answer is not known to be forward.
    """
    same = is_up_to_date(context, table_files.main_document, table)
    previous = context.last_ordinal
    ordinal = (
        table_files.main_document.ordinal
        if table_files.main_document and same
        else max(min(table.last_updated_ms, LAST_ORDINAL), previous + 1)
    )
    current_text = version_hint.text_for(table.metadata_location) or ""
    # A numeric hint is ours only if a document lists it in `hint_was`; a matching file name is no proof.
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
    """Return whether a refresh within the replica lag must keep `turned`, because the step before it was backward."""
    recent = doc is not None and context.answer.answered_at - doc.written_at < context.policy.replica_lag
    return same and recent and doc is not None and doc.turned


def relative_path(layout: FileLayout, pointer: str) -> str | None:
    """Return a metadata file's path relative to the layout's folder, if both are below the table's location."""
    at = canonical(pointer)
    if layout.placement is Placement.ROOT or not is_below(at, layout.location):
        return None
    path, folder = at.removeprefix(layout.location), PLACEMENT_FOLDERS[layout.placement]
    metadata = "/metadata/"
    if folder.startswith(metadata) and path.startswith(metadata):
        path, folder = path.removeprefix("/metadata"), folder.removeprefix("/metadata")
    return "../" * (folder.count("/") - 1) + path.removeprefix("/")


def tombstone_document(context: PublishContext, doc: Document, state: DocumentState) -> Document:
    """Return a document that replaces another one at its key and says that the table was dropped, moved or renamed."""
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


def names_nothing(hint: StoredObject | None) -> bool:
    """Return whether a version hint is missing or cleared."""
    return hint is None or version_hint.is_cleared(hint.body)


def is_our_hint(context: PublishContext, location: str, hint: StoredObject | None) -> bool:
    """Return whether the hint at a location is provably ours to replace or delete; a missing hint is."""
    if hint is None or version_hint.is_cleared(hint.body):
        return True
    text = hint.body.decode(errors="replace")
    if text in context.job.table_state.version_hints.get(location, ()):
        return True
    siblings = context.foreign_documents if context.layout is not None and location == context.layout.location else ()
    if text in set(
        possible_texts(doc for doc in siblings if doc.is_live and doc.catalog_id != context.policy.catalog_id)
    ):
        return False
    our_documents = [file.doc for one in context.files_at(location) for file in one.files]
    documents = [doc for doc in siblings if doc.catalog_id == context.policy.catalog_id]
    if text in set(our_texts([*documents, *our_documents])):
        return True
    if (
        context.table is None
        or version_hint.is_numbered(text)
        or all(doc.guid != context.table.uuid for doc in our_documents)
    ):
        return False
    return any(text in version_hint.known_texts(entry) for entry in context.table.metadata_log)


def possible_texts(docs: Iterable[Document]) -> Iterable[str]:
    """Yield the possible texts of a hint beside these documents, for the files that they name or replaced."""
    for doc in docs:
        yield from version_hint.known_texts(doc.metadata_file_path)
        yield from doc.hint_was


def our_texts(docs: Iterable[Document]) -> Iterable[str]:
    """Return the hint texts beside our documents that the listener wrote.

    A document that names `v2.metadata.json` does not prove that a hint `2` is ours. The writer of that file also writes
    hints.
    """
    for doc in docs:
        for text in version_hint.known_texts(doc.metadata_file_path):
            if not version_hint.is_numbered(text):
                yield text
        yield from doc.hint_was


def cleared_hint(context: PublishContext, hint: StoredObject, *, repeated: bool) -> bytes | None:
    """Return the content to write over a hint that cannot be deleted; None to leave it.

    A hint that is already cleared gets a new text the first time: it may be a placeholder that its writer still fills.
    """
    if repeated and version_hint.is_cleared(hint.body):
        return None
    return version_hint.cleared_content(f"{context.answer.answered_at:%Y%m%dT%H%M%S%f}-{context.job.fencing_token}")


def clear_hint(
    context: PublishContext, table_files: TableFiles, builder: PlanBuilder, *, repeated: bool = False
) -> None:
    """Delete our hint at a location that this job's table has left.

    The hint stays if it belongs to a table that lives there under another name, or to another catalog's table. Two
    catalogs that registered the same metadata file have the same hint.

    Args:
        table_files: our files there.
        repeated: the hint was cleared before, so a cleared hint may stay as it is.
    """
    location = table_files.layout.location
    is_still_there = context.layout is not None and context.conflict is None and context.layout.location == location
    hint = (
        hint_at(context.observations, location) if table_files.layout.has_version_hint and not is_still_there else None
    )
    if hint is None or table_files.main_document is None or not is_our_hint(context, location, hint):
        return
    others = context.observations.table_names(TablesAtLocation(location))
    if version_hint.is_cleared(hint.body):
        builder.wake(Wakeup(name) for name in others)
    layouts = tuple(
        dict.fromkeys((table_files.layout, FileLayout(location, context.policy.naming, context.policy.placement)))
    )
    guid = table_files.main_document.guid
    is_named = any(_is_hint_of(context, name, layout, guid, hint) for name in others for layout in layouts)
    if not is_named and not any(_is_named_by_others(context, layout, guid, hint) for layout in layouts):
        _require_own_folder(context, table_files, builder)
        builder.remove(
            Stage.CLEAR_HINT,
            version_hint.key_of(location),
            hint,
            fallback_body=cleared_hint(context, hint, repeated=repeated),
        )
        if not version_hint.is_cleared(hint.body):
            # A table that came to this location meanwhile may have found the hint there, and counts on it.
            builder.wake_locations.add(location)


def _require_own_folder(context: PublishContext, table_files: TableFiles, builder: PlanBuilder) -> None:
    """Require that our file here is not another name of the file at the table's place, because that hint must stay.

    A cached file may have been rewritten by its other name since.
    """
    if context.layout is None or not context.layout.has_version_hint or table_files.main_file is None:
        return
    for key in (
        table_files.main_file.key,
        key_at_location(table_files, table_files.main_file.key, context.layout.location),
    ):
        context.observations.require_read(key)
    builder.unchanged_keys = (*builder.unchanged_keys, table_files.main_file.key)


def _is_hint_of(
    context: PublishContext, name: TableIdentifier, layout: FileLayout, guid: str | None, hint: StoredObject
) -> bool:
    """Return whether another job's live file there has this hint, or will replace it."""
    for key in layout.keys(FileOwner(name.namespace, name.name, guid)):
        context.observations.require_read(key)
    doc = replace(context.finder, name=name, cached_keys=frozenset()).find_slot(layout, guid).main_document
    # With naming by uuid, the file may still be ours.
    if doc is None or not doc.is_live or not has_identifier(doc, name):
        return False
    return _must_keep_hint(doc, guid, hint)


def _is_named_by_others(context: PublishContext, layout: FileLayout, guid: str | None, hint: StoredObject) -> bool:
    """Return whether any live file beside ours has this hint, or will replace it."""
    return any(doc.is_live and _must_keep_hint(doc, guid, hint) for doc in foreign_documents(context.finder, layout))


def _must_keep_hint(doc: Document, guid: str | None, hint: StoredObject) -> bool:
    """Return whether a hint beside a live document must stay when the table of a uuid leaves.

    The same table under another name replaces the earlier text. Another table's document lists our hint only because it
    found the hint there. If both documents kept the hint for each other, two tables that leave at once would leave it
    behind.
    """
    text = hint.body.decode(errors="replace")
    return text in set(version_hint.known_texts(doc.metadata_file_path)) or (doc.guid == guid and text in doc.hint_was)
