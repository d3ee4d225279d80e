"""`walk_tables`: the walk over all namespaces of a catalog, by its listings.

A namespace that cannot be listed is reported, and the walk goes on: one bad namespace must not hide those behind it.
`CatalogHealth` distinguishes such a namespace from a catalog that is down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final, TypeAlias, TypeVar

import anyio

from sfn.catalogs import SkipNamespace, UnlistedNamespace
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient

Levels: TypeAlias = tuple[str, ...]
"""A namespace: its levels, outermost first; empty for the root."""

MAX_CONSECUTIVE_FAILURES: Final = 8
"""Consecutive failures after which other namespaces are tried, to find out whether the catalog is down."""
MAX_PROBES: Final = 8
"""Other namespaces that are tried if none has answered yet."""
SLOW_SECONDS: Final = 5.0
"""Seconds after which a failed listing counts as several failures."""
SLOW_WEIGHT: Final = 4
"""Failures that a slow one counts as."""
MAX_SLOW_SECONDS: Final = 180.0
"""Seconds that slow failures of one walk may take. After that the walk waits no longer than `REDUCED_TIMEOUT` for
each page."""
REDUCED_TIMEOUT: Final = 10.0


class CatalogHealth:
    """Distinguishes a namespace that cannot be listed from a catalog that is down, which lists no namespace.

    Args:
        probe: lists the tables of a namespace; only the first entry is taken.
        others: returns the namespaces that were not tried yet.
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
        """The last failure if no namespace could be listed at all; else None."""
        return self._failure if self._last_listed is None else None

    @property
    def page_timeout(self) -> float | None:
        """Seconds to wait for a page; None for the adapter's own time-out."""
        return REDUCED_TIMEOUT if self._slow >= MAX_SLOW_SECONDS else None

    def note_listed(self, namespace: Levels) -> None:
        """Note that the tables of a namespace were listed."""
        self._last_listed, self._in_a_row = namespace, 0

    async def is_down(self, error: ExternalError, seconds: float = 0.0) -> bool:
        """Return True if a failed listing of a namespace means that the catalog as a whole is down.

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
        """Try a namespace that answered before, or some that were not tried yet."""
        others = self._others()
        # Spread evenly over the list: namespaces that fail together often have similar names.
        spread = {number * (len(others) - 1) // (MAX_PROBES - 1) for number in range(MAX_PROBES)} if others else ()
        tried = [self._last_listed] if self._last_listed is not None else [others[number] for number in sorted(spread)]
        for namespace in tried:
            with suppress(ExternalError, TimeoutError), anyio.fail_after(REDUCED_TIMEOUT):
                async with aclosing(self._probe(namespace)) as found:
                    await anext(found, None)
                self.note_listed(namespace)
                return True
        return False


T = TypeVar("T")


async def walk_tables(
    catalog: str,
    tables: Callable[[Levels], AsyncGenerator[tuple[Levels, str]]],
    namespaces: Callable[[Levels], AsyncGenerator[Levels]],
    skip: SkipNamespace | None = None,
) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
    """Yield every table of every namespace, and each namespace that could not be listed, or only in part.

    A namespace is entered once, so catalogs that ignore the parent or list all levels at once are walked, too.

    Args:
        catalog: the catalog's name in the configuration.
        tables: yields namespace and name of each table of a namespace.
        namespaces: yields the children of a namespace, or the outermost ones.
        skip: see `Catalog.tables`.

    Raises:
        ExternalError: the catalog is down; or the listing of the outermost namespaces is incomplete, raised after the
            listed ones were walked; or no namespace could be listed.
    """
    seen: set[Levels] = {()}
    waiting = deque[Levels]([()])
    health = CatalogHealth(tables, lambda: tuple(waiting))
    outermost: ExternalError | None = None
    while waiting:
        namespace = waiting.popleft()
        where = f"catalog {catalog}: listing of {'.'.join(namespace) or 'all namespaces'}"
        failures: list[_ListingFailure] = []
        if namespace:
            async with aclosing(_entries(tables(namespace), where, health.page_timeout, failures)) as found:
                async for levels, name in found:
                    yield TableIdentifier(catalog, levels, name)
            if not failures:
                health.note_listed(namespace)
        # After a slow failure, or one of the whole catalog, the next listing would fail in the same way.
        if not any(
            failure.seconds >= SLOW_SECONDS or failure.error.scope is not ErrorScope.TABLE for failure in failures
        ):
            async with aclosing(_entries(namespaces(namespace), where, health.page_timeout, failures)) as children:
                found_below = [child async for child in children if skip is None or not skip(child)]
            waiting.extend(child for child in dict.fromkeys(found_below) if child not in seen)
            seen.update(found_below)
        if failures and not namespace and failures[0].error.scope is ErrorScope.TABLE:
            outermost = failures[0].error
        elif failures:
            yield await _unlisted(namespace, failures[0], health)
    if (failed := outermost or health.outage) is not None:
        raise failed


async def _unlisted(namespace: Levels, failure: _ListingFailure, health: CatalogHealth) -> UnlistedNamespace:
    """Return the unlisted namespace of a failure; raise the failure if the catalog is down."""
    error = failure.error
    if not namespace or await health.is_down(error, failure.seconds):
        raise error
    is_refused = isinstance(error, Permanent) and error.scope is ErrorScope.TABLE
    return UnlistedNamespace(namespace, str(error), is_failure=not is_refused)


@dataclass(frozen=True, slots=True)
class _ListingFailure:
    """A listing that failed.

    Attributes:
        error: the error that the listing raised.
        seconds: seconds that the failed step took.
    """

    error: ExternalError
    seconds: float


async def _entries(
    found: AsyncGenerator[T], where: str, patience: float | None, failures: list[_ListingFailure]
) -> AsyncGenerator[T]:
    """Yield the entries of a listing until it ends or fails; note a failure."""
    entries = found if patience is None else _with_timeout(found, where, patience)
    async with aclosing(found), aclosing(entries):
        began = monotonic()
        try:
            async for one in entries:
                yield one
                # The consumer of the entries may take long.
                began = monotonic()
        except ExternalError as error:
            failures.append(_ListingFailure(error, monotonic() - began))


async def _with_timeout(found: AsyncGenerator[T], where: str, patience: float) -> AsyncGenerator[T]:
    while True:
        try:
            with anyio.fail_after(patience):
                one = await anext(found)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Transient(
                where,
                scope=ErrorScope.TABLE,
                expected=f"an answer within {patience:g} s, as other namespaces took long and failed",
                found="none",
                remedy="check why the catalog does not list it, or exclude it",
            ) from None
        yield one
