"""Which tables there are: looked through now and then, remembered in between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import anyio

from sfn.errors import Ambiguous, SfnError, Trouble, Unreadable
from sfn.facade import Namespace, Place, Scan

_NOTHING: Final[Mapping[Namespace, Mapping[str, Place]]] = {}
_RIVALS: Final = 5
"""Directories that are named beside the first."""


class Index:
    """Implements `Shelf`. Where a table lies changes seldom, and files lead on when it does: what a table's current
    metadata file is, is never remembered here.

    Args:
        scan: looks through all tables.
        kept: seconds for which a listing is as good as a new one.
        missed: seconds after which a table that is not known, or not there any more, is looked for by a new listing.
    """

    def __init__(self, scan: Scan, kept: float, missed: float) -> None:
        self._scan, self._kept, self._missed = scan, kept, missed
        self._tables = _NOTHING
        self._refusal: SfnError | None = None
        self._looked_at: float | None = None
        self._looking = anyio.Lock()

    async def tables(self) -> Mapping[Namespace, Mapping[str, Place]]:
        return await self._since(self._kept)

    async def find(self, namespace: Namespace, name: str, *, anew: bool = False) -> Place | None:
        known = None if anew else self._tables.get(namespace, {}).get(name)
        if known is None or known.rivals:
            known = (await self._since(self._missed)).get(namespace, {}).get(name)
        if known is not None and known.rivals:
            raise Ambiguous(
                ".".join((*namespace, name)),
                expected="one directory whose SFN file has this name",
                found=", ".join(sorted((known.question.directory, *known.rivals))),
                remedy="call the table by its directory, or move the copy elsewhere",
            )
        return known

    async def _since(self, seconds: float) -> Mapping[Namespace, Mapping[str, Place]]:
        """The tables as they were looked through no longer ago than that, when this was called."""
        asked_at = anyio.current_time()
        async with self._looking:
            # Who waited for another one's look has the same answer, if that began late enough.
            kept = seconds if self._refusal is None else self._missed
            if self._looked_at is None or self._looked_at < asked_at - kept:
                begun = anyio.current_time()
                await self._look()
                self._looked_at = begun
            if self._refusal is not None:
                raise self._refusal
        return self._tables

    async def _look(self) -> None:
        found: defaultdict[Namespace, dict[str, Place]] = defaultdict(dict)
        try:
            async for namespace, name, place in self._scan():
                first, directory = found[namespace].setdefault(name, place), place.question.directory
                if directory != first.question.directory and len(first.rivals) < _RIVALS:
                    found[namespace][name] = replace(first, rivals=(*first.rivals, directory))
        except (Unreadable, Trouble) as refusal:
            # What was known before is still worth a look.
            self._refusal = refusal
        else:
            self._tables, self._refusal = dict(found), None
