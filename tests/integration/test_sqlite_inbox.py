"""The inbox in an SQLite file: recovery, locks and the group commit."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import pytest
from anyio.abc import TaskGroup
from structlog.testing import capture_logs
from typing_extensions import override

from sfn.domain.events import Notification, PutResult
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    Capacity,
    ConcurrencyGroup,
    DeadLettered,
    DeadLetterReason,
    Done,
    PublishCache,
    PublishResult,
    StepKind,
    StoredObject,
    SweepCompleted,
    Wakeup,
)
from sfn.errors import ErrorScope, FatalError, SfnError, Transient
from sfn.inbox import ClaimResult
from sfn.inbox.administration import PRUNE_BATCH_SIZE, prune_events
from sfn.inbox.inbox import Inbox
from sfn.inbox.jobs import tables_after, tables_with_uuid
from sfn.inbox.model import AdminCommand, CommittedTransaction
from sfn.inbox.operations import ClaimRequest, Operations
from sfn.inbox.schema import encode_message
from sfn.inbox.sqlite import MIGRATIONS, SqliteInbox, connect
from sfn.inbox.sqlite_writer import SqliteWriter
from sfn.inbox.transaction import Durability, Operation, Transaction
from tests.promises.inboxes import AT, PLENTY, TERMS, Ground, pointer, table
from tests.promises.processes import Step, ended, names_in, refuse, started, told
from tests.support.clock import HandClock
from tests.support.processes import until
from tests.support.shared_inboxes import hold, open_it, put_for_ever

T = TypeVar("T")

# Opening and recovery.


ORDERS, RETURNS, STOCK = table("orders"), table("returns"), table("stock")
MEMO = PublishCache(etag="v1", objects={f"{AT}/a.ver": StoredObject(b"\xff", "t1")})
KILLS = 6


async def test_all_of_it_is_there_after_a_restart(tmp_path: Path) -> None:
    clock, database = HandClock(), tmp_path / "inbox.db"
    async with SqliteInbox.opened(database, TERMS, clock) as inbox:
        ground = Ground(inbox, clock)
        await inbox.put([Notification(CatalogName("prod"))])
        await ground.settle(await ground.claim(), SweepCompleted(ground.after(900), ground.now, within_limit=True))
        await ground.published(ORDERS, due=0)
        done = ground.done()
        await ground.settle(await ground.claim(), replace(done, result=replace(done.result, cache=MEMO)))
        await ground.settled(RETURNS, DeadLettered(DeadLetterReason.FOREIGN_CATALOG, "somebody else is there"))
        await ground.settled(STOCK, Done(ground.after(3600), PublishResult(wakeups=(Wakeup(ORDERS, f"{AT}2"),))))
        await inbox.put([Notification(ORDERS, "etl", "e1", min_metadata_location=pointer(3), drop=True)])
        known, letters = await ground.known(), await ground.letters()
    async with SqliteInbox.opened(database, TERMS, clock) as inbox:
        ground = Ground(inbox, clock)
        assert await ground.known() == known
        assert await ground.letters() == letters
        assert await inbox.put([Notification(ORDERS, "etl", "e1")]) == PutResult(0, 1)
        claim = await ground.claim()
    assert (claim.subject, claim.locations) == (ORDERS, frozenset({AT, f"{AT}2"}))
    assert (claim.pending.min_metadata_location, claim.pending.drop, claim.swept_at) == (pointer(3), True, clock.now())
    assert claim.table_state.live is not None
    assert claim.cache == MEMO


async def test_leases_that_the_last_process_left_behind_are_told_with_the_first_claims(tmp_path: Path) -> None:
    clock, database = HandClock(), tmp_path / "inbox.db"
    async with SqliteInbox.opened(database, TERMS, clock) as inbox:
        ground = Ground(inbox, clock)
        await ground.hint(ORDERS, RETURNS)
        assert len(await ground.claims()) == 2
    async with SqliteInbox.opened(database, TERMS, clock) as inbox:
        assert [(await inbox.claim(PLENTY)).expired_leases for _ in range(2)] == [2, 0]


async def test_leases_of_the_last_process_are_taken_back_at_once_as_crashes(tmp_path: Path) -> None:
    clock, database = HandClock(), tmp_path / "inbox.db"
    for attempt in range(1, TERMS.max_crashes + 1):
        async with SqliteInbox.opened(database, TERMS, clock) as inbox:
            await Ground(inbox, clock).hint(ORDERS)
            assert (await Ground(inbox, clock).claim()).attempt == attempt
    async with SqliteInbox.opened(database, TERMS, clock) as inbox:
        assert await Ground(inbox, clock).claims() == []
        assert await Ground(inbox, clock).open_letters() == [("prod:sales.orders", "poison")]


async def test_each_start_is_logged_with_what_it_found(tmp_path: Path) -> None:
    clock, database = HandClock(), tmp_path / "inbox.db"
    database.touch()
    (tmp_path / "link").symlink_to(database)
    with capture_logs() as logs:
        async with SqliteInbox.opened(database, TERMS, clock) as inbox:
            await Ground(inbox, clock).hint(ORDERS, RETURNS)
            assert len(await Ground(inbox, clock).claims()) == 2
        async with SqliteInbox.opened(tmp_path / "link", TERMS, clock):
            pass
    opened = {"event": "inbox opened", "log_level": "info", "path": str(database)}
    assert logs == [{**opened, "new": True, "leases_taken_back": 0}, {**opened, "new": False, "leases_taken_back": 2}]


async def test_versions_of_a_job_go_on_where_the_last_process_ended(tmp_path: Path) -> None:
    clock, database = HandClock(), tmp_path / "inbox.db"
    seen: list[int] = []
    for _ in range(3):
        async with SqliteInbox.opened(database, TERMS, clock) as inbox:
            ground = Ground(inbox, clock)
            await ground.hint(ORDERS)
            claim = await ground.claim()
            seen += [claim.version]
            await ground.settle(claim, Done(ground.after(3600)))
    assert seen == sorted(set(seen))


async def test_a_closed_inbox_is_one_file_and_a_free_lock(tmp_path: Path) -> None:
    clock, database = HandClock(), tmp_path / "a" / "b" / "inbox.db"
    async with SqliteInbox.opened(database, TERMS, clock) as inbox:
        await Ground(inbox, clock).hint(ORDERS)
        assert len(list(database.parent.iterdir())) == 4
    assert sorted(path.name for path in database.parent.iterdir()) == ["inbox.db", "inbox.db.lock"]
    with pytest.raises(FatalError):
        await inbox.put([Notification(ORDERS)])
    async with SqliteInbox.opened(database, TERMS, clock) as inbox:
        assert [row.table for row in await Ground(inbox, clock).known()] == [ORDERS]


async def test_a_second_process_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    database = tmp_path / "inbox.db"
    async with SqliteInbox.opened(database, TERMS, HandClock()):
        refused = told(open_it, database)
        assert isinstance(refused, tuple)
        name, message = refused
        assert name == "FatalError"
        assert str(database) in message
        assert f"process {os.getpid()} " in message
        with pytest.raises(FatalError, match=str(os.getpid())):
            await SqliteInbox.opened(database, TERMS, HandClock()).__aenter__()
    assert told(open_it, database) is None


@pytest.mark.parametrize("target", ["inbox.db", "not/yet/inbox.db"])
async def test_an_inbox_may_lie_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    clock, database = HandClock(), tmp_path / "disk" / target
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(Path("disk") / target)
    monkeypatch.chdir(tmp_path)
    async with SqliteInbox.opened(tmp_path / "link", TERMS, clock) as inbox:
        assert await inbox.put([Notification(ORDERS, "etl", "e1")]) == PutResult(1, 0)
    for name in (Path("link"), database):
        async with SqliteInbox.opened(name, TERMS, clock) as inbox:
            assert await inbox.put([Notification(ORDERS, "etl", "e1")]) == PutResult(0, 1)
    assert names_in(database.parent) == ["inbox.db", "inbox.db.lock"]
    assert names_in(tmp_path) == ["disk", "link"]


@pytest.mark.parametrize("first", ["link", "inbox.db"])
async def test_an_inbox_of_two_names_is_one_inbox(tmp_path: Path, first: str) -> None:
    (tmp_path / "link").symlink_to("inbox.db")
    async with SqliteInbox.opened(tmp_path / first, TERMS, HandClock()):
        for name in ("link", "inbox.db"):
            with pytest.raises(FatalError, match=f"process {os.getpid()} holds"):
                await SqliteInbox.opened(tmp_path / name, TERMS, HandClock()).__aenter__()


async def test_nothing_is_acknowledged_once_a_link_leads_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("inbox.db")
    async with SqliteInbox.opened(tmp_path / "link", TERMS, HandClock()) as inbox:
        await inbox.put([Notification(ORDERS)])
        (tmp_path / "link").unlink()
        (tmp_path / "other.db").touch()
        (tmp_path / "link").symlink_to("other.db")
        with pytest.raises(FatalError, match="link where it was"):
            await inbox.put([Notification(ORDERS)])


async def test_a_link_that_leads_to_itself_is_no_inbox(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(FatalError, match="SQLITE_CANTOPEN"):
        await SqliteInbox.opened(tmp_path / "link", TERMS, HandClock()).__aenter__()


async def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    database = tmp_path / "inbox.db"
    ours, theirs = Pipe()
    process = started(hold, database, theirs)
    theirs.close()
    assert ours.recv() == "open"
    with pytest.raises(FatalError, match=str(process.pid)):
        await SqliteInbox.opened(database, TERMS, HandClock()).__aenter__()
    process.kill()
    assert ended(process) == -signal.SIGKILL
    async with SqliteInbox.opened(database, TERMS, HandClock()) as inbox:
        assert len(await Ground(inbox, HandClock()).known()) == 1


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    database = tmp_path / "inbox.db"
    async with SqliteInbox.opened(database, TERMS, HandClock()):
        pass
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = database.read_bytes()
    for _ in range(2):
        with pytest.raises(FatalError, match=f"found version {len(MIGRATIONS) + 1}"):
            await SqliteInbox.opened(database, TERMS, HandClock()).__aenter__()
    assert database.read_bytes() == before


async def test_another_file_is_no_inbox(tmp_path: Path) -> None:
    database = tmp_path / "inbox.db"
    database.write_text("this is no database\n" * 1000)
    with pytest.raises(FatalError, match=r"SQLITE_NOTADB.*inbox\.url"):
        await SqliteInbox.opened(database, TERMS, HandClock()).__aenter__()
    assert database.read_text().startswith("this is no database")


async def test_a_damaged_page_is_named_at_every_start(tmp_path: Path) -> None:
    database = tmp_path / "inbox.db"
    async with SqliteInbox.opened(database, TERMS, HandClock()) as inbox:
        await inbox.put([Notification(ORDERS)])
    with closing(sqlite3.connect(database)) as db:
        pages = [page for (page,) in db.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'event'")]
        ((size,),) = db.execute("PRAGMA page_size")
    with database.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)
    for _ in range(2):
        with pytest.raises(FatalError, match="SQLITE_CORRUPT"):
            await SqliteInbox.opened(database, TERMS, HandClock()).__aenter__()


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for database in (tmp_path / "file" / "inbox.db", tmp_path / "file" / "deeper" / "inbox.db"):
        with pytest.raises(FatalError, match=r"ENOTDIR|EEXIST") as refused:
            await SqliteInbox.opened(database, TERMS, HandClock()).__aenter__()
        assert str(tmp_path / "file") in refused.value.found
        assert "let the service's user write" in refused.value.remedy


async def test_a_folder_in_place_of_the_file_is_no_inbox(tmp_path: Path) -> None:
    (tmp_path / "inbox.db").mkdir()
    with pytest.raises(FatalError, match="SQLITE_CANTOPEN"):
        await SqliteInbox.opened(tmp_path / "inbox.db", TERMS, HandClock()).__aenter__()


@pytest.mark.parametrize("suffix", ["", "-wal", ".lock"])
async def test_nothing_is_acknowledged_once_a_file_is_gone(tmp_path: Path, suffix: str) -> None:
    database = tmp_path / "inbox.db"
    async with SqliteInbox.opened(database, TERMS, HandClock()) as inbox:
        await inbox.put([Notification(ORDERS)])
        (tmp_path / f"inbox.db{suffix}").rename(tmp_path / "elsewhere")
        with pytest.raises(FatalError, match=f"inbox.db{suffix} where it was"):
            await inbox.put([Notification(ORDERS)])
        with pytest.raises(FatalError):
            await inbox.run_maintenance(TERMS.lease)


async def test_old_events_go_and_their_ids_with_them(tmp_path: Path) -> None:
    clock = HandClock()
    async with SqliteInbox.opened(tmp_path / "inbox.db", TERMS, clock) as inbox:
        count = 2 * PRUNE_BATCH_SIZE + 7
        old = [Notification(ORDERS, "etl", f"e{number}") for number in range(count)]
        await inbox.put(old)
        clock.turn(60)
        await inbox.put([Notification(ORDERS, "etl", "young")])
        # A record that is not folded yet is no old one.
        assert await inbox.run_maintenance_once(TERMS.lease) == 0
        while (await inbox.fold()).has_more:
            pass
        assert await inbox.run_maintenance_once(TERMS.lease) == count
        assert await inbox.run_maintenance_once(TERMS.lease) == 0
        assert await inbox.put([*old[:5], Notification(ORDERS, "etl", "young")]) == PutResult(5, 1)


async def test_tending_goes_on_until_it_is_cancelled(tmp_path: Path) -> None:
    async with SqliteInbox.opened(tmp_path / "inbox.db", TERMS, HandClock()) as inbox:
        with anyio.move_on_after(0.05) as tending:
            await inbox.run_maintenance(TERMS.lease)
        assert tending.cancelled_caught


async def test_tending_that_fails_is_told_of_once_and_goes_on(tmp_path: Path) -> None:
    database = tmp_path / "inbox.db"
    async with SqliteInbox.opened(database, TERMS, HandClock()) as inbox:
        with capture_logs() as logs, closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(inbox.run_maintenance, TERMS.lease, 0.01)
                await until(lambda: len(logs) == 1)
                other.execute("ROLLBACK")
                await until(lambda: len(logs) == 2)
                tasks.cancel_scope.cancel()
    assert [(entry["log_level"], entry["event"], entry["part"]) for entry in logs] == [
        ("warning", "inbox call failed", "maintenance"),
        ("info", "inbox recovered", "maintenance"),
    ]
    assert "SQLITE_BUSY" in logs[0]["error"]


@pytest.mark.parametrize("kill", range(KILLS))
def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path, kill: int) -> None:
    database = tmp_path / "inbox.db"
    ours, theirs = Pipe()
    process = started(put_for_ever, database, theirs)
    theirs.close()
    acknowledged = {ours.recv()}
    time.sleep(kill * 0.03 + random.uniform(0, 0.03))
    process.kill()
    assert ended(process) == -signal.SIGKILL
    with suppress(EOFError), ours:
        while True:
            acknowledged.add(ours.recv())
    with closing(sqlite3.connect(database)) as db:
        stored = set(db.execute("SELECT sender, event_id FROM event"))
        assert acknowledged <= stored
        (last,) = db.execute("SELECT last FROM counter WHERE name = 'folded'").fetchone()
        assert last <= max(seq for (seq,) in db.execute("SELECT seq FROM event"))


async def test_what_was_not_folded_when_the_process_ended_is_folded_by_the_next(tmp_path: Path) -> None:
    clock, database = HandClock(), tmp_path / "inbox.db"
    async with SqliteInbox.opened(database, TERMS, clock) as inbox:
        await Ground(inbox, clock).hint(ORDERS, RETURNS)
    async with SqliteInbox.opened(database, TERMS, clock) as inbox:
        assert (await inbox.stats()).tables == {("prod", "due"): 2}
        assert len(await Ground(inbox, clock).claims()) == 2


# Slow transactions.


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


async def test_jobs_of_a_claim_that_was_cancelled_while_it_ran_are_given_back(tmp_path: Path) -> None:
    entered, left = threading.Event(), threading.Event()

    class Slots(Capacity):
        """Room for all; but it takes a while to say so."""

        @override
        def available_in(self, lane: ConcurrencyGroup) -> int:
            entered.set()
            left.wait(10)
            return super().available_in(lane)

    clock = HandClock()
    async with SqliteInbox.opened(tmp_path / "inbox.db", TERMS, clock) as inbox:
        ground = Ground(inbox, clock)
        await ground.hint(ORDERS, RETURNS)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inbox.claim, Slots(total=9, live=9, sweeps=9))
            await anyio.to_thread.run_sync(entered.wait, 10)
            tasks.cancel_scope.cancel()
        left.set()
        # The next claim may begin before it is known what the cancelled one leased.
        claimed = [await inbox.claim(PLENTY) for _ in range(2)]
        assert [claim.attempt for one in claimed for claim in one.jobs] == [1, 1]
        assert [one.expired_leases for one in claimed] == [0, 0]


NOW = HandClock().now()
SYNC, WRITE = Step("fdatasync"), Step("pwrite64")
LIMIT = 10


@dataclass(frozen=True, slots=True)
class Writer:
    """A writer on a new database, the inbox that uses it, and what it reported of its transactions."""

    writer: SqliteWriter
    operations: Operations
    inbox: Inbox
    database: Path
    commits: list[CommittedTransaction]

    async def put(self, *tables: TableIdentifier) -> PutResult:
        """Put a hint without an id for each table."""
        return await self.inbox.put([Notification(name) for name in tables])

    async def run(self, operation: Operation[T], durability: Durability = Durability.DERIVED) -> T:
        """Run an operation in the thread."""
        return await self.writer.run(operation, durability)

    async def claim(self) -> ClaimResult:
        """Claim jobs."""
        return await self.run(lambda one: self.operations.claim(one, ClaimRequest(PLENTY), []))

    async def fail(self, step: Step, number: int) -> None:
        """From now on the kernel refuses the writer thread a system call."""

        async def refuse_it(_: Transaction) -> None:
            refuse(step, number)

        await self.run(refuse_it)

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[TaskGroup]:
        """While the thread is kept in an operation: tasks that end once it is let go."""
        entered, left = threading.Event(), threading.Event()

        async def wait(_: Transaction) -> None:
            entered.set()
            left.wait(10)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.run, wait)
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
    clock = HandClock()
    operations = Operations(TERMS, clock.now)
    writer = SqliteWriter(
        connect(str(database)),
        "the inbox",
        missing=lambda: None,
        observe=commits.append,
        undone=operations.forget_groups,
    )
    inbox = Inbox(writer, operations, clock, queue_limit=LIMIT, observe_fold=lambda _: None)
    yield Writer(writer, operations, inbox, database, commits)
    await writer.close()


@contextmanager
def noted(errors: list[SfnError]) -> Iterator[None]:
    """Keep the trouble that is raised within."""
    try:
        yield
    except SfnError as error:
        errors.append(error)


async def test_who_comes_while_a_transaction_runs_shares_the_next(writer: Writer) -> None:
    """What must survive a power cut has a transaction, and what is derived from it another one."""
    async with writer.busy() as tasks:
        for number in range(LIMIT):
            tasks.start_soon(writer.put, table(f"t{number}"))
        tasks.start_soon(writer.claim)
        tasks.start_soon(writer.claim)
    assert [(commit.calls, commit.messages) for commit in writer.commits] == [(1, 0), (LIMIT, LIMIT), (2, 0)]


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


async def test_what_changes_nothing_or_is_derived_costs_no_sync(writer: Writer) -> None:
    event = [Notification(ORDERS, "etl", "e1")]
    await writer.inbox.put(event)
    await writer.fail(SYNC, errno.EIO)
    assert await writer.inbox.put(event) == PutResult(0, 1)
    (claim,) = (await writer.inbox.claim(PLENTY)).jobs
    assert await writer.inbox.renew([claim]) == [claim]
    assert await writer.inbox.settle(claim, Done(NOW), NOW)
    assert await writer.run(lambda one: tables_with_uuid(one, "prod", "u1"), Durability.READ) == []
    assert await writer.run(lambda one: prune_events(one, NOW)) == 0
    with pytest.raises(FatalError):
        await writer.put(ORDERS)


@pytest.mark.parametrize("call", ["record_location", "allow_step", "release", "retire"])
async def test_what_a_file_or_an_operator_relies_on_is_synced(writer: Writer, call: str) -> None:
    await writer.put(ORDERS)
    (claim,) = (await writer.inbox.claim(PLENTY)).jobs
    await writer.fail(SYNC, errno.EIO)
    command = AdminCommand("ann", "", NOW)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "record_location": lambda: writer.inbox.record_location(claim, AT, "u1"),
        "allow_step": lambda: writer.inbox.allow_step(claim, BackwardStep(StepKind.DROP, "u1", pointer(1)), NOW),
        "release": lambda: writer.inbox.release("prod", command),
        "retire": lambda: writer.inbox.retire("prod", retired=True, command=command),
    }
    with pytest.raises(FatalError, match="SQLITE_IOERR_FSYNC"):
        await calls[call]()


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
    assert writer.stored() == 1


@pytest.mark.parametrize(("step", "name"), [(WRITE, "SQLITE_IOERR_WRITE"), (SYNC, "SQLITE_IOERR_FSYNC")])
async def test_after_a_failing_disk_nothing_is_trusted(writer: Writer, step: Step, name: str) -> None:
    await writer.put(ORDERS)
    await writer.fail(step, errno.EIO)
    for _ in range(3):
        with pytest.raises(FatalError, match=name):
            await writer.put(ORDERS)
    with pytest.raises(FatalError, match=name):
        await writer.run(lambda one: tables_with_uuid(one, "prod", "u1"), Durability.READ)
    with pytest.raises(FatalError, match=name):
        await writer.writer.check()
    with anyio.fail_after(5):
        assert not await writer.writer.close()


async def test_an_operation_that_raises_takes_no_other_with_it(writer: Writer) -> None:
    raised: list[Exception] = []
    spoilt = CatalogName("spoilt")

    async def spoil(transaction: Transaction) -> None:
        await transaction.append([encode_message(Notification(ORDERS, "spoilt", "e1"), 0)])
        await transaction.append([encode_message(Notification(spoilt), 0)])
        await writer.operations.claim(transaction, ClaimRequest(PLENTY), [])
        raise ZeroDivisionError

    async def run_spoilt() -> None:
        try:
            await writer.run(spoil, Durability.SYNCED)
        except ZeroDivisionError as error:
            raised.append(error)

    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, ORDERS)
        tasks.start_soon(run_spoilt)
        tasks.start_soon(writer.put, RETURNS)
    assert len(raised) == 1
    assert writer.stored() == 2
    # What the undone operation made must not be remembered either, such as the concurrency group of a catalog.
    await writer.inbox.put([Notification(spoilt)])
    attempts = {str(claim.subject): claim.attempt for claim in (await writer.claim()).jobs}
    assert attempts == {"prod:sales.orders": 1, "prod:sales.returns": 1, "spoilt": 1}


async def test_a_concurrency_group_of_an_undone_transaction_is_stored_by_the_next_one(writer: Writer) -> None:
    async def raise_it(_: Transaction) -> None:
        raise ZeroDivisionError

    async def run_and_fail() -> None:
        with pytest.raises(ZeroDivisionError):
            await writer.run(raise_it)

    await writer.put(ORDERS)
    async with writer.busy() as tasks:
        tasks.start_soon(writer.inbox.fold)
        tasks.start_soon(writer.inbox.renew, [])
        tasks.start_soon(run_and_fail)
    assert await writer.writer.close()
    async with SqliteInbox.opened(writer.database, TERMS, HandClock()) as inbox:
        assert [claim.subject for claim in (await inbox.claim(PLENTY)).jobs] == [ORDERS]


async def test_a_lone_surrogate_is_replaced_and_takes_no_other_message_with_it(writer: Writer) -> None:
    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, ORDERS)
        tasks.start_soon(writer.put, table("\ud800"))
    assert writer.stored() == 2
    assert sorted(str(claim.subject) for claim in (await writer.claim()).jobs) == ["prod:sales.?", "prod:sales.orders"]


async def test_more_messages_than_may_wait_are_refused_at_once(writer: Writer) -> None:
    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, *(table(f"t{number}") for number in range(LIMIT)))
        await anyio.lowlevel.checkpoint()
        with pytest.raises(Transient) as refused:
            await writer.put(ORDERS)
        assert (refused.value.scope, refused.value.retry_after) == (ErrorScope.INBOX, 1.0)
        tasks.start_soon(writer.claim)
    assert await writer.put(ORDERS) == PutResult(1, 0)


async def test_messages_that_wait_for_a_fold_count_as_waiting(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.inbox.inbox.FOLD_LIMIT", 1)
    await writer.put(STOCK)
    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, *(table(f"t{number}") for number in range(LIMIT)))
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(5), pytest.raises(Transient):
            await writer.put(ORDERS)


async def test_an_ended_wait_reports_no_error_that_no_caller_awaits(writer: Writer) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    await writer.fail(SYNC, errno.EIO)
    with pytest.raises(FatalError):
        await writer.put(ORDERS)
    for _ in range(2):
        # The thread keeps the calls of a turn until the next one.
        writer.writer.end_wait()
        await anyio.sleep(0.05)
    gc.collect()
    assert reported == []


async def test_a_put_of_more_messages_than_may_wait_is_taken_when_none_waits(writer: Writer) -> None:
    assert await writer.put(*[ORDERS] * (LIMIT + 1)) == PutResult(LIMIT + 1, 0)


async def test_an_operation_without_a_caller_is_not_run(writer: Writer) -> None:
    ran: list[str] = []

    async def note(name: str) -> None:
        ran.append(name)

    async with writer.busy() as tasks:
        with anyio.move_on_after(0.01):
            await writer.run(lambda _: note("gone"))
        tasks.start_soon(writer.run, lambda _: note("here"))
    assert ran == ["here"]


async def test_a_put_without_a_caller_is_folded_all_the_same(writer: Writer) -> None:
    """Its sender may send it again, and is told that it was a duplicate."""
    event = [Notification(ORDERS, "etl", "e1")]
    entered, left = threading.Event(), threading.Event()

    async def wait(_: Transaction) -> None:
        entered.set()
        left.wait(10)

    await writer.inbox.claim(PLENTY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.inbox.put, event)
        # The append is in the same turn as this, and its answer comes after it.
        tasks.start_soon(writer.run, wait, Durability.SYNCED)
        await anyio.to_thread.run_sync(entered.wait, 10)
        tasks.cancel_scope.cancel()
        left.set()
    await until(lambda: writer.stored() == 1)
    assert await writer.inbox.put(event) == PutResult(0, 1)
    with anyio.fail_after(5):
        claimed = await writer.inbox.claim(PLENTY, (), NOW + TERMS.lease)
    assert [claim.subject for claim in claimed.jobs] == [ORDERS]


async def test_a_close_ends_what_was_taken_and_takes_no_more(writer: Writer) -> None:
    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, ORDERS)
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(writer.writer.close)
        await anyio.lowlevel.checkpoint()
        with pytest.raises(FatalError, match="closed"):
            await writer.put(RETURNS)
    assert await writer.writer.close()
    assert writer.stored() == 1


async def test_another_programs_change_is_seen(writer: Writer) -> None:
    await writer.put(ORDERS, RETURNS)
    await writer.inbox.fold()
    with closing(sqlite3.connect(writer.database)) as db, db:
        db.execute("DELETE FROM job WHERE key LIKE '%orders%'")
    assert [claim.subject for claim in (await writer.claim()).jobs] == [RETURNS]
    await writer.put(ORDERS)
    assert [claim.subject for claim in (await writer.claim()).jobs] == [ORDERS]


async def test_operations_of_one_turn_see_what_was_accepted_in_it(writer: Writer) -> None:
    seen: list[TableIdentifier] = []

    async def look() -> None:
        page, _ = await writer.run(lambda one: tables_after(one, "prod", "", 10), Durability.READ)
        seen.extend(row.table for row in page)

    async with writer.busy() as tasks:
        tasks.start_soon(writer.put, ORDERS)
        tasks.start_soon(writer.inbox.fold)
        tasks.start_soon(look)
    assert seen == [ORDERS]
