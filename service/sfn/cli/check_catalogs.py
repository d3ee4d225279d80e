"""Checks of catalogs: authentication, listing, a sample of tables, vended credentials, and existing SFN files."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from sfn.admin.schemas import CatalogModel
from sfn.app import catalogs
from sfn.app.catalogs import IdentifiedCatalog, rest_settings
from sfn.catalogs import CredentialVendor, Loaded, NoSuchTable, UnlistedNamespace, VendedCredential
from sfn.cli.check_config import CheckFinding, Severity, error_finding, ok_finding, warning_finding
from sfn.clock import SystemClock, format_duration
from sfn.domain.identifiers import Table, TableIdentifier, encode_identifier
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import ErrorScope, ExternalError, LocationRefused, SfnError, pluralise
from sfn.publish.existing_files import FileFinder
from sfn.publish.policy import OnDrop, Policy
from sfn.settings.root import Settings
from sfn.settings.sections import CatalogSettings
from sfn.sfnfile.locations import check_location
from sfn.sfnfile.version_hint import metadata_lifetime
from sfn.storage import StoreRouter
from sfn.worker.catalog_sources import VendedStores
from sfn.worker.comparison import decide_with_queries


def describe_auth(name: str, catalog: CatalogSettings) -> str:
    """Return how the listener authenticates with a catalog, as the end of a sentence.

    The text is empty without authentication, and for catalogs that PyIceberg queries.
    """
    match catalog.auth:
        case "sigv4":
            region, service = rest_settings(name, catalog).signing
            return f" with AWS's signatures for {service} in {region}"
        case "google":
            return " with Google's tokens"
        case None if catalog.token or catalog.token_file:
            return " with a bearer token"
        case None if catalog.credential or catalog.credential_file:
            return " with OAuth2 client credentials"
        case None:
            return " with a user and a password" if urlsplit(catalog.uri or "").username else ""


async def vending_finding(
    where: str, catalog: CredentialVendor, table: TableIdentifier, now: datetime
) -> CheckFinding | None:
    """Return a finding about the credentials that a catalog vends for a table; None if it has no such table.

    Args:
        where: the subject of the finding.
        catalog: the catalog.
        table: the table.
        now: the present time, to state how long the credentials are valid.

    Raises:
        ExternalError: the catalog does not answer.
    """
    grants = await catalog.vended_credentials(table)
    if isinstance(grants, NoSuchTable):
        return None
    if not grants:
        remedy = (
            "have the catalog vend them (a role that it may assume, and a grant for the listener's principal to write "
            "to the table's location), or set vended_credentials = false"
        )
        return warning_finding(where, "no credentials are vended", remedy)
    return ok_finding(
        where, f"credentials are vended: {', '.join(_describe_credential(grant, now) for grant in grants)}"
    )


def dropped_files_finding(
    where: str, on_drop: OnDrop, stores: StoreRouter, locations: Sequence[str], *, has_stores: bool
) -> CheckFinding:
    """Return a finding about the files of dropped tables, for which a catalog vends no credentials.

    Args:
        where: the subject of the finding.
        on_drop: the catalog's setting.
        stores: the configured stores.
        locations: canonical locations of tables; empty if no table could be loaded.
        has_stores: True if any store is configured.
    """
    where, no_credentials = f"{where}.on_drop", "no credentials are vended for a dropped table"
    if on_drop is OnDrop.KEEP:
        return ok_finding(where, f"{no_credentials}: its files stay unchanged, as on_drop says")
    uncovered = [location for location in locations if not _covers(stores, location)]
    if has_stores and not locations:
        text = "its files are updated if a store covers them; there is no table yet to check this with"
        return ok_finding(where, f"{no_credentials}: {text}")
    if has_stores and not uncovered:
        return ok_finding(where, f"{no_credentials}: its files are updated with the store's own keys")
    remedy = 'configure a store that covers them, with keys of its own: [stores.NAME] prefix; or set on_drop = "keep"'
    location = uncovered[0] if uncovered else "its location"
    text = f"{no_credentials}, and no store covers {location}: its SFN file there cannot become a tombstone"
    return warning_finding(where, text, remedy)


def _covers(stores: StoreRouter, location: str) -> bool:
    try:
        stores.store_for(location)
    except LocationRefused:
        return False
    return True


def _describe_credential(grant: VendedCredential, now: datetime) -> str:
    place = grant.prefix or "the table's location"
    if grant.expires_at is None:
        return f"for {place}, without an expiry time"
    return f"for {place}, valid for {format_duration(grant.expires_at - now)}"


MAX_REFRESH_AFTER: Final = timedelta(hours=12)
"""Half of the age that orphan cleaners spare, so that a failed refresh can be retried for as long again."""

_CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of SFN files behind their catalog.

    Attributes:
        time: the lag; None for no bound.
        source: the source of this figure, in words.
    """

    time: timedelta | None
    source: str


