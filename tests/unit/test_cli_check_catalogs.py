"""`sfn check` of catalogs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from typing_extensions import override

from sfn.admin.schemas import CatalogModel, DifferingTable
from sfn.catalogs import LoadResult, NoSuchTable, SkipNamespace, UnlistedNamespace, VendedCredential
from sfn.catalogs.memory import MemoryCatalog
from sfn.cli import check_catalogs
from sfn.cli.check_catalogs import (
    CatalogCheck,
    Lag,
    assumed_lag,
    dropped_files_finding,
    is_local_host,
    observed_lag,
    refresh_findings,
)
from sfn.cli.check_config import CheckFinding, Severity
from sfn.clock import SystemClock
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from sfn.publish.policy import OnDrop
from sfn.sfnfile import document
from sfn.sfnfile.document import Document
from sfn.sfnfile.naming import FileLayout, FileOwner
from sfn.storage import PrefixRouter
from sfn.storage.memory import MemoryStore
from sfn.worker.catalog_sources import VendedStores
from tests.support.settings_file import CATALOG, Ground
from tests.unit.admin_server import ENDED, NOON, PROD, copied

LOCAL = "[catalogs.prod]\nuri = 'http://127.0.0.1:8181'\n"
ORDERS = TableIdentifier("prod", ("sales",), "orders")


class Known(MemoryCatalog):
    """A catalog that says who it is.

    Attributes:
        refused: the trouble that loading a table ends in.
        loads: tables that were loaded.
    """

    def __init__(self) -> None:
        super().__init__("prod")
        self.refused: dict[TableIdentifier, ExternalError] = {}
        self.loads: list[TableIdentifier] = []

    async def close(self) -> None:
        """Nothing is open."""

    async def identity(self) -> str:
        if self.error is not None:
            raise self.error
        return "ours"

    @override
    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        self.loads.append(table)
        if table in self.refused:
            raise self.refused[table]
        return await super().load(table, known_etag)


class World:
    """A catalog, a store and settings.

    Attributes:
        lag: how late files are; None for as late as they may be by the settings.
    """

    def __init__(self, folder: Path) -> None:
        self.catalog, self.store, self.ground = Known(), MemoryStore(), Ground(folder)
        self.places: list[str] = []
        self.lag: Lag | None = None
        self.create("orders")

    def create(self, name: str, *namespace: str, location: str | None = None) -> TableIdentifier:
        table = TableIdentifier("prod", namespace or ("sales",), name)
        self.catalog.create_namespace(*table.namespace)
        self.catalog.create(table, location=location)
        return table

    def write(self, catalog_id: str, name: str = "orders") -> None:
        """Put a file of some catalog beside a table."""
        place = f"file:///warehouse/sales/{name}"
        doc = Document(catalog_id, ("sales",), name, None, f"{place}/metadata/x.metadata.json", 1, NOON)
        self.store.files[FileLayout(place).keys(FileOwner(("sales",), name))[0]] = document.render(doc)

    async def found(self, text: str = LOCAL, *, thorough: bool = False) -> list[CheckFinding]:
        settings, router = self.ground.load(text), PrefixRouter({"file:///warehouse": self.store})
        lag = self.lag or assumed_lag(settings)
        check = CatalogCheck("prod", self.catalog, router, settings, thorough=thorough, lag=lag)
        found = [one async for one in check.findings()]
        self.places = check.table_locations
        return found

    async def wrong(self, text: str = LOCAL) -> CheckFinding:
        """The one finding that is not fine."""
        (finding,) = [one for one in await self.found(text) if one.severity is not Severity.OK]
        return finding


@pytest.fixture(name="world")
def fixture_world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_catalog_that_is_right(world: World) -> None:
    world.write("ours")
    assert [(one.severity, one.text) for one in await world.found()] == [
        (Severity.OK, "reached; files carry the catalog_id ours"),
        (Severity.OK, "listed; the only table checked"),
        (Severity.OK, "SFN files of the 1 checked: 1 of this catalog"),
    ]
    assert world.places == ["file:///warehouse/sales/orders"]


async def test_files_of_another_catalog_id_are_warned_of_before_anything_is_foreign(world: World) -> None:
    world.write("before-it-moved")
    finding = await world.wrong()
    assert finding.severity is Severity.WARNING
    assert "1 with the catalog_id before-it-moved" in finding.text
    assert 'set catalogs.prod.catalog_id = "before-it-moved"' in finding.remedy
    assert "`sfn adopt prod --from before-it-moved`" in finding.remedy


async def test_a_catalog_that_is_away_is_an_error(world: World) -> None:
    world.catalog.error = Transient("prod", scope=ErrorScope.CATALOG, expected="an answer", found="none", remedy="wait")
    (finding,) = await world.found()
    assert (finding.severity, finding.remedy) == (Severity.ERROR, "wait")


async def test_a_namespace_that_may_not_be_listed_is_warned_of(world: World) -> None:
    world.create("secret", "closed")
    world.catalog.close_namespace("closed")
    finding = await world.wrong()
    assert finding.severity is Severity.WARNING
    assert "no permission to list the namespace closed: " in finding.text


async def test_a_table_that_may_not_be_loaded_is_an_error(world: World) -> None:
    world.catalog.refused[ORDERS] = Transient(
        "t", scope=ErrorScope.TABLE, expected="the table", found="403", remedy="grant"
    )
    finding = await world.wrong()
    assert (finding.severity, finding.where, finding.remedy) == (Severity.ERROR, "catalogs.prod: sales.orders", "grant")


async def test_trouble_of_the_whole_catalog_ends_it(world: World) -> None:
    world.catalog.refused[ORDERS] = Permanent("c", scope=ErrorScope.CATALOG, expected="a token", found="401")
    assert [one.severity for one in await world.found()] == [Severity.OK, Severity.ERROR]


async def test_a_table_below_no_store_is_warned_of(world: World) -> None:
    world.create("far", "other", location="file:///elsewhere/far")
    finding = await world.wrong()
    assert (finding.severity, finding.where) == (Severity.WARNING, "catalogs.prod: other.far")
    assert "prefix" in finding.remedy
    assert world.places == ["file:///warehouse/sales/orders"]


async def test_tables_that_are_all_refused_for_their_location_are_an_error(world: World) -> None:
    world.create("far", "other", location="file:///elsewhere/far")
    refused = [
        one
        for one in await world.found(f"{LOCAL}allowed_locations = ['/warehouse/other']\n")
        if one.severity is not Severity.OK
    ]
    assert [(one.severity, one.where) for one in refused] == [
        (Severity.WARNING, "catalogs.prod: sales.orders"),
        (Severity.WARNING, "catalogs.prod: other.far"),
        (Severity.ERROR, "catalogs.prod"),
    ]
    assert refused[-1].text.endswith("found none of the 2 checked")
    assert refused[-1].remedy == "set stores.NAME.prefix to a folder above them, or set catalogs.prod.allowed_locations"


async def test_a_catalog_without_tables_is_warned_of(world: World) -> None:
    finding = await world.wrong(f"{LOCAL}exclude = ['sales.**']\n")
    assert "no listed table would get files" in finding.text


async def test_a_sample_is_looked_at_unless_all_are_wanted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create("items")
    world.write("ours")
    for number in range(5):
        world.create("t", f"n{number}")
    sampled = "listed; 6 of 7 tables checked, one of each namespace; --all checks all"
    assert [one.text for one in await world.found()][1] == sampled
    assert len(world.catalog.loads) == 6
    monkeypatch.setattr(check_catalogs, "MAX_SAMPLED_NAMESPACES", 3)
    in_part = "listed in part; 3 tables checked, a sample; --all checks all"
    assert [one.text for one in await world.found()][1] == in_part
    world.catalog.loads.clear()
    assert [one.text for one in await world.found(thorough=True)][1:] == [
        "listed; all 7 tables checked",
        "SFN files of the 7 checked: 1 of this catalog",
    ]
    assert len(world.catalog.loads) == 7


async def test_a_catalog_of_another_name_is_an_error_with_the_right_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tables(_: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        yield UnlistedNamespace((), "its database holds default, and nothing of lake", 'set … = "default"')

    monkeypatch.setattr(world.catalog, "tables", tables)
    assert await world.wrong() == CheckFinding(
        "catalogs.prod", Severity.ERROR, "its database holds default, and nothing of lake", 'set … = "default"'
    )


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ("replica_lag = 0", "catalogs.prod.replica_lag"),
        ("token = 'x'", "catalogs.prod.uri"),
        ("credential = 'x'", "catalogs.prod.uri"),
    ],
)
async def test_settings_that_fit_one_machine_are_warned_of_elsewhere(world: World, more: str, where: str) -> None:
    finding = await world.wrong(f"[catalogs.prod]\nuri = 'http://catalog.example'\n{more}\n")
    assert (finding.severity, finding.where) == (Severity.WARNING, where)
    assert all(one.severity is Severity.OK for one in await world.found(f"{LOCAL}{more}\n"))


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("catalog", False), ("", False)],
)
def test_this_machine_is_known_by_its_names(host: str, local: bool) -> None:
    assert is_local_host(host) is local


@pytest.fixture(name="retention_world")
def fixture_retention_world(tmp_path: Path) -> World:
    """One with a table of a commit every two seconds, of which twenty metadata files stay."""
    world = World(tmp_path)
    version = [world.catalog.commit(ORDERS) for _ in range(100)][-1]
    world.catalog.amend(ORDERS, replace(version, previous_versions_max=20))
    return world


async def test_a_table_that_forgets_within_the_time_of_a_sweep_is_warned_of(retention_world: World) -> None:
    finding = await retention_world.wrong()
    assert finding == CheckFinding(
        "catalogs.prod: sales.orders",
        Severity.WARNING,
        "its metadata files are deleted 40 s after the next commit (write.metadata.delete-after-commit.enabled, "
        "20 previous files), and the SFN file may be late by up to 15 min (sweep.every, if no event comes): readers "
        "may find that the metadata file is gone",
        "raise the table's write.metadata.previous-versions-max, or set write.metadata.delete-after-commit.enabled to "
        "false; or reduce the lag: send events, shorten sweep.every",
    )


async def test_without_sweeps_files_may_be_late_without_bound(retention_world: World) -> None:
    finding = await retention_world.wrong(f"{LOCAL}[sweep]\nevery = 'off'\n")
    assert "the SFN file may be late without bound (sweep.every is off)" in finding.text


async def test_what_lives_as_long_as_files_are_late_is_fine(retention_world: World) -> None:
    retention_world.lag = Lag(timedelta(seconds=40), "measured")
    assert {one.severity for one in await retention_world.found()} == {Severity.OK}
    retention_world.lag = Lag(timedelta(seconds=41), "measured")
    assert "(measured)" in (await retention_world.wrong()).text


async def test_a_table_that_keeps_all_its_metadata_files_is_fine(retention_world: World) -> None:
    version = retention_world.catalog.current(ORDERS)
    assert version is not None
    retention_world.catalog.amend(ORDERS, replace(version, previous_versions_max=None))
    assert {one.severity for one in await retention_world.found(f"{LOCAL}[sweep]\nevery = 'off'\n")} == {Severity.OK}


def swept(*kinds: str) -> CatalogModel:
    differed = [DifferingTable(table=f"n.t{number}", kind=kind) for number, kind in enumerate(kinds)]
    return copied(PROD, sweep=copied(ENDED, differences=differed))


@pytest.mark.parametrize(
    ("standing", "lag"),
    [
        (PROD, Lag(timedelta(), "the queue of the running service is empty")),
        (swept("new", "absent"), Lag(timedelta(), "the queue of the running service is empty")),
        (
            copied(PROD, sweep=None),
            Lag(timedelta(minutes=15), "sweep.every, because no sweep has looked for unreported changes yet"),
        ),
        (
            copied(PROD, oldest_due_at=NOON - timedelta(seconds=90)),
            Lag(timedelta(seconds=90), "the age of the oldest job in the running service"),
        ),
        (
            swept("changed", "new", "changed"),
            Lag(timedelta(minutes=15), "sweep.every, because the last sweep found 2 tables that no event reported"),
        ),
    ],
)
def test_the_lag_is_what_a_running_service_says(tmp_path: Path, standing: CatalogModel, lag: Lag) -> None:
    assert observed_lag(standing, Ground(tmp_path).load(CATALOG), NOON) == lag


def test_the_lag_is_a_sweeps_where_none_runs(tmp_path: Path) -> None:
    settings = Ground(tmp_path).load(f"{CATALOG}[sweep]\nevery = '2h'\n")
    assert assumed_lag(settings) == Lag(timedelta(hours=2), "sweep.every, if no event comes")


@pytest.mark.parametrize(("every", "warned"), [("11h", 0), ("12h", 1), ("43h", 1)])
def test_files_that_cleaners_may_take_for_orphans_are_warned_of(tmp_path: Path, every: str, warned: int) -> None:
    settings = Ground(tmp_path).load(f"{CATALOG}refresh_after = '{every}'\n")
    found = list(refresh_findings("prod", settings.catalogs["prod"]))
    assert [one.where for one in found] == ["catalogs.prod.refresh_after"] * warned
    assert all((one.severity, "refuses less than 24 h" in one.text) == (Severity.WARNING, True) for one in found)


VENDED = f"{LOCAL}vended_credentials = true\n"
ORDERS_AT = "s3://lake/wh/orders"
GRANT = VendedCredential("s3://lake/orders", {"s3.access-key-id": "s3cret"})


class Vending(Known):
    """A catalog that counts how often it is asked for grants.

    Attributes:
        asked: for which tables.
        denied: raised then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[TableIdentifier] = []
        self.denied: ExternalError | None = None
        for name in ("orders", "items"):
            self.create_namespace(name)
            self.create(TableIdentifier("prod", (name,), name))

    @override
    async def vended_credentials(self, table: TableIdentifier) -> tuple[VendedCredential, ...] | NoSuchTable:
        self.asked.append(table)
        if self.denied is not None:
            raise self.denied
        return await super().vended_credentials(table)


