"""Grants: asked for in the way that the catalog has, kept until they end, and shown nowhere."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from sfn.catalogs import CredentialVendor
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.domain.catalog_answer import Loaded, NoSuchTable, VendedCredential
from sfn.domain.identifiers import TableIdentifier
from tests.unit.rest_server import ORDERS, Open, Responder, Server, complaint, pass_by, reply
from tests.unit.vending_server import CREDENTIALS, GONE, LOAD, PATH, Vending, listing

MANY = 16
ITEMS = TableIdentifier("lake", ("sales",), "items")


@pytest.fixture
def vending(server: Server) -> Vending:
    found = Vending()
    server.other = found.respond
    server.config = listing(LOAD, CREDENTIALS)
    return found


async def key_of(catalog: RestCatalog, table: TableIdentifier = ORDERS) -> str:
    return key_in(await catalog.vended_credentials(table))


def key_in(grants: tuple[VendedCredential, ...] | NoSuchTable) -> str:
    assert not isinstance(grants, NoSuchTable)
    (grant,) = grants
    return grant.config["s3.access-key-id"].removeprefix("access-key-id-number-")


async def given(catalog: RestCatalog, table: TableIdentifier = ORDERS) -> tuple[VendedCredential, ...]:
    grants = await catalog.vended_credentials(table)
    assert not isinstance(grants, NoSuchTable)
    return grants


def delegating(server: Server) -> list[str | None]:
    return [request.headers.get("x-iceberg-access-delegation") for request in server.requests]


@pytest.mark.usefixtures("vending")
async def test_an_endpoint_that_is_listed_is_asked(server: Server, opened: Open) -> None:
    catalog = opened(server)
    assert isinstance(catalog, CredentialVendor)
    (grant,) = await given(catalog)
    assert grant.prefix == "s3://lake/orders"
    assert grant.expires_at is not None
    assert server.asked == [f"{PATH}/credentials"]
    assert delegating(server) == [None, None]


async def test_a_load_is_asked_where_the_endpoint_is_not_listed(server: Server, opened: Open, vending: Vending) -> None:
    server.config = listing(LOAD)
    vending.shape = lambda config: {"config": {**config, "token": "x"}}
    (grant,) = await given(opened(server, headers={"X-Iceberg-Access-Delegation": "remote-signing"}))
    assert (grant.prefix, "token" in grant.config) == ("", False)
    assert server.asked == [f"{PATH}?snapshots=refs"]
    assert delegating(server)[1:] == ["vended-credentials"]


@pytest.mark.usefixtures("vending")
async def test_ordinary_loads_and_listings_delegate_nothing(server: Server, opened: Open) -> None:
    server.config = listing(LOAD)
    catalog = opened(server)
    await catalog.vended_credentials(ORDERS)
    assert isinstance(await catalog.load(ORDERS, None), Loaded)
    server.other = reply({"identifiers": [], "namespaces": []})
    assert not await catalog.is_listed(ORDERS)
    assert [one async for one in catalog.tables()] == []
    assert delegating(server).count("vended-credentials") == 1


NO_ENDPOINT: dict[str, Responder] = {
    "400": complaint("BadRequestException", 400, "No route for request"),
    "404 of a web server": reply(b"<UnknownOperationException/>", 404, content_type="application/xml"),
    "404 of another kind": complaint("NotFoundException", 404),
    "405": reply(b"", 405),
    "501": reply(b"", 501),
    "no credentials": reply({"storage-credentials": []}),
    "another answer": reply({}),
}


@pytest.mark.parametrize("case", NO_ENDPOINT)
async def test_a_catalog_without_the_endpoint_is_asked_for_it_once(
    server: Server, opened: Open, vending: Vending, case: str
) -> None:
    server.config = reply({"defaults": {}, "overrides": {}})
    vending.endpoint = NO_ENDPOINT[case]
    catalog = opened(server)
    assert [await key_of(catalog, table) for table in (ORDERS, ITEMS)] == ["1", "2"]
    load = f"{PATH}?snapshots=refs"
    assert server.asked == [f"{PATH}/credentials", load, load.replace("orders", "items")]


async def test_a_missing_table_says_nothing_of_the_endpoint(server: Server, opened: Open, vending: Vending) -> None:
    server.config = reply({"defaults": {}, "overrides": {}})
    vending.endpoint = GONE
    catalog = opened(server)
    assert await catalog.vended_credentials(ORDERS) == NoSuchTable()
    vending.endpoint = None
    assert await key_of(catalog, ITEMS) == "1"
    assert server.asked == [f"{PATH}/credentials", "/v1/namespaces/sales/tables/items/credentials"]


async def test_a_catalog_that_vends_nothing_is_not_asked_each_time(
    server: Server, opened: Open, vending: Vending, monkeypatch: pytest.MonkeyPatch
) -> None:
    vending.endpoint, vending.load = reply({"storage-credentials": []}), reply({"config": {"s3.region": "x"}})
    catalog = opened(server)
    assert [await catalog.vended_credentials(ORDERS) for _ in range(3)] == [()] * 3
    assert len(server.asked) == 2
    pass_by(301, monkeypatch)
    assert await catalog.vended_credentials(ORDERS) == ()
    assert len(server.asked) == 3


@pytest.mark.parametrize("ahead", [-3, 0, 3])
async def test_grants_are_kept_until_a_little_before_their_end_whatever_our_clock_says(
    server: Server, opened: Open, vending: Vending, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vending.ahead = timedelta(hours=ahead)
    catalog = opened(server)
    assert [await key_of(catalog) for _ in range(3)] == ["1"] * 3
    pass_by(3600 - 60 - 5, monkeypatch)
    assert await key_of(catalog) == "1"
    pass_by(3600 - 60 + 5, monkeypatch)
    assert await key_of(catalog) == "2"


async def test_grants_that_do_not_say_when_they_end_are_had_anew_after_a_while(
    server: Server, opened: Open, vending: Vending, monkeypatch: pytest.MonkeyPatch
) -> None:
    vending.lasts = None
    catalog = opened(server)
    assert await key_of(catalog) == "1"
    pass_by(295, monkeypatch)
    assert await key_of(catalog) == "1"
    pass_by(305, monkeypatch)
    assert await key_of(catalog) == "2"


async def test_many_who_need_grants_at_once_share_one_question_for_each_table(
    server: Server, opened: Open, vending: Vending
) -> None:
    vending.late = 0.1
    catalog, found = opened(server), list[str]()

    async def ask(table: TableIdentifier) -> None:
        found.append(await key_of(catalog, table))

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(ask, ORDERS)
            group.start_soon(ask, ITEMS)
    assert sorted(found) == ["1"] * MANY + ["2"] * MANY
    assert len(server.asked) == 2


async def test_refused_grants_are_renewed_once_for_all(server: Server, opened: Open, vending: Vending) -> None:
    catalog, found = opened(server), list[str]()
    refused = await given(catalog)
    vending.late = 0.1

    async def renew() -> None:
        found.append(key_in(await catalog.renew_credentials(ORDERS, list(refused))))

    async with anyio.create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(renew)
    await renew()
    assert found == ["2"] * (MANY + 1)
    assert await key_of(catalog) == "2"


@pytest.mark.usefixtures("vending")
async def test_the_least_recently_used_go(server: Server, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.catalogs.rest.credentials.MAX_TABLES", 2)
    catalog = opened(server)
    asked = [ORDERS, ITEMS, ORDERS, TableIdentifier("lake", ("sales",), "more"), ORDERS, ITEMS]
    assert [await key_of(catalog, table) for table in asked] == ["1", "2", "1", "3", "1", "4"]


async def test_a_table_that_is_not_there_is_missing(server: Server, opened: Open, vending: Vending) -> None:
    vending.endpoint = vending.load = GONE
    for endpoints in ([LOAD], [LOAD, CREDENTIALS]):
        server.config = listing(*endpoints)
        catalog = opened(server)
        assert await catalog.vended_credentials(ORDERS) == NoSuchTable()
        assert await catalog.renew_credentials(ORDERS, ()) == NoSuchTable()


async def test_a_table_that_was_dropped_keeps_its_grants_until_they_end(
    server: Server, opened: Open, vending: Vending, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened(server)
    assert await key_of(catalog) == "1"
    vending.endpoint = GONE
    for passed in (0, 3600 - 50, 3600 - 40):
        pass_by(passed, monkeypatch)
        assert await key_of(catalog) == "1"
    pass_by(3601, monkeypatch)
    assert await catalog.vended_credentials(ORDERS) == NoSuchTable()


async def test_a_refused_grant_of_a_dropped_table_is_not_given_again(
    server: Server, opened: Open, vending: Vending
) -> None:
    catalog = opened(server)
    refused = await given(catalog)
    vending.endpoint = GONE
    assert await catalog.renew_credentials(ORDERS, refused) == NoSuchTable()
    assert await catalog.vended_credentials(ORDERS) == NoSuchTable()


async def test_a_table_that_comes_again_has_grants_again(server: Server, opened: Open, vending: Vending) -> None:
    catalog, vending.endpoint = opened(server), GONE
    assert await catalog.vended_credentials(ORDERS) == NoSuchTable()
    vending.endpoint = None
    assert await key_of(catalog) == "1"
