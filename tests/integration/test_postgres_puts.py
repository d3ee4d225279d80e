"""Puts into an inbox in PostgreSQL."""

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
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Done, LeasedJob
from sfn.errors import ErrorScope, Permanent, Transient
from sfn.inbox.model import CommittedTransaction, InboxConfig
from sfn.inbox.postgres import PostgresInbox, PostgresServer
from sfn.inbox.postgres.database import reached
from sfn.inbox.postgres.tables import Sql
from tests.promises.inboxes import PLENTY, TERMS, TOLD
from tests.servers.postgres import Postgres
from tests.support.clock import HandClock
from tests.support.shared_inboxes import claims, done, fill, named, replicas, session, stored

# Concurrent puts.


LONG = TableIdentifier("prod", tuple(f"{'n' * 500}{level}" for level in range(60)), "é" * 500)
"""Longer than an index takes."""
BEHIND = "SELECT count(*) FROM sfn.subject s WHERE seq <> (SELECT max(seq) FROM sfn.event e WHERE e.key = s.key)"
WORK = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture(name="dsn")
def fixture_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


async def test_puts_of_the_same_tables_in_any_order_wait_for_nobody_in_a_circle(dsn: str) -> None:
    tables = [named(number) for number in range(12)]
    failed: list[Transient] = []

    async def putter(inbox: PostgresInbox, number: int) -> None:
        for turn in range(25):
            mine = (tables[number:] + tables[:number])[:: -1 if turn % 2 else 1]
            try:
                await inbox.put(
                    [
                        Notification(name, "etl", f"{number}-{turn}-{name.name}")
                        for name in mine[:: -1 if turn % 2 else 1]
                    ]
                )
            except Transient as trouble:
                failed.append(trouble)

    async with replicas(dsn, SystemClock(), 3) as inboxes:
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(putter, inboxes[number % 3], number)
        assert failed == []
        assert await stored(dsn, "SELECT count(*) FROM sfn.event") == [12 * 25 * 12]
        assert await stored(dsn, "SELECT count(*) FROM sfn.subject") == [12]
        assert await stored(dsn, BEHIND) == [0]
    assert await stored(dsn, WORK) == [0]


async def test_puts_claims_and_settles_of_the_same_tables_wait_for_nobody_in_a_circle(dsn: str) -> None:
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

    async with replicas(dsn, clock, 3) as inboxes, anyio.create_task_group() as working:
        for inbox in inboxes:
            working.start_soon(worker, inbox)
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(putter, inboxes[number % 3], number)
        stop.set()
    assert await stored(dsn, WORK) == [0]


async def test_an_event_that_two_processes_get_at_once_is_taken_once(dsn: str) -> None:
    accepted: list[PutResult] = []

    async def put(inbox: PostgresInbox, events: Sequence[str]) -> None:
        accepted.append(await inbox.put([Notification(named(len(event)), "etl", event) for event in events]))

    async with replicas(dsn, SystemClock(), 2) as inboxes:
        for turn in range(20):
            events = [f"{turn}-a", f"{turn}-bb", f"{turn}-ccc"]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(put, inboxes[0], events)
                tasks.start_soon(put, inboxes[1], events[::-1])
    assert sum(one.accepted for one in accepted) == sum(one.duplicates for one in accepted) == 60


async def test_a_table_that_two_processes_hear_of_first_has_one_row(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 2) as inboxes:
        for turn in range(20):
            async with anyio.create_task_group() as tasks:
                for inbox in inboxes:
                    tasks.start_soon(inbox.put, [Notification(named(turn)), Notification(named(turn + 1000))])
        rows = await claims(inboxes[0])
    assert len(rows) == 40
    assert await stored(dsn, BEHIND) == [0]
    assert await stored(dsn, "SELECT count(*) FROM sfn.event") == [80]


async def test_who_comes_while_a_transaction_runs_shares_the_next(dsn: str) -> None:
    commits: list[CommittedTransaction] = []
    opened = PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), SystemClock(), observe=commits.append)
    async with opened as inbox, anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(inbox.put, [Notification(named(number))])
    assert [(commit.calls, commit.messages, commit.may_make_due) for commit in commits] == [
        (1, 1, True),
        (49, 49, True),
    ]


