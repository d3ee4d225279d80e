"""One process of the service in the simulation: the real worker over ports that may be slow, die, hang or fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from sfn.catalog.told import ToldCatalog
from sfn.errors import Scope, Transient
from sfn.inbox.bell import Bell
from sfn.inbox.letters import Letter
from sfn.inbox.sqlite.ledger import Ledger
from sfn.publish.policy import Policy
from sfn.words import CatalogName, Claim, Hint, Outcome, Subject
from sfn.work.sources import Source
from sfn.work.worker import Inbox, Terms, Worker
from tests.simulation.loop import SimulatedLoop
from tests.simulation.ports import SimulatedCatalog, SimulatedInbox, SimulatedStore
from tests.simulation.truth import CatalogTruth, Files

T = TypeVar("T")
LAKE = "s3://lake"
"""Where all tables lie."""


@dataclass(slots=True)
class Weather:
    """How bad the world is.

    Attributes:
        kill: the chance that a port's call never returns, before or after its effect.
        stop: the chance that it returns very late.
        fail: the chance that a call of catalog or store fails.
        lag: how far replicas of the catalog may be behind, in seconds.
        least_lag: how far those that lag are behind at least.
        lagging: the chance that a lagging replica answers.
        conditional_delete: whether the store can delete on a condition.
        store_down: spells without a store.
        slow: the chance that a transaction of the inbox takes as long as its disk hangs; all others wait for it.
        calm: nothing is killed, stopped or fails any more; replicas still lag.
    """

    kill: float = 0.008
    stop: float = 0.008
    fail: float = 0.04
    lag: float = 4.0
    least_lag: float = 0.0
    lagging: float = 0.25
    conditional_delete: bool = True
    store_down: list[tuple[float, float]] = field(default_factory=list)
    slow: float = 0.0
    calm: bool = False


class Service:
    """The processes that share one inbox, for one catalog."""

    def __init__(
        self,
        truth: CatalogTruth,
        files: Files,
        policy: Policy,
        weather: Weather,
        *,
        loop: SimulatedLoop,
        rng: random.Random,
        terms: Terms,
        ledger: Callable[[], Ledger],
        count: Callable[[str], None],
        say: Callable[[str], None],
        looked: Callable[[Subject], None],
    ) -> None:
        self.truth, self.files, self.policy, self.weather = truth, files, policy, weather
        self.loop, self.rng, self.terms, self.count, self.say, self.looked = loop, rng, terms, count, say, looked
        self._new_ledger = ledger
        self.started = self.is_away = False
        self._busy_until = 0.0
        self.script: Callable[[Node, str], Awaitable[None]] | None = None
        self.ledger = ledger()
        self.nodes: list[Node] = []
        for _ in range(2):
            self.boot()

    def boot(self) -> None:
        """Start one more process."""
        if not self.is_away:
            node = Node(self)
            self.nodes.append(node)
            self.loop.create_task(node.run())

    def crash(self, node: Node) -> None:
        """Kill a process; another one comes soon."""
        if node.alive:
            node.alive = False
            self.nodes.remove(node)
            self.count("killed")
            self.loop.call_later(self.rng.uniform(0.1, 5), self.boot)

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
        for _ in range(2):
            self.boot()

    def lose_inbox(self) -> None:
        """All processes die and the inbox is gone."""
        for node in list(self.nodes):
            self.crash(node)
        self.ledger = self._new_ledger()
        self.started = False
        self.count("inbox lost")

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
        if not self.weather.calm and self.weather.slow and self.rng.random() < self.weather.slow:
            self.occupy(self.rng.uniform(5, 60))
            self.count("slow")
            await asyncio.sleep(self._busy_until - self.loop.time())
        return result

    def ring(self) -> None:
        """Tell every process that the inbox changed."""
        for node in self.nodes:
            node.bell.ring()


class Node:
    """One process. Every call of a port passes through `step`, before and after its effect."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.alive = True
        self._stopped_until = 0.0
        self.clock = service.loop
        self.bell = Bell(self.clock)
        self.inbox = SimulatedInbox(self)
        self.stop = anyio.Event()
        store = SimulatedStore(self)
        told = ToldCatalog(service.truth.name, service.truth.catalog_id, store.part, (LAKE,))
        source = Source(told if service.policy.told else SimulatedCatalog(self), service.policy)
        self.worker = Worker(
            Inbox(self.inbox, self.inbox, self.inbox, self.inbox),
            OneSource(service.truth.name, source),
            store,
            clock=self.clock,
            chance=service.rng,
            journal=Tally(service.count, service.say, service.looked),
            terms=service.terms,
        )

    async def run(self) -> None:
        """What the daemon does: a first sweep for an inbox that never had one, and the worker until it is stopped."""
        if not self.service.started and not self.service.policy.told:
            name = self.service.truth.name
            await self.inbox.put([Hint(CatalogName(name), sender="start")])
            self.service.started = True
        await self.worker.run(self.stop)

    async def step(self, call: str = "") -> None:
        """Let time pass; perhaps die here, or hang.

        Args:
            call: which port's call this stands before or after, for scripted histories.
        """
        service, weather = self.service, self.service.weather
        if service.script is not None:
            await service.script(self, call)
        await asyncio.sleep(service.rng.expovariate(50))
        if self.alive and not weather.calm:
            chance = service.rng.random()
            if chance < weather.kill:
                service.crash(self)
            elif chance < weather.kill + weather.stop:
                self._stopped_until = service.loop.time() + service.rng.uniform(5, 60)
                service.count("stopped")
        await self._hang()
        if not self.alive:
            await asyncio.Future()

    async def _hang(self) -> None:
        """Sit out a SIGSTOP, and one that came meanwhile."""
        left = self._stopped_until - self.service.loop.time()
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
        weather, now = self.service.weather, self.service.loop.time()
        behind = (
            self.service.rng.uniform(weather.least_lag, weather.lag)
            if self.service.rng.random() < weather.lagging
            else 0
        )
        return now - behind

    def maybe_fail(self, where: str, kind: type[Transient] = Transient) -> None:
        """A call fails now and then, of its own."""
        weather = self.service.weather
        if not weather.calm and self.service.rng.random() < weather.fail:
            raise kind(where, scope=Scope.TABLE, expected="an answer", found="none")


@dataclass(frozen=True, slots=True)
class OneSource:
    """The one catalog."""

    name: str
    source: Source

    async def named(self, catalog: str) -> Source | None:
        return self.source if catalog == self.name else None

    def retired(self, catalog: str) -> bool:
        return False


class Tally:
    """The worker's journal: counts outcomes, keeps surprises."""

    def __init__(
        self, count: Callable[[str], None], say: Callable[[str], None], looked: Callable[[Subject], None]
    ) -> None:
        self._count, self._say, self._looked = count, say, looked

    def settled(self, claim: Claim, outcome: Outcome, seconds: float) -> None:
        self._looked(claim.subject)
        self._count(type(outcome).__name__.lower())
        told = getattr(outcome, "why", "") or getattr(outcome, "reason", "") or getattr(outcome, "error", "")
        self._say(f"  {claim.subject}: {type(outcome).__name__} {told}")

    def fenced(self, claim: Claim) -> None:
        self._count("fenced")

    def expired(self, leases: int) -> None:
        self._say(f"  {leases} leases ran out")

    def poisoned(self, letter: Letter) -> None:
        self._count("poisoned")
        self._say(f"  {letter.subject}: poison")

    def surprised(self, claim: Claim, error: Exception) -> None:
        raise AssertionError(f"{claim.subject}: unexpected {error!r}") from error
