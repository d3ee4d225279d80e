"""Credentials that a cloud's own library finds, in a thread: environment, files, metadata services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import anyio

from sfn.catalog.refusal import CatalogFailure, CatalogRequestFailed
from sfn.catalog.rest.kept import Expiring, ExpiringCache
from sfn.errors import ErrorScope, SfnError

C = TypeVar("C")
T = TypeVar("T")

LOOKUP_INTERVAL: Final = 60.0
"""Seconds from one look to the next: whoever is asked looks for others minutes before what it found ends."""


class CloudCredentials(Generic[C, T]):
    """What a chain finds. It is found by a new one once it was not believed: a chain reads its files but once.

    Args:
        catalog: its name in the settings.
        limit: seconds that may pass until something is found.
        chain: makes a chain.
        find: has it find something; raises SfnError for nothing.
    """

    def __init__(self, catalog: str, limit: float, chain: Callable[[], C], find: Callable[[C], Awaitable[T]]) -> None:
        self._catalog, self._limit = catalog, limit
        self._new, self._find = chain, find
        self._chain = chain()
        self._cache = ExpiringCache(self._find_lasting, LOOKUP_INTERVAL)
        self._last: T | None = None
        self._refused: T | None = None

    async def current(self) -> T:
        """What is in force.

        Raises:
            Refused: scope catalog; there is none.
        """
        return await self._cache.current()

    async def renew(self, is_rejected: Callable[[T], bool]) -> bool:
        """Whether there is something else than what was refused; raises as of `current`."""
        # Another request may have met the same refusal and have something new already.
        current = self._cache.valid_value
        if current is None or is_rejected(current):
            self._refused = current
            current = await self._cache.refresh()
        return not is_rejected(current)

    async def _find_lasting(self) -> Expiring[T]:
        if self._refused is not None and self._refused == self._last:
            self._chain = self._new()
        where, problem, remedy = "credentials", f"none within {self._limit:g} s", "see whether what gives them answers"
        try:
            with anyio.move_on_after(self._limit):
                self._last = await self._find(self._chain)
                return Expiring(self._last)
        except SfnError as error:
            where, problem, remedy = error.where, error.found, error.remedy
        raise CatalogRequestFailed(
            CatalogFailure(
                f"catalog {self._catalog}: {where}", "credentials", problem, remedy, scope=ErrorScope.CATALOG
            )
        )