@pytest.fixture(name="catalog")
def fixture_catalog() -> Vending:
    return Vending()


async def found(catalog: Vending, folder: Path, text: str = VENDED) -> Sequence[CheckFinding]:
    settings = Ground(folder).load(text)
    stores = PrefixRouter({"file:///warehouse": MemoryStore()})
    check = CatalogCheck("prod", catalog, stores, settings, thorough=True, lag=assumed_lag(settings))
    return [one async for one in check.findings()]


FIRST = TableIdentifier("prod", ("orders",), "orders")


async def test_what_is_vended_for_the_first_table_is_told(catalog: Vending, tmp_path: Path) -> None:
    end = SystemClock().now() + timedelta(hours=1, seconds=1)
    catalog.vended[FIRST] = (GRANT, VendedCredential("", GRANT.config, end))
    told = [one for one in await found(catalog, tmp_path) if "vended" in one.text]
    assert told == [
        CheckFinding(
            "catalogs.prod: orders.orders",
            Severity.OK,
            "credentials are vended: for s3://lake/orders, without an expiry time, "
            "for the table's location, valid for 1 h",
        )
    ]
    assert catalog.asked == [FIRST]
    assert "s3cret" not in str(told)


async def test_a_catalog_that_vends_nothing_is_warned_of(catalog: Vending, tmp_path: Path) -> None:
    (finding,) = [one for one in await found(catalog, tmp_path) if one.severity is not Severity.OK]
    assert (finding.severity, finding.text) == (Severity.WARNING, "no credentials are vended")
    assert "vended_credentials = false" in finding.remedy
    assert catalog.asked == [FIRST]