async def test_one_that_is_given_up_while_it_waits_asked_nothing_and_holds_up_nobody(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox], session(dsn) as other:
        await inbox.put([Notification(named(0))])
        async with anyio.create_task_group() as tasks, other.transaction():
            await other.execute("SELECT FROM sfn.subject FOR UPDATE")
            tasks.start_soon(inbox.put, [Notification(named(0), "etl", "first")])
            await anyio.sleep(0.1)
            with anyio.move_on_after(0.1):
                await inbox.put([Notification(named(1), "etl", "given up")])
            tasks.start_soon(inbox.put, [Notification(named(2), "etl", "last")])
            await anyio.sleep(0.1)
        events = await stored(dsn, "SELECT event_id FROM sfn.event WHERE sender = 'etl' ORDER BY seq")
    assert events == ["first", "last"]


async def test_the_one_that_runs_the_transaction_of_others_runs_it_to_its_end(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox], session(dsn) as other:
        await inbox.put([Notification(named(0))])
        async with anyio.create_task_group() as tasks, other.transaction():
            await other.execute("SELECT FROM sfn.subject FOR UPDATE")
            impatient = anyio.CancelScope()

            async def put() -> None:
                with impatient:
                    await inbox.put([Notification(named(0), "etl", "first")])

            tasks.start_soon(put)
            await anyio.sleep(0.1)
            tasks.start_soon(inbox.put, [Notification(named(1), "etl", "second")])
            await anyio.sleep(0.1)
            impatient.cancel()
        assert sorted(await stored(dsn, "SELECT event_id FROM sfn.event WHERE sender = 'etl'")) == ["first", "second"]


async def test_more_than_may_wait_is_refused_at_once(dsn: str) -> None:
    async with PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), SystemClock(), queue_limit=3) as inbox:
        async with session(dsn) as other, anyio.create_task_group() as tasks, other.transaction():
            await other.execute("LOCK TABLE sfn.subject")
            tasks.start_soon(inbox.put, [Notification(named(0)), Notification(named(1))])
            await anyio.sleep(0.1)
            with pytest.raises(Transient, match="at most 3 messages") as refused:
                await inbox.put([Notification(named(2)), Notification(named(3))])
            assert refused.value.retry_after == 1.0
        assert await inbox.put([Notification(named(number)) for number in range(5)]) == PutResult(5, 0, 2)


async def test_a_value_that_cannot_be_stored_takes_no_other_with_it(dsn: str) -> None:
    answers: list[PutResult | Permanent] = []

    async def put(hint: Notification) -> None:
        try:
            answers.append(await inbox.put([hint]))
        except Permanent as error:
            answers.append(error)

    async with replicas(dsn, SystemClock(), 1) as [inbox], anyio.create_task_group() as tasks:
        tasks.start_soon(put, Notification(named(0)))
        for hint in (
            Notification(named(1)),
            Notification(named(2), "etl", random.Random(0).randbytes(9_000).hex()),
            Notification(named(3)),
        ):
            tasks.start_soon(put, hint)
    assert Counter(type(answer) for answer in answers) == {PutResult: 3, Permanent: 1}
    assert await stored(dsn, "SELECT count(*) FROM sfn.subject") == [3]


