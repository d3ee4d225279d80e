"""One table looked at: the catalog's answer, our files beside it, and whether the two agree. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import TypeVar, cast

import anyio

from sfn.catalogs import Catalog, UnlistedNamespace
from sfn.domain.catalog_answer import Loaded, LoadResult, NoSuchTable, NotModified
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, ExternalError, LocationRefused, Permanent
from sfn.publish.comparison import ComparisonResult, DifferenceKind, TableDifference, compare, usual_keys
from sfn.publish.queries import CatalogAnswer, LoadTable, NeedsQuery, Observations, ObservedFile, ReadFiles
from sfn.sfnfile.locations import check_location
from sfn.storage import BatchReader, StoreRouter
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.sweep import BoundedQueue

# ── examination: One table looked at

T = TypeVar("T")

_NO_TIME = datetime.min.replace(tzinfo=UTC)
"""When the catalog was asked, which counts for nothing where nothing is written."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """What the catalog said of a table an earlier time.

    Attributes:
        etag: of that answer.
        table: it; its metadata log may be missing.
    """

    etag: str
    table: Table


@dataclass(frozen=True, slots=True)
class TableComparison:
    """What was found of one table.

    Attributes:
        answer: the catalog's.
        table: as the catalog has it, by this answer or by the one that still holds; None where it has none.
        comparison: our files beside it; None where they could not be compared.
        difference: how they differ from what they should say.
    """

    answer: LoadResult
    table: Table | None = None
    comparison: ComparisonResult | None = None
    difference: TableDifference | None = None


class TableComparer:
    """Looks at one table after another of a catalog.

    Args:
        source: the catalog, and how its tables are published.
        stores: the configured ones.
    """

    def __init__(self, source: ConnectedCatalog, stores: StoreRouter) -> None:
        self._source, self._stores = source, stores

    async def compare_table(self, name: TableIdentifier, cached: CachedAnswer | None = None) -> TableComparison:
        """Look at one.

        Args:
            cached: spares the catalog an answer that it gave before.

        Raises:
            Trouble: the catalog, or a store, can't be asked; with scope table it is this table's alone.
        """
        answer = await self._source.catalog.load(name, None if cached is None else cached.etag)
        if isinstance(answer, NotModified) and cached is not None:
            found = await self._compare_files(name, cached.table, answer)
            if found.difference is None and found.comparison is not None and found.comparison.is_exact:
                return found
            # How far apart the two are only the metadata log tells.
            answer = await self._source.catalog.load(name, None)
        if not isinstance(answer, Loaded):
            # Dropped since it was listed, or not written yet: nothing that a file could say.
            return TableComparison(answer)
        return await self._compare_files(name, answer.table, answer)

    async def _compare_files(self, name: TableIdentifier, table: Table, answer: LoadResult) -> TableComparison:
        try:
            comparison = await self._compare(name, table)
        except LocationRefused as refused:
            return TableComparison(
                answer, table, difference=TableDifference(name, DifferenceKind.LOCATION_REFUSED, str(refused))
            )
        except Permanent as refused:
            if refused.scope is not ErrorScope.TABLE:
                raise
            return TableComparison(
                answer, table, difference=TableDifference(name, DifferenceKind.PERMANENT, str(refused))
            )
        return TableComparison(answer, table, comparison, comparison.difference)

    async def _compare(self, name: TableIdentifier, table: Table) -> ComparisonResult:
        policy = self._source.policy
        check_location(table.metadata_location, policy.allowed_locations)
        place = check_location(table.location, policy.allowed_locations)
        stores = self._source.stores_for(name, self._stores)
        facts = Observations()
        keys = usual_keys(name, table, place, policy)
        store = stores.store_for(keys[0])
        if _is_batched(type(store)):
            for key, held in zip(keys, await cast("BatchReader", store).read_all(keys), strict=True):
                facts.files[key] = ObservedFile(held, facts.next_sequence())
        catalog = self._source.catalog
        return await decide_with_queries(
            lambda known: compare(name, table, place, known, policy), stores, catalog, facts
        )


async def decide_with_queries(
    decide: Callable[[Observations], T], stores: StoreRouter, catalog: Catalog, facts: Observations | None = None
) -> T:
    """What is decided from files, and from what the catalog says of other tables, once those were looked at.

    Args:
        facts: what is known so far.

    Raises:
        Trouble: a store or the catalog failed.
        LocationRefused: no store is configured for one of them.
    """
    facts = facts or Observations()
    while True:
        try:
            return decide(facts)
        except NeedsQuery as lacking:
            query = lacking.query
        match query:
            case ReadFiles(keys):
                for key in keys:
                    facts.files[key] = ObservedFile(await stores.store_for(key).read(key), facts.next_sequence())
            case LoadTable(other):
                answer = await catalog.load(other, None)
                found = answer.table if isinstance(answer, Loaded) else NoSuchTable()
                facts.answers[other] = CatalogAnswer(found, None, _NO_TIME, _NO_TIME, facts.next_sequence())
            case _:
                raise TypeError(query)


@cache
def _is_batched(kind: type) -> bool:
    # Looking through a protocol takes longer than reading a file.
    return issubclass(kind, BatchReader)


# ── survey: One walk over a catalog that tells what a sweep would find

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
