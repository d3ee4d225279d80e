"""Group commit: who shares a transaction, who is answered when, and what a failing disk does to them."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.abc import TaskGroup

from sfn.domain.events import Notification, PutResult
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import Capacity
from sfn.errors import ErrorScope, FatalError, SfnError, Transient
from sfn.inbox.model import CommittedTransaction
from sfn.inbox.sqlite.group_commit import GroupCommitter
from sfn.inbox.sqlite.operations import SqliteOperations
from tests.promises.inboxes import PLENTY, TERMS, HandClock, table
from tests.promises.kernel import Step, refuse

ORDERS, RETURNS = table("orders"), table("returns")
NOW = HandClock().now()
SYNC, WRITE = Step("fdatasync"), Step("pwrite64")
LIMIT = 10


@dataclass(frozen=True, slots=True)
class Writer:
    """A committer on a new database, and what it told of its transactions."""

    committer: GroupCommitter
    database: Path
    commits: list[CommittedTransaction]

    async def put(self, *tables: TableIdentifier) -> PutResult:
        """Put a hint without an id for each table."""
        return await self.committer.put([Notification(name) for name in tables], NOW)

    async def fail(self, step: Step, number: int) -> None:
        """From now on the kernel refuses the writer thread a system call."""
        await self.committer.run(lambda _: refuse(step, number))

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[TaskGroup]:
        """While the thread is kept in a verb: tasks that end once it is let go."""
        entered, left = threading.Event(), threading.Event()

        def wait(_: SqliteOperations) -> None:
            entered.set()
            left.wait(10)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.committer.run, wait)
            await anyio.to_thread.run_sync(entered.wait, 10)
            yield tasks
            await anyio.lowlevel.checkpoint()
            left.set()

    def stored(self) -> int:
        """How many events are in the file."""
        with closing(sqlite3.connect(self.database)) as db:
            (count,) = db.execute("SELECT count(*) FROM event").fetchone()
        return int(count)


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[Writer]:
    database = tmp_path / "inbox.db"
    commits: list[CommittedTransaction] = []
    committer = GroupCommitter(
        SqliteOperations(str(database), TERMS),
        "the inbox",
        missing=lambda: None,
        queue_limit=LIMIT,
        committed=commits.append,
    )
    yield Writer(committer, database, commits)
    await committer.close()


@contextmanager
def noted(errors: list[SfnError]) -> Iterator[None]:
    """Keep the trouble that is raised within."""
    try:
        yield
    except SfnError as error:
        errors.append(error)


async def test_who_comes_while_a_transaction_runs_shares_the_next(writer: Writer) -> None:
    async with writer.busy() as tasks:
        for number in range(LIMIT):
            tasks.start_soon(writer.put, table(f"t{number}"))
        tasks.start_soon(writer.committer.run, lambda ledger: ledger.claim(PLENTY, NOW))
    shared = [(commit.calls, commit.messages, commit.may_make_due) for commit in writer.commits]
    assert shared == [(1, 0, False), (LIMIT + 1, LIMIT, True)]


async def test_many_clients_need_fewer_transactions_than_puts(writer: Writer) -> None:
    async def client(number: int) -> None:
        for _ in range(20):
            await writer.put(table(f"t{number}"))

    async with anyio.create_task_group() as tasks:
        for number in range(LIMIT):
            tasks.start_soon(client, number)
    assert sum(commit.messages for commit in writer.commits) == writer.stored() == 20 * LIMIT
    assert len(writer.commits) < 10 * LIMIT


async def test_nobody_is_answered_before_the_sync(writer: Writer) -> None:
    """A sync that fails leaves no answer but the trouble: there is one on the way to every answer."""
    await writer.put(ORDERS)
    await writer.fail(SYNC, errno.EIO)
    with pytest.raises(FatalError, match="SQLITE_IOERR_FSYNC"):
        await writer.put(ORDERS)


async def test_what_changes_nothing_costs_no_sync(writer: Writer) -> None:
    event = [Notification(ORDERS, "etl", "e1")]
    await writer.committer.put(event, NOW)
    await writer.committer.run(lambda ledger: ledger.claim(PLENTY, NOW))
    await writer.fail(SYNC, errno.EIO)
    assert await writer.committer.put(event, NOW) == PutResult(0, 1)
    await writer.committer.run(lambda ledger: ledger.claim(PLENTY, NOW))
    assert await writer.committer.run(lambda ledger: ledger.table_index.with_uuid("prod", "u1")) == []
    assert await writer.committer.run(lambda ledger: ledger.prune(NOW, 10)) == 0
    with pytest.raises(FatalError):
        await writer.put(ORDERS)


async def test_a_full_disk_takes_nothing_and_says_to_come_again(writer: Writer) -> None:
    await writer.put(ORDERS)
    await writer.fail(WRITE, errno.ENOSPC)
    errors: list[SfnError] = []

    async def put(name: TableIdentifier) -> None:
        with noted(errors):
            await writer.put(name)

    async with writer.busy() as tasks:
        tasks.start_soon(put, ORDERS)
        tasks.start_soon(put, RETURNS)
    assert [(type(error), error.retry_after) for error in errors if isinstance(error, Transient)] == [
        (Transient, 1.0)
    ] * 2
    assert errors[0] is not errors[1]
    assert "SQLITE_FULL" in errors[0].found
    known = await writer.committer.run(lambda ledger: ledger.table_index.known("prod", "", 10))
    assert [row.table for _, row in known] == [ORDERS]
    assert writer.stored() == 1


@pytest.mark.parametrize(("step", "name"), [(WRITE, "SQLITE_IOERR_WRITE"), (SYNC, "SQLITE_IOERR_FSYNC")])
async def test_after_a_failing_disk_nothing_is_trusted(writer: Writer, step: Step, name: str) -> None:
    await writer.put(ORDERS)
    await writer.fail(step, errno.EIO)
    for _ in range(3):
        with pytest.raises(FatalError, match=name):
            await writer.put(ORDERS)
    with pytest.raises(FatalError, match=name):
        await writer.committer.run(lambda ledger: ledger.table_index.with_uuid("prod", "u1"))
    with anyio.fail_after(5):
        assert name in (await writer.committer.broken()).found
        assert not await writer.committer.close()


async def test_a_checkpoint_that_fails_is_not_passed_over(writer: Writer) -> None:
    """SQLite's own checkpoints keep their errors to themselves."""
    await writer.put(ORDERS)
    await writer.fail(WRITE, errno.EIO)
    with pytest.raises(FatalError, match="SQLITE_IOERR_WRITE"):
        await writer.committer.run(SqliteOperations.checkpoint, alone=True)


