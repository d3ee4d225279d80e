"""Catalogs: reached, who we are there, what we may list and load, what is vended, and whose files lie there."""

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
from sfn.catalogs import CredentialVendor, UnlistedNamespace
from sfn.cli.check_config import CheckFinding, Severity, error_finding, ok_finding, warning_finding
from sfn.cli.render import pluralise
from sfn.clock import SystemClock, format_duration
from sfn.domain.catalog_answer import Loaded, NoSuchTable, VendedCredential
from sfn.domain.identifiers import Table, TableIdentifier, encode_identifier
from sfn.domain.jobs import DeadLetterReason
from sfn.errors import ErrorScope, ExternalError, LocationRefused, SfnError
from sfn.publish.existing_files import FileFinder
from sfn.publish.policy import OnDrop, Policy
from sfn.settings.model import Settings
from sfn.settings.sections import CatalogSettings
from sfn.sfnfile.locations import check_location
from sfn.sfnfile.version_hint import metadata_lifetime
from sfn.storage import StoreRouter
from sfn.worker.catalog_sources import VendedStores
from sfn.worker.compare import decide_with_queries

# ── vending: As whom a catalog is asked


def describe_auth(name: str, catalog: CatalogSettings) -> str:
    """How a catalog is told who asks, as the rest of a sentence; nothing where it is not, or PyIceberg does it."""
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
    """What a catalog vends for a table, None where it has no such table; raises trouble as the catalog does.

    Args:
        where: the table's place in the findings.
        now: from which it is counted how long that is good.
    """
    grants = await catalog.vended_credentials(table)
    if isinstance(grants, NoSuchTable):
        return None
    if not grants:
        remedy = (
            "let the catalog vend them (a role that it may assume, and a grant for our principal to write to the "
            "table's place), or set vended_credentials = false"
        )
        return warning_finding(where, "no credentials are vended", remedy)
    return ok_finding(
        where, f"credentials are vended: {', '.join(_describe_credential(grant, now) for grant in grants)}"
    )


def dropped_files_finding(
    where: str, on_drop: OnDrop, own: StoreRouter, places: Sequence[str], *, has_stores: bool
) -> CheckFinding:
    """What becomes of the files of dropped tables, for which nothing is vended.

    Args:
        where: the catalog's place in the findings.
        own: the configured stores.
        places: canonical locations of tables; none where none could be loaded.
        has_stores: there are any of those stores.
    """
    where = f"{where}.on_drop"
    if on_drop is OnDrop.KEEP:
        return ok_finding(where, "nothing is vended for a dropped table: its files stay as they are, as on_drop says")
    bare = [place for place in places if not _covers(own, place)]
    if has_stores and not places:
        said = "its files are reached where a store covers them; no table tells yet whether one does"
        return ok_finding(where, f"nothing is vended for a dropped table: {said}")
    if has_stores and not bare:
        return ok_finding(
            where, "nothing is vended for a dropped table: its files are reached with its store's own keys"
        )
    remedy = 'configure a store that covers them, with keys of its own: [stores.NAME] prefix; or set on_drop = "keep"'
    place = bare[0] if bare else "its place"
    text = f"nothing is vended for a dropped table, and no store covers {place}: its files there can't be ended"
    return warning_finding(where, text, remedy)


def _covers(own: StoreRouter, place: str) -> bool:
    try:
        own.store_for(place)
    except LocationRefused:
        return False
    return True


def _describe_credential(grant: VendedCredential, now: datetime) -> str:
    place = grant.prefix or "wherever the table lies"
    if grant.expires_at is None:
        return f"for {place}, not saying until when"
    return f"for {place}, good for {format_duration(grant.expires_at - now)}"


# ── retention: What is deleted too soon

MAX_REFRESH_AFTER: Final = timedelta(hours=12)
"""Half of what cleaners spare: a refresh that fails has as long again to be tried."""

_CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Lag:
    """How late our files may be.

    Attributes:
        time: how late; None: without bound.
        source: where that is known from, for people.
    """

    time: timedelta | None
    source: str


def assumed_lag(settings: Settings, why: str = "where no event comes") -> Lag:
    """How late they are at the worst, while nothing is in trouble: the next sweep finds what no event told of."""
    every = settings.sweep.every
    return Lag(every, "sweep.every is off" if every is None else f"sweep.every, {why}")


def observed_lag(status: CatalogModel, settings: Settings, now: datetime) -> Lag:
    """How late they are by what the running service says of a catalog."""
    if status.sweep is None:
        return assumed_lag(settings, "as no sweep has yet looked for what no event told of")
    if unreported := [one for one in status.sweep.differences if one.kind == _CHANGED]:
        return assumed_lag(
            settings, f"and the last sweep found {pluralise(len(unreported), 'table')} that no event had told of"
        )
    if status.oldest_due_at is None:
        return Lag(timedelta(), "nothing waits in the running service")
    return Lag(now - status.oldest_due_at, "so long the oldest waits in the running service")


def short_lived_finding(where: str, table: Table, lag: Lag) -> CheckFinding | None:
    """A warning of a table whose files may lead to nothing; None for any other."""
    lives = metadata_lifetime(table)
    if lives is None or (lag.time is not None and lives >= lag.time):
        return None
    retained = pluralise(table.previous_versions_max or 0, "previous file")
    late = "without bound" if lag.time is None else f"by up to {format_duration(lag.time)}"
    text = (
        f"its metadata files are deleted {format_duration(lives)} after the next commit ("
        f"write.metadata.delete-after-commit.enabled, {retained}), and ours may be late {late} ({lag.source}): "
        "readers may be led to one that is gone"
    )
    remedy = (
        "raise the table's write.metadata.previous-versions-max, or set write.metadata.delete-after-commit.enabled to "
        "false; or be in time: send events, shorten sweep.every"
    )
    return warning_finding(where, text, remedy)


