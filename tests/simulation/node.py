"""One process of the service in the simulation: the real worker over ports that may be slow, die, hang or fail."""

from __future__ import annotations

import asyncio
import json
import random
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import anyio

from sfn.catalogs.event_sourced import EventCatalog
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, JobKey
from sfn.domain.jobs import DeadLettered, DeadLetterReason, LeasedJob, Outcome
from sfn.errors import ErrorScope, ExternalError, Transient
from sfn.inbox.model import NewDeadLetter
from sfn.inbox.transaction import WorkerSignal
from sfn.publish.policy import Policy
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.worker import Worker, WorkerOptions
from tests.simulation.catalog import CatalogTruth, Files
from tests.simulation.faults import Faults
from tests.simulation.gateway import Gateway
from tests.simulation.inbox import SharedInbox
from tests.simulation.loop import SimulatedLoop
from tests.simulation.ports import SimulatedCatalog, SimulatedStore

T = TypeVar("T")
LAKE = "s3://lake"
"""Where all tables lie."""


class Service:
    """The processes that share one inbox, for one catalog."""

    def __init__(
        self,
        truth: CatalogTruth,
        files: Files,
        policy: Policy,
        faults: Faults,
        *,
        loop: SimulatedLoop,
        rng: random.Random,
        terms: WorkerOptions,
        kept: Callable[[Service], SharedInbox],
        processes: int,
        observer: Observer,
        gateway: Callable[[Node], Gateway | None],
    ) -> None:
        self.truth, self.files, self.policy, self.faults = truth, files, policy, faults
        self.loop, self.rng, self.terms, self.observer, self.count = loop, rng, terms, observer, observer.count
        self._new_kept, self._processes = kept, processes
        self.gateway = gateway
        self.started = self.is_away = self.has_lost_debts = False
        self._busy_until = 0.0
        self.script: Callable[[Node, str], Awaitable[None]] | None = None
        self.kept = kept(self)
        self.nodes: list[Node] = []
        self._boot_all()

    def boot(self) -> None:
        """Start one more process."""
        if not self.is_away:
            node = Node(self)
            self.nodes.append(node)
            self.loop.create_task(node.run(), context=node.context)

    def crash(self, node: Node) -> None:
        """Kill a process; another one comes soon."""
        if node.alive:
            node.alive = False
            self.kept.abandoned(node)
            self.count("killed")
            self.left(node)
            self._replace(node)

    def end(self, node: Node) -> None:
        """Have a process end as it should, which may take as long as its drain; another one comes soon."""
        node.stop.set()
        self.count("ended")
        self._replace(node)

    def left(self, node: Node) -> None:
        """A process is no more: what it owed to the inbox is lost. That is stated, and only a sweep finds it."""
        if node.gateway is not None and node.gateway.owes:
            self.has_lost_debts = True
            self.count("debt lost")

    def resettle(self, policy: Policy) -> None:
        """All processes are started anew with other settings."""
        self.policy = policy
        for node in list(self.nodes):
            self.crash(node)
        self.count("resettled")

    async def leave(self, seconds: float) -> None:
        """All processes die, and none comes for so long."""
        self.is_away = True
        for node in list(self.nodes):
            self.crash(node)
        await asyncio.sleep(seconds)
        self.is_away = False
        self._boot_all()

    def lose_inbox(self) -> None:
        """All processes die and the inbox is gone."""
        for node in list(self.nodes):
            self.crash(node)
        self.kept = self._new_kept(self)
        self.started = False
        self.count("inbox lost")

    def cut_power(self) -> None:
        """All processes die, and what was not synced of the inbox is gone, or a part of it."""
        for node in list(self.nodes):
            self.crash(node)
        self.kept.cut_power()
        self.count("power cut")

    def occupy(self, seconds: float) -> None:
        """A transaction that was begun keeps the inbox busy for so long more; the next ones wait."""
        self._busy_until = max(self._busy_until, self.loop.time()) + seconds

    async def write(self, work: Callable[[], T]) -> T:
        """Run a transaction once those before it have ended; who asked is answered when it has."""
        if self._busy_until > self.loop.time():
            # A moment apart: timers of the same time have no order.
            self.occupy(1e-6)
            await asyncio.sleep(self._busy_until - self.loop.time())
        result = work()
        if not self.faults.calm and self.faults.slow and self.rng.random() < self.faults.slow:
            self.occupy(self.rng.uniform(5, 60))
            self.count("slow")
            await asyncio.sleep(self._busy_until - self.loop.time())
        return result

    def ring(self) -> None:
        """Tell every process that the inbox changed."""
        for node in self.nodes:
            node.bell.notify()

    def _boot_all(self) -> None:
        for _ in range(self._processes):
            self.boot()

    def _replace(self, node: Node) -> None:
        if node in self.nodes:
            self.nodes.remove(node)
            self.loop.call_outside(self.rng.uniform(0.1, 5), self.boot)


