"""Builders of catalog adapters, and of the options of publishing, inbox and worker."""

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
from sfn.catalogs.activity import CatalogAnswers, ObservableCatalog
from sfn.catalogs.event_sourced import EventCatalog, ReportedTables, nothing_reported
from sfn.catalogs.metadata import ReadRange
from sfn.catalogs.pyiceberg import PyIcebergCatalog, PyIcebergSettings
from sfn.catalogs.rest import auth
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.settings import RestSettings
from sfn.clock import Clock, SystemClock
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import SfnError
from sfn.inbox.inbox import Inbox
from sfn.inbox.model import InboxConfig
from sfn.publish.policy import OnDrop, Policy, TableFilter
from sfn.settings.root import Settings
from sfn.settings.sections import CatalogSettings
from sfn.settings.sources import ConfigurationError
from sfn.sfnfile.naming import NAMINGS, Placement
from sfn.storage import PrefixRouter, StoreRouter
from sfn.worker.capacity import RetryPolicy
from sfn.worker.catalog_sources import ConnectedCatalog, VendedStores
from sfn.worker.worker import WorkerOptions

_DEFAULT_SCOPES: Final = {
    None: "catalog",
    "sigv4": "",
    "google": "https://www.googleapis.com/auth/cloud-platform",
}
"""OAuth2 scopes without a setting, by `auth`. The one for Google is that of Iceberg's Java library."""


class IdentifiedCatalog(Catalog, Protocol):
    """A catalog that knows its `catalog_id`."""

    async def identity(self) -> str:
        """Return the `catalog_id` for SFN files.

        Raises:
            Transient, Permanent: scope catalog; the id cannot be derived, or the catalog does not answer.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def build_catalogs(
    settings: Settings, clock: Clock, read_range: ReadRange, reported: ReportedTables = nothing_reported
) -> dict[str, IdentifiedCatalog]:
    """Build the adapters of all configured catalogs, by name, without a request to any of them.

    Args:
        settings: all settings.
        clock: wall clock.
        read_range: reads metadata files, for catalogs that cannot be queried.
        reported: returns what events reported of a name, for these catalogs.

    Raises:
        ConfigurationError: a catalog cannot be queried with its settings.
    """
    return {name: _build_catalog(name, one, clock, read_range, reported) for name, one in settings.catalogs.items()}


def check_adapters(settings: Settings) -> None:
    """Refuse settings that only an adapter can check.

    Raises:
        ConfigurationError: with all problems.
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
    """Return the settings of the REST adapter.

    Raises:
        ConfigurationError: a value is invalid; the message repeats no secret.
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
        expected = "valid settings of a REST catalog"
        raise ConfigurationError([SfnError(f"catalogs.{name}", expected=expected, found=str(error))]) from None


def pyiceberg_settings(name: str, catalog: CatalogSettings) -> PyIcebergSettings:
    """Return the settings of the PyIceberg adapter.

    Raises:
        SfnError: a property is invalid; the message repeats no secret.
    """
    return PyIcebergSettings(
        name=name,
        properties={key: value.get_secret_value() for key, value in catalog.properties.items()},
        catalog_id=catalog.catalog_id,
    )


def _build_catalog(
    name: str, catalog: CatalogSettings, clock: Clock, read_range: ReadRange, reported: ReportedTables
) -> IdentifiedCatalog:
    match catalog.type:
        case "rest":
            return RestCatalog(rest_settings(name, catalog), clock)
        case "pyiceberg":
            return PyIcebergCatalog(pyiceberg_settings(name, catalog))
        case "events":
            return EventCatalog(name, catalog.catalog_id or "", read_range, catalog.allowed_locations, reported)


DISTRIBUTION: Final = "iceberg-sfn"
VERSION: Final = version(DISTRIBUTION)
"""Read from a file at import, because a process that runs out of file descriptors could not read it later."""
_NO_SWEEPS: Final = timedelta(days=36_500)
"""Time between sweeps if they are off: a sweep that an event triggers schedules no other one in practice."""


def table_filter(catalog: CatalogSettings) -> TableFilter:
    """Return the filter of a catalog's published tables."""
    return TableFilter(catalog.include, catalog.exclude)


def publish_policy(settings: Settings, catalog: str, catalog_id: str) -> Policy:
    """Return the policy for publishing a catalog's tables."""
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


def inbox_config(settings: Settings) -> InboxConfig:
    """Return the configuration of the inbox."""
    limits = {name: one.max_drops for name, one in settings.catalogs.items() if one.max_drops is not None}
    stores = tuple(one.prefix for one in settings.stores.values())
    return InboxConfig(
        lease=settings.worker.lease,
        retry_cap=settings.retry.cap,
        max_drops=limits,
        stores=stores,
        event_only_catalogs=settings.event_only_catalogs,
        late_after=settings.telemetry.late_after,
    )


def worker_options(settings: Settings) -> WorkerOptions:
    retry = settings.retry
    return WorkerOptions(
        concurrency=settings.worker.concurrency,
        lease=settings.worker.lease,
        drain=settings.listener.drain,
        retry=RetryPolicy(retry.base, retry.cap, retry.budget, retry.max_attempts),
    )


