"""How often a catalog is asked: no more than so many requests a second."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, TypeVar

import anyio

from sfn.catalogs import Catalog, NamespaceLister, SkipNamespace, UnlistedNamespace
from sfn.domain.catalog_answer import LoadResult
from sfn.domain.events import EventHistory
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent

# ── pace: How often a catalog is asked


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


# ── trials: How long is waited for a catalog

T = TypeVar("T")

MAX_TRIES: Final = 3
"""Looks at a table whose own trouble may pass."""
FIRST_PATIENCE: Final = 10.0
"""Seconds that are waited for what has not answered yet."""
_MIN_PAUSE: Final = 0.1
_MAX_PAUSE: Final = 5.0


class CatalogRetries:
    """What is asked of one catalog and of the stores of its tables.

    Once it was waited for in vain nothing more is asked: each of the others of its tables, perhaps of hundreds of
    thousands, would wait as long.

    Args:
        patience: seconds that are waited for what has answered before.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: float | None = None
        self._has_answered = False
        self.final_error: ExternalError | None = None

    async def call(self, ask: Callable[[], Awaitable[T]]) -> T:
        """An answer, asked for as often as it takes.

        Raises:
            Trouble: scope table: this table's alone; any other: nothing is asked of that catalog any more.
        """
        tried, pause = 0, _MIN_PAUSE
        while self.final_error is None:
            try:
                found = await ask()
            except ExternalError as trouble:
                tried += 1
                if self._is_final(trouble, tried):
                    raise
            else:
                self._since, self._has_answered = None, True
                return found
            await anyio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
        raise self.final_error.with_traceback(None)

    def _is_final(self, trouble: ExternalError, tried: int) -> bool:
        if trouble.scope is ErrorScope.TABLE:
            return isinstance(trouble, Permanent) or tried >= MAX_TRIES
        now = anyio.current_time()
        self._since = now if self._since is None else self._since
        patience = self._patience if self._has_answered else min(FIRST_PATIENCE, self._patience)
        if now - self._since < patience:
            return False
        self.final_error = trouble
        return True
