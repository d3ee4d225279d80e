"""Directories that have several names, and a store that sees what a plan does to live documents there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Transient
from sfn.sfnfile.locations import is_below
from sfn.storage import Deleted, Guarantees, ObjectStore, PreconditionFailed
from tests.support.publishing import CountingStore


class Names:
    """Which locations are names of one directory.

    Args:
        names: each name, with the directory that it is a name of. A name may be any string that begins keys.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)

    def real(self, key: str) -> str:
        """A key by the directory's own name."""
        name = max((name for name in self._names if is_below(key, name)), key=len, default=None)
        return key if name is None else self._names[name] + key.removeprefix(name)

    def are_one(self, key: str, other: str) -> bool:
        """Whether two keys are names of one file."""
        return self.real(key) == self.real(other)


class AliasedStore(CountingStore):
    """A store in memory whose directories have several names."""

    def __init__(self, names: Names, *, conditional_delete: bool = True) -> None:
        super().__init__()
        self._names = names
        self._conditional_delete = conditional_delete

    @override
    async def read(self, key: str) -> StoredObject | None:
        return await super().read(self._names.real(key))

    @override
    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        return await super().read_range(self._names.real(key), start, most)

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        return await super().write(self._names.real(key), body, replacing)

    @override
    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        return await super().delete(self._names.real(key), expected)

    @override
    async def list(self, prefix: str, limit: int) -> list[str]:
        real = self._names.real(prefix)
        return [prefix + key.removeprefix(real) for key in await super().list(real, limit)]


@dataclass(slots=True)
class Harm:
    """What a change did to a document that spoke for a table that is there.

    Attributes:
        key: where, by the directory's own name.
        was: what it said.
        now: what lies there now.
    """

    key: str
    was: dict[str, Any]
    now: bytes | None


class Guarded(CountingStore):
    """Another store, watched: whatever replaces a live document by one that is not, or deletes it, is noted.

    Args:
        inner: which one.
        names: of its directories.
        is_right: whether a document at a key, by the directory's own name, is the one that belongs there now.

    Attributes:
        harm: what was done.
        fails_after: so many changes later one is made, and an error raised; None for never.
    """

    def __init__(self, inner: ObjectStore, names: Names, is_right: Callable[[str, dict[str, Any]], bool]) -> None:
        super().__init__()
        self._inner, self._names, self._is_right = inner, names, is_right
        self.harm: list[Harm] = []
        self.fails_after: int | None = None

    @override
    async def read(self, key: str) -> StoredObject | None:
        return await self._inner.read(key)

    @override
    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        return await self._inner.read_range(key, start, most)

    @override
    async def list(self, prefix: str, limit: int) -> list[str]:
        return await self._inner.list(prefix, limit)

    @override
    async def probe(self, key: str) -> Guarantees:
        return await self._inner.probe(key)

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        held = await self._inner.write(key, body, replacing)
        if isinstance(held, StoredObject):
            self._watch(key, replacing, body)
            self._fail(key)
        return held

    @override
    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        gone = await self._inner.delete(key, expected)
        if isinstance(gone, Deleted):
            self._watch(key, expected, None)
            self._fail(key)
        return gone

    def _watch(self, key: str, was: StoredObject | None, now: bytes | None) -> None:
        if was is None or not key.endswith(".ver"):
            return
        before, after = (json.loads(body) if body is not None else {} for body in (was.body, now))
        real = self._names.real(key)
        if before.get("state") == "current" != after.get("state") and self._is_right(real, before):
            self.harm.append(Harm(real, before, now))

    def _fail(self, key: str) -> None:
        if self.fails_after is None:
            return
        self.fails_after -= 1
        if self.fails_after < 0:
            self.fails_after = None
            raise Transient(key, scope=ErrorScope.TABLE, expected="an answer", found="none")
