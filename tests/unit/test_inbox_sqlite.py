"""The inbox in SQLite: its statements, what they cost, and what its errors mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import closing, suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from typing_extensions import override

from sfn.clock import SystemClock
from sfn.domain.events import InboxMessage, Intent, IntentOutcome, Notification, UndecodableRequest
from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.domain.jobs import (
    Capacity,
    ConcurrencyGroup,
    DeadLettered,
    DeadLetterReason,
    LeasedJob,
    Priority,
    PublishCache,
    Returned,
)
from sfn.errors import ErrorScope, FatalError, OutcomeUnknown, Transient
from sfn.inbox import ClaimResult
from sfn.inbox.dead_letters import find_letters, prune_letters, request_of
from sfn.inbox.inbox import Inbox
from sfn.inbox.intents import MAX_UNKNOWN_TABLES
from sfn.inbox.jobs import Jobs, KnownGroups, UnreadJobError
from sfn.inbox.model import AdminCommand, DeadLetterFilter, DeadLetterStatus, InboxConfig, Job
from sfn.inbox.operations import ClaimRequest, Operations, SettleRequest
from sfn.inbox.schema import MAX_OUTCOMES, encode_message, sqlite_text, to_micros
from sfn.inbox.sqlite import MIGRATIONS, connect
from sfn.inbox.sqlite_writer import SqliteWriter, to_inbox_error
from sfn.inbox.transaction import Appended, Durability, Operation, Run, Transaction, WakeRule, Wakes, drive
from tests.support.clock import HandClock
from tests.support.memory_inbox import InlineRunner
from tests.unit.rows import NOW, ORDERS
from tests.unit.test_inbox_records import jobs, names

T = TypeVar("T")

RETURNS = TableIdentifier("prod", ("sales",), "returns")
PLENTY = Capacity(total=9, live=9, sweeps=9)
UNLIMITED = Capacity(total=10**6, live=10**6, sweeps=1)
ODD = UndecodableRequest("etl", "/v1/events", None, b"{", 1, "expected JSON")
COMMAND = AdminCommand("ann", "", NOW)
FEW, MANY = 300, 6_000

opener: ContextVar[str] = ContextVar("opener")


class OpenRunner(InlineRunner):
    """Runs operations in a transaction that is open."""

    def __init__(self, transaction: Transaction) -> None:
        self.open = transaction

    @override
    async def run(self, operation: Operation[T], durability: Durability, wakes: WakeRule[T] = Wakes.NO_WORKER) -> T:
        return await operation(self.open)


class File:
    """An inbox in a file, without a thread.

    Attributes:
        now: what its clock says.
        operations: the operations on it.
    """

    def __init__(self, path: Path | str = ":memory:", config: InboxConfig | None = None) -> None:
        self.now = NOW
        self.runner = InlineRunner(connect(str(path)))
        self.operations = Operations(config or InboxConfig(), lambda: self.now)
        self.runner.undone = self.operations.forget_groups

    def run(self, operation: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        """Run an operation in a transaction."""
        return self.runner.run_now(operation)

    def within(self, transaction: Transaction) -> Inbox:
        """The inbox, for commands in an open transaction."""
        runner = OpenRunner(transaction)
        return Inbox(runner, self.operations, HandClock(self.now), queue_limit=9, observe_fold=lambda _: None)

    def put(self, *messages: InboxMessage) -> Appended:
        """Accept messages."""
        return self.run(lambda one: one.append([encode_message(message, to_micros(self.now)) for message in messages]))

    def fold(self) -> None:
        """Fold all that waits."""
        while self.run(self.operations.fold).has_more:
            pass

    def claim(self, capacity: Capacity = PLENTY) -> ClaimResult:
        """Claim jobs."""
        return self.run(lambda one: self.operations.claim(one, ClaimRequest(capacity), []))

    def settle(self, claims: Sequence[LeasedJob], outcome: DeadLettered | Returned) -> None:
        """Settle claims."""
        requests = [SettleRequest(claim, outcome, self.now) for claim in claims]
        assert self.run(lambda one: self.operations.settle_all(one, requests)) == [True] * len(claims)

    def steps(self, operation: Callable[[Transaction], Awaitable[object]]) -> int:
        """How many of its instructions SQLite needs for an operation, which is undone."""
        taken = 0

        def count() -> None:
            nonlocal taken
            taken += 1

        async def act(transaction: Transaction) -> None:
            self.runner.db.set_progress_handler(count, 1)
            try:
                await operation(transaction)
            finally:
                self.runner.db.set_progress_handler(None, 0)
            raise OSError("undone")

        with pytest.raises(OSError, match="undone"):
            self.run(act)
        return taken

    def counted(self, table: str) -> int:
        """How many rows a table has."""
        ((count,),) = self.runner.db.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608 - our own names
        return int(count)


# ── Statements


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("SELECT seq FROM sfn.event WHERE seq > $1", "SELECT seq FROM event WHERE seq > ?1"),
        ("SELECT 1 FROM sfn.job WHERE key = $12 LIMIT $2::bigint", "SELECT 1 FROM job WHERE key = ?12 LIMIT ?2"),
        (
            "DELETE FROM sfn.job WHERE key = ANY($2::text[]) AND catalog = $1",
            "DELETE FROM job WHERE key IN (SELECT value FROM json_each(?2)) AND catalog = ?1",
        ),
        ("SELECT bigint FROM sfn.text", "SELECT bigint FROM text"),
        (
            "CREATE TABLE sfn.t(a bigint NOT NULL, b bytea, c boolean, text text, PRIMARY KEY(a))",
            "CREATE TABLE t(a INTEGER NOT NULL, b BLOB, c INTEGER, text TEXT, PRIMARY KEY(a))",
        ),
    ],
)
def test_statement_is_translated(statement: str, text: str) -> None:
    assert sqlite_text(statement) == text


def test_value_of_any_list_is_found() -> None:
    file = File()
    file.put(*(Notification(TableIdentifier("prod", (), name)) for name in ('a"b', "ü\u2028", "c")))
    file.fold()
    keys = ['["prod","a\\"b"]', '["prod","ü\u2028"]', '["prod","missing"]']
    rows = file.run(lambda one: one.fetch("SELECT key FROM sfn.job WHERE key = ANY($1::text[]) ORDER BY key", keys))
    assert [key for (key,) in rows] == keys[:2]


def test_operation_that_waits_for_something_else_is_refused() -> None:
    class Never:
        def __await__(self) -> Generator[None]:
            yield

    async def wait() -> None:
        await Never()

    with pytest.raises(RuntimeError, match="waited for something else"):
        drive(wait())


# ── The log


def test_numbers_go_on_after_all_records_were_deleted(tmp_path: Path) -> None:
    file = File(tmp_path / "inbox.db")
    file.put(Notification(ORDERS), ODD)
    file.fold()
    file.run(lambda one: one.write([Run("DELETE FROM sfn.event")]))
    file.runner.db.close()
    again = File(tmp_path / "inbox.db")
    assert again.put(Notification(ORDERS)).last == 3
    assert again.claim().fold.records == 1


@pytest.mark.parametrize("count", [1, 64, 65, 200])
def test_append_of_any_size_says_which_are_new(count: int) -> None:
    file = File()
    file.put(*(Notification(ORDERS, "etl", f"e{number}") for number in range(0, count, 3)))
    appended = file.put(*(Notification(ORDERS, "etl", f"e{number}") for number in range(count)))
    assert list(appended.new) == [number % 3 > 0 for number in range(count)]
    assert file.counted("event") == count


def test_undone_append_leaves_no_record_and_its_event_id_is_new() -> None:
    file = File()

    async def append_in_vain(transaction: Transaction) -> None:
        await transaction.append([encode_message(Notification(ORDERS, "etl", "e1"), 0)])
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        file.run(append_in_vain)
    assert file.counted("event") == 0
    assert list(file.put(Notification(ORDERS, "etl", "e1")).new) == [True]


def test_undone_fold_is_folded_again() -> None:
    file = File()
    file.put(Notification(ORDERS), Intent("a", (RETURNS,)), ODD)

    async def fold_in_vain(transaction: Transaction) -> None:
        await file.operations.fold(transaction)
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        file.run(fold_in_vain)
    assert file.counted("job") == file.counted("intent") == file.counted("dead_letter") == 0
    assert file.claim().fold.records == 3
    assert (file.counted("job"), file.counted("intent"), file.counted("dead_letter")) == (1, 1, 1)


def test_concurrency_group_of_an_undone_transaction_is_stored_by_the_next_one(tmp_path: Path) -> None:
    """Else its jobs would have a group that the next process does not know, and never be claimed again."""
    file = File(tmp_path / "inbox.db")
    file.put(Notification(ORDERS))

    async def work_in_vain(transaction: Transaction) -> None:
        await file.operations.fold(transaction)
        await file.operations.renew(transaction, [])
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        file.run(work_in_vain)
    file.fold()
    file.runner.db.close()
    again = File(tmp_path / "inbox.db")
    assert [claim.subject for claim in again.claim().jobs] == [ORDERS]


@pytest.mark.parametrize("command", ["replay", "release", "reconcile"])
def test_concurrency_group_of_an_undone_command_is_known_to_no_other_transaction(tmp_path: Path, command: str) -> None:
    """In PostgreSQL others run beside it. They would give a job a group that is never stored."""
    file = File(tmp_path / "inbox.db")
    file.runner.undone = lambda: None
    file.put(Notification(ORDERS))

    async def command_in_vain(transaction: Transaction) -> None:
        inbox = file.within(transaction)
        match command:
            case "replay":
                await inbox.replay([], [], COMMAND)
            case "release":
                await inbox.release("prod", COMMAND)
            case _:
                await inbox.reconcile([Notification(CatalogName("prod"))], COMMAND)
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        file.run(command_in_vain)
    file.fold()
    file.runner.db.close()
    again = File(tmp_path / "inbox.db")
    assert [claim.subject for claim in again.claim().jobs] == [ORDERS]


def test_an_error_of_the_database_sets_no_event_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    file = File()
    file.put(Notification(ORDERS))

    def need_another_job(*_: object) -> None:
        raise UnreadJobError(RETURNS)

    async def fail(_: Jobs, subjects: Sequence[JobKey]) -> None:
        if subjects:
            raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr("sfn.inbox.operations.jobs_after_notification", need_another_job)
        patched.setattr(Jobs, "load", fail)
        with pytest.raises(sqlite3.OperationalError):
            file.fold()
    assert (file.counted("pending"), file.counted("dead_letter")) == (1, 0)
    assert [claim.subject for claim in file.claim().jobs] == [ORDERS]


def test_jobs_of_a_store_with_a_new_prefix_hide_no_others(tmp_path: Path) -> None:
    """Else each claim would find the same jobs of another group, and ask for the next claim at once."""
    file, later = File(tmp_path / "inbox.db"), NOW + timedelta(hours=1)
    file.put(*(Notification(TableIdentifier("prod", ("sales",), f"t{number}")) for number in range(3 * PLENTY.total)))
    while claims := file.claim().jobs:
        for claim in claims:
            file.run(partial(file.operations.record_location, claim=claim, layout_key="s3://lake/sales/t", uuid=None))
        file.settle(claims, Returned(later, "its store is away"))
    file.runner.db.close()
    again = File(tmp_path / "inbox.db", InboxConfig(stores=("s3://lake/sales",)))
    assert [again.claim().next_due for _ in range(4)][-1] == later
    again.now = later
    assert sum(len(again.claim(UNLIMITED).jobs) for _ in range(2)) == 3 * PLENTY.total


class LosingRunner(InlineRunner):
    """Loses answers.

    Attributes:
        lost: what the next calls raise; the first of them after its commit.
    """

    lost: list[Transient]

    @override
    async def run(self, operation: Operation[T], durability: Durability, wakes: WakeRule[T] = Wakes.NO_WORKER) -> T:
        if self.lost and not isinstance(self.lost[0], OutcomeUnknown):
            raise self.lost.pop(0)
        result = await super().run(operation, durability, wakes)
        if self.lost:
            raise self.lost.pop(0)
        return result


async def test_a_stored_settle_is_known_after_an_outage_of_any_length() -> None:
    config, clock = InboxConfig(), HandClock(NOW)
    runner = LosingRunner(connect(":memory:"))
    runner.lost = []
    inbox = Inbox(runner, Operations(config, clock.now), clock, queue_limit=9, observe_fold=lambda _: None)
    await inbox.put([Notification(ORDERS)])
    (claim,) = (await inbox.claim(PLENTY)).jobs
    outcome = Returned(NOW + timedelta(days=1), "its store is away")
    kinds = [OutcomeUnknown, *[Transient] * 200]
    runner.lost = [one("inbox", scope=ErrorScope.INBOX, expected="an answer", found="none") for one in kinds]
    while runner.lost:
        with pytest.raises(Transient):
            await inbox.settle(claim, outcome, NOW)
        with suppress(Transient):
            await inbox.claim(PLENTY)
        clock.turn(config.lease.total_seconds() / 10)
    assert await inbox.settle(claim, outcome, NOW)


# ── Stored jobs


@pytest.mark.slow
@given(st.data(), names | st.just(CatalogName("prod")))
def test_what_is_saved_is_what_another_transaction_loads(data: st.DataObject, subject: JobKey) -> None:
    file = File()
    groups, config = KnownGroups(), InboxConfig()
    parts = ["pending", "table_state", "cache", "locations", "due_at", "version", "event_seq"]

    async def write(transaction: Transaction) -> Job | None:
        groups.take(await transaction.fetch(groups.query().text, *groups.query().values))
        unit = Jobs(transaction, groups, config)
        await unit.load([subject], caches=True)
        before = unit.get(subject)
        job = data.draw(st.none() | jobs())
        if job is not None:
            job = replace(job, subject=subject)
        if job is not None and before is not None and data.draw(st.booleans()):
            job = replace(before, **{part: getattr(job, part) for part in data.draw(st.sets(st.sampled_from(parts)))})
        if job is None:
            unit.delete(subject)
        else:
            unit.save(job)
        assert unit.get(subject) == job
        await unit.write()
        return job

    async def read(transaction: Transaction) -> Job | None:
        unit = Jobs(transaction, KnownGroups(), config)
        await unit.load([subject], caches=True)
        return unit.get(subject)

    for _ in range(3):
        job = file.run(write)
        assert file.run(read) == job
        assert file.counted("cache") == (job is not None and job.cache != PublishCache())
        assert (file.counted("job"), file.counted("place") > 0) == (
            job is not None,
            job is not None and bool(job.locations),
        )


def test_job_that_was_read_without_its_cache_keeps_it() -> None:
    file = File()
    job = Job(ORDERS, NOW, cache=PublishCache(etag="v1"))

    async def change(transaction: Transaction, changed: Job | None) -> Job | None:
        unit = Jobs(transaction, KnownGroups(), InboxConfig())
        await unit.load([ORDERS])
        known = unit.get(ORDERS)
        unit.save(changed or replace(known or job, attempt=7))
        await unit.write()
        await (again := Jobs(transaction, KnownGroups(), InboxConfig())).load([ORDERS], caches=True)
        return again.get(ORDERS)

    file.run(lambda one: change(one, job))
    assert file.run(lambda one: change(one, None)) == replace(job, attempt=7)


def test_history_of_outcomes_takes_a_bounded_number_of_rows() -> None:
    file = File()
    for number in range(2 * MAX_OUTCOMES + 3):
        file.put(Notification(ORDERS))
        file.settle(file.claim().jobs, Returned(file.now, f"store {number} is away"))
    assert file.counted("outcome") == MAX_OUTCOMES


# ── Costs


@pytest.mark.parametrize("backlog", [20, 2000])
def test_blocked_backlog_is_never_scanned(backlog: int) -> None:
    file = File()
    file.put(*(Notification(TableIdentifier("away", ("sales",), f"t{number}")) for number in range(backlog)))
    file.put(Notification(ORDERS))
    file.fold()
    blocked = Capacity(total=9, live=9, sweeps=9, per_group={ConcurrencyGroup("away", "", Priority.LIVE): 0})
    assert file.steps(lambda one: file.operations.claim(one, ClaimRequest(blocked), [])) < 1500
    assert [claim.subject for claim in file.claim(blocked).jobs] == [ORDERS]


@pytest.mark.parametrize("backlog", [20, 2000])
def test_backlog_of_the_same_group_is_never_scanned(backlog: int) -> None:
    file = File()
    file.put(*(Notification(TableIdentifier("prod", ("sales",), f"t{number}")) for number in range(backlog)))
    file.fold()
    assert file.steps(lambda one: file.operations.claim(one, ClaimRequest(PLENTY), [])) < 5000


def opened(count: int) -> File:
    """An inbox with so many jobs, and as many open intents, of which none is due."""
    file = File()
    for number in range(count):
        name = TableIdentifier("prod", ("sales",), f"t{number}")
        file.put(Notification(name), Intent(f"i{number}", (name,), "gateway", f"10.0.0.{number % 50}"))
    file.fold()
    return file


@pytest.mark.slow
def test_no_fold_or_claim_looks_at_all_that_is_open() -> None:
    few, many = opened(FEW), opened(MANY)
    one = TableIdentifier("prod", ("sales",), "t7")
    appended: list[InboxMessage] = [
        Notification(one),
        Notification(ORDERS),
        Intent("new", (ORDERS,)),
        IntentOutcome("i7", is_known=True),
        IntentOutcome("i8", is_known=False),
    ]
    for message in appended:

        def act(file: File, message: InboxMessage = message) -> int:
            async def fold(transaction: Transaction) -> None:
                await transaction.append([encode_message(message, 0)])
                await file.operations.fold(transaction)

            return file.steps(fold)

        # A deeper tree takes a step more here and there.
        assert act(many) < 1.2 * act(few) + 100
    for file in (few, many):
        assert file.steps(partial(file.operations.claim, request=ClaimRequest(PLENTY), made=[])) < 5000


def test_flood_of_a_peer_takes_no_more_rows_than_its_bound() -> None:
    file = File()
    peers = [TableIdentifier("prod", ("sales",), f"t{number}") for number in range(3 * MAX_UNKNOWN_TABLES)]
    file.put(*(Intent(f"i{number}", (name,), "gateway", "10.0.0.1") for number, name in enumerate(peers)))
    file.fold()
    assert file.counted("intent") == MAX_UNKNOWN_TABLES + 1


def test_intent_and_its_answer_leave_no_row() -> None:
    file = File()
    file.put(Intent("a", (ORDERS,)), IntentOutcome("a", is_known=True))
    file.put(Intent("b", (ORDERS, RETURNS)))
    file.put(IntentOutcome("b", is_known=True))
    assert file.steps(file.operations.fold) < 600
    file.fold()
    assert file.counted("intent") == 0


def numbered(number: int) -> TableIdentifier:
    return TableIdentifier("prod" if number % 2 else "few", ("sales",), f"t{number}")


def die(file: File, count: int) -> None:
    """So many dead letters, all but the last dozen of one reason."""
    for start in range(0, count, 1_000):
        file.put(*(Notification(numbered(number)) for number in range(start, min(start + 1_000, count))))
        file.fold()
        claims = file.claim(UNLIMITED).jobs
        poison = [claim for claim in claims if int(str(claim.subject).rpartition("t")[2]) >= count - 12]
        for some, reason in ((poison, DeadLetterReason.POISON), (claims, DeadLetterReason.PERMANENT)):
            dead = [claim for claim in some if reason is DeadLetterReason.POISON or claim not in poison]
            file.settle(dead, DeadLettered(reason, "why"))


LOOKS: dict[str, Callable[[File, Transaction], Awaitable[object]]] = {
    "a page": lambda _, one: find_letters(one, DeadLetterFilter(), 20, 100),
    "the newest": lambda _, one: find_letters(one, DeadLetterFilter(), 20),
    "the last page": lambda _, one: find_letters(one, DeadLetterFilter(), 20, 10**9),
    "of a rare reason": lambda _, one: find_letters(one, DeadLetterFilter(reason=DeadLetterReason.POISON), 20, 0),
    "of a catalog": lambda _, one: find_letters(one, DeadLetterFilter(catalog="few"), 20, 0),
    "of a catalog that has none": lambda _, one: find_letters(one, DeadLetterFilter(catalog="none"), 20, 0),
    "of a table": lambda _, one: find_letters(one, DeadLetterFilter(table=numbered(7)), 20, 0),
    "of a sender": lambda _, one: find_letters(one, DeadLetterFilter(sender="etl"), 20, 0),
    "all of a table": lambda _, one: find_letters(one, DeadLetterFilter(status=None, table=numbered(7)), 20, 0),
    "that were replayed": lambda _, one: find_letters(one, DeadLetterFilter(status=DeadLetterStatus.REPLAYED), 20, 0),
    "a batch of replays": lambda file, one: file.within(one).replay(range(1, 100), [], COMMAND),
    "one that is discarded": lambda file, one: file.within(one).discard([1], COMMAND),
    "the prune": lambda _, one: prune_letters(one, NOW, 20),
}


@pytest.fixture(name="dead", scope="module")
def fixture_dead() -> list[File]:
    files = [File(), File()]
    for file, count in zip(files, (FEW, MANY), strict=True):
        die(file, count)
    return files


@pytest.mark.parametrize("look", list(LOOKS))
def test_many_dead_letters_cost_no_more_than_few(dead: list[File], look: str) -> None:
    few, many = (file.steps(partial(LOOKS[look], file)) for file in dead)
    assert many < few * 1.2 + 100


def test_letters_that_were_closed_long_ago_go() -> None:
    file = File()
    die(file, 5)
    file.put(ODD)
    file.fold()
    found = file.run(lambda one: find_letters(one, DeadLetterFilter(), 9, 0))
    first, second, *_, odd = (letter.id for letter in found)
    later = AdminCommand("ann", "", NOW + timedelta(hours=1))
    file.run(lambda one: file.within(one).discard([first, odd], COMMAND))
    file.run(lambda one: file.within(one).discard([second], later))
    moment = NOW + timedelta(minutes=30)
    assert [file.run(lambda one: prune_letters(one, moment, most)) for most in (1, 9, 9)] == [1, 1, 0]  # noqa: B023
    discarded = DeadLetterFilter(status=DeadLetterStatus.DISCARDED)
    assert [one.id for one in file.run(lambda one: find_letters(one, discarded, 9, 0))] == [second]
    assert file.run(lambda one: request_of(one, odd)) is None
    assert file.counted("undecodable") == 0
    assert len(file.run(lambda one: find_letters(one, DeadLetterFilter(), 9, 0))) == 3


# ── Recovery


@pytest.mark.parametrize("recovered", [True, False])
def test_poison_is_reported_by_the_first_claim_that_is_kept(*, recovered: bool) -> None:
    file = File(config=InboxConfig(max_crashes=1))
    file.put(Notification(ORDERS))
    assert file.claim().jobs
    file.now += timedelta(minutes=1)
    if recovered:
        assert file.run(file.operations.recover) == 1

    async def claim_in_vain(transaction: Transaction) -> None:
        await file.operations.claim(transaction, ClaimRequest(PLENTY), [])
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        file.run(claim_in_vain)
    claimed = [file.operations.with_unreported(file.claim()) for _ in range(2)]
    assert [(len(one.poison_letters), one.expired_leases) for one in claimed] == [(1, 1), (0, 0)]
    assert file.counted("dead_letter") == 1


def test_more_leases_than_one_transaction_takes_back_are_taken_back_at_the_start(tmp_path: Path) -> None:
    file = File(tmp_path / "inbox.db")
    file.put(*(Notification(numbered(number)) for number in range(1_200)))
    file.fold()
    assert len(file.claim(UNLIMITED).jobs) == 1_200
    file.runner.db.close()
    again = File(tmp_path / "inbox.db")
    assert again.run(again.operations.recover) == 1_200
    claimed = again.operations.with_unreported(again.claim(UNLIMITED))
    assert (len(claimed.jobs), claimed.expired_leases) == (1_200, 1_200)


# ── Errors


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "inbox.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t(a PRIMARY KEY)")
    return path


@pytest.fixture
def db(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as opened:
        yield opened


def provoked(call: Callable[[], object]) -> sqlite3.Error:
    with pytest.raises(sqlite3.Error) as raised:
        call()
    return raised.value


def test_full_database_is_transient(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA max_page_count = 3")
    error = provoked(lambda: db.execute("INSERT INTO t VALUES(zeroblob(100000))"))
    meaning = to_inbox_error(error, "inbox.db")
    assert isinstance(meaning, Transient)
    assert (meaning.scope, meaning.retry_after, meaning.where) == (ErrorScope.INBOX, 1.0, "inbox.db")
    assert "SQLITE_FULL" in meaning.found
    assert "disk" in meaning.remedy


def test_lock_of_another_program_is_transient(database: Path, db: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        meaning = to_inbox_error(provoked(lambda: db.execute("INSERT INTO t VALUES(1)")), "inbox.db")
    assert isinstance(meaning, Transient)
    assert "SQLITE_BUSY" in meaning.found


def test_damaged_database_is_fatal(database: Path, db: sqlite3.Connection) -> None:
    database.write_bytes(database.read_bytes()[:4096] + b"\x99" * 8192)
    meaning = to_inbox_error(provoked(lambda: db.execute("SELECT * FROM t").fetchall()), "inbox.db")
    assert isinstance(meaning, FatalError)
    assert "SQLITE_CORRUPT" in meaning.found
    assert "backup" in meaning.remedy


def test_database_that_cannot_be_written_is_fatal(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA query_only = 1")
    meaning = to_inbox_error(provoked(lambda: db.execute("INSERT INTO t VALUES(1)")), "inbox.db")
    assert isinstance(meaning, FatalError)
    assert "SQLITE_READONLY" in meaning.found


@pytest.mark.parametrize("text", ["garbage " * 1000, None])
def test_file_that_is_no_database_is_fatal(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "other" / "inbox.db"
    if text is not None:
        path.parent.mkdir()
        path.write_text(text)
    meaning = to_inbox_error(provoked(lambda: sqlite3.connect(path).execute("SELECT * FROM t")), "inbox.db")
    assert isinstance(meaning, FatalError)
    assert ("SQLITE_NOTADB" if text else "SQLITE_CANTOPEN") in meaning.found


@pytest.mark.parametrize("statement", ["INSERT INTO t VALUES(1), (1)", "SELECT nothing FROM t", "INSERT INTO t"])
def test_wrong_statement_says_nothing_of_the_inbox(db: sqlite3.Connection, statement: str) -> None:
    assert to_inbox_error(provoked(lambda: db.execute(statement)), "inbox.db") is None


def test_error_without_a_code_says_nothing_of_the_inbox(db: sqlite3.Connection) -> None:
    db.close()
    assert to_inbox_error(provoked(lambda: db.execute("SELECT 1")), "inbox.db") is None


def test_file_system_without_a_write_ahead_log_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's twin of a file system without shared memory: it answers, and stays with the journal that it had."""
    path = tmp_path / "inbox.db"
    opened = sqlite3.connect(f"{path.as_uri()}?vfs=unix-dotfile", uri=True, isolation_level=None)
    monkeypatch.setattr("sfn.inbox.sqlite.sqlite3.connect", lambda *_, **__: opened)
    with closing(opened) as db:
        with pytest.raises(FatalError) as refused:
            connect(str(path))
        assert db.execute("SELECT * FROM sqlite_schema").fetchall() == []
    assert (refused.value.where, refused.value.found) == (str(path), "journal_mode delete")
    assert "a local disk" in refused.value.remedy
    assert "inbox.url" in refused.value.remedy


