"""A dry-run sweep: compare every table of a catalog with its SFN files, and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from sfn.catalogs import UnlistedNamespace
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError
from sfn.publish.dry_run import TableDifference
from sfn.storage import StoreRouter
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.comparison import CONCURRENT_COMPARISONS, TableComparer
from sfn.worker.sweep import BoundedQueue


@dataclass(slots=True)
class DryRunResult:
    """The result so far of a dry-run sweep.

    Attributes:
        listed: number of tables that the catalog lists and the policy covers.
        is_fully_listed: True once the listing is complete.
        tables: number of compared tables.
        differences: the differences.
        unlisted: namespaces that could not be listed, with the reason.
        failed: tables that could not be compared, with the error.
    """

    listed: int = 0
    is_fully_listed: bool = False
    tables: int = 0
    differences: list[TableDifference] = field(default_factory=list)
    unlisted: list[UnlistedNamespace] = field(default_factory=list)
    failed: list[tuple[TableIdentifier, str]] = field(default_factory=list)


class DryRunSweep:
    """A sweep that compares every table of a catalog with its files, and changes nothing.

    Args:
        connected: the catalog with its policy.
        stores: the configured stores.
        on_progress: called after each table.
    """

    def __init__(
        self, connected: ConnectedCatalog, stores: StoreRouter, on_progress: Callable[[DryRunResult], None]
    ) -> None:
        self._connected, self._comparer, self._on_progress = connected, TableComparer(connected, stores), on_progress
        self._result = DryRunResult()
        self._queue = BoundedQueue[TableIdentifier]()

    async def run(self) -> DryRunResult:
        """Compare all tables.

        Raises:
            ExternalError: the catalog failed; the result so far is lost.
        """
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(CONCURRENT_COMPARISONS):
                    tasks.start_soon(self._compare_each)
                await self._list_tables()
        except ExceptionGroup as group:
            first = next((error for error in group.exceptions if isinstance(error, ExternalError)), None)
            if first is None:
                raise
        else:
            self._result.differences.sort(key=lambda difference: difference.table)
            return self._result
        raise first

    async def _list_tables(self) -> None:
        table_filter = self._connected.policy.table_filter
        async for found in self._connected.catalog.tables(table_filter.excludes_namespace):
            if isinstance(found, UnlistedNamespace):
                self._result.unlisted.append(found)
            elif table_filter.covers(found):
                self._result.listed += 1
                await self._queue.put(found)
        self._result.is_fully_listed = True
        self._queue.close()

    async def _compare_each(self) -> None:
        while (table := await self._queue.get()) is not None:
            try:
                difference = (await self._comparer.compare_table(table)).difference
            except ExternalError as error:
                if error.scope is not ErrorScope.TABLE:
                    raise
                self._result.failed.append((table, str(error)))

            else:
                self._result.differences += [difference] if difference is not None else []
            self._result.tables += 1
            self._on_progress(self._result)
