"""Which files are ours, by what lies at a site: a name only says where to look, a document says whose it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from sfn.catalog.spelling import is_alike
from sfn.errors import Malformed
from sfn.pointer import document, naming
from sfn.pointer.document import Document
from sfn.pointer.naming import MAIN, Whose, owner_of
from sfn.pointer.site import Site
from sfn.publish.facts import LISTED, Facts
from sfn.publish.own import File, Own
from sfn.publish.policy import Policy
from sfn.words import Claim, Held, Reason, Table, TableName, normal_uuid


def ours(doc: Document, name: TableName, policy: Policy) -> bool:
    """Whether a document is this row's own, or was adopted."""
    return is_named(doc, name) and (doc.catalog_id == policy.catalog_id or (name, doc.catalog_id) == policy.adopted)


def is_named(doc: Document, name: TableName) -> bool:
    """Whether a document carries the identifier, whatever its catalog."""
    return (doc.namespace, doc.name) == (name.namespace, name.name)


def readable(held: Held | None) -> Document | None:
    """The document of a file, None where there is none or it is not one."""
    if held is None:
        return None
    try:
        return document.parse(held.body)
    except Malformed:
        return None


@dataclass(frozen=True, slots=True)
class Inventory:
    """How one row's files are found.

    Attributes:
        facts: what was learnt so far.
        policy: the catalog's settings.
        name: the row's.
        remembered: keys that the last publish saw.
    """

    facts: Facts
    policy: Policy
    name: TableName
    remembered: frozenset[str] = frozenset()

    @classmethod
    def of(cls, claim: Claim, facts: Facts, policy: Policy, name: TableName) -> Inventory:
        """That of a claimed row."""
        return cls(facts, policy, name, frozenset(claim.memo.tags if facts.from_memory else ()))

    def at(self, site: Site, table: Table | None, *, is_place: bool) -> list[Own]:
        """Our files at a site.

        Args:
            table: what the catalog says the name has.
            is_place: its files belong there: then they come first, even where there is none yet.
        """
        guid = table.uuid if table is not None else None
        refs = self.policy.refs(table) if table is not None and is_place else {}
        found: list[Own] = []
        if is_place or not site.naming.is_by_guid:
            found.append(self._led(site, guid, refs))
        seen = {file.key for own in found for file in own.files}
        others = [file for file in self._others(site, seen) if self._belongs(file, site)]
        if not site.naming.is_by_guid:
            (own,) = found
            return [_with(own, others)]
        groups: dict[str | None, list[File]] = {}
        for file in others:
            groups.setdefault(file.doc.guid, []).append(file)
        if is_place:
            found = [_with(found[0], groups.pop(guid, []))]
        return found + [_with(Own(site, self._lead_key(site, files[0].doc)), files) for files in groups.values()]

    def slot(self, site: Site, guid: str | None, ref: str | None = None) -> Own:
        """Our file of a table's branch, or its leading one: the one that is there, else the first name that is free."""
        keys = site.keys(Whose(self.name.namespace, self.name.name, guid), ref)
        if not keys:
            return Own(site, site.folder, obstacle=Reason.PERMANENT)
        for key in keys:
            file = self._file(key)
            if file is not None and file.doc.ref == (ref or MAIN) and self._may_have(file.doc, site, guid):
                return Own(site, key, (file,))
        for key in keys:
            held = self.facts.file(key)
            if held is None:
                return Own(site, key)
            doc = readable(held)
            if doc is None:
                return Own(site, key, obstacle=Reason.FOREIGN_FILE)
            if is_named(doc, self.name) or (site.naming.is_by_guid and doc.catalog_id != self.policy.catalog_id):
                return Own(site, key, obstacle=Reason.FOREIGN_CATALOG, found=doc)
        return Own(site, keys[-1], obstacle=Reason.FOREIGN_FILE, found=readable(self.facts.file(keys[-1])))

    def _led(self, site: Site, guid: str | None, refs: Iterable[str]) -> Own:
        own = self.slot(site, guid)
        files = [slot.files for ref in refs if (slot := self.slot(site, guid, ref)).files]
        return _with(own, [file for one in files for file in one])

    def _others(self, site: Site, seen: set[str]) -> Iterator[File]:
        """Our files in a site's folder beside those that were seen.

        The folder is listed where memory does not tell: earlier settings may have had files for other branches.
        """
        known = {key for key in self.remembered if key.startswith(site.folder)}
        keys: Iterable[str] = sorted(known)
        if site.naming.has_refs and (not known or site.folder in self.facts.folders):
            keys = self.facts.folder(site.folder)
        elif site.folder in self.facts.folders:
            keys = sorted({*known, *self.facts.folders[site.folder]})
        begins = site.naming.begins(Whose(self.name.namespace, self.name.name))
        starts = tuple(site.folder + begin for begin in begins)
        wanted = [key for key in pointers(keys) if key not in seen and key.startswith(starts)]
        self.facts.require_files(wanted)
        for key in wanted:
            file = self._file(key)
            if file is not None and ours(file.doc, self.name, self.policy):
                yield file

    def _belongs(self, file: File, site: Site) -> bool:
        """Whether a file is called what its document would be called at the site: two sites may share a folder."""
        doc = file.doc
        # Earlier versions called a file by the uuid as the metadata spelled it.
        written = unquote(owner_of(file.key.removeprefix(site.folder)))
        whose = Whose(doc.namespace, doc.name, written if normal_uuid(written) == doc.guid else doc.guid)
        return file.key in site.keys(whose, None if doc.ref == MAIN else doc.ref)

    def _lead_key(self, site: Site, doc: Document) -> str:
        return site.keys(Whose(doc.namespace, doc.name, doc.guid))[0]

    def _may_have(self, doc: Document, site: Site, guid: str | None) -> bool:
        """Whether a document is ours, or what a table of ours left that had the file before, under another name."""
        if ours(doc, self.name, self.policy):
            return True
        if not site.naming.is_by_guid or doc.catalog_id != self.policy.catalog_id or doc.guid != guid:
            return False
        if not doc.live:
            return True
        other = TableName(self.name.catalog, doc.namespace, doc.name)
        found = self.facts.look(other).found
        if not isinstance(found, Table) or found.uuid != guid:
            return True
        # Written under another spelling of our name, while the catalog listed nothing.
        return is_alike(other, self.name) and self.name in self.facts.listed_alike(other, fresh=False)

    def _file(self, key: str) -> File | None:
        held = self.facts.file(key)
        doc = readable(held)
        return File(key, held, doc) if held is not None and doc is not None else None


def pointers(keys: Iterable[str]) -> list[str]:
    """The files that say where a table or a branch is: not those of single commits, nor anybody else's."""
    return [key for key in keys if key.endswith(naming.EXTENSION) and naming.commit_of(key.rpartition("/")[2]) is None]


def beside(inventory: Inventory, site: Site) -> tuple[Document, ...]:
    """The other rows' documents in a site's folder."""
    facts, found = inventory.facts, []
    keys = pointers(facts.folder(site.folder))[: LISTED + 1]
    facts.require_files(keys)
    for key in keys:
        doc = readable(facts.file(key))
        if doc is not None and not ours(doc, inventory.name, inventory.policy):
            # One of our own two names may be somebody else's file, and then it is in our memory.
            facts.require_read(key)
            found.append(doc)
    return tuple(found)


def _with(own: Own, more: Sequence[File]) -> Own:
    """The same with more files, the leading one first."""
    files = sorted((*own.files, *more), key=lambda file: (file.key != own.key, file.doc.ref != MAIN, file.key))
    return Own(own.site, own.key, tuple(files), own.obstacle, own.found)