async def test_what_no_text_of_the_database_holds_is_kept_all_the_same(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        odd = UndecodableRequest("etl", "/v1/events", "a\0b", b"\0", 1, "U+0000 \0 and \ud800")
        assert await inbox.put([Notification(named(0), "etl", "a\0b"), odd]) == PutResult(1, 0, 0)
        assert await inbox.put([Notification(named(0), "etl", "a\0b")]) == PutResult(0, 1, 0)
        event = await inbox.request_of(1)
    assert event is not None
    assert (event.content_type, event.body, event.detail) == ("a\ufffdb", b"\0", "U+0000 \ufffd and ?")


async def test_a_name_that_no_index_takes_is_a_name_like_any_other(dsn: str) -> None:
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


async def test_a_chain_of_renames_is_followed_by_rows_that_were_not_named(dsn: str) -> None:
    """A late event of a table that went on twice belongs to a row that its hint does not name."""
    a, b, c = (TableIdentifier(TOLD, ("sales",), name) for name in "abc")
    async with replicas(dsn, HandClock(), 1, TERMS) as [inbox]:
        await inbox.put(
            [Notification(a, min_metadata_location="s3://lake/t/metadata/1.json", uuid="u", origin=TableOrigin.CREATE)]
        )
        for old, new in ((a, b), (b, c)):
            await inbox.put(
                [Notification(old, renamed_to=new, uuid="u"), Notification(new, renamed_from=old, uuid="u")]
            )
        await inbox.put([Notification(a, min_metadata_location="s3://lake/t/metadata/2.json", uuid="u")])
        (told,) = await inbox.reported_tables(c)
    assert told.locations[-1] == "s3://lake/t/metadata/2.json"


# Database outages.


SHORT_LEASES = InboxConfig(lease=timedelta(seconds=2))
RESTARTS = 4


@pytest.fixture(name="own", scope="module")
def fixture_own() -> Iterator[Postgres]:
    """A server that nobody else has."""
    with Postgres() as postgres:
        yield postgres


@dataclass(slots=True)
class Book:
    """What was promised, kept outside of what made the promises."""

    acknowledged: set[str] = field(default_factory=set)
    settled: Counter[int] = field(default_factory=Counter)
    troubles: Counter[tuple[str, ErrorScope, float | None]] = field(default_factory=Counter)

    @asynccontextmanager
    async def noted(self, what: str) -> AsyncIterator[None]:
        """Trouble is expected: the caller comes again when it is told to."""
        try:
            yield
        except Transient as trouble:
            self.troubles[what, trouble.scope, trouble.retry_after] += 1
            await anyio.sleep(0.05)


async def send(inbox: PostgresInbox, number: int, book: Book, stop: anyio.Event) -> None:
    """Send event after event, each until it is taken."""
    turn = 0
    while not stop.is_set():
        event = f"{number}-{turn}"
        async with book.noted("put"):
            await inbox.put([Notification(named(turn % 20), "etl", event)])
            book.acknowledged.add(event)
            turn += 1


async def work(inbox: PostgresInbox, book: Book, stop: anyio.Event) -> None:
    """Claim and settle, each claim until it is settled or lost."""
    clock = SystemClock()
    while not stop.is_set():
        found: list[LeasedJob] = []
        async with book.noted("claim"):
            found += await claims(inbox)
        async with anyio.create_task_group() as tasks:
            for claim in found:
                tasks.start_soon(settle, inbox, claim, book, clock)
        await anyio.sleep(0.01)


async def settle(inbox: PostgresInbox, claim: LeasedJob, book: Book, clock: SystemClock) -> None:
    while True:
        async with book.noted("settle"):
            kept = await inbox.settle(claim, Done(clock.now() + timedelta(hours=1)), clock.now())
            book.settled[claim.fencing_token] += kept
            return


async def test_nothing_acknowledged_is_lost_however_often_the_server_is_killed(own: Postgres) -> None:
    """By a server whose own default is to answer before anything is on disk."""
    with own.database() as database:
        dsn, book, stop = own.dsn(database), Book(), anyio.Event()
        own.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
        async with (
            replicas(dsn, SystemClock(), 2, SHORT_LEASES) as inboxes,
            anyio.create_task_group() as tasks,
        ):
            for number in range(8):
                tasks.start_soon(send, inboxes[number % 2], number, book, stop)
            for inbox in inboxes:
                tasks.start_soon(work, inbox, book, stop)
            for _ in range(RESTARTS):
                await anyio.sleep(1.2)
                before = len(book.acknowledged)
                await anyio.to_thread.run_sync(own.stop)
                await anyio.sleep(0.3)
                await anyio.to_thread.run_sync(own.start)
                with anyio.fail_after(30):
                    while len(book.acknowledged) < before + 20:  # noqa: ASYNC110 - it goes on by itself
                        await anyio.sleep(0.02)
            stop.set()
        assert {trouble[1:] for trouble in book.troubles} == {(ErrorScope.INBOX, 1.0)}
        assert {trouble[0] for trouble in book.troubles} >= {"put", "claim"}
        assert set(book.settled.values()) <= {0, 1}
        assert book.acknowledged <= set(await stored(dsn, "SELECT event_id FROM sfn.event"))
        assert await stored(dsn, "SELECT count(*) FROM sfn.event") == await stored(
            dsn, "SELECT count(DISTINCT event_id) FROM sfn.event"
        )
        async with replicas(dsn, SystemClock(), 1, SHORT_LEASES) as [inbox]:
            with anyio.fail_after(20):
                while await stored(dsn, "SELECT key FROM sfn.subject WHERE seq > done_seq OR state <> 'queued'"):
                    for claim in await claims(inbox):
                        assert await inbox.settle(claim, Done(claim.failing_since), SystemClock().now())
        assert await stored(dsn, "SELECT max(crashes) FROM sfn.subject") == [0]


async def test_who_has_no_connection_left_is_told_and_goes_on_when_there_is_one(own: Postgres) -> None:
    with own.database() as database:
        own.execute("CREATE ROLE narrow LOGIN")
        own.execute(f"ALTER DATABASE {database} OWNER TO narrow")
        server = PostgresServer(own.dsn(database).replace("postgres@", "narrow@"))
        async with PostgresInbox.opened(server, InboxConfig(), SystemClock()) as inbox:
            own.execute("ALTER ROLE narrow CONNECTION LIMIT 0")
            own.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'narrow'")
            with pytest.raises(Transient, match="53300") as refused:
                await fill(inbox, 1)
            assert "max_connections" in refused.value.remedy
            own.execute("ALTER ROLE narrow CONNECTION LIMIT -1")
            await anyio.sleep(0.3)
            assert await inbox.put([Notification(named(0))]) == PutResult(1, 0, 0)


async def test_a_primary_that_takes_no_writes_any_more_is_waited_for(own: Postgres) -> None:
    with own.database() as database:
        async with replicas(own.dsn(database), SystemClock(), 1) as [inbox]:
            own.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
            own.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'iceberg-sfn'")
            with pytest.raises(Transient, match="25006") as refused:
                await fill(inbox, 1)
            assert "target_session_attrs" in refused.value.remedy
            own.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
            own.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'iceberg-sfn'")
            await fill(inbox, 1)


async def test_a_table_that_somebody_keeps_locked_holds_nobody_up_for_long(own: Postgres) -> None:
    with own.database() as database:
        dsn = own.dsn(database)
        async with replicas(dsn, SystemClock(), 1) as [inbox], session(dsn) as other:
            async with other.transaction():
                await other.execute("LOCK TABLE sfn.subject")
                with anyio.fail_after(9), pytest.raises(Transient, match="55P03") as refused:
                    await fill(inbox, 1)
                assert "pg_stat_activity" in refused.value.remedy
            await fill(inbox, 1)
            assert len((await inbox.claim(PLENTY)).jobs) == 1


async def test_one_who_stops_in_the_middle_of_a_transaction_keeps_its_rows_for_seconds(own: Postgres) -> None:
    """Such as a process that is suspended: the server ends its session."""

    async def stand_still(sql: Sql) -> None:
        await sql.fetch("SELECT FROM sfn.subject FOR UPDATE")
        locked.set()
        await anyio.sleep(14)

    async def stopped() -> None:
        with anyio.move_on_after(20):
            async with reached(PostgresServer(dsn)) as there:
                await there.transactions.on_tables(stand_still)

    with own.database() as database:
        dsn, locked, taken = own.dsn(database), anyio.Event(), False
        async with replicas(dsn, SystemClock(), 1) as [inbox], anyio.create_task_group() as tasks:
            await fill(inbox, 1)
            tasks.start_soon(stopped)
            await locked.wait()
            began = anyio.current_time()
            while not taken:
                with suppress(Transient):
                    await inbox.put([Notification(named(0))])
                    taken = True
            assert anyio.current_time() - began < 13
            tasks.cancel_scope.cancel()
