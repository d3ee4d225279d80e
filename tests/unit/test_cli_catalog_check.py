"""What `sfn check` finds out about a catalog: who we are there, what we may see, and whose files lie there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from typing_extensions import override

from sfn.catalogs import SkipNamespace, UnlistedNamespace
from sfn.catalogs.memory import MemoryCatalog
from sfn.cli import check_catalogs
from sfn.cli.check_catalogs import CatalogCheck, Lag, assumed_lag, is_local_host
from sfn.cli.check_config import CheckFinding, Severity
from sfn.domain.catalog_answer import LoadResult
from sfn.domain.events import EventHistory
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from sfn.sfnfile import document
from sfn.sfnfile.document import Document
from sfn.sfnfile.naming import FileLayout, FileOwner
from sfn.storage import PrefixRouter
from sfn.storage.memory import MemoryStore
from tests.unit.operators import NOON
from tests.unit.settings_ground import Ground

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
    async def load(
        self, table: TableIdentifier, known_etag: str | None, history: EventHistory | None = None
    ) -> LoadResult:
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
        (Severity.OK, "listed; 1 table looked at, all that there are"),
        (Severity.OK, "SFN files beside the 1 looked at: 1 ours"),
    ]
    assert world.places == ["file:///warehouse/sales/orders"]


async def test_files_of_another_catalog_id_are_warned_of_before_anything_is_foreign(world: World) -> None:
    world.write("before-it-moved")
    finding = await world.wrong()
    assert finding.severity is Severity.WARNING
    assert "1 of the catalog_id before-it-moved" in finding.text
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
    assert "may not list the namespace closed: " in finding.text


async def test_a_table_that_may_not_be_loaded_is_an_error(world: World) -> None:
    world.catalog.refused[ORDERS] = Transient(
        "t", scope=ErrorScope.TABLE, expected="the table", found="403", remedy="grant"
    )
    finding = await world.wrong()
    assert (finding.severity, finding.where, finding.remedy) == (
        Severity.ERROR,
        "catalogs.prod: sales.orders",
        "grant",
    )


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
    assert refused[-1].text.endswith("found none of the 2 looked at")
    assert refused[-1].remedy == "set stores.NAME.prefix to where they lie, or catalogs.prod.allowed_locations"


async def test_a_catalog_without_tables_is_warned_of(world: World) -> None:
    finding = await world.wrong(f"{LOCAL}exclude = ['sales.**']\n")
    assert "lists no table that would get files" in finding.text


async def test_a_sample_is_looked_at_unless_all_are_wanted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create("items")
    world.write("ours")
    for number in range(5):
        world.create("t", f"n{number}")
    sampled = "listed; 6 of 7 tables looked at, a sample: one of each namespace; --all looks at all"
    assert [one.text for one in await world.found()][1] == sampled
    assert len(world.catalog.loads) == 6
    monkeypatch.setattr(check_catalogs, "MAX_SAMPLED_NAMESPACES", 3)
    in_part = "listed in part; 3 tables looked at, a sample; --all looks at all"
    assert [one.text for one in await world.found()][1] == in_part
    world.catalog.loads.clear()
    assert [one.text for one in await world.found(thorough=True)][1:] == [
        "listed; 7 tables looked at, all that there are",
        "SFN files beside the 7 looked at: 1 ours",
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
