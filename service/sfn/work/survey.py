"""One walk over a catalog that tells what a sweep would find, and changes nothing: no inbox, no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from sfn.catalog import UnlistedNamespace
from sfn.errors import Scope, Trouble
from sfn.publish.comparison import TableDifference
from sfn.store import StoreRouter
from sfn.words import TableName
from sfn.work.examination import Examiner
from sfn.work.feed import Feed
from sfn.work.sources import Source

WIDTH = 32
"""Tables that are looked at, at a time."""


@dataclass(slots=True)
class Found:
    """What a walk found, as far as it is.

    Attributes:
        listed: tables that the catalog lists and the policy covers.
        complete: no more will be listed.
        tables: those that were looked at.
        differences: what differs.
        withheld: namespaces that may not be listed, and why.
        failed: tables that could not be looked at, and why.
    """

    listed: int = 0
    complete: bool = False
    tables: int = 0
    differences: list[TableDifference] = field(default_factory=list)
    withheld: list[UnlistedNamespace] = field(default_factory=list)
    failed: list[tuple[TableName, str]] = field(default_factory=list)


class Survey:
    """One walk.

    Args:
        source: the catalog, which is listed and asked for each table, and how its tables are published.
        stores: hold the files.
        moved: called after each table.
    """

    def __init__(self, source: Source, stores: StoreRouter, moved: Callable[[Found], None]) -> None:
        self._source, self._examiner, self._moved = source, Examiner(source, stores), moved
        self._found = Found()
        self._feed = Feed[TableName]()

    async def run(self) -> Found:
        """Walk.

        Raises:
            Trouble: the catalog can't be asked; what was found until then is lost.
        """
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(WIDTH):
                    tasks.start_soon(self._each)
                await self._listed()
        except ExceptionGroup as group:
            trouble = next((error for error in group.exceptions if isinstance(error, Trouble)), None)
            if trouble is None:
                raise
        else:
            self._found.differences.sort(key=lambda difference: difference.table)
            return self._found
        raise trouble

    async def _listed(self) -> None:
        interest = self._source.policy.table_filter
        async for one in self._source.catalog.tables(interest.excludes_namespace):
            if isinstance(one, UnlistedNamespace):
                self._found.withheld.append(one)
            elif interest.covers(one):
                self._found.listed += 1
                await self._feed.put(one)
        self._found.complete = True
        self._feed.end()

    async def _each(self) -> None:
        while (table := await self._feed.take()) is not None:
            try:
                difference = (await self._examiner.examine(table)).difference
            except Trouble as trouble:
                if trouble.scope is not Scope.TABLE:
                    raise
                self._found.failed.append((table, str(trouble)))
            else:
                self._found.differences += [difference] if difference is not None else []
            self._found.tables += 1
            self._moved(self._found)
