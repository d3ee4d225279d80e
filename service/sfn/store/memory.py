"""Files in memory: the twin of every other store, for tests and the simulator."""

from __future__ import annotations

from heapq import nsmallest

from sfn.store import Gone, Guarantees, Moved
from sfn.store.content import READ_AT_MOST, check_length, tag_of
from sfn.words import Held


class MemoryStore:
    """Implements `PointerStore`. No verb ever suspends.

    Args:
        conditional_delete: False for a store that deletes whatever it is told to, as some S3 look-alikes do.

    Attributes:
        files: the contents by key, open to whoever plays another writer.
    """

    def __init__(self, *, conditional_delete: bool = True) -> None:
        self.files: dict[str, bytes] = {}
        self._conditional_delete = conditional_delete

    async def read(self, key: str) -> Held | None:
        body = self.files.get(key)
        return None if body is None else Held(body[:READ_AT_MOST], tag_of(body))

    async def part(self, key: str, start: int, most: int) -> bytes | None:
        body = self.files.get(key)
        return None if body is None else body[start : start + most]

    async def write(self, key: str, body: bytes, replacing: Held | None) -> Held | Moved:
        check_length(key, body)
        if self._tag(key) != (None if replacing is None else replacing.tag):
            return Moved()
        self.files[key] = body
        return Held(body, tag_of(body))

    async def delete(self, key: str, expected: Held) -> Gone | Moved:
        if self._conditional_delete and self._tag(key) not in {None, expected.tag}:
            return Moved()
        self.files.pop(key, None)
        return Gone()

    async def list(self, prefix: str, limit: int) -> list[str]:
        inside = (key for key in self.files if key.startswith(prefix) and "/" not in key[len(prefix) :])
        return nsmallest(limit, inside)

    async def prove(self, key: str) -> Guarantees:
        return Guarantees(swap=True, conditional_delete=self._conditional_delete)

    def _tag(self, key: str) -> str | None:
        body = self.files.get(key)
        return None if body is None else tag_of(body)
