"""The files of single commits.

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

from sfn.domain.identifiers import Table
from sfn.domain.jobs import StoredObject
from sfn.errors import LocationRefused
from sfn.publish.context import PlanBuilder, PublishContext, Stage
from sfn.publish.documents import is_up_to_date, relative_path
from sfn.publish.existing_files import TableFiles, is_ours, parse_or_none
from sfn.publish.policy import MAX_COMMIT_FILES
from sfn.publish.queries import MAX_LISTED_FILES
from sfn.sfnfile import naming
from sfn.sfnfile.document import LAST_ORDINAL, CommitEntry, Document, render
from sfn.sfnfile.locations import MetadataOrder, canonical, check_location, compare_metadata, metadata_version
from sfn.sfnfile.naming import FileOwner

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
