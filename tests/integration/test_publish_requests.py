"""What a publish asks of an object store, counted by a proxy in front of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity, Done, Rescheduled
from sfn.inbox.memory import MemoryInbox
from sfn.publish.policy import Policy
from sfn.publish.publish import Ports, publish
from sfn.storage import PrefixRouter
from tests.faults.proxy import Asked, Fault, Pass, Proxy
from tests.promises.grounds import s3_store
from tests.promises.inboxes import TERMS, HandClock
from tests.servers.s3 import S3

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