def assumed_lag(settings: Settings, why: str = "if no event comes") -> Lag:
    """Return the worst lag without an outage: the next sweep finds changes that no event reported."""
    every = settings.sweep.every
    return Lag(every, "sweep.every is off" if every is None else f"sweep.every, {why}")


def observed_lag(status: CatalogModel, settings: Settings, now: datetime) -> Lag:
    """Return the lag of a catalog, from the state of the running service."""
    if status.sweep is None:
        return assumed_lag(settings, "because no sweep has looked for unreported changes yet")
    if unreported := [one for one in status.sweep.differences if one.kind == _CHANGED]:
        return assumed_lag(
            settings, f"because the last sweep found {pluralise(len(unreported), 'table')} that no event reported"
        )
    if status.oldest_due_at is None:
        return Lag(timedelta(), "the queue of the running service is empty")
    return Lag(now - status.oldest_due_at, "the age of the oldest job in the running service")


def short_lived_finding(where: str, table: Table, lag: Lag) -> CheckFinding | None:
    """Return a warning if a table's metadata files may be deleted before its SFN file is updated; else None."""
    lives = metadata_lifetime(table)
    if lives is None or (lag.time is not None and lives >= lag.time):
        return None
    retained = pluralise(table.previous_versions_max or 0, "previous file")
    late = "without bound" if lag.time is None else f"by up to {format_duration(lag.time)}"
    text = (
        f"its metadata files are deleted {format_duration(lives)} after the next commit ("
        f"write.metadata.delete-after-commit.enabled, {retained}), and the SFN file may be late {late} "
        f"({lag.source}): readers may find that the metadata file is gone"
    )
    remedy = (
        "raise the table's write.metadata.previous-versions-max, or set write.metadata.delete-after-commit.enabled to "
        "false; or reduce the lag: send events, shorten sweep.every"
    )
    return warning_finding(where, text, remedy)


def refresh_findings(name: str, catalog: CatalogSettings) -> Iterator[CheckFinding]:
    """Yield a warning if files are rewritten so seldom that orphan cleaners may delete them."""
    if catalog.refresh_after >= MAX_REFRESH_AFTER:
        text = (
            f"{format_duration(catalog.refresh_after)}: orphan cleaners delete files that no metadata names once they "
            "are a day old (Spark's remove_orphan_files refuses less than 24 h; Glue's and scripts may use one day), "
            "and a failed refresh needs time for retries"
        )
        yield warning_finding(f"catalogs.{name}.refresh_after", text, "leave it at 8h, or at least below 12h")


MAX_SAMPLED_NAMESPACES: Final = 20
"""The most namespaces with a table in the sample, without --all."""
MAX_LISTED: Final = 5_000
"""The most tables that are listed, without --all."""


