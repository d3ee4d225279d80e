"""The walk over all namespaces of a catalog, by its listings."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TypeAlias

from sfn.catalog import Skip, Withheld
from sfn.errors import Permanent, Scope
from sfn.words import TableName

Levels: TypeAlias = tuple[str, ...]
"""A namespace: its levels, outermost first; none for what all others lie in."""


async def walk(
    catalog: str,
    tables: Callable[[Levels], AsyncGenerator[tuple[Levels, str]]],
    namespaces: Callable[[Levels], AsyncGenerator[Levels]],
    skip: Skip | None = None,
) -> AsyncGenerator[TableName | Withheld]:
    """Every table of every namespace, and each namespace that we may not look into or whose name is refused.

    A namespace is entered once, so catalogs that ignore the parent or list all levels at once are walked too.

    Args:
        catalog: the name that the configuration gives it.
        tables: namespace and name of each table of a namespace.
        namespaces: those right below another, or the outermost.
        skip: as the port has it.

    Raises:
        Transient: it may pass, whosever trouble it is.
        Permanent: scope catalog.
    """
    seen: set[Levels] = {()}
    waiting = deque[Levels]([()])
    while waiting:
        namespace = waiting.popleft()
        refusals: list[Permanent] = []
        if namespace:
            with _withholding(refusals):
                async with aclosing(tables(namespace)) as found:
                    async for levels, name in found:
                        yield TableName(catalog, levels, name)
        with _withholding(refusals):
            async with aclosing(namespaces(namespace)) as children:
                async for child in children:
                    if child not in seen and not (skip is not None and skip(child)):
                        seen.add(child)
                        waiting.append(child)
        if refusals:
            yield Withheld(namespace, str(refusals[0]))


@contextmanager
def _withholding(refusals: list[Permanent]) -> Iterator[None]:
    try:
        yield
    except Permanent as trouble:
        if trouble.scope is not Scope.TABLE:
            raise
        refusals.append(trouble)
