"""Events of a stream of JetStream: acknowledged once they are on disk, and so none is lost."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from sfn.clock import SystemClock
from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Transient
from sfn.inbox.model import InboxConfig
from sfn.inbox.sqlite import SqliteInbox
from tests.integration.listening import Inbox
from tests.integration.pulling import LIMIT, Place, event, names, subjects
from tests.integration.waiting import until
from tests.servers.nats import Nats

BUSY = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=0.1)
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def place(nats: Nats) -> Place:
    return Place(nats.url).kept()


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
    said = ["pull source away", "pull source connected", "pull source works again"]
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
