"""Privileges, migrations and costs of the tables in PostgreSQL."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

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
    Retry,
    Wakeup,
)
from sfn.errors import FatalError, Transient
from sfn.inbox import postgres as inbox_module
from sfn.inbox.administration import PRUNE_BATCH_SIZE
from sfn.inbox.inbox import CLOSED_LETTER_RETENTION
from sfn.inbox.model import AdminCommand, DeadLetterFilter, InboxConfig
from sfn.inbox.operations import MAX_FOLDED, ClaimRequest, Operations
from sfn.inbox.postgres import PostgresInbox, PostgresRunner, PostgresTransaction, connected
from sfn.inbox.postgres_server import PostgresFault, PostgresServer, check_schema, schema_state
from sfn.inbox.schema import POSTGRES_MIGRATIONS, Migration
from sfn.inbox.transaction import Durability, Operation, Transaction, WakeRule, Wakes
from tests.faults.lake import Lake, serving
from tests.faults.service import Setting, eventually, running
from tests.promises.inboxes import PLENTY, TERMS
from tests.servers.postgres import Postgres
from tests.support.clock import HandClock
from tests.support.deployment import ROOT, files
from tests.support.programs import found
from tests.support.shared_inboxes import claims, done, fill, holding_fold_lock, named, replicas, session, stored

# ── Least privileges

ROLE = DATABASE = "sfn"
RIGHTS = """\
SELECT has_database_privilege('sfn', datname, right_name)
FROM (VALUES ('CREATE'), ('TEMPORARY')) AS rights(right_name), pg_database WHERE datname = current_database()
UNION ALL SELECT has_schema_privilege('sfn', 'public', right_name) FROM (VALUES ('CREATE'), ('USAGE')) AS s(right_name)
UNION ALL SELECT rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls FROM pg_roles
WHERE rolname = 'sfn'"""


def written() -> str:
    """Return the statements that the page has an operator run."""
    page = (ROOT / "docs" / "operate" / "replicas.md").read_text()
    (script,) = re.findall(r"^```sql\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return str(script)


def mounted() -> str:
    """Return the statements that the Compose file has a new database run, after those of the image."""
    script = files("postgres")["/docker-entrypoint-initdb.d/inbox.sql"].read_text()
    for target, file in files("postgres").items():
        script = script.replace(target, str(file))
    return f"CREATE DATABASE {DATABASE};\n\\connect {DATABASE}\n{script}"


@pytest.fixture(name="dsn", params=[written, mounted])
def fixture_dsn(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[str]:
    """Return the address of the role's database, after the script."""
    with made(postgres, request.param()) as dsn:
        yield dsn


@contextmanager
def made(postgres: Postgres, script: str) -> Iterator[str]:
    """Run a script as a superuser, and yield the superuser's address of its database."""
    quiet = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1")
    try:
        ran("psql", *quiet, postgres.dsn(), text=script)
        yield postgres.dsn(DATABASE)
    finally:
        postgres.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        postgres.execute(f"DROP ROLE IF EXISTS {ROLE}")


def ran(program: str, *arguments: str | Path, text: str = "") -> None:
    """Run one of PostgreSQL's programs."""
    subprocess.run([found("SFN_POSTGRES") / program, *arguments], input=text, text=True, check=True)


def as_role(dsn: str) -> str:
    """Return the address for the service."""
    return dsn.replace("postgres@", f"{ROLE}@")


async def test_the_service_works_with_the_rights_of_its_schema_alone(dsn: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "warehouse")
    lake.create("orders")
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, url=as_role(dsn))
    async with serving(lake), running(setting) as service:
        assert await service.post("orders", "e1") == 202
        await eventually(lambda: not lake.wrong())
        assert await service.release() == 0
        assert await service.get("/metrics") == 200
        assert service.told("retry") == 0
    assert await stored(dsn, "SELECT event_id FROM sfn.event") == ["e1"]
    assert await stored(dsn, "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'sfn'") == [ROLE]
    assert set(await stored(dsn, RIGHTS)) == {False}


