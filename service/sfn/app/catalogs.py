"""From a catalog's settings to the adapter that asks it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import anyio
import structlog

from sfn.app import storage
from sfn.app.storage import StoreRegistry
from sfn.catalogs import Catalog, CredentialVendor, pyiceberg
from sfn.catalogs.event_sourced import EventCatalog
from sfn.catalogs.metadata import ReadRange
from sfn.catalogs.pyiceberg import PyIcebergCatalog, PyIcebergSettings
from sfn.catalogs.rest import auth
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.settings import RestSettings
from sfn.clock import Clock, SystemClock
from sfn.errors import SfnError
from sfn.inbox import CatalogAdmin, TableIndex
from sfn.inbox.admin import recorded_owner
from sfn.inbox.model import InboxConfig as InboxTerms
from sfn.publish.policy import OnDrop, Policy, TableFilter
from sfn.settings.model import Settings
from sfn.settings.sections import CatalogSettings
from sfn.settings.sources import ConfigurationError
from sfn.sfnfile.naming import NAMINGS, Placement
from sfn.storage import PrefixRouter, StoreRouter
from sfn.worker.catalog_sources import ConnectedCatalog, VendedStores
from sfn.worker.retry import RetryPolicy
from sfn.worker.worker import WorkerOptions

# ── sources: From a catalog's settings to the adapter that asks it

_DEFAULT_SCOPES: Final = {
    None: "catalog",
    "sigv4": "",
    "google": "https://www.googleapis.com/auth/cloud-platform",
}
"""What tokens are asked for where no setting says; with Google as Iceberg's Java library has it."""


class IdentifiedCatalog(Catalog, Protocol):
    """A catalog that knows whose tables these are."""

    async def identity(self) -> str:
        """Its `catalog_id` in our files.

        Raises:
            Transient, Permanent: scope catalog; it can't be told, or the catalog does not answer.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def build_catalogs(settings: Settings, clock: Clock, read_range: ReadRange) -> dict[str, IdentifiedCatalog]:
    """All configured catalogs, by their names; none has been asked anything yet.

    Args:
        read_range: reads the metadata files of catalogs that can't be asked for what is in them.

    Raises:
        Misconfigured: one can't be asked.
    """
    return {name: _build_catalog(name, one, clock, read_range) for name, one in settings.catalogs.items()}


def check_adapters(settings: Settings) -> None:
    """Refuse settings that only an adapter can tell are wrong.

    Raises:
        Misconfigured: with everything that is wrong.
    """
    problems: list[SfnError] = []
    for name, one in settings.catalogs.items():
        try:
            match one.type:
                case "rest":
                    auth.check_installed(rest_settings(name, one))
                case "pyiceberg":
                    pyiceberg.check_can_open(pyiceberg_settings(name, one))
                case "events":
                    pass
        except ConfigurationError as error:
            problems.extend(error.problems)
        except SfnError as error:
            problems.append(error)
    if problems:
        raise ConfigurationError(problems)


def rest_settings(name: str, catalog: CatalogSettings) -> RestSettings:
    """How a REST catalog is asked.

    Raises:
        Misconfigured: it can't be; no secret is repeated.
    """
    try:
        return RestSettings(
            name=name,
            uri=catalog.uri or "",
            warehouse=catalog.warehouse,
            catalog_id=catalog.catalog_id,
            token=None if catalog.token is None else catalog.token.get_secret_value(),
            token_file=catalog.token_file,
            credential=None if catalog.credential is None else catalog.credential.get_secret_value(),
            credential_file=catalog.credential_file,
            oauth2_uri=catalog.oauth2_uri,
            scope=catalog.scope or _DEFAULT_SCOPES[catalog.auth],
            auth=catalog.auth,
            signing_region=catalog.signing_region,
            signing_name=catalog.signing_name,
            aws_profile=catalog.aws_profile,
            role_arn=catalog.role_arn,
            external_id=catalog.external_id,
            google_credentials_file=catalog.google_credentials_file,
            headers={header: value.get_secret_value() for header, value in catalog.headers.items()},
            ca_file=catalog.ca_file,
        )
    except ValueError as error:
        expected = "settings that a REST catalog can be asked with"
        raise ConfigurationError([SfnError(f"catalogs.{name}", expected=expected, found=str(error))]) from None


def pyiceberg_settings(name: str, catalog: CatalogSettings) -> PyIcebergSettings:
    """How a catalog is asked through PyIceberg.

    Raises:
        SfnError: it can't be; no secret is repeated.
    """
    return PyIcebergSettings(
        name=name,
        properties={key: value.get_secret_value() for key, value in catalog.properties.items()},
        catalog_id=catalog.catalog_id,
    )


def _build_catalog(name: str, catalog: CatalogSettings, clock: Clock, read_range: ReadRange) -> IdentifiedCatalog:
    match catalog.type:
        case "rest":
            return RestCatalog(rest_settings(name, catalog), clock)
        case "pyiceberg":
            return PyIcebergCatalog(pyiceberg_settings(name, catalog))
        case "events":
            return EventCatalog(name, catalog.catalog_id or "", read_range, catalog.allowed_locations)


# ── terms: What the settings make of the terms that parts work by

DISTRIBUTION: Final = "iceberg-sfn"
VERSION: Final = version(DISTRIBUTION)
"""Read from a file, and so at the start: a process without file descriptors can't."""
_NO_SWEEPS: Final = timedelta(days=36_500)
"""From one sweep to the next where none is wanted: one that an event asked for is the only one."""


