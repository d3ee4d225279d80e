"""Open intents that several processes share: asked for by whoever looks first, and by none twice or never."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import pytest

from sfn.clock import SystemClock
from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.inbox.intents import CHECK_DELAYS
from sfn.inbox.model import InboxConfig
from sfn.inbox.postgres import PostgresInbox, PostgresServer
from sfn.inbox.postgres.asking import SOON
from sfn.inbox.postgres.notes import IntentQuery
from sfn.inbox.postgres.opening import reached
from sfn.inbox.postgres.schema import MIGRATIONS, Migration
from sfn.inbox.postgres.tables import SqlTransaction
from sfn.inbox.postgres.tables.intents import PostgresIntents
from sfn.inbox.postgres.unit import InboxTransaction
from tests.integration.sharing import claims, named, replicas, session, stored
from tests.promises.inboxes import PLENTY, HandClock
from tests.servers.postgres import Postgres

FIRST: Final = CHECK_DELAYS[0].total_seconds()
LAST: Final = CHECK_DELAYS[-1].total_seconds()
BLOCKED: Final = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
HINTED: Final = "SELECT key FROM sfn.event ORDER BY seq"
ONE = '["prod","sales","t00001"]'


@pytest.fixture(name="dsn")
def fixture_dsn(postgres: Postgres, database: str) -> str:
    return postgres.dsn(database)


def intents(*numbers: int) -> list[Intent]:
    """An intent for each of these tables, by its number."""
    return [Intent(f"i{number}", (named(number),), "gateway", "10.0.0.1") for number in numbers]


async def blocked(dsn: str, sessions: int) -> None:
    """Until so many of the database wait for a lock."""
    with anyio.fail_after(10):
        while await stored(dsn, BLOCKED) != [sessions]:  # noqa: ASYNC110 - the server knows
            await anyio.sleep(0.02)


async def test_who_look_at_once_ask_for_each_once(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 3) as inboxes:
        await inboxes[0].put(intents(*range(60)))
        clock.turn(FIRST)
        async with anyio.create_task_group() as tasks:
            for inbox in inboxes * 2:
                tasks.start_soon(claims, inbox)
        await claims(inboxes[0])
    assert Counter(await stored(dsn, HINTED)) == {f'["prod","sales","t{number:05}"]': 1 for number in range(60)}


async def test_what_another_transaction_asks_for_is_asked_for_if_that_one_fails(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox], session(dsn) as other:
        await inbox.put(intents(1, 2))
        clock.turn(FIRST)
        async with other.transaction():
            await other.execute("SELECT FROM sfn.intent WHERE id = 'i1' FOR UPDATE")
            with anyio.fail_after(3):
                claimed = await inbox.claim(PLENTY)
            assert [claim.subject for claim in claimed.jobs] == [named(2)]
            assert claimed.next_due == clock.now() + SOON
        assert [claim.subject for claim in await claims(inbox)] == [named(1)]


async def test_an_ask_for_a_row_that_another_transaction_has_holds_nobody_up_and_is_made_soon(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox], session(dsn) as other:
        await inbox.put([Notification(named(1)), *intents(1, 2)])
        await claims(inbox)
        clock.turn(FIRST)
        async with other.transaction():
            await other.execute("SELECT FROM sfn.subject WHERE key LIKE '%t00001%' FOR UPDATE")
            with anyio.fail_after(3):
                claimed = await inbox.claim(PLENTY)
            assert [claim.subject for claim in claimed.jobs] == [named(2)]
            assert claimed.next_due == clock.now() + SOON
        await claims(inbox)
    assert (await stored(dsn, HINTED)).count(ONE) == 2


async def test_an_answer_waits_for_who_asks_and_has_the_last_word(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as [first, second], session(dsn) as other:
        await first.put(intents(1, 2))
        clock.turn(FIRST)
        async with anyio.create_task_group() as tasks, other.transaction():
            await other.execute("LOCK TABLE sfn.event IN SHARE MODE")
            tasks.start_soon(claims, first)
            await blocked(dsn, 1)
            tasks.start_soon(second.put, [IntentOutcome("i1", is_known=True), IntentOutcome("i2", is_known=False)])
            await blocked(dsn, 2)
        assert await stored(dsn, "SELECT id FROM sfn.intent") == ["i2"]
        clock.turn(FIRST - 1)
        assert (await second.claim(PLENTY)).next_due == clock.turn(1)
        await claims(second)
    assert (await stored(dsn, HINTED)).count('["prod","sales","t00002"]') == 2


async def test_the_answer_to_a_commit_and_its_hint_are_all_or_nothing(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox], session(dsn) as other:
        await inbox.put(intents(1))
        await other.execute("ALTER TABLE sfn.event ADD CHECK (sender <> 'gateway') NOT VALID")
        with pytest.raises(Exception, match="23514"):
            await inbox.put([IntentOutcome("i1", is_known=True), Notification(named(1), "gateway")])
        assert await stored(dsn, "SELECT id FROM sfn.intent") == ["i1"]


async def test_intents_are_there_for_who_comes_later(dsn: str) -> None:
    clock = HandClock()
    long = TableIdentifier("prod", ("sales",), "x" * 3000)
    async with replicas(dsn, clock, 1) as [inbox]:
        await inbox.put([*intents(1), Intent("long", (long,), "gate\0way", "10.0.0.1")])
    clock.turn(LAST)
    async with replicas(dsn, clock, 1) as [inbox]:
        assert {claim.subject for claim in await claims(inbox)} == {named(1), long}
        standing = await inbox.table_status(long)
        assert standing is not None
        assert standing.last_event is not None
        assert standing.last_event.sender == "gate\ufffdway"


async def test_those_who_open_too_many_at_once_share_one_of_the_catalog(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as inboxes:
        await inboxes[0].put(intents(*range(1000)))
        clock.turn(5)
        async with anyio.create_task_group() as tasks:
            for number, inbox in enumerate(inboxes * 3):
                tasks.start_soon(inbox.put, intents(2000 + number))
        clock.turn(5)
        await inboxes[1].put(intents(3000))
        query = "SELECT key || (opened_at - due_at) / 1000000 FROM sfn.intent WHERE id = ''"
        assert await stored(dsn, query) == ['["prod"]-25']


async def test_who_opens_one_of_the_catalog_puts_off_no_ask_of_another_one_that_does(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock) as [first, second], session(dsn) as other:
        await first.put(intents(*range(1000)))
        async with anyio.create_task_group() as tasks, other.transaction():
            await other.execute("LOCK TABLE sfn.intent IN SHARE MODE")
            for inbox, number in ((first, 2000), (second, 3000)):
                tasks.start_soon(inbox.put, intents(number))
                await blocked(dsn, 1 if inbox is first else 2)
                clock.turn(5)
        query = "SELECT due_at - (SELECT min(opened_at) FROM sfn.intent) FROM sfn.intent WHERE id = ''"
        assert await stored(dsn, query) == [FIRST * 1_000_000]


async def test_nothing_that_is_asked_of_intents_reads_all_that_are_open(dsn: str) -> None:
    clock = HandClock()
    async with replicas(dsn, clock, 1) as [inbox]:
        await inbox.put(intents(*range(900)))
        for start in range(0, 900, 100):
            await inbox.put([IntentOutcome(f"i{number}", is_known=False) for number in range(start, start + 100)])
    sought = IntentQuery({"i7", ""}, {named(7)}, {named(7)}, {"10.0.0.2"})
    looks: list[Callable[[PostgresIntents], Awaitable[object]]] = [
        lambda table: table.span(),
        lambda table: table.due(clock.now(), 500),
        lambda table: table.find(sought),
        lambda table: table.get({"i7"}),
        lambda table: table.of(named(7)),
        lambda table: table.close({"i7"}),
    ]
    async with reached(PostgresServer(dsn)) as there:
        for look in looks:
            assert await there.transactions.run(partial(_rows_read, look)) < 10


async def _rows_read(look: Callable[[PostgresIntents], Awaitable[object]], unit: InboxTransaction) -> int:
    assert isinstance(unit, SqlTransaction)
    await look(unit.intents)
    ((read,),) = await unit.sql.fetch(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'intent'"
    )
    return int(read)


async def test_tables_of_the_first_version_get_room_for_intents_while_one_of_it_goes_on(dsn: str) -> None:
    clock = SystemClock()
    # The statements of this version name columns of later steps; only the room for intents is missing.
    statements = ";".join(step.script for step in MIGRATIONS if step is not MIGRATIONS[1])
    async with PostgresInbox.opened(
        PostgresServer(dsn), InboxConfig(), clock, migrations=[Migration(statements, oldest=1)]
    ) as old:
        await old.put([Notification(named(7), "etl", "e1")])
        async with replicas(dsn, clock, 1) as [new]:
            assert (await new.put([*intents(1), Notification(named(7), "etl", "e1")])).duplicates == 1
            await old.put([Notification(named(8))])
            await old.check_version()
            assert len(await claims(new)) == 2
    assert await stored(dsn, "SELECT version FROM sfn.version") == [len(MIGRATIONS)]
