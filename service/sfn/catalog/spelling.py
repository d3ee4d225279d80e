"""Under which names a catalog lists a table that somebody spelled in another way.

Many catalogs take a name in any case and list one spelling of it; some ignore accents, forms of Unicode or blanks at
the end. Which spellings are one table only the catalog knows: names that are alike here are candidates, and no more.
"""

from __future__ import annotations

import unicodedata
from collections import OrderedDict, defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import anyio
import structlog

from sfn.catalog import Divided
from sfn.clock import Clock
from sfn.errors import Transient, Trouble
from sfn.words import TableName

T = TypeVar("T")

REMEMBERED: Final = timedelta(seconds=30)
"""For how long a listing is used again: less than the usual `replica_lag`, after which a doubtful table is looked at
once more."""
FAILED: Final = timedelta(seconds=1)
"""For how long a listing that failed is not asked for again."""
MOST: Final = 100_000
"""Names of listings that are remembered together."""
LONG: Final = timedelta(seconds=1)
"""A listing that took at least this long is not asked for again for each new name."""
SHARE: Final = 20
"""Such a listing is used again for 20 times as long as it took: then listings take 5 % of the time at most."""
LONGEST: Final = timedelta(minutes=5)
"""No listing is used again for longer, however long it took; the wall clock may have been set meanwhile."""

_QUOTES: Final = "\"'`[]"
Levels: TypeAlias = tuple[str, ...]

_log = structlog.stdlib.get_logger(__name__)


def folded(part: str) -> str:
    """Return what all spellings of a level or a name have in common."""
    folds = part.casefold()
    if not part.isascii():
        decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", part).casefold())
        folds = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return folds.strip().strip(_QUOTES).strip() or part


def is_alike(one: TableName, other: TableName) -> bool:
    """Whether two names of a catalog may be spellings of one."""
    return one.catalog == other.catalog and [*map(folded, (*one.namespace, one.name))] == [
        *map(folded, (*other.namespace, other.name))
    ]


class Unlisted(Exception):
    """A listing that could not be had.

    Attributes:
        for_now: it may be had soon; else the catalog refuses it, or failed the time before too.
    """

    def __init__(self, *, for_now: bool) -> None:
        super().__init__()
        self.for_now = for_now


@dataclass(frozen=True, slots=True)
class _Listing(Generic[T]):
    """A listing as it was when somebody asked for it.

    Attributes:
        asked: when that was.
        names: by what they have in common; or why they were not to be had.
        is_outage: it failed, and did not fail the time before.
        took: how long it took.
        size: how much memory it takes, in names.
    """

    asked: datetime
    names: Mapping[str, Sequence[T]] | Trouble
    is_outage: bool = False
    took: timedelta = timedelta()
    size: int = 1

    def is_young(self, now: datetime, *, complete: bool) -> bool:
        """Whether it is used again.

        Args:
            now: by the wall clock.
            complete: it must have all names that there are, as far as that costs little.
        """
        is_dear = self.took >= LONG
        good_for = min(max(REMEMBERED, SHARE * self.took), LONGEST) if is_dear else REMEMBERED
        if isinstance(self.names, Transient):
            good_for = FAILED
        return now - self.asked < good_for and (is_dear or not complete)


