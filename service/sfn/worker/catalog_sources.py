"""Where the truth about tables is, and what becomes of rows whose catalog is no source any more."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NoReturn, Protocol, TypeAlias, TypeVar

import structlog

from sfn.catalogs import Catalog, CredentialVendor
from sfn.clock import Clock
from sfn.domain.catalog_answer import NoSuchTable, VendedCredential
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, LeasedJob, StoredObject
from sfn.errors import (
    FORBIDDEN_ERRORS,
    ErrorScope,
    LocationRefused,
    NoVendedCredentials,
    Permanent,
    SfnError,
    Transient,
    Unauthenticated,
)
from sfn.publish.policy import Policy
from sfn.sfnfile.locations import is_below, store_prefix
from sfn.storage import Deleted, Guarantees, ObjectStore, PreconditionFailed, StoreRouter

# ── vended: The stores of a catalog that vends credentials

T = TypeVar("T")

OpenStore: TypeAlias = Callable[[VendedCredential, str], ObjectStore]
"""A store with the credentials of a grant, for a location; raises `Permanent` for what they do not say."""

_Place: TypeAlias = tuple[str | TableIdentifier, str, ObjectStore | None]
"""The prefix of a grant, or the table that it was given for; the store; and the configured one, whose settings hold."""
MAX_CACHED: Final = 4096
"""Grants that are known by their places, some kilobytes each; the least recently used go."""


class VendedStores:
    """The stores of one catalog's tables.

    What a catalog gives for a table opens no more than its prefix says. Where it gives nothing, as for a table that was
    dropped, another name's grant for the same place is taken (a renamed table's), else the store that is configured for
    it, else none.

    Args:
        vendor: gives the credentials.
        own: the configured stores.
        opened: makes a store of a grant.
        clock: tells which grants have ended.
        root: canonical; below it are files of ours that lie apart from their tables, "" for none. What is vended for
            wherever a table lies is not for them.
    """

    def __init__(
        self, vendor: CredentialVendor, configured: StoreRouter, open_store: OpenStore, clock: Clock, root: str = ""
    ) -> None:
        self._vendor, self._configured_stores, self._open_store, self._clock, self._root = (
            vendor,
            configured,
            open_store,
            clock,
            root,
        )
        self._credentials_by_prefix: OrderedDict[str, VendedCredential] = OrderedDict()
        self._stores: OrderedDict[_Place, tuple[VendedCredential, ObjectStore]] = OrderedDict()

    def for_table(self, table: TableIdentifier) -> StoreRouter:
        """As the principal that the catalog makes us for one table."""
        return _TableStores(self, table)

    async def call(self, table: TableIdentifier, location: str, verb: Callable[[ObjectStore], Awaitable[T]]) -> T:
        """What a verb of the store of a location gives; asked once more with new credentials where those are refused.

        What is denied may be permitted by newer ones: a table lies elsewhere now, or more was granted since.

        Raises:
            Transient: scope catalog, where the store accepts none that the catalog vends.
            DeniedNow, DeniedHere: it accepts them, and they are not for that.
            NotVended: the catalog has no such table, and no store is configured.
            Permanent: scope table, where it has, and vends none for that place.
        """
        answer = self._cache(await self._vendor.vended_credentials(table))
        grant = self._credential_for(location, answer)
        if grant is None and not isinstance(answer, NoSuchTable) and self._configured_store(location) is None:
            # The table may lie elsewhere since they were given.
            answer = self._cache(await self._vendor.renew_credentials(table, answer))
            grant = self._credential_for(location, answer)
        if grant is None:
            return await verb(self._configured_store(location) or _raise_no_credentials(table, location, answer))
        try:
            return await verb(self._store_with(table, grant, location))
        except (Unauthenticated, *FORBIDDEN_ERRORS) as refused:
            if isinstance(refused, Unauthenticated):
                self._credentials_by_prefix.pop(grant.prefix, None)
            given = () if isinstance(answer, NoSuchTable) else answer
            newer = self._credential_for(location, self._cache(await self._vendor.renew_credentials(table, given)))
            if newer is None or newer == grant:
                if isinstance(refused, FORBIDDEN_ERRORS):
                    raise
                raise _credentials_refused(table, refused) from refused
        try:
            return await verb(self._store_with(table, newer, location))
        except Unauthenticated as refused:
            raise _credentials_refused(table, refused) from refused

    def _cache(self, answer: tuple[VendedCredential, ...] | NoSuchTable) -> tuple[VendedCredential, ...] | NoSuchTable:
        """What was given, known from now on by its places."""
        for grant in () if isinstance(answer, NoSuchTable) else answer:
            if grant.prefix and grant.expires_at is not None:
                self._credentials_by_prefix.pop(grant.prefix, None)
                self._credentials_by_prefix[grant.prefix] = grant
        while len(self._credentials_by_prefix) > MAX_CACHED:
            self._credentials_by_prefix.popitem(last=False)
        return answer

    def _credential_for(
        self, location: str, answer: tuple[VendedCredential, ...] | NoSuchTable
    ) -> VendedCredential | None:
        """The grant for a location, the one with the longest prefix (REST specification, "Storage Credentials")."""
        grants = () if isinstance(answer, NoSuchTable) else answer
        apart = bool(self._root) and is_below(location, self._root)
        fitting = [grant for grant in grants if (is_below(location, grant.prefix) if grant.prefix else not apart)]
        if fitting:
            return max(fitting, key=lambda grant: len(grant.prefix))
        now = self._clock.now()
        known = (
            self._credentials_by_prefix[place]
            for place in _parent_locations(location)
            if place in self._credentials_by_prefix
        )
        return next((grant for grant in known if grant.expires_at is not None and grant.expires_at > now), None)

    def _store_with(self, table: TableIdentifier, grant: VendedCredential, location: str) -> ObjectStore:
        """A store remembers what it was asked: the same one as long as the grant is the same, and where it answers."""
        owner = grant.prefix or table
        cache_key = owner, store_prefix(location), self._configured_store(location)
        before, store = self._stores.pop(cache_key, (None, None))
        if store is None or before != grant:
            store = self._open_store(grant, location)
        self._stores[cache_key] = grant, store
        if len(self._stores) > MAX_CACHED:
            self._stores.popitem(last=False)
        return store

    def _configured_store(self, location: str) -> ObjectStore | None:
        try:
            return self._configured_stores.store_for(location)
        except LocationRefused:
            return None


class _TableStores:
    """Implements `StoreRouter` for one table."""

    def __init__(self, vended: VendedStores, table: TableIdentifier) -> None:
        self._vended, self._table = vended, table

    def store_for(self, location: str) -> ObjectStore:
        return _TableStore(self._vended, self._table)


class _TableStore:
    """Implements `ObjectStore` with what the catalog gives when a verb is called."""

    def __init__(self, vended: VendedStores, table: TableIdentifier) -> None:
        self._vended, self._table = vended, table

    async def read(self, key: str) -> StoredObject | None:
        return await self._vended.call(self._table, key, lambda store: store.read(key))

    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        return await self._vended.call(self._table, key, lambda store: store.read_range(key, start, most))

    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        return await self._vended.call(self._table, key, lambda store: store.write(key, body, replacing))

    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        return await self._vended.call(self._table, key, lambda store: store.delete(key, expected))

    async def list(self, prefix: str, limit: int) -> list[str]:
        return await self._vended.call(self._table, prefix, lambda store: store.list(prefix, limit))

    async def probe(self, key: str) -> Guarantees:
        return await self._vended.call(self._table, key, lambda store: store.probe(key))


def _parent_locations(location: str) -> Iterator[str]:
    """The places that a location lies in, the longest first."""
    scheme, _, path = location.partition("://")
    while "/" in path:
        path = path.rpartition("/")[0]
        yield f"{scheme}://{path}"


def _credentials_refused(table: TableIdentifier, refused: Unauthenticated) -> Transient:
    return Transient(
        refused.where,
        scope=ErrorScope.CATALOG,
        expected=f"credentials that the store accepts, vended for {table}",
        found=refused.found,
        remedy="see with which role, and for how long, the catalog vends them, and whether its clock is right",
    )


def _raise_no_credentials(
    table: TableIdentifier, location: str, answer: tuple[VendedCredential, ...] | NoSuchTable
) -> NoReturn:
    remedy = "configure a store that covers it: [stores.NAME] prefix, with keys of its own"
    if isinstance(answer, NoSuchTable):
        raise NoVendedCredentials(
            location,
            scope=ErrorScope.TABLE,
            expected="credentials for what lies there",
            found=f"none: the catalog does not have {table} any more, and vends nothing for it",
            remedy=f'{remedy}; or let the files of dropped tables be: on_drop = "keep"',
        )
    raise Permanent(
        location,
        scope=ErrorScope.TABLE,
        expected=f"credentials for what lies there, vended for {table}",
        found="none" if not answer else f"some for {', '.join(grant.prefix for grant in answer)}",
        remedy=f"let the catalog vend them to our principal; or {remedy}",
    )


# ── sources: Where the truth about tables is

_EXPECTED: Final = "a configured catalog of that name, as the table's file still says that it is current"
_REMEDY: Final = (
    "put [catalogs.{0}] back into the configuration and `sfn retire {0}`, or replay this if the catalog is to stay; "
    "or discard this, and the file stays as it is"
)

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectedCatalog:
    """A catalog and how its tables are published.

    Attributes:
        catalog: tells the truth.
        policy: the settings.
        vended_stores: what opens its tables' places, where the catalog says it.
    """

    catalog: Catalog
    policy: Policy
    vended_stores: VendedStores | None = None

    def stores_for(self, table: TableIdentifier, configured: StoreRouter) -> StoreRouter:
        """Where the files of a table are.

        Args:
            configured: the configured stores.
        """
        return configured if self.vended_stores is None else self.vended_stores.for_table(table)


class CatalogRegistry(Protocol):
    """The configured catalogs."""

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        """The source of that name, None where none is configured.

        Raises:
            Trouble: scope catalog, while nobody can tell yet whose tables they are.
        """
        ...

    def is_retired(self, catalog: str) -> bool:
        """Whether a catalog retired, be it still configured or not."""
        ...


def outcome_for_unconfigured(claim: LeasedJob, now: datetime, *, retired: bool) -> Done | DeadLettered:
    """What becomes of a row whose catalog is not configured: nobody can publish it, and nobody will ask for it.

    A letter only where readers are still told of a table, and nobody said that they should not be. It is the last word
    of its row, or it would come back however often somebody discards it.

    Args:
        retired: the catalog retired before it went.
    """
    live = claim.table_state.live
    if live is not None and not retired:
        error = SfnError(
            str(claim.subject), expected=_EXPECTED, found="none", remedy=_REMEDY.format(claim.subject.catalog)
        )
        return DeadLettered(DeadLetterReason.PERMANENT, str(error))
    if live is not None:
        remedy = "delete the SFN file below it, or put the catalog back into the configuration until none is live"
        _log.warning("file left behind", table=str(claim.subject), location=live.location, remedy=remedy)
    return Done(now, forget=True)