def refresh_findings(name: str, catalog: CatalogSettings) -> Iterator[CheckFinding]:
    """A warning of files that go unwritten for so long that cleaners may take them for orphans."""
    if catalog.refresh_after >= MAX_REFRESH_AFTER:
        text = (
            f"{format_duration(catalog.refresh_after)}: cleaners delete files that no metadata names once they are a "
            "day old (Spark's remove_orphan_files refuses less than 24 h; Glue's and scripts may use one day), and a "
            "refresh that fails needs time to be tried again"
        )
        yield warning_finding(f"catalogs.{name}.refresh_after", text, "leave it at 8h, or below 12h at least")


# ── catalogs: Catalogs

MAX_SAMPLED_NAMESPACES: Final = 20
"""Namespaces of which one table is looked at, unless all are wanted."""
MAX_LISTED: Final = 5_000
"""Tables that are listed at most, unless all are wanted."""


def is_local_host(host: str) -> bool:
    """Whether a host is this machine, by its name alone."""
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class CatalogCheck:
    """One catalog.

    Args:
        thorough: look at every table.
        lag: how late its files may be.
        vended: what opens the tables' places, where the catalog says it.

    Attributes:
        table_locations: canonical locations of the tables that were loaded, and lie below a store.
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
        """Where tables lie, whether their files can be read or not."""

    async def findings(self) -> AsyncIterator[CheckFinding]:
        """All that is found, until the catalog as a whole fails."""
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
            remedy = "leave it at 60s unless one instance alone answers, and its clock is ours"
            yield warning_finding(
                f"{self._where}.replica_lag", "0: a lagging answer would be taken for a rollback", remedy
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
            return warning_finding(self._where, what, "have the catalog mended, or exclude the namespace")
        remedy = "grant our principal to list there, or exclude it"
        return warning_finding(self._where, f"may not list the namespace {name}: {one.reason}", remedy)

    async def _check_vended(self, table: TableIdentifier) -> CheckFinding | None:
        """What is vended for one table of all: that tells whether this catalog does."""
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
        """What is wrong with a table, None where nothing is."""
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
            place = check_location(answer.table.location, policy.allowed_locations)
            self._known_locations.append(place)
            site, uuid = policy.layout(table, place), answer.table.uuid
            stores = self._stores if self._vended is None else self._vended.for_table(table)
            own = await decide_with_queries(
                lambda facts: FileFinder(facts, policy, table).find_slot(site, uuid), stores, self._catalog
            )
        except LocationRefused as refused:
            self._refused += 1
            return error_finding(f"{self._where}: {name}", refused, Severity.WARNING)
        except ExternalError as trouble:
            return error_finding(f"{self._where}: {name}", trouble)
        self.table_locations.append(place)
        if own.main_document is not None:
            self._owners[own.main_document.catalog_id] += 1
        elif own.conflicting_document is not None and own.conflict is DeadLetterReason.FOREIGN_CATALOG:
            self._owners[own.conflicting_document.catalog_id] += 1
        return short_lived_finding(f"{self._where}: {name}", answer.table, self._lag)

    def _describe_extent(self) -> str:
        """How much was looked at: of each namespace the first table, unless all are wanted."""
        if not self._complete:
            return f"listed in part; {pluralise(self._checked, 'table')} looked at, a sample; --all looks at all"
        if self._checked == self._covered:
            return f"listed; {pluralise(self._checked, 'table')} looked at, all that there are"
        of = f"{self._checked:,} of {pluralise(self._covered, 'table')}"
        return f"listed; {of} looked at, a sample: one of each namespace; --all looks at all"

    def _summary_findings(self, policy: Policy) -> Iterator[CheckFinding]:
        """What the walk means as a whole."""
        if self._is_misnamed:
            return
        if not self._checked:
            remedy = "check warehouse, include and exclude, and what our principal may list"
            yield warning_finding(self._where, "lists no table that would get files", remedy)
            yield from self._dropped_findings(policy)
            return
        yield ok_finding(self._where, self._describe_extent())
        if self._refused and not self.table_locations:
            expected = "tables that lie below a store, where files may be written"
            found = f"none of the {self._refused:,} looked at"
            remedy = f"set stores.NAME.prefix to where they lie, or {self._where}.allowed_locations"
            yield error_finding(self._where, SfnError(self._where, expected=expected, found=found, remedy=remedy))
        yield from self._dropped_findings(policy)
        for owner, number in self._owners.items():
            if owner == policy.catalog_id:
                yield ok_finding(self._where, f"SFN files beside the {self._checked:,} looked at: {number:,} ours")
            else:
                remedy = (
                    f'if this catalog only moved: set {self._where}.catalog_id = "{owner}", '
                    f"or `sfn adopt {self._name} --from {owner}`; if another service keeps them, leave them to it"
                )
                found = f"{number:,} of the catalog_id {owner}, foreign to us and never replaced"
                yield warning_finding(self._where, f"SFN files beside the {self._checked:,} looked at: {found}", remedy)

    def _dropped_findings(self, policy: Policy) -> Iterator[CheckFinding]:
        if self._vended is not None:
            has_stores = bool(self._settings.stores)
            yield dropped_files_finding(
                self._where, policy.on_drop, self._stores, self._known_locations, has_stores=has_stores
            )
