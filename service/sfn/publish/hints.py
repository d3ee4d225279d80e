"""The version hint: whether it is ours, and when it must not speak any more (specification, section 6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import StoredObject, Wakeup
from sfn.publish.aliases import key_at_location
from sfn.publish.changes import PlanBuilder, Stage
from sfn.publish.facts import TablesAtLocation
from sfn.publish.inventory import foreign_documents, has_identifier
from sfn.publish.own import TableFiles
from sfn.publish.scene import PublishContext, hint_at
from sfn.sfnfile import version_hint
from sfn.sfnfile.document import Document
from sfn.sfnfile.naming import FileLayout, FileOwner


def names_nothing(hint: StoredObject | None) -> bool:
    """Whether it names nothing."""
    return hint is None or version_hint.is_cleared(hint.body)


def is_our_hint(context: PublishContext, location: str, hint: StoredObject | None) -> bool:
    """Whether the hint at a location is provably ours to replace or delete; one that is not there is."""
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
    """What a hint beside these documents may say: what they name, and what they replaced."""
    for doc in docs:
        yield from version_hint.known_texts(doc.metadata_file_path)
        yield from doc.hint_was


def our_texts(docs: Iterable[Document]) -> Iterable[str]:
    """What a hint beside our documents says by our hand.

    That a document names `v2.metadata.json` is no proof that a `2` is ours: whoever wrote that file keeps a hint too.
    """
    for doc in docs:
        for text in version_hint.known_texts(doc.metadata_file_path):
            if not version_hint.is_numbered(text):
                yield text
        yield from doc.hint_was


def cleared_hint(context: PublishContext, hint: StoredObject, *, repeated: bool) -> bytes | None:
    """What to write over a hint that can't be deleted; None to leave it.

    One that says nothing already gets a new text the first time: it may be a placeholder that its writer still means to
    fill.
    """
    if repeated and version_hint.is_cleared(hint.body):
        return None
    return version_hint.cleared_content(f"{context.answer.answered_at:%Y%m%dT%H%M%S%f}-{context.job.fencing_token}")


def clear_hint(
    context: PublishContext, table_files: TableFiles, builder: PlanBuilder, *, repeated: bool = False
) -> None:
    """Delete the hint at a location where this row's table is no more, if it is ours.

    Not where it speaks for a table that lives there under another name, be it the same table, or for another catalog's:
    two that have registered one metadata file have the same hint.

    Args:
        table_files: our files there.
        repeated: this was done before, so a hint that says nothing already may stay as it is.
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


def _require_own_folder(context: PublishContext, table_files: TableFiles, builder: PlanBuilder) -> None:
    """Have it seen that our files' place is none of another name of the table's: that one's hint must stay.

    What is only remembered of a file does not tell what was written by its other name since.
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
    """Whether a hint is what another row's live file there says, or will replace."""
    for key in layout.keys(FileOwner(name.namespace, name.name, guid)):
        context.observations.require_read(key)
    doc = replace(context.finder, name=name, cached_keys=frozenset()).find_slot(layout, guid).main_document
    # By the uuid its file may be the one that is ours yet.
    if doc is None or not doc.is_live or not has_identifier(doc, name):
        return False
    return _must_keep_hint(doc, guid, hint)


def _is_named_by_others(context: PublishContext, layout: FileLayout, guid: str | None, hint: StoredObject) -> bool:
    """Whether any live file beside ours says what the hint says, or will replace it."""
    return any(doc.is_live and _must_keep_hint(doc, guid, hint) for doc in foreign_documents(context.finder, layout))


def _must_keep_hint(doc: Document, guid: str | None, hint: StoredObject) -> bool:
    """Whether a hint beside a live document must stay when the table of a uuid leaves.

    The same table under another name replaces what it said before. Another table's document lists our hint only because
    it found it there: if that kept the hint, and ours kept it too, two that leave at once would leave it behind.
    """
    text = hint.body.decode(errors="replace")
    return text in set(version_hint.known_texts(doc.metadata_file_path)) or (doc.guid == guid and text in doc.hint_was)
