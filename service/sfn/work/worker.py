"""The worker: claims rows, publishes or sweeps, settles what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import anyio
from anyio.abc import TaskGroup

from sfn.catalog import Catalog
from sfn.catalog.spelling import Spellings
from sfn.clock import Chance, Clock
from sfn.errors import (
    Broken,
    DeniedHere,
    LocationRefused,
    NamedOtherwise,
    NotVended,
    Permanent,
    Scope,
    Transient,
    Trouble,
)
from sfn.inbox import Brake, Intake, Roster, Worklist
from sfn.inbox.troubles import Troubles
from sfn.publish.learning import LeaseLost, Ports
from sfn.publish.policy import OnDrop
from sfn.publish.protocol import publish
from sfn.store import StoreRouter
from sfn.words import (
    Ask,
    CatalogName,
    Cause,
    Claim,
    Dead,
    Done,
    Findings,
    Hint,
    Outcome,
    Reason,
    Released,
    Retry,
    TableName,
    Wish,
)
from sfn.work.asked import Asked
from sfn.work.journal import Journal
from sfn.work.lanes import BreakerState, Lanes
from sfn.work.lease import Leases
from sfn.work.outages import Outages
from sfn.work.report import SweepReport
from sfn.work.retry import LONGEST_WISH, RetryPolicy, heeded
from sfn.work.sources import Source, Sources, left_behind
from sfn.work.sweep import Sweep, SweepPorts
from sfn.work.sweeps import Sweeps
from sfn.work.unforeseen import Unforeseen, kind_of

SURPRISES = 3
"""Attempts that may end in a defect."""
LOOKED_AT_AFTER = timedelta(hours=8)
"""When a table is looked at again whose catalog is not known: as long as `refresh_after` is where it is not set."""
_SETTLE_AGAIN = 1.0
_STOPPED = "the service stops"


@dataclass(frozen=True, slots=True)
class Inbox:
    """The four faces of the inbox that a worker sees."""

    worklist: Worklist
    intake: Intake
    roster: Roster
    brake: Brake


@dataclass(frozen=True, slots=True)
class Terms:
    """A worker's settings.

    Attributes:
        concurrency: tables at a time.
        lease: how long a claim lasts unless it is renewed.
        drain: how long running claims may take to end after a stop.
        retry: when a table's own trouble is tried again.
    """

    concurrency: int = 32
    lease: timedelta = timedelta(seconds=30)
    drain: timedelta = timedelta(seconds=30)
    retry: RetryPolicy = RetryPolicy()


class Worker:
    """Turns hints into files.

    Args:
        inbox: where the work is.
        sources: where the truth is.
        stores: where files are.
        clock, chance: time and jitter.
        journal: where outcomes are told.
        terms: settings.
    """

    def __init__(
        self,
        inbox: Inbox,
        sources: Sources,
        stores: StoreRouter,
        *,
        clock: Clock,
        chance: Chance,
        journal: Journal,
        terms: Terms,
    ) -> None:
        self._inbox, self._sources, self._stores = inbox, sources, stores
        self._clock, self._chance, self._journal, self._terms = clock, chance, journal, terms
        self._lanes = Lanes(terms.concurrency)
        self._outages = Outages(self._lanes, clock)
        self._troubles = Troubles(clock, "worker")
        self._leases = Leases(inbox.worklist, clock, terms.lease, self._troubles)
        self._sweeps = Sweeps(clock)
        self._spellings: dict[str, Spellings] = {}
        self._pause = anyio.CancelScope()
        self._freed = False
        self._stopped = anyio.Event()

    async def run(self, stop: anyio.Event) -> None:
        """Work until stopped, then let tables that run end, at the longest for the drain; give the rest back."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._leases.run)
            tasks.start_soon(self._claim_until, stop, tasks)
            await stop.wait()
            self._pause.cancel()
            self._sweeps.stop()
            with anyio.move_on_after(self._terms.drain.total_seconds()):
                await self._stopped.wait()
                await self._leases.all_ended()
            tasks.cancel_scope.cancel()

    def breakers(self) -> list[BreakerState]:
        """The breakers that are not closed."""
        return self._lanes.breakers(self._clock.now())

    def sweeps(self) -> Mapping[str, SweepReport]:
        """By catalog, the sweep that runs, or the last one of this process."""
        return self._sweeps.latest

    async def run_once(self, tasks: TaskGroup) -> datetime | None:
        """Claim what is due and start it: when more may be due without the bell being rung."""
        now = self._clock.now()
        # By the same clock reading as the slots: a breaker that reopened in between would be waited for in vain.
        reopens_at = self._lanes.reopens_at(now)
        with self._troubles.told():
            claimed = await self._inbox.worklist.claim(self._lanes.slots(now), self._leases.running())
        if claimed.expired:
            self._journal.expired(claimed.expired)
        for letter in claimed.poisoned:
            self._journal.poisoned(letter)
        for claim in claimed.claims:
            self._lanes.started(claim.lane)
            self._leases.add(claim)
            tasks.start_soon(self._one, claim)
        return min((at for at in (claimed.next_due, reopens_at) if at is not None), default=None)

    async def _claim_until(self, stop: anyio.Event, tasks: TaskGroup) -> None:
        while not stop.is_set():
            self._freed = False
            try:
                next_due = await self.run_once(tasks)
            except Trouble as trouble:
                # The inbox's, and nothing was leased: a full disk must not end the process.
                next_due = self._clock.now() + heeded(trouble.retry_after or _SETTLE_AGAIN)
            if not self._freed and not stop.is_set():
                with anyio.CancelScope() as self._pause:
                    await self._inbox.worklist.wait(next_due)
        self._stopped.set()

    async def _one(self, claim: Claim) -> None:
        began = self._clock.now()
        kept = settling = False
        try:
            with self._leases.scope(claim):
                outcome = await self._attempt(claim)
                settling = outcome is not None
                kept = outcome is not None and await self._settled(claim, outcome, began)
            settling = False
            if not kept:
                await self._fenced(claim)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                kept = await self._settled(claim, Released(self._clock.now(), _STOPPED), began)
                # What the stop interrupted may have settled it already: then nobody else has the row.
                if not kept and not settling:
                    await self._fenced(claim)
            raise
        finally:
            self._leases.remove(claim)
            self._free(claim)

    def _free(self, claim: Claim) -> None:
        """Its slot may be what a due row waits for, however the claim ended: look again, even before the next wait."""
        self._lanes.ended(claim.lane)
        self._freed = True
        self._pause.cancel()

    async def _attempt(self, claim: Claim) -> Outcome | None:
        """What became of it; None where the lease turned out to be lost."""
        source, asked = None, Asked()
        try:
            source = await self._sources.named(claim.subject.catalog)
            outcome = await self._publish_or_sweep(claim, source, asked)
        except LeaseLost:
            return None
        except Broken:
            raise
        except Exception as error:  # noqa: BLE001 - the one place where the unexpected is caught
            return self._failed(claim, error, source)
        self._outages.success(claim.lane, claim.subject, stored=asked.any)
        return outcome

    async def _fenced(self, claim: Claim) -> None:
        """Who lost its lease may have written after the one that has it now: have the row looked at once more."""
        self._journal.fenced(claim)
        with contextlib.suppress(Trouble), self._troubles.told():
            await self._inbox.intake.put([Hint(claim.subject, sender="fenced", anew=True)])

    async def _publish_or_sweep(self, claim: Claim, source: Source | None, asked: Asked) -> Outcome:
        if source is None:
            return left_behind(claim, self._clock.now(), retired=self._sources.retired(claim.subject.catalog))
        jitter = self._chance.random()
        inbox = self._inbox
        if isinstance(claim.subject, CatalogName):
            if source.policy.event_only:
                return Done(self._clock.now(), forget=True)  # nobody can list it, and nothing calms its brake
            sweep_ports = SweepPorts(source.catalog, inbox.intake, inbox.roster, inbox.brake, self._clock)
            swept = await self._sweeps.run(Sweep(claim.subject, sweep_ports, source.policy), jitter)
            return swept or Released(self._clock.now(), _STOPPED)
        stores = asked.of(source.stores(claim.subject, self._stores))
        spellings = self._spellings_of(claim.subject.catalog, source.catalog)
        ports = Ports(inbox.worklist, inbox.roster, source.catalog, stores, self._clock, spellings)
        return await publish(claim, ports, source.policy, jitter=jitter)

    def _spellings_of(self, name: str, catalog: Catalog) -> Spellings:
        """Return how a catalog lists names, as far as this process remembers it."""
        known = self._spellings.get(name)
        if known is None or known.catalog is not catalog:
            known = self._spellings[name] = Spellings(catalog, self._clock)
        return known

    def _failed(self, claim: Claim, error: Exception, source: Source | None) -> Outcome:
        """What becomes of an attempt that raised. Nothing that is wrong with the error itself ends the process."""
        try:
            if isinstance(error, Trouble):
                return self._after_trouble(claim, error, source)
            return self._after_unforeseen(claim, error, source)
        except Exception as defect:  # noqa: BLE001 - as in `_attempt`, of what is done about it
            with contextlib.suppress(Exception):
                self._journal.surprised(claim, defect)
            return Retry(self._clock.now() + LONGEST_WISH, type(error).__name__, Cause.DEFECT)

    def _after_trouble(self, claim: Claim, trouble: Trouble, source: Source | None) -> Outcome:
        now = self._clock.now()
        if trouble.scope is Scope.INBOX:
            return Released(now + timedelta(seconds=_SETTLE_AGAIN), str(trouble), Cause.INBOX)
        if trouble.scope is Scope.PROCESS:
            trouble = self._outages.shortage(claim.subject, trouble)
        if trouble.scope is not Scope.TABLE:
            return Released(self._outages.trouble(claim.lane, trouble), str(trouble), Cause(trouble.scope))
        if isinstance(trouble, NotVended) and source is not None and source.policy.on_drop is OnDrop.KEEP:
            # What is left alone need not be seen; a name that the table has now may be told of.
            return Done(now + source.policy.refresh_after, Findings(claim.story))
        if isinstance(trouble, NamedOtherwise) and (handed_on := _handed_on(claim, trouble, source, now)) is not None:
            return handed_on
        if isinstance(trouble, Permanent) and isinstance(claim.subject, TableName):
            reason = Reason.LOCATION_REFUSED if isinstance(trouble, LocationRefused) else Reason.PERMANENT
            dead = self._refused(reason, str(trouble), source)
            # A permission may come back for many tables at once, without an event for each of them.
            return replace(dead, look_at=now + self._terms.retry.cap) if isinstance(trouble, DeniedHere) else dead
        return self._retry(claim, str(trouble), source, trouble.retry_after, Cause.TABLE)

    def _after_unforeseen(self, claim: Claim, error: Exception, source: Source | None) -> Outcome:
        match kind_of(error):
            case Unforeseen.SHORTAGE:
                shortage = Transient(
                    str(claim.subject),
                    scope=Scope.PROCESS,
                    expected="free descriptors, threads and memory",
                    found=f"{type(error).__name__}: {error}",
                    remedy="raise the process's limits of open files, threads and memory",
                )
                return self._after_trouble(claim, shortage, source)
            case Unforeseen.PASSING:
                return self._retry(claim, f"{type(error).__name__}: {error}", source, None, Cause.TABLE)
            case Unforeseen.DEFECT:
                return self._after_surprise(claim, error, source)

    def _after_surprise(self, claim: Claim, error: Exception, source: Source | None) -> Outcome:
        self._journal.surprised(claim, error)
        if claim.attempt >= SURPRISES and isinstance(claim.subject, TableName):
            return self._refused(Reason.POISON, f"{claim.subject}: {type(error).__name__}: {error}", source)
        return self._retry(claim, f"{type(error).__name__}: {error}", source, None, Cause.DEFECT)

    def _retry(self, claim: Claim, error: str, source: Source | None, wish: float | None, cause: Cause) -> Retry | Dead:
        now = self._clock.now()
        retry, jitter = self._terms.retry, self._chance.random()
        if isinstance(claim.subject, TableName):
            at = retry.next_attempt(claim.attempt, claim.since, now, jitter)
        else:
            # Never given up: nobody would look at its tables any more.
            at = now + retry.pause(claim.attempt, jitter)
        if at is None:
            detail = f"after {claim.attempt} attempts since {claim.since:%F %T}: {error}"
            return self._refused(Reason.EXHAUSTED, detail, source)
        return Retry(max(at, now + heeded(wish)), error, cause)

    def _refused(self, reason: Reason, detail: str, source: Source | None) -> Dead:
        """A dead letter of a table that heals without a new event, should it have been refused by mistake."""
        after = source.policy.refresh_after if source is not None else LOOKED_AT_AFTER
        return Dead(reason, detail, look_at=self._clock.now() + after)

    async def _settled(self, claim: Claim, outcome: Outcome, began: datetime) -> bool:
        """Settle, however long the inbox is in trouble: a claim left leased would count as a crash.

        Returns:
            False: another worker has the row.
        """
        while True:
            try:
                with self._troubles.told():
                    kept = await self._inbox.worklist.settle(claim, outcome, self._clock.now())
            except Trouble:
                await anyio.sleep(_SETTLE_AGAIN)
                continue
            if kept:
                self._journal.settled(claim, outcome, (self._clock.now() - began).total_seconds())
            return kept


def _handed_on(claim: Claim, trouble: NamedOtherwise, source: Source | None, now: datetime) -> Done | None:
    """Have the table looked at that the catalog's paths name so; None where this name needs a dead letter.

    Of a path that can be read in two ways a gateway tells of both tables, and one of them does not exist. A sender of
    events says a name level by level: its event must not end without a trace.
    """
    if source is None or not isinstance(claim.subject, TableName) or claim.story.live is not None or claim.locations:
        return None
    # A gateway's intent asks without a hint.
    if not (claim.wish.guessed or claim.wish == Wish()):
        return None
    instead = replace(claim.subject, namespace=trouble.instead)
    if not trouble.instead or not all(trouble.instead) or not source.policy.table_filter.covers(instead):
        return None
    return Done(now, Findings(claim.story, asks=(Ask(instead),)), forget=True)
