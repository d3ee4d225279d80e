"""The walk over all namespaces of a catalog, by its listings.

A namespace that cannot be listed is withheld, and the walk goes on: one bad namespace must not hide those behind it.
`Health` tells such a namespace from a catalog that is down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import anyio

from sfn.catalog import Skip, Withheld
from sfn.errors import Permanent, Scope, Transient, Trouble
from sfn.words import TableName

T = TypeVar("T")

Levels: TypeAlias = tuple[str, ...]
"""A namespace: its levels, outermost first; none for what all others lie in."""

IN_A_ROW: Final = 8
"""Namespaces that fail one after the other before others are asked about to find out whether the catalog is down."""
PROBES: Final = 8
"""Other namespaces that are asked about to find that out, where none has answered yet."""
SLOW: Final = 5.0
"""Seconds: a listing that takes longer to fail counts as several that fail."""
SLOW_COUNTS: Final = 4
SLOW_ALTOGETHER: Final = 180.0
"""Seconds that slow failures of one walk may take. After that the walk waits no longer than `TIGHT` for each page."""
TIGHT: Final = 10.0


class Health:
    """Tells a namespace that cannot be listed from a catalog that is down: that one lists no other namespace either.

    Args:
        probe: lists the tables of a namespace; only the first entry is taken.
        others: namespaces that were not asked about yet.
    """

    def __init__(
        self, probe: Callable[[Levels], AsyncGenerator[object]], others: Callable[[], Sequence[Levels]]
    ) -> None:
        self._probe, self._others = probe, others
        self._probing = anyio.Lock()
        self._good: Levels | None = None
        self._in_a_row = 0
        self._slow = 0.0
        self._failure: Trouble | None = None

    @property
    def outage(self) -> Trouble | None:
        """The last failure, where no namespace could be listed at all."""
        return self._failure if self._good is None else None

    @property
    def patience(self) -> float | None:
        """Seconds to wait for a page; None for as long as the adapter waits."""
        return TIGHT if self._slow >= SLOW_ALTOGETHER else None

    def answered(self, namespace: Levels) -> None:
        """The tables of a namespace were listed."""
        self._good, self._in_a_row = namespace, 0

    async def is_down(self, trouble: Trouble, seconds: float = 0.0) -> bool:
        """Return whether a failed listing of a namespace means that the catalog as a whole is down.

        Args:
            trouble: raised by the listing.
            seconds: how long the listing took to fail.
        """
        is_far = trouble.scope is not Scope.TABLE
        if isinstance(trouble, Permanent) and not is_far:
            return False
        is_slow = seconds >= SLOW
        self._failure = trouble
        self._slow += seconds if is_slow else 0.0
        self._in_a_row += SLOW_COUNTS if is_slow else 1
        async with self._probing:
            return (is_far or self._in_a_row >= IN_A_ROW) and not await self._answers()

    async def _answers(self) -> bool:
        """Ask about a namespace that answered before, or about some that were not asked about."""
        others = self._others()
        # Evenly from the first to the last: those that fail together often have names that begin alike.
        spread = {number * (len(others) - 1) // (PROBES - 1) for number in range(PROBES)} if others else ()
        asked = [self._good] if self._good is not None else [others[number] for number in sorted(spread)]
        for namespace in asked:
            with suppress(Trouble, TimeoutError), anyio.fail_after(TIGHT):
                async with aclosing(self._probe(namespace)) as found:
                    await anext(found, None)
                self.answered(namespace)
                return True
        return False


async def walk(
    catalog: str,
    tables: Callable[[Levels], AsyncGenerator[tuple[Levels, str]]],
    namespaces: Callable[[Levels], AsyncGenerator[Levels]],
    skip: Skip | None = None,
) -> AsyncGenerator[TableName | Withheld]:
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
    health = Health(tables, lambda: tuple(waiting))
    outermost: Trouble | None = None
    while waiting:
        namespace = waiting.popleft()
        where = f"catalog {catalog}: listing of {'.'.join(namespace) or 'all namespaces'}"
        failures: list[_Failure] = []
        if namespace:
            async with aclosing(_each(tables(namespace), where, health.patience, failures)) as found:
                async for levels, name in found:
                    yield TableName(catalog, levels, name)
            if not failures:
                health.answered(namespace)
        # What hung, or is the whole catalog's, would do so again.
        if not any(failure.seconds >= SLOW or failure.trouble.scope is not Scope.TABLE for failure in failures):
            async with aclosing(_each(namespaces(namespace), where, health.patience, failures)) as children:
                found_below = [child async for child in children if skip is None or not skip(child)]
            waiting.extend(child for child in dict.fromkeys(found_below) if child not in seen)
            seen.update(found_below)
        if failures and not namespace and failures[0].trouble.scope is Scope.TABLE:
            outermost = failures[0].trouble
        elif failures:
            yield await _withheld(namespace, failures[0], health)
    if (failed := outermost or health.outage) is not None:
        raise failed


async def _withheld(namespace: Levels, failure: _Failure, health: Health) -> Withheld:
    """Return what a failure says of a namespace; raise the failure where the catalog is down."""
    trouble = failure.trouble
    if not namespace or await health.is_down(trouble, failure.seconds):
        raise trouble
    is_refused = isinstance(trouble, Permanent) and trouble.scope is Scope.TABLE
    return Withheld(namespace, str(trouble), is_failure=not is_refused)


@dataclass(frozen=True, slots=True)
class _Failure:
    """A listing that failed.

    Attributes:
        trouble: raised by the listing.
        seconds: how long it took to fail; what came before is not counted.
    """

    trouble: Trouble
    seconds: float


async def _each(
    found: AsyncGenerator[T], where: str, patience: float | None, failures: list[_Failure]
) -> AsyncGenerator[T]:
    """Yield the entries of a listing until it ends or fails; a failure is noted."""
    async with aclosing(found):
        while True:
            began = anyio.current_time()
            try:
                one = await _next(found, where, patience)
            except StopAsyncIteration:
                return
            except Trouble as trouble:
                failures.append(_Failure(trouble, anyio.current_time() - began))
                return
            yield one


async def _next(found: AsyncGenerator[T], where: str, patience: float | None) -> T:
    if patience is None:
        return await anext(found)
    try:
        with anyio.fail_after(patience):
            return await anext(found)
    except TimeoutError:
        raise Transient(
            where,
            scope=Scope.TABLE,
            expected=f"an answer within {patience:g} s, as other namespaces took long and failed",
            found="none",
            remedy="see why the catalog does not list it, or exclude it",
        ) from None
