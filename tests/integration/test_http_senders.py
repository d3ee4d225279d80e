"""Senders: each speaks for its own catalogs; signatures are of whole bodies; webhooks ask for permission first."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.domain.events import Notification, UndecodableRequest
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.formats.event import Sender
from sfn.http.secrets import PartyTokens, WatchedTokenFile
from sfn.http.senders import Keyring, Senders, anonymous_senders
from tests.support.listener import (
    ANOTHER,
    EVENT,
    HMAC,
    LIMIT,
    MANNERS,
    STANDARD,
    TEXT,
    TOKEN,
    WEBHOOK,
    Clock,
    Open,
    Reply,
    Service,
    answer,
    assert_problem,
    fields,
    hooked,
    listening,
    request,
    said,
    signers,
)

NOTE = {
    "notification-type": "UPDATE",
    "payload": {"table-name": "t", "timestamp": 1, "table-uuid": "u", "metadata-location": "s3://lake/t/1.json"},
}
OWN = {"bearer": "red", "standard": "green", "hmac": "blue", "none": "grey"}
"""The catalog of each sender, which is `theirs` to all of them."""
Says = Callable[[bytes, str], bytes]


def by_token(body: bytes, path: str) -> bytes:
    return request(path=path, body=body)


def by_message(body: bytes, path: str) -> bytes:
    return request(*said(fields(body)), path=path, body=body, token=None)


def by_text(body: bytes, path: str) -> bytes:
    return request(*said(fields(body, TEXT, HMAC)), path=path, body=body, token=None)


def by_nothing(body: bytes, path: str) -> bytes:
    return request(path=path, body=body, token=None)


SAYS: dict[str, Says] = {"bearer": by_token, "standard": by_message, "hmac": by_text, "none": by_nothing}


@pytest.fixture(name="speaking_service")
def fixture_speaking_service() -> Service:
    known = {name: Sender(name, {"theirs": own}) for name, own in OWN.items()}
    keyring = Keyring(
        {
            "bearer": PartyTokens({"main": TOKEN}),
            "standard": PartyTokens({"main": WEBHOOK}, scheme=STANDARD),
            "hmac": PartyTokens({"main": TEXT}, scheme=HMAC),
        }
    )
    shows = {name: one for name, one in known.items() if name != "none"}
    signing = {"standard": MANNERS[STANDARD], "hmac": MANNERS[HMAC]}
    return Service(senders=Senders(keyring, shows, known["none"], signing=signing, clock=Clock()))


@pytest.fixture
async def speaking_connect(speaking_service: Service) -> AsyncIterator[Open]:
    async with listening(speaking_service.application()) as speaking_connect:
        yield speaking_connect


async def told(speaking_connect: Open, name: str, events: object, path: str = "/v1/events") -> Reply:
    return await answer(speaking_connect, SAYS[name](json.dumps(events).encode(), path))


def event(**more: object) -> dict[str, object]:
    return {"namespace": ["sales"], "name": "orders", **more}


def notified(prefix: str) -> str:
    return f"/v1/{prefix}/namespaces/sales/tables/orders/notifications"


@pytest.mark.parametrize("name", OWN)
async def test_each_sender_speaks_for_its_own_catalog_by_its_own_name_of_it(
    speaking_service: Service, speaking_connect: Open, name: str
) -> None:
    for events in (event(), event(catalog="theirs"), [event(catalog=None)]):
        assert (await told(speaking_connect, name, events)).status == 202
    assert (await told(speaking_connect, name, NOTE, notified("theirs"))).status == 204
    assert {hint.sender for hint in speaking_service.inbox.taken} == {name}
    assert {hint.subject for hint in speaking_service.inbox.taken} == {TableIdentifier(OWN[name], ("sales",), "orders")}


OTHERS = ("red", "green", "blue", "grey", "prod", "THEIRS", "theirs ", "../theirs", "theirs/", "th\u0435irs", "*", "0")
"""Our names of the catalogs, among them each sender's own, and what looks like the sender's name of it."""


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("theirs", OTHERS)
async def test_no_key_of_an_event_names_another(
    speaking_service: Service, speaking_connect: Open, name: str, theirs: str
) -> None:
    reply = await told(speaking_connect, name, event(catalog=theirs))
    assert_problem(reply, 422)
    assert reply.json["errors"] == [{"detail": "expected one of theirs, found another one", "pointer": "#/catalog"}]
    assert (await told(speaking_connect, name, [event(), event(catalog=theirs)])).status == 422
    rename = event(operation="rename", destination={"namespace": ["sales"], "name": "new", "catalog": theirs})
    assert (await told(speaking_connect, name, rename)).status == 202
    assert {hint.subject.catalog for hint in speaking_service.inbox.taken} == {OWN[name]}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(
    "prefix", ["red", "green", "blue", "grey", "THEIRS", "theirs%20", "..%2Ftheirs", "%2A", "", "."]
)
async def test_no_path_names_another(speaking_service: Service, speaking_connect: Open, name: str, prefix: str) -> None:
    reply = await told(speaking_connect, name, NOTE, notified(prefix))
    assert (reply.status, reply.json["error"]["code"]) == (404, 404)
    assert speaking_service.inbox.taken == []


@pytest.mark.parametrize("name", ["bearer", "none"])
async def test_what_is_looked_at_instead_of_a_body_is_the_senders_own(
    speaking_service: Service, speaking_connect: Open, name: str
) -> None:
    token = TOKEN if name == "bearer" else None
    large = f"Content-Length: {LIMIT + 1}"
    assert (await answer(speaking_connect, request(large, token=token))).status == 413
    assert (await answer(speaking_connect, request("Content-Encoding: gzip", body=b"x", token=token))).status == 415
    for prefix in ("green", "theirs"):
        assert (await answer(speaking_connect, request(large, path=notified(prefix), token=token))).status == 413
    assert [hint.subject for hint in speaking_service.inbox.taken] == [
        CatalogName(OWN[name]),
        CatalogName(OWN[name]),
        TableIdentifier(OWN[name], ("sales",), "orders"),
    ]


PLAIN = EVENT.replace(b',"event_id":"e1"', b"")
ORDERS = TableIdentifier("prod", ("sales",), "orders")
RIGHT = fields()


@pytest.fixture
def service() -> Service:
    return Service(senders=signers())


async def sent(connect: Open, headers: dict[str, str], body: bytes = EVENT, *more: str) -> Reply:
    return await answer(connect, request(*said(headers), *more, body=body, token=None))


async def test_a_signed_event_is_taken_and_is_its_senders(service: Service, connect: Open) -> None:
    assert (await answer(connect, hooked())).json == {"accepted": 1, "duplicates": 0, "ignored": 0}
    reply = await sent(connect, fields(PLAIN, TEXT, HMAC), PLAIN)
    assert reply.json == {"accepted": 1, "duplicates": 0, "ignored": 0}
    assert service.inbox.taken == [
        Notification(ORDERS, "hook", "e1", body=EVENT),
        Notification(TableIdentifier("dev", ("sales",), "orders"), "polaris", None, body=PLAIN),
    ]


@pytest.mark.parametrize("step", [1, 7, 100_000])
async def test_a_body_may_come_in_parts(service: Service, connect: Open, step: int) -> None:
    whole = hooked()
    async with connect() as wire:
        for start in range(0, len(whole), step):
            await wire.send(whole[start : start + step])
        assert (await wire.reply()).status == 202
    assert [hint.body for hint in service.inbox.taken] == [EVENT]


UPPER = {name.upper(): value for name, value in RIGHT.items()}
MIXED = {name.title(): value for name, value in RIGHT.items()}


@pytest.mark.parametrize("headers", [UPPER, MIXED])
async def test_the_case_of_a_headers_name_says_nothing(connect: Open, headers: dict[str, str]) -> None:
    assert (await sent(connect, headers)).status == 202


async def test_of_two_signatures_one_is_enough(connect: Open) -> None:
    both = f"{fields(secret=ANOTHER)['webhook-signature']} {RIGHT['webhook-signature']}"
    assert (await sent(connect, {**RIGHT, "webhook-signature": both})).status == 202


WRONG: dict[str, dict[str, str]] = {
    "nothing": {},
    "old": fields(off=-301),
    "future": fields(off=301),
    "another secret": fields(secret=ANOTHER),
    "another timestamp": {**RIGHT, "webhook-timestamp": fields(off=1)["webhook-timestamp"]},
    "another id": {**RIGHT, "webhook-id": "msg_2"},
    "an id with a full stop": fields(message="msg.1"),
    "no id": {name: value for name, value in RIGHT.items() if name != "webhook-id"},
    "no timestamp": {name: value for name, value in RIGHT.items() if name != "webhook-timestamp"},
    "no signature": {name: value for name, value in RIGHT.items() if name != "webhook-signature"},
    "an empty signature": {**RIGHT, "webhook-signature": ""},
    "a version that nobody knows": {**RIGHT, "webhook-signature": RIGHT["webhook-signature"].replace("v1", "v9")},
    "a timestamp that is none": {**RIGHT, "webhook-timestamp": "now"},
    "a timestamp of other digits": {**RIGHT, "webhook-timestamp": "\u0661" * 10},
    "too many signatures": {**RIGHT, "webhook-signature": " ".join([RIGHT["webhook-signature"]] * 17)},
    "a body's signature of another manner": {"x-polaris-signature-256": RIGHT["webhook-signature"]},
    "the manner's signature by another's secret": fields(secret=TEXT + "!", scheme=HMAC),
    "the right manner under GitHub's name": {
        "x-hub-signature-256": fields(secret=TEXT, scheme=HMAC)["x-polaris-signature-256"]
    },
    "two senders' signatures": {**RIGHT, **fields(secret=TEXT, scheme=HMAC)},
    "the secret itself": {"Authorization": f"Bearer {WEBHOOK}"},
    "the text itself": {"Authorization": f"Bearer {TEXT.replace(' ', '')}"},
}


async def test_whatever_is_wrong_the_answer_is_the_same_and_nothing_is_kept(service: Service, connect: Open) -> None:
    replies = {why: await sent(connect, headers) for why, headers in WRONG.items()}
    for name, value in RIGHT.items():
        for second in (value, "another"):
            replies[f"{name} twice: {second}"] = await sent(connect, RIGHT, EVENT, f"{name.upper()}: {second}")
    for body in (EVENT + b" ", EVENT[:-1], EVENT.replace(b"sales", b"SALES"), b"", b"nonsense"):
        replies[f"another body: {body!r}"] = await sent(connect, RIGHT, body)
    for why, reply in replies.items():
        assert_problem(reply, 401)
        assert (reply.headers["www-authenticate"], reply.content) == ("Bearer", replies["nothing"].content), why
    assert not service.inbox.entered.is_set()
    assert (await sent(connect, RIGHT)).status == 202


NO_SIGNER = "no single sender's secret made this signature"
REASONS = {
    "nothing": "the request has no token and no signature",
    "old": "webhook-timestamp is 301 seconds behind the listener's clock",
    "future": "webhook-timestamp is 301 seconds ahead of the listener's clock",
    "another secret": NO_SIGNER,
    "another timestamp": NO_SIGNER,
    "another id": NO_SIGNER,
    "an id with a full stop": "webhook-id is not 1 to 256 visible characters without a full stop",
    "no id": "no header webhook-id",
    "no timestamp": "no header webhook-timestamp",
    "no signature": "no header webhook-signature",
    "an empty signature": "webhook-signature has no well-formed signature of version v1",
    "a version that nobody knows": "webhook-signature has no well-formed signature of version v1",
    "a timestamp that is none": "webhook-timestamp is not a number of seconds",
    "a timestamp of other digits": "webhook-timestamp is not a number of seconds",
    "too many signatures": "webhook-signature has more than 16 signatures",
    "a body's signature of another manner": "the header x-polaris-signature-256 is not sha256= and 64",
    "the manner's signature by another's secret": NO_SIGNER,
    "the right manner under GitHub's name": "the request has no token and no signature",
    "two senders' signatures": NO_SIGNER,
    "the secret itself": "the bearer token is none of the active ones, or two parties have it",
    "the text itself": "the bearer token is none of the active ones, or two parties have it",
}


async def test_the_log_and_the_last_requests_have_the_reason_without_any_text_of_the_request(
    service: Service, connect: Open
) -> None:
    with capture_logs() as logs:
        for why, headers in WRONG.items():
            await sent(connect, headers)
            assert service.recent.latest(1)[0].reason.startswith(REASONS[why]), why
        await sent(connect, {**RIGHT, "webhook-timestamp": f"{RIGHT['webhook-timestamp']}000"})
        assert service.recent.latest(1)[0].reason == "webhook-timestamp is in milliseconds, not seconds"
        await sent(connect, RIGHT, b"s3cret")
    assert str(logs[0]["why"]) == REASONS["nothing"]
    seen = f"{logs} {[one.reason for one in service.recent.latest(1000)]}"
    assert [word for word in ("s3cret", WEBHOOK, TEXT, "msg_", "v1,", RIGHT["webhook-timestamp"]) if word in seen] == []
    assert service.inbox.kept == []


async def test_a_timestamp_may_be_five_minutes_off(connect: Open) -> None:
    for off in (-300, 300):
        assert (await sent(connect, fields(off=off, message=f"m{off}"))).status == 202


async def test_a_body_is_looked_at_only_once_it_is_known_whose_it_is(service: Service, connect: Open) -> None:
    for body in (b"nonsense", b"[" * LIMIT, b"\xff", EVENT.replace(b'"orders"', b"7")):
        assert (await sent(connect, RIGHT, body)).status == 401
        assert service.inbox.kept == []
        assert (await answer(connect, hooked(body))).status in {400, 422}
        (kept,) = service.inbox.kept
        assert isinstance(kept, UndecodableRequest)
        assert (kept.sender, kept.body) == ("hook", body)
        service.inbox.kept.clear()


async def test_a_replay_is_a_duplicate(service: Service, connect: Open) -> None:
    for expected in ((1, 0), (0, 1), (0, 1)):
        reply = await answer(connect, hooked(PLAIN))
        assert (reply.json["accepted"], reply.json["duplicates"]) == expected
    assert (await answer(connect, hooked(PLAIN, message="msg_2"))).json["accepted"] == 1
    assert [hint.event_id for hint in service.inbox.taken] == ["msg_1\x1f0", "msg_2\x1f0"]


async def test_replay_of_several_events_is_one_of_each_and_their_own_ids_stay(service: Service, connect: Open) -> None:
    scratch = PLAIN.replace(b"sales", b"scratch")
    rename = PLAIN[:-1] + b',"operation":"rename","destination":{"namespace":"sales","name":"new"}}'
    batch = b"[" + b",".join([scratch, PLAIN, EVENT, PLAIN, rename]) + b"]"
    assert (await answer(connect, hooked(batch))).json == {"accepted": 5, "duplicates": 0, "ignored": 1}
    expected = ["msg_1\x1f1", "e1", "msg_1\x1f3", "msg_1\x1f4", "msg_1\x1f5"]
    assert [hint.event_id for hint in service.inbox.taken] == expected
    assert (await answer(connect, hooked(batch))).json == {"accepted": 0, "duplicates": 5, "ignored": 1}


async def test_no_event_of_the_senders_own_ids_is_taken_for_a_replay(connect: Open) -> None:
    assert (await answer(connect, hooked(PLAIN, message="e1"))).json["accepted"] == 1
    for own in (b"e1", b"e1 0", b"e10"):
        assert (await answer(connect, hooked(EVENT.replace(b"e1", own), message="x"))).json["accepted"] == 1
    crafted = EVENT.replace(b'"e1"', b'"e1\\u001f0"')
    assert_problem(await answer(connect, hooked(crafted)), 422)


async def test_a_message_that_comes_again_when_it_is_too_old_is_nobodys() -> None:
    clock = Clock()
    service = Service(senders=signers(clock=clock))
    async with listening(service.application()) as connect:
        assert (await answer(connect, hooked(PLAIN))).status == 202
        clock.at += timedelta(minutes=6)
        assert (await answer(connect, hooked(PLAIN))).status == 401
    assert len(service.inbox.taken) == 1


async def test_a_valid_token_is_enough_whatever_is_signed(service: Service, connect: Open) -> None:
    for headers in ({}, RIGHT, WRONG["old"], fields(secret=ANOTHER)):
        assert (await answer(connect, request(*said(headers), body=EVENT))).status == 202
    assert {hint.sender for hint in service.inbox.taken} == {"etl"}
    reply = await answer(connect, request(*said(RIGHT), body=EVENT, token="wrong"))  # noqa: S106 - a wrong one
    assert reply.json["accepted"] == 1
    assert service.inbox.taken[-1].sender == "hook"


async def test_secrets_are_rotated_by_writing_their_file_and_no_request_is_refused_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text(f"{WEBHOOK}\n")
    watched = WatchedTokenFile(file, STANDARD)
    service = Service(senders=signers(watched))
    refused: list[Reply] = []
    number = 0
    async with listening(service.application()) as connect, connect() as wire:

        async def told(*secrets: str) -> None:
            """By a sender that signs with the first of these and, for as long as it changes, with the second too."""
            nonlocal number
            number += 1
            both = [fields(secret=secret, message=f"m{number}") for secret in secrets]
            listed = " ".join(one["webhook-signature"] for one in both)
            await wire.send(request(*said({**both[0], "webhook-signature": listed}), body=EVENT, token=None))
            reply = await wire.reply()
            refused.extend([reply] if reply.status != 202 else [])

        for content in (f"{WEBHOOK}\n{ANOTHER}\n", f"{WEBHOOK}\nnonsense\n", "", f"{ANOTHER}\n"):
            await told(WEBHOOK, ANOTHER)
            file.write_text(content)
            watched.reload_if_changed()
            await told(ANOTHER, WEBHOOK)
        await told(ANOTHER)
        assert refused == []
        await told(WEBHOOK)
        assert [reply.status for reply in refused] == [401]


async def test_a_secret_that_two_senders_come_to_share_is_nobodys_until_it_is_ones_again(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("hook", "other")}
    for name, secret in (("hook", WEBHOOK), ("other", ANOTHER)):
        files[name].write_text(secret)
    watched = {name: WatchedTokenFile(file, STANDARD) for name, file in files.items()}
    senders = Senders(
        Keyring({name: PartyTokens({}, file, STANDARD) for name, file in watched.items()}),
        {name: Sender(name, {"theirs": "prod"}) for name in files},
        signing=dict.fromkeys(files, MANNERS[STANDARD]),
        clock=Clock(),
    )
    service = Service(senders=senders)
    async with listening(service.application()) as connect:

        async def statuses() -> list[int]:
            return [(await sent(connect, fields(secret=secret))).status for secret in (WEBHOOK, ANOTHER)]

        assert await statuses() == [202, 202]
        for content, expected in ((f"{ANOTHER}\n{WEBHOOK}", [401, 202]), (f"{ANOTHER}\n# {WEBHOOK}", [202, 202])):
            files["other"].write_text(content)
            with capture_logs() as logs:
                watched["other"].reload_if_changed()
                assert await statuses() == expected
            assert [entry["log_level"] for entry in logs].count("error") == int(401 in expected)
            assert "whsec" not in str(logs)


async def test_while_the_service_drains_it_is_503_whatever_is_signed(service: Service, connect: Open) -> None:
    service.readiness.drain()
    assert_problem(await answer(connect, hooked()), 503)


async def test_a_signature_is_enough_for_a_web_page_too(connect: Open) -> None:
    assert (await answer(connect, hooked(EVENT, "Origin: https://ours.example"))).status == 202


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(service: Service, connect: Open) -> None:
    with capture_logs() as logs:
        async with connect() as wire:
            await wire.send(hooked()[:-5])
            await anyio.sleep(0.05)
        await anyio.sleep(0.05)
        assert (await answer(connect, hooked(message="msg_2"))).status == 202
    assert (len(service.inbox.taken), logs) == (1, [])


async def test_where_nobody_is_configured_signatures_are_passed_over() -> None:
    service = Service(senders=anonymous_senders(["prod"]))
    async with listening(service.application()) as connect:
        reply = await answer(connect, hooked(EVENT.replace(b"theirs", b"prod")))
    assert (reply.status, service.inbox.taken[0].sender) == (202, "anonymous")


ORIGIN = "eventemitter.example.com"
POLARIS = "/v1/theirs/namespaces/sales/tables/orders/notifications"


async def asked(connect: Open, *fields: str, path: str = "/v1/events") -> Reply:
    return await answer(connect, request(*fields, method="OPTIONS", path=path, token=None))


@pytest.mark.parametrize("more", [(), ("WebHook-Request-Rate: 120",), ("WebHook-Request-Callback: https://x/?k=1",)])
async def test_an_origin_may_send_and_any_number_of_requests(connect: Open, more: tuple[str, ...]) -> None:
    reply = await asked(connect, f"WebHook-Request-Origin: {ORIGIN}", *more)
    assert (reply.status, reply.content) == (200, b"")
    assert reply.headers["webhook-allowed-origin"] == ORIGIN
    assert reply.headers["webhook-allowed-rate"] == "*"
    assert reply.headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize(("rates", "rate"), [({"etl": 600}, "600"), ({"etl": 600, "hook": 60, "polaris": 90}, "60")])
async def test_the_rate_is_the_least_that_a_sender_has(rates: Mapping[str, int], rate: str) -> None:
    async with listening(Service(senders=signers(rates=rates)).application()) as connect:
        reply = await asked(connect, f"WEBHOOK-REQUEST-ORIGIN: {ORIGIN}")
    assert reply.headers["webhook-allowed-rate"] == rate


async def test_without_an_origin_it_says_what_may_be_done(connect: Open) -> None:
    reply = await asked(connect)
    assert (reply.status, reply.content, reply.headers["allow"]) == (204, b"", "POST, OPTIONS")
    assert not [name for name in reply.headers if name.startswith("webhook-")]


@pytest.mark.parametrize(
    "fields",
    [
        (f"WebHook-Request-Origin: {ORIGIN}, other.example.com",),
        (f"WebHook-Request-Origin: {ORIGIN}", "WebHook-Request-Origin: other.example.com"),
        (f"WebHook-Request-Origin: {ORIGIN}", f"WebHook-Request-Origin: {ORIGIN}"),
        (f"WebHook-Request-Origin: {ORIGIN},other",),
        ("WebHook-Request-Origin:",),
        ("WebHook-Request-Origin: two words",),
        (f"WebHook-Request-Origin: {'x' * 256}",),
        ("WebHook-Request-Origin: exämple.com",),
        ("WebHook-Request-Origin: x\tSet-Cookie: y",),
    ],
)
async def test_what_is_no_origin_is_refused_and_not_repeated(connect: Open, fields: tuple[str, ...]) -> None:
    reply = await asked(connect, *fields)
    assert_problem(reply, 400)
    assert not [name for name in reply.headers if name.startswith("webhook-")]
    assert b"example" not in reply.content


async def test_the_longest_origin_is_repeated(connect: Open) -> None:
    longest = "x" * 255
    assert (await asked(connect, f"WebHook-Request-Origin: {longest}")).headers["webhook-allowed-origin"] == longest


async def test_no_web_page_is_permitted_by_it(connect: Open) -> None:
    """A browser asks before it sends another type than plain text (Fetch, section 4.8)."""
    preflight = ("Origin: https://evil.example", "Access-Control-Request-Method: POST")
    for headers in (preflight, (*preflight, f"WebHook-Request-Origin: {ORIGIN}")):
        reply = await asked(connect, *headers)
        assert not [name for name in reply.headers if name.startswith("access-control-")]


async def test_it_costs_nothing_and_a_connection_goes_on_after_it(service: Service, connect: Open) -> None:
    handshake = request(f"WebHook-Request-Origin: {ORIGIN}", method="OPTIONS", token=None)
    with capture_logs() as logs:
        async with connect() as wire:
            await wire.send(handshake, request(method="OPTIONS"), handshake, request(body=EVENT))
            assert [(await wire.reply()).status for _ in range(4)] == [200, 204, 200, 202]
    assert (logs, len(service.inbox.taken)) == ([], 1)


async def test_elsewhere_nobody_is_asked(connect: Open) -> None:
    reply = await asked(connect, f"WebHook-Request-Origin: {ORIGIN}", path=POLARIS)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert (await asked(connect, f"WebHook-Request-Origin: {ORIGIN}", path="/livez")).status == 405


async def test_where_no_sender_is_configured_nobody_is_permitted() -> None:
    async with listening(Service(senders=anonymous_senders(["prod"])).application()) as connect:
        for fields in ((), (f"WebHook-Request-Origin: {ORIGIN}",)):
            reply = await asked(connect, *fields)
            assert_problem(reply, 405)
            assert reply.headers["allow"] == "POST"


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
async def test_a_sender_that_shows_nothing_is_no_web_page(origin: str) -> None:
    service = Service(senders=Senders(Keyring({}), {}, Sender("local", {"theirs": "prod"})))
    async with listening(service.application()) as connect:
        sent = request("Content-Type: text/plain", f"Origin: {origin}", body=EVENT, token=None)
        assert (await answer(connect, sent)).status == 403
        assert not service.inbox.entered.is_set()
        assert (await answer(connect, request(body=EVENT, token=None))).status == 202
        assert (await asked(connect, f"WebHook-Request-Origin: {ORIGIN}")).status == 200
    assert service.inbox.taken[0].sender == "local"
