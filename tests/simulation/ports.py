"""The ports of a simulated process to a catalog's replicas and a store, each call a step."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, TypeVar

from sfn.catalogs import Loaded, LoadResult, NotModified, SkipNamespace, UnlistedNamespace
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, ExternalError, OutcomeUnknown, Permanent, Transient
from sfn.storage import ERROR_BY_REACH, Deleted, Guarantees, PermissionTracker, PreconditionFailed

if TYPE_CHECKING:
    from tests.simulation.node import Node

T = TypeVar("T")


class SimulatedCatalog:
    """The catalog as this process reaches it: some replica of it, when it answers at all."""

    def __init__(self, node: Node) -> None:
        self._node, self._truth = node, node.service.truth

    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        found = await self._answer(f"load {table}", lambda at: self._truth.get(table, at))
        if not isinstance(found, Table):
            return found
        etag = hashlib.md5(repr(found).encode(), usedforsecurity=False).hexdigest()
        return NotModified() if etag == known_etag else Loaded(found, etag)

    async def is_listed(self, table: TableIdentifier) -> bool:
        found = await self._answer(f"listed {table}", lambda at: self._truth.get(table, at))
        return isinstance(found, Table) and self._truth.listed(table) == table

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        def listing(at: float) -> list[TableIdentifier]:
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

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        self._refuse_unlisted()

        def listing(at: float) -> list[TableIdentifier]:
            names = [name for name in sorted(self._truth.history) if name.namespace == namespace]
            return [name for name in names if isinstance(self._truth.get(name, at), Table)]

        for name in await self._answer(f"within {namespace}", listing):
            yield name

    def _refuse_unlisted(self) -> None:
        if self._truth.is_unlisted():
            raise Permanent(self._truth.name, scope=ErrorScope.TABLE, expected="a listing", found="status 403")

    async def _answer(self, call: str, ask: Callable[[float], T]) -> T:
        node = self._node
        await node.step(f"before {call}")
        if self._truth.is_down():
            raise Transient(self._truth.name, scope=ErrorScope.CATALOG, expected="an answer", found="none")
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

    async def read(self, key: str) -> StoredObject | None:
        await self._begin("read", key)
        held = self._held(key)
        await self._node.step(f"after read {key}")
        return held

    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        await self._begin("open", key)
        body = self._service.files.bodies.get(key)
        await self._node.step(f"after open {key}")
        return None if body is None else body[start : start + most]

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        await self._begin("write", key)
        if self._held(key) != replacing:
            await self._node.step()
            return PreconditionFailed()
        self._service.files.put(key, body, self._service.truth.catalog_id)
        self._service.count("written")
        self._denials.note_permitted("write", key)
        await self._node.step(f"after write {key}")
        self._node.maybe_fail(key, OutcomeUnknown)
        return _held(body)

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        await self._begin("delete", key)
        held = self._held(key)
        if held is not None:
            if held != expected and self._service.faults.conditional_delete:
                await self._node.step()
                return PreconditionFailed()
            self._service.files.put(key, None, self._service.truth.catalog_id)
            self._service.count("deleted")
            self._denials.note_permitted("delete", key)
        await self._node.step(f"after delete {key}")
        self._node.maybe_fail(key, OutcomeUnknown)
        return Deleted()

    async def list(self, prefix: str, limit: int) -> list[str]:
        await self._begin("list", prefix)
        keys = self._service.files.below(prefix)[:limit]
        await self._node.step(f"after list {prefix}")
        return keys

    async def probe(self, key: str) -> Guarantees:
        return Guarantees(swap=True, conditional_delete=self._service.faults.conditional_delete)

    async def _begin(self, verb: str, key: str) -> None:
        await self._node.step(f"before {verb} {key}")
        now, faults = self._service.loop.time(), self._service.faults
        if any(start <= now < end for start, end in faults.store_down):
            raise Transient(key, scope=ErrorScope.STORE, expected="an answer", found="none")
        if verb in {"write", "delete"} and faults.is_read_only(key, now):
            raise self._denied(verb, key, now)
        self._node.maybe_fail(key)

    def _denied(self, verb: str, key: str, now: float) -> ExternalError:
        """A policy denies it here; as a real store does, it asks where the same was permitted before."""
        witnesses = self._denials.note_denied(verb, key)
        answers = [not self._service.faults.is_read_only(witness, now) for witness in witnesses]
        kind, scope = ERROR_BY_REACH[self._denials.judge(verb, key, elsewhere=any(answers) if answers else None)]
        self._service.count(f"denied {scope}")
        return kind(key, scope=scope, expected=f"permission to {verb} here", found="a policy that denies it")

    def _held(self, key: str) -> StoredObject | None:
        body = self._service.files.bodies.get(key)
        return None if body is None else _held(body)


def _held(body: bytes) -> StoredObject:
    return StoredObject(body, hashlib.md5(body, usedforsecurity=False).hexdigest())
