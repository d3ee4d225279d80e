"""The store as readers find it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.simulation.truth import Files, Ranks


@dataclass(slots=True)
class Snapshot:
    """The store as a reader's files; metadata files, also deleted ones, hold no more than a table's uuid and refs."""

    files: Files
    ranks: Ranks

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        if key in self.ranks.owner:
            return self._metadata(key)[start : start + most]
        body = self.files.bodies.get(key)
        return None if body is None else body[start : start + most]

    async def list(self, prefix: str, limit: int) -> list[str]:
        return [key for key in self.files.below(prefix) if key.endswith(".ver")][:limit]

    def _metadata(self, key: str) -> bytes:
        heads = {ref: head for ref, head in self.ranks.heads.get(key, {}).items() if head is not None}
        refs = {ref: {"snapshot-id": head, "type": "branch"} for ref, head in heads.items()}
        return json.dumps({"table-uuid": self.ranks.owner[key], "refs": refs}).encode()