async def test_a_backup_is_taken_and_restored_with_the_same_rights(postgres: Postgres, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "warehouse")
    lake.create("orders")
    backup = tmp_path / "inbox.dump"
    async with serving(lake):
        with made(postgres, written()) as dsn:
            setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, url=as_role(dsn), lease="1s")
            async with running(setting) as service:
                assert await service.post("orders", "e1") == 202
                await eventually(lambda: service.told("done"))
                ran("pg_dump", "--format=custom", "--schema=sfn", f"--file={backup}", as_role(dsn))
        with made(postgres, written()) as dsn:
            ran("pg_restore", "--exit-on-error", "--schema=sfn", f"--dbname={as_role(dsn)}", backup)
            async with running(setting) as service:
                assert (await (await service.tell("orders", "e1")).json())["duplicates"] == 1
                lake.tables["orders"].commit()
                assert await service.post("orders", "e2") == 202
                await eventually(lambda: not lake.wrong())


# ── Migrations

NOW = len(POSTGRES_MIGRATIONS)
ADDED = Migration("ALTER TABLE sfn.event ADD COLUMN colour text", oldest=NOW)
"""A migration that an older version does not notice."""
RENAMED = Migration("ALTER TABLE sfn.event RENAME COLUMN key TO subject", oldest=NOW + 2)
"""A migration after which no older version can work."""


@pytest.fixture(name="admin_dsn")
def fixture_admin_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


async def test_processes_that_start_together_create_the_tables_once(admin_dsn: str) -> None:
    counts: list[int] = []

    async def start(number: int) -> None:
        async with PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), SystemClock()) as inbox:
            await inbox.put([Notification(named(number))])
            counts.append(len(await stored(admin_dsn, "SELECT version FROM sfn.version")))

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(start, number)
    assert counts == [1] * 8
    assert await stored(admin_dsn, "SELECT count(*) FROM sfn.event") == [8]


async def test_a_migration_that_fails_leaves_nothing_behind(admin_dsn: str) -> None:
    broken = Migration("CREATE TABLE sfn.more(id int); SELECT 1 / 0", oldest=1)
    with pytest.raises(FatalError, match="22012"):
        async with PostgresInbox.opened(
            PostgresServer(admin_dsn), InboxConfig(), SystemClock(), migrations=[*POSTGRES_MIGRATIONS, broken]
        ):
            pass
    assert await stored(admin_dsn, "SELECT to_regnamespace('sfn')") == [None]


async def test_an_older_version_works_beside_a_newer_one_with_a_compatible_schema(admin_dsn: str) -> None:
    clock = SystemClock()
    older = PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), clock)
    newer = PostgresInbox.opened(
        PostgresServer(admin_dsn), InboxConfig(), clock, migrations=[*POSTGRES_MIGRATIONS, ADDED]
    )
    async with older as old:
        await fill(old, 2)
        # The statements of the older version are prepared now.
        (first, second) = await claims(old)
        async with newer as new:
            for inbox in (old, new):
                await inbox.put([Notification(named(7), "etl", "e1"), Notification(named(8))])
                await inbox._runner.check()  # noqa: SLF001
            assert await old.settle(first, done(), clock.now())
            assert await new.settle(second, done(), clock.now())
            assert {claim.subject for claim in await claims(old)} == {named(7), named(8)}
        async with replicas(admin_dsn, clock, 1) as [restarted]:
            assert (await restarted.put([Notification(named(7), "etl", "e1")])).duplicates == 1
    assert await stored(admin_dsn, "SELECT version FROM sfn.version") == [NOW + 1]


async def test_an_older_version_does_not_start_on_an_incompatible_schema(admin_dsn: str) -> None:
    newer = PostgresInbox.opened(
        PostgresServer(admin_dsn), InboxConfig(), SystemClock(), migrations=[*POSTGRES_MIGRATIONS, ADDED, RENAMED]
    )
    async with newer:
        pass
    with pytest.raises(FatalError, match=f"version {NOW + 2}, which takes {NOW + 2} at least; start the version"):
        async with PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), SystemClock()):
            pass


async def test_a_running_older_version_ends_when_the_schema_becomes_incompatible(admin_dsn: str) -> None:
    older = PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), SystemClock())
    newer = PostgresInbox.opened(
        PostgresServer(admin_dsn), InboxConfig(), SystemClock(), migrations=[*POSTGRES_MIGRATIONS, ADDED, RENAMED]
    )
    async with older as old, newer:
        with anyio.fail_after(10), pytest.raises(FatalError, match="which takes"):
            await old.run_maintenance(timedelta(hours=72), every=0.1)


async def test_removed_tables_end_the_process(admin_dsn: str) -> None:
    async with replicas(admin_dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 1)
        await stored(admin_dsn, "DROP SCHEMA sfn CASCADE")
        with pytest.raises(FatalError, match="leave the schema sfn to the service"):
            await fill(inbox, 1)


