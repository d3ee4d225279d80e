"""Privileges, migrations and costs of the tables in PostgreSQL."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

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
from sfn.inbox.maintenance import CLOSED_LETTER_RETENTION, PRUNE_BATCH_SIZE
from sfn.inbox.model import AdminCommand, DeadLetterFilter, InboxConfig
from sfn.inbox.postgres import PostgresInbox, PostgresServer
from sfn.inbox.postgres.database import reached
from sfn.inbox.postgres.errors import PostgresFault
from sfn.inbox.postgres.schema import MIGRATIONS, Migration
from sfn.inbox.postgres.tables import Sql
from sfn.inbox.postgres.tables.concurrency_groups import GroupNumbers, KnownGroups
from sfn.inbox.postgres.tables.jobs import JobTable
from sfn.inbox.postgres.tables.values import number_of
from tests.faults.lake import Lake, serving
from tests.faults.service import Setting, eventually, running
from tests.promises.inboxes import TERMS
from tests.servers.postgres import Postgres
from tests.support.clock import HandClock
from tests.support.deployment import ROOT, files
from tests.support.programs import found
from tests.support.shared_inboxes import claims, done, fill, named, replicas, session, stored

# Least privileges.


ROLE = DATABASE = "sfn"
RIGHTS = """\
SELECT has_database_privilege('sfn', datname, right_name)
FROM (VALUES ('CREATE'), ('TEMPORARY')) AS rights(right_name), pg_database WHERE datname = current_database()
UNION ALL SELECT has_schema_privilege('sfn', 'public', right_name) FROM (VALUES ('CREATE'), ('USAGE')) AS s(right_name)
UNION ALL SELECT rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls FROM pg_roles
WHERE rolname = 'sfn'"""


def written() -> str:
    """What the page has an operator run."""
    page = (ROOT / "docs" / "operate" / "replicas.md").read_text()
    (script,) = re.findall(r"^```sql\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return str(script)


def mounted() -> str:
    """What the Compose file has a new database run, after what the image does."""
    script = files("postgres")["/docker-entrypoint-initdb.d/inbox.sql"].read_text()
    for target, file in files("postgres").items():
        script = script.replace(target, str(file))
    return f"CREATE DATABASE {DATABASE};\n\\connect {DATABASE}\n{script}"


@pytest.fixture(name="dsn", params=[written, mounted])
def fixture_dsn(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[str]:
    """The role's database, after the script."""
    with made(postgres, request.param()) as dsn:
        yield dsn


@contextmanager
def made(postgres: Postgres, script: str) -> Iterator[str]:
    """What a script makes, by a superuser: for whom it is the database's address, too."""
    quiet = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1")
    try:
        ran("psql", *quiet, postgres.dsn(), told=script)
        yield postgres.dsn(DATABASE)
    finally:
        postgres.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        postgres.execute(f"DROP ROLE IF EXISTS {ROLE}")


def ran(program: str, *arguments: str | Path, told: str = "") -> None:
    """Run one of PostgreSQL's programs."""
    subprocess.run([found("SFN_POSTGRES") / program, *arguments], input=told, text=True, check=True)


def as_role(dsn: str) -> str:
    """The address for the service."""
    return dsn.replace("postgres@", f"{ROLE}@")


async def test_the_service_works_with_a_schema_of_its_own(dsn: str, tmp_path: Path) -> None:
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


async def test_a_backup_is_taken_and_restored_with_no_more_rights(postgres: Postgres, tmp_path: Path) -> None:
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


# Migrations.


NOW = len(MIGRATIONS)
KIND = Migration("ALTER TABLE sfn.event ADD COLUMN kind text", oldest=NOW)
"""One that an older version need not know."""
HARSH = Migration("ALTER TABLE sfn.event RENAME COLUMN key TO whose", oldest=NOW + 2)
"""One that no older version may see."""


@pytest.fixture(name="admin_dsn")
def fixture_admin_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


async def test_replicas_that_start_together_make_the_tables_once(admin_dsn: str) -> None:
    counts: list[int] = []

    async def start(number: int) -> None:
        async with PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), SystemClock()) as inbox:
            await inbox.put([Notification(named(number))])
            counts.append(len(await stored(admin_dsn, "SELECT version FROM sfn.version")))

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(start, number)
    assert counts == [1] * 8
    assert await stored(admin_dsn, "SELECT count(*) FROM sfn.subject") == [8]


async def test_a_start_that_is_interrupted_leaves_nothing_behind(admin_dsn: str) -> None:
    broken = Migration("CREATE TABLE sfn.more(id int); SELECT 1 / 0", oldest=1)
    with pytest.raises(FatalError, match="22012"):
        async with PostgresInbox.opened(
            PostgresServer(admin_dsn), InboxConfig(), SystemClock(), migrations=[*MIGRATIONS, broken]
        ):
            pass
    assert await stored(admin_dsn, "SELECT to_regnamespace('sfn')") == [None]


