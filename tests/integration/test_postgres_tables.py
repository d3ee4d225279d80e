"""What the tables in PostgreSQL cost, and what they keep: no scan, no bloat, no commit that is not on disk."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import anyio
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import (
    Capacity,
    ConcurrencyGroup,
    DeadLettered,
    DeadLetterReason,
    Done,
    Priority,
    PublishCache,
    PublishResult,
)
from sfn.errors import FatalError, Transient
from sfn.inbox.admin import CLOSED_LETTER_RETENTION, PRUNE_BATCH_SIZE
from sfn.inbox.model import AdminCommand, DeadLetterFilter, InboxConfig
from sfn.inbox.postgres import PostgresInbox, PostgresServer
from sfn.inbox.postgres.faults import PostgresFault
from sfn.inbox.postgres.opening import reached
from sfn.inbox.postgres.tables import Sql
from sfn.inbox.postgres.tables.lanes import GroupNumbers, KnownGroups
from sfn.inbox.postgres.tables.rows import JobTable
from sfn.inbox.postgres.tables.values import number_of
from tests.integration.sharing import claims, fill, named, replicas, session, stored
from tests.promises.inboxes import TERMS, HandClock
from tests.servers.postgres import Postgres

READ = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'subject'"
SCANNED = "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'sfn'"
WRITTEN = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'subject'"


@pytest.fixture(name="dsn")
def fixture_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


@pytest.mark.parametrize("backlog", [200, 4000])
async def test_a_blocked_backlog_is_never_scanned(dsn: str, backlog: int) -> None:
    slots = Capacity(total=9, live=9, sweeps=9, per_group={ConcurrencyGroup("away", "", Priority.LIVE): 0})
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 20)
        await inbox.put([Notification(TableIdentifier("away", ("sales",), f"t{number}")) for number in range(backlog)])

    async def look(sql: Sql) -> int:
        queues = await JobTable(sql, GroupNumbers(KnownGroups()), ()).queues(slots.available_in)
        assert [len(queue) for queue in queues.values()] == [9, 0]
        ((read,),) = await sql.fetch(READ)
        return int(read)

    async with reached(PostgresServer(dsn)) as there:
        assert await there.transactions.on_tables(look) < 30


async def test_no_table_is_read_as_a_whole_however_small_it_was_when_that_was_planned(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1, TERMS):
        pass
    # To make an index a table is read as a whole.
    await stored(dsn, "SELECT pg_stat_reset()")
    async with replicas(dsn, clock, 1, TERMS) as [inbox]:
        for rows in (1, 3000, 1):
            opened = [Intent(f"{rows} {number}", (named(number),), "gateway", "10.0.0.1") for number in range(rows)]
            await inbox.put(opened)
            await inbox.put([IntentOutcome(intent.id, is_known=number % 2 > 0) for number, intent in enumerate(opened)])
            await fill(inbox, rows)
            for claim in await claims(inbox):
                assert await inbox.record_location(claim, "s3://lake/t", "u") is not None
                outcome = Done(
                    clock.now(), PublishResult(cache=PublishCache(etag="v1"), wake_locations=frozenset({"s3://lake/t"}))
                )
                assert await inbox.settle(claim, outcome, clock.now())
            clock.turn(60)
            await claims(inbox)
            clock.turn(60)
    async with session(dsn) as other:
        # The server says it by and by.
        await anyio.sleep(1.2)
        scanned = dict(await other.fetch(SCANNED))
    assert {name for name, scans in scanned.items() if scans} <= {"version", "lane"}


async def test_what_is_told_again_of_a_row_touches_no_index(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        for _ in range(21):
            await fill(inbox, 50)
    async with session(dsn) as other:
        with anyio.fail_after(5):
            while not (found := await other.fetchrow(WRITTEN))[0]:  # noqa: ASYNC110 - the server says it by and by
                await anyio.sleep(0.1)
    updated, hot = found
    assert updated == 1000
    assert hot > 900


async def test_what_is_old_goes_in_portions_and_one_process_does_it(dsn: str) -> None:
    clock, kept = HandClock(), timedelta(hours=72)
    async with replicas(dsn, clock, 2) as [first, second]:
        for _ in range(3):
            await first.put([Notification(named(number)) for number in range(PRUNE_BATCH_SIZE)])
        clock.turn(kept.total_seconds() + 1)
        await first.put([Notification(named(0), "etl", "new")])
        async with session(dsn) as other, other.transaction():
            await other.execute("SELECT pg_advisory_xact_lock($1::bigint)", number_of("tending"))
            assert await second.run_maintenance_once(kept) == 0
        assert await second.run_maintenance_once(kept) == 3 * PRUNE_BATCH_SIZE
        assert await stored(dsn, "SELECT event_id FROM sfn.event") == ["new"]


async def test_closed_letters_go_after_a_while(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1, TERMS) as [inbox]:
        await fill(inbox, 2)
        for claim in await claims(inbox):
            await inbox.settle(claim, DeadLettered(DeadLetterReason.PERMANENT, "it can't be"), clock.now())
        assert await inbox.discard([1], AdminCommand("ann", "", clock.now())) == 1
        clock.turn(CLOSED_LETTER_RETENTION.total_seconds() + 1)
        await inbox.run_maintenance_once(timedelta(hours=72))
        assert [letter.id for letter in await inbox.list_newest(DeadLetterFilter(status=None), 10)] == [2]


async def test_tending_goes_on_for_ever(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox]:
        await fill(inbox, 3)
        clock.turn(10)
        with anyio.move_on_after(0.5):
            await inbox.run_maintenance(timedelta(seconds=5), every=0.1)
        assert await stored(dsn, "SELECT count(*) FROM sfn.event") == [0]
        await stored(dsn, "UPDATE sfn.version SET oldest = 99")
        with anyio.fail_after(5), pytest.raises(FatalError, match="takes 99"):
            await inbox.run_maintenance(timedelta(seconds=5), every=0.1)


async def test_a_commit_is_on_disk_whatever_the_server_does_by_default(dsn: str, database: str) -> None:
    async with session(dsn) as other:
        await other.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
        await other.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'")

    async def look(sql: Sql) -> list[str]:
        return [(await sql.fetch(f"SHOW {name}"))[0][0] for name in ("synchronous_commit", "transaction_isolation")]

    async with reached(PostgresServer(dsn)) as there:
        assert await there.transactions.on_tables(look) == ["on", "read committed"]
    async with session(dsn) as other:
        assert await other.fetchval("SHOW synchronous_commit") == "off"


async def test_a_commit_that_undoes_is_none(dsn: str) -> None:
    """Whoever goes on after a failed statement is told of no error by the server, but that it has rolled back."""

    async def go_on(sql: Sql) -> None:
        await sql.execute("INSERT INTO sfn.catalogs (name, retired) VALUES ('prod', true)")
        with suppress(PostgresFault):
            await sql.execute("SELECT 1 / 0")

    async with replicas(dsn, SystemClock(), 1) as [inbox], reached(PostgresServer(dsn)) as there:
        with pytest.raises(Transient, match="ended with ROLLBACK"):
            await there.transactions.on_tables(go_on)
        assert await inbox.retired_catalogs() == frozenset()


async def test_figures_are_counted_seldom_and_told_often(dsn: str) -> None:
    """Whoever tends the inbox counts them again, as long as somebody asks."""
    clock = SystemClock()
    due, leased = {("prod", "due"): 3}, {("prod", "leased"): 3}
    async with PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), clock, stats_max_age=0.4) as inbox:
        await fill(inbox, 3)
        assert (await inbox.stats()).tables == due
        assert len(await claims(inbox)) == 3
        assert (await inbox.stats()).tables == due
        with anyio.move_on_after(0.8):
            await inbox.run_maintenance(timedelta(hours=1), every=0.1)
        async with session(dsn) as other, other.transaction():
            await other.execute("LOCK TABLE sfn.subject")
            with anyio.fail_after(1):
                assert (await inbox.stats()).tables == leased
