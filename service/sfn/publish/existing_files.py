"""The search for our files at a layout: a name says where to search, the document inside says who owns the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from sfn.catalogs.spelling import may_be_same_name
from sfn.domain.identifiers import Table, TableIdentifier, normal_uuid
from sfn.domain.jobs import DeadLettered, DeadLetterReason, LeasedJob, StoredObject
from sfn.errors import MalformedDocument
from sfn.publish.policy import Policy
from sfn.publish.queries import MAX_FOREIGN_FILES, Observations
from sfn.sfnfile import document, naming
from sfn.sfnfile.document import Document
from sfn.sfnfile.naming import MAIN_BRANCH, FileLayout, FileOwner, owner_prefix


@dataclass(frozen=True, slots=True)
class OurFile:
    """One file of ours.

    Attributes:
        key: the file's key.
        stored: the observed content.
        doc: the document in it.
    """

    key: str
    stored: StoredObject
    doc: Document


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A job's files at one layout: the main file and one for each published branch.

    With naming by uuid, each uuid that the job's tables had there has its own group of files.

    Attributes:
        layout: the layout.
        key: the key of the main file, or the key at which it would be created.
        files: the existing files, main file first.
        conflict: the reason why nothing of ours may be written at `key`.
        conflicting_document: the foreign document at `key`, if it is an SFN document.
    """

    layout: FileLayout
    key: str
    files: tuple[OurFile, ...] = ()
    conflict: DeadLetterReason | None = None
    conflicting_document: Document | None = None

    @property
    def main_file(self) -> OurFile | None:
        """The main file; any other one if it is gone."""
        return self.files[0] if self.files else None

    @property
    def main_document(self) -> Document | None:
        return self.files[0].doc if self.files else None

    @property
    def stored(self) -> StoredObject | None:
        """The content at `key`."""
        return self.files[0].stored if self.files and self.files[0].key == self.key else None


def is_ours(doc: Document, name: TableIdentifier, policy: Policy) -> bool:
    """Return whether a document belongs to this job, by its catalog id or by adoption."""
    return has_identifier(doc, name) and (
        doc.catalog_id == policy.catalog_id or (name, doc.catalog_id) == policy.adopted
    )


def has_identifier(doc: Document, name: TableIdentifier) -> bool:
    """Return whether a document has the identifier, in any catalog."""
    return (doc.namespace, doc.name) == (name.namespace, name.name)


def parse_or_none(stored: StoredObject | None) -> Document | None:
    """Return the document of a file; None if there is no file or no valid document."""
    if stored is None:
        return None
    try:
        return document.parse(stored.body)
    except MalformedDocument:
        return None


