"""What lies there: our files at all places of a row, and who else is beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sfn.pointer import hintfile
from sfn.pointer.document import Document
from sfn.pointer.site import Site
from sfn.publish.aliases import Alias
from sfn.publish.facts import Facts, Look
from sfn.publish.inventory import Inventory
from sfn.publish.own import Own
from sfn.publish.policy import Policy
from sfn.words import Claim, Dead, Held, Table, TableName


@dataclass(frozen=True, slots=True)
class Scene:
    """The situation that one decision is about.

    Attributes:
        claim, facts, policy: what the decision was given.
        name: the row's table name.
        look: the catalog's answer for it.
        table: its table, None where it has none (or one that gets no files).
        place: the canonical location of that table.
        site: where its files belong.
        inventory: how our files are found.
        owns: our files at every site.
        siblings: documents of other names or catalogs beside ours at `site`.
        obstacle: why the table's place gets no files of ours.
        listed_as: the name under which the catalog lists the table, or listed it when it last had one. Where the row's
            is another spelling of that, the files are the listed name's, and `table` is None here. None: not known.
        aliases: sites of the row that are other names of one of `owns`.
    """

    claim: Claim
    facts: Facts
    policy: Policy
    name: TableName
    look: Look
    table: Table | None
    place: str | None
    site: Site | None
    inventory: Inventory
    owns: tuple[Own, ...]
    siblings: tuple[Document, ...] = ()
    obstacle: Dead | None = None
    listed_as: TableName | None = None
    aliases: Mapping[Site, Alias] = field(default_factory=dict)

    @property
    def other_name(self) -> TableName | None:
        """The listed name of the table, where the row's is another spelling of that."""
        return self.listed_as if self.listed_as != self.name else None

    @property
    def is_answered(self) -> bool:
        """Whether the catalog has a table of this name, also where another spelling of the name has its files."""
        return self.table is not None or (self.other_name is not None and isinstance(self.look.found, Table))

    @property
    def documents(self) -> list[Document]:
        """The leading documents of ours at all sites."""
        return [own.doc for own in self.owns if own.doc is not None]

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
        return max((file.doc.ordinal for own in self.owns for file in own.files), default=0)

    @property
    def here(self) -> Own | None:
        """Our files where the table is."""
        return next((own for own in self.owns if self.is_here(own)), None)

    def is_here(self, own: Own) -> bool:
        """Whether these are the files of the table itself, at its own site."""
        if self.table is None or own.site != self.site:
            return False
        # With such a naming the first one is the table's, and each other one is of a table that had the name before.
        return not own.site.naming.is_by_guid or own is next(one for one in self.owns if one.site == self.site)

    def at(self, location: str) -> list[Own]:
        """Our files at a table's location, or in one folder below a root."""
        return [own for own in self.owns if own.site.location == location]


def hint_at(facts: Facts, location: str) -> Held | None:
    """The version hint at a location."""
    return facts.file(hintfile.key(location))
