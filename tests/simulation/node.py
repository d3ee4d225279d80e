"""One process of the service in the simulation: the real worker over ports that may be slow, die, hang or fail."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

import anyio

from sfn.errors import Scope, Transient, Unsure
from sfn.inbox import Claimed
from sfn.inbox.bell import Bell
from sfn.inbox.sqlite.ledger import Ledger
from sfn.publish.policy import Policy
from sfn.store import Gone, Guarantees, Moved
from sfn.words import (
    Accepted,
    Answer,
    CatalogName,
    Claim,
    Held,
    Hint,
    Known,
    Loaded,
    Missing,
    NotModified,
    Outcome,
    Slots,
    Step,
    Table,
    TableName,
)
from sfn.work.retry import RetryPolicy
from sfn.work.worker import Inbox, Source, Terms, Worker
from tests.simulation.loop import SimulatedLoop
from tests.simulation.truth import CatalogTruth, Files

T = TypeVar("T")


@dataclass(slots=True)
class Weather:
    """How bad the world is.

    Attributes:
        kill: the chance that a port's call never returns, before or after its effect.
        stop: the chance that it returns very late.
        fail: the chance that a call of catalog or store fails.
        lag: how far replicas of the catalog may be behind, in seconds.
        lagging: the chance that a lagging replica answers.
        conditional_delete: whether the store can delete on a condition.
        store_down: spells without a store.
        calm: nothing is killed, stopped or fails any more; replicas still lag.
    """

    kill: float = 0.008
    stop: float = 0.008
    fail: float = 0.04
    lag: float = 4.0
    lagging: float = 0.25
    conditional_delete: bool = True
    store_down: list[tuple[float, float]] = field(default_factory=list)
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
    ) -> None:
        self.truth, self.files, self.policy, self.weather = truth, files, policy, weather
        self.loop, self.rng, self.terms, self.count, self.say = loop, rng, terms, count, say
        self._new_ledger = ledger
        self.started = False
        self.script: Callable[[Node, str], Awaitable[None]] | None = None
        self.ledger = ledger()
        self.nodes: list[Node] = []
        for _ in range(2):
            self.boot()

    def boot(self) -> None:
        """Start one more process."""
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

    def lose_inbox(self) -> None:
        """All processes die and the inbox is gone."""
        for node in list(self.nodes):
            self.crash(node)
        self.ledger = self._new_ledger()
        self.started = False
        self.count("inbox lost")

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
        source = Source(SimulatedCatalog(self), service.policy)
        self.worker = Worker(
            Inbox(self.inbox, self.inbox, self.inbox, self.inbox),
            OneSource(service.truth.name, source),
            SimulatedStore(self),
            clock=self.clock,
            chance=service.rng,
            journal=Tally(service.count, service.say),
            terms=service.terms,
        )

    async def run(self) -> None:
        """What the daemon does: a first sweep for an inbox that never had one, and the worker until it is stopped."""
        if not self.service.started:
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
        result = work()
        await self.step(f"after {call}")
        return result

    def replica_time(self) -> float:
        """Until when the replica that answers has heard."""
        weather, now = self.service.weather, self.service.loop.time()
        behind = self.service.rng.uniform(0, weather.lag) if self.service.rng.random() < weather.lagging else 0
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


class Tally:
    """The worker's journal: counts outcomes, keeps surprises."""

    def __init__(self, count: Callable[[str], None], say: Callable[[str], None]) -> None:
        self._count, self._say = count, say

    def settled(self, claim: Claim, outcome: Outcome, seconds: float) -> None:
        self._count(type(outcome).__name__.lower())
        told = getattr(outcome, "why", "") or getattr(outcome, "reason", "") or getattr(outcome, "error", "")
        self._say(f"  {claim.subject}: {type(outcome).__name__} {told}")

    def fenced(self, claim: Claim) -> None:
        self._count("fenced")

    def surprised(self, claim: Claim, error: Exception) -> None:
        raise AssertionError(f"{claim.subject}: unexpected {error!r}") from error


class SimulatedInbox:
    """All faces of the inbox: the real SQL, one step at a time."""

    def __init__(self, node: Node) -> None:
        self._node, self._service = node, node.service

    def _now(self) -> datetime:
        return self._node.clock.now()

    async def put(self, notes: Sequence[Hint]) -> Accepted:
        accepted = await self._node.transact("put", lambda: self._service.ledger.put(notes, self._now()))
        self._service.ring()
        return accepted

    async def wait(self, until: datetime | None) -> None:
        await self._node.bell.wait(until)

    async def claim(self, slots: Slots, now: datetime) -> Claimed:
        self._node.bell.clear()
        return await self._node.transact("claim", lambda: self._service.ledger.claim(slots, self._now()))

    async def renew(self, claims: Sequence[Claim], now: datetime) -> list[Claim]:
        return await self._node.transact("renew", lambda: self._service.ledger.renew(claims, self._now()))

    async def remember(self, claim: Claim, location: str, uuid: str | None) -> frozenset[TableName] | None:
        return await self._node.transact(
            "remember", lambda: self._service.ledger.remember(claim, location, uuid, self._now())
        )

    async def permit(self, claim: Claim, step: Step, now: datetime) -> bool:
        return await self._node.transact("permit", lambda: self._service.ledger.permit(claim, step, self._now()))

    async def settle(self, claim: Claim, outcome: Outcome, now: datetime) -> bool:
        def settle() -> bool:
            kept = self._service.ledger.settle(claim, outcome, self._now())
            self._service.ring()
            return kept

        return await self._node.transact("settle", settle)

    async def known(self, catalog: str) -> AsyncIterator[Known]:
        page = await self._known(catalog, "")
        while page:
            for _, known in page:
                yield known
            page = await self._known(catalog, page[-1][0])

    async def _known(self, catalog: str, after: str) -> list[tuple[str, Known]]:
        return await self._node.transact("known", lambda: self._service.ledger.roster.known(catalog, after, 10))

    async def named(self, catalog: str, uuid: str) -> list[TableName]:
        return await self._node.transact("named", lambda: self._service.ledger.roster.named(catalog, uuid))

    async def older(self, catalog: str, uuid: str, before: datetime) -> list[TableName]:
        return await self._node.transact("older", lambda: self._service.ledger.roster.older(catalog, uuid, before))

    async def neighbours(self, table: TableName, location: str) -> frozenset[TableName]:
        return await self._node.transact("neighbours", lambda: self._service.ledger.neighbours(table, location))

    async def limit(self, catalog: str) -> int:
        return await self._node.transact("limit", lambda: self._service.ledger.limit(catalog))

    async def release(self, catalog: str, now: datetime) -> int:
        return await self._node.transact("release", lambda: self._service.ledger.release(catalog, self._now()))


