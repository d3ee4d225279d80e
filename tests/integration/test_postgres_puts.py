"""Appends to an inbox in PostgreSQL, and its outages."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta

import anyio
import anyio.to_thread
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Notification, PutResult, TableOrigin, UndecodableRequest
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import Done, LeasedJob
from sfn.errors import ErrorScope, Permanent, Transient
from sfn.inbox.model import CommittedTransaction, InboxConfig
from sfn.inbox.postgres import FOLD_LOCK, PostgresInbox, PostgresTransaction, connected
from sfn.inbox.postgres_server import PostgresServer
from sfn.inbox.schema import APPEND_NUMBERS, encode_key
from tests.promises.inboxes import EVENT_ONLY, PLENTY, TERMS
from tests.servers.postgres import Postgres
from tests.support.clock import HandClock
from tests.support.shared_inboxes import (
    blocked,
    claims,
    done,
    fill,
    holding_fold_lock,
    named,
    replicas,
    session,
    stored,
    stored_jobs,
)

# ── Concurrent appends

LONG = TableIdentifier("prod", tuple(f"{'n' * 500}{level}" for level in range(60)), "é" * 500)
"""Longer than an index takes."""
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def versions(dsn: str) -> dict[str, int]:
    """Return the version of each job: the number of its notifications."""
    return {str(subject): job.version for subject, job in (await stored_jobs(dsn)).items()}


async def fold_all(inbox: PostgresInbox) -> None:
    """Fold everything that waits."""
    while (await inbox.fold()).has_more:
        pass


async def test_appends_of_the_same_tables_in_any_order_never_deadlock(dsn: str) -> None:
    tables = [named(number) for number in range(12)]
    failed: list[Transient] = []

    async def putter(inbox: PostgresInbox, number: int) -> None:
        for turn in range(25):
            mine = tables[number:] + tables[:number]
            try:
                await inbox.put(
                    [
                        Notification(name, "etl", f"{number}-{turn}-{name.name}")
                        for name in mine[:: -1 if turn % 2 else 1]
                    ]
                )
            except Transient as error:
                failed.append(error)

    async with replicas(dsn, SystemClock(), 3) as inboxes:
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(putter, inboxes[number % 3], number)
        assert failed == []
        await fold_all(inboxes[0])
        assert await stored(dsn, "SELECT count(*) FROM sfn.event") == [12 * 25 * 12]
        assert await versions(dsn) == {str(name): 12 * 25 for name in tables}
    assert await stored(dsn, DEADLOCKS) == [0]


async def test_appends_claims_and_settles_of_the_same_tables_never_deadlock(dsn: str) -> None:
    clock = SystemClock()
    stop = anyio.Event()

    async def putter(inbox: PostgresInbox, number: int) -> None:
        for turn in range(40):
            await inbox.put(
                [Notification(named((number * 5 + step * (1 if turn % 2 else -1)) % 20)) for step in range(9)]
            )

    async def worker(inbox: PostgresInbox) -> None:
        while not stop.is_set():
            for claim in await claims(inbox):
                await inbox.record_location(claim, f"s3://lake/{claim.fencing_token % 3}", "u")
                await inbox.settle(claim, done(0), clock.now())

    async with replicas(dsn, clock, 3) as inboxes:
        async with anyio.create_task_group() as working:
            for inbox in inboxes:
                working.start_soon(worker, inbox)
            async with anyio.create_task_group() as tasks:
                for number in range(6):
                    tasks.start_soon(putter, inboxes[number % 3], number)
            stop.set()
        await fold_all(inboxes[0])
        # Each table has its notifications, and the wake-ups of others at its location.
        events = Counter(await stored(dsn, "SELECT key FROM sfn.event"))
        found = {encode_key(subject): job.version for subject, job in (await stored_jobs(dsn)).items()}
        assert sum(events.values()) == 6 * 40 * 9
        assert all(found[key] >= count for key, count in events.items())
    assert await stored(dsn, DEADLOCKS) == [0]


async def test_an_event_that_two_processes_receive_at_once_is_accepted_once(dsn: str) -> None:
    accepted: list[PutResult] = []

    async def put(inbox: PostgresInbox, events: Sequence[str]) -> None:
        accepted.append(await inbox.put([Notification(named(len(event)), "etl", event) for event in events]))

    async with replicas(dsn, SystemClock(), 2) as inboxes:
        for turn in range(20):
            events = [f"{turn}-a", f"{turn}-bb", f"{turn}-ccc"]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(put, inboxes[0], events)
                tasks.start_soon(put, inboxes[1], events[::-1])
        await fold_all(inboxes[0])
    assert sum(one.accepted for one in accepted) == sum(one.duplicates for one in accepted) == 60
    assert sum((await versions(dsn)).values()) == 60


async def test_an_event_that_is_twice_in_one_batch_is_accepted_once(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        event = Notification(named(0), "etl", "e1")
        assert await inbox.put([event, Notification(named(1)), event]) == PutResult(2, 1)
        await fold_all(inbox)
    assert await versions(dsn) == {str(named(0)): 1, str(named(1)): 1}


async def test_an_append_of_more_records_than_one_statement_takes_is_stored_as_a_whole(dsn: str) -> None:
    count = APPEND_NUMBERS + 500
    async with PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), SystemClock(), queue_limit=2 * count) as inbox:
        events = [Notification(named(number % 50), "etl", str(number)) for number in range(count)]
        assert await inbox.put(events) == PutResult(count, 0)
        assert await inbox.put(events[-700:]) == PutResult(0, 700)
        await fold_all(inbox)
    assert await versions(dsn) == {str(named(number)): count // 50 for number in range(50)}


async def test_a_table_that_two_processes_learn_of_at_once_has_one_job(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 2) as inboxes:
        for turn in range(20):
            async with anyio.create_task_group() as tasks:
                for inbox in inboxes:
                    tasks.start_soon(inbox.put, [Notification(named(turn)), Notification(named(turn + 1000))])
        leased = await claims(inboxes[0])
    assert len(leased) == 40
    assert set((await versions(dsn)).values()) == {2}
    assert await stored(dsn, "SELECT count(*) FROM sfn.event") == [80]


async def test_calls_that_come_during_an_append_share_the_next_one(dsn: str) -> None:
    commits: list[CommittedTransaction] = []
    opened = PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), SystemClock(), observe=commits.append)
    async with opened as inbox, anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(inbox.put, [Notification(named(number))])
    assert [(commit.calls, commit.messages) for commit in commits] == [(1, 1), (49, 49)]


@asynccontextmanager
async def holding_event(dsn: str, event: str) -> AsyncIterator[None]:
    """Keep every append of an event waiting, and undo at the end what did so."""
    async with session(dsn) as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "INSERT INTO sfn.event(seq, sender, event_id, key, kind, received_at, record) "
            "VALUES (0, 'etl', $1, '', 1, 0, '')",
            event,
        )
        try:
            yield
        finally:
            await transaction.rollback()


async def test_a_call_that_is_cancelled_while_it_waits_stores_nothing_and_delays_no_other_call(dsn: str) -> None:
    async with (
        replicas(dsn, SystemClock(), 1) as [inbox],
        anyio.create_task_group() as tasks,
        holding_event(dsn, "first"),
    ):
        tasks.start_soon(inbox.put, [Notification(named(0), "etl", "first")])
        await blocked(dsn, 1)
        with anyio.move_on_after(0.1):
            await inbox.put([Notification(named(1), "etl", "cancelled")])
        tasks.start_soon(inbox.put, [Notification(named(2), "etl", "last")])
        await anyio.sleep(0.1)
    assert await stored(dsn, "SELECT event_id FROM sfn.event ORDER BY seq") == ["first", "last"]


async def test_a_cancelled_call_that_appends_for_others_finishes_the_append(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        async with anyio.create_task_group() as tasks:
            cancelled = anyio.CancelScope()

            async def put() -> None:
                with cancelled:
                    await inbox.put([Notification(named(0), "etl", "first")])

            async with holding_event(dsn, "first"):
                tasks.start_soon(put)
                await blocked(dsn, 1)
                tasks.start_soon(inbox.put, [Notification(named(1), "etl", "second")])
                await anyio.sleep(0.1)
                cancelled.cancel()
        assert sorted(await stored(dsn, "SELECT event_id FROM sfn.event")) == ["first", "second"]


async def test_more_messages_than_may_wait_are_refused_at_once(dsn: str) -> None:
    async with PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), SystemClock(), queue_limit=3) as inbox:
        async with anyio.create_task_group() as tasks, holding_event(dsn, "first"):
            tasks.start_soon(inbox.put, [Notification(named(0), "etl", "first"), Notification(named(1))])
            await blocked(dsn, 1)
            with pytest.raises(Transient, match="at most 3 messages") as refused:
                await inbox.put([Notification(named(2)), Notification(named(3))])
            assert refused.value.retry_after == 1.0
        assert await inbox.put([Notification(named(number)) for number in range(5)]) == PutResult(5, 0)


async def test_a_value_that_cannot_be_stored_is_refused_alone(dsn: str) -> None:
    answers: list[PutResult | Permanent] = []

    async def put(notification: Notification) -> None:
        try:
            answers.append(await inbox.put([notification]))
        except Permanent as error:
            answers.append(error)

    async with replicas(dsn, SystemClock(), 1) as [inbox], anyio.create_task_group() as tasks:
        tasks.start_soon(put, Notification(named(0)))
        for notification in (
            Notification(named(1)),
            Notification(named(2), random.Random(0).randbytes(9_000).hex(), "e1"),
            Notification(named(3)),
        ):
            tasks.start_soon(put, notification)
    assert Counter(type(answer) for answer in answers) == {PutResult: 3, Permanent: 1}
    assert await stored(dsn, "SELECT count(*) FROM sfn.event") == [3]
    assert await stored(dsn, "SELECT count(*) FROM sfn.pending") == [3]


async def test_characters_that_the_database_cannot_hold_are_replaced(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        odd = UndecodableRequest("etl", "/v1/events", "a\0b", b"\0", 1, "U+0000 \0")
        assert await inbox.put([Notification(named(0), "etl", "a\0b"), odd]) == PutResult(1, 0)
        assert await inbox.put([Notification(named(0), "etl", "a\0b")]) == PutResult(0, 1)
        event = await inbox.request_of(1)
    assert event is not None
    assert (event.content_type, event.body, event.detail) == ("a\ufffdb", b"\0", "U+0000 \ufffd")
    assert await stored(dsn, "SELECT event_id FROM sfn.event WHERE kind = 1") == ["a\ufffdb"]


async def test_a_lone_surrogate_is_replaced(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        odd = UndecodableRequest("etl", "/v1/events", None, b"", 1, "a \ud800")
        await inbox.put([Notification(named(0), "etl", "b \ud800"), odd])
        event = await inbox.request_of(1)
    assert event is not None
    assert event.detail == "a ?"
    assert await stored(dsn, "SELECT event_id FROM sfn.event WHERE kind = 1") == ["b ?"]


async def test_a_name_that_is_too_long_for_an_index_works_like_any_other(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox]:
        await inbox.put([Notification(LONG), Notification(named(0)), Notification(LONG)])
        by_name: dict[str, LeasedJob] = {str(claim.subject): claim for claim in await claims(inbox)}
        claim = by_name[str(LONG)]
        assert await inbox.record_location(claim, "s3://lake/long", "u") == frozenset()
        assert await inbox.settle(claim, Done(clock.now()), clock.now())
        assert {known.table async for known in inbox.tables("prod")} == {LONG, named(0)}
        assert await inbox.table_status(LONG) is not None
        assert (await inbox.claim(PLENTY)).jobs[0].subject == LONG


async def test_a_late_event_follows_a_chain_of_renames_to_a_job_that_it_does_not_name(dsn: str) -> None:
    a, b, c = (TableIdentifier(EVENT_ONLY, ("sales",), name) for name in "abc")
    async with replicas(dsn, HandClock(), 1, TERMS) as [inbox]:
        await inbox.put(
            [Notification(a, min_metadata_location="s3://lake/t/metadata/1.json", uuid="u", origin=TableOrigin.CREATE)]
        )
        for old, new in ((a, b), (b, c)):
            await inbox.put(
                [Notification(old, renamed_to=new, uuid="u"), Notification(new, renamed_from=old, uuid="u")]
            )
        await inbox.fold()
        await inbox.put([Notification(a, min_metadata_location="s3://lake/t/metadata/2.json", uuid="u")])
        (told,) = await inbox.reported_tables(c)
    assert told.locations[-1] == "s3://lake/t/metadata/2.json"


async def test_appends_wait_for_no_transaction_that_changes_jobs(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 2) as [first, second]:
        await fill(first, 1)
        async with anyio.create_task_group() as tasks, holding_fold_lock(dsn):
            tasks.start_soon(claims, second)
            await blocked(dsn, 1)
            with anyio.fail_after(4):
                assert await first.put([Notification(named(1), "etl", "e1")]) == PutResult(1, 0)
                assert await second.put([Notification(named(1), "etl", "e1")]) == PutResult(0, 1)
                # Reads do not wait, either.
                assert await first.retired_catalogs() == frozenset()
                assert await first.max_missing("prod") > 0


# ── Outages

SHORT_LEASES = InboxConfig(lease=timedelta(seconds=2))
RESTARTS = 4


@pytest.fixture(name="own", scope="module")
def fixture_own() -> Iterator[Postgres]:
    """A server for these tests alone."""
    with Postgres() as postgres:
        yield postgres


@dataclass(slots=True)
class Record:
    """What the inbox confirmed, as its callers know it.

    Attributes:
        acknowledged: ids of the accepted events.
        settled: number of confirmed settles by token and job.
        errors: number of errors by call, scope and pause.
    """

    acknowledged: set[str] = field(default_factory=set)
    settled: Counter[tuple[int, JobKey]] = field(default_factory=Counter)
    errors: Counter[tuple[str, ErrorScope, float | None]] = field(default_factory=Counter)

    @asynccontextmanager
    async def noted(self, call: str) -> AsyncIterator[None]:
        """Expect an error that passes: the caller tries again after its pause."""
        try:
            yield
        except Transient as error:
            self.errors[call, error.scope, error.retry_after] += 1
            await anyio.sleep(0.05)


async def send(inbox: PostgresInbox, number: int, record: Record, stop: anyio.Event) -> None:
    """Send event after event, each until it is accepted."""
    turn = 0
    while not stop.is_set():
        event = f"{number}-{turn}"
        async with record.noted("put"):
            await inbox.put([Notification(named(turn % 20), "etl", event)])
            record.acknowledged.add(event)
            turn += 1


async def work(inbox: PostgresInbox, record: Record, stop: anyio.Event) -> None:
    """Claim and settle, each claim until it is settled or lost."""
    clock = SystemClock()
    while not stop.is_set():
        found: list[LeasedJob] = []
        async with record.noted("claim"):
            found += await claims(inbox)
        async with anyio.create_task_group() as tasks:
            for claim in found:
                tasks.start_soon(settle, inbox, claim, record, clock)
        await anyio.sleep(0.01)


async def settle(inbox: PostgresInbox, claim: LeasedJob, record: Record, clock: SystemClock) -> None:
    outcome, now = Done(clock.now() + timedelta(hours=1)), clock.now()
    while True:
        async with record.noted("settle"):
            record.settled[claim.fencing_token, claim.subject] += await inbox.settle(claim, outcome, now)
            return


async def test_no_acknowledged_event_is_lost_however_often_the_server_is_killed(own: Postgres) -> None:
    """By default this server answers before anything is on disk."""
    with own.database() as database:
        dsn, record, stop = own.dsn(database), Record(), anyio.Event()
        own.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
        async with replicas(dsn, SystemClock(), 2, SHORT_LEASES) as inboxes, anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(send, inboxes[number % 2], number, record, stop)
            for inbox in inboxes:
                tasks.start_soon(work, inbox, record, stop)
            for _ in range(RESTARTS):
                await anyio.sleep(1.2)
                before = len(record.acknowledged)
                await anyio.to_thread.run_sync(own.stop)
                await anyio.sleep(0.3)
                await anyio.to_thread.run_sync(own.start)
                with anyio.fail_after(30):
                    while len(record.acknowledged) < before + 20:  # noqa: ASYNC110 - the tasks go on
                        await anyio.sleep(0.02)
            stop.set()
        assert {error[1:] for error in record.errors} == {(ErrorScope.INBOX, 1.0)}
        assert {error[0] for error in record.errors} >= {"put", "claim"}
        assert set(record.settled.values()) <= {0, 1}
        events = await stored(dsn, "SELECT event_id FROM sfn.event")
        assert record.acknowledged <= set(events)
        assert len(events) == len(set(events))
        async with replicas(dsn, SystemClock(), 1, SHORT_LEASES) as [inbox]:
            with anyio.fail_after(20):
                while await unprocessed(dsn):
                    for claim in await claims(inbox):
                        assert await inbox.settle(claim, done(), SystemClock().now())
        jobs = (await stored_jobs(dsn)).values()
        # Every event of the log counts once.
        assert sum(job.version for job in jobs) == len(events)
        assert max(job.crashes for job in jobs) == 0


async def unprocessed(dsn: str) -> bool:
    """Return True if a record waits to be folded, or a job has something newer than its last publish."""
    jobs = (await stored_jobs(dsn)).values()
    waits = any(job.version > job.processed_version or job.state != "queued" for job in jobs)
    return waits or await stored(dsn, "SELECT count(*) FROM sfn.pending") != [0]


async def test_a_call_without_a_free_connection_is_refused_and_the_next_one_works(own: Postgres) -> None:
    with own.database() as database:
        own.execute("CREATE ROLE narrow LOGIN")
        own.execute(f"ALTER DATABASE {database} OWNER TO narrow")
        server = PostgresServer(own.dsn(database).replace("postgres@", "narrow@"))
        async with PostgresInbox.opened(server, InboxConfig(), SystemClock()) as inbox:
            own.execute("ALTER ROLE narrow CONNECTION LIMIT 0")
            own.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'narrow'")
            await anyio.sleep(0.1)
            with pytest.raises(Transient, match="53300") as refused:
                await fill(inbox, 1)
            assert "max_connections" in refused.value.remedy
            own.execute("ALTER ROLE narrow CONNECTION LIMIT -1")
            await anyio.sleep(0.3)
            assert await inbox.put([Notification(named(0))]) == PutResult(1, 0)


async def test_a_primary_that_accepts_no_writes_any_more_is_waited_for(own: Postgres) -> None:
    ended = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name = 'iceberg-sfn' AND datname = '{}'"
    )
    with own.database() as database:
        async with replicas(own.dsn(database), SystemClock(), 1) as [inbox]:
            own.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
            own.execute(ended.format(database))
            await anyio.sleep(0.1)
            with pytest.raises(Transient, match="25006") as refused:
                await fill(inbox, 1)
            assert "target_session_attrs" in refused.value.remedy
            own.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
            own.execute(ended.format(database))
            await anyio.sleep(0.1)
            await fill(inbox, 1)


async def test_a_table_that_is_locked_for_long_delays_an_append_by_seconds_only(own: Postgres) -> None:
    with own.database() as database:
        dsn = own.dsn(database)
        async with replicas(dsn, SystemClock(), 1) as [inbox], session(dsn) as other:
            async with other.transaction():
                await other.execute("LOCK TABLE sfn.event")
                with anyio.fail_after(9), pytest.raises(Transient, match="55P03") as refused:
                    await fill(inbox, 1)
                assert "pg_stat_activity" in refused.value.remedy
            await fill(inbox, 1)
            assert len((await inbox.claim(PLENTY)).jobs) == 1


async def test_a_process_that_stops_inside_a_transaction_holds_the_lock_for_seconds_only(own: Postgres) -> None:
    """Such as a suspended process: the server ends its session. Events are accepted all the time."""

    async def stop(transaction: PostgresTransaction) -> None:
        await transaction.fetch("SELECT pg_advisory_xact_lock($1::bigint)", FOLD_LOCK)
        locked.set()
        await anyio.sleep(14)

    async def stopped() -> None:
        with anyio.move_on_after(20):
            async with connected(PostgresServer(dsn)) as runner:
                await runner.on_tables(stop)

    with own.database() as database:
        dsn, locked = own.dsn(database), anyio.Event()
        leased: list[LeasedJob] = []
        async with replicas(dsn, SystemClock(), 1) as [inbox], anyio.create_task_group() as tasks:
            tasks.start_soon(stopped)
            await locked.wait()
            began = anyio.current_time()
            with anyio.fail_after(4):
                await fill(inbox, 1)
            while not leased:
                with suppress(Transient):
                    leased += await claims(inbox)
            assert anyio.current_time() - began < 13
            tasks.cancel_scope.cancel()
