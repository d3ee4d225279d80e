"""The operators' orders about whole catalogs: swept, retired, their files adopted, their brakes released."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from sfn.words import CatalogName, Dead, Reason
from tests.integration.operating import Office, got, operating, posted, table

ORDERS = table("orders")


@pytest.fixture(name="office")
def fixture_office() -> Office:
    return Office()


@pytest.fixture(name="operator")
async def fixture_operator(office: Office) -> AsyncIterator[httpx.AsyncClient]:
    async with operating(office) as client:
        yield client


async def test_catalogs_are_swept_when_an_operator_asks(operator: httpx.AsyncClient, office: Office) -> None:
    answer = await posted(operator, "/admin/v1/reconcile")
    assert answer["catalogs"] == ["prod", "dev.eu"]
    claims = await office.ground.claims()
    assert {claim.subject for claim in claims} == {CatalogName("prod"), CatalogName("dev.eu")}
    assert answer["begins_at"] == dict.fromkeys(("prod", "dev.eu"), answer["asked_at"])
    again = await posted(operator, "/admin/v1/reconcile", {"catalogs": ["prod", "prod"]})
    assert (again["catalogs"], again["begins_at"]) == (["prod"], {})
    (newest, first) = (await got(operator, "/admin/v1/audit"))["entries"]
    assert (newest["action"], newest["subject"], newest["count"]) == ("reconcile", "prod", 1)
    assert (first["subject"], first["count"]) == ("prod, dev.eu", 2)


@pytest.mark.parametrize(("catalog", "status"), [("unknown", 404), ("mute", 422)])
async def test_what_can_not_be_swept_is_refused(operator: httpx.AsyncClient, catalog: str, status: int) -> None:
    reply = await operator.post("/admin/v1/reconcile", json={"catalogs": [catalog]})
    assert reply.status_code == status


async def test_a_catalog_retires_and_comes_back(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.published(ORDERS)
    assert await posted(operator, "/admin/v1/catalogs/prod:retire") == {"tables": 1}
    assert office.process.retirement.names == {"prod"}
    assert (await got(operator, "/admin/v1/status"))["catalogs"][0]["retired"]
    claim = await ground.claim()
    assert (claim.subject, claim.wish.anew) == (ORDERS, True)
    await ground.settle(claim, ground.done())
    assert await posted(operator, "/admin/v1/catalogs/prod:retire", {"undo": True}) == {"tables": 1}
    assert office.process.retirement.names == frozenset()
    assert {claim.subject for claim in await ground.claims()} == {ORDERS, CatalogName("prod")}


async def test_files_are_adopted_by_all_tables_of_a_catalog(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.settled(ORDERS, Dead(Reason.FOREIGN_CATALOG, "why"))
    await ground.published(table("stock"))
    await ground.published(table("other", "dev.eu"))
    assert await posted(operator, "/admin/v1/catalogs/prod:adopt", {"from": "c0"}) == {"tables": 2}
    claims = await ground.claims()
    assert {claim.subject for claim in claims} == {ORDERS, table("stock")}
    assert {(claim.wish.adopts, claim.wish.anew) for claim in claims} == {("c0", True)}


async def test_files_are_adopted_by_tables_that_are_named(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.published(table("stock"))
    await ground.published(ORDERS, "s3://lake/other", "u2")
    named = {"from": "c0", "tables": ["sales.stock", "sales.stock"]}
    assert await posted(operator, "/admin/v1/catalogs/prod:adopt", named) == {"tables": 1}
    assert (await ground.claim()).subject == table("stock")


async def test_a_table_that_nobody_knows_adopts_nothing(operator: httpx.AsyncClient, office: Office) -> None:
    await office.ground.published(ORDERS)
    named = {"from": "c0", "tables": ["sales.orders", "sales.oders"]}
    reply = await operator.post("/admin/v1/catalogs/prod:adopt", json=named)
    assert (reply.status_code, "prod:sales.oders" in reply.json()["detail"]) == (404, True)
    assert await office.ground.claims() == []


async def test_a_catalog_with_files_of_another_says_so_until_all_are_adopted(
    operator: httpx.AsyncClient, office: Office
) -> None:
    async def foreign() -> str | None:
        found: str | None = (await got(operator, "/admin/v1/status"))["catalogs"][0]["foreign_id"]
        return found

    await office.ground.published(ORDERS)
    assert await foreign() is None
    await office.inbox.own("prod", "c0")
    assert await foreign() == "c0"
    await posted(operator, "/admin/v1/catalogs/prod:adopt", {"from": "c0", "tables": ["sales.orders"]})
    await posted(operator, "/admin/v1/catalogs/prod:adopt", {"from": "typo"})
    assert await foreign() == "c0"
    await posted(operator, "/admin/v1/catalogs/prod:adopt", {"from": "c0"})
    assert await foreign() is None
    assert await office.inbox.owner("prod") == "c1"


@pytest.mark.parametrize("content", [{}, {"from": ""}, {"from": "c0", "tables": ["a..b"]}, {"from": "c0", "all": 1}])
async def test_an_adoption_that_is_not_clear_is_422(operator: httpx.AsyncClient, content: object) -> None:
    assert (await operator.post("/admin/v1/catalogs/prod:adopt", json=content)).status_code == 422


@pytest.mark.parametrize("order", ["brakes/none:release", "catalogs/none:retire"])
async def test_an_order_about_an_unknown_catalog_is_404(operator: httpx.AsyncClient, order: str) -> None:
    reply = await operator.post(f"/admin/v1/{order}")
    assert reply.status_code == 404
    assert "prod" in reply.json()["detail"]
