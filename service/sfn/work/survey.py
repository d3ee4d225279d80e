"""One walk over a catalog that tells what a sweep would find, and changes nothing: no inbox, no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from sfn.catalogs import UnlistedNamespace
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError
from sfn.publish.comparison import TableDifference
from sfn.storage import StoreRouter
from sfn.work.examination import TableComparer
from sfn.work.feed import BoundedQueue
from sfn.work.sources import ConnectedCatalog

CONCURRENT_COMPARISONS = 32
"""Tables that are looked at, at a time."""


@dataclass(slots=True)
class DryRunResult:
    """What a walk found, as far as it is.

    Attributes:
        listed: tables that the catalog lists and the policy covers.
        is_fully_listed: no more will be listed.
        tables: those that were looked at.
        differences: what differs.
        unlisted: namespaces that may not be listed, and why.
        failed: tables that could not be looked at, and why.
    """

    listed: int = 0
    is_fully_listed: bool = False
    tables: int = 0
    differences: list[TableDifference] = field(default_factory=list)
    unlisted: list[UnlistedNamespace] = field(default_factory=list)
    failed: list[tuple[TableIdentifier, str]] = field(default_factory=list)


class DryRunSweep:
    """One walk.

    Args:
        source: the catalog, which is listed and asked for each table, and how its tables are published.
        stores: hold the files.
        moved: called after each table.
    """

    def __init__(
        self, connected: ConnectedCatalog, stores: StoreRouter, on_progress: Callable[[DryRunResult], None]
    ) -> None:
        self._connected, self._comparer, self._on_progress = connected, TableComparer(connected, stores), on_progress
        self._result = DryRunResult()
        self._queue = BoundedQueue[TableIdentifier]()

    async def run(self) -> DryRunResult:
        """Walk.

        Raises:
            Trouble: the catalog can't be asked; what was found until then is lost.
        """
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(CONCURRENT_COMPARISONS):
                    tasks.start_soon(self._compare_each)
                await self._list_tables()
        except ExceptionGroup as group:
            trouble = next((error for error in group.exceptions if isinstance(error, ExternalError)), None)
            if trouble is None:
                raise
        else:
            self._result.differences.sort(key=lambda difference: difference.table)
            return self._result
        raise trouble

    async def _list_tables(self) -> None:
        interest = self._connected.policy.table_filter
        async for one in self._connected.catalog.tables(interest.excludes_namespace):
            if isinstance(one, UnlistedNamespace):
                self._result.unlisted.append(one)
            elif interest.covers(one):
                self._result.listed += 1
                await self._queue.put(one)
        self._result.is_fully_listed = True
        self._queue.close()

    async def _compare_each(self) -> None:
        while (table := await self._queue.get()) is not None:
            try:
                difference = (await self._comparer.compare_table(table)).difference
            except ExternalError as trouble:
                if trouble.scope is not ErrorScope.TABLE:
                    raise
                self._result.failed.append((table, str(trouble)))
            else:
                self._result.differences += [difference] if difference is not None else []
            self._result.tables += 1
            self._on_progress(self._result)
