"""What is had from elsewhere and ends: tokens, keys, grants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import anyio

from sfn.catalog.refusal import CatalogRequestFailed

T = TypeVar("T")

REFRESH_MARGIN: Final = 60.0
"""Seconds before its end at which something is asked for anew, at most a fifth of its life: more than one request
lasts."""
RETRY_AFTER_FAILURE: Final = 5.0
"""Seconds until it is tried again, when that failed and the old one is still good."""

_NEVER_EXPIRES: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Expiring(Generic[T]):
    """Something that ends.

    Attributes:
        value: itself.
        lifetime: seconds from when it was asked for, None where nobody says.
    """

    value: T = field(repr=False)
    lifetime: float | None = None


class ExpiringCache(Generic[T]):
    """Something that ends, had anew before it does, by one question at a time.

    Whoever waits for a question shares its outcome, good or bad. While the old one is good it is given where no new one
    can be had.

    Args:
        ask: has one; raises Refused for none.
        every: seconds after which one is had anew that does not say when it ends; None for never.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Expiring[T]]], every: float | None = None) -> None:
        self._fetch = fetch
        self._every = _NEVER_EXPIRES if every is None else every
        self._requesting = anyio.Lock()
        self._requests = 0
        self._current: Expiring[T] | None = None
        self._outcome: Expiring[T] | CatalogRequestFailed | None = None
        self._refresh_at = self._expires_at = _NEVER_EXPIRES

    @property
    def valid_value(self) -> T | None:
        """What was had last, None once it ended or where nothing was."""
        return self._current.value if self._current is not None and anyio.current_time() < self._expires_at else None

    async def current(self) -> T:
        """What is in force.

        Raises:
            Refused: there is none.
        """
        value = self.valid_value
        if value is not None and anyio.current_time() < self._refresh_at:
            return value
        try:
            return await self.refresh()
        except CatalogRequestFailed:
            if value is None or self.valid_value is None:
                raise
        self._refresh_at = anyio.current_time() + RETRY_AFTER_FAILURE
        return value

    async def refresh(self) -> T:
        """What is had by a question that ended after this call; raises as of `current`."""
        before = self._requests
        async with self._requesting:
            # Without sharing, the last of many that wait on a dead server would wait for all their failures in turn.
            if self._requests == before or self._outcome is None:
                self._outcome = await self._request()
                self._requests += 1
            outcome = self._outcome
        if isinstance(outcome, CatalogRequestFailed):
            # One error that many tasks raise would grow a traceback of all of them.
            raise type(outcome)(outcome.failure)
        return outcome.value

    async def _request(self) -> Expiring[T] | CatalogRequestFailed:
        asked = anyio.current_time()
        try:
            fetched = await self._fetch()
        except CatalogRequestFailed as refused:
            return refused
        self._current = fetched
        if fetched.lifetime is None:
            self._refresh_at, self._expires_at = asked + self._every, _NEVER_EXPIRES
        else:
            self._refresh_at, self._expires_at = (
                asked + fetched.lifetime - min(REFRESH_MARGIN, fetched.lifetime / 5),
                asked + fetched.lifetime,
            )
        return fetched