async def test_a_missing_right_is_named_with_its_remedy(admin_dsn: str) -> None:
    async with session(admin_dsn) as admin:
        await admin.execute("CREATE ROLE lesser LOGIN")
    try:
        lesser = PostgresServer(admin_dsn.replace("postgres@", "lesser@"))
        with pytest.raises(FatalError, match="GRANT CREATE ON DATABASE"):
            async with PostgresInbox.opened(lesser, InboxConfig(), SystemClock()):
                pass
        async with session(admin_dsn) as admin:
            await admin.execute("CREATE SCHEMA sfn AUTHORIZATION lesser")
        async with PostgresInbox.opened(lesser, InboxConfig(), SystemClock()) as inbox:
            await fill(inbox, 1)
            async with session(admin_dsn) as admin:
                await admin.execute("REVOKE ALL ON sfn.event FROM lesser; ALTER TABLE sfn.event OWNER TO postgres")
            # The right was there at the start, so it may come back: senders try again.
            with pytest.raises(Transient, match="42501"):
                await fill(inbox, 1)
    finally:
        async with session(admin_dsn) as admin:
            await admin.execute("DROP OWNED BY lesser CASCADE; DROP ROLE lesser")


async def test_the_state_of_the_schema_is_read_and_checked(admin_dsn: str) -> None:
    async with connected(PostgresServer(admin_dsn)) as runner:
        assert (await runner.on_tables(schema_state)).version == 0
        async with replicas(admin_dsn, SystemClock(), 1):
            state = await runner.on_tables(schema_state)
    assert (state.version, state.oldest) == (NOW, POSTGRES_MIGRATIONS[-1].oldest)
    check_schema(state, "here")
    with pytest.raises(FatalError, match="version 1, which takes 1 at least"):
        check_schema(state, "here", version=0)


# ── Costs

SCANNED = "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'sfn'"
WRITTEN = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'job'"
READ = (
    "SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE schemaname = 'sfn'"
)
AWAY = ConcurrencyGroup("away", "", Priority.LIVE)


async def rows_read_by_a_claim(dsn: str, capacity: Capacity) -> dict[str, int]:
    """Claim without a commit, and return how many rows of each table were read."""
    operations = Operations(InboxConfig(), SystemClock().now)
    reads: dict[str, int] = {}

    class Undone(Exception):
        """Undoes the claim."""

    async def claim(transaction: Transaction) -> None:
        # With all groups known, as in a process that has worked for a while.
        await operations.claim(transaction, ClaimRequest(Capacity(total=0, live=0, sweeps=0)), [])
        before = {table: count for table, count in await transaction.fetch(READ)}  # noqa: C416 - rows are no pairs
        await operations.claim(transaction, ClaimRequest(capacity), [])
        reads.update({table: count - before[table] for table, count in await transaction.fetch(READ)})
        raise Undone

    async with connected(PostgresServer(dsn)) as runner:
        with pytest.raises(Undone):
            await runner.run(claim, Durability.DERIVED)
    return reads


async def fold_all(inbox: PostgresInbox) -> None:
    """Fold everything that waits."""
    while (await inbox.fold()).has_more:
        pass


@pytest.mark.parametrize("backlog", [200, 4000])
async def test_a_claim_reads_nothing_of_a_blocked_backlog(admin_dsn: str, backlog: int) -> None:
    capacity = Capacity(total=9, live=9, sweeps=9, per_group={AWAY: 0})
    async with replicas(admin_dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 20)
        await inbox.put([Notification(TableIdentifier("away", ("sales",), f"t{number}")) for number in range(backlog)])
        await fold_all(inbox)
        assert len((await inbox.claim(capacity)).jobs) == 9
    read = await rows_read_by_a_claim(admin_dsn, capacity)
    assert read["job"] < 30
    assert sum(read.values()) < 60


async def test_a_claim_reads_the_first_jobs_of_a_backlog_only(admin_dsn: str) -> None:
    async with replicas(admin_dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 4000)
        await fold_all(inbox)
    read = await rows_read_by_a_claim(admin_dsn, PLENTY)
    assert PLENTY.live <= read["job"] <= 4 * PLENTY.total