async def test_an_older_version_works_beside_a_newer_one_that_leaves_room_for_it(admin_dsn: str) -> None:
    clock = SystemClock()
    older = PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), clock)
    newer = PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), clock, migrations=[*MIGRATIONS, KIND])
    async with older as old:
        await fill(old, 2)
        # Its statements are prepared by now.
        (first, second) = await claims(old)
        async with newer as new:
            for inbox in (old, new):
                await inbox.put([Notification(named(7), "etl", "e1"), Notification(named(8))])
                await inbox.check_version()
            assert await old.settle(first, done(), clock.now())
            assert await new.settle(second, done(), clock.now())
            assert len(await claims(old)) == 2
        async with replicas(admin_dsn, clock, 1) as [restarted]:
            assert (await restarted.put([Notification(named(7), "etl", "e1")])).duplicates == 1
    assert await stored(admin_dsn, "SELECT version FROM sfn.version") == [NOW + 1]


async def test_at_an_upgrade_tables_of_several_places_are_looked_at(admin_dsn: str) -> None:
    """Earlier versions took two names of one directory for two places, and wrote that the table moved to itself."""
    clock = SystemClock()
    names = [named(number) for number in range(3)]
    async with PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), clock, migrations=MIGRATIONS[:5]) as old:
        await old.put([Notification(name) for name in names])
        for claim in await claims(old):
            await old.record_location(claim, f"file:///{claim.subject}", None)
            if claim.subject == names[1]:
                await old.record_location(claim, "file:///other", None)
            assert await old.settle(claim, done(), clock.now())
        assert await claims(old) == []
    async with replicas(admin_dsn, clock, 1) as [new]:
        assert [claim.subject for claim in await claims(new)] == [names[1]]


async def test_an_older_version_does_not_start_on_what_it_must_not_see(admin_dsn: str) -> None:
    newer = PostgresInbox.opened(
        PostgresServer(admin_dsn), InboxConfig(), SystemClock(), migrations=[*MIGRATIONS, KIND, HARSH]
    )
    async with newer:
        pass
    with pytest.raises(FatalError, match=f"version {NOW + 2}, which takes {NOW + 2} at least; start the version"):
        async with PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), SystemClock()):
            pass


async def test_an_older_version_that_runs_ends_when_it_must_not_go_on(admin_dsn: str) -> None:
    older = PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), SystemClock())
    newer = PostgresInbox.opened(
        PostgresServer(admin_dsn), InboxConfig(), SystemClock(), migrations=[*MIGRATIONS, KIND, HARSH]
    )
    async with older as old, newer:
        with anyio.fail_after(10), pytest.raises(FatalError, match="which takes"):
            await old.run_maintenance(timedelta(hours=72), every=0.1)


async def test_tables_that_somebody_removed_end_the_process(admin_dsn: str) -> None:
    async with replicas(admin_dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 1)
        await stored(admin_dsn, "DROP SCHEMA sfn CASCADE")
        with pytest.raises(FatalError, match="leave the schema sfn to the service"):
            await fill(inbox, 1)


async def test_who_may_not_make_a_schema_is_told_what_to_do(admin_dsn: str) -> None:
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
            # It was right once: somebody is at it, and what comes meanwhile comes again.
            with pytest.raises(Transient, match="42501"):
                await fill(inbox, 1)
    finally:
        async with session(admin_dsn) as admin:
            await admin.execute("DROP OWNED BY lesser CASCADE; DROP ROLE lesser")


# Costs.


READ = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'subject'"
SCANNED = "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'sfn'"
WRITTEN = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'subject'"


@pytest.mark.parametrize("backlog", [200, 4000])
async def test_a_blocked_backlog_is_never_scanned(admin_dsn: str, backlog: int) -> None:
    slots = Capacity(total=9, live=9, sweeps=9, per_group={ConcurrencyGroup("away", "", Priority.LIVE): 0})
    async with replicas(admin_dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 20)
        await inbox.put([Notification(TableIdentifier("away", ("sales",), f"t{number}")) for number in range(backlog)])

    async def look(sql: Sql) -> int:
        queues = await JobTable(sql, GroupNumbers(KnownGroups()), ()).queues(slots.available_in)
        assert [len(queue) for queue in queues.values()] == [9, 0]
        ((read,),) = await sql.fetch(READ)
        return int(read)

    async with reached(PostgresServer(admin_dsn)) as there:
        assert await there.transactions.on_tables(look) < 30


async def test_no_table_is_read_as_a_whole_however_small_it_was_when_that_was_planned(admin_dsn: str) -> None:
    clock = HandClock()
    async with replicas(admin_dsn, clock, 1, TERMS):
        pass
    # To make an index a table is read as a whole.
    await stored(admin_dsn, "SELECT pg_stat_reset()")
    async with replicas(admin_dsn, clock, 1, TERMS) as [inbox]:
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
    async with session(admin_dsn) as other:
        # The server says it by and by.
        await anyio.sleep(1.2)
        scanned = dict(await other.fetch(SCANNED))
    assert {name for name, scans in scanned.items() if scans} <= {"version", "lane"}


