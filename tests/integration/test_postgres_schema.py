"""The tables in PostgreSQL: made once, by whoever comes first, and shared by versions of the service that differ."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Notification
from sfn.errors import FatalError, Transient
from sfn.inbox.model import InboxConfig
from sfn.inbox.postgres import PostgresInbox, PostgresServer
from sfn.inbox.postgres.schema import MIGRATIONS, Migration
from tests.integration.sharing import claims, done, fill, named, replicas, session, stored
from tests.servers.postgres import Postgres

NOW = len(MIGRATIONS)
KIND = Migration("ALTER TABLE sfn.event ADD COLUMN kind text", oldest=NOW)
"""One that an older version need not know."""
HARSH = Migration("ALTER TABLE sfn.event RENAME COLUMN key TO whose", oldest=NOW + 2)
"""One that no older version may see."""


@pytest.fixture(name="dsn")
def fixture_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


async def test_replicas_that_start_together_make_the_tables_once(dsn: str) -> None:
    counts: list[int] = []

    async def start(number: int) -> None:
        async with PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), SystemClock()) as inbox:
            await inbox.put([Notification(named(number))])
            counts.append(len(await stored(dsn, "SELECT version FROM sfn.version")))

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(start, number)
    assert counts == [1] * 8
    assert await stored(dsn, "SELECT count(*) FROM sfn.subject") == [8]


async def test_a_start_that_is_interrupted_leaves_nothing_behind(dsn: str) -> None:
    broken = Migration("CREATE TABLE sfn.more(id int); SELECT 1 / 0", oldest=1)
    with pytest.raises(FatalError, match="22012"):
        async with PostgresInbox.opened(
            PostgresServer(dsn), InboxConfig(), SystemClock(), migrations=[*MIGRATIONS, broken]
        ):
            pass
    assert await stored(dsn, "SELECT to_regnamespace('sfn')") == [None]


async def test_an_older_version_works_beside_a_newer_one_that_leaves_room_for_it(dsn: str) -> None:
    clock = SystemClock()
    older = PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), clock)
    newer = PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), clock, migrations=[*MIGRATIONS, KIND])
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
        async with replicas(dsn, clock, 1) as [restarted]:
            assert (await restarted.put([Notification(named(7), "etl", "e1")])).duplicates == 1
    assert await stored(dsn, "SELECT version FROM sfn.version") == [NOW + 1]


async def test_at_an_upgrade_tables_of_several_places_are_looked_at(dsn: str) -> None:
    """Earlier versions took two names of one directory for two places, and wrote that the table moved to itself."""
    clock = SystemClock()
    names = [named(number) for number in range(3)]
    async with PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), clock, migrations=MIGRATIONS[:5]) as old:
        await old.put([Notification(name) for name in names])
        for claim in await claims(old):
            await old.record_location(claim, f"file:///{claim.subject}", None)
            if claim.subject == names[1]:
                await old.record_location(claim, "file:///other", None)
            assert await old.settle(claim, done(), clock.now())
        assert await claims(old) == []
    async with replicas(dsn, clock, 1) as [new]:
        assert [claim.subject for claim in await claims(new)] == [names[1]]


async def test_an_older_version_does_not_start_on_what_it_must_not_see(dsn: str) -> None:
    newer = PostgresInbox.opened(
        PostgresServer(dsn), InboxConfig(), SystemClock(), migrations=[*MIGRATIONS, KIND, HARSH]
    )
    async with newer:
        pass
    with pytest.raises(FatalError, match=f"version {NOW + 2}, which takes {NOW + 2} at least; start the version"):
        async with PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), SystemClock()):
            pass


async def test_an_older_version_that_runs_ends_when_it_must_not_go_on(dsn: str) -> None:
    older = PostgresInbox.opened(PostgresServer(dsn), InboxConfig(), SystemClock())
    newer = PostgresInbox.opened(
        PostgresServer(dsn), InboxConfig(), SystemClock(), migrations=[*MIGRATIONS, KIND, HARSH]
    )
    async with older as old, newer:
        with anyio.fail_after(10), pytest.raises(FatalError, match="which takes"):
            await old.run_maintenance(timedelta(hours=72), every=0.1)


async def test_tables_that_somebody_removed_end_the_process(dsn: str) -> None:
    async with replicas(dsn, SystemClock(), 1) as [inbox]:
        await fill(inbox, 1)
        await stored(dsn, "DROP SCHEMA sfn CASCADE")
        with pytest.raises(FatalError, match="leave the schema sfn to the service"):
            await fill(inbox, 1)


async def test_who_may_not_make_a_schema_is_told_what_to_do(dsn: str) -> None:
    async with session(dsn) as admin:
        await admin.execute("CREATE ROLE lesser LOGIN")
    try:
        lesser = PostgresServer(dsn.replace("postgres@", "lesser@"))
        with pytest.raises(FatalError, match="GRANT CREATE ON DATABASE"):
            async with PostgresInbox.opened(lesser, InboxConfig(), SystemClock()):
                pass
        async with session(dsn) as admin:
            await admin.execute("CREATE SCHEMA sfn AUTHORIZATION lesser")
        async with PostgresInbox.opened(lesser, InboxConfig(), SystemClock()) as inbox:
            await fill(inbox, 1)
            async with session(dsn) as admin:
                await admin.execute("REVOKE ALL ON sfn.event FROM lesser; ALTER TABLE sfn.event OWNER TO postgres")
            # It was right once: somebody is at it, and what comes meanwhile comes again.
            with pytest.raises(Transient, match="42501"):
                await fill(inbox, 1)
    finally:
        async with session(dsn) as admin:
            await admin.execute("DROP OWNED BY lesser CASCADE; DROP ROLE lesser")
