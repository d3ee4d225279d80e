"""Catalogs: reached, who we are there, what we may list and load, what is vended, and whose files lie there."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import timedelta
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from sfn.catalog import CredentialVendor, UnlistedNamespace
from sfn.cli.checks.findings import Finding, Severity, doubtful, fine, wrong
from sfn.cli.checks.retention import Lag, short_lived
from sfn.cli.checks.vending import left_behind, shown, vending
from sfn.cli.pages import counted
from sfn.clock import SystemClock
from sfn.errors import LocationRefused, Scope, SfnError, Trouble
from sfn.pointer.location import check_location
from sfn.publish.inventory import FileFinder
from sfn.publish.policy import Policy
from sfn.settings import Settings
from sfn.store import StoreRouter
from sfn.wiring import terms
from sfn.wiring.sources import IdentifiedCatalog
from sfn.words import Loaded, Reason, TableName
from sfn.words.table import spelled
from sfn.work.examination import learnt
from sfn.work.vended import Vended

NAMESPACES: Final = 20
"""Namespaces of which one table is looked at, unless all are wanted."""
LISTED: Final = 5_000
"""Tables that are listed at most, unless all are wanted."""


def is_local(host: str) -> bool:
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
        places: canonical locations of the tables that were loaded, and lie below a store.
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
        vended: Vended | None = None,
    ) -> None:
        self._lag, self._vended = lag, vended
        self._name, self._catalog, self._stores, self._settings = name, catalog, stores, settings
        self._where, self._thorough = f"catalogs.{name}", thorough
        self._namespaces: set[tuple[str, ...]] = set()
        self._owners: Counter[str] = Counter()
        self._covered, self._looked, self._refused = 0, 0, 0
        self._complete, self._is_misnamed = True, False
        self._asks_for_grants = settings.catalogs[name].vended_credentials
        self.places: list[str] = []
        self._known: list[str] = []
        """Where tables lie, whether their files can be read or not."""

    async def findings(self) -> AsyncIterator[Finding]:
        """All that is found, until the catalog as a whole fails."""
        for finding in self._of_settings():
            yield finding
        try:
            catalog_id = await self._catalog.identity()
            how = shown(self._name, self._settings.catalogs[self._name])
            yield fine(self._where, f"reached{how}; files carry the catalog_id {catalog_id}")
            policy = terms.publish_policy(self._settings, self._name, catalog_id)
            async for finding in self._walked(policy):
                yield finding
        except Trouble as trouble:
            yield wrong(self._where, trouble)
            return
        for finding in self._told(policy):
            yield finding

    def _of_settings(self) -> Iterator[Finding]:
        ours = self._settings.catalogs[self._name]
        uri = urlsplit(ours.uri or "")
        is_here = is_local(uri.hostname or "")
        if ours.uri is not None and ours.replica_lag == timedelta() and not is_here:
            remedy = "leave it at 60s unless one instance alone answers, and its clock is ours"
            yield doubtful(f"{self._where}.replica_lag", "0: a lagging answer would be taken for a rollback", remedy)
        secret = ours.auth or ours.token or ours.token_file or ours.credential or ours.credential_file or uri.password
        if secret and uri.scheme == "http" and not is_here:
            yield doubtful(f"{self._where}.uri", "a secret is sent over plain HTTP", "use https")

    async def _walked(self, policy: Policy) -> AsyncIterator[Finding]:
        listed = 0
        async with aclosing(self._catalog.tables(policy.table_filter.excludes_namespace)) as found:
            async for one in found:
                if isinstance(one, UnlistedNamespace):
                    yield self._withheld(one)
                    continue
                listed += 1
                covered = policy.table_filter.covers(one)
                self._covered += covered
                if covered and (self._thorough or one.namespace not in self._namespaces):
                    self._namespaces.add(one.namespace)
                    self._looked += 1
                    if (vended := await self._grants(one)) is not None:
                        yield vended
                    if (finding := await self._looked_at(one, policy)) is not None:
                        yield finding
                if not self._thorough and (listed >= LISTED or len(self._namespaces) >= NAMESPACES):
                    self._complete = False
                    return

    def _withheld(self, one: UnlistedNamespace) -> Finding:
        if one.remedy:
            self._is_misnamed = True
            return Finding(self._where, Severity.ERROR, one.reason, one.remedy)
        name = ".".join(one.namespace) or "(the whole catalog)"
        if one.is_failure:
            what = f"could not list the namespace {name}, so nothing in it counts as dropped: {one.reason}"
            return doubtful(self._where, what, "have the catalog mended, or exclude the namespace")
        remedy = "grant our principal to list there, or exclude it"
        return doubtful(self._where, f"may not list the namespace {name}: {one.reason}", remedy)

    async def _grants(self, table: TableName) -> Finding | None:
        """What is vended for one table of all: that tells whether this catalog does."""
        if not self._asks_for_grants or not isinstance(self._catalog, CredentialVendor):
            return None
        where = f"{self._where}: {spelled(table.namespace, table.name)}"
        try:
            found = await vending(where, self._catalog, table, SystemClock().now())
        except Trouble as trouble:
            if trouble.scope is not Scope.TABLE:
                raise
            found = wrong(where, trouble)
        self._asks_for_grants = found is None
        return found

    async def _looked_at(self, table: TableName, policy: Policy) -> Finding | None:
        """What is wrong with a table, None where nothing is."""
        name = spelled(table.namespace, table.name)
        try:
            answer = await self._catalog.load(table, None)
        except Trouble as trouble:
            if trouble.scope is not Scope.TABLE:
                raise
            return wrong(f"{self._where}: {name}", trouble)
        if not isinstance(answer, Loaded) or answer.table.left_alone is not None:
            return None
        try:
            check_location(answer.table.metadata_location, policy.allowed_locations)
            place = check_location(answer.table.location, policy.allowed_locations)
            self._known.append(place)
            site, uuid = policy.layout(table, place), answer.table.uuid
            stores = self._stores if self._vended is None else self._vended.of(table)
            own = await learnt(
                lambda facts: FileFinder(facts, policy, table).find_slot(site, uuid), stores, self._catalog
            )
        except LocationRefused as refused:
            self._refused += 1
            return wrong(f"{self._where}: {name}", refused, Severity.WARNING)
        except Trouble as trouble:
            return wrong(f"{self._where}: {name}", trouble)
        self.places.append(place)
        if own.main_document is not None:
            self._owners[own.main_document.catalog_id] += 1
        elif own.conflicting_document is not None and own.conflict is Reason.FOREIGN_CATALOG:
            self._owners[own.conflicting_document.catalog_id] += 1
        return short_lived(f"{self._where}: {name}", answer.table, self._lag)

    def _extent(self) -> str:
        """How much was looked at: of each namespace the first table, unless all are wanted."""
        if not self._complete:
            return f"listed in part; {counted(self._looked, 'table')} looked at, a sample; --all looks at all"
        if self._looked == self._covered:
            return f"listed; {counted(self._looked, 'table')} looked at, all that there are"
        of = f"{self._looked:,} of {counted(self._covered, 'table')}"
        return f"listed; {of} looked at, a sample: one of each namespace; --all looks at all"

    def _told(self, policy: Policy) -> Iterator[Finding]:
        """What the walk means as a whole."""
        if self._is_misnamed:
            return
        if not self._looked:
            remedy = "check warehouse, include and exclude, and what our principal may list"
            yield doubtful(self._where, "lists no table that would get files", remedy)
            yield from self._of_dropped(policy)
            return
        yield fine(self._where, self._extent())
        if self._refused and not self.places:
            expected = "tables that lie below a store, where files may be written"
            found = f"none of the {self._refused:,} looked at"
            remedy = f"set stores.NAME.prefix to where they lie, or {self._where}.allowed_locations"
            yield wrong(self._where, SfnError(self._where, expected=expected, found=found, remedy=remedy))
        yield from self._of_dropped(policy)
        for owner, number in self._owners.items():
            if owner == policy.catalog_id:
                yield fine(self._where, f"SFN files beside the {self._looked:,} looked at: {number:,} ours")
            else:
                remedy = (
                    f'if this catalog only moved: set {self._where}.catalog_id = "{owner}", '
                    f"or `sfn adopt {self._name} --from {owner}`; if another service keeps them, leave them to it"
                )
                found = f"{number:,} of the catalog_id {owner}, foreign to us and never replaced"
                yield doubtful(self._where, f"SFN files beside the {self._looked:,} looked at: {found}", remedy)

    def _of_dropped(self, policy: Policy) -> Iterator[Finding]:
        if self._vended is not None:
            has_stores = bool(self._settings.stores)
            yield left_behind(self._where, policy.on_drop, self._stores, self._known, has_stores=has_stores)
