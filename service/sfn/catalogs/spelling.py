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

from sfn.catalogs import NamespaceLister
from sfn.clock import Clock
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ExternalError, Transient

T = TypeVar("T")

CACHE_LIFETIME: Final = timedelta(seconds=30)
"""For how long a listing is used again: less than the usual `replica_lag`, after which a doubtful table is looked at
once more."""
FAILURE_LIFETIME: Final = timedelta(seconds=1)
"""For how long a listing that failed is not asked for again."""
MAX_CACHED_NAMES: Final = 100_000
"""Names of listings that are remembered together."""
SLOW_LISTING: Final = timedelta(seconds=1)
"""A listing that took at least this long is not asked for again for each new name."""
SLOW_LIFETIME_FACTOR: Final = 20
"""Such a listing is used again for 20 times as long as it took: then listings take 5 % of the time at most."""
MAX_CACHE_LIFETIME: Final = timedelta(minutes=5)
"""No listing is used again for longer, however long it took; the wall clock may have been set meanwhile."""

_QUOTES: Final = "\"'`[]"
Levels: TypeAlias = tuple[str, ...]

_log = structlog.stdlib.get_logger(__name__)


def fold_name(part: str) -> str:
    """Return what all spellings of a level or a name have in common."""
    folds = part.casefold()
    if not part.isascii():
        decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", part).casefold())
        folds = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return folds.strip().strip(_QUOTES).strip() or part


def may_be_same_name(one: TableIdentifier, other: TableIdentifier) -> bool:
    """Whether two names of a catalog may be spellings of one."""
    return one.catalog == other.catalog and [*map(fold_name, (*one.namespace, one.name))] == [
        *map(fold_name, (*other.namespace, other.name))
    ]


class ListingUnavailable(Exception):
    """A listing that could not be had.

    Attributes:
        is_temporary: it may be had soon; else the catalog refuses it, or failed the time before too.
    """

    def __init__(self, *, is_temporary: bool) -> None:
        super().__init__()
        self.is_temporary = is_temporary


@dataclass(frozen=True, slots=True)
class _CachedListing(Generic[T]):
    """A listing as it was when somebody asked for it.

    Attributes:
        requested_at: when that was.
        entries: by what they have in common; or why they were not to be had.
        is_outage: it failed, and did not fail the time before.
        duration: how long it took.
        size: how much memory it takes, in names.
    """

    requested_at: datetime
    entries: Mapping[str, Sequence[T]] | ExternalError
    is_outage: bool = False
    duration: timedelta = timedelta()
    size: int = 1

    def is_fresh(self, now: datetime, *, complete: bool) -> bool:
        """Whether it is used again.

        Args:
            now: by the wall clock.
            complete: it must have all names that there are, as far as that costs little.
        """
        is_slow = self.duration >= SLOW_LISTING
        lifetime = (
            min(max(CACHE_LIFETIME, SLOW_LIFETIME_FACTOR * self.duration), MAX_CACHE_LIFETIME)
            if is_slow
            else CACHE_LIFETIME
        )
        if isinstance(self.entries, Transient):
            lifetime = FAILURE_LIFETIME
        return now - self.requested_at < lifetime and (is_slow or not complete)


