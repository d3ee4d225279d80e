"""Files in memory: the twin of every other adapter."""

from __future__ import annotations

from collections.abc import Mapping


class InMemoryFileSystem:
    """The `FileSystem` of a mapping from canonical URLs to contents."""

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        self._bodies = bodies

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        body = self._bodies.get(key)
        return None if body is None else body[start : start + most]

    async def list(self, prefix: str, limit: int) -> list[str]:
        return sorted(key for key in self._bodies if key.startswith(prefix) and "/" not in key[len(prefix) :])[:limit]

    async def size(self, key: str) -> int | None:
        body = self._bodies.get(key)
        return None if body is None else len(body)

    async def is_folder(self, url: str) -> bool:
        return any(key.startswith(f"{url}/") for key in self._bodies)
