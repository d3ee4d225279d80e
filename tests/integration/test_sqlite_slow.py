"""An inbox that is slow: what waits for its turn behind a long transaction."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from typing_extensions import override

from sfn.domain.jobs import Capacity, ConcurrencyGroup
from sfn.inbox.sqlite import SqliteInbox
from tests.promises.inboxes import PLENTY, TERMS, Ground, HandClock, table

ORDERS, RETURNS = table("orders"), table("returns")
LEASE = TERMS.lease.total_seconds()


class SlowSlots(Capacity):
    """None; and whoever asks how many has to wait."""

    entered, left = threading.Event(), threading.Event()

    @override
    def available_in(self, lane: ConcurrencyGroup) -> int:
        self.entered.set()
        self.left.wait(10)
        return 0


@asynccontextmanager
async def busy(inbox: SqliteInbox) -> AsyncIterator[TaskGroup]:
    """While the inbox is in a transaction: tasks that end once it is over."""
    slow = SlowSlots(0, 0, 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(inbox.claim, slow)
        await anyio.to_thread.run_sync(slow.entered.wait, 10)
        yield tasks
        slow.left.set()


async def test_a_lease_lasts_from_when_the_inbox_came_to_it(tmp_path: Path) -> None:
    clock, expired = HandClock(), list[int]()
    async with SqliteInbox.opened(tmp_path / "inbox.db", TERMS, clock) as inbox:
        ground = Ground(inbox, clock)

        async def claim() -> None:
            expired.append((await inbox.claim(PLENTY)).expired_leases)

        await ground.hint(ORDERS)
        renewed = await ground.claim()
        await ground.hint(RETURNS)
        async with busy(inbox) as tasks:
            tasks.start_soon(inbox.renew, [renewed])
            tasks.start_soon(claim)
            await anyio.lowlevel.checkpoint()
            clock.turn(LEASE + 5)
        for seconds in (LEASE - 1, 1):
            clock.turn(seconds)
            await claim()
    assert expired == [0, 0, 2]