async def test_a_catalog_that_denies_them_is_an_error(catalog: Vending, tmp_path: Path) -> None:
    catalog.denied = Transient("t", scope=ErrorScope.TABLE, expected="credentials", found="403", remedy="grant")
    (finding,) = [one for one in await found(catalog, tmp_path) if one.severity is not Severity.OK]
    assert (finding.severity, finding.remedy) == (Severity.ERROR, "grant")
    catalog.denied = Permanent("c", scope=ErrorScope.CATALOG, expected="a token", found="401")
    assert [one.severity for one in await found(catalog, tmp_path)] == [Severity.OK, Severity.ERROR]


async def test_a_table_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    class Going(Vending):
        @override
        async def vended_credentials(self, table: TableIdentifier) -> tuple[VendedCredential, ...] | NoSuchTable:
            await super().vended_credentials(table)
            return NoSuchTable() if table == FIRST else (GRANT,)

    going = Going()
    told = [one.where for one in await found(going, tmp_path) if "vended" in one.text]
    assert told == ["catalogs.prod: items.items"]


async def test_who_does_not_want_them_asks_for_none(catalog: Vending, tmp_path: Path) -> None:
    await found(catalog, tmp_path, LOCAL)
    assert catalog.asked == []


@pytest.mark.parametrize(
    ("more", "how"),
    [
        ("", ""),
        ("token = 'x'", " with a bearer token"),
        ("token_file = '/x'", " with a bearer token"),
        ("credential = 'x'", " with OAuth2 client credentials"),
        ("credential_file = '/x'", " with OAuth2 client credentials"),
        ("auth = 'google'", " with Google's tokens"),
        (
            "auth = 'sigv4'\nsigning_region = 'eu-central-1'\nsigning_name = 'glue'",
            " with AWS's signatures for glue in eu-central-1",
        ),
    ],
)
async def test_how_it_is_known_there_is_told(catalog: Vending, tmp_path: Path, more: str, how: str) -> None:
    first, *_ = await found(catalog, tmp_path, f"{LOCAL}{more}\n")
    assert first.text == f"reached{how}; files carry the catalog_id ours"


