"""Which namespaces a catalog has, and which tables these have: in parts, so that many may list at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import anyio

from sfn.catalogs import Catalog
from sfn.catalogs.listing import CatalogHealth
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent
from sfn.publish.policy import TableFilter
from sfn.report.pace import as_namespace_lister
from sfn.report.trials import CatalogRetries

G = TypeVar("G")
T = TypeVar("T")

LISTING_CONCURRENCY: Final = 8
"""Namespaces that one process looks into at a time."""


@dataclass(frozen=True, slots=True)
class NamespacePart:
    """A namespace, whose tables may be listed on another machine.

    Attributes:
        catalog: by its name in the configuration.
        namespace: its levels; none for the catalog as a whole.
        refused: why what lies in it, or below it, can't be listed; empty where it can.
        withheld: nobody lets us; otherwise it could not be asked.
    """

    catalog: str
    namespace: tuple[str, ...]
    refused: str = ""
    withheld: bool = False


async def list_namespaces(
    name: str, catalog: Catalog, interest: TableFilter, retries: CatalogRetries
) -> list[NamespacePart]:
    """All namespaces of a catalog that may have tables that matter, a level after the other.

    Those that can't be listed are among them, and so is the catalog as a whole where that can't be.
    """
    found: list[NamespacePart] = []
    seen: set[tuple[str, ...]] = {()}
    level: list[tuple[str, ...]] = [()]
    health = CatalogHealth(as_namespace_lister(catalog).namespaces, lambda: level)
    while level:
        results = await _map_concurrently(
            level, lambda one: _list_with_retries(name, one, retries, health, partial(_list_children, catalog, one))
        )
        found += [refused for _, refused in results if refused is not None]
        below = dict.fromkeys(child for children, _ in results for child in children)
        level = [child for child in below if child not in seen and not interest.excludes_namespace(child)]
        seen.update(level)
        found += [NamespacePart(name, namespace) for namespace in level]
    return found


async def list_tables(
    given: Sequence[NamespacePart], catalog: Catalog, interest: TableFilter, retries: CatalogRetries
) -> tuple[list[TableIdentifier], list[NamespacePart]]:
    """The tables of some namespaces that matter, and which of these could not be listed."""
    health = CatalogHealth(as_namespace_lister(catalog).tables_in, lambda: [one.namespace for one in given])
    results = await _map_concurrently(
        given,
        lambda one: _list_with_retries(
            one.catalog, one.namespace, retries, health, partial(_list_within, catalog, one.namespace)
        ),
    )
    found = [table for listed, _ in results for table in listed if interest.covers(table)]
    return found, [refused for _, refused in results if refused is not None]


async def _list_children(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [child async for child in as_namespace_lister(catalog).namespaces(namespace)]


async def _list_within(catalog: Catalog, namespace: tuple[str, ...]) -> list[TableIdentifier]:
    return [table async for table in as_namespace_lister(catalog).tables_in(namespace)]


async def _list_with_retries(
    name: str,
    namespace: tuple[str, ...],
    retries: CatalogRetries,
    health: CatalogHealth,
    ask: Callable[[], Awaitable[list[T]]],
) -> tuple[list[T], NamespacePart | None]:
    try:
        return await retries.call(partial(_list_once, namespace, health, ask)), None
    except ExternalError as trouble:
        withheld = isinstance(trouble, Permanent) and trouble.scope is ErrorScope.TABLE
        return [], NamespacePart(name, namespace, str(trouble), withheld)


async def _list_once(
    namespace: tuple[str, ...], health: CatalogHealth, ask: Callable[[], Awaitable[list[T]]]
) -> list[T]:
    """Ask; trouble is the namespace's alone while the catalog lists others, and else the catalog's."""
    began = anyio.current_time()
    try:
        found = await ask()
    except ExternalError as trouble:
        if not namespace:
            raise
        is_down = await health.is_down(trouble, anyio.current_time() - began)
        scope = ErrorScope.CATALOG if is_down else ErrorScope.TABLE
        if trouble.scope is scope:
            raise
        raise trouble.with_scope(scope) from trouble
    if namespace:
        health.note_listed(namespace)
    return found


async def _map_concurrently(given: Sequence[G], work: Callable[[G], Awaitable[T]]) -> list[T]:
    waiting, done = iter(given), list[T]()

    async def some() -> None:
        for one in waiting:
            done.append(await work(one))

    async with anyio.create_task_group() as tasks:
        for _ in range(min(LISTING_CONCURRENCY, len(given))):
            tasks.start_soon(some)
    return done
