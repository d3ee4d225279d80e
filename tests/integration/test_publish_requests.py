"""The number of requests that a publish needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
import pytest

from sfn.catalogs.memory import MemoryCatalog
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.settings import RestSettings
from sfn.clock import SystemClock, SystemRandomSource
from sfn.domain.events import Notification, PutResult
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity, Done, LeasedJob, Outcome, Rescheduled
from sfn.inbox.model import InboxConfig as InboxTerms
from sfn.inbox.model import NewDeadLetter
from sfn.inbox.sqlite import SqliteInbox
from sfn.publish.policy import Policy
from sfn.publish.publish import Ports, publish
from sfn.storage import PrefixRouter
from sfn.storage.local import LocalStore
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.worker import Worker, WorkerOptions
from tests.faults import inspection
from tests.faults.lake import NAMESPACE, Lake, Table, serving
from tests.faults.proxy import Asked, Fault, Pass, Proxy
from tests.faults.service import eventually
from tests.faults.stores import CountingStore
from tests.promises.inboxes import TERMS
from tests.promises.stores import s3_store
from tests.servers.object_stores import S3
from tests.support.clock import HandClock
from tests.support.memory_inbox import MemoryInbox

# Requests to the store.


NAME = TableIdentifier("prod", ("n",), "orders")
ALL = Capacity(total=10, live=9, sweeps=0)
Record = Callable[[str, object], None]


@dataclass
class Line:
    """One table on S3, from a hint to its files.

    Attributes:
        stores: with the one store.
        at: where the table lies.
        asked: what the store was asked since it was read last.
    """

    stores: PrefixRouter
    at: str
    asked: list[str]
    clock: HandClock = field(default_factory=HandClock)
    catalog: MemoryCatalog = field(default_factory=lambda: MemoryCatalog("prod"))
    policy: Policy = field(default_factory=lambda: Policy("c1", replica_lag=timedelta(0), is_swept=False))

    def __post_init__(self) -> None:
        self.inbox = MemoryInbox(TERMS, self.clock)
        self.catalog.create_namespace("n")

    async def told(self, *, drop: bool = False) -> Counter[str]:
        """What the store is asked for a hint."""
        self.clock.turn(2)
        await self.inbox.put([Notification(NAME, drop=drop)])
        return await self.looked()

    async def looked(self, hours: float = 0) -> Counter[str]:
        """What it is asked for what is due in so many hours."""
        self.clock.turn(hours * 3600)
        (claim,) = (await self.inbox.claim(ALL)).jobs
        self.asked.clear()
        ports = Ports(self.inbox, self.inbox, self.catalog, self.stores, self.clock)
        outcome = await publish(claim, ports, self.policy, jitter=0)
        assert isinstance(outcome, Done | Rescheduled)
        await self.inbox.settle(claim, outcome, self.clock.now())
        return Counter(self.asked)


@pytest.fixture
async def line(s3: S3) -> AsyncIterator[Line]:
    at, asked = f"s3://{s3.bucket()}/wh/orders", list[str]()

    def count(request: Asked) -> Fault:
        verb = "LIST" if "list-type" in request.path else request.method
        condition = [name for name in ("if-match", "if-none-match") if name in request.headers]
        asked.append(" ".join([verb, *condition]))
        return Pass()

    with Proxy(s3.url, count) as proxy:
        async with s3_store(proxy.url) as store:
            yield Line(PrefixRouter({at.rpartition("/")[0]: store}), at, asked)


async def test_what_a_tables_life_costs(line: Line, record_property: Record) -> None:
    line.catalog.create(NAME, line.at)
    costs = {"first": await line.told()}
    await line.told()  # and settled: from here on the row remembers
    for what in ("commit", "another commit"):
        line.catalog.commit(NAME)
        costs[what] = await line.told()
    costs["unchanged"] = await line.told()
    costs["refresh"] = await line.looked(hours=9)
    line.catalog.drop(NAME)
    costs["seen as absent"] = await line.told(drop=True)
    costs["tombstone"] = await line.looked(hours=1)
    for what, cost in costs.items():
        record_property(what, dict(cost))
        print(f"{what}:", dict(cost))
    # A file is one conditional write where its tag is known. One read looks for a file that DuckDB would open instead
    # by the hint, the other sees that the hint rests on what was written.
    assert costs["commit"] == costs["another commit"] == {"PUT if-match": 2, "GET": 2}
    assert costs["unchanged"] == {"GET": 2}
    assert set().union(*costs.values()) <= {"GET", "LIST", "PUT if-match", "PUT if-none-match", "DELETE if-match"}


# Requests to all servers.


ORDERS = TableIdentifier("lake", (NAMESPACE,), "orders")
SENDER = "tests"
EVENTS, BATCH = 10_000, 500
BACK_WITHIN = 3.0


@dataclass(frozen=True)
class OneSource:
    """Implements `Sources` for one catalog."""

    source: ConnectedCatalog

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        return self.source

    def is_retired(self, catalog: str) -> bool:
        return False


class Attempts:
    """Implements `Journal`: notes the attempt that each claim was, as the inbox counted it when it began."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        self.numbers.append(claim.attempt)

    def on_lease_lost(self, claim: LeasedJob) -> None:
        self.numbers.append(claim.attempt)

    def on_leases_expired(self, leases: int) -> None:
        raise AssertionError(leases)

    def on_poisoned(self, letter: NewDeadLetter) -> None:
        raise AssertionError(letter)

    def on_unexpected_error(self, claim: LeasedJob, error: Exception) -> None:
        raise error