@dataclass(frozen=True, slots=True)
class FileFinder:
    """The search for one job's files.

    Attributes:
        observations: the answers so far.
        policy: the settings of the catalog.
        name: the name of the job.
        cached_keys: the keys that the last publish read.
    """

    observations: Observations
    policy: Policy
    name: TableIdentifier
    cached_keys: frozenset[str] = frozenset()

    @classmethod
    def for_job(cls, job: LeasedJob, observations: Observations, policy: Policy, name: TableIdentifier) -> FileFinder:
        """Return the finder of a leased job."""
        return cls(observations, policy, name, frozenset(job.cache.objects if observations.is_from_cache else ()))

    def files_at(self, layout: FileLayout, table: Table | None, *, is_current: bool) -> list[TableFiles]:
        """Return our files at a layout.

        Args:
            table: the table that the catalog has under the name.
            is_current: the table's own files belong there. Then they come first, even if none exists yet.
        """
        guid = table.uuid if table is not None else None
        refs = self.policy.branch_heads(table) if table is not None and is_current else {}
        found: list[TableFiles] = []
        if is_current or not layout.naming.is_by_uuid:
            found.append(self._with_branches(layout, guid, refs))
        known_keys = {file.key for table_files in found for file in table_files.files}
        others = [file for file in self._others(layout, known_keys) if self._belongs(file, layout)]
        if not layout.naming.is_by_uuid:
            (table_files,) = found
            return [_with_files(table_files, others)]
        groups: dict[str | None, list[OurFile]] = {}
        for file in others:
            groups.setdefault(file.doc.guid, []).append(file)
        if is_current:
            found = [_with_files(found[0], groups.pop(guid, []))]
        return found + [
            _with_files(TableFiles(layout, self._main_key(layout, files[0].doc)), files) for files in groups.values()
        ]

    def find_slot(self, layout: FileLayout, guid: str | None, ref: str | None = None) -> TableFiles:
        """Return our main file, or that of a branch: the existing one, else the first key that is free."""
        keys = layout.keys(FileOwner(self.name.namespace, self.name.name, guid), ref)
        if not keys:
            return TableFiles(layout, layout.folder, conflict=DeadLetterReason.PERMANENT)
        for key in keys:
            file = self._file(key)
            if file is not None and file.doc.ref == (ref or MAIN_BRANCH) and self._may_take(file.doc, layout, guid):
                return TableFiles(layout, key, (file,))
        for key in keys:
            stored = self.observations.file(key)
            if stored is None:
                return TableFiles(layout, key)
            doc = parse_or_none(stored)
            if doc is None:
                return TableFiles(layout, key, conflict=DeadLetterReason.FOREIGN_FILE)
            if has_identifier(doc, self.name) or (
                layout.naming.is_by_uuid and doc.catalog_id != self.policy.catalog_id
            ):
                return TableFiles(layout, key, conflict=DeadLetterReason.FOREIGN_CATALOG, conflicting_document=doc)
        return TableFiles(
            layout,
            keys[-1],
            conflict=DeadLetterReason.FOREIGN_FILE,
            conflicting_document=parse_or_none(self.observations.file(keys[-1])),
        )

    def _with_branches(self, layout: FileLayout, guid: str | None, refs: Iterable[str]) -> TableFiles:
        table_files = self.find_slot(layout, guid)
        files = [slot.files for ref in refs if (slot := self.find_slot(layout, guid, ref)).files]
        return _with_files(table_files, [file for one in files for file in one])

    def _others(self, layout: FileLayout, known_keys: set[str]) -> Iterator[OurFile]:
        """Yield our files in a layout's folder that are not known yet.

        The folder is listed if the cache is empty, because earlier settings may have had files for other branches.
        """
        known = {key for key in self.cached_keys if key.startswith(layout.folder)}
        keys: Iterable[str] = sorted(known)
        if layout.naming.has_branch_files and (not known or layout.folder in self.observations.folders):
            keys = self.observations.folder(layout.folder)
        elif layout.folder in self.observations.folders:
            keys = sorted({*known, *self.observations.folders[layout.folder]})
        prefixes = layout.naming.prefixes(FileOwner(self.name.namespace, self.name.name))
        starts = tuple(layout.folder + begin for begin in prefixes)
        unread = [key for key in pointer_files(keys) if key not in known_keys and key.startswith(starts)]
        self.observations.require_files(unread)
        for key in unread:
            file = self._file(key)
            if file is not None and is_ours(file.doc, self.name, self.policy):
                yield file

    def _belongs(self, file: OurFile, layout: FileLayout) -> bool:
        """Return whether a file is named as its document would be at this layout; two layouts may share a folder."""
        doc = file.doc
        # Earlier versions used the uuid in the file name as the metadata spelled it.
        name_part = unquote(owner_prefix(file.key.removeprefix(layout.folder)))
        owner = FileOwner(doc.namespace, doc.name, name_part if normal_uuid(name_part) == doc.guid else doc.guid)
        return file.key in layout.keys(owner, None if doc.ref == MAIN_BRANCH else doc.ref)

    def _main_key(self, layout: FileLayout, doc: Document) -> str:
        return layout.keys(FileOwner(doc.namespace, doc.name, doc.guid))[0]

    def _may_take(self, doc: Document, layout: FileLayout, guid: str | None) -> bool:
        """Return whether a document is ours, or belongs to our table under an earlier name."""
        if is_ours(doc, self.name, self.policy):
            return True
        if not layout.naming.is_by_uuid or doc.catalog_id != self.policy.catalog_id or doc.guid != guid:
            return False
        if not doc.is_live:
            return True
        other = TableIdentifier(self.name.catalog, doc.namespace, doc.name)
        found = self.observations.answer_for(other).found
        if not isinstance(found, Table) or found.uuid != guid:
            return True
        # The file was written under another spelling of our name, while the listing was not available.
        return may_be_same_name(other, self.name) and self.name in self.observations.listed_spellings(
            other, fresh=False
        )

    def _file(self, key: str) -> OurFile | None:
        stored = self.observations.file(key)
        doc = parse_or_none(stored)
        return OurFile(key, stored, doc) if stored is not None and doc is not None else None


