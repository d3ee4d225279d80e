"""What a real catalog says of its tables in the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import aiohttp

from tests.faults.committers import CutOff
from tests.faults.lake import NAMESPACE


@dataclass
class Truth:
    """The tables that there are.

    Attributes:
        pointers: by name.
        snapshots: ids of all that a table ever had, by its name.
    """

    pointers: dict[str, str] = field(default_factory=dict)
    snapshots: dict[str, set[int]] = field(default_factory=dict)

    def has(self, commit: CutOff) -> bool:
        """Whether the catalog made it."""
        made = self.snapshots.get(commit.table)
        return made is not None and (not commit.snapshot or commit.snapshot in made)


async def truth(session: aiohttp.ClientSession, uri: str, names: Iterable[str]) -> Truth:
    """Ask a catalog for tables, of which some may not be there."""
    found = Truth()
    for name in names:
        async with session.get(f"{uri}/v1/namespaces/{NAMESPACE}/tables/{name}") as answer:
            assert answer.status in {200, 404}, await answer.text()
            content = await answer.json()
        if answer.status == 200:
            found.pointers[name] = content["metadata-location"]
            found.snapshots[name] = {one["snapshot-id"] for one in content["metadata"].get("snapshots", ())}
    return found