def table_filter(catalog: CatalogSettings) -> TableFilter:
    """Which of a catalog's tables get files."""
    return TableFilter(catalog.include, catalog.exclude)


def publish_policy(settings: Settings, catalog: str, catalog_id: str) -> Policy:
    """How a catalog's tables are published."""
    catalog_settings = settings.catalogs[catalog]
    every = None if catalog_settings.is_event_only else settings.sweep.every
    return Policy(
        catalog_id=catalog_id,
        replica_lag=catalog_settings.replica_lag,
        absence_delay=catalog_settings.absence_delay,
        expire_after=catalog_settings.expire_after,
        refresh_after=catalog_settings.refresh_after,
        min_publish_interval=catalog_settings.min_publish_interval,
        on_drop=OnDrop(catalog_settings.on_drop),
        version_hint=catalog_settings.version_hint == "auto",
        naming=NAMINGS[catalog_settings.naming],
        placement=Placement(catalog_settings.placement),
        root=catalog_settings.root or "",
        branches=catalog_settings.branches,
        keep_commits=catalog_settings.keep,
        keep_commits_for=catalog_settings.keep_for,
        allowed_locations=catalog_settings.allowed_locations,
        is_swept=every is not None,
        sweep_every=_NO_SWEEPS if every is None else every,
        event_only=catalog_settings.is_event_only,
        table_filter=table_filter(catalog_settings),
        writer=f"{DISTRIBUTION} {VERSION}",
    )


def inbox_config(settings: Settings) -> InboxTerms:
    """What the inbox is told."""
    limits = {name: one.max_drops for name, one in settings.catalogs.items() if one.max_drops is not None}
    stores = tuple(one.prefix for one in settings.stores.values())
    cap, event_only = settings.retry.cap, settings.event_only_catalogs
    return InboxTerms(
        lease=settings.worker.lease, retry_cap=cap, max_drops=limits, stores=stores, event_only_catalogs=event_only
    )


def worker_options(settings: Settings) -> WorkerOptions:
    """What the worker is told."""
    retry = settings.retry
    return WorkerOptions(
        concurrency=settings.worker.concurrency,
        lease=settings.worker.lease,
        drain=settings.listener.drain,
        retry=RetryPolicy(retry.base, retry.cap, retry.budget, retry.max_attempts),
    )


# ── reached: The catalogs that were reached

if TYPE_CHECKING:
    # It brings FastAPI, which whoever only looks does not wait for.
    from sfn.admin.routes import RetiredCatalogs

VendedStoresFactory: TypeAlias = Callable[[str, IdentifiedCatalog], VendedStores | None]
"""By its name and its adapter, what opens the places of a catalog's tables; None for the configured stores."""

_log = structlog.stdlib.get_logger(__name__)


