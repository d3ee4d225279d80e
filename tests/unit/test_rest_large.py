"""Answers of hundreds of megabytes: the event loop goes on, and they are not held in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle

import anyio
import psutil
import pytest
from aiohttp import web

from sfn.domain.catalog_answer import Loaded
from sfn.domain.identifiers import TableIdentifier
from tests.unit.rest_server import ORDERS, Open, Responder, Server, reply, table

SIZE = 250 * 2**20
LONGEST_STALL = 0.25
"""Seconds."""
MOST_MEMORY = 48 * 2**20
"""Bytes: much less than a body, much more than what is read before it counts as large."""
_LOG = [{"metadata-file": f"s3://b/t/metadata/{number}.json", "timestamp-ms": number} for number in range(100)]


def snapshots() -> Iterator[bytes]:
    """Members of `snapshots`, each with a comma behind it."""
    for number in cycle(range(1000)):
        summary = {"operation": "append", **{f"total-of-{name}": str(number * 7919) for name in range(12)}}
        snapshot = {"snapshot-id": number, "manifest-list": f"s3://b/t/metadata/snap-{number}.avro", "summary": summary}
        yield json.dumps(snapshot).encode() + b","


def schemas() -> Iterator[bytes]:
    """Members of `schemas`, each with a comma behind it."""
    doc = 'a "quoted" text, \\ {[ and ünïcode'
    for number in cycle(range(100)):
        fields = [
            {"id": field, "name": f"c{field}", "required": False, "type": "long", "doc": doc} for field in range(80)
        ]
        yield json.dumps({"type": "struct", "schema-id": number, "fields": fields}).encode() + b","


def properties() -> Iterator[bytes]:
    """Properties, each with a comma behind it."""
    for number in cycle(range(100)):
        yield f'"avro.schema.{number}": {json.dumps(json.dumps({"doc": "ü" * 30, "name": "x" * 300}))},'.encode()


def block(items: Iterator[bytes]) -> bytes:
    """About 1 MiB of them."""
    made = bytearray()
    while len(made) < 2**20:
        made += next(items)
    return bytes(made)


MANY_SNAPSHOTS = (b'"snapshots":[', block(snapshots()), b"{}]")
MANY_SCHEMAS = (b'"schemas":[', block(schemas()), b"{}]")
MANY_PROPERTIES = (b'"properties":{', block(properties()), b'"owner":"me"}')


def large(*members: tuple[bytes, bytes, bytes]) -> Responder:
    """A table's answer of about `SIZE` bytes, of metadata with those members; what is needed of it lies around them."""
    whole = json.dumps(table(metadata_log=_LOG, refs={"main": {"snapshot-id": 7}}, current_snapshot_id=7)).encode()
    head, tail = whole.split(b'"location"')
    times = SIZE // len(members) // 2**20

    async def respond(_: web.BaseRequest) -> web.StreamResponse:
        async def parts() -> AsyncGenerator[bytes]:
            yield head
            for begin, middle, end in members:
                yield begin
                for _ in range(times):
                    yield middle
                yield end + b","
            yield b'"location"' + tail

        return web.Response(body=parts(), headers={"content-type": "application/json"})

    return respond


@dataclass(slots=True)
class Watched:
    """What was seen of the event loop and the process.

    Attributes:
        stall: the longest time without a turn, in seconds.
        memory: bytes that came in use.
    """

    stall: float = 0.0
    memory: int = 0


@asynccontextmanager
async def watching() -> AsyncGenerator[Watched]:
    process, seen = psutil.Process(), Watched()
    before = process.memory_info().rss

    async def watch() -> None:
        last = anyio.current_time()
        while True:
            await anyio.sleep(0.005)
            seen.memory = max(seen.memory, process.memory_info().rss - before)
            now = anyio.current_time()
            seen.stall, last = max(seen.stall, now - last), now

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        # The first turn.
        await anyio.sleep(0.02)
        yield seen
        await anyio.sleep(0.02)
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    "members",
    [pytest.param([MANY_SNAPSHOTS], id="snapshots"), pytest.param([MANY_SCHEMAS, MANY_PROPERTIES], id="schemas")],
)
async def test_large_metadata_stalls_nothing_and_is_not_held(
    server: Server, opened: Open, members: list[tuple[bytes, bytes, bytes]]
) -> None:
    server.other = large(*members)
    catalog = opened(server)
    async with watching() as seen:
        answer = await catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    assert (answer.table.location, answer.table.snapshot_id) == ("s3://b/t", 7)
    assert answer.table.metadata_log == tuple(entry["metadata-file"] for entry in _LOG)
    assert seen.memory < MOST_MEMORY
    assert seen.stall <= LONGEST_STALL


async def test_a_large_page_of_a_listing_is_read_whole(server: Server, opened: Open) -> None:
    names = [f"{number}{'x' * 100_000}" for number in range(100)]
    server.other = reply({"identifiers": [{"namespace": ["sales"], "name": name} for name in names]})
    assert await opened(server).is_listed(TableIdentifier("lake", ("sales",), names[-1]))
    assert not await opened(server).is_listed(TableIdentifier("lake", ("sales",), names[-1] + "y"))