async def test_a_user_in_the_uri_is_told_of_and_not_shown(catalog: Vending, tmp_path: Path) -> None:
    text = "[catalogs.prod]\nuri = 'http://me:s3cret@127.0.0.1:8181'\n"
    first, *_ = await found(catalog, tmp_path, text)
    assert first.text == "reached with a user and a password; files carry the catalog_id ours"


async def test_signatures_over_plain_http_are_warned_of(catalog: Vending, tmp_path: Path) -> None:
    text = "[catalogs.prod]\nuri = 'http://catalog.example'\nauth = 'google'\n"
    (finding,) = [one for one in await found(catalog, tmp_path, text) if one.severity is not Severity.OK]
    assert "a secret is sent over plain HTTP" in finding.text
    assert ORDERS not in catalog.asked


@pytest.mark.parametrize(
    ("on_drop", "prefix", "places", "severity", "said"),
    [
        (OnDrop.KEEP, None, [ORDERS_AT], Severity.OK, "its files stay unchanged"),
        (OnDrop.KEEP, None, [], Severity.OK, "its files stay unchanged"),
        (OnDrop.TOMBSTONE, "s3://lake/wh", [ORDERS_AT], Severity.OK, "with the store's own keys"),
        (OnDrop.TOMBSTONE, "s3://lake/wh", [], Severity.OK, "there is no table yet to check this with"),
        (OnDrop.TOMBSTONE, "s3://lake/other", [ORDERS_AT], Severity.WARNING, f"no store covers {ORDERS_AT}"),
        (OnDrop.DELETE, None, [ORDERS_AT], Severity.WARNING, "cannot become a tombstone"),
        (
            OnDrop.DELETE,
            None,
            [],
            Severity.WARNING,
            "no store covers its location: its SFN file there cannot become a tombstone",
        ),
    ],
)
def test_what_becomes_of_a_dropped_tables_files_is_told(
    on_drop: OnDrop, prefix: str | None, places: Sequence[str], severity: Severity, said: str
) -> None:
    own = PrefixRouter({} if prefix is None else {prefix: MemoryStore()})
    finding = dropped_files_finding("catalogs.prod", on_drop, own, places, has_stores=prefix is not None)
    assert (finding.where, finding.severity) == ("catalogs.prod.on_drop", severity)
    assert said in finding.text