def vended_stores_factory(
    settings: Settings, stores: StoreRouter, registry: StoreRegistry, clock: Clock
) -> VendedStoresFactory:
    """What opens places, as the settings say."""

    def vended(name: str, catalog: IdentifiedCatalog) -> VendedStores | None:
        if settings.catalogs[name].vended_credentials and isinstance(catalog, CredentialVendor):
            return VendedStores(catalog, stores, registry.open_vended, clock, settings.catalogs[name].root or "")
        return None

    return vended


class LazyCatalogRegistry:
    """Implements `Sources`: a catalog's policy is complete once it was reached, as the catalog says who it is.

    Nothing is published for a catalog before: its claims end as trouble of the catalog, which costs no attempt.

    Args:
        settings: all of them.
        catalogs: the adapters, by name.
        retirement: which catalogs retired.
        custody, roster: remember whose their files are.
        vended: what opens the places of a catalog's tables, where it says it.
    """

    def __init__(
        self,
        settings: Settings,
        catalogs: Mapping[str, IdentifiedCatalog],
        retirement: RetiredCatalogs,
        catalog_admin: CatalogAdmin,
        table_index: TableIndex,
        vended: VendedStoresFactory = lambda _name, _catalog: None,
    ) -> None:
        self._settings, self._catalogs, self._retirement = settings, catalogs, retirement
        self._catalog_admin, self._table_index, self._vended = catalog_admin, table_index, vended
        self._sources: dict[str, ConnectedCatalog] = {}
        self._recording: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        source = self._sources.get(catalog)
        found = self._catalogs.get(catalog)
        if source is None and found is not None:
            source = await self._connect(catalog, found)
        if source is not None and self.is_retired(catalog):
            return replace(source, policy=replace(source.policy, is_retired=True))
        return source

    def is_retired(self, catalog: str) -> bool:
        return catalog in self._retirement.names

    def catalog_ids(self) -> dict[str, str]:
        """The `catalog_id` of each catalog that was reached."""
        return {catalog: source.policy.catalog_id for catalog, source in self._sources.items()}

    async def _connect(self, catalog: str, found: IdentifiedCatalog) -> ConnectedCatalog:
        catalog_id = await found.identity()
        source = ConnectedCatalog(
            found, publish_policy(self._settings, catalog, catalog_id), self._vended(catalog, found)
        )
        # Many ask at once, and all rows are read to know whose the files are.
        async with self._recording[catalog]:
            if catalog not in self._sources:
                owner = await recorded_owner(catalog, catalog_id, self._catalog_admin, self._table_index)
                _log.info("catalog reached", catalog=catalog, catalog_id=catalog_id)
                if owner != catalog_id:
                    remedy = f"sfn adopt {catalog} --from {owner}"
                    _log.warning("catalog changed", catalog=catalog, catalog_id=catalog_id, files=owner, remedy=remedy)
            return self._sources.setdefault(catalog, source)


# ── looking: For whoever only looks


@dataclass(frozen=True, slots=True)
class ReadOnlyConnections:
    """What can be looked at.

    Attributes:
        settings: of the configuration.
        stores: those that are configured.
        catalogs: the adapters, by name.
    """

    settings: Settings
    stores: PrefixRouter
    catalogs: Mapping[str, IdentifiedCatalog]
    _vending: VendedStoresFactory

    async def connect(self, name: str) -> ConnectedCatalog:
        """A catalog and how its tables are published.

        Raises:
            Trouble: scope catalog; it can't be asked whose its tables are.
        """
        catalog = self.catalogs[name]
        policy = publish_policy(self.settings, name, await catalog.identity())
        return ConnectedCatalog(catalog, policy, self._vending(name, catalog))


@asynccontextmanager
async def open_read_only(settings: Settings) -> AsyncIterator[ReadOnlyConnections]:
    """All of it, closed in the end; none has been asked anything yet.

    Raises:
        SfnError: the packages of a store or catalog are not installed.
    """
    async with storage.open_stores(settings) as registry, AsyncExitStack() as stack:
        stores, clock = PrefixRouter(registry.stores), SystemClock()
        catalogs = build_catalogs(settings, clock, stores.read_range)
        for one in catalogs.values():
            stack.push_async_callback(one.close)
        yield ReadOnlyConnections(settings, stores, catalogs, vended_stores_factory(settings, stores, registry, clock))
