"""A scrape is answered whatever hangs, and in the format that was asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from sfn.errors import ErrorScope, FatalError, Transient
from sfn.inbox import QueueStats
from sfn.telemetry.metrics import Metrics
from sfn.telemetry.scrape import Scrape, ScrapeSources, negotiate_format
from sfn.worker.capacity import CircuitBreakerState
from tests.support.clock import HandClock
from tests.support.metrics_page import BOUNDS, Standing, overdue, read

OPENMETRICS = "application/openmetrics-text"
TROUBLE = [
    Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none"),
    FatalError("inbox", expected="a disk", found="none"),
]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="1.2.3", catalogs=["prod", "dev"])


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


async def test_while_the_inbox_hangs_what_it_said_last_is_told_and_that_it_is_old(
    metrics: Metrics, clock: HandClock
) -> None:
    standing = Standing(overdue(clock.now()))
    scrape = standing.scrape(metrics, clock, patience=1.5)
    await read(scrape)
    clock.turn(30)
    standing.wait, standing.figures = anyio.sleep_forever, QueueStats({}, {}, {}, frozenset())
    metrics.work.count_lost_lease()
    with anyio.fail_after(10):
        page = await read(scrape)
    assert page.value("sfn_inbox_answers") == 0
    assert page.value("sfn_pending_tables", catalog="prod", state="due") == 1
    assert page.value("sfn_oldest_pending_age_seconds", catalog="prod") == 30
    assert page.value("sfn_lost_leases_total") == 1
    standing.wait = None
    page = await read(scrape)
    assert page.value("sfn_inbox_answers") == 1
    assert page.value("sfn_pending_tables", catalog="prod", state="due") == 0


@pytest.mark.parametrize("trouble", TROUBLE, ids=["transient", "broken"])
async def test_an_inbox_in_trouble_is_one_that_does_not_answer(
    metrics: Metrics, clock: HandClock, trouble: Exception
) -> None:
    standing = Standing(overdue(clock.now()))
    scrape = standing.scrape(metrics, clock)
    await read(scrape)
    standing.failure = trouble
    page = await read(scrape)
    assert page.value("sfn_inbox_answers") == 0
    assert page.value("sfn_pending_tables", catalog="prod", state="due") == 1


async def test_of_an_inbox_that_never_answered_nothing_is_claimed(metrics: Metrics, clock: HandClock) -> None:
    scrape = Standing(failure=TROUBLE[0], files={"db": Path(__file__)}).scrape(metrics, clock)
    page = await read(scrape)
    assert (page.value("sfn_inbox_answers"), page.value("sfn_ready")) == (0, 1)
    assert page.value("sfn_tables_on_hold", catalog="prod") is None
    assert page.value("sfn_inbox_bytes", file="db") is None


async def test_an_error_of_ours_is_not_taken_for_an_inbox_that_hangs(metrics: Metrics, clock: HandClock) -> None:
    with pytest.raises(ZeroDivisionError):
        await Standing(failure=ZeroDivisionError()).scrape(metrics, clock)("")


async def test_a_flood_of_scrapes_asks_an_inbox_that_hangs_one_at_a_time(metrics: Metrics, clock: HandClock) -> None:
    gate, entered = anyio.Event(), anyio.Event()
    at_once = [0, 0]

    async def counted() -> None:
        at_once[0] += 1
        at_once[1] = max(at_once)
        entered.set()
        await gate.wait()
        at_once[0] -= 1

    standing = Standing(wait=counted)
    scrape = standing.scrape(metrics, clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scrape, "")
        await entered.wait()
        for _ in range(20):
            tasks.start_soon(scrape, "")
        await anyio.wait_all_tasks_blocked()
        gate.set()
    # Who came while it was being asked shares the next answer: what was asked before may be older than a scrape.
    assert (standing.asked, at_once) == (2, [0, 1])


async def test_the_sizes_of_the_inboxs_files_are_told(metrics: Metrics, clock: HandClock, tmp_path: Path) -> None:
    database, log = tmp_path / "inbox.db", tmp_path / "inbox.db-wal"
    database.write_bytes(bytes(4096))
    scrape = Standing(files={"db": database, "wal": log}).scrape(metrics, clock)
    page = await read(scrape)
    assert (page.value("sfn_inbox_bytes", file="db"), page.value("sfn_inbox_bytes", file="wal")) == (4096, 0)
    log.write_bytes(bytes(10))
    assert (await read(scrape)).value("sfn_inbox_bytes", file="wal") == 10


class Witness:
    """Implements the library's `Collector`: notes who asks."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def collect(self) -> Iterator[Metric]:
        self.threads.append(threading.get_ident())
        return iter(())


async def test_the_text_is_not_written_on_the_event_loop(metrics: Metrics, clock: HandClock) -> None:
    witness = Witness()
    metrics.registry.register(witness)
    await read(Standing().scrape(metrics, clock))
    assert witness.threads
    assert threading.get_ident() not in witness.threads


async def test_how_things_stand_is_read_on_the_event_loop(metrics: Metrics, clock: HandClock) -> None:
    threads: list[int] = []

    def breakers() -> list[CircuitBreakerState]:
        threads.append(threading.get_ident())
        return []

    watched = ScrapeSources(Standing().ask, {}, lambda: True, tuple, breakers)
    await read(Scrape(metrics.registry, watched, BOUNDS, clock))
    assert threads == [threading.get_ident()]


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("", CONTENT_TYPE_PLAIN_0_0_4),
        ("*/*", CONTENT_TYPE_PLAIN_0_0_4),
        ("text/html,application/xhtml+xml", CONTENT_TYPE_PLAIN_0_0_4),
        (OPENMETRICS, f"{OPENMETRICS}; version=1.0.0; charset=utf-8"),
        (PROMETHEUS, f"{OPENMETRICS}; version=1.0.0; charset=utf-8; escaping=allow-utf-8"),
        # What is no version is no reason to be refused.
        (f"{OPENMETRICS};version=x", CONTENT_TYPE_PLAIN_0_0_4),
        ('text/plain;version="1.0.0"', CONTENT_TYPE_PLAIN_0_0_4),
    ],
)
async def test_the_format_is_the_one_that_the_client_likes(
    metrics: Metrics, clock: HandClock, accept: str, media_type: str
) -> None:
    written = await Standing().scrape(metrics, clock)(accept)
    assert written.media_type == media_type
    assert written.content.endswith(b"# EOF\n") == (OPENMETRICS in media_type)


class Up:
    """Implements the library's `Collector`."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("up", "Whether it is.", 1)


ACCEPT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=80) | st.builds(
    "{}/{};version={};escaping={},{}".format,
    st.sampled_from(["application", "text", "*"]),
    st.sampled_from(["openmetrics-text", "plain", "*"]),
    st.text("0123456789.x\u00e9", max_size=8),
    st.sampled_from(["", "values", "dots", "underscores", "allow-utf-8", "other"]),
    st.text("*/;=,q01. ", max_size=8),
)


@given(ACCEPT)
def test_no_accept_header_is_an_error(accept: str) -> None:
    encode, media_type = negotiate_format(accept)
    assert b"up 1.0\n" in encode(Up())
    assert not set(media_type) & set("\r\n")
