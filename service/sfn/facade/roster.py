"""The tables that the service published."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias

import anyio

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import PublishedPointer
from sfn.errors import ExternalError
from sfn.facade import Namespace, TablePlace
from sfn.facade.index import ScannedTables
from sfn.inbox import AdminQueries, TableIndex
from sfn.reader.files import FileReader
from sfn.reader.resolve import Question
from sfn.sfnfile.locations import longest_prefix

LISTING_MAX_AGE: Final = 2.0
"""Seconds for which a listing of all rows is kept."""
FOUND_MAX_AGE: Final = 2.0
"""Seconds for which one row's place is."""
MISSING_MAX_AGE: Final = 0.5
"""Seconds for which it is remembered that there is none."""
_MAX_CACHED_PLACES: Final = 100_000
"""Rows whose places are."""

_CachedPlace: TypeAlias = tuple[float, TablePlace | None]


class FacadeInbox(TableIndex, AdminQueries, Protocol):
    """What is asked for rows."""


class PublishedTables:
    """Implements `Shelf` with a catalog's rows. One that is asked for is looked up by itself: a catalog may have very
    many.

    Args:
        inbox: has the rows.
        catalog: whose.
        trees: by their canonical roots; a table below none of them is not shown.
    """

    def __init__(self, inbox: FacadeInbox, catalog: str, trees: Mapping[str, FileReader]) -> None:
        self._inbox, self._catalog, self._trees = inbox, catalog, trees
        listed = partial(_scan_published, inbox, catalog, trees)
        self._index = ScannedTables(
            [listed], max_age=LISTING_MAX_AGE, missing_max_age=LISTING_MAX_AGE, timeout=LISTING_MAX_AGE
        )
        self._found: dict[tuple[Namespace, str], _CachedPlace] = {}

    async def tables(self) -> Mapping[Namespace, Mapping[str, TablePlace]]:
        return await self._index.tables()

    async def find(self, namespace: Namespace, name: str, *, refresh: bool = False) -> TablePlace | None:
        known = self._found.get((namespace, name))
        if known is not None and not refresh and _is_fresh(*known):
            return known[1]
        try:
            status = await self._inbox.table_status(TableIdentifier(self._catalog, namespace, name))
        except ExternalError:
            # Its file still says where its table is.
            if known is None or known[1] is None:
                raise
            return known[1]
        live = None if status is None else status.table_state.live
        place = _place_of(namespace, name, live, self._trees)
        if len(self._found) >= _MAX_CACHED_PLACES:
            self._found.clear()
        self._found[namespace, name] = anyio.current_time(), place
        return place


def _is_fresh(checked_at: float, place: TablePlace | None) -> bool:
    return anyio.current_time() - checked_at < (MISSING_MAX_AGE if place is None else FOUND_MAX_AGE)


async def _scan_published(
    table_index: TableIndex, catalog: str, trees: Mapping[str, FileReader]
) -> AsyncIterator[tuple[Namespace, str, TablePlace]]:
    async for row in table_index.tables(catalog):
        namespace, name = row.table.namespace, row.table.name
        if (place := _place_of(namespace, name, row.live, trees)) is not None:
            yield namespace, name, place


def _place_of(
    namespace: Namespace, name: str, live: PublishedPointer | None, trees: Mapping[str, FileReader]
) -> TablePlace | None:
    root = None if live is None else longest_prefix(live.location, trees)
    if live is None or root is None:
        return None
    return TablePlace(trees[root], Question(live.location, (*namespace, name), allowed=(root,)))
