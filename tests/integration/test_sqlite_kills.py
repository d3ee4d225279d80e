"""A process that is killed before or after any statement of the inbox in SQLite loses nothing that it acknowledged."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import Capacity, Done, LeasedJob, PublishResult, TableState
from sfn.inbox.inbox import Inbox
from sfn.inbox.model import InboxConfig
from sfn.inbox.operations import Operations
from sfn.inbox.sqlite import connect, recover
from tests.support.clock import HandClock
from tests.support.memory_inbox import InlineRunner

PLENTY = Capacity(total=9, live=9, sweeps=9)
ORDERS, RETURNS = (TableIdentifier("prod", ("sales",), name) for name in ("orders", "returns"))


class ProcessKilled(BaseException):
    """The process ends at this statement."""


class KillableConnection(sqlite3.Connection):
    """A connection on which a process may be killed.

    Attributes:
        left: statements until then; None for never.
        after: True if the last statement is executed.
    """

    left: ClassVar[int | None] = None
    after: ClassVar[bool] = False

    @override
    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self._count(before=True)
        found = super().execute(sql, parameters)
        self._count(before=False)
        return found

    @override
    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        self._count(before=True)
        found = super().executemany(sql, parameters)
        self._count(before=False)
        return found

    def _count(self, *, before: bool) -> None:
        cls = KillableConnection
        if cls.left is None or before is cls.after:
            return
        cls.left -= 1
        if cls.left < 0:
            raise ProcessKilled


@dataclass
class History:
    """What a sender and a worker know.

    Attributes:
        acknowledged: the acknowledged events: table and event id.
        claimed: by table, how many events of it were acknowledged when the last claim began that was to be settled.
    """

    acknowledged: list[tuple[JobKey, str]] = field(default_factory=list)
    claimed: dict[JobKey, int] = field(default_factory=dict)

    def count(self, table: JobKey) -> int:
        """How many events of a table were acknowledged."""
        return sum(one == table for one, _ in self.acknowledged)


class Process:
    """One process on the database in a file."""

    def __init__(self, path: Path, clock: HandClock, history: History) -> None:
        self.clock, self.history = clock, history
        operations = Operations(InboxConfig(), clock.now)
        self.db = connect(str(path))
        recover(self.db, operations)
        self.inbox = Inbox(InlineRunner(self.db), operations, clock, queue_limit=100, observe_fold=lambda _: None)

    async def put(self, table: TableIdentifier, event: str) -> None:
        await self.inbox.put([Notification(table, "etl", event)])
        self.history.acknowledged.append((table, event))

    async def claim(self) -> list[tuple[LeasedJob, int]]:
        counts: dict[JobKey, int] = {table: self.history.count(table) for table in (ORDERS, RETURNS)}
        return [(claim, counts.get(claim.subject, 0)) for claim in (await self.inbox.claim(PLENTY)).jobs]

    async def settle(self, claims: Sequence[tuple[LeasedJob, int]]) -> None:
        for claim, count in claims:
            done = Done(self.clock.now() + timedelta(days=9), PublishResult(TableState(has_settled=True)))
            # A settle that is cut off is stored, or the job comes back.
            self.history.claimed[claim.subject] = count
            await self.inbox.settle(claim, done, self.clock.now())


async def work(process: Process) -> None:
    """Events before, during and after leases; a commit of a gateway; an event that comes again."""
    await process.inbox.put([Intent("commit", (ORDERS,), "gateway", "10.0.0.1")])
    await process.put(ORDERS, "e1")
    first = await process.claim()
    await process.put(ORDERS, "e2")
    await process.put(RETURNS, "e3")
    await process.inbox.put([IntentOutcome("commit", is_known=True)])
    second = await process.claim()
    await process.settle(first)
    await process.put(ORDERS, "e2")
    await process.settle(second)
    await process.settle(await process.claim())


async def drain(process: Process) -> None:
    """Work until nothing is due."""
    while claims := await process.claim():
        await process.settle(claims)


@pytest.fixture(name="killable", autouse=True)
def fixture_killable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open every database by a connection on which its process may be killed."""
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **options: real(path, factory=KillableConnection, **options))
    monkeypatch.setattr(KillableConnection, "left", None)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_kill_at_any_statement_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    monkeypatch.setattr(KillableConnection, "after", after)
    for number in range(10_000):
        path, clock, history = tmp_path / f"{number}.db", HandClock(), History()
        process = Process(path, clock, history)
        KillableConnection.left = number
        try:
            await work(process)
        except ProcessKilled:
            is_over = False
        else:
            is_over = True
        KillableConnection.left = None
        process.db.close()
        clock.turn(1)
        survivor = Process(path, clock, history)
        stored = survivor.db.execute("SELECT event_id, count(*) FROM event WHERE sender = 'etl' GROUP BY event_id")
        counts = dict(stored.fetchall())
        assert {event for _, event in history.acknowledged} <= counts.keys()
        assert set(counts.values()) <= {1}
        await drain(survivor)
        assert {table: history.claimed.get(table, 0) for table in (ORDERS, RETURNS)} == {
            table: history.count(table) for table in (ORDERS, RETURNS)
        }
        for table in {table for table, _ in history.acknowledged}:
            status = await survivor.inbox.table_status(table)
            assert status is not None
            assert (status.job.state, status.has_unprocessed, status.job.table_state.has_settled) == (
                "queued",
                False,
                True,
            )
        survivor.db.close()
        if is_over:
            assert number > 60
            return
    raise AssertionError("the work never ended")