async def dropped(catalog: Vending, folder: Path, text: str = VENDED) -> CheckFinding:
    """What is said of dropped tables, with stores that the catalog opens and none of our own."""
    settings, own = Ground(folder).load(text), PrefixRouter({})
    vended = VendedStores(catalog, own, lambda _grant, _location: MemoryStore(), SystemClock())
    check = CatalogCheck("prod", catalog, own, settings, thorough=True, lag=assumed_lag(settings), vended=vended)
    (finding,) = [one async for one in check.findings() if one.where == "catalogs.prod.on_drop"]
    return finding


async def test_tables_whose_files_cannot_be_read_are_no_proof_of_a_store(catalog: Vending, tmp_path: Path) -> None:
    # Nothing is vended, so that none can be.
    finding = await dropped(catalog, tmp_path)
    assert finding.severity is Severity.WARNING
    assert "no store covers file:///warehouse/orders/orders: " in finding.text


async def test_a_catalog_without_tables_is_no_proof_of_a_store(catalog: Vending, tmp_path: Path) -> None:
    finding = await dropped(catalog, tmp_path, f"{VENDED}exclude = ['**']\n")
    assert (finding.severity, "no store covers its location" in finding.text) == (Severity.WARNING, True)


async def test_a_table_that_cannot_be_loaded_is_no_proof_of_a_store(catalog: Vending, tmp_path: Path) -> None:
    refusal = Transient("t", scope=ErrorScope.TABLE, expected="the table", found="403")
    catalog.refused = dict.fromkeys([FIRST, TableIdentifier("prod", ("items",), "items")], refusal)
    finding = await dropped(catalog, tmp_path)
    assert (finding.severity, "no store covers its location" in finding.text) == (Severity.WARNING, True)
