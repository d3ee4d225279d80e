"""What lies there: our files at all locations of a row, and who else is beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sfn.errors import Malformed
from sfn.pointer import document, hintfile, naming
from sfn.pointer.document import Document
from sfn.pointer.naming import Whose
from sfn.pointer.site import Site
from sfn.publish.facts import Facts, Look
from sfn.publish.policy import Policy
from sfn.words import Claim, Dead, Held, Reason, Table, TableName


@dataclass(frozen=True, slots=True)
class Own:
    """A row's file at one location.

    Attributes:
        key: where it is, or where it would go.
        held: the file, if there is one of ours.
        doc: its document.
        obstacle: why nothing of ours may be written there.
        owner: the `catalog_id` of the file that is in the way.
    """

    key: str
    held: Held | None = None
    doc: Document | None = None
    obstacle: Reason | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """The situation that one decision is about.

    Attributes:
        claim, facts, policy: what the decision was given.
        name: the row's table name.
        look: the catalog's answer for it.
        table: its table, None where it has none (or one that gets no files).
        place: the canonical location of that table.
        own: our file at every location, by location.
        siblings: documents of other names or catalogs beside ours at `place`.
        obstacle: why the table's place gets no files of ours.
    """

    claim: Claim
    facts: Facts
    policy: Policy
    name: TableName
    look: Look
    table: Table | None
    place: str | None
    own: Mapping[str, Own]
    siblings: tuple[Document, ...] = ()
    obstacle: Dead | None = None

    @property
    def documents(self) -> list[Document]:
        """Our documents at all locations."""
        return [own.doc for own in self.own.values() if own.doc is not None]

    @property
    def head(self) -> Document | None:
        """What is held: the live document with the greatest Ordinal, else the greatest of any state."""
        found = self.documents
        return max([doc for doc in found if doc.live] or found, key=lambda doc: doc.ordinal, default=None)

    @property
    def purged(self) -> bool:
        """Whether a purge was told of the table that our files name, and not of one that had the name before it."""
        settled = self.claim.story.live
        if settled is None:
            return self.claim.wish.purge and self.table is None
        return self.claim.wish.purge and all(doc.guid == settled.uuid for doc in self.documents if doc.live)

    @property
    def previous(self) -> int:
        """The greatest Ordinal of our documents, 0 without any."""
        return max((doc.ordinal for doc in self.documents), default=0)

    @property
    def here(self) -> Own | None:
        """Our file where the table is."""
        return self.own[self.place] if self.place is not None else None


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


def own_file(facts: Facts, name: TableName, policy: Policy, location: str) -> Own:
    """A row's file at a location: ours under either name, else the first name that is free."""
    keys = Site(location).keys(Whose(name.namespace, name.name))
    for key in keys:
        held = facts.file(key)
        doc = readable(held)
        if doc is not None and ours(doc, name, policy):
            return Own(key, held, doc)
    for key in keys:
        held = facts.file(key)
        if held is None:
            return Own(key)
        doc = readable(held)
        if doc is None:
            return Own(key, obstacle=Reason.FOREIGN_FILE)
        if is_named(doc, name):
            return Own(key, obstacle=Reason.FOREIGN_CATALOG, owner=doc.catalog_id)
    return Own(keys[-1], obstacle=Reason.FOREIGN_FILE)


def beside(facts: Facts, name: TableName, policy: Policy, location: str) -> tuple[Document, ...]:
    """The other rows' documents in a location's folder."""
    found = []
    for key in facts.folder(Site(location).folder):
        if not key.endswith(naming.EXTENSION):
            continue
        doc = readable(facts.file(key))
        if doc is not None and not ours(doc, name, policy):
            # One of our own two names may be somebody else's file, and then it is in our memory.
            facts.require_read(key)
            found.append(doc)
    return tuple(found)


def hint_at(facts: Facts, location: str) -> Held | None:
    """The version hint at a location."""
    return facts.file(hintfile.key(location))