if TYPE_CHECKING:
    # This module imports FastAPI, which commands that only read do not need to wait for.
    from sfn.admin.routes import RetiredCatalogs

VendedStoresFactory: TypeAlias = Callable[[str, IdentifiedCatalog], VendedStores | None]
"""Returns the vended stores of a catalog, by its name and adapter; None for the configured stores."""

_log = structlog.stdlib.get_logger(__name__)


def vended_stores_factory(
    settings: Settings, stores: StoreRouter, registry: StoreRegistry, clock: Clock
) -> VendedStoresFactory:
    """Return a factory of vended stores for the catalogs with `vended_credentials`."""

    def vended(name: str, catalog: IdentifiedCatalog) -> VendedStores | None:
        if settings.catalogs[name].vended_credentials and isinstance(catalog, CredentialVendor):
            return VendedStores(catalog, stores, registry.open_vended, clock, settings.catalogs[name].root or "")
        return None

    return vended


class LazyCatalogRegistry:
    """A `CatalogRegistry` that connects each catalog at its first use, because its `catalog_id` comes from the catalog.

    Until a catalog was reached nothing is published for it. Its jobs fail with scope catalog, which costs them no
    attempt.

    Args:
        settings: all settings.
        catalogs: adapters, by name.
        retirement: retired catalogs.
        inbox: records the `catalog_id` of the files.
        vended: factory of vended stores.
    """

    def __init__(
        self,
        settings: Settings,
        catalogs: Mapping[str, IdentifiedCatalog],
        retirement: RetiredCatalogs,
        inbox: Inbox,
        vended: VendedStoresFactory = lambda _name, _catalog: None,
    ) -> None:
        self._settings, self._catalogs, self._retirement = settings, catalogs, retirement
        self._inbox, self._vended = inbox, vended
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

    def stores_for(self, table: TableIdentifier, configured: StoreRouter) -> StoreRouter:
        """Return the stores of a table; those of `configured` as long as its catalog was not reached."""
        source = self._sources.get(table.catalog)
        return configured if source is None else source.stores_for(table, configured)

    def is_retired(self, catalog: str) -> bool:
        return catalog in self._retirement.names

    def catalog_ids(self) -> dict[str, str]:
        """Return the `catalog_id` of each catalog that was reached, by name."""
        return {catalog: source.policy.catalog_id for catalog, source in self._sources.items()}

    def answers(self) -> dict[str, CatalogAnswers]:
        """Return what is known of the answers of each catalog that is asked over a network, by name."""
        return {
            name: one.activity.answers for name, one in self._catalogs.items() if isinstance(one, ObservableCatalog)
        }

    async def _connect(self, catalog: str, found: IdentifiedCatalog) -> ConnectedCatalog:
        catalog_id = await found.identity()
        source = ConnectedCatalog(
            found, publish_policy(self._settings, catalog, catalog_id), self._vended(catalog, found)
        )
        # The lock saves work: many jobs connect at once, and finding the owner of the files reads all tables' rows.
        async with self._recording[catalog]:
            if catalog not in self._sources:
                owner = await self._inbox.recorded_owner(catalog, catalog_id)
                _log.info("catalog reached", catalog=catalog, catalog_id=catalog_id)
                if owner != catalog_id:
                    remedy = f"sfn adopt {catalog} --from {owner}"
                    _log.warning("catalog changed", catalog=catalog, catalog_id=catalog_id, files=owner, remedy=remedy)
            return self._sources.setdefault(catalog, source)


@dataclass(frozen=True, slots=True)
class ReadOnlyConnections:
    """Stores and catalogs for commands that only read.

    Attributes:
        settings: all settings.
        stores: configured stores.
        catalogs: adapters, by name.
    """

    settings: Settings
    stores: PrefixRouter
    catalogs: Mapping[str, IdentifiedCatalog]
    _vending: VendedStoresFactory

    async def connect(self, name: str) -> ConnectedCatalog:
        """Return a catalog with its publish policy.

        Raises:
            ExternalError: scope catalog; the catalog does not answer with its identity.
        """
        catalog = self.catalogs[name]
        policy = publish_policy(self.settings, name, await catalog.identity())
        return ConnectedCatalog(catalog, policy, self._vending(name, catalog))


@asynccontextmanager
async def open_read_only(settings: Settings) -> AsyncIterator[ReadOnlyConnections]:
    """Build stores and catalogs without a request to any of them, and close them in the end.

    Raises:
        SfnError: the packages of a store or catalog are not installed.
    """
    async with storage.open_stores(settings) as registry, AsyncExitStack() as stack:
        stores, clock = PrefixRouter(registry.stores), SystemClock()
        catalogs = build_catalogs(settings, clock, stores.read_range)
        for one in catalogs.values():
            stack.push_async_callback(one.close)
        yield ReadOnlyConnections(settings, stores, catalogs, vended_stores_factory(settings, stores, registry, clock))