def test_new_inbox_has_this_version_and_all_of_its_tables(tmp_path: Path) -> None:
    with closing(connect(str(tmp_path / "inbox.db"))) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        known = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert {"event", "job", "cache", "place", "outcome", "intent", "dead_letter", "counter"} <= known
    with closing(connect(str(tmp_path / "inbox.db"))):
        pass


async def test_puts_of_one_turn_of_the_event_loop_are_one_statement(tmp_path: Path) -> None:
    statements, openers = list[str](), list[str]()
    opener.set("this test")
    db, clock = connect(str(tmp_path / "inbox.db")), SystemClock()
    writer = SqliteWriter(
        db, "inbox.db", missing=lambda: None, observe=lambda _: openers.append(opener.get("")), undone=lambda: None
    )
    inbox = Inbox(writer, Operations(InboxConfig(), clock.now), clock, queue_limit=100, observe_fold=lambda _: None)
    db.set_trace_callback(statements.append)
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(inbox.put, [Notification(ORDERS, "etl", f"{number % 15}")])
    assert (await inbox.put([Notification(ORDERS, "etl", "3")])).duplicates == 1
    assert await writer.close()
    assert len([one for one in statements if one.startswith("INSERT INTO event")]) == 2
    assert set(openers) == {"this test"}  # not the thread's surroundings