def pointer_files(keys: Iterable[str]) -> list[str]:
    """Return the keys of main and branch files, without those of single commits and of other programs."""
    return [
        key for key in keys if key.endswith(naming.EXTENSION) and naming.commit_ordinal(key.rpartition("/")[2]) is None
    ]


def foreign_documents(finder: FileFinder, layout: FileLayout) -> tuple[Document, ...]:
    """Return the documents of other jobs in a layout's folder."""
    observations, found = finder.observations, []
    keys = pointer_files(observations.folder(layout.folder))[: MAX_FOREIGN_FILES + 1]
    observations.require_files(keys)
    for key in keys:
        doc = parse_or_none(observations.file(key))
        if doc is not None and not is_ours(doc, finder.name, finder.policy):
            # A file at one of our own two keys may be foreign; then the cache may have an old state of it.
            observations.require_read(key)
            found.append(doc)
    return tuple(found)


def _with_files(table_files: TableFiles, others: Sequence[OurFile]) -> TableFiles:
    """Return the table files with more files, main file first."""
    files = sorted(
        (*table_files.files, *others),
        key=lambda file: (file.key != table_files.key, file.doc.ref != MAIN_BRANCH, file.key),
    )
    return TableFiles(
        table_files.layout, table_files.key, tuple(files), table_files.conflict, table_files.conflicting_document
    )


def conflict_letter(table_files: TableFiles, name: TableIdentifier) -> DeadLettered:
    """Return the dead letter for a place that is taken.

    Args:
        table_files: the files with their conflict.
        name: the name of the table.
    """
    reason = table_files.conflict or DeadLetterReason.FOREIGN_FILE
    if reason is DeadLetterReason.PERMANENT:
        remedy = "upgrade it to format version 2, or set another naming"
        return DeadLettered(reason, f"{name} has no table-uuid, which its file name needs; {remedy}")
    detail = f"{table_files.key} is not a file of this table: "
    if table_files.conflicting_document is None:
        return DeadLettered(reason, f"{detail}it is not a readable SFN document. Inspect it, then move or delete it.")
    if reason is DeadLetterReason.FOREIGN_CATALOG:
        adopt = f"`sfn adopt {name.catalog} --from {table_files.conflicting_document.catalog_id}`"
        return DeadLettered(
            reason, f"{detail}it belongs to the same identifier in another catalog. To take it over, run {adopt}."
        )
    return DeadLettered(reason, detail + _conflict_with(table_files, table_files.conflicting_document, name))


def _conflict_with(table_files: TableFiles, found: Document, name: TableIdentifier) -> str:
    other_name = ".".join((*found.namespace, found.name))
    if other_name != name.dotted and other_name.casefold() == name.dotted.casefold():
        return (
            f"it belongs to {other_name}, and the file system does not distinguish upper and lower case. "
            "Give one of the two tables another name or another location."
        )
    if table_files.layout.naming.is_by_uuid:
        return f"{other_name} has the same table-uuid in this catalog. Drop one of the two, or set another naming."
    return f"it belongs to {other_name}. Inspect it, then move or delete it."