@pytest.mark.parametrize("waiting", [0, 3])
@pytest.mark.parametrize("analyzed", ["before", "after", "never"])
async def test_a_fold_reads_the_waiting_records_only(admin_dsn: str, analyzed: str, waiting: int) -> None:
    """The log of three days is large, and nearly all of it was folded, whatever the server's statistics say."""
    async with replicas(admin_dsn, SystemClock(), 1) as [inbox]:
        if analyzed == "before":
            await stored(admin_dsn, "ANALYZE")
        for _ in range(10):
            await fill(inbox, 1000)
        await fold_all(inbox)
        await stored(admin_dsn, "VACUUM ANALYZE" if analyzed == "after" else "SELECT 1")
        await fill(inbox, waiting)
    read = await rows_read_by_a_claim(admin_dsn, Capacity(total=3, live=3, sweeps=0))
    assert read["event"] <= 4 * waiting
    assert read["pending"] <= 4 * waiting


async def test_a_fold_reads_one_batch_of_a_long_backlog(admin_dsn: str) -> None:
    async with replicas(admin_dsn, SystemClock(), 1) as [inbox]:
        for _ in range(5):
            await fill(inbox, 1000)
    read = await rows_read_by_a_claim(admin_dsn, Capacity(total=3, live=3, sweeps=0))
    # To delete a record that waits means to read it, too.
    assert read["event"] <= 2 * MAX_FOLDED
    assert read["pending"] <= 4 * MAX_FOLDED


async def test_no_large_table_is_ever_scanned_however_small_it_was_when_the_plan_was_made(admin_dsn: str) -> None:
    clock = HandClock()
    async with replicas(admin_dsn, clock, 1, TERMS):
        pass
    # An index is made by a scan.
    await stored(admin_dsn, "SELECT pg_stat_reset()")
    async with replicas(admin_dsn, clock, 1, TERMS) as [inbox]:
        for count in (1, 3000, 1):
            opened = [Intent(f"{count} {number}", (named(number),), "gateway", "10.0.0.1") for number in range(count)]
            await inbox.put(opened)
            await inbox.put([IntentOutcome(intent.id, is_known=number % 2 > 0) for number, intent in enumerate(opened)])
            await fill(inbox, count)
            await fold_all(inbox)
            for claim in await claims(inbox):
                assert await inbox.record_location(claim, "s3://lake/t", "u") is not None
                outcome = Done(
                    clock.now(), PublishResult(cache=PublishCache(etag="v1"), wake_locations=frozenset({"s3://lake/t"}))
                )
                assert await inbox.settle(claim, outcome, clock.now())
            clock.turn(60)
            await claims(inbox)
            clock.turn(60)
            await inbox.run_maintenance_once(timedelta(hours=72))
            await inbox.at_location(named(0), "s3://lake/t")
            await inbox.with_uuid("prod", "u")
            await inbox.reported_tables(named(0))
            await inbox.max_missing("prod")
    async with session(admin_dsn) as other:
        # The server publishes its statistics after a second.
        await anyio.sleep(1.2)
        scanned = dict(await other.fetch(SCANNED))
    assert {name for name, scans in scanned.items() if scans} <= {"version", "concurrency_group", "catalog"}


async def test_a_further_notification_of_a_job_changes_no_index(admin_dsn: str) -> None:
    async with replicas(admin_dsn, SystemClock(), 1) as [inbox]:
        for _ in range(21):
            await fill(inbox, 50)
            await inbox.fold()
    async with session(admin_dsn) as other:
        with anyio.fail_after(5):
            while not (count := await other.fetchrow(WRITTEN))[0]:  # noqa: ASYNC110 - the server publishes it later
                await anyio.sleep(0.1)
    updated, hot = count
    assert updated == 1000
    assert hot > 900


async def test_old_records_are_deleted_in_batches_by_one_process_at_a_time(admin_dsn: str) -> None:
    clock, retention = HandClock(), timedelta(hours=72)
    async with replicas(admin_dsn, clock, 2) as [first, second]:
        for _ in range(3):
            await first.put([Notification(named(number)) for number in range(PRUNE_BATCH_SIZE)])
        await fold_all(first)
        clock.turn(retention.total_seconds() + 1)
        await first.put([Notification(named(0), "etl", "new")])
        counts: list[int] = []

        async def prune(inbox: PostgresInbox) -> None:
            counts.append(await inbox.run_maintenance_once(retention))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prune, first)
            tasks.start_soon(prune, second)
        assert sum(counts) == 3 * PRUNE_BATCH_SIZE
        assert await stored(admin_dsn, "SELECT event_id FROM sfn.event") == ["new"]


async def test_a_record_that_waits_to_be_folded_is_never_deleted(admin_dsn: str) -> None:
    clock, retention = HandClock(), timedelta(hours=72)
    async with replicas(admin_dsn, clock, 1) as [inbox]:
        await fill(inbox, 3)
        clock.turn(2 * retention.total_seconds())
        assert await inbox.run_maintenance_once(retention) == 0
        assert len(await claims(inbox)) == 3
        assert await inbox.run_maintenance_once(retention) == 3


