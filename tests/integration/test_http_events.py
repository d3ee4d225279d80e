"""`POST /v1/events`: senders, formats, rate limits and answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.domain.events import MAX_STORED_BODY, Notification, TableOrigin, UndecodableRequest
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.errors import ICEBERG_ERROR_TYPES, ErrorScope, FatalError, Rejected, Transient
from sfn.formats.decode import decode
from sfn.formats.event import EventRequest, Sender
from sfn.http.secrets import PartyTokens, WatchedTokenFile
from sfn.http.senders import Keyring, Senders, anonymous_senders
from tests.dialects.requests import SENDER, WAREHOUSE, document, golden
from tests.dialects.samples import lakekeeper
from tests.support.clock import HandClock
from tests.support.listener import (
    CHUNKED,
    DEADLINE,
    ETL,
    EVENT,
    HMAC,
    LIMIT,
    TEXT,
    TOKEN,
    Open,
    Reply,
    Service,
    answer,
    assert_problem,
    chunk,
    enrolled,
    fields,
    hooked,
    listening,
    request,
    said,
    signers,
)
from tests.support.metrics_page import Standing, read

# Senders and answers.


async def test_an_event_is_taken(service: Service, connect: Open) -> None:
    reply = await answer(connect, request(body=EVENT))
    assert (reply.status, reply.headers["content-type"]) == (202, "application/json")
    assert reply.json == {"accepted": 1, "duplicates": 0, "ignored": 0}
    assert service.inbox.taken == [Notification(TableIdentifier("prod", ("sales",), "orders"), "etl", "e1", body=EVENT)]


async def test_duplicates_and_ignored_hints_are_counted(service: Service, connect: Open) -> None:
    other = EVENT.replace(b"sales", b"scratch").replace(b"e1", b"e2")
    await answer(connect, request(body=EVENT))
    reply = await answer(connect, request(body=b"[" + EVENT + b"," + other + b"," + EVENT.replace(b"e1", b"e3") + b"]"))
    assert reply.json == {"accepted": 1, "duplicates": 1, "ignored": 1}
    assert len(service.inbox.taken) == 2


async def test_what_concerns_nobody_does_not_reach_the_inbox(service: Service, connect: Open) -> None:
    reply = await answer(connect, request(body=EVENT.replace(b"sales", b"scratch")))
    assert (reply.status, reply.json) == (202, {"accepted": 0, "duplicates": 0, "ignored": 1})
    assert (await answer(connect, request(body=b"[]"))).json == {"accepted": 0, "duplicates": 0, "ignored": 0}
    assert not service.inbox.entered.is_set()


async def test_there_is_no_202_before_the_inbox_has_it(service: Service, connect: Open) -> None:
    service.inbox.gate = anyio.Event()
    async with connect() as wire:
        await wire.send(request(body=EVENT))
        with anyio.fail_after(10):
            await service.inbox.entered.wait()
        assert await wire.nothing_for(0.2)
        service.inbox.gate.set()
        assert (await wire.reply()).status == 202


def full(wait: float | None = None) -> Transient:
    return Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=wait)


@pytest.mark.parametrize(("wait", "header"), [(2.2, "3"), (None, "1"), (0.0, "1"), (0.01, "1"), (7, "7")])
async def test_failing_inbox_is_503(service: Service, connect: Open, wait: float | None, header: str) -> None:
    service.inbox.failure = full(wait)
    reply = await answer(connect, request(body=EVENT))
    assert_problem(reply, 503)
    assert reply.headers["retry-after"] == header
    service.inbox.failure = None
    assert (await answer(connect, request(body=EVENT))).status == 202


async def test_that_it_fails_is_logged_but_not_each_time(service: Service, connect: Open) -> None:
    service.inbox.failure = full()
    with capture_logs() as logs:
        assert [(await answer(connect, request(body=EVENT))).status for _ in range(3)] == [503] * 3
    assert [(entry["event"], entry["suppressed"]) for entry in logs] == [("events not stored", 0)]


async def test_a_broken_inbox_is_503_and_told(service: Service, connect: Open) -> None:
    service.inbox.failure = FatalError("inbox.db", expected="a disk", found="none")
    reply = await answer(connect, request(body=EVENT))
    assert_problem(reply, 503)
    assert reply.headers["retry-after"] == "1"
    assert "inbox.db" not in reply.content.decode()
    assert service.broken == [service.inbox.failure]


async def test_an_error_of_ours_is_500_and_logged(service: Service, connect: Open) -> None:
    service.inbox.failure = ZeroDivisionError("a bug")
    with capture_logs() as logs:
        reply = await answer(connect, request(body=EVENT))
    assert_problem(reply, 500)
    assert b"a bug" not in reply.content
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert logs[0]["exc_info"]


async def test_a_taken_event_is_not_logged(connect: Open) -> None:
    with capture_logs() as logs:
        await answer(connect, request(body=EVENT))
    assert logs == []


async def test_without_a_valid_token_it_is_401_which_tells_nothing(service: Service, connect: Open) -> None:
    replies = [
        await answer(connect, request(body=EVENT, token=None)),
        await answer(connect, request(body=EVENT, token="wrong")),  # noqa: S106 - a wrong one
        await answer(connect, request("Authorization: Basic eDp5", body=EVENT, token=None)),
        await answer(connect, request("Authorization: Bearer wrong", body=EVENT)),
        await answer(connect, request(body=b"nonsense", token=None)),
        await answer(connect, request(CHUNKED, token=None) + chunk(b"x" * LIMIT * 2) + b"0\r\n\r\n"),
        await answer(connect, request(f"Content-Length: {LIMIT + 1}", token=None)),
    ]
    for reply in replies:
        assert_problem(reply, 401)
        assert reply.headers["www-authenticate"] == "Bearer"
        assert reply.content == replies[0].content
    assert not service.inbox.entered.is_set()


async def test_tokens_are_rotated_by_writing_their_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("first\n")
    watched = WatchedTokenFile(file)
    service = Service(senders=enrolled(PartyTokens({}, watched)))
    async with listening(service.application()) as connect:

        async def statuses(*tokens: str) -> list[int]:
            return [(await answer(connect, request(body=EVENT, token=token))).status for token in tokens]

        assert await statuses("first", "second") == [202, 401]
        for content, expected in (("first\nsecond\n", [202, 202]), ("second\n", [401, 202]), ("", [401, 202])):
            file.write_text(content)
            watched.reload_if_changed()
            assert await statuses("first", "second") == expected


async def test_without_senders_no_token_is_asked_for() -> None:
    service = Service(senders=anonymous_senders(["prod"]))
    async with listening(service.application()) as connect:
        assert (await answer(connect, request(body=EVENT.replace(b"theirs", b"prod"), token=None))).status == 202
    assert service.inbox.taken[0].sender == "anonymous"


async def test_the_body_of_who_needs_no_token_takes_memory_until_it_is_answered() -> None:
    service = Service(senders=anonymous_senders(["prod"]))
    service.inbox.gate = anyio.Event()
    sent = request(body=EVENT.replace(b"theirs", b"prod"), token=None)
    async with listening(service.application()) as connect, connect() as wire:
        await wire.send(sent)
        await service.inbox.entered.wait()
        assert service.memory.used == len(sent.partition(b"\r\n\r\n")[2])
        service.inbox.gate.set()
        assert (await wire.reply()).status == 202
        assert service.memory.used == 0


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        (b"", 400, "#"),
        (b"nonsense", 400, "#"),
        (b"[" * LIMIT, 400, "#"),
        (b'{"specversion":"1.0"}', 415, "#"),
        (b"[{}]", 415, "#/0"),
        (EVENT.replace(b'"orders"', b"7"), 422, "#/name"),
        (b"[" + EVENT + b"," + EVENT.replace(b"theirs", b"unknown") + b"]", 422, "#/1/catalog"),
        (b"[" + b",".join([b"0"] * 1001) + b"]", 422, "#"),
    ],
)
async def test_what_cannot_be_understood_is_refused_whole(
    service: Service, connect: Open, body: bytes, status: int, pointer: str
) -> None:
    reply = await answer(connect, request(body=body))
    assert_problem(reply, status)
    assert [error["pointer"] for error in reply.json["errors"]] == [pointer]
    assert service.inbox.taken == []


@pytest.mark.parametrize("field", ["Content-Encoding: gzip", "Transfer-Encoding: gzip, chunked"])
async def test_a_compressed_body_is_415(connect: Open, field: str) -> None:
    body = (EVENT,) if "Content" in field else ()
    reply = await answer(connect, request(field, body=body[0]) if body else request(field) + chunk(EVENT) + chunk(b""))
    assert_problem(reply, 415)
    assert reply.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("path", ["/v1/events?x", "/v1/events", "/admin/v1/reconcile"])
async def test_a_length_may_have_many_leading_zeros(connect: Open, path: str) -> None:
    """Python converts no number of more than 4,300 digits."""
    reply = await answer(connect, request(f"Content-Length: {len(EVENT):05000d}", path=path) + EVENT)
    assert reply.status == (202 if "events" in path else 404)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_another_method_is_405(connect: Open, method: str) -> None:
    reply = await answer(connect, request(method=method, token=None))
    assert_problem(reply, 405)
    assert reply.headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize(("path", "status"), [("/v1/events", 405), ("/livez", 200), ("/readyz", 200), ("/x", 404)])
async def test_head_is_answered_without_a_body(connect: Open, path: str, status: int) -> None:
    async with connect() as wire:
        await wire.send(request(method="HEAD", path=path))
        reply = await wire.reply(headless=True)
        assert (reply.status, int(reply.headers["content-length"]) > 0) == (status, True)
        await wire.send(request(body=EVENT))
        assert (await wire.reply()).status == 202


@pytest.mark.parametrize(
    "path", ["/", "/v1/events/", "/v1/events/x", "/docs", "/redoc", "/admin/v1/drop-limits/prod:release"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_unknown_paths_are_404(connect: Open, path: str, method: str) -> None:
    reply = await answer(connect, request(method=method, path=path, body=b""))
    assert_problem(reply, 404)
    assert "POST /v1/events" in reply.json["detail"] or path == "/v1/events/x" or "admin" in path


async def test_draining_takes_nothing_new_and_finishes_what_is_under_way(service: Service, connect: Open) -> None:
    service.inbox.gate = anyio.Event()
    async with connect() as early, connect() as late:
        await early.send(request(body=EVENT))
        with anyio.fail_after(10):
            await service.inbox.entered.wait()
        service.readiness.drain()
        await late.send(request(body=EVENT))
        reply = await late.reply()
        assert_problem(reply, 503)
        assert (reply.headers["retry-after"], reply.headers["connection"]) == ("1", "close")
        assert await late.ended()
        service.inbox.gate.set()
        assert (await early.reply()).status == 202
    assert len(service.inbox.taken) == 1


async def test_readiness_tells_its_reasons(service: Service, connect: Open) -> None:
    assert (await answer(connect, request(method="GET", path="/readyz", token=None))).json == {"status": "ready"}
    service.readiness.add_reason("the disk is full")
    service.readiness.add_reason("the inbox is not open")
    reply = await answer(connect, request(method="GET", path="/readyz", token=None))
    assert_problem(reply, 503)
    assert reply.json["detail"] == "the disk is full, the inbox is not open"
    service.readiness.clear_reason("the disk is full")
    service.readiness.clear_reason("the inbox is not open")
    assert (await answer(connect, request(method="GET", path="/readyz", token=None))).status == 200


async def test_draining_never_ends_and_the_process_stays_alive(service: Service, connect: Open) -> None:
    service.readiness.drain()
    service.readiness.clear_reason("draining")
    assert service.readiness.reasons == ("draining",)
    assert_problem(await answer(connect, request(method="GET", path="/readyz")), 503)
    assert (await answer(connect, request(method="GET", path="/livez", token=None))).json == {"status": "alive"}


async def test_a_refusal_is_logged_without_any_token(connect: Open) -> None:
    with capture_logs() as logs:
        await answer(connect, request(body=json.dumps({"namespace": "x", "name": "\n" * 9}).encode()))
        await answer(connect, request(body=EVENT, token="n0t-a-token"))  # noqa: S106 - a wrong one
    assert "n0t-a-token" not in str(logs)
    assert TOKEN not in str(logs)
    assert [(entry["event"], entry.get("sender"), entry["status"]) for entry in logs] == [
        ("events rejected", "etl", 422),
        ("request refused", None, 401),
    ]


@pytest.mark.parametrize(
    ("sent", "status", "why"),
    [
        (
            request(body=EVENT, token="n0t-a-token"),  # noqa: S106 - a wrong one
            401,
            "the bearer token is none of the active ones, or two parties have it",
        ),
        (request(method="GET"), 405, "events are sent with POST"),
    ],
    ids=["token", "method"],
)
async def test_what_is_refused_by_its_head_is_logged_but_not_each_time(
    connect: Open, sent: bytes, status: int, why: str
) -> None:
    with capture_logs() as logs:
        replies = [await answer(connect, sent) for _ in range(3)]
    assert [reply.status for reply in replies] == [status] * 3
    (entry,) = logs
    assert entry == {
        "event": "request refused",
        "log_level": "warning",
        "where": "events",
        "status": status,
        "why": why,
        "client": "127.0.0.1",
        "suppressed": 0,
    }


# Catalog formats.


STRUCTURED = "Content-Type: application/cloudevents+json"
TAKEN = {"accepted": 1, "duplicates": 0, "ignored": 0}
TABLE = TableIdentifier("lake", ("a", "b"), "orders")


def of(sender: Sender) -> Service:
    """A service that nobody else sends to."""
    party = f"senders.{sender.name}"
    return Service(senders=Senders(Keyring({party: PartyTokens({"main": TOKEN})}), {party: sender}))


@pytest.fixture
def catalog_service() -> Service:
    return of(SENDER)


@pytest.fixture
async def catalog_connect(catalog_service: Service) -> AsyncIterator[Open]:
    async with listening(catalog_service.application()) as connect:
        yield connect


async def test_cloudevent_is_taken_and_a_repeat_is_a_duplicate(catalog_service: Service, catalog_connect: Open) -> None:
    body = golden("lakekeeper-updateTable")
    assert (await answer(catalog_connect, request(STRUCTURED, body=body))).json == TAKEN
    assert (await answer(catalog_connect, request(body=body))).json == {"accepted": 0, "duplicates": 1, "ignored": 0}
    assert [hint.subject for hint in catalog_service.inbox.taken] == [TABLE]


@pytest.mark.parametrize("prefix", ["ce-", "ce_"])
async def test_a_binary_one_has_its_attributes_in_headers(
    catalog_service: Service, catalog_connect: Open, prefix: str
) -> None:
    event = document("lakekeeper-updateTable")
    data = json.dumps(event.pop("data")).encode()
    fields = [f"{prefix}{name}: {str(value).replace(chr(31), '%1F')}" for name, value in event.items()]
    assert (await answer(catalog_connect, request(*fields, body=data))).json == TAKEN
    assert [hint.subject for hint in catalog_service.inbox.taken] == [TABLE]


async def test_a_wrong_attribute_of_a_binary_one_is_named(catalog_connect: Open) -> None:
    event = document("lakekeeper-updateTable")
    del event["data"], event["source"]
    fields = [f"ce-{name}: {str(value).replace(chr(31), '%1F')}" for name, value in event.items()]
    reply = await answer(catalog_connect, request(*fields, body=b"{}"))
    assert (reply.status, reply.json["detail"]) == (422, "headers/source: expected a value, found none")


async def test_the_last_content_type_is_kept(catalog_service: Service, catalog_connect: Open) -> None:
    body = EVENT.replace(b'"orders"', b"7")
    await answer(catalog_connect, request(STRUCTURED, "Content-Type: application/json", body=body))
    assert [kept.content_type for kept in catalog_service.inbox.kept] == ["application/json"]


async def test_a_webhook_that_names_no_table_is_a_sweep(catalog_connect: Open, catalog_service: Service) -> None:
    reply = await answer(
        catalog_connect, request("X-Polaris-Event: AFTER_UPDATE_TABLE", body=golden("polaris-webhook-pr5084"))
    )
    assert reply.json == {"accepted": 4, "duplicates": 0, "ignored": 0}
    assert {hint.subject for hint in catalog_service.inbox.taken} == {
        CatalogName(ours) for ours in SENDER.catalogs.values()
    }


async def test_what_is_of_no_concern_is_ignored(catalog_connect: Open) -> None:
    reply = await answer(catalog_connect, request(body=json.dumps(lakekeeper("createView")).encode()))
    assert (reply.status, reply.json) == (202, {"accepted": 0, "duplicates": 0, "ignored": 1})


async def test_events_of_an_unmapped_catalog_are_ignored_counted_and_told_of_once_a_second(
    catalog_service: Service, catalog_connect: Open
) -> None:
    events = [lakekeeper("dropTable", warehouse_id=name) for name in ("w1", "w2", WAREHOUSE)]
    with capture_logs() as records:
        for _ in range(3):
            reply = await answer(catalog_connect, request(body=json.dumps(events).encode()))
            assert reply.json["ignored"] == 2
    told = [record for record in records if record["event"] == "event of an unmapped catalog"]
    assert (told[0]["sender"], told[0]["found"], told[0]["suppressed"]) == ("catalogs", ("w1", "w2"), 0)
    assert told[0]["remedy"] == 'set senders.catalogs.catalogs = { "w1" = "…" } if it is a configured catalog'
    assert len(told) == 1
    page = await read(Standing().scrape(catalog_service.metrics, HandClock()))
    counted = page.of("sfn_events_received_total", "format", "result")
    assert counted[("lakekeeper", "unmapped")] == 6
    assert ("lakekeeper", "ignored") not in counted


async def test_a_pinned_sender_sends_nothing_else() -> None:
    service = of(replace(SENDER, event_format="lakekeeper"))
    async with listening(service.application()) as connect:
        assert (await answer(connect, request(body=golden("lakekeeper-dropTable")))).json == TAKEN
        assert_problem(await answer(connect, request(body=golden("glue-update-table"))), 415)
        path = "/v1/theirs/namespaces/ns1/tables/orders/notifications"
        reply = await answer(connect, request(path=path, body=golden("polaris-notification-update")))
        assert (reply.status, reply.json["error"]["type"]) == (415, "NotSupportedException")
    assert [kept.path for kept in service.inbox.kept] == ["/v1/events", path]


# Event-only catalogs.


NAMED = {"namespace": ["sales"], "name": "orders", "catalog": "theirs"}
AT = "s3://lake/orders/metadata/00001-x.metadata.json"


@pytest.fixture
def event_only_service() -> Service:
    return Service(told=frozenset({"prod"}))


@pytest.fixture
async def event_only_connect(event_only_service: Service) -> AsyncIterator[Open]:
    async with listening(event_only_service.application()) as connect:
        yield connect


@pytest.mark.parametrize(
    "event",
    [
        {"metadata_location": AT},
        {"metadata_location": AT, "operation": "create"},
        {"operation": "drop"},
        {"operation": "rename", "destination": {"namespace": "sales", "name": "returns"}},
    ],
)
async def test_an_event_that_says_enough_is_taken(
    event_only_service: Service, event_only_connect: Open, event: dict[str, object]
) -> None:
    assert (await answer(event_only_connect, request(body=json.dumps(NAMED | event).encode()))).status == 202
    assert event_only_service.inbox.taken


@pytest.mark.parametrize("operation", ["commit", "create", "register"])
async def test_an_event_without_its_location_is_422_and_none_of_its_request_is_taken(
    event_only_service: Service, event_only_connect: Open, operation: str
) -> None:
    events = [NAMED | {"metadata_location": AT}, NAMED | {"operation": operation}]
    reply = await answer(event_only_connect, request(body=json.dumps(events).encode()))
    assert_problem(reply, 422)
    assert "metadata_location, because the catalog prod cannot be queried" in reply.json["detail"]
    assert reply.json["errors"][0]["pointer"] == "#/1"
    assert event_only_service.inbox.taken == []


async def test_what_is_told_of_a_table_without_files_is_kept_all_the_same(
    event_only_service: Service, event_only_connect: Open
) -> None:
    """It may get files by other settings later, and who could then be asked where it is?"""
    event = NAMED | {"namespace": ["scratch"], "metadata_location": AT}
    reply = await answer(event_only_connect, request(body=json.dumps([event, event | {"catalog": "other"}]).encode()))
    assert reply.json == {"accepted": 1, "duplicates": 0, "ignored": 1}
    assert [hint.subject.catalog for hint in event_only_service.inbox.taken] == ["prod"]


async def test_of_a_catalog_that_can_be_asked_a_name_is_enough(event_only_connect: Open) -> None:
    event = NAMED | {"catalog": "other"}
    assert (await answer(event_only_connect, request(body=json.dumps(event).encode()))).status == 202


async def test_what_is_told_of_a_table_arrives(event_only_service: Service, event_only_connect: Open) -> None:
    event = NAMED | {"metadata_location": AT, "operation": "register", "table_uuid": "u1"}
    await answer(event_only_connect, request(body=json.dumps(event).encode()))
    (hint,) = event_only_service.inbox.taken
    assert (hint.subject, hint.min_metadata_location, hint.uuid, hint.origin) == (
        TableIdentifier("prod", ("sales",), "orders"),
        AT,
        "u1",
        TableOrigin.REGISTER,
    )


# Rate limits.


POLARIS = "/v1/theirs/namespaces/sales/tables/orders/notifications"
RATES = {"etl": 20, "hook": 10}
"""Two at once and one every three seconds; one every six."""


@dataclass
class World:
    """A service, and its time."""

    now: list[float] = field(default_factory=lambda: [0.0])
    service: Service = field(init=False)

    def __post_init__(self) -> None:
        self.service = Service(senders=signers(rates=RATES, monotonic=lambda: self.now[0]))


@pytest.fixture(name="world")
def fixture_world() -> World:
    return World()


@pytest.fixture
async def limited_connect(world: World) -> AsyncIterator[Open]:
    async with listening(world.service.application()) as connect:
        yield connect


async def test_what_comes_too_often_is_429_and_says_when_to_come_again(world: World, limited_connect: Open) -> None:
    replies = [await answer(limited_connect, request(body=EVENT)) for _ in range(3)]
    assert [reply.status for reply in replies] == [202, 202, 429]
    assert_problem(replies[2], 429)
    assert replies[2].json["detail"] == "expected at most 20 requests a minute, and at most 2 at once"
    assert replies[2].headers["retry-after"] == "3"
    assert len(world.service.inbox.taken) == 1
    world.now[0] += 2.9
    assert (await answer(limited_connect, request(body=EVENT))).headers["retry-after"] == "1"
    world.now[0] += 0.2
    assert (await answer(limited_connect, request(body=EVENT))).status == 202


async def test_a_sender_that_shows_a_token_learns_it_before_its_body(world: World, limited_connect: Open) -> None:
    for _ in range(2):
        await answer(limited_connect, request(body=EVENT))
    for sent in (request(f"Content-Length: {LIMIT + 1}"), request(CHUNKED), request("Content-Encoding: x", body=b"")):
        async with limited_connect() as wire:
            await wire.send(sent)
            assert_problem(await wire.reply(), 429)
    assert len(world.service.inbox.taken) == 1


async def test_a_sender_that_signs_is_known_first(world: World, limited_connect: Open) -> None:
    for _ in range(3):
        wrong = request(*said(fields()), body=EVENT + b" ", token=None)
        assert (await answer(limited_connect, wrong)).status == 401
    assert (await answer(limited_connect, hooked())).status == 202
    reply = await answer(limited_connect, hooked(message="msg_2"))
    assert (reply.status, reply.headers["retry-after"]) == (429, "6")
    assert (await answer(limited_connect, request(*said(fields()), body=EVENT + b" ", token=None))).status == 401
    world.now[0] += 6.1
    assert (await answer(limited_connect, hooked(message="msg_2"))).json["duplicates"] == 1


async def test_one_senders_haste_is_not_anothers(limited_connect: Open) -> None:
    for _ in range(9):
        await answer(limited_connect, request(body=EVENT))
        unlimited = request(*said(fields(EVENT, TEXT, HMAC)), body=EVENT, token=None)
        assert (await answer(limited_connect, unlimited)).status == 202
    assert (await answer(limited_connect, hooked())).status == 202


async def test_who_is_nobody_is_told_of_no_limit(limited_connect: Open) -> None:
    replies = [await answer(limited_connect, request(body=EVENT, token="wrong")) for _ in range(30)]  # noqa: S106 - a wrong one
    assert {reply.status for reply in replies} == {401}


async def test_a_notification_is_told_in_icebergs_manner(limited_connect: Open) -> None:
    replies = [await answer(limited_connect, request(path=POLARIS, body=b"{}")) for _ in range(3)]
    error = replies[2].json["error"]
    assert (replies[2].status, error["code"], error["type"]) == (429, 429, ICEBERG_ERROR_TYPES[429])
    assert replies[2].headers["retry-after"] == "3"


async def test_it_is_counted_and_logged_with_its_sender_but_not_each_time(world: World, limited_connect: Open) -> None:
    with capture_logs() as logs:
        for _ in range(6):
            await answer(limited_connect, request(body=EVENT))
    record = {"event": "events rejected", "log_level": "warning", "sender": "etl", "status": 429, "suppressed": 0}
    assert logs == [record]
    refused = world.service.metrics.registry.get_sample_value("sfn_requests_refused_total", {"status": "429"})
    assert refused == 4


async def test_the_sender_that_shows_nothing_has_a_limit_too() -> None:
    senders = Senders(Keyring({}), {}, Sender("local", {"theirs": "prod"}), rates={"local": 1}, monotonic=lambda: 0.0)
    service = Service(senders=senders)
    async with listening(service.application()) as connect:
        assert [(await answer(connect, request(body=EVENT, token=None))).status for _ in range(2)] == [202, 429]


# Undecodable bodies.


EVENTS = "/v1/events"
ORDERS = "/v1/theirs/namespaces/a%2Fb/tables/orders/notifications"
UNKNOWN = "/v1/unknown/namespaces/a/tables/orders/notifications"
JSON = "Content-Type: application/json"
ATTRIBUTES = {"specversion": "1.0", "id": "e9", "source": "/ci", "type": "commit"}
MISNAMED = EVENT.replace(b'"orders"', b"7")


def refusal_text(reply: Reply) -> str:
    """What a refusal told its sender."""
    return str(reply.json["detail"] if "detail" in reply.json else reply.json["error"]["message"])


@pytest.mark.parametrize(
    ("path", "body", "status", "pointer"),
    [
        (EVENTS, b"nonsense", 400, "#"),
        (EVENTS, b"", 400, "#"),
        (EVENTS, b'{"specversion":"1.0"}', 415, "#"),
        (EVENTS, MISNAMED, 422, "#/name"),
        (EVENTS, EVENT.replace(b"theirs", b"unknown"), 422, "#/catalog"),
        (EVENTS, b"[" + EVENT + b"," + MISNAMED + b"]", 422, "#/1/name"),
        (ORDERS, b"nonsense", 400, "#"),
        (ORDERS, b'{"notification-type":"UPDATE"}', 400, "#/payload"),
        (UNKNOWN, b"{}", 404, "path/prefix"),
    ],
)
async def test_it_is_kept_whole_and_the_sender_is_refused(
    service: Service, connect: Open, path: str, body: bytes, status: int, pointer: str
) -> None:
    reply = await answer(connect, request(JSON, path=f"{path}?a=b", body=body))
    assert reply.status == status
    (kept,) = service.inbox.kept
    assert service.inbox.taken == []
    assert kept == UndecodableRequest("etl", path, "application/json", body, len(body), kept.detail)
    assert kept.detail.startswith(f"{pointer}: expected ")
    assert refusal_text(reply) in {kept.detail, kept.detail.removeprefix(f"{pointer}: ")}


@pytest.mark.parametrize("path", [EVENTS, ORDERS, UNKNOWN])
async def test_what_is_kept_is_all_that_decoding_it_again_needs(service: Service, connect: Open, path: str) -> None:
    await answer(connect, request(path=path, body=MISNAMED))
    (kept,) = service.inbox.kept
    assert kept.content_type is None
    with pytest.raises(Rejected) as caught:
        decode(EventRequest(kept.path, [], kept.body, ETL))
    assert str(caught.value) == kept.detail


async def test_of_a_long_body_the_beginning_is_kept() -> None:
    service = Service(limit=MAX_STORED_BODY * 2)
    body = b"nonsense".ljust(MAX_STORED_BODY + 1)
    async with listening(service.application()) as connect:
        assert (await answer(connect, request(body=body))).status == 400
    (kept,) = service.inbox.kept
    assert (kept.body, kept.size) == (body[:MAX_STORED_BODY], MAX_STORED_BODY + 1)


@pytest.mark.parametrize("path", [EVENTS, ORDERS])
async def test_there_is_no_refusal_before_it_is_kept(service: Service, connect: Open, path: str) -> None:
    service.inbox.gate = anyio.Event()
    async with connect() as wire:
        await wire.send(request(path=path, body=b"nonsense"))
        with anyio.fail_after(10):
            await service.inbox.entered.wait()
        assert await wire.nothing_for(0.2)
        service.inbox.gate.set()
        assert (await wire.reply()).status == 400


@pytest.mark.parametrize("path", [EVENTS, ORDERS])
async def test_one_that_cannot_be_kept_is_to_be_sent_again(service: Service, connect: Open, path: str) -> None:
    service.inbox.failure = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=2)
    reply = await answer(connect, request(path=path, body=b"nonsense"))
    assert (reply.status, reply.headers["retry-after"]) == (503, "2")
    service.inbox.failure = FatalError("inbox.db", expected="a disk", found="none")
    assert (await answer(connect, request(path=path, body=b"nonsense"))).status == 503
    assert service.broken == [service.inbox.failure]


@pytest.mark.parametrize("path", [EVENTS, ORDERS])
async def test_what_nobody_read_or_nobody_sent_is_not_kept(service: Service, connect: Open, path: str) -> None:
    statuses = [
        (await answer(connect, sent)).status
        for sent in (
            request(path=path, body=b"nonsense", token=None),
            request(path=path, body=b"nonsense", token="wrong"),  # noqa: S106 - a wrong one
            request(path=path, method="PUT", body=b"nonsense"),
        )
    ]
    assert statuses == [401, 401, 405]
    assert not service.inbox.entered.is_set()
    assert (await answer(connect, request(path=path, body=b" " * (LIMIT + 1)))).status == 413
    assert service.inbox.kept == []


async def test_neither_is_a_part_of_a_body() -> None:
    service = Service(deadline=DEADLINE)
    async with listening(service.application()) as connect:
        assert (await answer(connect, request(CHUNKED) + chunk(b"nonsense"))).status == 408
        async with connect() as wire:
            await wire.send(request(CHUNKED), chunk(b"nonsense"))
        assert (await answer(connect, request(body=EVENT))).status == 202
    assert service.inbox.kept == []


async def test_where_everybody_is_one_sender_it_is_kept_as_that_ones() -> None:
    service = Service(senders=anonymous_senders(["prod"]))
    async with listening(service.application()) as connect:
        assert (await answer(connect, request(body=b"nonsense", token=None))).status == 400
    assert [kept.sender for kept in service.inbox.kept] == ["anonymous"]


async def test_what_a_content_type_may_hold_is_kept(service: Service, connect: Open) -> None:
    sent = request("Content-Type: TYPE", body=b"nonsense").replace(b"TYPE", b"text/plain; x=\xe9")
    assert (await answer(connect, sent)).status == 400
    assert [kept.content_type for kept in service.inbox.kept] == ["text/plain; x=\xe9"]


@pytest.mark.parametrize("prefix", ["ce-", "ce_"])
async def test_a_cloudevent_whose_attributes_are_headers_is_kept_with_them(
    service: Service, connect: Open, prefix: str
) -> None:
    attributes = [f"{prefix}{name}: {value}" for name, value in ATTRIBUTES.items()]
    data = EVENT.replace(b"theirs", b"unknown")
    assert (await answer(connect, request(*attributes, JSON, body=data))).status == 422
    (kept,) = service.inbox.kept
    assert (kept.content_type, kept.size) == ("application/cloudevents+json", len(kept.body))
    mended = Sender("etl", {"unknown": "prod"})
    said = decode(EventRequest(kept.path, [(b"content-type", b"application/cloudevents+json")], kept.body, mended))
    assert [(hint.event_id, str(hint.subject)) for hint in said.notifications] == [("/ci e9", "prod:sales.orders")]
