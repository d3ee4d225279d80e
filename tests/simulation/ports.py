"""The ports of a simulated process: the real inbox's SQL, a catalog's replicas and a store, each call a step."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from sfn.catalog import SkipNamespace, UnlistedNamespace
from sfn.errors import Permanent, Scope, Transient, Trouble, Unsure
from sfn.inbox import Claimed
from sfn.inbox.letters import RELEASED, Order
from sfn.inbox.sqlite.ledger import Ledger
from sfn.store import Deleted, Guarantees, PreconditionFailed
from sfn.store.denials import ERROR_BY_REACH, PermissionTracker
from sfn.words import (
    Accepted,
    Answer,
    Claim,
    Held,
    Known,
    Loaded,
    Note,
    NotModified,
    Outcome,
    Slots,
    Step,
    Table,
    TableName,
    Told,
)

if TYPE_CHECKING:
    from tests.simulation.node import Node

T = TypeVar("T")


class SimulatedInbox:
    """All faces of the inbox: the real SQL, one step at a time."""

    def __init__(self, node: Node, ledger: Ledger) -> None:
        self._node, self._service, self._ledger = node, node.service, ledger

    def _now(self) -> datetime:
        return self._node.clock.now()

    async def put(self, notes: Sequence[Note]) -> Accepted:
        await self._is_full()
        [(accepted, stirring)] = await self._node.transact("put", lambda: self._ledger.put_all([(notes, self._now())]))
        if stirring:
            self._service.ring()
        return accepted

    async def _is_full(self) -> None:
        """While it takes nothing it says so, or nothing at all."""
        now = self._service.loop.time()
        left = max((end - now for start, end in self._service.weather.inbox_full if start <= now < end), default=0.0)
        if left > 0:
            await asyncio.sleep(self._service.rng.choice([0.0, left]))
            raise Transient("inbox", scope=Scope.INBOX, expected="room", found="none", retry_after=1.0)

    async def wait(self, until: datetime | None) -> None:
        await self._node.bell.wait(until)

    async def claim(self, slots: Slots, held: Sequence[Claim] = ()) -> Claimed:
        self._node.bell.clear()
        return await self._node.transact("claim", lambda: self._ledger.claim(slots, self._now(), held))

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        return await self._node.transact("renew", lambda: self._ledger.renew(claims, self._now()))

    async def remember(self, claim: Claim, location: str, uuid: str | None) -> frozenset[TableName] | None:
        return await self._node.transact("remember", lambda: self._ledger.remember(claim, location, uuid, self._now()))

    async def permit(self, claim: Claim, step: Step, now: datetime) -> bool:
        return await self._node.transact("permit", lambda: self._ledger.permit(claim, step, self._now()))

    async def settle(self, claim: Claim, outcome: Outcome, now: datetime) -> bool:
        def settle() -> bool:
            kept = self._ledger.settle(claim, outcome, self._now())
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
        return await self._node.transact("known", lambda: self._ledger.roster.known(catalog, after, 10))

    async def carrying(self, catalog: str, uuid: str) -> list[Known]:
        return await self._node.transact("carrying", lambda: self._ledger.roster.carrying(catalog, uuid))

    async def told(self, table: TableName) -> Told | None:
        return await self._node.transact("told", lambda: self._ledger.told(table))

    async def neighbours(self, table: TableName, location: str) -> frozenset[TableName]:
        return await self._node.transact("neighbours", lambda: self._ledger.neighbours(table, location))

    async def limit(self, catalog: str) -> int:
        return await self._node.transact("limit", lambda: self._ledger.limit(catalog))

    async def release(self, catalog: str, order: Order) -> int:
        released = await self._node.transact("release", lambda: self._ledger.desk.release(catalog, order))
        assert released.count < RELEASED, "one batch is all of it"
        return released.count


class SimulatedCatalog:
    """The catalog as this process reaches it: some replica of it, when it answers at all."""

    def __init__(self, node: Node) -> None:
        self._node, self._truth = node, node.service.truth

    async def load(self, table: TableName, known_etag: str | None, history: Told | None = None) -> Answer:
        found = await self._answer(f"load {table}", lambda at: self._truth.get(table, at))
        if not isinstance(found, Table):
            return found
        etag = hashlib.md5(repr(found).encode(), usedforsecurity=False).hexdigest()
        return NotModified() if etag == known_etag else Loaded(found, etag)

    async def is_listed(self, table: TableName) -> bool:
        found = await self._answer(f"listed {table}", lambda at: self._truth.get(table, at))
        return isinstance(found, Table) and self._truth.listed(table) == table

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableName | UnlistedNamespace]:
        def listing(at: float) -> list[TableName]:
            return [name for name in sorted(self._truth.history) if isinstance(self._truth.get(name, at), Table)]

        self._node.service.kept.sweeping(self._node)
        for name in await self._answer("tables", listing):
            yield name

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        self._refuse_unlisted()

        def listing(_: float) -> list[tuple[str, ...]]:
            known = {name.namespace[:depth] for name in self._truth.history for depth in range(1, 3)}
            return sorted(space for space in known if len(space) == len(parent) + 1 and space[:-1] == parent)

        for space in await self._answer(f"namespaces {parent}", listing):
            yield space

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableName]:
        self._refuse_unlisted()

        def listing(at: float) -> list[TableName]:
            names = [name for name in sorted(self._truth.history) if name.namespace == namespace]
            return [name for name in names if isinstance(self._truth.get(name, at), Table)]

        for name in await self._answer(f"within {namespace}", listing):
            yield name

    def _refuse_unlisted(self) -> None:
        if self._truth.is_unlisted():
            raise Permanent(self._truth.name, scope=Scope.TABLE, expected="a listing", found="status 403")

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
        self._denials = PermissionTracker(node.service.loop.time)

    def store_for(self, location: str) -> SimulatedStore:
        return self

    async def read(self, key: str) -> Held | None:
        await self._begin("read", key)
        held = self._held(key)
        await self._node.step(f"after read {key}")
        return held

    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        await self._begin("open", key)
        body = self._service.files.bodies.get(key)
        await self._node.step(f"after open {key}")
        return None if body is None else body[start : start + most]

    async def write(self, key: str, body: bytes, replacing: Held | None) -> Held | PreconditionFailed:
        await self._begin("write", key)
        if self._held(key) != replacing:
            await self._node.step()
            return PreconditionFailed()
        self._service.files.put(key, body, self._service.truth.catalog_id)
        self._service.count("written")
        self._denials.note_permitted("write", key)
        await self._node.step(f"after write {key}")
        self._node.maybe_fail(key, Unsure)
        return _held(body)

    async def delete(self, key: str, expected: Held) -> Deleted | PreconditionFailed:
        await self._begin("delete", key)
        held = self._held(key)
        if held is not None:
            if held != expected and self._service.weather.conditional_delete:
                await self._node.step()
                return PreconditionFailed()
            self._service.files.put(key, None, self._service.truth.catalog_id)
            self._service.count("deleted")
            self._denials.note_permitted("delete", key)
        await self._node.step(f"after delete {key}")
        self._node.maybe_fail(key, Unsure)
        return Deleted()

    async def list(self, prefix: str, limit: int) -> list[str]:
        await self._begin("list", prefix)
        keys = self._service.files.below(prefix)[:limit]
        await self._node.step(f"after list {prefix}")
        return keys

    async def probe(self, key: str) -> Guarantees:
        return Guarantees(swap=True, conditional_delete=self._service.weather.conditional_delete)

    async def _begin(self, verb: str, key: str) -> None:
        await self._node.step(f"before {verb} {key}")
        now, weather = self._service.loop.time(), self._service.weather
        if any(start <= now < end for start, end in weather.store_down):
            raise Transient(key, scope=Scope.STORE, expected="an answer", found="none")
        if verb in {"write", "delete"} and weather.is_read_only(key, now):
            raise self._denied(verb, key, now)
        self._node.maybe_fail(key)

    def _denied(self, verb: str, key: str, now: float) -> Trouble:
        """A policy denies it here; as a real store does, it asks where the same was permitted before."""
        witnesses = self._denials.note_denied(verb, key)
        answers = [not self._service.weather.is_read_only(witness, now) for witness in witnesses]
        kind, scope = ERROR_BY_REACH[self._denials.judge(verb, key, elsewhere=any(answers) if answers else None)]
        self._service.count(f"denied {scope}")
        return kind(key, scope=scope, expected=f"permission to {verb} here", found="a policy that denies it")

    def _held(self, key: str) -> Held | None:
        body = self._service.files.bodies.get(key)
        return None if body is None else _held(body)


def _held(body: bytes) -> Held:
    return Held(body, hashlib.md5(body, usedforsecurity=False).hexdigest())
