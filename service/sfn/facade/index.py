"""Which tables there are: looked through now and then, remembered in between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import anyio

from sfn.facade import Namespace, Place, Scan

_NOTHING: Final[Mapping[Namespace, Mapping[str, Place]]] = {}


class Index:
    """Implements `Shelf`. Where a table lies changes seldom, and files lead on when it does: what a table's current
    metadata file is, is never remembered here.

    Args:
        scan: looks through all tables.
        kept: seconds for which a listing is as good as a new one.
        missed: seconds after which a table that is not known is looked for by a new listing.
    """

    def __init__(self, scan: Scan, kept: float, missed: float) -> None:
        self._scan, self._kept, self._missed = scan, kept, missed
        self._tables = _NOTHING
        self._looked_at: float | None = None
        self._looking = anyio.Lock()

    async def tables(self) -> Mapping[Namespace, Mapping[str, Place]]:
        return await self._since(self._kept)

    async def find(self, namespace: Namespace, name: str) -> Place | None:
        if self._looked_at is not None and (known := self._tables.get(namespace, {}).get(name)) is not None:
            return known
        return (await self._since(self._missed)).get(namespace, {}).get(name)

    async def _since(self, seconds: float) -> Mapping[Namespace, Mapping[str, Place]]:
        """The tables as they were looked through no longer ago than that, when this was called."""
        asked_at = anyio.current_time()
        async with self._looking:
            # Who waited for another one's look has the same answer, if that began late enough.
            if self._looked_at is None or self._looked_at < asked_at - seconds:
                begun = anyio.current_time()
                found: defaultdict[Namespace, dict[str, Place]] = defaultdict(dict)
                async for namespace, name, place in self._scan():
                    found[namespace][name] = place
                self._tables, self._looked_at = dict(found), begun
        return self._tables
