"""`Spellings`: the names under which a catalog lists a table that a client spelled differently.

Many catalogs accept a name in any case and list one spelling of it; some ignore accents, Unicode forms or trailing
blanks. Only the catalog knows which spellings are one table, so similar names are no more than candidates here.
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
"""Time for which a listing is cached: less than the usual `replica_lag`, after which a doubtful table is checked again.
"""
FAILURE_LIFETIME: Final = timedelta(seconds=1)
"""Time for which a failed listing is not repeated."""
MAX_CACHED_NAMES: Final = 100_000
"""Names in all cached listings together."""
SLOW_LISTING: Final = timedelta(seconds=1)
"""Duration from which on a listing is not repeated for each new name."""
SLOW_LIFETIME_FACTOR: Final = 20
"""A slow listing is cached for 20 times its duration, so that listings take at most 5 % of the time."""
MAX_CACHE_LIFETIME: Final = timedelta(minutes=5)
"""Limit of that time, whatever the duration: the wall clock may have been set meanwhile."""

_QUOTES: Final = "\"'`[]"
Levels: TypeAlias = tuple[str, ...]

_log = structlog.stdlib.get_logger(__name__)


def fold_name(part: str) -> str:
    """Return the common form of all spellings of a level or a name."""
    folds = part.casefold()
    if not part.isascii():
        decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", part).casefold())
        folds = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return folds.strip().strip(_QUOTES).strip() or part


def may_be_same_name(one: TableIdentifier, other: TableIdentifier) -> bool:
    """Return True if two names of a catalog may be spellings of the same table."""
    return one.catalog == other.catalog and [*map(fold_name, (*one.namespace, one.name))] == [
        *map(fold_name, (*other.namespace, other.name))
    ]


class ListingUnavailable(Exception):
    """A listing that failed.

    Attributes:
        is_temporary: True if it may succeed soon; False if the catalog refuses it, or it failed the time before, too.
    """

    def __init__(self, *, is_temporary: bool) -> None:
        super().__init__()
        self.is_temporary = is_temporary


@dataclass(frozen=True, slots=True)
class _CachedListing(Generic[T]):
    """A cached listing, or a failure.

    Attributes:
        requested_at: time of the request.
        entries: entries by folded name, or the error.
        is_outage: True if it failed, and did not fail the time before.
        duration: duration of the listing.
        size: size in memory, in names.
    """

    requested_at: datetime
    entries: Mapping[str, Sequence[T]] | ExternalError
    is_outage: bool = False
    duration: timedelta = timedelta()
    size: int = 1

    def is_fresh(self, now: datetime, *, complete: bool) -> bool:
        """Return True if the listing may be used again.

        Args:
            now: wall-clock time.
            complete: True if it must contain all names that exist now, unless a new listing is slow.
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
    """Cached listings of one kind, by their parent.

    Args:
        fetch: lists the children of a parent.
        last_part: returns the last part of an entry's name.
        clock: the wall clock.
    """

    def __init__(
        self, fetch: Callable[[Levels], AsyncGenerator[T]], last_part: Callable[[T], str], clock: Clock
    ) -> None:
        self._fetch, self._last_part, self._clock = fetch, last_part, clock
        self._cached = OrderedDict[Levels, _CachedListing[T]]()
        self._asking = WeakValueDictionary[Levels, anyio.Lock]()

    async def matching(self, below: Levels, part: str, *, fresh: bool) -> Sequence[T]:
        """Return the entries of a listing with a similar last part.

        Args:
            below: the parent.
            part: the last part, in any spelling.
            fresh: True to repeat a cached listing without a match, unless it is slow.

        Raises:
            ListingUnavailable: the listing failed.
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
        """Return a listing requested at or after `since`. Callers that wait for an older one share the next one."""
        lock = self._asking.get(below)
        if lock is None:
            lock = self._asking[below] = anyio.Lock()
        async with lock:
            known = self._cached.get(below)
            if known is not None and (known.requested_at >= since or known.is_fresh(self._clock.now(), complete=True)):
                return known
            return await self._list(below)

    async def _list(self, below: Levels) -> _CachedListing[T]:
        requested_at, names, size = self._clock.now(), defaultdict[str, list[T]](list), 1
        try:
            async with aclosing(self._fetch(below)) as found:
                async for entry in found:
                    names[fold_name(self._last_part(entry))].append(entry)
                    size += 1
        except ExternalError as error:
            _log.debug("spellings not compared", below=".".join(below) or "(all)", why=str(error))
            before = self._cached.get(below)
            is_new = before is None or not isinstance(before.entries, ExternalError)
            listing: _CachedListing[T] = _CachedListing(
                requested_at, error, is_outage=is_new and isinstance(error, Transient)
            )
        else:
            listing = _CachedListing(requested_at, dict(names), duration=self._clock.now() - requested_at, size=size)
        self._cached.pop(below, None)
        self._cached[below] = listing
        while len(self._cached) > 1 and sum(one.size for one in self._cached.values()) > MAX_CACHED_NAMES:
            self._cached.popitem(last=False)
        return listing


class Spellings:
    """The names that one catalog lists, cached for a short time.

    Args:
        catalog: the catalog. One that is no `NamespaceLister` is not queried.
        clock: the wall clock.

    Attributes:
        catalog: see Args.
    """

    def __init__(self, catalog: object, clock: Clock) -> None:
        self.catalog = catalog
        self._namespaces: _ListingCache[Levels] | None = None
        self._tables: _ListingCache[TableIdentifier] | None = None
        if isinstance(catalog, NamespaceLister):
            self._namespaces = _ListingCache(catalog.namespaces, lambda space: space[-1] if space else "", clock)
            self._tables = _ListingCache(catalog.tables_in, lambda name: name.name, clock)

    async def matching_names(self, table: TableIdentifier, *, fresh: bool) -> tuple[TableIdentifier, ...] | None:
        """Return the listed names that are similar to a table's name.

        Args:
            table: the name, in any spelling.
            fresh: True to query the catalog again if the cached listing has no such name.

        Returns:
            Only the name itself if it is listed exactly so. None if the catalog lists nothing to us.

        Raises:
            ListingUnavailable: the listing failed, which may pass.
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
        """Return the listed namespaces that are similar to one; an exact match comes first."""
        spaces: list[Levels] = [()]
        for depth in range(1, len(namespace) + 1):
            found: set[Levels] = set()
            for parent in spaces:
                below = await listings.matching(parent, namespace[depth - 1], fresh=fresh)
                # Some catalogs list all levels at once.
                found.update(space for space in below if len(space) == depth and space[:-1] == parent)
            spaces = sorted(found, key=lambda space: (space != namespace[: len(space)], space))
        return spaces
