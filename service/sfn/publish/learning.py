"""How a publish learns what its decision asks for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import assert_never

from sfn.catalog import Catalog
from sfn.catalog.spelling import Spellings, Unlisted
from sfn.clock import Clock
from sfn.errors import LocationRefused, Scope, Transient
from sfn.inbox import Roster, Worklist
from sfn.pointer import hintfile
from sfn.pointer.location import canonical
from sfn.pointer.naming import Whose
from sfn.pointer.site import Site
from sfn.publish.facts import (
    FOLDER_LISTED,
    Facts,
    FindFiles,
    IsListed,
    ListedAlike,
    ListFolder,
    LoadTable,
    Look,
    MayStep,
    Prove,
    Question,
    ReadFiles,
    Remember,
    Seen,
    WhoHas,
    WhoIsAt,
    folder_of,
)
from sfn.publish.inventory import ours, pointers, readable
from sfn.publish.learnt import learnt
from sfn.publish.policy import Policy
from sfn.store import Guarantees, Stores
from sfn.words import Claim, Loaded, Memo, Missing, NotModified, TableName, Told


class Fenced(Exception):
    """The lease was lost while publishing; nothing may be settled."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What one publish talks to.

    Attributes:
        spellings: how the catalog lists names; None: it is not asked.
    """

    worklist: Worklist
    roster: Roster
    catalog: Catalog
    stores: Stores
    clock: Clock
    spellings: Spellings | None = None


class Learning:
    """Asks the world for one publish.

    Attributes:
        latest: what is remembered, with the catalog's last answer.
    """

    def __init__(self, claim: Claim, ports: Ports, policy: Policy) -> None:
        if not isinstance(claim.subject, TableName):
            raise TypeError(claim.subject)
        self.claim, self.ports, self.policy, self.name = claim, ports, policy, claim.subject
        self.latest = claim.memo

    async def learn(self, question: Question, facts: Facts) -> None:
        """Ask the world what the decision lacks."""
        ports = self.ports
        match question:
            case ReadFiles() | ListFolder() | FindFiles() | Prove():
                await self._look(question, facts)
            case LoadTable(table):
                facts.looks[table] = await self._load(table, facts)
            case IsListed(table):
                facts.yes[question] = await ports.catalog.listed(table)
            case ListedAlike(table, fresh):
                await self._compare(table, facts, fresh=fresh)
            case MayStep(step):
                facts.yes[question] = await ports.worklist.permit(self.claim, step, ports.clock.now())
            case WhoHas(uuid):
                facts.carrying[uuid] = tuple(await ports.roster.carrying(self.name.catalog, uuid))
            case WhoIsAt(location):
                facts.rows[question] = await ports.roster.neighbours(self.name, location)
            case Remember(site, uuid):
                facts.rows[question] = await self._remember(site, uuid)
            case _:
                assert_never(question)

    async def prove(self, key: str) -> Guarantees:
        """Return what the store of a key is proven to do.

        The proof's file lies in a folder of SFN files, also where the key is a version hint: policies may permit no
        other name beside that.
        """
        location = hintfile.location_of(key)
        beside = key if location is None else Site(location, placement=self.policy.placement).folder
        return await self.ports.stores.at(key).prove(beside)

    async def _look(self, question: ReadFiles | ListFolder | FindFiles | Prove, facts: Facts) -> None:
        """Look at files."""
        stores = self.ports.stores
        match question:
            case ReadFiles(keys):
                for key in keys:
                    facts.files[key] = Seen(await stores.at(key).read(key), facts.next_turn())
            case ListFolder(prefix):
                facts.folders[prefix] = tuple(await stores.at(prefix).list(prefix, FOLDER_LISTED + 1))
            case Prove(key):
                facts.proven[folder_of(key)] = await self.prove(key)
            case FindFiles(keys):
                for key in keys:
                    facts.there[key] = await self._is_there(key)
            case _:
                assert_never(question)

    async def _compare(self, table: TableName, facts: Facts, *, fresh: bool) -> None:
        """Compare a name with what the catalog lists."""
        spellings = self.ports.spellings
        try:
            alike = await spellings.alike(table, fresh=fresh) if spellings is not None else None
        except Unlisted:
            alike = None
            facts.unlisted.add(table)
        facts.spellings[table] = alike or ()

    async def _is_there(self, key: str) -> bool:
        try:
            return await self.ports.stores.at(key).part(key, 0, 1) is not None
        except LocationRefused:
            return False

    async def _remember(self, site: str, uuid: str | None) -> Collection[TableName]:
        others = await self.ports.worklist.remember(self.claim, site, uuid)
        if others is None:
            raise Fenced
        return others

    async def _load(self, table: TableName, facts: Facts) -> Look:
        memo = self.latest if table == self.name else Memo()
        asked = self.ports.clock.now()
        told = await self._told(table, facts) if self.policy.told else None
        answer = await self.ports.catalog.load(table, memo.etag if memo.table is not None else None, told)
        answered = self.ports.clock.now()
        if isinstance(answer, Loaded):
            if table == self.name:
                self.latest = replace(self.latest, table=answer.table, etag=answer.etag)
            return Look(answer.table, answer.etag, asked, answered, facts.next_turn(), answer.heard)
        if isinstance(answer, NotModified) and memo.table is not None:
            return Look(memo.table, memo.etag, asked, answered, facts.next_turn(), answer.heard)
        if isinstance(answer, NotModified):
            raise Transient(
                str(table), scope=Scope.TABLE, expected="a table or its absence", found="304 without being asked for it"
            )
        heard = answer.heard if isinstance(answer, Missing) else None
        return Look(answer, None, asked, answered, facts.next_turn(), heard)

    async def _told(self, table: TableName, facts: Facts) -> Told | None:
        """What was told of a table by now: the claim may be older, and a tag must be older than the answer."""
        told, story = await self.ports.roster.told(table), self.claim.story
        # Whatever lies at a place of a row that never settled was written for what is told.
        is_unsettled = bool(self.claim.locations) and not story.visited
        if table != self.name or story.told is not None or is_unsettled:
            return told
        await self.learn(ReadFiles(tuple(key for key in self._own_keys() if key not in facts.files)), facts)
        known = learnt(self.claim, self.name, facts.files.values(), self.policy)
        return replace(known, tellings=told.tellings) if told is not None else known

    def memo(self, facts: Facts) -> Memo:
        """What the next publish may begin with."""
        mine = set(self._own_keys())
        tags = {key: seen.held for key, seen in facts.files.items() if key in mine or self._is_ours(seen, key)}
        return replace(self.latest, tags=tags)

    def _own_keys(self) -> list[str]:
        """The keys of this row: only these may be remembered, others change behind its back."""
        table, sites = self.latest.table, {Site.of(text) for text in self.claim.locations}
        if table is not None:
            sites.add(self.policy.site(self.name, canonical(table.location)))
        whose = Whose(self.name.namespace, self.name.name, table.uuid if table is not None else None)
        refs = [None, *(self.policy.refs(table) if table is not None else ())]
        keys = [key for site in sites for ref in refs for key in site.keys(whose, ref)]
        return sorted({*keys, *(hintfile.key(site.location) for site in sites if site.has_hint)})

    def _is_ours(self, seen: Seen, key: str) -> bool:
        doc = readable(seen.held) if pointers([key]) else None
        return doc is not None and ours(doc, self.name, self.policy)
