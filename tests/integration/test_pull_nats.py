"""Events from core NATS and JetStream."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import MutableMapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio
import pytest
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from sfn.clock import SystemClock
from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Transient
from sfn.inbox.model import InboxConfig
from sfn.inbox.sqlite import SqliteInbox
from sfn.pull import SourceUnavailable
from sfn.pull.nats import MAX_PENDING, NatsServer
from tests.servers.nats import Nats
from tests.support.listener import Inbox
from tests.support.processes import until
from tests.support.pull_source import LIMIT, Place, event, names, subjects

# Durable consumers.


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


async def test_a_consumer_that_somebody_deleted_is_made_again(place: Place, inbox: Inbox) -> None:
    await place.make_stream()
    async with place.fetched(inbox):
        await place.publish(event(1))
        await place.until_acknowledged(1)
        async with place.client() as client:
            assert place.durable is not None
            await client.jetstream().delete_consumer(place.durable.stream, place.durable.name)
        await place.publish(event(2))
        await until(lambda: len(inbox.taken) == 2)
        await place.until_acknowledged(2)


async def test_the_consumer_that_is_made_keeps_everything_until_it_is_acknowledged(place: Place, inbox: Inbox) -> None:
    await place.make_stream()
    async with place.fetched(inbox):
        config = (await place.consumer()).config
    assert (config.deliver_policy, config.ack_policy, config.max_deliver) == ("all", "explicit", -1)
    assert (config.ack_wait, config.max_ack_pending, config.filter_subject) == (60.0, 1_000, place.subject)


@pytest.mark.parametrize(
    ("consumer", "told"),
    [
        ({"deliver_subject": "x"}, "expected a consumer sfn of the type pull, found a consumer of the type push"),
        ({"ack_policy": "none"}, "expected a consumer sfn with explicit acknowledgements, found none"),
        ({"ack_policy": "all"}, "expected a consumer sfn with explicit acknowledgements, found all"),
        (
            {"max_deliver": 5},
            "expected a consumer sfn that delivers a message until it is acknowledged, found max_deliver 5",
        ),
    ],
)
async def test_a_consumer_of_another_kind_is_left_alone(
    place: Place, inbox: Inbox, consumer: dict[str, object], told: str
) -> None:
    await place.make_stream(**consumer)
    with capture_logs() as logs:
        async with place.fetched(inbox, connected=False):
            await place.publish(event(1))
            await until(lambda: logs)
    assert told in logs[0]["error"]
    assert "pull.events.durable" in logs[0]["error"]
    assert "set another name" in logs[0]["error"]
    assert inbox.taken == []


async def test_a_consumer_that_falls_silent_is_asked_anew_by_another_connection(
    place: Place, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfn.pull.nats.SILENT", 0.5)
    await place.make_stream(ack_wait=1.0)
    assert place.durable is not None
    known = (f"STREAM.INFO.{place.durable.stream}", f"CONSUMER.INFO.{place.durable.stream}.sfn")
    async with place.client() as client:
        answers = {f"$JS.API.{what}": (await client.request(f"$JS.API.{what}")).data for what in known}
    with Nats(jetstream=False) as server, capture_logs() as logs:
        # One that says what the other server says, and answers no request for messages.
        mute = Place(server.url, place.subject, place.durable)
        asked: list[str] = []

        async def answer(message: Msg) -> None:
            asked.append(message.subject)
            if message.subject in answers:
                await message.respond(answers[message.subject])

        async with mute.client() as client:
            await client.subscribe("$JS.API.>", cb=answer)
            await client.flush()
            async with mute.fetched(inbox):
                await until(lambda: len(asked) == 6)
    assert "expected a heartbeat of the consumer sfn every 5 s, found none" in logs[1]["error"]
    assert asked[:3] == asked[3:]


async def test_what_came_before_a_request_ended_badly_is_handed_on(place: Place) -> None:
    await place.make_stream(ack_wait=60.0)
    assert place.durable is not None
    async with NatsServer(place.terms).connect() as feed:
        with anyio.move_on_after(1.5):
            await feed.next()
        # Nobody looks while a message comes, and then the end of the request that it came by.
        await place.publish(event(1))
        async with place.client() as client:
            await client.jetstream().delete_consumer(place.durable.stream, place.durable.name)
        await anyio.sleep(0.3)
        assert [message.body for message in await feed.next()] == [event(1)]
        for _ in range(2):
            with pytest.raises(SourceUnavailable) as away:
                await feed.next()
            assert "found 409 Consumer Deleted" in str(away.value)


# Core NATS.


BUSY = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=0.1)


@pytest.fixture
def core_place(nats: Nats) -> Place:
    return Place(nats.url)


async def test_what_is_published_is_taken_in_its_order(core_place: Place, inbox: Inbox) -> None:
    async with core_place.begun(inbox) as fetching:
        await core_place.publish(*map(event, range(100)))
        await until(lambda: len(inbox.taken) == 100)
        assert fetching.received("accepted") == 100
    assert subjects(inbox) == [f"t{number}" for number in range(100)]
    assert {hint.sender for hint in inbox.taken} == {"pull.events"}


async def test_a_wildcard_brings_what_is_published_below_it(core_place: Place, inbox: Inbox) -> None:
    above = Place(core_place.url, f"{core_place.subject}.>")
    async with above.begun(inbox):
        await Place(core_place.url, f"{core_place.subject}.a.b").publish(event(1))
        await until(lambda: inbox.taken)
    assert subjects(inbox) == ["t1"]


async def test_headers_say_what_a_message_is_as_those_of_a_request_do(core_place: Place, inbox: Inbox) -> None:
    async with core_place.begun(inbox):
        await core_place.publish(b"x", headers={"Content-Type": "text/x; größe"})
        await core_place.publish(b"y")
        await until(lambda: len(inbox.kept) == 2)
    assert [kept.content_type for kept in inbox.kept] == [
        "text/x; größe".encode().decode("latin-1"),
        "application/json",
    ]


async def test_the_headers_of_a_cloudevent_are_kept_with_it(core_place: Place, inbox: Inbox) -> None:
    attributes = {"ce-specversion": "1.0", "ce-id": "e1", "ce-source": "/ci", "ce-type": "commit"}
    async with core_place.fetched(inbox):
        await core_place.publish(b'{"namespace": ["a"], "name": 7}', headers=attributes)
        await until(lambda: inbox.kept)
    (kept,) = inbox.kept
    assert kept.content_type == "application/cloudevents+json"
    assert (json.loads(kept.body)["id"], json.loads(kept.body)["data"]["name"]) == ("e1", 7)


async def test_replicas_of_one_group_share_the_messages_and_another_group_has_them_all(
    core_place: Place, inbox: Inbox
) -> None:
    twin, other = Inbox(), Inbox()
    elsewhere = Place(core_place.url, core_place.subject, group="other")
    async with core_place.begun(inbox), core_place.begun(twin), elsewhere.begun(other):
        await core_place.publish(*map(event, range(200)))
        await until(lambda: len(inbox.taken) + len(twin.taken) >= 200 and len(other.taken) == 200)
    assert sorted(subjects(inbox) + subjects(twin)) == sorted(subjects(other))
    assert inbox.taken
    assert twin.taken


async def test_what_the_inbox_does_not_take_stays_in_hand_until_it_does(core_place: Place, inbox: Inbox) -> None:
    async with core_place.begun(inbox) as fetching:
        inbox.failure = BUSY
        await core_place.publish(event(1), event(2))
        await until(lambda: fetching.received("unavailable", "none") >= 6)
        inbox.failure = None
        await until(lambda: len(inbox.taken) == 2)
    assert sorted(subjects(inbox)) == ["t1", "t2"]


async def test_what_there_is_no_room_for_is_counted_and_the_catalogs_are_looked_at(
    core_place: Place, inbox: Inbox
) -> None:
    published = 5_000
    async with core_place.begun(inbox) as fetching:
        inbox.gate = anyio.Event()
        with capture_logs() as logs:
            await core_place.publish(*map(event, range(published)))
            for _ in range(20):  # in steps, because a pause of the machine costs one of them
                await anyio.sleep(0.025)
            inbox.gate.set()
            await until(lambda: "prod" in subjects(inbox))
            # None of those that waited is lost.
            await until(lambda: len(inbox.taken) + fetching.dropped == published + 1)
    taken = len(inbox.taken) - 1
    assert fetching.dropped
    assert MAX_PENDING <= taken < published
    assert sum(record["count"] for record in logs if record["event"] == "pulled messages dropped") == fetching.dropped


async def test_what_was_dropped_has_the_catalogs_looked_at_once_the_inbox_answers_again(
    core_place: Place, inbox: Inbox
) -> None:
    async with core_place.begun(inbox) as fetching:
        inbox.gate = anyio.Event()
        await core_place.publish(*map(event, range(2_000)))
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


async def test_a_connection_that_was_never_lost_asks_for_no_look(core_place: Place, inbox: Inbox) -> None:
    async with core_place.begun(inbox):
        await core_place.publish(event(1))
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


async def test_what_nobody_understands_is_kept_and_what_is_too_large_looked_at(core_place: Place, inbox: Inbox) -> None:
    async with core_place.begun(inbox) as fetching:
        await core_place.publish(b"nonsense", event(1, padding="x" * LIMIT), event(2))
        await until(lambda: len(inbox.taken) == 2)
        assert fetching.received("refused", "none") == 2
    assert [kept.body for kept in inbox.kept] == [b"nonsense"]
    assert subjects(inbox) == ["prod", "t2"]


async def test_a_source_is_connected_for_as_long_as_it_runs(core_place: Place, inbox: Inbox) -> None:
    async with core_place.begun(inbox) as fetching:
        assert fetching.is_connected
        fetching.stop.set()
        await fetching.ended.wait()
        assert not fetching.is_connected


async def test_a_stop_takes_what_was_delivered_before_it(core_place: Place, inbox: Inbox) -> None:
    async with core_place.begun(inbox) as fetching:
        inbox.gate = anyio.Event()
        await core_place.publish(*map(event, range(MAX_PENDING)))
        await anyio.sleep(0.3)
        fetching.stop.set()
        inbox.gate.set()
        await fetching.ended.wait()
        # Nobody is asked for what comes later.
        await core_place.publish(event("later"))
    assert subjects(inbox) == [f"t{number}" for number in range(MAX_PENDING)]
    assert fetching.dropped == 0


# JetStream.


SPAWN = multiprocessing.get_context("spawn")


async def test_what_was_published_before_the_consumer_was_there_is_fetched_too(place: Place, inbox: Inbox) -> None:
    await place.make_stream()
    await place.publish(event(1), event(2))
    async with place.fetched(inbox) as fetching:
        await place.publish(event(3))
        await until(lambda: len(inbox.taken) == 3)
        assert subjects(inbox) == names(1, 2, 3)
        assert {(hint.sender, hint.event_id) for hint in inbox.taken} == {("pull.events", f"e{n}") for n in (1, 2, 3)}
        assert fetching.received("accepted") == 3
        await place.until_acknowledged(3)


async def test_events_end_in_the_file_of_the_inbox(place: Place, tmp_path: Path) -> None:
    await place.make_stream()
    async with SqliteInbox.opened(tmp_path / "inbox.db", InboxConfig(), SystemClock()) as inbox:
        async with place.fetched(inbox):
            await place.publish(*map(event, range(1, 201)))
            await place.until_acknowledged(200)
        again = [
            Notification(TableIdentifier("prod", ("sales",), f"t{n}"), "pull.events", f"e{n}") for n in range(1, 201)
        ]
        assert await inbox.put(again) == PutResult(0, 200)


async def test_nothing_is_acknowledged_while_the_inbox_has_not_taken_it(place: Place, inbox: Inbox) -> None:
    await place.make_stream()
    inbox.gate = anyio.Event()
    async with place.fetched(inbox):
        await place.publish(event(1), event(2))
        await inbox.entered.wait()
        with anyio.fail_after(10):
            while (await place.consumer()).num_ack_pending != 2:  # noqa: ASYNC110 - the server knows
                await anyio.sleep(0.02)
        assert await place.acknowledged() == 0
        inbox.gate.set()
        await place.until_acknowledged(2)
    assert subjects(inbox) == names(1, 2)


async def test_what_the_inbox_does_not_take_comes_again(place: Place, inbox: Inbox) -> None:
    await place.make_stream()
    inbox.failure = BUSY
    async with place.fetched(inbox) as fetching:
        await place.publish(event(1))
        await until(lambda: fetching.received("unavailable", "none") >= 3)
        assert await place.acknowledged() == 0
        inbox.failure = None
        await place.until_acknowledged(1)
    assert subjects(inbox) == names(1)


class Silent:
    """An inbox that takes a note, says so, and never answers."""

    def __init__(self, inbox: SqliteInbox, answer: Connection) -> None:
        self._inbox, self._answer = inbox, answer

    async def put(self, notes: Sequence[InboxMessage]) -> PutResult:
        await self._inbox.put(notes)
        self._answer.send("on disk")
        await anyio.sleep_forever()
        raise AssertionError


def take_and_hang(place: Place, database: Path, answer: Connection) -> None:
    """Fetch into an inbox, until killed between the disk and the acknowledgement."""

    async def run() -> None:
        async with (
            SqliteInbox.opened(database, InboxConfig(), SystemClock()) as inbox,
            place.fetched(Silent(inbox, answer)),
        ):
            await anyio.sleep_forever()

    anyio.run(run)


async def test_what_was_not_acknowledged_when_the_process_was_killed_comes_again_as_a_duplicate(
    place: Place, tmp_path: Path
) -> None:
    await place.make_stream(ack_wait=1.0)
    await place.publish(event(1))
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=take_and_hang, args=(place, tmp_path / "inbox.db", theirs), daemon=True)
    process.start()
    try:
        await until(ours.poll, 60)
    finally:
        process.kill()
        process.join()
    assert await place.acknowledged() == 0
    async with (
        SqliteInbox.opened(tmp_path / "inbox.db", InboxConfig(), SystemClock()) as inbox,
        place.fetched(inbox) as fetching,
    ):
        await place.until_acknowledged(1)
        assert (fetching.received("accepted"), fetching.received("duplicate")) == (0, 1)


async def test_nothing_is_lost_when_the_server_is_killed_and_started_again(inbox: Inbox) -> None:
    with Nats() as server:
        place = Place(server.url).kept()
        # An acknowledgement that the server had no time to write has its message come again.
        await place.make_stream(ack_wait=1.0)
        async with place.fetched(inbox) as fetching:
            await place.publish(*map(event, range(1, 51)))
            server.stop()
            await until(lambda: not fetching.is_connected)
            server.start()
            await place.publish(*map(event, range(51, 101)))
            await until(lambda: len(inbox.taken) == 100)
            await until(lambda: fetching.is_connected)
            await place.until_acknowledged(100)
    assert sorted(subjects(inbox)) == sorted(names(*range(1, 101)))


async def test_a_service_that_comes_before_its_server_or_its_stream_waits_for_them(inbox: Inbox) -> None:
    server = Nats()
    place = Place(server.url).kept()
    with capture_logs() as logs:
        async with place.fetched(inbox, connected=False) as fetching:
            await until(lambda: logs)
            with server:
                await place.make_stream()
                await place.publish(event(1))
                await until(lambda: inbox.taken)
                assert fetching.is_connected
                await until(lambda: len(logs) == 3)
    said = ["pull source unreachable", "pull source connected", "pull source recovered"]
    assert [record["event"] for record in logs] == said
    assert f"expected an answer from {server.url}, found Connection refused" in logs[0]["error"]


async def test_what_nobody_understands_is_kept_and_acknowledged(place: Place, inbox: Inbox) -> None:
    await place.make_stream()
    async with place.fetched(inbox) as fetching:
        await place.publish(b"nonsense", b'{"name": "x"}', event(1))
        await place.until_acknowledged(3)
        assert fetching.received("refused", "none") == 2
    assert [(kept.sender, kept.path, kept.body) for kept in inbox.kept] == [
        ("pull.events", "/v1/events", b"nonsense"),
        ("pull.events", "/v1/events", b'{"name": "x"}'),
    ]
    assert subjects(inbox) == names(1)


async def test_what_is_too_large_has_the_catalogs_looked_at_instead(place: Place, inbox: Inbox) -> None:
    await place.make_stream()
    async with place.fetched(inbox):
        await place.publish(event(1, padding="x" * LIMIT))
        await place.until_acknowledged(1)
    assert (subjects(inbox), inbox.kept) == (["prod"], [])


async def test_what_was_fetched_and_not_looked_at_is_anothers_at_once_after_a_stop(place: Place, inbox: Inbox) -> None:
    await place.make_stream()
    inbox.gate = anyio.Event()
    other = Inbox()
    async with place.fetched(inbox) as fetching:
        await place.publish(event(0))
        await inbox.entered.wait()
        await place.publish(*map(event, range(1, 11)))
        await anyio.sleep(0.3)
        fetching.stop.set()
        inbox.gate.set()
        await fetching.ended.wait()
        assert subjects(inbox) == names(0)
        async with place.fetched(other):
            # It would take a minute where nobody gave them back.
            await until(lambda: len(other.taken) == 10, 10)
            await place.until_acknowledged(11)


async def test_a_stop_does_not_wait_for_ever_for_an_inbox_that_hangs(place: Place, inbox: Inbox) -> None:
    await place.make_stream()
    inbox.gate = anyio.Event()
    async with place.fetched(inbox, drain=0.2) as fetching:
        await place.publish(event(1))
        await inbox.entered.wait()
        fetching.stop.set()
        with anyio.fail_after(5):
            await fetching.ended.wait()
    assert await place.acknowledged() == 0


async def test_no_message_is_lost_or_doubled_between_replicas(place: Place, inbox: Inbox) -> None:
    await place.make_stream()
    other = Inbox()
    async with place.fetched(inbox), place.fetched(other):
        await place.publish(*map(event, range(1, 201)))
        await until(lambda: len(inbox.taken) + len(other.taken) >= 200)
        await place.until_acknowledged(200)
    assert sorted(subjects(inbox) + subjects(other)) == sorted(names(*range(1, 201)))


# Lakekeeper.


GOLDEN = Path(__file__).parents[1] / "dialects" / "golden"


def published(name: str) -> bytes:
    """One of its events, of the warehouse that the source knows."""
    event = json.loads((GOLDEN / f"lakekeeper-{name}.json").read_text())
    return json.dumps({**event, "warehouse-id": "theirs"}).encode()


@pytest.mark.parametrize("kept", [False, True], ids=["core", "JetStream"])
async def test_its_events_are_understood_and_a_repeat_is_a_duplicate(nats: Nats, *, kept: bool) -> None:
    inbox, place = Inbox(), Place(nats.url)
    if kept:
        place = place.kept()
        await place.make_stream()
    async with place.fetched(inbox) if kept else place.begun(inbox) as fetching:
        await place.publish(published("updateTable"), published("dropTable"))
        await until(lambda: len(inbox.taken) == 2)
        assert fetching.received("accepted", "lakekeeper") == 2
    commit, drop = inbox.taken
    assert (commit.subject, commit.drop) == (TableIdentifier("prod", ("a", "b"), "orders"), False)
    assert (drop.subject, drop.drop) == (TableIdentifier("prod", ("a", "b"), "orders"), True)
    assert (commit.uuid, drop.uuid) == ("9c12d441-03fe-4693-9a96-a0705ddf69c1",) * 2
    assert commit.event_id is not None
    assert commit.event_id != drop.event_id


async def test_what_another_warehouse_did_is_ignored(nats: Nats) -> None:
    inbox, place = Inbox(), Place(nats.url)
    async with place.begun(inbox) as fetching:
        await place.publish(published("updateTable").replace(b'"theirs"', b'"another"'), published("dropTable"))
        await until(lambda: len(inbox.taken) == 1)
        assert fetching.received("unmapped", "lakekeeper") == 1
    assert inbox.taken[0].drop
