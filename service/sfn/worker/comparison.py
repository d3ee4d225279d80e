"""Read-only comparison of one table with its SFN files, for dry runs, sweeps of operators, and audits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Final, TypeVar, cast

from sfn.catalogs import Catalog, Loaded, LoadResult, NoSuchTable, NotModified
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, LocationRefused, Permanent
from sfn.publish.dry_run import ComparisonResult, DifferenceKind, TableDifference, compare, usual_keys
from sfn.publish.queries import CatalogAnswer, LoadTable, NeedsQuery, Observations, ObservedFile, ReadFiles
from sfn.sfnfile.locations import check_location
from sfn.storage import BatchReader, StoreRouter
from sfn.worker.catalog_sources import ConnectedCatalog

T = TypeVar("T")

CONCURRENT_COMPARISONS: Final = 32
"""Tables that are compared at a time."""

_NO_TIME = datetime.min.replace(tzinfo=UTC)
"""Time of a query; it does not matter, because nothing is written."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An earlier answer of the catalog about a table.

    Attributes:
        etag: the etag of the answer.
        table: the table; its metadata log may be missing.
    """

    etag: str
    table: Table


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Comparison of one table.

    Attributes:
        answer: the answer of the catalog.
        table: the table by this answer, or by the cached one if it is not modified; None if there is no table.
        comparison: the comparison with the SFN files; None if they could not be compared.
        difference: the difference, if any.
    """

    answer: LoadResult
    table: Table | None = None
    comparison: ComparisonResult | None = None
    difference: TableDifference | None = None


class TableComparer:
    """Comparer of the tables of a catalog with their files.

    Args:
        connected: the catalog with its policy.
        stores: the configured stores.
    """

    def __init__(self, connected: ConnectedCatalog, stores: StoreRouter) -> None:
        self._connected, self._stores = connected, stores

    async def compare_table(self, name: TableIdentifier, cached: CachedAnswer | None = None) -> TableComparison:
        """Compare one table.

        Args:
            name: the table.
            cached: an earlier answer, which the catalog need not send again.

        Raises:
            ExternalError: the catalog or a store failed; with scope table, only for this table.
        """
        answer = await self._connected.catalog.load(name, None if cached is None else cached.etag)
        if isinstance(answer, NotModified) and cached is not None:
            found = await self.compare_files(name, cached.table, answer)
            if found.difference is None and found.comparison is not None and found.comparison.is_exact:
                return found
            # The cached answer lacks the metadata log, which is needed to count the commits in between.
            answer = await self._connected.catalog.load(name, None)
        if not isinstance(answer, Loaded):
            # The table was dropped after the listing, or is not written yet, so there is nothing to compare.
            return TableComparison(answer)
        return await self.compare_files(name, answer.table, answer)

    async def compare_files(self, name: TableIdentifier, table: Table, answer: LoadResult) -> TableComparison:
        """Compare the files of a table with an answer of the catalog.

        Args:
            name: the table.
            table: the table by the answer.
            answer: the answer.

        Raises:
            ExternalError: the catalog or a store failed; with scope table, only for this table.
        """
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
        policy = self._connected.policy
        check_location(table.metadata_location, policy.allowed_locations)
        location = check_location(table.location, policy.allowed_locations)
        stores = self._connected.stores_for(name, self._stores)
        observed = Observations()
        keys = usual_keys(name, table, location, policy)
        store = stores.store_for(keys[0])
        if _is_batched(type(store)):
            for key, stored in zip(keys, await cast("BatchReader", store).read_all(keys), strict=True):
                observed.files[key] = ObservedFile(stored, observed.next_sequence())
        catalog = self._connected.catalog
        return await decide_with_queries(
            lambda known: compare(name, table, location, known, policy), stores, catalog, observed
        )


async def decide_with_queries(
    decide: Callable[[Observations], T], stores: StoreRouter, catalog: Catalog, observed: Observations | None = None
) -> T:
    """Call `decide` until it raises no `NeedsQuery`, and run the queries that it needs: files, and other tables.

    Args:
        decide: computes the result from observations.
        stores: stores of the files.
        catalog: catalog of the other tables.
        observed: the observations so far.

    Raises:
        ExternalError: a store or the catalog failed.
        LocationRefused: no store is configured for a file.
    """
    observed = observed or Observations()
    while True:
        try:
            return decide(observed)
        except NeedsQuery as needed:
            query = needed.query
        match query:
            case ReadFiles(keys):
                for key in keys:
                    stored = await stores.store_for(key).read(key)
                    observed.files[key] = ObservedFile(stored, observed.next_sequence())
            case LoadTable(other):
                answer = await catalog.load(other, None)
                found = answer.table if isinstance(answer, Loaded) else NoSuchTable()
                observed.answers[other] = CatalogAnswer(found, None, _NO_TIME, _NO_TIME, observed.next_sequence())
            case _:
                raise TypeError(query)


@cache
def _is_batched(kind: type) -> bool:
    # Cached, because `isinstance` with a protocol takes longer than reading a file.
    return issubclass(kind, BatchReader)
