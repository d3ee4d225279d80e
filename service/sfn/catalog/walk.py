"""The walk over all namespaces of a catalog, by its listings.

A namespace that cannot be listed is withheld, and the walk goes on: one bad namespace must not hide those behind it.
`CatalogHealth` distinguishes such a namespace from a catalog that is down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

import anyio

from sfn.catalog import SkipNamespace, UnlistedNamespace
from sfn.catalog.health import SLOW_SECONDS, CatalogHealth, Levels
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient

T = TypeVar("T")


async def walk_tables(
    catalog: str,
    tables: Callable[[Levels], AsyncGenerator[tuple[Levels, str]]],
    namespaces: Callable[[Levels], AsyncGenerator[Levels]],
    skip: SkipNamespace | None = None,
) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
    """Yield every table of every namespace, and each namespace that could not be listed, or not whole.

    A namespace is entered once, so catalogs that ignore the parent or list all levels at once are walked too.

    Args:
        catalog: the name that the configuration gives it.
        tables: namespace and name of each table of a namespace.
        namespaces: those right below another, or the outermost.
        skip: as the port has it.

    Raises:
        Trouble: the catalog is down; or the outermost namespaces could not be listed whole, once all were walked that
            were listed; or no namespace could be listed.
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
        # What hung, or is the whole catalog's, would do so again.
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
    """Return what a failure says of a namespace; raise the failure where the catalog is down."""
    error = failure.error
    if not namespace or await health.is_down(error, failure.seconds):
        raise error
    is_refused = isinstance(error, Permanent) and error.scope is ErrorScope.TABLE
    return UnlistedNamespace(namespace, str(error), is_failure=not is_refused)


@dataclass(frozen=True, slots=True)
class _ListingFailure:
    """A listing that failed.

    Attributes:
        error: raised by the listing.
        seconds: how long it took to fail; what came before is not counted.
    """

    error: ExternalError
    seconds: float


async def _entries(
    found: AsyncGenerator[T], where: str, patience: float | None, failures: list[_ListingFailure]
) -> AsyncGenerator[T]:
    """Yield the entries of a listing until it ends or fails; a failure is noted."""
    entries = found if patience is None else _with_timeout(found, where, patience)
    async with aclosing(found), aclosing(entries):
        began = monotonic()
        try:
            async for one in entries:
                yield one
                # The consumer of the entries may take long.
                began = monotonic()
        except ExternalError as trouble:
            failures.append(_ListingFailure(trouble, monotonic() - began))


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
                remedy="see why the catalog does not list it, or exclude it",
            ) from None
        yield one
