"""An object takes one change a second: whoever comes too soon waits, and not for long."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from email import message_from_bytes
from urllib.parse import unquote

import anyio
import pytest
from aiohttp import web

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Transient
from sfn.storage import Deleted, ErrorKind, Guarantees, PreconditionFailed
from sfn.storage.gcs import IMPOSSIBLE_GENERATION, RETRY_PAUSES
from sfn.storage.object_store import RemoteStore, StoreService
from tests.unit.gcs_server import KEY, TAG, Asked, Server, asking, complaint, refusal, reply, running, xml_complaint

QUICK = (0.01, 0.02)


class Strict:
    """One object, which takes a change only so many seconds after the one before; its condition is looked at later.

    Attributes:
        slow: how many changes came too soon.
    """

    def __init__(self, seconds: float = 1.0) -> None:
        self.slow = 0
        self._seconds, self._changed = seconds, -1000.0
        self._body, self._mark, self._generation, self._last = b"", "", 0, 1_700_000_000_000_000

    async def answer(self, asked: Asked) -> web.StreamResponse:
        if asked.method == "GET":
            return await self._read(asked)
        if anyio.current_time() < self._changed + self._seconds:
            self.slow += 1
            return await complaint(429, "rateLimitExceeded")(asked)
        condition = re.search("ifGenerationMatch=([0-9]+)", asked.path)
        assert condition is not None
        if int(condition[1]) != self._generation:
            return await complaint(412, "conditionNotMet")(asked)
        self._changed = anyio.current_time()
        self._last += 1
        self._generation = 0 if asked.method == "DELETE" else self._last
        if asked.method == "DELETE":
            return await reply(b"", 204)(asked)
        head = f"content-type: {asked.headers['content-type']}\r\n\r\n".encode()
        content = message_from_bytes(head + asked.body).get_payload(1)
        self._body = str(content).encode().rpartition(b"\n\n")[2]
        return await reply({"generation": str(self._generation)})(asked)

    async def _read(self, asked: Asked) -> web.StreamResponse:
        if not self._generation:
            return await xml_complaint(404, "NoSuchKey")(asked)
        return await reply(self._body, x_goog_generation=str(self._generation))(asked)


class Bucket:
    """Objects of that kind, by name."""

    def __init__(self) -> None:
        self.objects: defaultdict[str, Strict] = defaultdict(Strict)

    async def answer(self, asked: Asked) -> web.StreamResponse:
        name = unquote(asked.path.partition("?")[0].rpartition("/")[2])
        if asked.method == "POST":
            head = f"content-type: {asked.headers['content-type']}\r\n\r\n".encode()
            told = message_from_bytes(head + asked.body).get_payload(0)
            name = json.loads(str(told).rpartition("\n\n")[2])["name"]
        return await self.objects[name].answer(asked)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running() as server:
        yield server


async def written(store: RemoteStore, body: bytes, replacing: StoredObject | None) -> StoredObject:
    held = await store.write(KEY, body, replacing)
    assert isinstance(held, StoredObject)
    return held


async def test_a_version_hint_of_two_steps_is_written_and_the_store_is_proven(server: Server) -> None:
    bucket = Bucket()
    server.object = bucket.answer
    async with asking(server, pauses=RETRY_PAUSES) as objects:
        store = RemoteStore(objects, StoreService(IMPOSSIBLE_GENERATION))
        begun = anyio.current_time()
        assert await store.probe(KEY) == Guarantees(swap=True, conditional_delete=True)
        first = await written(store, b"1", None)
        second = await written(store, b"2", first)
        assert await store.read(KEY) == second
        assert await store.write(KEY, b"3", first) == PreconditionFailed()
        assert await store.delete(KEY, second) == Deleted()
        assert anyio.current_time() - begun > 2.0
    assert sum(one.slow for one in bucket.objects.values()) >= 2


async def test_many_who_swap_at_once_lose_nothing(server: Server) -> None:
    server.object = Strict(0.02).answer
    async with asking(server, pauses=(0.03, 0.05, 0.1, 0.2, 0.4)) as objects:
        store = RemoteStore(objects, StoreService(IMPOSSIBLE_GENERATION))
        await written(store, b"0", None)

        async def count_up() -> None:
            turns = 3
            while turns:
                held = await store.read(KEY)
                assert held is not None
                turns -= isinstance(await store.write(KEY, b"%d" % (int(held.body) + 1), held), StoredObject)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(count_up)
        held = await store.read(KEY)
    assert held is not None
    assert held.body == b"12"


async def test_an_object_that_is_never_free_is_given_up_as_one_tables_trouble(server: Server) -> None:
    server.object = complaint(429, "rateLimitExceeded")
    async with asking(server, pauses=QUICK) as objects:
        assert (await refusal(objects.put(KEY, b"", TAG, "0a-1"))).kind is ErrorKind.CHANGED_TOO_OFTEN
        assert (await refusal(objects.delete(KEY, TAG))).kind is ErrorKind.CHANGED_TOO_OFTEN
        assert len(server.requests) == 2 * (1 + len(QUICK))
        with pytest.raises(Transient) as often:
            await RemoteStore(objects, StoreService(IMPOSSIBLE_GENERATION)).write(KEY, b"", None)
        assert often.value.scope is ErrorScope.TABLE
        assert "min_publish_interval" in often.value.remedy


def test_nobody_waits_for_more_than_a_few_seconds() -> None:
    assert sum(RETRY_PAUSES) <= 5.0
    assert min(RETRY_PAUSES) >= 1.0


async def test_whoever_is_asked_to_wait_longer_comes_back_later(server: Server) -> None:
    server.object = complaint(429, "rateLimitExceeded", retry_after="30")
    async with asking(server, pauses=RETRY_PAUSES) as objects:
        refused = await refusal(objects.put(KEY, b"", TAG, "0a-1"))
    assert (refused.kind, refused.retry_after) == (ErrorKind.CHANGED_TOO_OFTEN, 30.0)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "reason"), [(403, "rateLimitExceeded"), (429, "userRateLimitExceeded")])
async def test_a_service_that_is_asked_too_much_is_asked_no_more(server: Server, status: int, reason: str) -> None:
    server.object = complaint(status, reason)
    async with asking(server, pauses=RETRY_PAUSES) as objects:
        assert (await refusal(objects.put(KEY, b"", TAG, "0a-1"))).kind is ErrorKind.THROTTLED
    assert len(server.requests) == 1


async def test_what_is_read_too_often_is_the_whole_services_trouble(server: Server) -> None:
    server.object = complaint(429, "rateLimitExceeded")
    async with asking(server, pauses=RETRY_PAUSES) as objects:
        for verb in (objects.get(KEY, 10), objects.get_range(KEY, 0, 10), objects.list_page(KEY, 10, None)):
            assert (await refusal(verb)).kind is ErrorKind.THROTTLED
    assert len(server.requests) == 3


async def test_a_change_that_waits_can_be_given_up(server: Server) -> None:
    server.object = complaint(429, "rateLimitExceeded")
    async with asking(server, pauses=(60.0,)) as objects:
        with anyio.move_on_after(0.2) as given_up:
            await objects.put(KEY, b"", TAG, "0a-1")
    assert given_up.cancelled_caught
    assert len(server.requests) == 1
