"""Which tables there are: looked through now and then, remembered in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import anyio

from sfn.errors import Ambiguous
from sfn.facade import Namespace, Scan, TablePlace
from sfn.facade.listing import ScanResult, TableCollector, Tables

LISTING_TIMEOUT: Final = 5.0
"""Seconds that somebody waits for a new listing where an old one is there."""


class ScannedTables:
    """Implements `Shelf`. Where a table lies changes seldom, and files lead on when it does: what a table's current
    metadata file is, is never remembered here.

    Args:
        scans: each looks through some of the tables; one that fails or takes long holds up no other.
        max_age: seconds for which a listing is as good as a new one.
        missing_max_age: seconds after which a table that is not known, or not there any more, is looked for by a new
            listing.
        timeout: seconds that somebody waits for that one.
    """

    def __init__(
        self, scans: Sequence[Scan], max_age: float, missing_max_age: float, timeout: float = LISTING_TIMEOUT
    ) -> None:
        self._listings = [ScanResult(scan, missing_max_age, timeout) for scan in scans]
        self._max_age, self._missing_max_age = max_age, missing_max_age
        self._tables: Tables = {}
        self._merged: tuple[int, ...] = ()

    async def tables(self) -> Tables:
        await self._refresh(self._max_age)
        for one in self._listings:
            one.require_listing()
        return self._all_tables()

    async def find(self, namespace: Namespace, name: str, *, refresh: bool = False) -> TablePlace | None:
        known = None if refresh else self._get(namespace, name)
        if known is None or known.rivals:
            await self._refresh(self._missing_max_age)
            known = self._get(namespace, name)
        if known is None:
            # Clients ask for a metadata table as for a table in a namespace that is called like its own: who has that
            # one is told so, whatever else nobody can tell.
            if self._get(namespace[:-1], "".join(namespace[-1:])) is None:
                self._check_complete()
        elif known.rivals:
            raise Ambiguous(
                ".".join((*namespace, name)),
                expected="one directory whose SFN file has this name",
                found=", ".join(sorted((known.question.directory, *known.rivals))),
                remedy="call the table by its directory, or move the copy elsewhere",
            )
        return known

    async def wait_until_listed(self) -> Exception | None:
        """Wait until all was looked through, however long it takes at first.

        Returns:
            Why nothing could be listed; None where something was.
        """
        await self._refresh(self._max_age)
        while not all(one.has_completed for one in self._listings):
            await self._refresh(self._max_age)
        refusals = [one.refusal for one in self._listings if not one.version]
        return refusals[0] if refusals and len(refusals) == len(self._listings) else None

    async def _refresh(self, age: float) -> None:
        async with anyio.create_task_group() as tasks:
            for one in self._listings:
                tasks.start_soon(one.refresh, age)

    def _check_complete(self) -> None:
        """See that what was not found is not there.

        Raises:
            Exception: nobody can tell.
        """
        for one in self._listings:
            one.require_listing()
            if one.refusal is not None:
                raise one.refusal.with_traceback(None)

    def _get(self, namespace: Namespace, name: str) -> TablePlace | None:
        return self._all_tables().get(namespace, {}).get(name)

    def _all_tables(self) -> Tables:
        if len(self._listings) == 1:
            return self._listings[0].tables
        versions = tuple(one.version for one in self._listings)
        if versions != self._merged:
            self._tables, self._merged = _merged(one.tables for one in self._listings), versions
        return self._tables


def _merged(listings: Iterable[Tables]) -> Tables:
    found = TableCollector()
    for tables in listings:
        for namespace, names in tables.items():
            for name, place in names.items():
                found.add(namespace, name, place)
    return dict(found.tables)
