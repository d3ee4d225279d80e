"""The tables that the service published."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias

import anyio

from sfn.errors import Trouble
from sfn.facade import Namespace, Place
from sfn.facade.index import Index
from sfn.inbox import Roster
from sfn.inbox.desk import Desk
from sfn.pointer.location import longest_prefix
from sfn.reader.files import Files
from sfn.reader.resolve import Question
from sfn.words import Published, TableName

LISTED: Final = 2.0
"""Seconds for which a listing of all rows is kept."""
FOUND: Final = 2.0
"""Seconds for which one row's place is."""
MISSED: Final = 0.5
"""Seconds for which it is remembered that there is none."""
_REMEMBERED: Final = 100_000
"""Rows whose places are."""

_Known: TypeAlias = tuple[float, Place | None]


class Inbox(Roster, Desk, Protocol):
    """What is asked for rows."""


class Rows:
    """Implements `Shelf` with a catalog's rows. One that is asked for is looked up by itself: a catalog may have very
    many.

    Args:
        inbox: has the rows.
        catalog: whose.
        trees: by their canonical roots; a table below none of them is not shown.
    """

    def __init__(self, inbox: Inbox, catalog: str, trees: Mapping[str, Files]) -> None:
        self._inbox, self._catalog, self._trees = inbox, catalog, trees
        listed = partial(_published, inbox, catalog, trees)
        self._index = Index([listed], kept=LISTED, missed=LISTED, waited=LISTED)
        self._found: dict[tuple[Namespace, str], _Known] = {}

    async def tables(self) -> Mapping[Namespace, Mapping[str, Place]]:
        return await self._index.tables()

    async def find(self, namespace: Namespace, name: str, *, anew: bool = False) -> Place | None:
        known = self._found.get((namespace, name))
        if known is not None and not anew and _is_new(*known):
            return known[1]
        try:
            standing = await self._inbox.standing(TableName(self._catalog, namespace, name))
        except Trouble:
            # Its file still says where its table is.
            if known is None or known[1] is None:
                raise
            return known[1]
        live = None if standing is None else standing.story.live
        place = _placed(namespace, name, live, self._trees)
        if len(self._found) >= _REMEMBERED:
            self._found.clear()
        self._found[namespace, name] = anyio.current_time(), place
        return place


def _is_new(looked_at: float, place: Place | None) -> bool:
    return anyio.current_time() - looked_at < (MISSED if place is None else FOUND)


async def _published(
    roster: Roster, catalog: str, trees: Mapping[str, Files]
) -> AsyncIterator[tuple[Namespace, str, Place]]:
    async for row in roster.known(catalog):
        namespace, name = row.table.namespace, row.table.name
        if (place := _placed(namespace, name, row.live, trees)) is not None:
            yield namespace, name, place


def _placed(namespace: Namespace, name: str, live: Published | None, trees: Mapping[str, Files]) -> Place | None:
    root = None if live is None else longest_prefix(live.location, trees)
    if live is None or root is None:
        return None
    return Place(trees[root], Question(live.location, (*namespace, name), allowed=(root,)))