class Node:
    """One process. Every call of a port passes through `step`, before and after its effect."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.alive = True
        self.stopped_until = 0.0
        self.context = service.kept.context(self)
        self.clock = service.kept.clock()
        self.bell = WorkerSignal()
        self.inbox = service.kept.opened(self)
        self.gateway = service.gateway(self)
        self.stop = anyio.Event()
        store = SimulatedStore(self)
        told = EventCatalog(
            service.truth.name, service.truth.catalog_id, store.read_range, (LAKE,), self.inbox.reported_tables
        )
        source = ConnectedCatalog(told if service.policy.event_only else SimulatedCatalog(self), service.policy)
        self.worker = Worker(
            self.inbox,
            OneSource(service.truth.name, source),
            store,
            clock=self.clock,
            chance=service.rng,
            sink=OutcomeCounter(service.observer),
            options=service.terms,
        )

    async def run(self) -> None:
        """What the daemon does: a first sweep for an inbox that never had one, and the worker until it is stopped."""
        if self.gateway is not None:
            self.gateway.open()
        if not self.service.started and self.service.policy.is_swept:
            await self._put(Notification(CatalogName(self.service.truth.name), sender="start"))
            self.service.started = True
        await self.worker.run(self.stop)
        self.service.kept.closed(self)
        self.alive = False
        self.service.left(self)

    async def step(self, call: str = "", risk: float = 1.0, pace: float = 50.0) -> None:
        """Let time pass; perhaps die here, or hang.

        Args:
            call: which port's call this stands before or after, for scripted histories.
            risk: of the usual chance that this happens.
            pace: so many such steps take a second.
        """
        service, faults = self.service, self.service.faults
        if service.script is not None:
            await service.script(self, call)
        await asyncio.sleep(service.rng.expovariate(pace))
        if self.alive and not faults.calm:
            chance = service.rng.random() / risk
            if chance < faults.kill:
                service.crash(self)
            elif chance < faults.kill + faults.stop:
                self.stopped_until = service.loop.time() + service.rng.uniform(5, 60)
                service.count("stopped")
        await self._awake()

    async def hear(self, call: str) -> None:
        """An answer comes, whenever somebody is there to hear it."""
        if self.service.script is not None:
            await self.service.script(self, call)
        await self._awake()

    async def _put(self, hint: Notification) -> None:
        try:
            await self.inbox.put([hint])
        except ExternalError:
            await asyncio.sleep(1)
            await self._put(hint)

    async def _awake(self) -> None:
        await self._hang()
        if not self.alive:
            await asyncio.Future()

    async def _hang(self) -> None:
        """Sit out a SIGSTOP, and one that came meanwhile."""
        left = self.stopped_until - self.service.loop.time()
        if left > 0:
            await asyncio.sleep(left)
            await self._hang()

    async def transact(self, call: str, work: Callable[[], T]) -> T:
        """One transaction of the inbox."""
        await self.step(f"before {call}")
        result = await self.service.write(work)
        await self.step(f"after {call}")
        return result

    def replica_time(self) -> float:
        """Until when the replica that answers has heard."""
        faults, now = self.service.faults, self.service.loop.time()
        behind = (
            self.service.rng.uniform(faults.least_lag, faults.lag) if self.service.rng.random() < faults.lagging else 0
        )
        return now - behind

    def maybe_fail(self, where: str, kind: type[Transient] = Transient) -> None:
        """A call fails now and then, of its own."""
        faults = self.service.faults
        if not faults.calm and self.service.rng.random() < faults.fail:
            raise kind(where, scope=ErrorScope.TABLE, expected="an answer", found="none")


@dataclass(frozen=True, slots=True)
class OneSource:
    """The one catalog."""

    name: str
    source: ConnectedCatalog

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        return self.source if catalog == self.name else None

    def is_retired(self, catalog: str) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Observer:
    """Who is told what services do.

    Attributes:
        count: of something that is counted.
        say: of what a reader of the history wants to know.
        looked: of a row whose claim ended.
        blame: of what must not be: its kind, and what.
    """

    count: Callable[[str], None]
    say: Callable[[str], None]
    looked: Callable[[JobKey], None]
    blame: Callable[[str, str], None]


class OutcomeCounter:
    """The worker's journal: counts outcomes, tells of surprises."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._count, self._say = observer, observer.count, observer.say

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        self._observer.looked(claim.subject)
        self._count(outcome.label)
        told = getattr(outcome, "why", "") or getattr(outcome, "reason", "") or getattr(outcome, "error", "")
        self._say(f"  {claim.subject}: {type(outcome).__name__} {told}")
        if isinstance(outcome, DeadLettered) and outcome.reason is DeadLetterReason.PERMANENT:
            # Nothing in these worlds is denied to one table: what is denied is denied everywhere, and only for a while.
            self._observer.blame("given up for the store", f"{claim.subject}: {outcome.detail}")

    def on_lease_lost(self, claim: LeasedJob) -> None:
        self._count("fenced")

    def on_leases_expired(self, leases: int) -> None:
        self._say(f"  {leases} leases ran out")

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        self._count("poisoned")
        self._say(f"  {letter.subject}: poison")

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        said = "".join(traceback.format_exception(error))[-600:]
        self._observer.blame("surprise", f"{claim.subject}: {said}")


def brief(body: bytes | None) -> str:
    """A file's content in one line, for the trace."""
    if body is None:
        return "deleted"
    if not body.startswith(b"{"):
        return body.decode()
    doc = json.loads(body)
    forward = (doc.get("moved_to") or {}).get("sfn_file_path", "")
    turned = " turned" if doc.get("turned") else ""
    return f"{doc['state']}{turned} {doc['guid'][:8]} {doc['metadata_file_path']} {forward} at {doc['written_at'][11:]}"
