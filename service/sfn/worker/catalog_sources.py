"""The configured catalogs of a worker, and the stores that open with vended credentials."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NoReturn, Protocol, TypeAlias, TypeVar

import structlog

from sfn.catalogs import Catalog, CredentialVendor, NoSuchTable, VendedCredential
from sfn.clock import Clock
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

T = TypeVar("T")

OpenStore: TypeAlias = Callable[[VendedCredential, str], ObjectStore]
"""Open a store with a vended credential, for a location; raise `Permanent` if the credential is incomplete."""

_StoreKey: TypeAlias = tuple[str | TableIdentifier, str, ObjectStore | None]
"""Prefix of a credential, or its table; prefix of the store; and the configured store, for its settings."""
MAX_CACHED: Final = 4096
"""Most cached credentials, some kilobytes each, and most cached stores; the least recently used are evicted."""


class VendedStores:
    """The stores of a catalog that vends credentials.

    A credential opens only locations below its prefix. If the catalog vends none for a table, for example after a drop,
    the first of these is used: a credential that was vended under another name for the same place (of a renamed table),
    the configured store, none.

    Args:
        vendor: vends the credentials.
        configured: the configured stores.
        open_store: opens a store with a credential.
        clock: the wall clock, for the expiry of credentials.
        root: canonical location of SFN files outside the tables' directories, "" for none. A credential without a
            prefix does not apply below it.
    """

    def __init__(
        self, vendor: CredentialVendor, configured: StoreRouter, open_store: OpenStore, clock: Clock, root: str = ""
    ) -> None:
        self._vendor, self._configured_stores, self._open_store = vendor, configured, open_store
        self._clock, self._root = clock, root
        self._credentials_by_prefix: OrderedDict[str, VendedCredential] = OrderedDict()
        self._stores: OrderedDict[_StoreKey, tuple[VendedCredential, ObjectStore]] = OrderedDict()

    def for_table(self, table: TableIdentifier) -> StoreRouter:
        """Return the stores that open with the credentials of one table."""
        return _TableStores(self, table)

    async def call(self, table: TableIdentifier, location: str, verb: Callable[[ObjectStore], Awaitable[T]]) -> T:
        """Call an operation of the store of a location, and once more with new credentials if the store rejects it.

        New credentials may permit what the cached ones do not: the table has moved, or permissions were added.

        Args:
            table: the table.
            location: location that the operation accesses.
            verb: the operation.

        Returns:
            The result of the operation.

        Raises:
            Transient: scope catalog: the store accepts no credentials that the catalog vends.
            Forbidden, ForbiddenForTable: the store accepts the credentials, but they do not permit the operation.
            NoVendedCredentials: the catalog has no such table, and no store is configured.
            Permanent: scope table: the catalog has the table, and vends no credentials for the location.
        """
        answer = self._cache(await self._vendor.vended_credentials(table))
        credential = self._credential_for(location, answer)
        if credential is None and not isinstance(answer, NoSuchTable) and self._configured_store(location) is None:
            # The table may have moved since the credentials were vended.
            answer = self._cache(await self._vendor.renew_credentials(table, answer))
            credential = self._credential_for(location, answer)
        if credential is None:
            return await verb(self._configured_store(location) or _raise_no_credentials(table, location, answer))
        try:
            return await verb(self._store_with(table, credential, location))
        except (Unauthenticated, *FORBIDDEN_ERRORS) as refused:
            if isinstance(refused, Unauthenticated):
                self._credentials_by_prefix.pop(credential.prefix, None)
            vended = () if isinstance(answer, NoSuchTable) else answer
            newer = self._credential_for(location, self._cache(await self._vendor.renew_credentials(table, vended)))
            if newer is None or newer == credential:
                if isinstance(refused, FORBIDDEN_ERRORS):
                    raise
                raise _credentials_refused(table, refused) from refused
        try:
            return await verb(self._store_with(table, newer, location))
        except Unauthenticated as refused:
            raise _credentials_refused(table, refused) from refused

    def _cache(self, answer: tuple[VendedCredential, ...] | NoSuchTable) -> tuple[VendedCredential, ...] | NoSuchTable:
        """Cache vended credentials by prefix, and return the answer."""
        for credential in () if isinstance(answer, NoSuchTable) else answer:
            if credential.prefix and credential.expires_at is not None:
                self._credentials_by_prefix.pop(credential.prefix, None)
                self._credentials_by_prefix[credential.prefix] = credential
        while len(self._credentials_by_prefix) > MAX_CACHED:
            self._credentials_by_prefix.popitem(last=False)
        return answer

    def _credential_for(
        self, location: str, answer: tuple[VendedCredential, ...] | NoSuchTable
    ) -> VendedCredential | None:
        """Return the credential with the longest matching prefix (REST specification, "Storage Credentials")."""
        vended = () if isinstance(answer, NoSuchTable) else answer
        is_in_root = bool(self._root) and is_below(location, self._root)
        fitting = [one for one in vended if (is_below(location, one.prefix) if one.prefix else not is_in_root)]
        if fitting:
            return max(fitting, key=lambda one: len(one.prefix))
        now = self._clock.now()
        cached = (
            self._credentials_by_prefix[prefix]
            for prefix in _parent_locations(location)
            if prefix in self._credentials_by_prefix
        )
        return next((one for one in cached if one.expires_at is not None and one.expires_at > now), None)

    def _store_with(self, table: TableIdentifier, credential: VendedCredential, location: str) -> ObjectStore:
        """Return the cached store of a credential, or open one; a store caches what it knows of its server."""
        owner = credential.prefix or table
        cache_key = owner, store_prefix(location), self._configured_store(location)
        before, store = self._stores.pop(cache_key, (None, None))
        if store is None or before != credential:
            store = self._open_store(credential, location)
        self._stores[cache_key] = credential, store
        if len(self._stores) > MAX_CACHED:
            self._stores.popitem(last=False)
        return store

    def _configured_store(self, location: str) -> ObjectStore | None:
        try:
            return self._configured_stores.store_for(location)
        except LocationRefused:
            return None


class _TableStores:
    """A `StoreRouter` for one table."""

    def __init__(self, vended: VendedStores, table: TableIdentifier) -> None:
        self._vended, self._table = vended, table

    def store_for(self, location: str) -> ObjectStore:
        return _TableStore(self._vended, self._table)


class _TableStore:
    """An `ObjectStore` that gets its credentials from the catalog at each call."""

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
    """Yield the parent folders of a location, the longest first."""
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
        remedy="check the role and the lifetime of the credentials that the catalog vends, and the catalog's clock",
    )


def _raise_no_credentials(
    table: TableIdentifier, location: str, answer: tuple[VendedCredential, ...] | NoSuchTable
) -> NoReturn:
    remedy = "configure a store that covers it: [stores.NAME] prefix, with keys of its own"
    if isinstance(answer, NoSuchTable):
        raise NoVendedCredentials(
            location,
            scope=ErrorScope.TABLE,
            expected="credentials for this location",
            found=f"none: the catalog does not have {table} any more, and vends none for it",
            remedy=f'{remedy}; or leave the files of dropped tables unchanged: on_drop = "keep"',
        )
    raise Permanent(
        location,
        scope=ErrorScope.TABLE,
        expected=f"credentials for this location, vended for {table}",
        found="none" if not answer else f"some for {', '.join(credential.prefix for credential in answer)}",
        remedy=f"let the catalog vend them to the listener's principal; or {remedy}",
    )


_EXPECTED: Final = "a configured catalog of that name, because the SFN file still says that the table is current"
_REMEDY: Final = (
    "put [catalogs.{0}] back into the configuration and `sfn retire {0}`, or replay this letter to keep the catalog; "
    "or discard this letter, and the file stays unchanged"
)

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectedCatalog:
    """A catalog with its publish policy.

    Attributes:
        catalog: the client of the catalog.
        policy: the settings.
        vended_stores: the stores, if the catalog vends credentials.
    """

    catalog: Catalog
    policy: Policy
    vended_stores: VendedStores | None = None

    def stores_for(self, table: TableIdentifier, configured: StoreRouter) -> StoreRouter:
        """Return the stores of a table; `configured` if the catalog vends no credentials."""
        return configured if self.vended_stores is None else self.vended_stores.for_table(table)


class CatalogRegistry(Protocol):
    """The configured catalogs."""

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        """Return the catalog of that name; None if none is configured.

        Raises:
            ExternalError: scope catalog, while the identity of the catalog is not known yet.
        """
        ...

    def is_retired(self, catalog: str) -> bool:
        """Return True if a catalog is retired, configured or not."""
        ...


def outcome_for_unconfigured(claim: LeasedJob, now: datetime, *, retired: bool) -> Done | DeadLettered:
    """Return the outcome of a job of a catalog that is not configured: the job cannot be published.

    The job becomes a dead letter only if its SFN file still says that the table is current and the catalog was not
    retired. There is no recheck: with one, the letter would open again after each discard.

    Args:
        claim: the job.
        now: the present.
        retired: True if the catalog was retired before it left the configuration.
    """
    live = claim.table_state.live
    if live is not None and not retired:
        error = SfnError(
            str(claim.subject), expected=_EXPECTED, found="none", remedy=_REMEDY.format(claim.subject.catalog)
        )
        return DeadLettered(DeadLetterReason.PERMANENT, str(error))
    if live is not None:
        remedy = "delete the SFN file below it, or put the catalog back into the configuration until none is live"
        _log.warning("SFN file left behind", table=str(claim.subject), location=live.location, remedy=remedy)

    return Done(now, forget=True)
