"""A stop ends a worker in time, and what it interrupts is neither lost nor told twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import anyio
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.jobs import Capacity, Done, LeasedJob, Outcome, Returned
from sfn.inbox import ClaimResult
from sfn.storage.memory import MemoryStore
from sfn.worker.worker import WorkerOptions
from tests.promises.inboxes import HandClock
from tests.unit.working import TABLE, Desk, WatchedInbox

DRAIN = timedelta(seconds=0.2)


class StalledInbox(WatchedInbox):
    """An inbox whose disk does not answer.

    Attributes:
        stalls: the verb that never returns; what it was to do is done.
        reached: it was called.
    """

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.stalls = ""
        self.reached = anyio.Event()

    @override
    async def claim(self, capacity: Capacity, running: Sequence[LeasedJob] = ()) -> ClaimResult:
        claimed = await super().claim(capacity, running)
        await self._stall("claim")
        return claimed

    @override
    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        kept = await super().settle(claim, outcome, now)
        await self._stall("settle")
        return kept

    async def _stall(self, verb: str) -> None:
        if self.stalls == verb:
            self.stalls = ""
            self.reached.set()
            await anyio.sleep_forever()


class SilentStore(MemoryStore):
    """A store that never answers.

    Attributes:
        reached: it was asked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached = anyio.Event()

    @override
    async def list(self, prefix: str, limit: int) -> list[str]:
        self.reached.set()
        await anyio.sleep_forever()
        raise AssertionError


class Stage:
    """A worker that was told of a table, and what may stall it."""

    def __init__(self) -> None:
        clock = HandClock()
        self.inbox, self.store = StalledInbox(clock), SilentStore()
        self.desk = Desk(WorkerOptions(drain=DRAIN), clock=clock, inbox=self.inbox)
        self.desk.catalog.create(TABLE)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The worker runs meanwhile; then it is told to stop, and must end by itself soon."""
        await self.inbox.put([Notification(TABLE)])
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.desk.worker.run, stop)
            yield
            stop.set()
            tasks.cancel_scope.deadline = anyio.current_time() + 5
        assert not tasks.cancel_scope.cancelled_caught, "it had to be cancelled"


async def test_a_claim_that_never_returns_holds_up_a_stop_for_the_drain_and_no_longer() -> None:
    stage = Stage()
    stage.inbox.stalls = "claim"
    async with stage.running():
        await stage.inbox.reached.wait()


async def test_what_was_settled_when_the_stop_came_is_not_taken_for_lost() -> None:
    stage = Stage()
    stage.inbox.stalls = "settle"
    async with stage.running():
        await stage.inbox.reached.wait()
    assert stage.desk.book.lost == []
    assert [hint.sender for hint in stage.inbox.taken] == [""]
    assert stage.inbox.due_at(TABLE) > stage.desk.clock.now()


async def test_what_runs_when_the_drain_ends_is_given_back() -> None:
    stage = Stage()
    stage.desk.store = stage.store
    async with stage.running():
        await stage.store.reached.wait()
    (outcome,) = stage.desk.book.outcomes
    assert isinstance(outcome, Returned)
    assert stage.desk.book.lost == []


async def test_what_was_lost_before_the_stop_came_is_looked_at_again() -> None:
    stage = Stage()
    stage.desk.store = stage.store
    async with stage.running():
        await stage.store.reached.wait()
        now = stage.desk.clock.turn(60)
        (other,) = (await stage.inbox.claim(stage.inbox.slots)).jobs
        assert await stage.inbox.settle(other, Done(now + timedelta(hours=1)), now)
    assert len(stage.desk.book.lost) == 1
    assert [hint.sender for hint in stage.inbox.taken] == ["", "fenced"]
