"""Limits for requests to a catalog: a rate, and retries with a total patience."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, TypeVar

import anyio

from sfn.catalogs import Catalog, LoadResult, NamespaceLister, SkipNamespace, UnlistedNamespace
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent


class CatalogRateLimiter:
    """A limit of the request rate, with equal intervals.

    Args:
        per_second: the maximum number of requests a second; None for no limit.
    """

    def __init__(self, per_second: float | None) -> None:
        self._apart = 0.0 if per_second is None else 1 / per_second
        self._next = 0.0

    async def wait(self) -> None:
        """Wait until the next request may be sent."""
        if not self._apart:
            return
        now = anyio.current_time()
        at = max(now, self._next)
        self._next = at + self._apart
        if at > now:
            await anyio.sleep(at - now)


class RateLimitedCatalog:
    """A catalog with a limited request rate.

    Args:
        inner: the catalog itself.
        rate: the limit.
    """

    def __init__(self, inner: Catalog, rate: CatalogRateLimiter) -> None:
        self._inner, self._rate = inner, rate

    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        await self._rate.wait()
        return await self._inner.load(table, known_etag)

    async def is_listed(self, table: TableIdentifier) -> bool:
        await self._rate.wait()
        return await self._inner.is_listed(table)

    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        await self._rate.wait()
        async for one in self._inner.tables(skip):
            yield one

    async def namespaces(self, parent: tuple[str, ...]) -> AsyncGenerator[tuple[str, ...]]:
        await self._rate.wait()
        async for one in as_namespace_lister(self._inner).namespaces(parent):
            yield one

    async def tables_in(self, namespace: tuple[str, ...]) -> AsyncGenerator[TableIdentifier]:
        await self._rate.wait()
        async for one in as_namespace_lister(self._inner).tables_in(namespace):
            yield one


def as_namespace_lister(catalog: Catalog) -> NamespaceLister:
    """Return a catalog that can list each namespace by itself; every catalog that can be queried is one."""
    if not isinstance(catalog, NamespaceLister):
        raise TypeError(catalog)
    return catalog


T = TypeVar("T")

MAX_TRIES: Final = 3
"""The number of attempts for a table with an error of its own that may pass."""
FIRST_PATIENCE: Final = 10.0
"""The patience in seconds for a catalog or store that has not answered yet."""
_MIN_PAUSE: Final = 0.1
_MAX_PAUSE: Final = 5.0


class CatalogRetries:
    """Retries of requests to one catalog and to the stores of its tables.

    Once the patience is exhausted, no more requests are made. Otherwise each of the catalog's other tables, perhaps
    hundreds of thousands, would wait as long.

    Args:
        patience: how many seconds to wait for a catalog or store that has answered before.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: float | None = None
        self._has_answered = False
        self.final_error: ExternalError | None = None

    async def call(self, request: Callable[[], Awaitable[T]]) -> T:
        """Make a request, with retries, and return its answer.

        Raises:
            ExternalError: with scope table, only this table is affected; otherwise no more requests are made.
        """
        tried, pause = 0, _MIN_PAUSE
        while self.final_error is None:
            try:
                found = await request()
            except ExternalError as error:
                tried += 1
                if self._is_final(error, tried):
                    raise
            else:
                self._since, self._has_answered = None, True
                return found
            await anyio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
        raise self.final_error.with_traceback(None)

    def _is_final(self, error: ExternalError, tried: int) -> bool:
        if error.scope is ErrorScope.TABLE:
            return isinstance(error, Permanent) or tried >= MAX_TRIES
        now = anyio.current_time()
        self._since = now if self._since is None else self._since
        patience = self._patience if self._has_answered else min(FIRST_PATIENCE, self._patience)
        if now - self._since < patience:
            return False
        self.final_error = error
        return True
