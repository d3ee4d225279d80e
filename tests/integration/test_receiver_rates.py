"""How often a sender may send: beyond that it is told when to come again, and nothing of it is taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from sfn.errors import ICEBERG_ERROR_TYPES
from sfn.formats.event import Sender
from sfn.http.senders import Keyring, Senders
from tests.integration.listening import CHUNKED, EVENT, LIMIT, Open, Service, answer, assert_problem, listening, request
from tests.integration.signing import HMAC, TEXT, fields, hooked, said, signers

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
async def connect(world: World) -> AsyncIterator[Open]:
    async with listening(world.service.application()) as connect:
        yield connect


async def test_what_comes_too_often_is_429_and_says_when_to_come_again(world: World, connect: Open) -> None:
    replies = [await answer(connect, request(body=EVENT)) for _ in range(3)]
    assert [reply.status for reply in replies] == [202, 202, 429]
    assert_problem(replies[2], 429)
    assert replies[2].headers["retry-after"] == "3"
    assert len(world.service.inbox.taken) == 1
    world.now[0] += 2.9
    assert (await answer(connect, request(body=EVENT))).headers["retry-after"] == "1"
    world.now[0] += 0.2
    assert (await answer(connect, request(body=EVENT))).status == 202


async def test_a_sender_that_shows_a_token_learns_it_before_its_body(world: World, connect: Open) -> None:
    for _ in range(2):
        await answer(connect, request(body=EVENT))
    for sent in (request(f"Content-Length: {LIMIT + 1}"), request(CHUNKED), request("Content-Encoding: x", body=b"")):
        async with connect() as wire:
            await wire.send(sent)
            assert_problem(await wire.reply(), 429)
    assert len(world.service.inbox.taken) == 1


async def test_a_sender_that_signs_is_known_first(world: World, connect: Open) -> None:
    for _ in range(3):
        wrong = request(*said(fields()), body=EVENT + b" ", token=None)
        assert (await answer(connect, wrong)).status == 401
    assert (await answer(connect, hooked())).status == 202
    reply = await answer(connect, hooked(message="msg_2"))
    assert (reply.status, reply.headers["retry-after"]) == (429, "6")
    assert (await answer(connect, request(*said(fields()), body=EVENT + b" ", token=None))).status == 401
    world.now[0] += 6.1
    assert (await answer(connect, hooked(message="msg_2"))).json["duplicates"] == 1


async def test_one_senders_haste_is_not_anothers(connect: Open) -> None:
    for _ in range(9):
        await answer(connect, request(body=EVENT))
        unlimited = request(*said(fields(EVENT, TEXT, HMAC)), body=EVENT, token=None)
        assert (await answer(connect, unlimited)).status == 202
    assert (await answer(connect, hooked())).status == 202


async def test_who_is_nobody_is_told_of_no_limit(connect: Open) -> None:
    replies = [await answer(connect, request(body=EVENT, token="wrong")) for _ in range(30)]  # noqa: S106 - a wrong one
    assert {reply.status for reply in replies} == {401}


async def test_a_notification_is_told_in_icebergs_manner(connect: Open) -> None:
    replies = [await answer(connect, request(path=POLARIS, body=b"{}")) for _ in range(3)]
    error = replies[2].json["error"]
    assert (replies[2].status, error["code"], error["type"]) == (429, 429, ICEBERG_ERROR_TYPES[429])
    assert replies[2].headers["retry-after"] == "3"


async def test_it_is_counted_and_logged_with_its_sender_but_not_each_time(world: World, connect: Open) -> None:
    with capture_logs() as logs:
        for _ in range(6):
            await answer(connect, request(body=EVENT))
    assert logs == [{"event": "events refused", "log_level": "warning", "sender": "etl", "status": 429, "left_out": 0}]
    refused = world.service.metrics.registry.get_sample_value("sfn_requests_refused_total", {"status": "429"})
    assert refused == 4


async def test_the_sender_that_shows_nothing_has_a_limit_too() -> None:
    senders = Senders(Keyring({}), {}, Sender("local", {"theirs": "prod"}), rates={"local": 1}, monotonic=lambda: 0.0)
    service = Service(senders=senders)
    async with listening(service.application()) as connect:
        assert [(await answer(connect, request(body=EVENT, token=None))).status for _ in range(2)] == [202, 429]
