"""What operators' requests are answered that are not right: who may ask comes first, then what is wrong with what."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from structlog.testing import capture_logs

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason
from tests.integration.listening import Service
from tests.integration.operating import Office, client, got, operating, posted, table

LETTERS = "/admin/v1/dead-letters"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(name="office")
def fixture_office() -> Office:
    return Office()


@pytest.fixture(name="operator")
async def fixture_operator(office: Office) -> AsyncIterator[httpx.AsyncClient]:
    async with operating(office) as client:
        yield client


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000, b"[]", b""])
async def test_who_is_no_operator_is_told_so_whatever_was_sent(office: Office, body: bytes) -> None:
    async with client(Service(), office.router()) as stranger:
        with capture_logs() as logs:
            reply = await stranger.post(f"{LETTERS}:replay", content=body, headers=JSON)
    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert [(entry["event"], entry["status"]) for entry in logs] == [("request refused", 401)]


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("?limit=0", "query limit: should be greater than or equal to 1"),
        ("?limit=many", "query limit: should be a valid integer, unable to parse string as an integer"),
        ("?reason=s3cret", "query reason: should be 'held-drop', 'foreign-catalog', "),
        ("?before=2026-01-01T00:00:00", "query before: should have timezone info"),
        ("?tabel=s3cret", "query tabel: no such key is known"),
        ("/x1", "path number: should be a valid integer, "),
    ],
)
async def test_a_parameter_that_is_wrong_is_named(operator: httpx.AsyncClient, path: str, detail: str) -> None:
    reply = await operator.get(LETTERS + path)
    assert reply.status_code == 422
    assert reply.json()["detail"].startswith(detail)
    assert "s3cret" not in reply.text


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"{", "body: should be JSON"),
        (b"[]", "body: should be a valid dictionary"),
        (b'{"ids": ["s3cret"]}', "body ids 0: should be a valid integer, "),
        (b'{"filter": {"tabel": "s3cret"}}', "body filter tabel: no such key is known"),
        (b'{"ids": [%s]}' % b",".join([b"1"] * 1_001), "body ids: should have at most 1000 items"),
        (b"", "body: is needed, and missing"),
    ],
)
async def test_a_field_of_an_order_that_is_wrong_is_named(
    operator: httpx.AsyncClient, body: bytes, detail: str
) -> None:
    reply = await operator.post(f"{LETTERS}:replay", content=body, headers=JSON)
    assert reply.status_code == 422
    assert reply.json()["detail"].startswith(detail)
    assert "s3cret" not in reply.text


async def test_of_much_that_is_wrong_the_first_is_named(operator: httpx.AsyncClient) -> None:
    reply = await operator.post(f"{LETTERS}:replay", json={"ids": ["x"] * 900, "y" * 5_000: 1})
    assert reply.json()["detail"].endswith("; and more")
    assert len(reply.text) < 2_000


async def test_names_with_a_slash_are_asked_for(operator: httpx.AsyncClient, office: Office) -> None:
    names = [
        TableIdentifier("prod", ("a/b", "c"), "t/u"),
        TableIdentifier("prod", ("a",), "50%"),
        TableIdentifier("prod", ("a",), "%2F"),
    ]
    await office.ground.hint(*names)
    for name, path in zip(names, ("a%2Fb%1Fc/t%2Fu", "a/50%25", "a/%252F"), strict=True):
        found = await got(operator, f"/admin/v1/tables/prod/{path}")
        assert (tuple(found["namespace"]), found["name"]) == (name.namespace, name.name)
    assert (await operator.get("/admin/v1/tables/prod/a/b/c")).status_code == 404


async def test_an_unknown_catalog_is_404_with_the_nearest_name(operator: httpx.AsyncClient) -> None:
    requests = [
        operator.get(LETTERS, params={"catalog": "prd"}),
        operator.get(LETTERS, params={"catalog": "prd", "table": "sales.orders"}),
        operator.post(f"{LETTERS}:discard", json={"filter": {"catalog": "prd"}}),
        operator.post("/admin/v1/brakes/prd:release"),
        operator.post("/admin/v1/catalogs/prd:retire"),
        operator.post("/admin/v1/catalogs/prd:adopt", json={"from": "c0"}),
        operator.post("/admin/v1/reconcile", json={"catalogs": ["prd"]}),
        operator.get("/admin/v1/tables/prd/sales/orders"),
    ]
    for request in requests:
        reply = await request
        assert reply.status_code == 404, reply.url
        assert reply.json()["detail"] == "no catalog of that name is configured; did you mean prod?"
    reply = await operator.post("/admin/v1/brakes/nothing-like-it:release")
    assert reply.json()["detail"] == "no catalog of that name is configured; known here: prod, dev.eu, mute"


async def test_letters_of_a_catalog_that_left_are_found_and_discarded(
    operator: httpx.AsyncClient, office: Office
) -> None:
    await office.ground.settled(table("orders", "left"), DeadLettered(DeadLetterReason.PERMANENT, "no such catalog"))
    assert len((await got(operator, LETTERS, catalog="left"))["dead_letters"]) == 1
    assert (await posted(operator, f"{LETTERS}:discard", {"filter": {"catalog": "left"}}))["discarded"] == 1
    assert (await got(operator, LETTERS, catalog="left"))["dead_letters"] == []
