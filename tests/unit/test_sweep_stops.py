"""A stop waits for no sweep: it is given back at once, and the next process begins it anew."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta

import anyio
import pytest
from typing_extensions import override

from sfn.catalogs import SkipNamespace, UnlistedNamespace
from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import Capacity, Done, LeasedJob, Returned
from sfn.inbox import ClaimResult
from sfn.publish.policy import Policy
from sfn.storage.memory import MemoryStore
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.worker import WorkerOptions
from tests.promises.inboxes import HandClock
from tests.unit.working import TABLE, Desk, WatchedInbox

CATALOG = CatalogName("prod")
DRAIN = timedelta(seconds=60)
AT_ONCE = 5.0
"""Seconds: much less than the drain, much more than a busy machine takes."""


class Endless(MemoryCatalog):
    """A catalog whose listing has no end.

    Attributes:
        reached: it was asked for.
    """

    def __init__(self) -> None:
        super().__init__(CATALOG.catalog)
        self.reached = anyio.Event()

    @override
    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        async for found in super().tables(skip):
            yield found
        self.reached.set()
        await anyio.sleep_forever()


class SlowStore(MemoryStore):
    """A store that takes its time.

    Attributes:
        reached: it was asked.
        answers: from then on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.answers = anyio.Event(), anyio.Event()

    @override
    async def list(self, prefix: str, limit: int) -> list[str]:
        self.reached.set()
        await self.answers.wait()
        return await super().list(prefix, limit)


class SlowInbox(WatchedInbox):
    """An inbox that takes its time to say what was claimed.

    Attributes:
        claimed: something was.
        answers: from then on.
    """

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.claimed, self.answers = anyio.Event(), anyio.Event()

    @override
    async def claim(self, capacity: Capacity, running: Sequence[LeasedJob] = ()) -> ClaimResult:
        claimed = await super().claim(capacity, running)
        if claimed.jobs:
            self.claimed.set()
            await self.answers.wait()
        return claimed


class Stage:
    """A worker, a catalog that can't be walked to its end, and what is slow."""

    def __init__(self) -> None:
        clock = HandClock()
        self.catalog, self.store, self.inbox = Endless(), SlowStore(), SlowInbox(clock)
        self.catalog.create_namespace(*TABLE.namespace)
        self.catalog.create(TABLE)
        self.desk = Desk(WorkerOptions(drain=DRAIN), clock=clock, inbox=self.inbox)
        self.desk.source = ConnectedCatalog(self.catalog, Policy("c1"))
        self.desk.store = self.store


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_a_sweep_ends_at_a_stop_and_a_table_when_it_is_done(stage: Stage) -> None:
    stage.inbox.answers.set()
    await stage.inbox.put([Notification(CATALOG), Notification(TABLE)])
    stop = anyio.Event()
    with anyio.fail_after(AT_ONCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.desk.worker.run, stop)
            await stage.catalog.reached.wait()
            await stage.store.reached.wait()
            stop.set()
            while not stage.desk.book.outcomes:  # noqa: ASYNC110 - a journal has no event
                await anyio.sleep(0.001)
            assert [type(outcome) for outcome in stage.desk.book.outcomes] == [Returned]
            stage.store.answers.set()
    assert [type(outcome) for outcome in stage.desk.book.outcomes] == [Returned, Done]
    assert stage.desk.book.lost == []


async def test_the_next_process_begins_it_at_once_and_no_attempt_was_counted(stage: Stage) -> None:
    stage.inbox.answers.set()
    await stage.inbox.put([Notification(CATALOG)])
    stop = anyio.Event()
    with anyio.fail_after(AT_ONCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.desk.worker.run, stop)
            await stage.catalog.reached.wait()
            stop.set()
    (claim,) = (await stage.inbox.claim(stage.inbox.slots)).jobs
    assert (claim.subject, claim.attempt) == (CATALOG, 1)


async def test_a_sweep_that_is_claimed_while_the_stop_comes_ends_too(stage: Stage) -> None:
    await stage.inbox.put([Notification(CATALOG)])
    stop = anyio.Event()
    with anyio.fail_after(AT_ONCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.desk.worker.run, stop)
            await stage.inbox.claimed.wait()
            stop.set()
            await anyio.wait_all_tasks_blocked()
            stage.inbox.answers.set()
    assert [type(outcome) for outcome in stage.desk.book.outcomes] == [Returned]
