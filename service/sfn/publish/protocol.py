"""One publish: learn what the decision asks for, then carry its plan out by compare-and-swap.

A plain coroutine over ports; it neither sleeps nor starts tasks, so the same code runs in the daemon, in a simulation
and, over adapters that never suspend, without an event loop.
"""

from __future__ import annotations

from dataclasses import replace

from sfn.errors import Scope, Transient
from sfn.pointer import hintfile
from sfn.publish.changes import Plan, Put, Remove
from sfn.publish.decide import decide
from sfn.publish.facts import (
    FOLDER_LISTED,
    Facts,
    Remember,
    Seen,
)
from sfn.publish.inventory import pointers
from sfn.publish.learning import Learning, Ports
from sfn.publish.policy import Policy
from sfn.store import Moved
from sfn.words import Claim, Dead, Done, Later, TableName

RACES = 8
"""Lost races in one publish before it gives way to the others."""


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
        self.learning = Learning(claim, ports, policy)
        self.did: dict[str, None] = {}

    async def run(self) -> Done | Later | Dead:
        refresh_at = self.claim.story.refresh_at
        refresh = refresh_at is not None and self.now >= refresh_at
        facts = Facts() if refresh or self.claim.wish.anew else Facts.remembered(self.claim.memo.tags)
        for _ in range(RACES):
            verdict = await self._decided(facts)
            if not isinstance(verdict, Plan):
                return self._completed(verdict, facts, planned=False)
            if await self._carried_out(verdict, facts):
                return self._completed(verdict.outcome, facts, planned=True)
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
            await self.learning.learn(verdict, facts)

    async def _carried_out(self, plan: Plan, facts: Facts) -> bool:
        """Make all changes in order. False: a race was lost, and nothing after it was done."""
        written: dict[bytes, str] = {}
        for change in plan.changes:
            if change.replacing is not None and written.get(change.replacing.body, change.key) != change.key:
                # It may be what this plan wrote by another name of the place: decided again, with both as they are now.
                return False
            if isinstance(change, Put):
                # Bytes that lay there before the plan, such as a refreshed hint's, are no sign of another name.
                if change.replacing is None or change.replacing.body != change.body:
                    written[change.body] = change.key
                made = await (self._written(change, facts) if change.check is None else self._hinted(change, facts))
            else:
                made = await self._removed(change, facts)
            if not made:
                return False
        return await self._holds(plan, facts)

    async def _holds(self, plan: Plan, facts: Facts) -> bool:
        """Whether what a plan took for granted is so once it is carried out."""
        for key, other in plan.aliases:
            held, by_other_name = facts.file(key), await self.ports.stores.at(other).read(other)
            if (held and held.body) != (by_other_name and by_other_name.body):
                return False
        for key in plan.unchanged:
            if await self.ports.stores.at(key).read(key) != facts.file(key):
                return False
        return True

    async def _written(self, change: Put, facts: Facts) -> bool:
        store = self.ports.stores.at(change.key)
        # A store that is refused gets no file at all.
        await self.learning.prove(change.key)
        written = await store.write(change.key, change.body, change.replacing)
        if isinstance(written, Moved):
            return False
        self.did[change.key] = None
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
        if held is not None and (await self.learning.prove(placeholder.key)).conditional_delete:
            await store.delete(placeholder.key, held)

    async def _still_right(self, hint: Put, facts: Facts) -> bool:
        """The document beside the hint is the one that it rests on, and no other row came to live there."""
        if hint.check is None:
            return True
        key, site = hint.check
        if await self.ports.stores.at(key).read(key) != facts.file(key):
            return False
        uuid = next((question.uuid for question in facts.rows if isinstance(question, Remember)), None)
        return await self.ports.worklist.remember(self.claim, site.text, uuid) == frozenset()

    async def _still_alone(self, hint: Put, facts: Facts) -> bool:
        """No other file came into the folder since it was listed, and all is right otherwise."""
        if hint.check is None or not await self._still_right(hint, facts):
            return False
        key, site = hint.check
        beside = await self.ports.stores.at(key).list(site.folder, FOLDER_LISTED + 1)
        return set(pointers(beside)) <= {key, *self.did, *facts.folders.get(site.folder, ())}

    def _completed(self, outcome: Done | Later | Dead, facts: Facts, *, planned: bool) -> Done | Later | Dead:
        """The outcome with what was seen and done, also in rounds that lost their race after a part of their plan."""
        if outcome.findings is None:
            return outcome
        memo, did = self.learning.memo(facts), tuple(self.did)
        if not (planned or facts.from_memory or isinstance(outcome, Done)):
            # It may have stopped before it saw what a publish left behind that did not live to settle.
            memo = replace(memo, tags={})
        pause_ends = facts.look(self.name).answered + self.policy.min_publish_interval
        findings = replace(outcome.findings, memo=memo, did=did, not_before=pause_ends if did else None)
        return replace(outcome, findings=findings)