class _ListingCache(Generic[T]):
    """Listings of one kind, by what they are below.

    Args:
        ask: asks the catalog for one.
        last: the last part of an entry.
        clock: the wall clock.
    """

    def __init__(
        self, fetch: Callable[[Levels], AsyncGenerator[T]], last_part: Callable[[T], str], clock: Clock
    ) -> None:
        self._fetch, self._last_part, self._clock = fetch, last_part, clock
        self._cached = OrderedDict[Levels, _CachedListing[T]]()
        self._asking = WeakValueDictionary[Levels, anyio.Lock]()

    async def matching(self, below: Levels, part: str, *, fresh: bool) -> Sequence[T]:
        """Return those entries of a listing whose last part is alike to one.

        Args:
            below: what is listed.
            part: in any spelling.
            fresh: whether a listing that is remembered and has none of them is asked for again; one that took long is
                not.

        Raises:
            Unlisted: it could not be had.
        """

        def matches(listing: _CachedListing[T]) -> Sequence[T]:
            if isinstance(listing.entries, ExternalError):
                raise ListingUnavailable(is_temporary=listing.is_outage)
            return listing.entries.get(fold_name(part), ())

        now, known = self._clock.now(), self._cached.get(below)
        if known is not None and known.is_fresh(now, complete=False):
            found = matches(known)
            if found or known.is_fresh(now, complete=fresh):
                return found
        return matches(await self._listing_since(below, now))

    async def _listing_since(self, below: Levels, since: datetime) -> _CachedListing[T]:
        """Return a listing that was asked for since a moment: who waits for an older answer shares the next one."""
        lock = self._asking.get(below)
        if lock is None:
            lock = self._asking[below] = anyio.Lock()
        async with lock:
            known = self._cached.get(below)
            if known is not None and (known.requested_at >= since or known.is_fresh(self._clock.now(), complete=True)):
                return known
            return await self._list(below)

    async def _list(self, below: Levels) -> _CachedListing[T]:
        asked, names, size = self._clock.now(), defaultdict[str, list[T]](list), 1
        try:
            async with aclosing(self._fetch(below)) as found:
                async for entry in found:
                    names[fold_name(self._last_part(entry))].append(entry)
                    size += 1
        except ExternalError as trouble:
            _log.debug("spellings not compared", below=".".join(below) or "(all)", why=str(trouble))
            before = self._cached.get(below)
            is_new = before is None or not isinstance(before.entries, ExternalError)
            listing: _CachedListing[T] = _CachedListing(
                asked, trouble, is_outage=is_new and isinstance(trouble, Transient)
            )
        else:
            listing = _CachedListing(asked, dict(names), duration=self._clock.now() - asked, size=size)
        self._cached.pop(below, None)
        self._cached[below] = listing
        while len(self._cached) > 1 and sum(one.size for one in self._cached.values()) > MAX_CACHED_NAMES:
            self._cached.popitem(last=False)
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
        self._namespaces: _ListingCache[Levels] | None = None
        self._tables: _ListingCache[TableIdentifier] | None = None
        if isinstance(catalog, NamespaceLister):
            self._namespaces = _ListingCache(catalog.namespaces, lambda space: space[-1] if space else "", clock)
            self._tables = _ListingCache(catalog.tables_in, lambda name: name.name, clock)

    async def matching_names(self, table: TableIdentifier, *, fresh: bool) -> tuple[TableIdentifier, ...] | None:
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
            return await self._matching_names(self._namespaces, self._tables, table, fresh=fresh)
        except ListingUnavailable as unlisted:
            if unlisted.is_temporary:
                raise
            return None

    async def _matching_names(
        self,
        namespaces: _ListingCache[Levels],
        tables: _ListingCache[TableIdentifier],
        table: TableIdentifier,
        *,
        fresh: bool,
    ) -> tuple[TableIdentifier, ...]:
        names: list[TableIdentifier] = []
        for space in await self._matching_namespaces(namespaces, table.namespace, fresh=fresh):
            found = await tables.matching(space, table.name, fresh=fresh)
            # Some catalogs list a nested namespace as one level with dots.
            if any(name.dotted == table.dotted for name in found):
                return (table,)
            names += found
        return tuple(dict.fromkeys(names))

    async def _matching_namespaces(
        self, listings: _ListingCache[Levels], namespace: Levels, *, fresh: bool
    ) -> list[Levels]:
        """Return the listed namespaces that are alike to one, that itself first."""
        spaces: list[Levels] = [()]
        for depth in range(1, len(namespace) + 1):
            found: set[Levels] = set()
            for parent in spaces:
                below = await listings.matching(parent, namespace[depth - 1], fresh=fresh)
                # Some catalogs list all levels at once.
                found.update(space for space in below if len(space) == depth and space[:-1] == parent)
            spaces = sorted(found, key=lambda space: (space != namespace[: len(space)], space))
        return spaces
