"""One publish: learn what the decision asks for, then carry its plan out by compare-and-swap.

A plain coroutine over ports; it neither sleeps nor starts tasks, so the same code runs in the daemon, in a simulation
and, over adapters that never suspend, without an event loop.
"""

from __future__ import annotations

from dataclasses import replace

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, Done, LeasedJob, Rescheduled
from sfn.errors import ErrorScope, Transient
from sfn.publish.changes import PublishPlan, Put, Remove
from sfn.publish.decide import decide
from sfn.publish.facts import (
    MAX_LISTED_FILES,
    Observations,
    ObservedFile,
    RecordLocation,
)
from sfn.publish.inventory import pointer_files
from sfn.publish.learning import Ports, QueryRunner
from sfn.publish.policy import Policy
from sfn.sfnfile import version_hint
from sfn.storage import PreconditionFailed

MAX_LOST_RACES = 8
"""Lost races in one publish before it gives way to the others."""


async def publish(job: LeasedJob, ports: Ports, policy: Policy, *, jitter: float) -> Done | Rescheduled | DeadLettered:
    """Bring one table's files in line with the catalog.

    Args:
        job: a table's row.
        ports: the world.
        policy: the catalog's settings.
        jitter: in [0, 1).

    Raises:
        Fenced: the lease was lost.
        Trouble: something outside failed, or others kept winning the race; nothing is half done that a later publish
            does not mend.
    """
    return await _Publish(job, ports, policy, jitter).run()


class _Publish:
    def __init__(self, job: LeasedJob, ports: Ports, policy: Policy, jitter: float) -> None:
        if not isinstance(job.subject, TableIdentifier):
            raise TypeError(job.subject)
        self.job, self.ports, self.policy, self.jitter = job, ports, policy, jitter
        self.name = job.subject
        self.now = ports.clock.now()
        self.queries = QueryRunner(job, ports, policy)
        self.written_keys: dict[str, None] = {}

    async def run(self) -> Done | Rescheduled | DeadLettered:
        refresh_at = self.job.table_state.refresh_at
        refresh = refresh_at is not None and self.now >= refresh_at
        observations = (
            Observations() if refresh or self.job.pending.force else Observations.of_cache(self.job.cache.objects)
        )
        for _ in range(MAX_LOST_RACES):
            decision = await self._decide(observations)
            if not isinstance(decision, PublishPlan):
                return self._finish(decision, observations, planned=False)
            if await self._apply(decision, observations):
                return self._finish(decision.outcome, observations, planned=True)
            observations = Observations(must_list_folders=True)
        raise Transient(
            str(self.name),
            scope=ErrorScope.TABLE,
            expected="to win the race for its files",
            found=f"{MAX_LOST_RACES} lost in a row",
        )

    async def _decide(self, observations: Observations) -> PublishPlan | Done | Rescheduled | DeadLettered:
        while True:
            decision = decide(self.job, observations, self.policy, now=self.now, jitter=self.jitter)
            if isinstance(decision, PublishPlan | Done | Rescheduled | DeadLettered):
                return decision
            await self.queries.run(decision, observations)

    async def _apply(self, plan: PublishPlan, observations: Observations) -> bool:
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
                made = await (
                    self._put(change, observations) if change.check is None else self._put_hint(change, observations)
                )
            else:
                made = await self._delete(change, observations)
            if not made:
                return False
        return await self._is_confirmed(plan, observations)

    async def _is_confirmed(self, plan: PublishPlan, observations: Observations) -> bool:
        """Whether what a plan took for granted is so once it is carried out."""
        for key, other in plan.aliases:
            stored, alias_stored = observations.file(key), await self.ports.stores.store_for(other).read(other)
            if (stored and stored.body) != (alias_stored and alias_stored.body):
                return False
        for key in plan.unchanged_keys:
            if await self.ports.stores.store_for(key).read(key) != observations.file(key):
                return False
        return True

    async def _put(self, change: Put, observations: Observations) -> bool:
        store = self.ports.stores.store_for(change.key)
        # A store that is refused gets no file at all.
        await self.queries.probe(change.key)
        written = await store.write(change.key, change.body, change.replacing)
        if isinstance(written, PreconditionFailed):
            return False
        self.written_keys[change.key] = None
        observations.files[change.key] = ObservedFile(written, observations.next_sequence())
        return True

    async def _delete(self, change: Remove, observations: Observations) -> bool:
        store = self.ports.stores.store_for(change.key)
        if isinstance(await store.delete(change.key, change.replacing), PreconditionFailed):
            return False
        self.written_keys[change.key] = None
        observations.files[change.key] = ObservedFile(None, observations.next_sequence())
        return True

    async def _put_hint(self, hint: Put, observations: Observations) -> bool:
        """Write the hint, and see that what it rests on is still so.

        A hint that is made anew is made in two steps, with a look between them: "nothing is there" is a condition that
        can come true again while a writer sleeps, a text of its own is not.
        """
        if hint.replacing is None:
            nonce = f"{self.ports.clock.now():%Y%m%dT%H%M%S%f}-{self.job.fencing_token}"
            placeholder = replace(hint, body=version_hint.cleared_content(nonce), check=None)
            if not await self._put(placeholder, observations):
                return False
            if not await self._is_still_alone(hint, observations):
                await self._remove_placeholder(placeholder, observations)
                return False
            hint = replace(hint, replacing=observations.file(hint.key))
        return await self._put(hint, observations) and await self._is_still_valid(hint, observations)

    async def _remove_placeholder(self, placeholder: Put, observations: Observations) -> None:
        """Leave no placeholder behind; its text is unique, so only a store that ignores conditions must keep it."""
        store, stored = self.ports.stores.store_for(placeholder.key), observations.file(placeholder.key)
        if stored is not None and (await self.queries.probe(placeholder.key)).conditional_delete:
            await store.delete(placeholder.key, stored)

    async def _is_still_valid(self, hint: Put, observations: Observations) -> bool:
        """The document beside the hint is the one that it rests on, and no other row came to live there."""
        if hint.check is None:
            return True
        key, layout = hint.check
        if await self.ports.stores.store_for(key).read(key) != observations.file(key):
            return False
        uuid = next((query.uuid for query in observations.names_by_query if isinstance(query, RecordLocation)), None)
        return await self.ports.queue.record_location(self.job, layout.encoded, uuid) == frozenset()

    async def _is_still_alone(self, hint: Put, observations: Observations) -> bool:
        """No other file came into the folder since it was listed, and all is right otherwise."""
        if hint.check is None or not await self._is_still_valid(hint, observations):
            return False
        key, layout = hint.check
        listed = await self.ports.stores.store_for(key).list(layout.folder, MAX_LISTED_FILES + 1)
        return set(pointer_files(listed)) <= {key, *self.written_keys, *observations.folders.get(layout.folder, ())}

    def _finish(
        self, outcome: Done | Rescheduled | DeadLettered, observations: Observations, *, planned: bool
    ) -> Done | Rescheduled | DeadLettered:
        """The outcome with what was seen and done, also in rounds that lost their race after a part of their plan."""
        if outcome.result is None:
            return outcome
        cache, written = self.queries.new_cache(observations), tuple(self.written_keys)
        if not (planned or observations.is_from_cache or isinstance(outcome, Done)):
            # It may have stopped before it saw what a publish left behind that did not live to settle.
            cache = replace(cache, objects={})
        pause_ends = observations.answer_for(self.name).answered_at + self.policy.min_publish_interval
        findings = replace(
            outcome.result, cache=cache, written_keys=written, not_before=pause_ends if written else None
        )
        return replace(outcome, result=findings)