async def test_a_verb_that_raises_takes_no_other_with_it(writer: Writer) -> None:
    raised: list[Exception] = []

    def spoil(ledger: SqliteOperations) -> None:
        ledger.put([Notification(ORDERS, "spoilt", "e1"), Notification(CatalogName("spoilt"))], NOW)
        ledger.claim(PLENTY, NOW)
        raise ZeroDivisionError

    async def run_spoilt() -> None:
        try:
            await writer.committer.run(spoil)
        except ZeroDivisionError as error:
            raised.append(error)

    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, ORDERS)
        tasks.start_soon(run_spoilt)
        tasks.start_soon(writer.put, RETURNS)
    assert len(raised) == 1
    assert writer.stored() == 2
    # What the undone verb made must not be remembered either, such as the lane of a catalog.
    await writer.committer.put([Notification(CatalogName("spoilt"))], NOW)
    claimed = await writer.committer.run(lambda ledger: ledger.claim(PLENTY, NOW))
    attempts = {str(claim.subject): claim.attempt for claim in claimed.jobs}
    assert attempts == {"prod:sales.orders": 1, "prod:sales.returns": 1, "spoilt": 1}


async def test_a_note_that_cannot_be_stored_takes_no_other_with_it(writer: Writer) -> None:
    raised: list[Exception] = []

    async def put_unencodable() -> None:
        try:
            await writer.put(table("\ud800"))
        except UnicodeEncodeError as error:
            raised.append(error)

    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, ORDERS)
        tasks.start_soon(put_unencodable)
    assert len(raised) == 1
    assert writer.stored() == 1


async def test_more_notes_than_may_wait_are_refused_at_once(writer: Writer) -> None:
    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, *(table(f"t{number}") for number in range(LIMIT)))
        await anyio.lowlevel.checkpoint()
        with pytest.raises(Transient) as refused:
            await writer.put(ORDERS)
        assert (refused.value.scope, refused.value.retry_after) == (ErrorScope.INBOX, 1.0)
        tasks.start_soon(writer.committer.run, lambda ledger: ledger.claim(PLENTY, NOW))
    assert await writer.put(ORDERS) == PutResult(1, 0)


async def test_a_put_of_more_notes_than_may_wait_is_taken_when_none_waits(writer: Writer) -> None:
    assert await writer.put(*[ORDERS] * (LIMIT + 1)) == PutResult(LIMIT + 1, 0, LIMIT)


async def test_a_verb_whose_caller_has_gone_is_not_run(writer: Writer) -> None:
    ran: list[str] = []
    async with writer.busy() as tasks:
        with anyio.move_on_after(0.01):
            await writer.committer.run(lambda _: ran.append("gone"))
        tasks.start_soon(writer.committer.run, lambda _: ran.append("here"))
    assert ran == ["here"]


async def test_a_close_ends_what_was_taken_and_takes_no_more(writer: Writer) -> None:
    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, ORDERS)
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(writer.committer.close)
        await anyio.lowlevel.checkpoint()
        with pytest.raises(FatalError, match="closed"):
            await writer.put(RETURNS)
    assert await writer.committer.close()
    assert writer.stored() == 1


async def test_another_programs_change_is_seen(writer: Writer) -> None:
    await writer.put(ORDERS, RETURNS)
    with closing(sqlite3.connect(writer.database)) as db, db:
        db.execute("DELETE FROM subject WHERE key LIKE '%orders%'")
    claimed = await writer.committer.run(lambda ledger: ledger.claim(Capacity(9, 9, 9), NOW))
    assert [claim.subject for claim in claimed.jobs] == [RETURNS]
    await writer.put(ORDERS)
    claimed = await writer.committer.run(lambda ledger: ledger.claim(Capacity(9, 9, 9), NOW))
    assert [claim.subject for claim in claimed.jobs] == [ORDERS]


async def test_verbs_of_one_transaction_see_each_other(writer: Writer) -> None:
    seen: list[TableIdentifier] = []

    async def look() -> None:
        page = await writer.committer.run(lambda ledger: ledger.table_index.known("prod", "", 10))
        seen.extend(row.table for _, row in page)

    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, ORDERS)
        tasks.start_soon(look)
    assert seen == [ORDERS]