async def test_closed_letters_are_deleted_after_their_retention(admin_dsn: str) -> None:
    clock = HandClock()
    async with replicas(admin_dsn, clock, 1, TERMS) as [inbox]:
        await fill(inbox, 2)
        for claim in await claims(inbox):
            await inbox.settle(claim, DeadLettered(DeadLetterReason.PERMANENT, "it can't be"), clock.now())
        assert await inbox.discard([1], AdminCommand("ann", "", clock.now())) == 1
        clock.turn(CLOSED_LETTER_RETENTION.total_seconds() + 1)
        await inbox.run_maintenance_once(timedelta(hours=72))
        assert [letter.id for letter in await inbox.list_newest(DeadLetterFilter(status=None), 10)] == [2]


async def test_maintenance_runs_until_the_schema_becomes_incompatible(admin_dsn: str) -> None:
    clock = HandClock()
    async with replicas(admin_dsn, clock, 1) as [inbox]:
        await fill(inbox, 3)
        await inbox.fold()
        clock.turn(10)
        with anyio.move_on_after(2.5):
            await inbox.run_maintenance(timedelta(seconds=5), every=0.1)
        assert await stored(admin_dsn, "SELECT count(*) FROM sfn.event") == [0]
        await stored(admin_dsn, "UPDATE sfn.version SET oldest = 99")
        with anyio.fail_after(10), pytest.raises(FatalError, match="takes 99"):
            await inbox.run_maintenance(timedelta(seconds=5), every=0.1)


async def test_maintenance_folds_what_no_worker_folds(admin_dsn: str) -> None:
    async with replicas(admin_dsn, SystemClock(), 1) as [inbox]:
        await inbox.put([Intent("i1", (named(1),), "gateway", "10.0.0.1")])
        with anyio.move_on_after(2.5):
            await inbox.run_maintenance(timedelta(hours=72))
    assert await stored(admin_dsn, "SELECT id FROM sfn.intent") == ["i1"]
    assert await stored(admin_dsn, "SELECT count(*) FROM sfn.pending") == [0]


async def test_a_commit_is_on_disk_whatever_the_server_does_by_default(admin_dsn: str, database: str) -> None:
    async with session(admin_dsn) as other:
        await other.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
        await other.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'")

    async def show(transaction: Transaction) -> list[str]:
        names = ("synchronous_commit", "transaction_isolation")
        return [(await transaction.fetch(f"SHOW {name}"))[0][0] for name in names]

    async with connected(PostgresServer(admin_dsn)) as runner:
        assert await runner.on_tables(show) == ["on", "read committed"]
        for durability in Durability:
            assert await runner.run(show, durability) == ["on", "read committed"]
    async with session(admin_dsn) as other:
        assert await other.fetchval("SHOW synchronous_commit") == "off"


async def test_a_transaction_that_the_server_rolls_back_at_its_commit_is_an_error(admin_dsn: str) -> None:
    """After a failed statement the server answers COMMIT with ROLLBACK, which is no error to the driver."""

    async def go_on(transaction: PostgresTransaction) -> None:
        await transaction.connection.execute("INSERT INTO sfn.catalog (name, is_retired) VALUES ('prod', true)")
        with suppress(PostgresFault):
            await transaction.connection.execute("SELECT 1 / 0")

    async with replicas(admin_dsn, SystemClock(), 1) as [inbox], connected(PostgresServer(admin_dsn)) as runner:
        with pytest.raises(Transient, match="ended with ROLLBACK"):
            await runner.on_tables(go_on)
        assert await inbox.retired_catalogs() == frozenset()


