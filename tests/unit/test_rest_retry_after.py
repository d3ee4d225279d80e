"""How long a catalog asks us to wait, and nothing where it makes no sense."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from sfn.catalogs.rest.client import CatalogHttpClient
from sfn.catalogs.rest.errors import CatalogReply, retry_after
from sfn.catalogs.rest.settings import RestSettings
from tests.unit.rest_server import Server

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
        wishes = {"Retry-After": "Sat, 21 Nov 2026 12:01:30 GMT", "Date": "nonsense"}
        response = web.StreamResponse(status=503, headers=wishes)
        await response.prepare(request)
        await response.write(b"late")
        with anyio.move_on_after(1):
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
