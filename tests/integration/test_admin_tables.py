"""Lists of tables in the admin API: filters, order, pages, causes and similar names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, PublishResult, Retry, TableState
from sfn.errors import ErrorScope
from sfn.worker.capacity import CircuitBreakerState
from sfn.worker.catalog_now import CatalogNow, CatalogNowState
from tests.promises.inboxes import pointer, table
from tests.support.listener import Office, got

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS, STOCK = table("orders"), table("stock")
FAR = TableIdentifier("dev.eu", ("sales", "eu"), "orders_raw")
TABLES = "/admin/v1/tables"


async def names(operator: httpx.AsyncClient, **search: str | int | list[str]) -> list[str]:
    return [f"{one['catalog']}:{one['table']}" for one in (await got(operator, TABLES, **search))["tables"]]


async def test_tables_are_listed_by_name_with_their_state(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.published(STOCK)
    await ground.settled(ORDERS, Retry(ground.after(90), "the store hangs"))
    ground.clock.turn(59)
    page = await got(operator, TABLES)
    first, second = page["tables"]
    assert page["next"] is None
    assert (first["table"], first["state"], first["late"], first["cause"]) == (
        "sales.orders",
        "retrying",
        False,
        "the store hangs",
    )
    assert (first["waiting_since"], first["next_attempt_at"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z")
    assert (second["state"], second["waiting_since"], second["cause"]) == ("scheduled", None, None)
    assert second["metadata_location"].endswith("00001-u1.metadata.json")
    ground.clock.turn(1)
    assert [one["late"] for one in (await got(operator, TABLES))["tables"]] == [True, False]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ({}, ["dev.eu:sales.eu.orders_raw", "prod:sales.orders", "prod:sales.stock"]),
        ({"catalog": "prod"}, ["prod:sales.orders", "prod:sales.stock"]),
        ({"catalog": ["prod", "dev.eu"], "limit": 1}, ["dev.eu:sales.eu.orders_raw"]),
        ({"namespace": "sales.*"}, ["dev.eu:sales.eu.orders_raw"]),
        ({"namespace": "sales.eu"}, ["dev.eu:sales.eu.orders_raw"]),
        ({"namespace": "sale"}, []),
        ({"table": "sales.st*"}, ["prod:sales.stock"]),
        ({"table": "**raw"}, ["dev.eu:sales.eu.orders_raw"]),
        ({"table": "sales.orders"}, ["prod:sales.orders"]),
        ({"state": "dead"}, ["prod:sales.stock"]),
        ({"state": ["dead", "due"]}, ["dev.eu:sales.eu.orders_raw", "prod:sales.stock"]),
        ({"sort": "lag"}, ["prod:sales.orders", "prod:sales.stock", "dev.eu:sales.eu.orders_raw"]),
        ({"late": "true"}, ["prod:sales.orders", "prod:sales.stock"]),
    ],
)
async def test_a_list_is_filtered_and_sorted(
    operator: httpx.AsyncClient, office: Office, search: dict[str, Any], found: list[str]
) -> None:
    ground = office.ground
    await ground.settled(ORDERS, Retry(ground.after(900), "the store hangs"))
    ground.clock.turn(1)
    await ground.settled(STOCK, DeadLettered(DeadLetterReason.PERMANENT, "why"))
    ground.clock.turn(100)
    await ground.hint(FAR)
    assert await names(operator, **search) == found


async def test_only_a_table_that_is_gone_is_listed_as_dropped(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    gone, foreign, refused, live = table("gone"), table("foreign"), table("refused"), table("live")
    for number, one in enumerate((gone, foreign, live)):
        await ground.published(one, f"file:///w/{number}", f"u{number}")
    without_file = PublishResult(TableState(has_settled=True))
    await ground.settled(gone, Done(ground.after(3600), without_file))
    await ground.settled(foreign, DeadLettered(DeadLetterReason.FOREIGN_FILE, "why", without_file))
    await ground.hint(refused)
    claim = await ground.claim()
    assert await ground.inbox.record_location(claim, "file:///w/9", "u9") is not None
    await ground.settle(claim, Retry(ground.after(900), "no permission"))
    listed = (await got(operator, TABLES))["tables"]
    assert {one["name"]: one["file"] for one in listed} == {
        "gone": "dropped",
        "foreign": "none",
        "refused": "none",
        "live": "live",
    }


async def test_pages_follow_each_other(operator: httpx.AsyncClient, office: Office) -> None:
    await office.ground.hint(*(table(f"t{number}") for number in range(5)))
    found, after = [], None
    for _ in range(3):
        page = await got(operator, TABLES, limit=2, sort="lag", **({"after": after} if after else {}))
        found += [one["name"] for one in page["tables"]]
        after = page["next"]
    assert (found, after) == ([f"t{number}" for number in range(5)], None)


@pytest.mark.parametrize(
    ("search", "status", "said"),
    [
        ({"catalog": "prot"}, 404, "did you mean prod?"),
        ({"state": "late"}, 422, "state"),
        ({"after": "5"}, 422, "after: expected `next` of the page before"),
        ({"after": f'["a",{2**64}]', "sort": "lag"}, 422, "after: expected `next` of the page before"),
        ({"after": '["\\u0000",1]'}, 422, "after: expected `next` of the page before"),
        ({"table": "sales..orders"}, 422, "found an empty part"),
        ({"table": "%ff.orders"}, 422, "expected levels and a name"),
        ({"namespace": ""}, 422, "found an empty part"),
        ({"table": "**a" * 6}, 422, "at most 5 wildcards"),
        ({"lag": "1"}, 422, "lag"),
        ({"limit": 1001}, 422, "limit"),
    ],
)
async def test_a_wrong_search_is_answered_with_what_was_expected(
    operator: httpx.AsyncClient, search: dict[str, Any], status: int, said: str
) -> None:
    reply = await operator.get(TABLES, params=search)
    assert (reply.status_code, said in reply.text) == (status, True)


@pytest.mark.parametrize("glob", ["sales.größ*", "sales.gr%C3%B6*", "**<b>", "sales.größe <b>"])
async def test_glob_may_have_the_characters_of_names(operator: httpx.AsyncClient, office: Office, glob: str) -> None:
    await office.ground.hint(ORDERS, table("größe <b>"))
    assert await names(operator, table=glob) == ["prod:sales.größe <b>"]


async def test_check_of_a_table_that_was_given_up_is_due_now_and_audited(
    operator: httpx.AsyncClient, office: Office
) -> None:
    ground = office.ground
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.PERMANENT, "why"))
    reply = await operator.post(f"{TABLES}/prod/sales/orders:check", headers={"From": "ann"})
    assert (reply.status_code, reply.json()["table"]) == (202, "sales.orders")
    claim = await ground.claim()
    assert (claim.subject, claim.pending.force) == (ORDERS, True)
    (entry,) = await office.inbox.audit_log(None, 9)
    assert (entry.action, entry.target, entry.actor, entry.count) == ("check", "prod:sales.orders", "ann (main)", 1)


async def test_check_does_not_wait_for_the_next_retry(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.settled(ORDERS, Retry(ground.after(900), "the store hangs"))
    ground.clock.turn(30)
    await operator.post(f"{TABLES}/prod/sales/orders:check")
    (shown,) = (await got(operator, TABLES))["tables"]
    assert shown["waiting_since"] == "2026-01-01T00:00:00Z"
    assert (await ground.claim()).subject == ORDERS


async def test_check_of_a_leased_table_leaves_the_lease_and_is_followed_by_another(
    operator: httpx.AsyncClient, office: Office
) -> None:
    ground = office.ground
    await ground.hint(ORDERS)
    claim = await ground.claim()
    await operator.post(f"{TABLES}/prod/sales/orders:check")
    assert await ground.claims() == []
    await ground.settle(claim, ground.done())
    assert (await ground.claim()).pending.force


@pytest.mark.parametrize("path", ["prod/sales/orderz", "prot/sales/orders", "prod/sales/orders%3Acheck"])
async def test_check_of_an_unknown_table_is_refused(operator: httpx.AsyncClient, office: Office, path: str) -> None:
    await office.ground.settled(ORDERS, DeadLettered(DeadLetterReason.PERMANENT, "why"))
    reply = await operator.post(f"{TABLES}/{path}:check")
    assert (reply.status_code, "did you mean" in reply.text) == (404, True)
    assert await office.inbox.audit_log(None, 9) == []
    assert await office.ground.claims() == []


async def test_a_wait_has_a_cause(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground

    async def cause() -> str:
        (one,) = (await got(operator, TABLES, table="sales.orders"))["tables"]
        return str(one["cause"])

    await ground.hint(ORDERS)
    assert await cause() == "waits for a free worker"
    claim = await ground.claim()
    ground.clock.turn(7)
    assert await cause() == "attempt 1 has run for 7 s"
    await ground.settle(claim, Retry(ground.after(9), "the store hangs"))
    assert await cause() == "the store hangs"
    office.breakers.append(CircuitBreakerState(ErrorScope.CATALOG, "prod", ground.now, 0, ground.now, "silent"))
    ground.clock.turn(9)
    assert await cause() == "the catalog prod has failed for 9 s: silent"
    await ground.settle(await ground.claim(), DeadLettered(DeadLetterReason.PERMANENT, "x: expected a, found b; c"))
    assert await cause() == "dead letter 1 (permanent): expected a, found b"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("prod/sales/order", "did you mean sales.orders?"),
        ("prod/sale/orders", "did you mean sales.orders?"),
        ("prod/nothing/alike", "no event has named it yet"),
    ],
)
async def test_an_unknown_table_is_answered_with_similar_names(
    operator: httpx.AsyncClient, office: Office, path: str, said: str
) -> None:
    await office.ground.hint(ORDERS, FAR)
    reply = await operator.get(f"{TABLES}/{path}")
    assert reply.status_code == 404
    assert reply.json()["detail"].endswith(said)


async def test_the_story_of_a_table_has_its_wait_and_its_last_attempts(
    operator: httpx.AsyncClient, office: Office
) -> None:
    ground = office.ground
    await ground.inbox.put([])
    await ground.hint(ORDERS)
    for attempt in range(2):
        claim = await ground.claim()
        ground.clock.turn(30 - attempt)
        await ground.settle(claim, Retry(ground.after(5), f"why {attempt}"))
        ground.clock.turn(5)
    story = await got(operator, f"{TABLES}/prod/sales/orders")
    assert (story["late"], story["waiting_since"], story["cause"]) == (True, "2026-01-01T00:00:00Z", "why 1")
    assert [(one["outcome"], one["why"], one["attempt"]) for one in story["outcomes"]] == [
        ("retry", "why 1", 2),
        ("retry", "why 0", 1),
    ]
    assert (story["outcomes"][1]["claimed_at"], story["outcomes"][1]["ended_at"]) == (
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:30Z",
    )
    assert pointer(1) not in story["cause"]


@pytest.mark.parametrize(
    ("answer", "agrees"),
    [
        (CatalogNow(CatalogNowState.FOUND, "s3a://lake/orders/metadata/00001-u1.metadata.json", "u1", T0), True),
        (CatalogNow(CatalogNowState.FOUND, "file:///w/sales/orders/metadata/2.json", "u1", T0), False),
        (CatalogNow(CatalogNowState.NOT_FOUND, answered_at=T0), False),
        (CatalogNow(CatalogNowState.UNANSWERED, error="no answer within 3 s"), None),
        (CatalogNow(CatalogNowState.EVENT_ONLY, error="an event-only catalog cannot be queried"), None),
    ],
)
async def test_the_catalog_is_asked_on_request(
    operator: httpx.AsyncClient, office: Office, answer: CatalogNow, *, agrees: bool | None
) -> None:
    await office.ground.published(ORDERS)
    office.answer = answer
    path = f"{TABLES}/prod/sales/orders"
    assert (await got(operator, path))["catalog_now"] is None
    found = await got(operator, path, ask_catalog="true")
    now = found["catalog_now"]
    assert (now["state"], now["agrees"], now["error"]) == (answer.state.value, agrees, answer.error or None)
    assert now["metadata_location"] == answer.metadata_location
