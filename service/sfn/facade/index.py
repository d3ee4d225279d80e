"""Which tables there are: looked through now and then, remembered in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import anyio

from sfn.errors import Ambiguous
from sfn.facade import Namespace, Place, Scan
from sfn.facade.listing import Found, Listing, Tables

WAITED: Final = 5.0
"""Seconds that somebody waits for a new listing where an old one is there."""


class Index:
    """Implements `Shelf`. Where a table lies changes seldom, and files lead on when it does: what a table's current
    metadata file is, is never remembered here.

    Args:
        scans: each looks through some of the tables; one that fails or takes long holds up no other.
        kept: seconds for which a listing is as good as a new one.
        missed: seconds after which a table that is not known, or not there any more, is looked for by a new listing.
        waited: seconds that somebody waits for that one.
    """

    def __init__(self, scans: Sequence[Scan], kept: float, missed: float, waited: float = WAITED) -> None:
        self._listings = [Listing(scan, missed, waited) for scan in scans]
        self._kept, self._missed = kept, missed
        self._tables: Tables = {}
        self._merged: tuple[int, ...] = ()

    async def tables(self) -> Tables:
        await self._looked(self._kept)
        for one in self._listings:
            one.check_known()
        return self._known()

    async def find(self, namespace: Namespace, name: str, *, anew: bool = False) -> Place | None:
        known = None if anew else self._of(namespace, name)
        if known is None or known.rivals:
            await self._looked(self._missed)
            known = self._of(namespace, name)
        if known is None:
            # Clients ask for a metadata table as for a table in a namespace that is called like its own: who has that
            # one is told so, whatever else nobody can tell.
            if self._of(namespace[:-1], "".join(namespace[-1:])) is None:
                self._check_complete()
        elif known.rivals:
            raise Ambiguous(
                ".".join((*namespace, name)),
                expected="one directory whose SFN file has this name",
                found=", ".join(sorted((known.question.directory, *known.rivals))),
                remedy="call the table by its directory, or move the copy elsewhere",
            )
        return known

    async def ready(self) -> Exception | None:
        """Wait until all was looked through, however long it takes at first.

        Returns:
            Why nothing could be listed; None where something was.
        """
        await self._looked(self._kept)
        while not all(one.is_looked_through for one in self._listings):
            await self._looked(self._kept)
        refusals = [one.refusal for one in self._listings if not one.version]
        return refusals[0] if refusals and len(refusals) == len(self._listings) else None

    async def _looked(self, age: float) -> None:
        async with anyio.create_task_group() as tasks:
            for one in self._listings:
                tasks.start_soon(one.looked, age)

    def _check_complete(self) -> None:
        """See that what was not found is not there.

        Raises:
            Exception: nobody can tell.
        """
        for one in self._listings:
            one.check_known()
            if one.refusal is not None:
                raise one.refusal.with_traceback(None)

    def _of(self, namespace: Namespace, name: str) -> Place | None:
        return self._known().get(namespace, {}).get(name)

    def _known(self) -> Tables:
        if len(self._listings) == 1:
            return self._listings[0].tables
        versions = tuple(one.version for one in self._listings)
        if versions != self._merged:
            self._tables, self._merged = _merged(one.tables for one in self._listings), versions
        return self._tables


def _merged(listings: Iterable[Tables]) -> Tables:
    found = Found()
    for tables in listings:
        for namespace, names in tables.items():
            for name, place in names.items():
                found.add(namespace, name, place)
    return dict(found.tables)
