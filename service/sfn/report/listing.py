"""Which namespaces a catalog has, and which tables these have: in parts, so that many may list at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import anyio

from sfn.catalog import Catalog
from sfn.catalog.health import CatalogHealth
from sfn.errors import Permanent, Scope, Trouble
from sfn.publish.policy import TableFilter
from sfn.report.pace import divided
from sfn.report.trials import Trials
from sfn.words import TableName

G = TypeVar("G")
T = TypeVar("T")

WIDTH: Final = 8
"""Namespaces that one process looks into at a time."""


@dataclass(frozen=True, slots=True)
class Part:
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


async def parts(name: str, catalog: Catalog, interest: TableFilter, trials: Trials) -> list[Part]:
    """All namespaces of a catalog that may have tables that matter, a level after the other.

    Those that can't be listed are among them, and so is the catalog as a whole where that can't be.
    """
    found: list[Part] = []
    seen: set[tuple[str, ...]] = {()}
    level: list[tuple[str, ...]] = [()]
    health = CatalogHealth(divided(catalog).namespaces, lambda: level)
    while level:
        looks = await _each(level, lambda one: _tried(name, one, trials, health, partial(_children, catalog, one)))
        found += [refused for _, refused in looks if refused is not None]
        below = dict.fromkeys(child for children, _ in looks for child in children)
        level = [child for child in below if child not in seen and not interest.excludes_namespace(child)]
        seen.update(level)
        found += [Part(name, namespace) for namespace in level]
    return found


async def tables(
    given: Sequence[Part], catalog: Catalog, interest: TableFilter, trials: Trials
) -> tuple[list[TableName], list[Part]]:
    """The tables of some namespaces that matter, and which of these could not be listed."""
    health = CatalogHealth(divided(catalog).tables_in, lambda: [one.namespace for one in given])
    looks = await _each(
        given, lambda one: _tried(one.catalog, one.namespace, trials, health, partial(_within, catalog, one.namespace))
    )
    found = [table for listed, _ in looks for table in listed if interest.covers(table)]
    return found, [refused for _, refused in looks if refused is not None]


async def _children(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [child async for child in divided(catalog).namespaces(namespace)]


async def _within(catalog: Catalog, namespace: tuple[str, ...]) -> list[TableName]:
    return [table async for table in divided(catalog).tables_in(namespace)]


async def _tried(
    name: str, namespace: tuple[str, ...], trials: Trials, health: CatalogHealth, ask: Callable[[], Awaitable[list[T]]]
) -> tuple[list[T], Part | None]:
    try:
        return await trials.of(partial(_judged, namespace, health, ask)), None
    except Trouble as trouble:
        withheld = isinstance(trouble, Permanent) and trouble.scope is Scope.TABLE
        return [], Part(name, namespace, str(trouble), withheld)


async def _judged(namespace: tuple[str, ...], health: CatalogHealth, ask: Callable[[], Awaitable[list[T]]]) -> list[T]:
    """Ask; trouble is the namespace's alone while the catalog lists others, and else the catalog's."""
    began = anyio.current_time()
    try:
        found = await ask()
    except Trouble as trouble:
        if not namespace:
            raise
        is_down = await health.is_down(trouble, anyio.current_time() - began)
        scope = Scope.CATALOG if is_down else Scope.TABLE
        if trouble.scope is scope:
            raise
        raise trouble.of_scope(scope) from trouble
    if namespace:
        health.note_listed(namespace)
    return found


async def _each(given: Sequence[G], work: Callable[[G], Awaitable[T]]) -> list[T]:
    waiting, done = iter(given), list[T]()

    async def some() -> None:
        for one in waiting:
            done.append(await work(one))

    async with anyio.create_task_group() as tasks:
        for _ in range(min(WIDTH, len(given))):
            tasks.start_soon(some)
    return done
