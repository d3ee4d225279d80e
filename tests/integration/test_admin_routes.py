"""The admin API: status, dead letters, and wrong requests."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from structlog.testing import capture_logs

from sfn.admin.status import StatusRoutes
from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Retry
from sfn.errors import ErrorScope
from sfn.publish.dry_run import DifferenceKind, TableDifference
from sfn.worker.capacity import CircuitBreakerState
from sfn.worker.sweep import SweepPhase, SweepReport
from tests.promises.inboxes import AT, pointer, table
from tests.support.listener import Office, Service, client, got, posted

# Status and dead letters.


ORDERS = table("orders")
LETTERS = "/admin/v1/dead-letters"
ODD = UndecodableRequest("etl", "/v1/events", "application/json", b"{\xff", 2, "expected JSON")


async def test_the_status_of_a_quiet_service(operator: httpx.AsyncClient) -> None:
    status = await got(operator, "/admin/v1/status")
    assert (status["version"], status["ready"], status["not_ready_reasons"]) == ("1.2.3", True, [])
    assert (status["breakers"], status["dead_letters"]) == ([], {})
    (prod, dev, mute) = status["catalogs"]
    assert (prod["name"], prod["type"], prod["catalog_id"]) == ("prod", "rest", "c1")
    assert (dev["name"], dev["catalog_id"], mute["type"]) == ("dev.eu", None, "events")
    assert prod["tables"] == {"due": 0, "scheduled": 0, "retrying": 0, "leased": 0, "dead": 0, "held": 0}
    assert prod["drop_limit"] == {"limit_reached": False, "on_hold": 0, "held_since": None, "steps": 0, "limit": 1}
    assert (prod["oldest_due_at"], prod["sweep"], prod["retired"]) == (None, None, False)


async def test_a_status_does_not_count_live_tables_that_were_counted_before(office: Office) -> None:
    async def counted() -> dict[str, int]:
        return {"prod": 4}

    status = await StatusRoutes(replace(office.context(), cached_live=counted)).status()
    prod, dev, _ = status.catalogs
    assert (prod.live_tables, prod.drop_limit.limit, dev.live_tables) == (4, 1, 0)


async def test_the_status_of_a_service_in_trouble(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    office.reasons = ("draining",)
    office.breakers.append(
        CircuitBreakerState(ErrorScope.STORE, "file:///lake", ground.after(5), 0, ground.now, "full")
    )
    office.breakers.append(CircuitBreakerState(ErrorScope.CATALOG, "prod", ground.now, 2, ground.now, "silent"))
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.HELD_DROP, "why"))
    await ground.settled(table("stock", "dev.eu"), DeadLettered(DeadLetterReason.EXHAUSTED, "why"))
    await ground.inbox.put([ODD])
    await ground.hint(table("late"))
    ground.clock.turn(60)
    status = await got(operator, "/admin/v1/status")
    assert (status["ready"], status["not_ready_reasons"]) == (False, ["draining"])
    assert status["dead_letters"] == {"held-drop": 1, "exhausted": 1, "undecodable": 1}
    assert [(one["scope"], one["name"], one["state"], one["error"]) for one in status["breakers"]] == [
        ("store", "file:///lake", "open", "full"),
        ("catalog", "prod", "half-open", "silent"),
    ]
    assert {one["failing_since"] for one in status["breakers"]} == {"2026-01-01T00:00:00Z"}
    (prod, *_) = status["catalogs"]
    assert (prod["tables"]["held"], prod["tables"]["due"], prod["drop_limit"]["on_hold"]) == (1, 1, 1)
    assert prod["oldest_due_at"] == (ground.now - timedelta(seconds=60)).isoformat().replace("+00:00", "Z")


async def test_a_sweep_tells_how_far_it_is(operator: httpx.AsyncClient, office: Office) -> None:
    report = office.sweeps["prod"] = SweepReport(office.clock.now(), known_tables=500, tables=120)
    report.add_difference(TableDifference(ORDERS, DifferenceKind.AHEAD, "it went back"), is_held=True)
    report.add_failed(table("stock"), "it hangs")
    sweep = (await got(operator, "/admin/v1/status"))["catalogs"][0]["sweep"]
    assert (sweep["state"], sweep["tables"], sweep["known_tables"], sweep["ended_at"]) == ("running", 120, 500, None)
    differing = {"table": "sales.orders", "kind": "ahead", "detail": "it went back", "held": True}
    assert (sweep["differences"], sweep["differences_total"], sweep["thorough"]) == ([differing], 1, False)
    assert (sweep["failed_tables"], sweep["failed_reason"]) == (["sales.stock"], "it hangs")
    report.previous = SweepReport(office.clock.now(), unlisted_namespaces=["hidden"])
    sweep = (await got(operator, "/admin/v1/status"))["catalogs"][0]["sweep"]
    assert (sweep["unlisted_namespaces"], sweep["previous"]["unlisted_namespaces"]) == ([], ["hidden"])
    report.finish(SweepPhase.FAILED, office.clock.turn(9), "the catalog went away")
    sweep = (await got(operator, "/admin/v1/status"))["catalogs"][0]["sweep"]
    assert (sweep["state"], sweep["error"], sweep["previous"]) == ("failed", "the catalog went away", None)


async def test_one_tables_whole_story(operator: httpx.AsyncClient, office: Office) -> None:
    ground = office.ground
    await ground.published(ORDERS)
    await ground.inbox.put([Notification(ORDERS, "etl", "e1", min_metadata_location=pointer(7), body=b"{}\n\xff")])
    await ground.settle(await ground.claim(), Retry(ground.after(9), "the store hangs"))
    story = await got(operator, "/admin/v1/tables/prod/sales/orders")
    assert (story["catalog"], story["namespace"], story["name"], story["table"]) == (
        "prod",
        ["sales"],
        "orders",
        "sales.orders",
    )
    assert (story["state"], story["attempt"], story["locations"]) == ("queued", 1, [AT])
    assert story["published"]["location"] == AT
    assert story["pending"] == {
        "min_metadata_location": pointer(7),
        "drop": False,
        "purge": False,
        "renamed_to": None,
        "has_unprocessed": True,
    }
    assert (story["last_result"]["outcome"], story["last_result"]["why"]) == ("retry", "the store hangs")
    assert (story["last_event"]["sender"], story["last_event"]["event_id"]) == ("etl", "e1")
    assert story["last_event"]["body"] == "{}\n\ufffd"
    assert story["dead_letters"] == []


async def test_a_story_names_the_latest_dead_letter_first(operator: httpx.AsyncClient, office: Office) -> None:
    for reason in (DeadLetterReason.PERMANENT, DeadLetterReason.LOCATION_REFUSED):
        await office.ground.hint(ORDERS)
        office.clock.turn(300)
        await office.ground.settle(await office.ground.claim(), DeadLettered(reason, "why"))
        (letter,) = (await got(operator, LETTERS, table="sales.orders", catalog="prod"))["dead_letters"]
        await posted(operator, f"{LETTERS}:discard", {"ids": [letter["id"]]})
    story = await got(operator, "/admin/v1/tables/prod/sales/orders")
    assert [letter["reason"] for letter in story["dead_letters"]] == ["location-refused", "permanent"]


async def test_levels_of_a_namespace_are_separated_as_in_icebergs_rest_catalog(
    operator: httpx.AsyncClient, office: Office
) -> None:
    await office.ground.hint(TableIdentifier("prod", ("a.b", "c"), "t"), TableIdentifier("prod", (), "top"))
    assert (await got(operator, "/admin/v1/tables/prod/a.b%1Fc/t"))["namespace"] == ["a.b", "c"]
    assert (await got(operator, "/admin/v1/tables/prod/%1F/top"))["namespace"] == []


@pytest.mark.parametrize("path", ["tables/prod/sales/orders", "tables/none/sales/orders", "dead-letters/7"])
async def test_what_there_is_not_is_404(operator: httpx.AsyncClient, path: str) -> None:
    reply = await operator.get(f"/admin/v1/{path}")
    assert (reply.status_code, reply.headers["content-type"]) == (404, "application/problem+json")


async def test_dead_letters_come_page_by_page_and_filtered(operator: httpx.AsyncClient, office: Office) -> None:
    for name in ("a", "b", "c"):
        await office.ground.settled(table(name), DeadLettered(DeadLetterReason.PERMANENT, "why"))
    office.clock.turn(60)
    await office.ground.settled(table("d"), DeadLettered(DeadLetterReason.EXHAUSTED, "why"))
    first = await got(operator, LETTERS, limit=2)
    assert [letter["table"] for letter in first["dead_letters"]] == ["sales.a", "sales.b"]
    rest = await got(operator, LETTERS, after=first["next"], limit=9)
    assert ([letter["table"] for letter in rest["dead_letters"]], rest["next"]) == (["sales.c", "sales.d"], None)

    async def found(**params: str | int) -> list[str]:
        return [letter["table"] for letter in (await got(operator, LETTERS, **params))["dead_letters"]]

    now = office.clock.now().isoformat()
    assert await found(reason="exhausted") == ["sales.d"]
    assert await found(table="sales.b", catalog="prod") == ["sales.b"]
    assert await found(since=now) == ["sales.d"]
    assert await found(before=now, status="all") == ["sales.a", "sales.b", "sales.c"]
    assert await found(status="replayed") == []
    assert await found(catalog="dev.eu") == []


@pytest.mark.parametrize(
    "params",
    [
        {"reason": "bad"},
        {"status": "shut"},
        {"limit": "0"},
        {"limit": "1001"},
        {"tabel": "sales.a"},
        {"table": "sales.a"},
        {"table": "sales..a", "catalog": "prod"},
        {"before": "2026-01-01T00:00:00"},
        {"after": "99999999999999999999"},
    ],
)
async def test_what_can_not_be_looked_for_is_422(operator: httpx.AsyncClient, params: dict[str, str]) -> None:
    assert (await operator.get(LETTERS, params=params)).status_code == 422


async def test_a_dot_in_a_name_is_told_from_one_between_names(operator: httpx.AsyncClient, office: Office) -> None:
    named = {"sales.eu.a": (("sales", "eu"), "a"), "sales.eu%2Ea": (("sales",), "eu.a"), "100%25.a": (("100%",), "a")}
    for name in named.values():
        await office.ground.settled(TableIdentifier("prod", *name), DeadLettered(DeadLetterReason.PERMANENT, "why"))
    for told, name in named.items():
        [letter] = (await got(operator, LETTERS, table=told, catalog="prod"))["dead_letters"]
        assert (tuple(letter["namespace"]), letter["name"]) == name


async def test_a_letter_about_a_request_shows_it(operator: httpx.AsyncClient, office: Office) -> None:
    await office.inbox.put([ODD])
    ((letter,),) = ((await got(operator, LETTERS, sender="etl"))["dead_letters"],)
    shown = await got(operator, f"{LETTERS}/{letter['id']}")
    assert (shown["reason"], shown["sender"], shown["table"]) == ("undecodable", "etl", None)
    assert shown["request"] == {"path": "/v1/events", "content_type": "application/json", "size": 2, "body": "{\ufffd"}


async def test_a_replay_is_audited_with_who_said_it(operator: httpx.AsyncClient, office: Office) -> None:
    await office.ground.settled(ORDERS, DeadLettered(DeadLetterReason.PERMANENT, "why"))
    (letter,) = (await got(operator, LETTERS))["dead_letters"]
    operator.headers["From"] = "ann@example\x7f.org"
    answer = await posted(operator, f"{LETTERS}:replay", {"ids": [letter["id"], 99]})
    assert answer == {"replayed": 1, "failed": [], "skipped": [99], "next": None}
    assert (await office.ground.claim()).subject == ORDERS
    (entry,) = (await got(operator, "/admin/v1/audit"))["entries"]
    assert (entry["actor"], entry["action"], entry["count"]) == ("ann@example.org (main)", "replay", 1)
    assert entry["target"] == f"ids {letter['id']}, 99"
    assert (await got(operator, f"{LETTERS}/{letter['id']}"))["actor"] == "ann@example.org (main)"


async def test_a_filter_is_worked_off_batch_by_batch(operator: httpx.AsyncClient, office: Office) -> None:
    for number in range(5):
        await office.ground.settled(table(f"t{number}"), DeadLettered(DeadLetterReason.PERMANENT, "why"))
    await office.ground.settled(ORDERS, DeadLettered(DeadLetterReason.POISON, "why"))
    counts, after = [], 0
    while after is not None:
        asked = {"filter": {"reason": "permanent"}, "limit": 2, "after": after}
        answer = await posted(operator, f"{LETTERS}:discard", asked)
        counts.append(answer["discarded"])
        after = answer["next"]
    assert counts == [2, 2, 1]
    assert [letter["table"] for letter in (await got(operator, LETTERS))["dead_letters"]] == ["sales.orders"]


@pytest.mark.parametrize("verb", ["replay", "discard"])
async def test_ids_of_no_open_letters_are_told(operator: httpx.AsyncClient, office: Office, verb: str) -> None:
    await office.ground.settled(ORDERS, DeadLettered(DeadLetterReason.PERMANENT, "why"))
    await posted(operator, f"{LETTERS}:discard", {"ids": [1]})
    await office.ground.settled(table("stock"), DeadLettered(DeadLetterReason.PERMANENT, "why"))
    answer = await posted(operator, f"{LETTERS}:{verb}", {"ids": [7, 1, 2, 1]})
    assert (answer[f"{verb}ed"], answer["skipped"]) == (1, [7, 1])


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"ids": [1], "filter": {}},
        {"filter": {"tabel": "sales.orders"}},
        {"filter": {"status": "open"}},
        {"ids": [-1]},
        {"ids": [1], "all": True},
        {"filter": {"table": "sales.orders"}},
        [],
    ],
)
@pytest.mark.parametrize("verb", ["replay", "discard"])
async def test_an_order_that_is_not_clear_changes_nothing(
    operator: httpx.AsyncClient, office: Office, verb: str, content: object
) -> None:
    await office.ground.settled(ORDERS, DeadLettered(DeadLetterReason.PERMANENT, "why"))
    assert (await operator.post(f"{LETTERS}:{verb}", json=content)).status_code == 422
    assert len((await got(operator, LETTERS))["dead_letters"]) == 1
    assert (await got(operator, "/admin/v1/audit"))["entries"] == []


async def test_a_request_that_is_understood_now_becomes_its_hints(operator: httpx.AsyncClient, office: Office) -> None:
    await office.inbox.put([ODD])
    office.understood = [Notification(ORDERS, "etl", "e1")]
    answer = await posted(operator, f"{LETTERS}:replay", {"filter": {"reason": "undecodable"}})
    assert answer == {"replayed": 1, "failed": [], "skipped": [], "next": None}
    assert (await office.ground.claim()).subject == ORDERS


async def test_a_request_that_nobody_understands_stays_a_letter(operator: httpx.AsyncClient, office: Office) -> None:
    await office.inbox.put([ODD, UndecodableRequest("etl", "/v1/events", None, b"[", 70_000, "expected JSON")])
    answer = await posted(operator, f"{LETTERS}:replay", {"filter": {}})
    assert answer["replayed"] == 0
    first, second = answer["failed"]
    assert "a known format" in first["why"]
    assert "sfn reconcile" in second["why"]
    assert len((await got(operator, LETTERS))["dead_letters"]) == 2


async def test_the_audit_log_comes_page_by_page(operator: httpx.AsyncClient) -> None:
    for catalog in ("prod", "dev.eu", "mute"):
        await posted(operator, f"/admin/v1/drop-limits/{catalog}:release")
    first = await got(operator, "/admin/v1/audit", limit=2)
    assert [entry["target"] for entry in first["entries"]] == ["mute", "dev.eu"]
    second = await got(operator, "/admin/v1/audit", limit=2, before=first["next"])
    assert ([entry["target"] for entry in second["entries"]], second["next"]) == (["prod"], None)


async def test_every_route_needs_the_operators_token(operator: httpx.AsyncClient) -> None:
    description = (await operator.get("/openapi.json")).json()
    del operator.headers["Authorization"]
    asked = 0
    for path, methods in description["paths"].items():
        if path.startswith("/admin/"):
            for method, operation in methods.items():
                reply = await operator.request(method, path.replace("{", "").replace("}", ""))
                assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
                assert operation["security"] == [{"operator": []}]
                asked += 1
    assert asked == 15


# Wrong requests.


JSON = {"Content-Type": "application/json"}


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
async def test_field_of_an_order_that_is_wrong_is_named(operator: httpx.AsyncClient, body: bytes, detail: str) -> None:
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
        operator.post("/admin/v1/drop-limits/prd:release"),
        operator.post("/admin/v1/catalogs/prd:retire"),
        operator.post("/admin/v1/catalogs/prd:adopt", json={"from": "c0"}),
        operator.post("/admin/v1/reconcile", json={"catalogs": ["prd"]}),
        operator.get("/admin/v1/tables/prd/sales/orders"),
    ]
    for request in requests:
        reply = await request
        assert reply.status_code == 404, reply.url
        assert reply.json()["detail"] == "no catalog of that name is configured; did you mean prod?"
    reply = await operator.post("/admin/v1/drop-limits/nothing-like-it:release")
    assert reply.json()["detail"] == "no catalog of that name is configured; known here: prod, dev.eu, mute"


async def test_letters_of_removed_catalogs_are_found_and_discarded(operator: httpx.AsyncClient, office: Office) -> None:
    await office.ground.settled(table("orders", "left"), DeadLettered(DeadLetterReason.PERMANENT, "no such catalog"))
    assert len((await got(operator, LETTERS, catalog="left"))["dead_letters"]) == 1
    assert (await posted(operator, f"{LETTERS}:discard", {"filter": {"catalog": "left"}}))["discarded"] == 1
    assert (await got(operator, LETTERS, catalog="left"))["dead_letters"] == []