def is_local_host(host: str) -> bool:
    """Return whether a host name or address is this machine's, without resolving it."""
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class CatalogCheck:
    """The check of one catalog.

    Args:
        name: the catalog's name.
        catalog: the catalog.
        stores: the configured stores.
        settings: the configuration.
        thorough: True to check every table.
        lag: the lag of its files.
        vended: opens stores with vended credentials; None if the catalog vends none.

    Attributes:
        table_locations: canonical locations of the loaded tables that lie below a store.
    """

    def __init__(
        self,
        name: str,
        catalog: IdentifiedCatalog,
        stores: StoreRouter,
        settings: Settings,
        *,
        thorough: bool,
        lag: Lag,
        vended: VendedStores | None = None,
    ) -> None:
        self._lag, self._vended = lag, vended
        self._name, self._catalog, self._stores, self._settings = name, catalog, stores, settings
        self._where, self._thorough = f"catalogs.{name}", thorough
        self._namespaces: set[tuple[str, ...]] = set()
        self._owners: Counter[str] = Counter()
        self._covered, self._checked, self._refused = 0, 0, 0
        self._complete, self._is_misnamed = True, False
        self._asks_for_grants = settings.catalogs[name].vended_credentials
        self.table_locations: list[str] = []
        self._known_locations: list[str] = []
        """Canonical locations of all loaded tables, also if their files cannot be read."""

    async def findings(self) -> AsyncIterator[CheckFinding]:
        """Yield all findings, until the catalog as a whole fails."""
        for finding in self._check_settings():
            yield finding
        try:
            catalog_id = await self._catalog.identity()
            how = describe_auth(self._name, self._settings.catalogs[self._name])
            yield ok_finding(self._where, f"reached{how}; files carry the catalog_id {catalog_id}")
            policy = catalogs.publish_policy(self._settings, self._name, catalog_id)
            async for finding in self._check_tables(policy):
                yield finding
        except ExternalError as trouble:
            yield error_finding(self._where, trouble)
            return
        for finding in self._summary_findings(policy):
            yield finding

    def _check_settings(self) -> Iterator[CheckFinding]:
        ours = self._settings.catalogs[self._name]
        uri = urlsplit(ours.uri or "")
        is_here = is_local_host(uri.hostname or "")
        if ours.uri is not None and ours.replica_lag == timedelta() and not is_here:
            remedy = "leave it at 60s unless a single instance answers, on the listener's clock"
            yield warning_finding(
                f"{self._where}.replica_lag", "0: a late answer of a replica would count as a rollback", remedy
            )
        secret = ours.auth or ours.token or ours.token_file or ours.credential or ours.credential_file or uri.password
        if secret and uri.scheme == "http" and not is_here:
            yield warning_finding(f"{self._where}.uri", "a secret is sent over plain HTTP", "use https")

    async def _check_tables(self, policy: Policy) -> AsyncIterator[CheckFinding]:
        listed = 0
        async with aclosing(self._catalog.tables(policy.table_filter.excludes_namespace)) as found:
            async for one in found:
                if isinstance(one, UnlistedNamespace):
                    yield self._unlisted_finding(one)
                    continue
                listed += 1
                covered = policy.table_filter.covers(one)
                self._covered += covered
                if covered and (self._thorough or one.namespace not in self._namespaces):
                    self._namespaces.add(one.namespace)
                    self._checked += 1
                    if (vended := await self._check_vended(one)) is not None:
                        yield vended
                    if (finding := await self._check_table(one, policy)) is not None:
                        yield finding
                if not self._thorough and (listed >= MAX_LISTED or len(self._namespaces) >= MAX_SAMPLED_NAMESPACES):
                    self._complete = False
                    return

    def _unlisted_finding(self, one: UnlistedNamespace) -> CheckFinding:
        if one.remedy:
            self._is_misnamed = True
            return CheckFinding(self._where, Severity.ERROR, one.reason, one.remedy)
        name = ".".join(one.namespace) or "(the whole catalog)"
        if one.is_failure:
            what = f"could not list the namespace {name}, so nothing in it counts as dropped: {one.reason}"
            return warning_finding(self._where, what, "have the catalog fixed, or exclude the namespace")
        remedy = "permit the listener's principal to list it, or exclude it"
        return warning_finding(self._where, f"no permission to list the namespace {name}: {one.reason}", remedy)

    async def _check_vended(self, table: TableIdentifier) -> CheckFinding | None:
        """Return a finding about vended credentials; one existing table is enough for the whole catalog."""
        if not self._asks_for_grants or not isinstance(self._catalog, CredentialVendor):
            return None
        where = f"{self._where}: {encode_identifier(table.namespace, table.name)}"
        try:
            found = await vending_finding(where, self._catalog, table, SystemClock().now())
        except ExternalError as trouble:
            if trouble.scope is not ErrorScope.TABLE:
                raise
            found = error_finding(where, trouble)
        self._asks_for_grants = found is None
        return found

    async def _check_table(self, table: TableIdentifier, policy: Policy) -> CheckFinding | None:
        """Return a problem of a table; None if there is none."""
        name = encode_identifier(table.namespace, table.name)
        try:
            answer = await self._catalog.load(table, None)
        except ExternalError as trouble:
            if trouble.scope is not ErrorScope.TABLE:
                raise
            return error_finding(f"{self._where}: {name}", trouble)
        if not isinstance(answer, Loaded) or answer.table.skip_reason is not None:
            return None
        try:
            check_location(answer.table.metadata_location, policy.allowed_locations)
            location = check_location(answer.table.location, policy.allowed_locations)
            self._known_locations.append(location)
            layout, uuid = policy.layout(table, location), answer.table.uuid
            stores = self._stores if self._vended is None else self._vended.for_table(table)
            slot = await decide_with_queries(
                lambda facts: FileFinder(facts, policy, table).find_slot(layout, uuid), stores, self._catalog
            )
        except LocationRefused as refused:
            self._refused += 1
            return error_finding(f"{self._where}: {name}", refused, Severity.WARNING)
        except ExternalError as trouble:
            return error_finding(f"{self._where}: {name}", trouble)
        self.table_locations.append(location)
        if slot.main_document is not None:
            self._owners[slot.main_document.catalog_id] += 1
        elif slot.conflicting_document is not None and slot.conflict is DeadLetterReason.FOREIGN_CATALOG:
            self._owners[slot.conflicting_document.catalog_id] += 1
        return short_lived_finding(f"{self._where}: {name}", answer.table, self._lag)

    def _describe_extent(self) -> str:
        """Return how many tables were checked."""
        if not self._complete:
            return f"listed in part; {pluralise(self._checked, 'table')} checked, a sample; --all checks all"
        if self._checked == self._covered:
            return f"listed; {'the only table' if self._checked == 1 else f'all {self._checked:,} tables'} checked"
        of = f"{self._checked:,} of {pluralise(self._covered, 'table')}"
        return f"listed; {of} checked, one of each namespace; --all checks all"

    def _summary_findings(self, policy: Policy) -> Iterator[CheckFinding]:
        """Yield the findings about the catalog as a whole, after its tables."""
        if self._is_misnamed:
            return
        if not self._checked:
            remedy = "check warehouse, include and exclude, and what the listener's principal may list"
            yield warning_finding(self._where, "no listed table would get files", remedy)
            yield from self._dropped_findings(policy)
            return
        yield ok_finding(self._where, self._describe_extent())
        if self._refused and not self.table_locations:
            expected = "tables below a store, where files may be written"
            found = f"none of the {self._refused:,} checked"
            remedy = f"set stores.NAME.prefix to a folder above them, or set {self._where}.allowed_locations"
            yield error_finding(self._where, SfnError(self._where, expected=expected, found=found, remedy=remedy))
        yield from self._dropped_findings(policy)
        for owner, number in self._owners.items():
            if owner == policy.catalog_id:
                yield ok_finding(self._where, f"SFN files of the {self._checked:,} checked: {number:,} of this catalog")
            else:
                remedy = (
                    f'if this catalog only moved: set {self._where}.catalog_id = "{owner}", '
                    f"or `sfn adopt {self._name} --from {owner}`; if another service writes them, leave them alone"
                )
                found = f"{number:,} with the catalog_id {owner}, which are foreign and never replaced"
                yield warning_finding(self._where, f"SFN files of the {self._checked:,} checked: {found}", remedy)

    def _dropped_findings(self, policy: Policy) -> Iterator[CheckFinding]:
        if self._vended is not None:
            has_stores = bool(self._settings.stores)
            yield dropped_files_finding(
                self._where, policy.on_drop, self._stores, self._known_locations, has_stores=has_stores
            )