async def test_what_is_told_again_of_a_row_touches_no_index(admin_dsn: str) -> None:
    async with replicas(admin_dsn, SystemClock(), 1) as [inbox]:
        for _ in range(21):
            await fill(inbox, 50)
    async with session(admin_dsn) as other:
        with anyio.fail_after(5):
            while not (found := await other.fetchrow(WRITTEN))[0]:  # noqa: ASYNC110 - the server says it by and by
                await anyio.sleep(0.1)
    updated, hot = found
    assert updated == 1000
    assert hot > 900


async def test_what_is_old_goes_in_portions_and_one_process_does_it(admin_dsn: str) -> None:
    clock, kept = HandClock(), timedelta(hours=72)
    async with replicas(admin_dsn, clock, 2) as [first, second]:
        for _ in range(3):
            await first.put([Notification(named(number)) for number in range(PRUNE_BATCH_SIZE)])
        clock.turn(kept.total_seconds() + 1)
        await first.put([Notification(named(0), "etl", "new")])
        async with session(admin_dsn) as other, other.transaction():
            await other.execute("SELECT pg_advisory_xact_lock($1::bigint)", number_of("tending"))
            assert await second.run_maintenance_once(kept) == 0
        assert await second.run_maintenance_once(kept) == 3 * PRUNE_BATCH_SIZE
        assert await stored(admin_dsn, "SELECT event_id FROM sfn.event") == ["new"]


async def test_closed_letters_go_after_a_while(admin_dsn: str) -> None:
    clock = HandClock()
    async with replicas(admin_dsn, clock, 1, TERMS) as [inbox]:
        await fill(inbox, 2)
        for claim in await claims(inbox):
            await inbox.settle(claim, DeadLettered(DeadLetterReason.PERMANENT, "it can't be"), clock.now())
        assert await inbox.discard([1], AdminCommand("ann", "", clock.now())) == 1
        clock.turn(CLOSED_LETTER_RETENTION.total_seconds() + 1)
        await inbox.run_maintenance_once(timedelta(hours=72))
        assert [letter.id for letter in await inbox.list_newest(DeadLetterFilter(status=None), 10)] == [2]


async def test_tending_goes_on_for_ever(admin_dsn: str) -> None:
    clock = HandClock()
    async with replicas(admin_dsn, clock, 1) as [inbox]:
        await fill(inbox, 3)
        clock.turn(10)
        with anyio.move_on_after(0.5):
            await inbox.run_maintenance(timedelta(seconds=5), every=0.1)
        assert await stored(admin_dsn, "SELECT count(*) FROM sfn.event") == [0]
        await stored(admin_dsn, "UPDATE sfn.version SET oldest = 99")
        with anyio.fail_after(5), pytest.raises(FatalError, match="takes 99"):
            await inbox.run_maintenance(timedelta(seconds=5), every=0.1)


async def test_a_commit_is_on_disk_whatever_the_server_does_by_default(admin_dsn: str, database: str) -> None:
    async with session(admin_dsn) as other:
        await other.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
        await other.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'")

    async def look(sql: Sql) -> list[str]:
        return [(await sql.fetch(f"SHOW {name}"))[0][0] for name in ("synchronous_commit", "transaction_isolation")]

    async with reached(PostgresServer(admin_dsn)) as there:
        assert await there.transactions.on_tables(look) == ["on", "read committed"]
    async with session(admin_dsn) as other:
        assert await other.fetchval("SHOW synchronous_commit") == "off"


async def test_a_commit_that_undoes_is_none(admin_dsn: str) -> None:
    """Whoever goes on after a failed statement is told of no error by the server, but that it has rolled back."""

    async def go_on(sql: Sql) -> None:
        await sql.execute("INSERT INTO sfn.catalog (name, retired) VALUES ('prod', true)")
        with suppress(PostgresFault):
            await sql.execute("SELECT 1 / 0")

    async with (
        replicas(admin_dsn, SystemClock(), 1) as [inbox],
        reached(PostgresServer(admin_dsn)) as there,
    ):
        with pytest.raises(Transient, match="ended with ROLLBACK"):
            await there.transactions.on_tables(go_on)
        assert await inbox.retired_catalogs() == frozenset()


async def test_figures_are_counted_seldom_and_told_often(admin_dsn: str) -> None:
    """Whoever tends the inbox counts them again, as long as somebody asks."""
    clock = SystemClock()
    due, leased = {("prod", "due"): 3}, {("prod", "leased"): 3}
    async with PostgresInbox.opened(PostgresServer(admin_dsn), InboxConfig(), clock, stats_max_age=0.4) as inbox:
        await fill(inbox, 3)
        assert (await inbox.stats()).tables == due
        assert len(await claims(inbox)) == 3
        assert (await inbox.stats()).tables == due
        with anyio.move_on_after(0.8):
            await inbox.run_maintenance(timedelta(hours=1), every=0.1)
        async with session(admin_dsn) as other, other.transaction():
            await other.execute("LOCK TABLE sfn.subject")
            with anyio.fail_after(4):
                assert (await inbox.stats()).tables == leased
