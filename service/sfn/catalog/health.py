"""Whether a listing that failed is one namespace's trouble or the whole catalog's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final, TypeAlias

import anyio

from sfn.errors import ErrorScope, ExternalError, Permanent

Levels: TypeAlias = tuple[str, ...]
"""A namespace: its levels, outermost first; none for what all others lie in."""

MAX_CONSECUTIVE_FAILURES: Final = 8
"""Namespaces that fail one after the other before others are asked about to find out whether the catalog is down."""
MAX_PROBES: Final = 8
"""Other namespaces that are asked about to find that out, where none has answered yet."""
SLOW_SECONDS: Final = 5.0
"""Seconds: a listing that takes longer to fail counts as several that fail."""
SLOW_WEIGHT: Final = 4
MAX_SLOW_SECONDS: Final = 180.0
"""Seconds that slow failures of one walk may take. After that the walk waits no longer than `REDUCED_TIMEOUT` for
each page."""
REDUCED_TIMEOUT: Final = 10.0


class CatalogHealth:
    """Distinguishes a namespace that cannot be listed from a catalog that is down, which lists no namespace.

    Args:
        probe: lists the tables of a namespace; only the first entry is taken.
        others: namespaces that were not asked about yet.
    """

    def __init__(
        self, probe: Callable[[Levels], AsyncGenerator[object]], others: Callable[[], Sequence[Levels]]
    ) -> None:
        self._probe, self._others = probe, others
        self._probing = anyio.Lock()
        self._last_listed: Levels | None = None
        self._in_a_row = 0
        self._slow = 0.0
        self._failure: ExternalError | None = None

    @property
    def outage(self) -> ExternalError | None:
        """The last failure, where no namespace could be listed at all."""
        return self._failure if self._last_listed is None else None

    @property
    def page_timeout(self) -> float | None:
        """Seconds to wait for a page; None for as long as the adapter waits."""
        return REDUCED_TIMEOUT if self._slow >= MAX_SLOW_SECONDS else None

    def note_listed(self, namespace: Levels) -> None:
        """The tables of a namespace were listed."""
        self._last_listed, self._in_a_row = namespace, 0

    async def is_down(self, error: ExternalError, seconds: float = 0.0) -> bool:
        """Return whether a failed listing of a namespace means that the catalog as a whole is down.

        Args:
            error: raised by the listing.
            seconds: how long the listing took to fail.
        """
        is_far = error.scope is not ErrorScope.TABLE
        if isinstance(error, Permanent) and not is_far:
            return False
        is_slow = seconds >= SLOW_SECONDS
        self._failure = error
        self._slow += seconds if is_slow else 0.0
        self._in_a_row += SLOW_WEIGHT if is_slow else 1
        async with self._probing:
            return (is_far or self._in_a_row >= MAX_CONSECUTIVE_FAILURES) and not await self._any_namespace_answers()

    async def _any_namespace_answers(self) -> bool:
        """Ask about a namespace that answered before, or about some that were not asked about."""
        others = self._others()
        # Evenly from the first to the last: those that fail together often have names that begin alike.
        spread = {number * (len(others) - 1) // (MAX_PROBES - 1) for number in range(MAX_PROBES)} if others else ()
        asked = [self._last_listed] if self._last_listed is not None else [others[number] for number in sorted(spread)]
        for namespace in asked:
            with suppress(ExternalError, TimeoutError), anyio.fail_after(REDUCED_TIMEOUT):
                async with aclosing(self._probe(namespace)) as found:
                    await anext(found, None)
                self.note_listed(namespace)
                return True
        return False
