"""The admin API: commands on catalogs and their limits, replays of many requests, and why a table has no file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import httpx
import pytest
from msgspec import structs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sfn.admin.table_schemas import UnpublishedReason
from sfn.domain.events import Intent, IntentOutcome, Notification, UndecodableRequest
from sfn.domain.identifiers import CatalogName, Table, TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    PublishCache,
    PublishResult,
    Rescheduled,
    TableState,
)
from sfn.http.app import ADMIN_BODY_LIMITS, BodyLimitMiddleware, build_app
from sfn.inbox.model import DeadLetterFilter
from sfn.limits import BodyLimits
from sfn.publish.policy import TableFilter
from tests.promises.inboxes import AT, pointer, table
from tests.support.listener import (
    CHUNKED,
    Office,
    Service,
    answer,
    assert_problem,
    chunk,
    got,
    listening,
    operating,
    posted,
    request,
)

# Commands.


ORDERS = table("orders")


async def test_catalogs_are_swept_when_an_operator_asks(operator: httpx.AsyncClient, office: Office) -> None:
    answer = await posted(operator, "/admin/v1/reconcile")
    assert answer["catalogs"] == ["prod", "dev.eu"]
    claims = await office.ground.claims()
    assert {(claim.subject, claim.pending.force) for claim in claims} == {
        (CatalogName("prod"), True),
        (CatalogName("dev.eu"), True),
    }
    assert answer["starts_at"] == dict.fromkeys(("prod", "dev.eu"), answer["requested_at"])
    again = await posted(operator, "/admin/v1/reconcile", {"catalogs": ["prod", "prod"]})
    assert (again["catalogs"], again["starts_at"]) == (["prod"], {})
    (newest, first) = (await got(operator, "/admin/v1/audit"))["entries"]
    assert (newest["action"], newest["target"], newest["count"]) == ("reconcile", "prod", 1)
    assert (first["target"], first["count"]) == ("prod, dev.eu", 2)


@pytest.mark.parametrize(("catalog", "status"), [("unknown", 404), ("mute", 422)])
async def test_what_can_not_be_swept_is_refused(operator: httpx.AsyncClient, catalog: str, status: int) -> None:
    reply = await operator.post("/admin/v1/reconcile", json={"catalogs": [catalog]})
    assert reply.status_code == status


async def test_a_catalog_retires_and_comes_back(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.published(ORDERS)
    assert await posted(operator, "/admin/v1/catalogs/prod:retire") == {"tables": 1}
    assert office.process.retired_catalogs.names == {"prod"}
    assert (await got(operator, "/admin/v1/status"))["catalogs"][0]["retired"]
    claim = await ground.claim()
    assert (claim.subject, claim.pending.force) == (ORDERS, True)
    await ground.settle(claim, ground.done())
    assert await posted(operator, "/admin/v1/catalogs/prod:retire", {"undo": True}) == {"tables": 1}
    assert office.process.retired_catalogs.names == frozenset()
    assert {claim.subject for claim in await ground.claims()} == {ORDERS, CatalogName("prod")}


async def test_files_are_adopted_by_all_tables_of_a_catalog(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.FOREIGN_CATALOG, "why"))
    await ground.published(table("stock"))
    await ground.published(table("other", "dev.eu"))
    assert await posted(operator, "/admin/v1/catalogs/prod:adopt", {"from": "c0"}) == {"tables": 2}
    claims = await ground.claims()
    assert {claim.subject for claim in claims} == {ORDERS, table("stock")}
    assert {(claim.pending.adopt_catalog_id, claim.pending.force) for claim in claims} == {("c0", True)}


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


async def carrying(office: Office, name: str, catalog_id: str | None, *, foreign: bool = False) -> None:
    """A table whose file carries a `catalog_id`: a live one of ours, or one that keeps ours from its place."""
    if foreign:
        findings = PublishResult(TableState(has_settled=True, foreign_catalog_id=catalog_id))
        await office.ground.settled(table(name), DeadLettered(DeadLetterReason.FOREIGN_CATALOG, "why", findings))
        return
    done = office.ground.done(f"s3://lake/{name}", name)
    live = done.result.table_state.live
    assert live is not None
    story = TableState(live=structs.replace(live, catalog_id=catalog_id), has_settled=True)
    await office.ground.settled(table(name), Done(done.due_at, PublishResult(story)))


async def foreign_id(operator: httpx.AsyncClient) -> str | None:
    """Whose files are to be adopted, as the status says."""
    found: str | None = (await got(operator, "/admin/v1/status"))["catalogs"][0]["foreign_catalog_id"]
    return found


async def test_a_catalog_with_files_of_another_says_so_until_all_are_adopted(
    operator: httpx.AsyncClient, office: Office
) -> None:
    await carrying(office, "orders", "c0")
    await carrying(office, "stock", "c0")
    assert await foreign_id(operator) == "c0"
    await carrying(office, "orders", "c0", foreign=True)
    await carrying(office, "stock", "c0", foreign=True)
    assert await foreign_id(operator) == "c0"
    await posted(operator, "/admin/v1/catalogs/prod:adopt", {"from": "c0", "tables": ["sales.orders"]})
    assert await foreign_id(operator) == "c0"
    await posted(operator, "/admin/v1/catalogs/prod:adopt", {"from": "c0", "tables": ["sales.stock"]})
    assert await foreign_id(operator) is None
    assert await office.inbox.owner_id("prod") == "c1"


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("tables", [None, ["sales.stock", "sales.orders"]])
async def test_an_id_that_no_file_carries_is_refused_where_another_is_known(
    operator: httpx.AsyncClient, office: Office, tables: list[str] | None, *, foreign: bool
) -> None:
    await carrying(office, "orders", "c0", foreign=foreign)
    await carrying(office, "stock", "c1")
    reply = await operator.post("/admin/v1/catalogs/prod:adopt", json={"from": "typo", "tables": tables})
    assert reply.status_code == 409
    assert reply.json()["detail"] == "expected c0 (the catalog_id in its files), found typo"
    assert await office.ground.claims() == []
    assert (await got(operator, "/admin/v1/audit"))["entries"] == []
    forced = {"from": "typo", "tables": tables, "force": True}
    assert await posted(operator, "/admin/v1/catalogs/prod:adopt", forced) == {"tables": 2}


async def test_a_file_that_was_noted_by_its_catalog_alone_is_known_as_well(
    operator: httpx.AsyncClient, office: Office
) -> None:
    await carrying(office, "orders", None)
    await office.inbox.record_owner("prod", "c0")
    reply = await operator.post("/admin/v1/catalogs/prod:adopt", json={"from": "typo"})
    assert (reply.status_code, "expected c0 " in reply.json()["detail"]) == (409, True)


async def test_whole_catalog_adopts_no_file_with_another_id(operator: httpx.AsyncClient, office: Office) -> None:
    await carrying(office, "orders", "c9", foreign=True)
    await carrying(office, "stock", "c0")
    await carrying(office, "returns", "c1")
    await office.ground.settled(table("lost"), Done(office.ground.after(3600)))
    assert await posted(operator, "/admin/v1/catalogs/prod:adopt", {"from": "c9"}) == {"tables": 2}
    assert {claim.subject for claim in await office.ground.claims()} == {ORDERS, table("lost")}


async def test_a_table_and_its_letter_say_whose_file_is_in_the_way(operator: httpx.AsyncClient, office: Office) -> None:
    await carrying(office, "orders", "c9", foreign=True)
    assert (await got(operator, "/admin/v1/tables/prod/sales/orders"))["foreign_catalog_id"] == "c9"
    assert (await got(operator, "/admin/v1/dead-letters/1"))["foreign_catalog_id"] == "c9"
    await carrying(office, "orders", "c1")
    assert (await got(operator, "/admin/v1/tables/prod/sales/orders"))["foreign_catalog_id"] is None


async def test_adoption_of_our_own_files_changes_nothing(operator: httpx.AsyncClient, office: Office) -> None:
    await carrying(office, "orders", "c1")
    assert await posted(operator, "/admin/v1/catalogs/prod:adopt", {"from": "typo"}) == {"tables": 0}
    assert await office.ground.claims() == []


@pytest.mark.parametrize("content", [{}, {"from": ""}, {"from": "c0", "tables": ["a..b"]}, {"from": "c0", "all": 1}])
async def test_an_adoption_that_is_not_clear_is_422(operator: httpx.AsyncClient, content: object) -> None:
    assert (await operator.post("/admin/v1/catalogs/prod:adopt", json=content)).status_code == 422


@pytest.mark.parametrize("order", ["drop-limits/none:release", "catalogs/none:retire"])
async def test_an_order_about_an_unknown_catalog_is_404(operator: httpx.AsyncClient, order: str) -> None:
    reply = await operator.post(f"/admin/v1/{order}")
    assert reply.status_code == 404
    assert "prod" in reply.json()["detail"]


# Limits and authentication.


REPLAY = "/admin/v1/dead-letters:replay"
OPERATOR = "an-operators-token"


def served() -> Any:  # noqa: ANN401 - an application
    service = Service()
    return build_app(
        service.ingest(), service.readiness, version="1", on_fatal=service.broken.append, routers=[Office().router()]
    )


async def test_a_body_that_says_how_large_it_is_is_not_read() -> None:
    async with listening(served()) as connect:
        head = request(f"Content-Length: {ADMIN_BODY_LIMITS.size + 1}", path=REPLAY, token=OPERATOR)
        assert_problem(await answer(connect, head), 413)


async def test_a_body_that_grows_is_read_no_further() -> None:
    async with listening(served()) as connect, connect() as wire:
        await wire.send(request(CHUNKED, path=REPLAY, token=OPERATOR))
        for _ in range(ADMIN_BODY_LIMITS.size // 65_536 + 1):
            await wire.send(chunk(b" " * 65_536))
        assert_problem(await wire.reply(), 413)


async def test_an_order_of_an_allowed_size_arrives_whole() -> None:
    async with listening(served()) as connect:
        body = b" " * (ADMIN_BODY_LIMITS.size - 20) + b'{"ids": [1]}'
        assert (
            await answer(connect, request("Content-Type: application/json", path=REPLAY, body=body, token=OPERATOR))
        ).status == 200


async def test_a_body_that_never_ends_is_given_up() -> None:
    async def reads(asked: Request) -> Response:
        return Response(await asked.body())

    patient = Starlette(routes=[Route(REPLAY, reads, methods=["POST"])])
    async with (
        listening(BodyLimitMiddleware(patient, BodyLimits(size=100, deadline=0.2))) as connect,
        connect() as wire,
    ):
        await wire.send(request("Content-Length: 50", path=REPLAY, token=None), b"{")
        reply = await wire.reply()
        assert (reply.status, reply.headers["connection"]) == (408, "close")


@pytest.mark.parametrize("size", [50, ADMIN_BODY_LIMITS.size + 1])
async def test_the_body_of_who_is_no_operator_is_not_read(size: int) -> None:
    async with listening(served()) as connect, connect() as wire:
        await wire.send(request(f"Content-Length: {size}", path=REPLAY, token=None), b"{")
        assert_problem(await wire.reply(), 401)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_has_no_body_is_answered_without_one(method: str) -> None:
    async with listening(served()) as connect, connect() as wire:
        await wire.send(request("Content-Length: 5", path="/livez", method=method, token=None))
        assert (await wire.reply(headless=method == "HEAD")).status == 200


EVENTS = [Notification(table(f"t{number}"), "etl") for number in range(750)]
ODD = UndecodableRequest("etl", "/v1/events", "application/json", b"{\xff", 2, "expected JSON")


@pytest.fixture(name="replaying_office")
async def fixture_replaying_office() -> Office:
    replaying_office = Office(understood=EVENTS)
    await replaying_office.inbox.put([ODD] * 5)
    return replaying_office


@pytest.fixture(name="replaying_operator")
async def fixture_replaying_operator(replaying_office: Office) -> AsyncIterator[httpx.AsyncClient]:
    async with operating(replaying_office) as client:
        yield client


async def audited(replaying_operator: httpx.AsyncClient) -> list[int]:
    """How many letters each order changed, in their order."""
    return [entry["count"] for entry in (await got(replaying_operator, "/admin/v1/audit"))["entries"]][::-1]


async def batches(replaying_operator: httpx.AsyncClient) -> list[tuple[int, int | None]]:
    """What each batch of all letters says: how many, and where the next one begins."""
    said: list[tuple[int, int | None]] = []
    while not said or said[-1][1] is not None:
        answer = await posted(replaying_operator, REPLAY, {"filter": {}, "after": said[-1][1] if said else 0})
        said.append((answer["replayed"], answer["next"]))
    return said


async def test_a_batch_ends_once_its_requests_say_enough(replaying_operator: httpx.AsyncClient) -> None:
    assert await batches(replaying_operator) == [(2, 2), (2, 4), (1, None)]
    assert await audited(replaying_operator) == [2, 2, 1]


async def test_what_is_not_understood_counts_as_nothing(
    replaying_operator: httpx.AsyncClient, replaying_office: Office
) -> None:
    replaying_office.understood = None
    assert await batches(replaying_operator) == [(0, None)]


async def test_named_letters_are_dealt_with_part_by_part(replaying_operator: httpx.AsyncClient) -> None:
    assert await posted(replaying_operator, REPLAY, {"ids": [1, 2, 3, 4, 5]}) == {
        "replayed": 5,
        "failed": [],
        "skipped": [],
        "next": None,
    }
    assert await audited(replaying_operator) == [2, 2, 1]


async def test_a_limit_that_ends_a_batch_says_where_the_next_begins(replaying_operator: httpx.AsyncClient) -> None:
    answer = await posted(replaying_operator, REPLAY, {"filter": {}, "limit": 1})
    assert (answer["replayed"], answer["next"]) == (1, 1)


SECRET = table("secret")
GONE = TableState(has_settled=True)
THERE = PublishCache(Table("u1", AT, pointer(1)))
LEFT_ALONE = PublishCache(Table("u1", AT, pointer(1), skip_reason="switched off"))


@pytest.fixture(name="selective_office")
def fixture_selective_office() -> Office:
    return Office(interest=TableFilter(exclude=("sales.secret",)))


@pytest.fixture(name="selective_operator")
async def fixture_selective_operator(selective_office: Office) -> AsyncIterator[httpx.AsyncClient]:
    async with operating(selective_office) as client:
        yield client


def spelled(at: datetime) -> str:
    """A moment in JSON."""
    return at.isoformat().replace("+00:00", "Z")


async def why(selective_operator: httpx.AsyncClient, name: TableIdentifier = ORDERS) -> str | None:
    found: str | None = (await got(selective_operator, f"/admin/v1/tables/prod/sales/{name.name}"))["unpublished"]
    return found


async def looked_at_again(selective_office: Office, name: TableIdentifier = ORDERS) -> LeasedJob:
    await selective_office.ground.published(name)
    await selective_office.inbox.put([Notification(name, drop=True)])
    return await selective_office.ground.claim()


async def test_table_with_a_file_is_published(selective_operator: httpx.AsyncClient, selective_office: Office) -> None:
    await selective_office.ground.hint(ORDERS)
    assert await why(selective_operator) is None
    await selective_office.ground.settle(await selective_office.ground.claim(), selective_office.ground.done())
    assert await why(selective_operator) is None
    assert (await got(selective_operator, "/admin/v1/status"))["catalogs"][0]["live_tables"] == 1


async def test_a_table_that_was_renamed(selective_operator: httpx.AsyncClient, selective_office: Office) -> None:
    story = TableState(has_settled=True, renamed_to=table("sold"))
    await selective_office.ground.settle(
        await looked_at_again(selective_office), Done(selective_office.ground.after(60), PublishResult(story, THERE))
    )
    assert (await got(selective_operator, "/admin/v1/tables/prod/sales/orders"))["renamed_to"] == "sales.sold"


async def test_a_version_hint_that_is_not_ours(selective_operator: httpx.AsyncClient, selective_office: Office) -> None:
    await selective_office.ground.settled(
        ORDERS, Done(selective_office.ground.after(60), PublishResult(TableState(foreign_version_hint="7")))
    )
    assert (await got(selective_operator, "/admin/v1/tables/prod/sales/orders"))["foreign_version_hint"] == "7"


async def test_a_table_with_commits_that_nobody_knows_the_outcome_of(
    selective_operator: httpx.AsyncClient, selective_office: Office
) -> None:
    ground = selective_office.ground
    await ground.settled(ORDERS, ground.done())
    opened = ground.now
    await ground.inbox.put([Intent("a", (ORDERS,)), Intent("b", (ORDERS, table("sold")))])
    story = await got(selective_operator, "/admin/v1/tables/prod/sales/orders")
    assert (story["open_intents"], story["next_check_at"]) == (2, spelled(ground.after(30)))
    (catalog, *others) = (await got(selective_operator, "/admin/v1/status"))["catalogs"]
    assert (catalog["open_intents"], catalog["oldest_intent_at"]) == (2, spelled(opened))
    assert {(one["open_intents"], one["oldest_intent_at"]) for one in others} == {(0, None)}
    await ground.inbox.put([IntentOutcome("a", is_known=True), IntentOutcome("b", is_known=True)])
    story = await got(selective_operator, "/admin/v1/tables/prod/sales/orders")
    assert (story["open_intents"], story["next_check_at"]) == (0, None)


async def test_a_table_that_was_dropped(selective_operator: httpx.AsyncClient, selective_office: Office) -> None:
    ground = selective_office.ground
    await ground.settle(await looked_at_again(selective_office), Done(ground.after(60), PublishResult(GONE, THERE)))
    assert await why(selective_operator) == UnpublishedReason.DROPPED
    assert (await got(selective_operator, "/admin/v1/status"))["catalogs"][0]["live_tables"] == 0


async def test_a_table_that_was_never_there(selective_operator: httpx.AsyncClient, selective_office: Office) -> None:
    await selective_office.ground.settled(
        ORDERS, Rescheduled(selective_office.ground.after(60), "neither", result=PublishResult(TableState(misses=1)))
    )
    assert await why(selective_operator) == UnpublishedReason.MISSING


async def test_a_table_that_wants_no_files(selective_operator: httpx.AsyncClient, selective_office: Office) -> None:
    ground = selective_office.ground
    await ground.settle(
        await looked_at_again(selective_office), Done(ground.after(60), PublishResult(GONE, LEFT_ALONE))
    )
    assert await why(selective_operator) == UnpublishedReason.LEFT_ALONE


async def test_a_table_that_never_wanted_files(selective_operator: httpx.AsyncClient, selective_office: Office) -> None:
    nothing = PublishResult(TableState(misses=1), LEFT_ALONE)
    await selective_office.ground.settled(
        ORDERS, Rescheduled(selective_office.ground.after(60), "neither", result=nothing)
    )
    assert await why(selective_operator) == UnpublishedReason.LEFT_ALONE


async def test_a_table_that_the_settings_leave_out(
    selective_operator: httpx.AsyncClient, selective_office: Office
) -> None:
    unknown = await selective_operator.get("/admin/v1/tables/prod/sales/secret")
    assert (unknown.status_code, "include or exclude leaves it out" in unknown.json()["detail"]) == (404, True)
    ground = selective_office.ground
    await ground.settle(
        await looked_at_again(selective_office, SECRET), Done(ground.after(60), PublishResult(GONE, THERE))
    )
    assert await why(selective_operator, SECRET) == UnpublishedReason.EXCLUDED


async def test_the_open_letter_is_shown_however_many_there_were_before(
    selective_operator: httpx.AsyncClient, selective_office: Office
) -> None:
    for _ in range(1_002):
        await selective_office.inbox.discard(
            [one.id for one in await selective_office.inbox.list_after(DeadLetterFilter(), 0, 9)],
            selective_office.ground.order(),
        )
        await selective_office.ground.hint(ORDERS)
        selective_office.clock.turn(300)
        await selective_office.ground.settle(
            await selective_office.ground.claim(), DeadLettered(DeadLetterReason.PERMANENT, "why")
        )
    shown = (await got(selective_operator, "/admin/v1/tables/prod/sales/orders"))["dead_letters"]
    assert [letter["id"] for letter in shown] == list(range(1_002, 982, -1))
    assert shown[0]["status"] == "open"


async def test_table_of_a_catalog_that_retired(selective_operator: httpx.AsyncClient, selective_office: Office) -> None:
    ground = selective_office.ground
    await ground.settle(await looked_at_again(selective_office), Done(ground.after(60), PublishResult(GONE, THERE)))
    selective_office.process.retired_catalogs.names = frozenset({"prod"})
    assert await why(selective_operator) == UnpublishedReason.RETIRED
