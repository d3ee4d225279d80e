"""Which files are ours, by what lies at a site: a name only says where to look, a document says whose it is."""

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

# ── own: Our files at one place


@dataclass(frozen=True, slots=True)
class OurFile:
    """One file of ours.

    Attributes:
        key: where.
        stored: as it was seen.
        doc: its document.
    """

    key: str
    stored: StoredObject
    doc: Document


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A row's files at one site: one for each published branch, all led by one of them.

    Where files are called by the table's uuid, each uuid that the row's tables had there has its own.

    Attributes:
        layout: where.
        key: of the leading file, or where it would go.
        files: those that are there, the leading one first.
        conflict: why nothing of ours may be written at `key`.
        conflicting_document: the document that is in the way, if it is one.
    """

    layout: FileLayout
    key: str
    files: tuple[OurFile, ...] = ()
    conflict: DeadLetterReason | None = None
    conflicting_document: Document | None = None

    @property
    def main_file(self) -> OurFile | None:
        """The leading file; where it is gone, any other one."""
        return self.files[0] if self.files else None

    @property
    def main_document(self) -> Document | None:
        """Its document."""
        return self.files[0].doc if self.files else None

    @property
    def stored(self) -> StoredObject | None:
        """What is at `key`."""
        return self.files[0].stored if self.files and self.files[0].key == self.key else None


# ── inventory: Which files are ours


def is_ours(doc: Document, name: TableIdentifier, policy: Policy) -> bool:
    """Whether a document is this row's own, or was adopted."""
    return has_identifier(doc, name) and (
        doc.catalog_id == policy.catalog_id or (name, doc.catalog_id) == policy.adopted
    )


def has_identifier(doc: Document, name: TableIdentifier) -> bool:
    """Whether a document carries the identifier, whatever its catalog."""
    return (doc.namespace, doc.name) == (name.namespace, name.name)


def parse_or_none(stored: StoredObject | None) -> Document | None:
    """The document of a file, None where there is none or it is not one."""
    if stored is None:
        return None
    try:
        return document.parse(stored.body)
    except MalformedDocument:
        return None


@dataclass(frozen=True, slots=True)
class FileFinder:
    """How one row's files are found.

    Attributes:
        observations: what was learnt so far.
        policy: the catalog's settings.
        name: the row's.
        cached_keys: keys that the last publish saw.
    """

    observations: Observations
    policy: Policy
    name: TableIdentifier
    cached_keys: frozenset[str] = frozenset()

    @classmethod
    def for_job(cls, job: LeasedJob, observations: Observations, policy: Policy, name: TableIdentifier) -> FileFinder:
        """That of a claimed row."""
        return cls(observations, policy, name, frozenset(job.cache.objects if observations.is_from_cache else ()))

    def files_at(self, layout: FileLayout, table: Table | None, *, is_current: bool) -> list[TableFiles]:
        """Our files at a site.

        Args:
            table: what the catalog says the name has.
            is_current: its files belong there: then they come first, even where there is none yet.
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
        """Our file of a table's branch, or its leading one: the one that is there, else the first name that is free."""
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
        """Our files in a site's folder beside those that were seen.

        The folder is listed where memory does not tell: earlier settings may have had files for other branches.
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
        """Whether a file is called what its document would be called at the site: two sites may share a folder."""
        doc = file.doc
        # Earlier versions called a file by the uuid as the metadata spelled it.
        name_part = unquote(owner_prefix(file.key.removeprefix(layout.folder)))
        owner = FileOwner(doc.namespace, doc.name, name_part if normal_uuid(name_part) == doc.guid else doc.guid)
        return file.key in layout.keys(owner, None if doc.ref == MAIN_BRANCH else doc.ref)

    def _main_key(self, layout: FileLayout, doc: Document) -> str:
        return layout.keys(FileOwner(doc.namespace, doc.name, doc.guid))[0]

    def _may_take(self, doc: Document, layout: FileLayout, guid: str | None) -> bool:
        """Whether a document is ours, or what a table of ours left that had the file before, under another name."""
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
        # Written under another spelling of our name, while the catalog listed nothing.
        return may_be_same_name(other, self.name) and self.name in self.observations.listed_spellings(
            other, fresh=False
        )

    def _file(self, key: str) -> OurFile | None:
        stored = self.observations.file(key)
        doc = parse_or_none(stored)
        return OurFile(key, stored, doc) if stored is not None and doc is not None else None


def pointer_files(keys: Iterable[str]) -> list[str]:
    """The files that say where a table or a branch is: not those of single commits, nor anybody else's."""
    return [
        key for key in keys if key.endswith(naming.EXTENSION) and naming.commit_ordinal(key.rpartition("/")[2]) is None
    ]


def foreign_documents(finder: FileFinder, layout: FileLayout) -> tuple[Document, ...]:
    """The other rows' documents in a site's folder."""
    observations, found = finder.observations, []
    keys = pointer_files(observations.folder(layout.folder))[: MAX_FOREIGN_FILES + 1]
    observations.require_files(keys)
    for key in keys:
        doc = parse_or_none(observations.file(key))
        if doc is not None and not is_ours(doc, finder.name, finder.policy):
            # One of our own two names may be somebody else's file, and then it is in our memory.
            observations.require_read(key)
            found.append(doc)
    return tuple(found)


def _with_files(table_files: TableFiles, others: Sequence[OurFile]) -> TableFiles:
    """The same with more files, the leading one first."""
    files = sorted(
        (*table_files.files, *others),
        key=lambda file: (file.key != table_files.key, file.doc.ref != MAIN_BRANCH, file.key),
    )
    return TableFiles(
        table_files.layout, table_files.key, tuple(files), table_files.conflict, table_files.conflicting_document
    )


# ── obstacles: What is in the way of a file of ours


def conflict_letter(table_files: TableFiles, name: TableIdentifier) -> DeadLettered:
    """The dead letter for a place that is taken.

    Args:
        table_files: with its obstacle.
        name: whose file belongs there.
    """
    reason = table_files.conflict or DeadLetterReason.FOREIGN_FILE
    if reason is DeadLetterReason.PERMANENT:
        detail = f"{name} has no table-uuid to call its files by; upgrade it to format version 2, or set another naming"
        return DeadLettered(reason, detail)
    detail = f"{table_files.key} is not ours: "
    if table_files.conflicting_document is None:
        what = "it is no SFN document of a catalog that can be told; look at it, then move or delete it"
        return DeadLettered(reason, detail + what)
    if reason is DeadLetterReason.FOREIGN_CATALOG:
        adopt = f"`sfn adopt {name.catalog} --from {table_files.conflicting_document.catalog_id}`"
        return DeadLettered(
            reason, f"{detail}it belongs to the same identifier of another catalog; {adopt} takes it over"
        )
    return DeadLettered(reason, detail + _conflict_with(table_files, table_files.conflicting_document, name))


def _conflict_with(table_files: TableFiles, found: Document, name: TableIdentifier) -> str:
    other_name = ".".join((*found.namespace, found.name))
    if other_name != name.dotted and other_name.casefold() == name.dotted.casefold():
        return (
            f"it is that of {other_name}, and the file system takes upper and lower case for the same; "
            "give one of the two tables another name, or another location"
        )
    if table_files.layout.naming.is_by_uuid:
        return f"{other_name} has the same table-uuid in this catalog; drop one of the two, or set another naming"
    return f"it is that of {other_name}; look at it, then move or delete it"