class SimulatedCatalog:
    """The catalog as this process reaches it: some replica of it, when it answers at all."""

    def __init__(self, node: Node) -> None:
        self._node, self._truth = node, node.service.truth

    async def load(self, table: TableName, known: str | None) -> Answer:
        found = await self._answer(f"load {table}", lambda at: self._truth.get(table, at))
        if isinstance(found, Missing):
            return found
        etag = hashlib.md5(repr(found).encode(), usedforsecurity=False).hexdigest()
        return NotModified() if etag == known else Loaded(found, etag)

    async def listed(self, table: TableName) -> bool:
        return isinstance(await self._answer(f"listed {table}", lambda at: self._truth.get(table, at)), Table)

    async def tables(self) -> AsyncIterator[TableName]:
        def listing(at: float) -> list[TableName]:
            return [name for name in sorted(self._truth.history) if isinstance(self._truth.get(name, at), Table)]

        for name in await self._answer("tables", listing):
            yield name

    async def _answer(self, call: str, ask: Callable[[float], T]) -> T:
        node = self._node
        await node.step(f"before {call}")
        if self._truth.is_down():
            raise Transient(self._truth.name, scope=Scope.CATALOG, expected="an answer", found="none")
        node.maybe_fail(self._truth.name)
        found = ask(node.replica_time())
        await node.step(f"after {call}")
        return found


class SimulatedStore:
    """The one store, as this process reaches it. Tags are digests: a content that repeats repeats its tag."""

    def __init__(self, node: Node) -> None:
        self._node, self._service = node, node.service

    def at(self, location: str) -> SimulatedStore:
        return self

    async def read(self, key: str) -> Held | None:
        await self._begin("read", key)
        held = self._held(key)
        await self._node.step(f"after read {key}")
        return held

    async def write(self, key: str, body: bytes, replacing: Held | None) -> Held | Moved:
        await self._begin("write", key)
        if self._held(key) != replacing:
            await self._node.step()
            return Moved()
        self._service.files.put(key, body, self._service.truth.catalog_id)
        self._service.count("written")
        await self._node.step(f"after write {key}")
        self._node.maybe_fail(key, Unsure)
        return _held(body)

    async def delete(self, key: str, expected: Held) -> Gone | Moved:
        await self._begin("delete", key)
        held = self._held(key)
        if held is not None:
            if held != expected and self._service.weather.conditional_delete:
                await self._node.step()
                return Moved()
            self._service.files.put(key, None, self._service.truth.catalog_id)
            self._service.count("deleted")
        await self._node.step(f"after delete {key}")
        self._node.maybe_fail(key, Unsure)
        return Gone()

    async def list(self, prefix: str, limit: int) -> list[str]:
        await self._begin("list", prefix)
        keys = self._service.files.below(prefix)[:limit]
        await self._node.step(f"after list {prefix}")
        return keys

    async def prove(self, key: str) -> Guarantees:
        return Guarantees(swap=True, conditional_delete=self._service.weather.conditional_delete)

    async def _begin(self, verb: str, key: str) -> None:
        await self._node.step(f"before {verb} {key}")
        now, weather = self._service.loop.time(), self._service.weather
        if any(start <= now < end for start, end in weather.store_down):
            raise Transient(key, scope=Scope.STORE, expected="an answer", found="none")
        self._node.maybe_fail(key)

    def _held(self, key: str) -> Held | None:
        body = self._service.files.bodies.get(key)
        return None if body is None else _held(body)


def _held(body: bytes) -> Held:
    return Held(body, hashlib.md5(body, usedforsecurity=False).hexdigest())


def policy_of(truth: CatalogTruth) -> Policy:
    """The times of the simulation: short enough to pass many of them in one history."""
    return Policy(
        catalog_id=truth.catalog_id,
        replica_lag=timedelta(seconds=6),
        absence_delay=timedelta(seconds=30),
        expire_after=timedelta(seconds=3000),
        refresh_after=timedelta(seconds=1000),
        min_publish_interval=timedelta(seconds=1),
        sweep_every=timedelta(seconds=120),
    )


TERMS = Terms(
    concurrency=6,
    lease=timedelta(seconds=20),
    drain=timedelta(seconds=10),
    retry=RetryPolicy(base=timedelta(seconds=2), cap=timedelta(seconds=20), max_attempts=10_000),
)
