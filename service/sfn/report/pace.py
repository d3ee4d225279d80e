"""How often a catalog is asked: no more than so many requests a second."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio

from sfn.catalogs import Catalog, NamespaceLister, SkipNamespace, UnlistedNamespace
from sfn.domain.catalog_answer import LoadResult
from sfn.domain.events import EventHistory
from sfn.domain.identifiers import TableIdentifier


class CatalogRateLimiter:
    """One request after the other, as far apart as it takes.

    Args:
        per_second: the limit; None for none.
    """

    def __init__(self, per_second: float | None) -> None:
        self._apart = 0.0 if per_second is None else 1 / per_second
        self._next = 0.0

    async def wait(self) -> None:
        """Wait until one more may be sent."""
        if not self._apart:
            return
        now = anyio.current_time()
        at = max(now, self._next)
        self._next = at + self._apart
        if at > now:
            await anyio.sleep(at - now)


class RateLimitedCatalog:
    """A catalog that is asked at a pace.

    Args:
        inner: itself.
    """

    def __init__(self, inner: Catalog, pace: CatalogRateLimiter) -> None:
        self._inner, self._pace = inner, pace

    async def load(
        self, table: TableIdentifier, known_etag: str | None, history: EventHistory | None = None
    ) -> LoadResult:
        await self._pace.wait()
        return await self._inner.load(table, known_etag, history)

    async def is_listed(self, table: TableIdentifier) -> bool:
        await self._pace.wait()
        return await self._inner.is_listed(table)

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        await self._pace.wait()
        async for one in self._inner.tables(skip):
            yield one

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        await self._pace.wait()
        async for one in as_namespace_lister(self._inner).namespaces(parent):
            yield one

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        await self._pace.wait()
        async for one in as_namespace_lister(self._inner).tables_in(namespace):
            yield one


def as_namespace_lister(catalog: Catalog) -> NamespaceLister:
    """A catalog as one whose listing can be shared out: those that can be asked all are."""
    if not isinstance(catalog, NamespaceLister):
        raise TypeError(catalog)
    return catalog
