"""One publish: learn what the decision asks for, then carry its plan out by compare-and-swap.

A plain coroutine over ports; it neither sleeps nor starts tasks, so the same code runs in the daemon, in a simulation
and, over adapters that never suspend, without an event loop.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import assert_never

from sfn.catalog import Catalog
from sfn.clock import Clock
from sfn.errors import Scope, Transient
from sfn.inbox import Roster, Worklist
from sfn.pointer import hintfile
from sfn.pointer.location import canonical
from sfn.pointer.naming import Whose
from sfn.pointer.site import Site
from sfn.publish.changes import Plan, Put, Remove, Stage
from sfn.publish.decide import decide
from sfn.publish.facts import (
    LISTED,
    Facts,
    IsListed,
    ListFolder,
    LoadTable,
    Look,
    MayStep,
    Prove,
    Question,
    ReadFile,
    Remember,
    Seen,
    WhoHas,
    WhoIsAt,
)
from sfn.publish.learnt import learnt
from sfn.publish.policy import Policy
from sfn.store import Moved, Stores
from sfn.words import Claim, Dead, Done, Later, Loaded, Memo, Missing, NotModified, TableName, Told

RACES = 8
"""Lost races in one publish before it gives way to the others."""


class Fenced(Exception):
    """The lease was lost while publishing; nothing may be settled."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What one publish talks to."""

    worklist: Worklist
    roster: Roster
    catalog: Catalog
    stores: Stores
    clock: Clock


async def publish(claim: Claim, ports: Ports, policy: Policy, *, jitter: float) -> Done | Later | Dead:
    """Bring one table's files in line with the catalog.

    Args:
        claim: a table's row.
        ports: the world.
        policy: the catalog's settings.
        jitter: in [0, 1).

    Raises:
        Fenced: the lease was lost.
        Trouble: something outside failed, or others kept winning the race; nothing is half done that a later publish
            does not mend.
    """
    return await _Publish(claim, ports, policy, jitter).run()