@dataclass(frozen=True)
class Site:
    """A running worker with one table, published once: everything that follows finds it warm."""

    lake: Lake
    store: CountingStore
    inbox: SqliteInbox
    database: Path
    table: Table
    attempts: Attempts

    async def tell(self, *hints: Notification) -> PutResult:
        return await self.inbox.put(hints)

    async def settled(self) -> None:
        """Return once every hint was seen through and nothing is under way."""
        await eventually(lambda: not inspection.unsettled(self.database) and not inspection.leased(self.database))

    async def cost(self, *hints: Notification) -> tuple[PutResult, dict[str, int]]:
        """What came of hints, and every request that they led to."""
        self.lake.asked.clear()
        self.store.done.clear()
        taken = await self.tell(*hints)
        await self.settled()
        return taken, dict(Counter(self.lake.asked) + self.store.done)

    @property
    def is_right(self) -> bool:
        return self.lake.pointed("orders").says(self.table.pointer)


def told(table: Table, event_id: str | None) -> Notification:
    """A commit's event, as a sender has it that knows the new pointer."""
    return Notification(ORDERS, SENDER, event_id, min_metadata_location=table.pointer)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    warehouse, database = tmp_path / "warehouse", tmp_path / "inbox.db"
    warehouse.mkdir()
    clock, lake, attempts = SystemClock(), Lake(warehouse), Attempts()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(lake))
        catalog = RestCatalog(RestSettings(name="lake", uri=lake.uri), clock)
        stack.push_async_callback(catalog.close)
        terms = InboxTerms(lease=timedelta(seconds=30))
        inbox = await stack.enter_async_context(SqliteInbox.opened(database, terms, clock))
        store = CountingStore(LocalStore(warehouse.as_uri()))
        pause = timedelta(milliseconds=50)
        policy = Policy(await catalog.identity(), replica_lag=timedelta(), min_publish_interval=pause, is_swept=False)
        worker = Worker(
            inbox,
            OneSource(ConnectedCatalog(catalog, policy)),
            PrefixRouter({warehouse.as_uri(): store}),
            clock=clock,
            chance=SystemRandomSource(),
            sink=attempts,
            options=WorkerOptions(),
        )
        site = Site(lake, store, inbox, database, lake.create("orders"), attempts)
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(worker.run, stop))
            await _warmed(site)
            yield site
            stop.set()


async def _warmed(site: Site) -> None:
    for number in range(2):
        site.table.commit()
        await site.tell(told(site.table, f"warm-up-{number}"))
        await site.settled()
    assert site.is_right


async def test_a_warm_publish_costs_one_load_two_writes_and_two_reads(site: Site, record_property: Record) -> None:
    site.table.commit()
    taken, cost = await site.cost(told(site.table, "e1"))
    record_property("warm_publish", cost)
    print("warm publish:", cost)
    assert (taken, site.is_right) == (PutResult(1, 0), True)
    assert cost == {"load": 1, "part": 1, "write": 2, "read": 1}


async def test_an_event_about_an_unchanged_table_costs_one_load_and_a_read_of_each_file(
    site: Site, record_property: Record
) -> None:
    taken, cost = await site.cost(told(site.table, "e1"))
    record_property("unchanged", cost)
    print("unchanged pointer:", cost)
    assert taken == PutResult(1, 0)
    assert cost == {"load": 1, "304": 1, "read": 2}


async def test_an_event_seen_before_costs_nothing(site: Site, record_property: Record) -> None:
    site.table.commit()
    await site.cost(told(site.table, "e1"))
    site.table.commit()
    taken, cost = await site.cost(told(site.table, "e1"))
    # Long enough for a worker that was woken all the same.
    await anyio.sleep(0.3)
    cost |= Counter(site.lake.asked) + site.store.done
    record_property("duplicate", cost)
    print("duplicate:", cost)
    assert (taken, cost) == (PutResult(0, 1), {})


async def test_ten_thousand_events_while_the_store_is_away_end_as_one_write_or_two(
    site: Site, record_property: Record
) -> None:
    rows: list[int] = []
    site.attempts.numbers.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch, site.database, rows)
        site.store.away = True
        for start in range(0, EVENTS, BATCH):
            batch = []
            for number in range(start, start + BATCH):
                if number % 100 == 0:
                    site.table.commit()
                batch.append(told(site.table, f"away-{number}"))
            taken = await site.tell(*batch)
            assert (taken.accepted, taken.duplicates) == (BATCH, 0)
        # The breaker has reached its longest pause.
        await eventually(lambda: site.store.refused > 3)
        site.store.written.clear()
        site.store.away = False
        began = anyio.current_time()
        await eventually(lambda: site.is_right, within=BACK_WITHIN)
        seconds = anyio.current_time() - began
        await site.settled()
        tasks.cancel_scope.cancel()
    figures = {
        "events": EVENTS,
        "refused": site.store.refused,
        "seconds": round(seconds, 3),
        "writes": list(site.store.written.values()),
        "claims": len(site.attempts.numbers),
        "most_attempts": max(*site.attempts.numbers, *rows),
    }
    record_property("store_away", figures)
    print("store away:", figures)
    assert site.store.refused > 0
    assert max(site.store.written.values()) <= 2
    assert max(*site.attempts.numbers, *rows) == 1


async def _watch(database: Path, rows: list[int]) -> None:
    """Note the highest count of attempts over all rows, for ever."""
    while True:
        rows.append(inspection.most_attempts(database))
        await anyio.sleep(0.05)
