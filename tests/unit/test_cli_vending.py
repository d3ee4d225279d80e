"""What `sfn check` says of how it is known to a catalog, and of what the catalog vends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from typing_extensions import override

from sfn.cli.check_catalogs import CatalogCheck, assumed_lag, dropped_files_finding
from sfn.cli.check_config import CheckFinding, Severity
from sfn.clock import SystemClock
from sfn.domain.catalog_answer import NoSuchTable, VendedCredential
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError, Permanent, Transient
from sfn.publish.policy import OnDrop
from sfn.storage import PrefixRouter
from sfn.storage.memory import MemoryStore
from sfn.worker.catalog_sources import VendedStores
from tests.unit.settings_ground import Ground
from tests.unit.test_cli_catalog_check import LOCAL, ORDERS, Known

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
            "credentials are vended: for s3://lake/orders, not saying until when, "
            "for wherever the table lies, good for 1 h",
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
        (OnDrop.KEEP, None, [ORDERS_AT], Severity.OK, "stay as they are"),
        (OnDrop.KEEP, None, [], Severity.OK, "stay as they are"),
        (OnDrop.TOMBSTONE, "s3://lake/wh", [ORDERS_AT], Severity.OK, "with its store's own keys"),
        (OnDrop.TOMBSTONE, "s3://lake/wh", [], Severity.OK, "no table tells yet whether one does"),
        (OnDrop.TOMBSTONE, "s3://lake/other", [ORDERS_AT], Severity.WARNING, f"no store covers {ORDERS_AT}"),
        (OnDrop.DELETE, None, [ORDERS_AT], Severity.WARNING, "can't be ended"),
        (OnDrop.DELETE, None, [], Severity.WARNING, "no store covers its place: its files there can't be ended"),
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
    assert (finding.severity, "no store covers its place" in finding.text) == (Severity.WARNING, True)


async def test_a_table_that_cannot_be_loaded_is_no_proof_of_a_store(catalog: Vending, tmp_path: Path) -> None:
    refusal = Transient("t", scope=ErrorScope.TABLE, expected="the table", found="403")
    catalog.refused = dict.fromkeys([FIRST, TableIdentifier("prod", ("items",), "items")], refusal)
    finding = await dropped(catalog, tmp_path)
    assert (finding.severity, "no store covers its place" in finding.text) == (Severity.WARNING, True)