class _Publish:
    def __init__(self, claim: Claim, ports: Ports, policy: Policy, jitter: float) -> None:
        if not isinstance(claim.subject, TableName):
            raise TypeError(claim.subject)
        self.claim, self.ports, self.policy, self.jitter = claim, ports, policy, jitter
        self.name = claim.subject
        self.now = ports.clock.now()
        self.latest = claim.memo
        self.did: dict[str, None] = {}

    async def run(self) -> Done | Later | Dead:
        refresh_at = self.claim.story.refresh_at
        refresh = refresh_at is not None and self.now >= refresh_at
        facts = Facts() if refresh or self.claim.wish.anew else Facts.remembered(self.claim.memo.tags)
        for _ in range(RACES):
            verdict = await self._decided(facts)
            if not isinstance(verdict, Plan):
                return self._completed(verdict, facts)
            if await self._carried_out(verdict, facts):
                return self._completed(verdict.outcome, facts)
            facts = Facts(relist=True)
        raise Transient(
            str(self.name),
            scope=Scope.TABLE,
            expected="to win the race for its files",
            found=f"{RACES} lost in a row",
        )

    async def _decided(self, facts: Facts) -> Plan | Done | Later | Dead:
        while True:
            verdict = decide(self.claim, facts, self.policy, now=self.now, jitter=self.jitter)
            if isinstance(verdict, Plan | Done | Later | Dead):
                return verdict
            await self._learn(verdict, facts)

    async def _learn(self, question: Question, facts: Facts) -> None:
        """Ask the world what the decision lacks."""
        ports = self.ports
        match question:
            case LoadTable(table):
                facts.looks[table] = await self._load(table, facts)
            case ReadFile(key):
                held = await ports.stores.at(key).read(key)
                facts.files[key] = Seen(held, facts.next_turn())
            case ListFolder(prefix):
                facts.folders[prefix] = tuple(await ports.stores.at(prefix).list(prefix, LISTED + 1))
            case IsListed(table):
                facts.yes[question] = await ports.catalog.listed(table)
            case MayStep(step):
                facts.yes[question] = await ports.worklist.permit(self.claim, step, ports.clock.now())
            case Prove(key):
                facts.proven[key] = await ports.stores.at(key).prove(key)
            case WhoHas(uuid):
                facts.carrying[uuid] = tuple(await ports.roster.carrying(self.name.catalog, uuid))
            case WhoIsAt(location):
                facts.rows[question] = await ports.roster.neighbours(self.name, location)
            case Remember(location, uuid):
                facts.rows[question] = await self._remember(location, uuid)
            case _:
                assert_never(question)

    async def _remember(self, location: str, uuid: str | None) -> Collection[TableName]:
        others = await self.ports.worklist.remember(self.claim, location, uuid)
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
        for key in self._own_keys():
            if key not in facts.files:
                await self._learn(ReadFile(key), facts)
        known = learnt(self.claim, self.name, facts.files.values(), self.policy)
        return replace(known, tellings=told.tellings) if told is not None else known

    async def _carried_out(self, plan: Plan, facts: Facts) -> bool:
        """Make all changes in order. False: a race was lost, and nothing after it was done."""
        for change in plan.changes:
            if isinstance(change, Put):
                made = await (self._written(change, facts) if change.check is None else self._hinted(change, facts))
            else:
                made = await self._removed(change, facts)
            if not made:
                return False
        return True

    async def _written(self, change: Put, facts: Facts) -> bool:
        store = self.ports.stores.at(change.key)
        written = await store.write(change.key, change.body, change.replacing)
        if isinstance(written, Moved):
            return False
        self.did[change.key] = None
        if change.stage is Stage.POINT:
            await store.prove(change.key)
        facts.files[change.key] = Seen(written, facts.next_turn())
        return True

    async def _removed(self, change: Remove, facts: Facts) -> bool:
        store = self.ports.stores.at(change.key)
        if isinstance(await store.delete(change.key, change.replacing), Moved):
            return False
        self.did[change.key] = None
        facts.files[change.key] = Seen(None, facts.next_turn())
        return True

    async def _hinted(self, hint: Put, facts: Facts) -> bool:
        """Write the hint, and see that what it rests on is still so.

        A hint that is made anew is made in two steps, with a look between them: "nothing is there" is a condition that
        can come true again while a writer sleeps, a text of its own is not.
        """
        if hint.replacing is None:
            nonce = f"{self.ports.clock.now():%Y%m%dT%H%M%S%f}-{self.claim.token}"
            placeholder = replace(hint, body=hintfile.withdrawn(nonce), check=None)
            if not await self._written(placeholder, facts):
                return False
            if not await self._still_alone(hint, facts):
                await self._taken_back(placeholder, facts)
                return False
            hint = replace(hint, replacing=facts.file(hint.key))
        return await self._written(hint, facts) and await self._still_right(hint, facts)

    async def _taken_back(self, placeholder: Put, facts: Facts) -> None:
        """Leave no placeholder behind; its text is unique, so only a store that ignores conditions must keep it."""
        store, held = self.ports.stores.at(placeholder.key), facts.file(placeholder.key)
        if held is not None and (await store.prove(placeholder.key)).conditional_delete:
            await store.delete(placeholder.key, held)

    async def _still_right(self, hint: Put, facts: Facts) -> bool:
        """The document beside the hint is the one that it rests on, and no other row came to live there."""
        if hint.check is None:
            return True
        key, location = hint.check
        if await self.ports.stores.at(key).read(key) != facts.file(key):
            return False
        uuid = next((question.uuid for question in facts.rows if isinstance(question, Remember)), None)
        return await self.ports.worklist.remember(self.claim, location, uuid) == frozenset()

    async def _still_alone(self, hint: Put, facts: Facts) -> bool:
        """No other file came into the folder since it was listed, and all is right otherwise."""
        if hint.check is None or not await self._still_right(hint, facts):
            return False
        key, location = hint.check
        beside = await self.ports.stores.at(key).list(Site(location).folder, LISTED + 1)
        return set(beside) <= {key, *facts.folders.get(Site(location).folder, ())}

    def _completed(self, outcome: Done | Later | Dead, facts: Facts) -> Done | Later | Dead:
        """The outcome with what was seen and done, also in rounds that lost their race after a part of their plan."""
        if outcome.findings is None:
            return outcome
        tags = {key: facts.files[key].held for key in self._own_keys() if key in facts.files}
        memo, did = replace(self.latest, tags=tags), tuple(self.did)
        pause_ends = facts.look(self.name).answered + self.policy.min_publish_interval
        findings = replace(outcome.findings, memo=memo, did=did, not_before=pause_ends if did else None)
        return replace(outcome, findings=findings)

    def _own_keys(self) -> list[str]:
        """The keys of this row: only these may be remembered, others change behind its back."""
        places = set(self.claim.locations)
        if self.latest.table is not None:
            places.add(canonical(self.latest.table.location))
        keys = [key for at in sorted(places) for key in Site(at).keys(Whose(self.name.namespace, self.name.name))]
        return keys + [hintfile.key(at) for at in sorted(places)]
