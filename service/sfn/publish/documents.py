"""The contents of SFN documents and version hints, the rules by which a hint is ours, and the files of single commits.

With a file for each commit (specification, section 3, "Ordinal naming"), the head names the newest commit. The head is
swapped first: this assigns the Ordinals and fences out late writers. The head also lists the commits that it made room
for, so that the next writer can create files that a crashed writer did not.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import StoredObject, Wakeup
from sfn.errors import LocationRefused
from sfn.publish.context import PlanBuilder, PublishContext, Stage, hint_at, key_at_location
from sfn.publish.existing_files import TableFiles, foreign_documents, has_identifier, is_ours, parse_or_none
from sfn.publish.policy import MAX_COMMIT_FILES
from sfn.publish.queries import MAX_LISTED_FILES, TablesAtLocation
from sfn.sfnfile import naming, version_hint
from sfn.sfnfile.document import LAST_ORDINAL, MAX_HINT_WAS, CommitEntry, Document, DocumentState, render
from sfn.sfnfile.locations import MetadataOrder, canonical, check_location, compare_metadata, is_below, metadata_version
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


# ── Files of single commits

MAX_BETWEEN_BYTES = 48_000
"""Bytes of a head that may list commits, because the size of a document is limited."""

_ENTRY = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _CommitFiles:
    """The listed commit files of a table.

    Attributes:
        table_files: the table's files with the head.
        keys: the keys by Ordinal; None if the folder has more files than are listed.
    """

    context: PublishContext
    table_files: TableFiles
    keys: Mapping[int, str] | None

    def key(self, ordinal: int) -> str:
        """Return the key of a commit's file, in the same variant (plain or strict) as its head."""
        file_owner, layout = _file_owner(self.table_files, self.context), self.table_files.layout
        names = layout.naming.commit_file_names(file_owner, ordinal)
        return layout.folder + names[_name_variant(self.table_files, self.context)]

    def has(self, ordinal: int) -> bool:
        """Return whether a commit's file exists; True if that is not known."""
        return self.keys is None or ordinal in self.keys

    @property
    def last(self) -> int:
        """The greatest Ordinal, 0 without any."""
        return max((ordinal for ordinal in self.keys or () if ordinal <= LAST_ORDINAL), default=0)


def write_commit_files(
    context: PublishContext,
    table: Table,
    table_files: TableFiles,
    doc: Document,
    builder: PlanBuilder,
    *,
    rewrite: bool,
) -> Document:
    """Update the commit files to match the head.

    Args:
        table_files: the existing files of the table.
        doc: the head, as it is or would be written.
        rewrite: the head is written now.

    Returns:
        The head with the Ordinal and the commits that its swap assigns.
    """
    if not rewrite and context.observations.is_from_cache:
        return doc
    commit_files = _list_commit_files(context, table_files)
    _create_missing(commit_files, builder)
    created: list[int] = []
    if rewrite and not is_up_to_date(context, table_files.main_document, table):
        doc = _with_ordinals(commit_files, table, doc)
        for commit in (*doc.between, CommitEntry(doc.ordinal, doc.metadata_file_path, doc.gap)):
            builder.put(
                Stage.COMMIT, commit_files.key(commit.ordinal), render(_commit_document(table_files, doc, commit)), None
            )
            created.append(commit.ordinal)
    elif table_files.main_document is not None:
        doc = replace(doc, gap=table_files.main_document.gap, between=table_files.main_document.between)
    _delete_old(commit_files, created, builder)
    return doc


def complete_commit_files(context: PublishContext, table_files: TableFiles, builder: PlanBuilder) -> None:
    """Create the commit files that a head lists but that are missing, before the head is replaced."""
    if table_files.layout.naming.has_commit_files and not context.observations.is_from_cache:
        _create_missing(_list_commit_files(context, table_files), builder)