async def test_statistics_are_cached_and_kept_fresh(admin_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of cached statistics waits for nothing."""
    monkeypatch.setattr(inbox_module, "VERSION_CHECK_INTERVAL", 0.1)
    clock = SystemClock()
    due, leased = {("prod", "due"): 3}, {("prod", "leased"): 3}
    async with PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), clock, stats_max_age=1.0) as inbox:
        await fill(inbox, 3)
        assert (await inbox.stats()).tables == due
        assert len(await claims(inbox)) == 3
        assert (await inbox.stats()).tables == due
        # Counting may take a twentieth of the time, so on a slow machine the pause is longer than the greatest age.
        with anyio.move_on_after(2.5):
            await inbox.run_maintenance(timedelta(hours=1), every=0.1)
        async with session(admin_dsn) as other, other.transaction(), holding_fold_lock(admin_dsn):
            await other.execute("LOCK TABLE sfn.job")
            with anyio.fail_after(4):
                assert (await inbox.stats()).tables == leased


@dataclass
class Reads:
    """How many rows each transaction read.

    Attributes:
        by_table: the most that one transaction read, by table.
    """

    by_table: Counter[str] = field(default_factory=Counter)


@pytest.fixture(name="reads")
def fixture_reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads, run = Reads(), PostgresRunner.run

    async def measured(
        self: PostgresRunner, operation: Operation[Any], durability: Durability, wakes: WakeRule[Any] = Wakes.NO_WORKER
    ) -> object:
        async def counted(transaction: Transaction) -> object:
            before = {table: count for table, count in await transaction.fetch(READ)}  # noqa: C416 - rows are no pairs
            result = await operation(transaction)
            for table, count in await transaction.fetch(READ):
                reads.by_table[table] = max(reads.by_table[table], count - before[table])
            return result

        return await run(self, counted, durability, wakes)

    monkeypatch.setattr(PostgresRunner, "run", measured)
    return reads


@pytest.mark.parametrize("is_analyzed", [True, False])
async def test_no_operation_on_one_table_reads_the_rows_of_many(
    admin_dsn: str, reads: Reads, *, is_analyzed: bool
) -> None:
    """Whatever the server's statistics say: tables grow faster than these are made."""
    clock = HandClock()
    async with replicas(admin_dsn, clock, 1, TERMS) as [inbox]:
        if not is_analyzed:
            await stored(admin_dsn, "ANALYZE")
        await fill(inbox, 3000)
        await inbox.put([Intent(f"i{number}", (named(number),), "gateway", "10.0.0.1") for number in range(900)])
        await fold_all(inbox)
        await stored(admin_dsn, "INSERT INTO sfn.place SELECT key, catalog, 's3://lake/' || key FROM sfn.job")
        await stored(admin_dsn, "UPDATE sfn.job SET live_uuid = key, live_location = 's3://lake/' || key")
        leased = await claims(inbox)
        for claim in leased[:20]:
            await inbox.settle(claim, DeadLettered(DeadLetterReason.PERMANENT, "it can't be"), clock.now())
        if is_analyzed:
            await stored(admin_dsn, "VACUUM ANALYZE")
        claim, command = leased[50], AdminCommand("ann", "", clock.now())
        gone = PublishResult(wake_locations=frozenset({"s3://lake/a", "s3://lake/b"}), wakeups=(Wakeup(named(2900)),))
        (letter, *_) = await inbox.list_newest(DeadLetterFilter(), 10)
        steps: dict[str, Callable[[], Awaitable[object]]] = {
            "put": lambda: inbox.put([Notification(named(7), "etl", "e1")]),
            "fold": inbox.fold,
            "renew": lambda: inbox.renew(leased[50:60]),
            "record_location": lambda: inbox.record_location(claim, "s3://lake/new", "u"),
            "settle": lambda: inbox.settle(claim, Done(clock.now(), gone), clock.now()),
            "retry": lambda: inbox.settle(leased[51], Retry(clock.now(), "no"), clock.now()),
            "table_status": lambda: inbox.table_status(named(8)),
            "reported_tables": lambda: inbox.reported_tables(named(8)),
            "outcome_history": lambda: inbox.outcome_history(named(8)),
            "at_location": lambda: inbox.at_location(named(8), "s3://lake/new"),
            "with_uuid": lambda: inbox.with_uuid("prod", "u"),
            "replay": lambda: inbox.replay([letter.id], [], command),
            "discard": lambda: inbox.discard([letter.id - 1], command),
            "reconcile": lambda: inbox.reconcile([Notification(named(9))], command),
            "answer": lambda: inbox.put([IntentOutcome("i8", is_known=True)]),
            "fold of an answer": inbox.fold,
            "retired_catalogs": inbox.retired_catalogs,
            "list_after": lambda: inbox.list_after(DeadLetterFilter(table=named(3)), 0, 10),
            "claim": lambda: inbox.claim(Capacity(total=1, live=1, sweeps=0)),
        }
        found: dict[str, dict[str, int]] = {}
        for name, step in steps.items():
            reads.by_table.clear()
            await step()
            found[name] = {table: count for table, count in reads.by_table.items() if count > 60}
        assert {name: counts for name, counts in found.items() if counts} == {}
