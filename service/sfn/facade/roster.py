"""The tables that the service published."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial

from sfn.facade import Namespace, Place, Scan, Tree
from sfn.inbox import Roster
from sfn.pointer.location import below
from sfn.reader.resolve import Question


def published(roster: Roster, catalog: str, trees: Mapping[str, Tree]) -> Scan:
    """Looks through a catalog's rows.

    Args:
        trees: by their canonical roots; a table below none of them is not shown.
    """
    return partial(_published, roster, catalog, trees)


async def _published(
    roster: Roster, catalog: str, trees: Mapping[str, Tree]
) -> AsyncIterator[tuple[Namespace, str, Place]]:
    async for row in roster.known(catalog):
        live = row.live
        root = None if live is None else root_of(live.location, trees)
        if live is not None and root is not None:
            namespace, name = row.table.namespace, row.table.name
            yield namespace, name, Place(trees[root], Question(live.location, (*namespace, name), allowed=(root,)))


def root_of(location: str, roots: Iterable[str]) -> str | None:
    """The narrowest root that a canonical location lies below."""
    return max((root for root in roots if below(location, root)), key=len, default=None)
