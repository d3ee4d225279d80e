"""The durable consumer of a stream: made where there is none, and told of where it is not what is needed."""

from __future__ import annotations

import anyio
import pytest
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from sfn.pull import SourceUnavailable
from sfn.pull.nats import NatsServer
from tests.integration.listening import Inbox
from tests.integration.pulling import Place, event
from tests.integration.waiting import until
from tests.servers.nats import Nats


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def place(nats: Nats) -> Place:
    return Place(nats.url).kept()


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
        ({"deliver_subject": "x"}, "expected a consumer sfn that is pulled from, found one that pushes"),
        ({"ack_policy": "none"}, "expected a consumer sfn with explicit acknowledgements, found none"),
        ({"ack_policy": "all"}, "expected a consumer sfn with explicit acknowledgements, found all"),
        (
            {"max_deliver": 5},
            "expected a consumer sfn that delivers for as long as nobody acknowledges, found max_deliver 5",
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
    assert "name another one" in logs[0]["error"]
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
    assert "expected a sign of life of the consumer sfn every 5 s, found none" in logs[1]["error"]
    assert asked[:3] == asked[3:]


async def test_what_came_before_a_request_ended_badly_is_handed_on(place: Place) -> None:
    await place.make_stream(ack_wait=60.0)
    assert place.durable is not None
    async with NatsServer(place.terms).connect() as feed:
        with anyio.move_on_after(0.3):
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
