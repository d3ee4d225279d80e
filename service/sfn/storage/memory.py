"""`MemoryStore`: files in memory, for tests and the simulator."""

from __future__ import annotations

from heapq import nsmallest

from sfn.domain.jobs import StoredObject
from sfn.storage import MAX_READ_BYTES, Deleted, Guarantees, PreconditionFailed, check_length, content_etag


class MemoryStore:
    """An `ObjectStore` in memory. No method ever suspends.

    Args:
        conditional_delete: False for a store that ignores the condition of a delete, as some S3 clones do.

    Attributes:
        files: the contents by key, open to tests that play another writer.
    """

    def __init__(self, *, conditional_delete: bool = True) -> None:
        self.files: dict[str, bytes] = {}
        self._conditional_delete = conditional_delete

    async def read(self, key: str) -> StoredObject | None:
        body = self.files.get(key)
        return None if body is None else StoredObject(body[:MAX_READ_BYTES], content_etag(body))

    async def read_range(self, key: str, start: int, length: int) -> bytes | None:
        body = self.files.get(key)
        return None if body is None else body[start : start + length]

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        check_length(key, body)
        if self._etag(key) != (None if replacing is None else replacing.etag):
            return PreconditionFailed()
        self.files[key] = body
        return StoredObject(body, content_etag(body))

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        if self._conditional_delete and self._etag(key) not in {None, expected.etag}:
            return PreconditionFailed()
        self.files.pop(key, None)
        return Deleted()

    async def list(self, prefix: str, limit: int) -> list[str]:
        inside = (key for key in self.files if key.startswith(prefix) and "/" not in key[len(prefix) :])
        return nsmallest(limit, inside)

    async def probe(self, key: str) -> Guarantees:
        return Guarantees(swap=True, conditional_delete=self._conditional_delete)

    def _etag(self, key: str) -> str | None:
        body = self.files.get(key)
        return None if body is None else content_etag(body)
