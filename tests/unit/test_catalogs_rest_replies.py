"""Replies of a REST catalog: Retry-After and huge bodies."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle

import anyio
import psutil
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from sfn.catalogs import Loaded
from sfn.catalogs.rest.client import CatalogHttpClient
from sfn.catalogs.rest.errors import CatalogReply, retry_after
from sfn.catalogs.rest.settings import RestSettings
from sfn.domain.identifiers import TableIdentifier
from tests.support.rest_catalog import ORDERS, Open, Responder, Server, reply, table

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
DATE = r"[A-Z][a-z]{2}, [0-3][0-9] (Jan|Feb|Dec) [0-9]{4,12} [0-2][0-9]:[0-5][0-9]:[0-6][0-9] (GMT|[+-][0-9]{4})"


def waited(value: str, **headers: str) -> float | None:
    return retry_after(CatalogReply("catalog lake", 503, AT, {"Retry-After": value, **headers}, b""))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        ("300", 300.0),
        ("301", 301.0),
        ("999999999", 999999999.0),
        ("9" * 5000, float("inf")),
        ("Sat, 21 Nov 2026 12:01:30 GMT", 90.0),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0),
        ("Thu, 01 Jan 0001 00:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 251_607_038_399.0),
    ],
)
def test_it_is_a_number_or_counts_to_a_date(value: str, seconds: float) -> None:
    assert waited(value) == seconds


@pytest.mark.parametrize("value", ["", "soon", "-5", "1.5", "1e9", "inf", "٣", "31 Dec 99999999999 23:59:59 GMT"])
def test_what_makes_no_sense_is_ignored(value: str) -> None:
    assert waited(value) is None


def test_a_date_counts_from_the_servers_own() -> None:
    assert waited("Fri, 31 Dec 9999 23:59:59 GMT", Date="Fri, 31 Dec 9999 23:59:00 GMT") == 59.0
    assert waited("Sat, 21 Nov 2026 12:00:10 GMT", Date="nonsense") == 10.0


class StampingClock:
    """Tells when it is looked at, and moves when it is told."""

    def __init__(self) -> None:
        self.at = AT
        self.seen = anyio.Event()

    def now(self) -> datetime:
        self.seen.set()
        return self.at


async def test_without_a_date_of_the_server_it_counts_from_when_the_reply_began(server: Server) -> None:
    clock = StampingClock()

    async def busy(request: web.BaseRequest) -> web.StreamResponse:
        clock.seen = anyio.Event()
        wishes = {"Retry-After": "Sat, 21 Nov 2026 12:01:30 GMT", "Date": "nonsense"}
        response = web.StreamResponse(status=503, headers=wishes)
        await response.prepare(request)
        await response.write(b"late")
        with anyio.move_on_after(10):
            await clock.seen.wait()
        clock.at += timedelta(seconds=60)
        await response.write(b"r")
        return response

    server.other = busy
    client = CatalogHttpClient(RestSettings(name="lake", uri=server.uri), clock)
    reply = await client.get(f"{server.uri}/v1/namespaces", {})
    await client.close()
    assert (reply.received_at, bytes(reply.body)) == (AT, b"later")
    assert retry_after(reply) == 90.0


@given(st.text(max_size=40) | st.from_regex(r"-?[0-9]{1,20}", fullmatch=True) | st.from_regex(DATE, fullmatch=True))
def test_whatever_is_sent_it_is_no_time_before_now(value: str) -> None:
    wait = waited(value)
    assert wait is None or wait >= 0


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
        stall: the longest time without a turn, in seconds. Of each time, the process's CPU time counts if it is less:
            a pause of the machine is no stall. A call that blocks without CPU time is not seen either.
        memory: bytes that came in use.
    """

    stall: float = 0.0
    memory: int = 0


@asynccontextmanager
async def watching() -> AsyncGenerator[Watched]:
    # The service does so too. What thousands of tests left would make one collection of garbage a stall of 0.25 s.
    gc.collect()
    gc.freeze()
    process, seen = psutil.Process(), Watched()
    before = process.memory_info().rss

    async def watch() -> None:
        last, last_cpu = anyio.current_time(), time.process_time()
        while True:
            await anyio.sleep(0.005)
            seen.memory = max(seen.memory, process.memory_info().rss - before)
            now, cpu = anyio.current_time(), time.process_time()
            seen.stall = max(seen.stall, min(now - last, cpu - last_cpu))
            last, last_cpu = now, cpu

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        # The first turn.
        await anyio.sleep(0.02)
        yield seen
        await anyio.sleep(0.02)
        group.cancel_scope.cancel()


@pytest.mark.slow
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