def remove_commit_files(
    context: PublishContext, table_files: TableFiles, builder: PlanBuilder, *, except_ordinals: Collection[int] = ()
) -> None:
    """Delete all commit files, except for some Ordinals."""
    for key, stored in _own_commit_files(context, table_files, except_ordinals=except_ordinals):
        builder.remove(Stage.DELETE, key, stored)


def refresh_commit_files(context: PublishContext, table_files: TableFiles, builder: PlanBuilder) -> None:
    """Rewrite all commit files unchanged; beside a tombstone, they also stay until it expires."""
    changed = {change.key for change in builder.changes}
    for key, stored in _own_commit_files(context, table_files):
        if key not in changed:
            builder.put(Stage.TOMBSTONE, key, stored.body, stored)


def _own_commit_files(
    context: PublishContext, table_files: TableFiles, except_ordinals: Collection[int] = ()
) -> Iterator[tuple[str, StoredObject]]:
    """Yield key and content of our existing commit files, oldest first, except for some Ordinals."""
    known = (_list_commit_files(context, table_files).keys or {}) if table_files.layout.naming.has_commit_files else {}
    keys = [key for ordinal, key in sorted(known.items()) if ordinal not in except_ordinals]
    context.observations.require_files(keys)
    for key in keys:
        stored = context.observations.file(key)
        doc = parse_or_none(stored)
        if stored is not None and doc is not None and is_ours(doc, context.name, context.policy):
            yield key, stored


def _list_commit_files(context: PublishContext, table_files: TableFiles) -> _CommitFiles:
    folder = context.observations.folder(table_files.layout.folder)
    if len(folder) > MAX_LISTED_FILES:
        return _CommitFiles(context, table_files, None)
    names = [key.removeprefix(table_files.layout.folder) for key in folder]
    owner = naming.owner_prefix(
        table_files.layout.naming.commit_file_names(_file_owner(table_files, context), 0)[
            _name_variant(table_files, context)
        ]
    )
    keys = {
        ordinal: table_files.layout.folder + name
        for name in names
        if naming.owner_prefix(name) == owner and (ordinal := naming.commit_ordinal(name)) is not None
    }
    return _CommitFiles(context, table_files, keys)


def _file_owner(table_files: TableFiles, context: PublishContext) -> FileOwner:
    return FileOwner(
        context.name.namespace,
        context.name.name,
        table_files.main_document.guid if table_files.main_document is not None else None,
    )


def _name_variant(table_files: TableFiles, context: PublishContext) -> int:
    return table_files.layout.keys(_file_owner(table_files, context)).index(table_files.key)


def _create_missing(commit_files: _CommitFiles, builder: PlanBuilder) -> None:
    """Create the files that the last swap of the head made room for and that its writer did not create."""
    context, table_files = commit_files.context, commit_files.table_files
    doc = table_files.main_document
    if doc is None or not doc.is_live:
        return
    promised = (*doc.between, CommitEntry(doc.ordinal, doc.metadata_file_path, doc.gap))[-context.policy.keep_commits :]
    for commit in promised:
        if not commit_files.has(commit.ordinal):
            builder.put(
                Stage.REPAIR, commit_files.key(commit.ordinal), render(_commit_document(table_files, doc, commit)), None
            )


def _commit_document(table_files: TableFiles, head: Document, commit: CommitEntry) -> Document:
    """Return the document of one commit, derived from the head that assigned its Ordinal."""
    is_newest = commit.ordinal == head.ordinal
    return replace(
        head,
        ordinal=commit.ordinal,
        metadata_file_path=commit.metadata_file_path,
        metadata_file_relative=relative_path(table_files.layout, commit.metadata_file_path),
        gap=commit.gap,
        snapshot_id=head.snapshot_id if is_newest else None,
        hint_was=(),
        between=(),
        turned=head.turned and is_newest,
    )


