"""Stores around a store: one that counts and can be away, one that is slow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import anyio

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Transient
from sfn.storage import Deleted, Guarantees, ObjectStore, PreconditionFailed


@dataclass
class CountingStore:
    """Implements `ObjectStore`: counts what arrives at the store behind it.

    Attributes:
        done: verbs by name.
        written: writes by key.
        away: every verb fails, as of a store that is down.
        refused: verbs that failed so.
    """

    inner: ObjectStore
    done: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    away: bool = False
    refused: int = 0

    async def read(self, key: str) -> StoredObject | None:
        self._count("read", key)
        return await self.inner.read(key)

    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        self._count("part", key)
        return await self.inner.read_range(key, start, most)

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        self._count("write", key)
        self.written[key] += 1
        return await self.inner.write(key, body, replacing)

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        self._count("delete", key)
        return await self.inner.delete(key, expected)

    async def list(self, prefix: str, limit: int) -> list[str]:
        self._count("list", prefix)
        return await self.inner.list(prefix, limit)

    async def probe(self, key: str) -> Guarantees:
        # What was proven is remembered by the store itself.
        return await self.inner.probe(key)

    def _count(self, verb: str, key: str) -> None:
        if self.away:
            self.refused += 1
            raise Transient(key, scope=ErrorScope.STORE, expected="an answer", found="a store that is down")
        self.done[verb] += 1


@dataclass
class SlowStore:
    """Implements `ObjectStore`: each verb takes so many seconds before and after it happens."""

    inner: ObjectStore
    seconds: float

    async def read(self, key: str) -> StoredObject | None:
        await anyio.sleep(self.seconds)
        held = await self.inner.read(key)
        await anyio.sleep(self.seconds)
        return held

    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        await anyio.sleep(2 * self.seconds)
        return await self.inner.read_range(key, start, most)

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        await anyio.sleep(self.seconds)
        written = await self.inner.write(key, body, replacing)
        await anyio.sleep(self.seconds)
        return written

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        await anyio.sleep(self.seconds)
        deleted = await self.inner.delete(key, expected)
        await anyio.sleep(self.seconds)
        return deleted

    async def list(self, prefix: str, limit: int) -> list[str]:
        await anyio.sleep(self.seconds)
        return await self.inner.list(prefix, limit)

    async def probe(self, key: str) -> Guarantees:
        return await self.inner.probe(key)