class _Listings(Generic[T]):
    """Listings of one kind, by what they are below.

    Args:
        ask: asks the catalog for one.
        last: the last part of an entry.
        clock: the wall clock.
    """

    def __init__(self, ask: Callable[[Levels], AsyncGenerator[T]], last: Callable[[T], str], clock: Clock) -> None:
        self._ask, self._last, self._clock = ask, last, clock
        self._known = OrderedDict[Levels, _Listing[T]]()
        self._asking = WeakValueDictionary[Levels, anyio.Lock]()

    async def alike(self, below: Levels, part: str, *, fresh: bool) -> Sequence[T]:
        """Return those entries of a listing whose last part is alike to one.

        Args:
            below: what is listed.
            part: in any spelling.
            fresh: whether a listing that is remembered and has none of them is asked for again; one that took long is
                not.

        Raises:
            Unlisted: it could not be had.
        """

        def matches(listing: _Listing[T]) -> Sequence[T]:
            if isinstance(listing.names, Trouble):
                raise Unlisted(for_now=listing.is_outage)
            return listing.names.get(folded(part), ())

        now, known = self._clock.now(), self._known.get(below)
        if known is not None and known.is_young(now, complete=False):
            found = matches(known)
            if found or known.is_young(now, complete=fresh):
                return found
        return matches(await self._asked(below, now))

    async def _asked(self, below: Levels, since: datetime) -> _Listing[T]:
        """Return a listing that was asked for since a moment: who waits for an older answer shares the next one."""
        lock = self._asking.get(below)
        if lock is None:
            lock = self._asking[below] = anyio.Lock()
        async with lock:
            known = self._known.get(below)
            if known is not None and (known.asked >= since or known.is_young(self._clock.now(), complete=True)):
                return known
            return await self._listed(below)

    async def _listed(self, below: Levels) -> _Listing[T]:
        asked, names, size = self._clock.now(), defaultdict[str, list[T]](list), 1
        try:
            async with aclosing(self._ask(below)) as found:
                async for entry in found:
                    names[folded(self._last(entry))].append(entry)
                    size += 1
        except Trouble as trouble:
            _log.debug("spellings not compared", below=".".join(below) or "(all)", why=str(trouble))
            before = self._known.get(below)
            is_new = before is None or not isinstance(before.names, Trouble)
            listing: _Listing[T] = _Listing(asked, trouble, is_outage=is_new and isinstance(trouble, Transient))
        else:
            listing = _Listing(asked, dict(names), took=self._clock.now() - asked, size=size)
        self._known.pop(below, None)
        self._known[below] = listing
        while len(self._known) > 1 and sum(one.size for one in self._known.values()) > MOST:
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
            self._namespaces = _Listings(catalog.namespaces, lambda space: space[-1] if space else "", clock)
            self._tables = _Listings(catalog.within, lambda name: name.name, clock)

    async def alike(self, table: TableName, *, fresh: bool) -> tuple[TableName, ...] | None:
        """Return the listed names that are alike to a table's name.

        Args:
            table: the name, in any spelling.
            fresh: whether the catalog is asked again where a remembered listing has no such name.

        Returns:
            The name alone where it is listed as it is. None where the catalog lists nothing to us.

        Raises:
            Unlisted: it could not be asked for now.
        """
        if self._namespaces is None or self._tables is None:
            return None
        try:
            return await self._alike(self._namespaces, self._tables, table, fresh=fresh)
        except Unlisted as unlisted:
            if unlisted.for_now:
                raise
            return None

    async def _alike(
        self, namespaces: _Listings[Levels], tables: _Listings[TableName], table: TableName, *, fresh: bool
    ) -> tuple[TableName, ...]:
        names: list[TableName] = []
        for space in await self._spaces(namespaces, table.namespace, fresh=fresh):
            found = await tables.alike(space, table.name, fresh=fresh)
            # Some catalogs list a nested namespace as one level with dots.
            if any(name.identifier == table.identifier for name in found):
                return (table,)
            names += found
        return tuple(dict.fromkeys(names))

    async def _spaces(self, listings: _Listings[Levels], namespace: Levels, *, fresh: bool) -> list[Levels]:
        """Return the listed namespaces that are alike to one, that itself first."""
        spaces: list[Levels] = [()]
        for depth in range(1, len(namespace) + 1):
            found: set[Levels] = set()
            for parent in spaces:
                below = await listings.alike(parent, namespace[depth - 1], fresh=fresh)
                # Some catalogs list all levels at once.
                found.update(space for space in below if len(space) == depth and space[:-1] == parent)
            spaces = sorted(found, key=lambda space: (space != namespace[: len(space)], space))
        return spaces