def _with_ordinals(commit_files: _CommitFiles, table: Table, head: Document) -> Document:
    """Return the head with the commits since the published one, and with the number of commits that are missing."""
    context = commit_files.context
    entries, gap = _commits_since_known(commit_files, table)
    listed = _fitting(entries, context.policy.keep_commits - 1)
    gap += len(entries) - len(listed)
    existing = _existing_metadata(context, [entry for entry, _ in listed])
    last, between = max(context.last_ordinal, commit_files.last), []
    for entry, at in listed:
        if canonical(entry) in existing:
            last = max(min(at, LAST_ORDINAL), last + 1)
            between.append(CommitEntry(last, entry, gap))
            gap = 0
        else:
            gap += 1
    return replace(head, ordinal=max(head.ordinal, last + 1), gap=gap, between=tuple(between))


def _commits_since_known(commit_files: _CommitFiles, table: Table) -> tuple[list[tuple[str, int]], int]:
    """Return the log entries after the newest known pointer, and the number of commits missing before them.

    Each entry is a metadata location with its time in Unix milliseconds.
    """
    times = chain(table.log_times, repeat(0))
    entries = list(zip(table.metadata_log, times, strict=False))
    known = _last_known_pointer(commit_files, table)
    if known is None:
        first = metadata_version(entries[0][0] if entries else table.metadata_location)
        return entries, first or 0
    since = _index_after(canonical(known), table.metadata_log)
    if since is not None:
        return entries[since:], 0
    before = metadata_version(known)
    if (
        before is None
        or compare_metadata(known, (), table.metadata_location, table.metadata_log) is not MetadataOrder.NEWER
    ):
        return [], 0
    newer = [(entry, at) for entry, at in entries if (metadata_version(entry) or 0) > before]
    first = metadata_version(newer[0][0] if newer else table.metadata_location)
    return newer, max(0, (first or 0) - before - 1)


def _index_after(pointer: str, log: Sequence[str]) -> int | None:
    """Return the index after a canonical pointer in a log, searched from the end because it is usually near."""
    found = (index for index in range(len(log), 0, -1) if canonical(log[index - 1]) == pointer)
    return next(found, None)


def _last_known_pointer(commit_files: _CommitFiles, table: Table) -> str | None:
    """Return the newest pointer of the table in a file of ours: at its place, elsewhere, or under another name."""
    context = commit_files.context
    own_documents = [doc for doc in context.documents if doc.guid == table.uuid]
    if own_documents:
        # A tombstone at an earlier place has a greater Ordinal and names the last current file there.
        return max(own_documents, key=lambda doc: (doc.is_live, doc.ordinal)).metadata_file_path
    others = context.observations.other_tables_with(table.uuid, context.name) if table.uuid is not None else []
    return max(others, key=lambda other: other[1].written_at)[1].metadata_location if others else None


def _fitting(entries: list[tuple[str, int]], limit: int) -> list[tuple[str, int]]:
    """Return the newest entries, as many as fit into a head."""
    fitting: list[tuple[str, int]] = []
    length = 0
    for entry in reversed(entries[max(0, len(entries) - limit) :]):
        length += len(json.dumps(entry[0])) + _ENTRY
        if length > MAX_BETWEEN_BYTES:
            break
        fitting.append(entry)
    return fitting[::-1]


def _existing_metadata(context: PublishContext, entries: Iterable[str]) -> set[str]:
    """Return the metadata files of the log that still exist at allowed locations, canonical."""
    places: list[str] = []
    for entry in entries:
        with suppress(LocationRefused):
            places.append(check_location(entry, context.policy.allowed_locations))
    return context.observations.existing(places)


def _delete_old(commit_files: _CommitFiles, created: list[int], builder: PlanBuilder) -> None:
    """Delete commit files that are neither among the newest nor young."""
    context = commit_files.context
    policy, now = context.policy, context.answer.answered_at
    all_of_them = sorted({*(commit_files.keys or ()), *created}, reverse=True)
    remaining = {
        ordinal
        for rank, ordinal in enumerate(all_of_them[:MAX_COMMIT_FILES])
        if rank < policy.keep_commits or now - (_EPOCH + timedelta(milliseconds=ordinal)) < policy.keep_commits_for
    }
    remove_commit_files(context, commit_files.table_files, builder, except_ordinals=remaining)
