"""Events of core NATS: what is not heard is lost, and found by a look at the catalogs."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.errors import ErrorScope, Transient
from sfn.pull.nats import MAX_PENDING
from tests.integration.listening import Inbox
from tests.integration.pulling import LIMIT, Place, event, subjects
from tests.integration.waiting import until
from tests.servers.nats import Nats

BUSY = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=0.1)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def place(nats: Nats) -> Place:
    return Place(nats.url)


async def test_what_is_published_is_taken_in_its_order(place: Place, inbox: Inbox) -> None:
    async with place.begun(inbox) as fetching:
        await place.publish(*map(event, range(100)))
        await until(lambda: len(inbox.taken) == 100)
        assert fetching.received("accepted") == 100
    assert subjects(inbox) == [f"t{number}" for number in range(100)]
    assert {hint.sender for hint in inbox.taken} == {"pull.events"}


async def test_a_wildcard_brings_what_is_published_below_it(place: Place, inbox: Inbox) -> None:
    above = Place(place.url, f"{place.subject}.>")
    async with above.begun(inbox):
        await Place(place.url, f"{place.subject}.a.b").publish(event(1))
        await until(lambda: inbox.taken)
    assert subjects(inbox) == ["t1"]


async def test_headers_say_what_a_message_is_as_those_of_a_request_do(place: Place, inbox: Inbox) -> None:
    async with place.begun(inbox):
        await place.publish(b"x", headers={"Content-Type": "text/x; größe"})
        await place.publish(b"y")
        await until(lambda: len(inbox.kept) == 2)
    assert [kept.content_type for kept in inbox.kept] == [
        "text/x; größe".encode().decode("latin-1"),
        "application/json",
    ]


async def test_the_headers_of_a_cloudevent_are_kept_with_it(place: Place, inbox: Inbox) -> None:
    attributes = {"ce-specversion": "1.0", "ce-id": "e1", "ce-source": "/ci", "ce-type": "commit"}
    async with place.fetched(inbox):
        await place.publish(b'{"namespace": ["a"], "name": 7}', headers=attributes)
        await until(lambda: inbox.kept)
    (kept,) = inbox.kept
    assert kept.content_type == "application/cloudevents+json"
    assert (json.loads(kept.body)["id"], json.loads(kept.body)["data"]["name"]) == ("e1", 7)


async def test_replicas_of_one_group_share_the_messages_and_another_group_has_them_all(
    place: Place, inbox: Inbox
) -> None:
    twin, other = Inbox(), Inbox()
    elsewhere = Place(place.url, place.subject, group="other")
    async with place.begun(inbox), place.begun(twin), elsewhere.begun(other):
        await place.publish(*map(event, range(200)))
        await until(lambda: len(inbox.taken) + len(twin.taken) >= 200 and len(other.taken) == 200)
    assert sorted(subjects(inbox) + subjects(twin)) == sorted(subjects(other))
    assert inbox.taken
    assert twin.taken


async def test_what_the_inbox_does_not_take_stays_in_hand_until_it_does(place: Place, inbox: Inbox) -> None:
    async with place.begun(inbox) as fetching:
        inbox.failure = BUSY
        await place.publish(event(1), event(2))
        await until(lambda: fetching.received("unavailable", "none") >= 6)
        inbox.failure = None
        await until(lambda: len(inbox.taken) == 2)
    assert sorted(subjects(inbox)) == ["t1", "t2"]


async def test_what_there_is_no_room_for_is_counted_and_the_catalogs_are_looked_at(place: Place, inbox: Inbox) -> None:
    published = 5_000
    async with place.begun(inbox) as fetching:
        inbox.gate = anyio.Event()
        with capture_logs() as logs:
            await place.publish(*map(event, range(published)))
            await anyio.sleep(0.5)
            inbox.gate.set()
            await until(lambda: "prod" in subjects(inbox))
            # None of those that waited is lost.
            await until(lambda: len(inbox.taken) + fetching.dropped == published + 1)
    taken = len(inbox.taken) - 1
    assert fetching.dropped
    assert MAX_PENDING <= taken < published
    assert sum(record["count"] for record in logs if record["event"] == "pulled messages dropped") == fetching.dropped


async def test_what_was_dropped_has_the_catalogs_looked_at_once_the_inbox_answers_again(
    place: Place, inbox: Inbox
) -> None:
    async with place.begun(inbox) as fetching:
        inbox.gate = anyio.Event()
        await place.publish(*map(event, range(2_000)))
        inbox.failure = BUSY
        inbox.gate.set()
        await until(lambda: fetching.received("unavailable", "none") >= 5)
        assert subjects(inbox) == []
        inbox.failure = None
        await until(lambda: subjects(inbox).count("prod") == 1)


async def test_after_a_loss_of_the_connection_the_catalogs_are_looked_at(inbox: Inbox) -> None:
    with Nats() as server:
        place = Place(server.url)
        async with place.begun(inbox) as fetching:
            await place.publish(event(1))
            await until(lambda: len(inbox.taken) == 1)
            server.stop()
            await until(lambda: not fetching.is_connected)
            server.start()
            await until(lambda: len(inbox.taken) == 2)
            await place.publish(event(2))
            await until(lambda: len(inbox.taken) == 3)
    assert subjects(inbox) == ["t1", "prod", "t2"]


async def test_a_connection_that_was_never_lost_asks_for_no_look(place: Place, inbox: Inbox) -> None:
    async with place.begun(inbox):
        await place.publish(event(1))
        await until(lambda: inbox.taken)
        await anyio.sleep(0.1)
    assert subjects(inbox) == ["t1"]


async def test_of_catalogs_that_nobody_can_ask_a_loss_is_an_error_in_the_log(inbox: Inbox) -> None:
    def lost() -> list[MutableMapping[str, Any]]:
        return [record for record in logs if record["event"] == "events lost"]

    with Nats() as server, capture_logs() as logs:
        place = Place(server.url)
        async with place.fetched(inbox, told=frozenset({"prod"})) as fetching:
            await until(lambda: len(lost()) == 1)
            server.stop()
            await until(lambda: not fetching.is_connected)
            server.start()
            await until(lambda: len(lost()) == 2)
    assert [(record["sender"], record["catalogs"]) for record in lost()] == 2 * [("pull.events", ["prod"])]
    assert inbox.taken == []


async def test_what_nobody_understands_is_kept_and_what_is_too_large_looked_at(place: Place, inbox: Inbox) -> None:
    async with place.begun(inbox) as fetching:
        await place.publish(b"nonsense", event(1, padding="x" * LIMIT), event(2))
        await until(lambda: len(inbox.taken) == 2)
        assert fetching.received("refused", "none") == 2
    assert [kept.body for kept in inbox.kept] == [b"nonsense"]
    assert subjects(inbox) == ["prod", "t2"]


async def test_a_source_is_connected_for_as_long_as_it_runs(place: Place, inbox: Inbox) -> None:
    async with place.begun(inbox) as fetching:
        assert fetching.is_connected
        fetching.stop.set()
        await fetching.ended.wait()
        assert not fetching.is_connected


async def test_a_stop_takes_what_was_delivered_before_it(place: Place, inbox: Inbox) -> None:
    async with place.begun(inbox) as fetching:
        inbox.gate = anyio.Event()
        await place.publish(*map(event, range(MAX_PENDING)))
        await anyio.sleep(0.3)
        fetching.stop.set()
        inbox.gate.set()
        await fetching.ended.wait()
        # Nobody is asked for what comes later.
        await place.publish(event("later"))
    assert subjects(inbox) == [f"t{number}" for number in range(MAX_PENDING)]
    assert fetching.dropped == 0
