"""Under which names a catalog lists a table that somebody spelled in another way.

Many catalogs take a name in any case and list one spelling of it; some ignore accents, forms of Unicode or blanks at
the end. Which spellings are one table only the catalog knows: names that are alike here are candidates, and no more.
"""

from __future__ import annotations

import unicodedata
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import anyio
import structlog

from sfn.catalog import Divided
from sfn.clock import Clock
from sfn.errors import Trouble
from sfn.words import TableName

T = TypeVar("T")

REMEMBERED: Final = timedelta(seconds=30)
"""For how long a listing is used again: less than the usual `replica_lag`, after which a doubtful table is looked at
once more."""
MOST: Final = 100_000
"""Names of listings that are remembered together."""

_QUOTES: Final = "\"'`[]"
Levels: TypeAlias = tuple[str, ...]

_log = structlog.stdlib.get_logger(__name__)


def folded(part: str) -> str:
    """Return what all spellings of a level or a name have in common."""
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", part).casefold())
    bare = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return bare.strip().strip(_QUOTES).strip() or part


class Unlisted(Exception):
    """A listing that could not be had."""


@dataclass(frozen=True, slots=True)
class _Listing(Generic[T]):
    """A listing as it was when somebody asked for it; None for one that could not be had."""

    asked: datetime
    items: Sequence[T] | None


class _Listings(Generic[T]):
    """Listings of one kind, by what they are below.

    Args:
        ask: asks the catalog for one.
        clock: the wall clock.
    """

    def __init__(self, ask: Callable[[Levels], AsyncGenerator[T]], clock: Clock) -> None:
        self._ask, self._clock = ask, clock
        self._known = OrderedDict[Levels, _Listing[T]]()
        self._asking = WeakValueDictionary[Levels, anyio.Lock]()

    async def matching(
        self, below: Levels, is_exact: Callable[[T], bool], is_alike: Callable[[T], bool], *, fresh: bool
    ) -> list[T]:
        """Return the one item of a listing that is exactly what is sought, or else those that are alike to it.

        Raises:
            Unlisted: it could not be had.
        """

        def matches(listing: _Listing[T]) -> list[T]:
            if listing.items is None:
                raise Unlisted
            exact = [item for item in listing.items if is_exact(item)]
            return exact[:1] or [item for item in listing.items if is_alike(item)]

        now, known = self._clock.now(), self._known.get(below)
        if known is not None and now - known.asked < REMEMBERED:
            found = matches(known)
            if found or not fresh:
                return found
        return matches(await self._asked(below, now))

    async def _asked(self, below: Levels, since: datetime) -> _Listing[T]:
        """Return a listing that was asked for since a moment: who waits for an older answer shares the next one."""
        lock = self._asking.get(below)
        if lock is None:
            lock = self._asking[below] = anyio.Lock()
        async with lock:
            known = self._known.get(below)
            return known if known is not None and known.asked >= since else await self._listed(below)

    async def _listed(self, below: Levels) -> _Listing[T]:
        asked = self._clock.now()
        try:
            async with aclosing(self._ask(below)) as found:
                listing = _Listing(asked, [item async for item in found])
        except Trouble as trouble:
            _log.info("spellings not compared", below=".".join(below) or "(all)", why=str(trouble))
            listing = _Listing(asked, None)
        self._known.pop(below, None)
        self._known[below] = listing
        while len(self._known) > 1 and sum(len(one.items or ()) + 1 for one in self._known.values()) > MOST:
            self._known.popitem(last=False)
        return listing


class Spellings:
    """The names that one catalog lists, remembered for a short time.

    Args:
        catalog: the catalog. One whose listing is not divided into namespaces is asked nothing.
        clock: the wall clock.

    Attributes:
        catalog: the same.
    """

    def __init__(self, catalog: object, clock: Clock) -> None:
        self.catalog = catalog
        self._namespaces: _Listings[Levels] | None = None
        self._tables: _Listings[TableName] | None = None
        if isinstance(catalog, Divided):
            self._namespaces = _Listings(catalog.namespaces, clock)
            self._tables = _Listings(catalog.within, clock)

    async def alike(self, table: TableName, *, fresh: bool) -> tuple[TableName, ...] | None:
        """Return the listed names that are alike to a table's name.

        Args:
            table: the name, in any spelling.
            fresh: whether the catalog is asked again where a remembered listing has no such name.

        Returns:
            The name alone where it is listed as it is. None where the catalog lists nothing to us.
        """
        if self._namespaces is None or self._tables is None:
            return None
        try:
            spaces = await self._spaces(self._namespaces, table.namespace, fresh=fresh)
            return await self._names(self._tables, spaces, table, fresh=fresh)
        except Unlisted:
            return None

    async def _spaces(self, listings: _Listings[Levels], namespace: Levels, *, fresh: bool) -> list[Levels]:
        """Return the listed namespaces that are alike to one."""
        spaces: list[Levels] = [()]
        for depth in range(1, len(namespace) + 1):
            found: list[Levels] = []
            for parent in spaces:
                is_exact, is_alike = _below(parent, namespace[:depth])
                found += await listings.matching(parent, is_exact, is_alike, fresh=fresh)
            spaces = [namespace[:depth]] if namespace[:depth] in found else list(dict.fromkeys(found))
        return spaces

    async def _names(
        self, listings: _Listings[TableName], spaces: Sequence[Levels], table: TableName, *, fresh: bool
    ) -> tuple[TableName, ...]:
        def is_exact(name: TableName) -> bool:
            # Some catalogs list a nested namespace as one level with dots.
            return name.identifier == table.identifier

        def is_alike(name: TableName) -> bool:
            return folded(name.name) == folded(table.name)

        names: list[TableName] = []
        for space in spaces:
            names += await listings.matching(space, is_exact, is_alike, fresh=fresh)
        return (table,) if any(map(is_exact, names)) else tuple(dict.fromkeys(names))


def _below(parent: Levels, wanted: Levels) -> tuple[Callable[[Levels], bool], Callable[[Levels], bool]]:
    """Which namespaces right below another are one that is sought, and which are alike to it."""
    last = folded(wanted[-1])
    return (
        lambda space: space == wanted,
        lambda space: len(space) == len(wanted) and space[:-1] == parent and folded(space[-1]) == last,
    )
