"""The bell: tells a waiting worker that there may be something to claim. Never the truth; that is the inbox."""

from __future__ import annotations

from datetime import datetime

import anyio

from sfn.clock import Clock
from sfn.inbox.intents import first_check_at
from sfn.inbox.row import Job


def makes_due(before: Job | None, after: Job) -> bool:
    """Whether a hint may have made a row claimable, or sooner so: else the bell need not be rung for it.

    One that was due already waits for a slot or for its lane's breaker, and a worker knows when it gets these.
    """
    if before is None or before.notified_seq <= before.processed_seq:
        return True
    return (before.state, before.due_at) != (after.state, after.due_at)


class WorkerSignal:
    """One worker's bell, on one event loop.

    It is cleared before the inbox is looked at, so what is put while the look is under way still rings.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._signalled = anyio.Event()

    def clear(self) -> None:
        """About to look."""
        if self._signalled.is_set():
            self._signalled = anyio.Event()

    def notify(self) -> None:
        """Something changed."""
        self._signalled.set()

    async def wait(self, until: datetime | None) -> None:
        """Return when it has been rung since it was last cleared, or at `until`.

        At the latest when an intent may be due that was noted meanwhile. To ring for each, which its answer mostly
        closes long before, would cost every commit a look at the inbox while it is on its way.
        """
        now = self._clock.now()
        latest = first_check_at(now)
        until = latest if until is None else min(until, latest)
        with anyio.move_on_after(max(0.0, (until - now).total_seconds())):
            await self._signalled.wait()
