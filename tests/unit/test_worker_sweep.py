"""Results, log records and errors of a sweep."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import anyio
import msgspec
import pytest
from msgspec import structs
from structlog.testing import capture_logs
from structlog.typing import EventDict
from typing_extensions import override

from sfn.catalogs import SkipNamespace, UnlistedNamespace
from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import (
    Capacity,
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    PublishResult,
    Retry,
    Returned,
    SweepCompleted,
)
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.inbox import ClaimResult
from sfn.publish.policy import OnDrop, Policy, TableFilter
from sfn.storage.memory import MemoryStore
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.sweep import (
    BATCH_SIZE,
    CONCURRENT_LOADS,
    MAX_LOGGED,
    CatalogSweep,
    SweepPorts,
    SweepReport,
    SweepRunner,
)
from sfn.worker.worker import WorkerOptions
from tests.support.clock import HandClock
from tests.support.working import POLICY, TABLE, Desk, WatchedInbox, World, trouble


@pytest.fixture
def world() -> World:
    return World()


async def test_only_what_differs_is_told(world: World) -> None:
    new, same, moved, gone = (world.create(name) for name in ("new", "same", "moved", "gone"))
    for table in (same, moved, gone):
        await world.published(table)
    pointer = world.commit(moved)
    world.catalog.drop(gone)
    assert (await world.swept()).within_limit
    assert world.told == [gone.dotted, moved.dotted, new.dotted]
    floors = {hint.subject: hint.min_metadata_location for hint in world.inbox.noted}
    assert (floors[moved], floors[new], floors[gone]) == (pointer, world.tables[new].metadata_location, None)
    assert world.differed == {"sales.gone": "absent", "sales.moved": "behind", "sales.new": "missing"}


async def test_a_table_that_is_found_under_another_name_is_no_absence(world: World) -> None:
    """However many: a namespace that is renamed is no catalog that lost its tables."""
    world.inbox.allow(0)
    old = world.create("old")
    new = msgspec.structs.replace(old, name="new")
    await world.published(old)
    world.catalog.rename(old, new)
    assert (await world.swept()).within_limit
    assert world.differed == {"sales.new": "missing", "sales.old": "renamed"}
    assert [(hint.subject, hint.renamed_to, hint.hold_drops) for hint in world.inbox.noted] == [
        (new, None, False),
        (old, new, False),
    ]


async def test_a_table_whose_name_another_one_has_by_now_is_told_of_under_its_new_name(world: World) -> None:
    old = world.create("old")
    new = msgspec.structs.replace(old, name="new")
    await world.published(old)
    world.catalog.rename(old, new)
    world.tables[old] = world.catalog.create(old)
    await world.swept()
    assert (old, new) in [(hint.subject, hint.renamed_to) for hint in world.inbox.noted]


async def test_a_table_that_a_row_misses_since_before_is_told_of_under_its_new_name(world: World) -> None:
    """The name's own table is published already."""
    old, new = world.create("old"), world.create("new")
    await world.published(old, missing=world.tables[new].uuid)
    await world.swept()
    assert [(hint.subject, hint.renamed_to) for hint in world.inbox.noted] == [(new, None), (old, new)]


async def test_two_names_of_one_table_are_no_rename(world: World) -> None:
    one = world.create("one")
    await world.published(one)
    world.catalog.register(msgspec.structs.replace(one, name="two"), world.tables[one])
    await world.swept()
    assert {hint.renamed_to for hint in world.inbox.noted} == {None}


async def test_what_the_brake_holds_is_reported_as_held_as_long_as_it_differs(world: World) -> None:
    world.inbox.allow(1)
    tables = [world.create(name) for name in ("back", "gone", "lost")]
    for table in tables:
        await world.published(table)
    back, *dropped = tables
    for table in dropped:
        world.catalog.drop(table)
    await world.swept()
    assert world.differed == {"sales.gone": "absent", "sales.lost": "absent"}
    assert world.held == {"sales.gone", "sales.lost"}
    for claim in await world.ground.claims():
        await world.ground.settle(claim, DeadLettered(DeadLetterReason.HELD_DROP, "held"))
    world.commit(back)
    await world.ground.settled(back, DeadLettered(DeadLetterReason.HELD_DROP, "held"))
    assert (await world.swept()).differing == 3
    assert world.differed == {"sales.back": "behind", "sales.gone": "absent", "sales.lost": "absent"}
    assert world.held == set(world.differed)
    for claim in await world.ground.claims():
        await world.ground.settle(claim, DeadLettered(DeadLetterReason.HELD_DROP, "held"))
    await world.swept()
    assert (world.told, world.differed["sales.back"], len(world.held)) == ([], "behind", 3)


async def test_a_held_table_whose_file_is_right_again_does_not_differ(world: World) -> None:
    await world.published(world.create("t"), DeadLetterReason.HELD_DROP)
    await world.swept()
    assert world.differed == {}


@pytest.mark.parametrize("reason", [None, *DeadLetterReason])
async def test_a_table_that_is_gone_is_told_whatever_its_letter_says(
    world: World, reason: DeadLetterReason | None
) -> None:
    table = world.create("t")
    await world.published(table, reason)
    world.catalog.drop(table)
    await world.swept()
    silent = reason in {DeadLetterReason.HELD_DROP, DeadLetterReason.POISON}
    assert world.told == ([] if silent else [table.dotted])


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("reason", list(DeadLetterReason))
async def test_a_row_with_a_letter_is_told_of_each_pointer_once(
    world: World, reason: DeadLetterReason, *, live: bool
) -> None:
    table = world.create("t")
    await world.published(table, reason, live=live)
    pointers = [world.commit(table) for _ in range(2)]
    for told in (["sales.t"], [], []):
        await world.swept()
        assert world.told == told
        for claim in await world.ground.claims():
            await world.ground.settle(claim, DeadLettered(reason, "again"))
    row = await world.ground.row(table)
    assert row is not None
    assert row.min_metadata_location == pointers[-1]


async def test_a_held_table_that_is_there_again_is_told_so_that_it_is_held_no_more(world: World) -> None:
    """Its catalog got its database back: nobody has to release what did not happen."""
    world.inbox.allow(1)
    back, gone, lost = (world.create(name) for name in ("back", "gone", "lost"))
    for table in (back, gone, lost):
        await world.published(table, DeadLetterReason.HELD_DROP)
    for table in (gone, lost):
        world.catalog.drop(table)
    assert not (await world.swept()).within_limit
    assert world.told == [back.dotted]
    assert world.differed == {"sales.gone": "absent", "sales.lost": "absent"}
    assert world.held == {"sales.gone", "sales.lost"}


async def test_a_held_table_that_is_there_again_with_a_commit_that_was_told_is_told_once_more(world: World) -> None:
    """Its event came while the table was missing, and changed nothing."""
    table = world.create("t")
    await world.published(table, DeadLetterReason.HELD_DROP, missing=world.tables[table].uuid)
    pointer = world.commit(table)
    for told in (["sales.t"], ["sales.t"]):
        await world.swept()
        assert world.told == told
        for claim in await world.ground.claims():
            await world.ground.settle(
                claim, DeadLettered(DeadLetterReason.HELD_DROP, "again", PublishResult(claim.table_state, claim.cache))
            )
    row = await world.ground.row(table)
    assert row is not None
    assert row.min_metadata_location == pointer


async def test_a_table_that_is_listed_under_another_name_as_it_was_published_is_no_absence(world: World) -> None:
    """A row under a name that the catalog never lists, as an older version left it beside the listed one."""
    world.inbox.allow(0)
    listed = world.create("orders")
    other = msgspec.structs.replace(listed, name="ORDERS")
    world.tables[other] = world.tables[listed]
    for table in (listed, other):
        await world.published(table)
    assert (await world.swept()).within_limit
    assert world.differed == {"sales.ORDERS": "renamed"}
    assert [(hint.subject, hint.renamed_to) for hint in world.inbox.noted] == [(other, listed)]


async def test_a_table_whose_listed_name_has_another_table_by_now_is_absent(world: World) -> None:
    listed = world.create("orders")
    other = msgspec.structs.replace(listed, name="ORDERS")
    world.tables[other] = world.tables[listed]
    for table in (listed, other):
        await world.published(table)
    world.catalog.drop(listed)
    world.create("orders")
    await world.swept()
    assert world.differed["sales.ORDERS"] == "absent"


@pytest.mark.parametrize("reason", [reason for reason in DeadLetterReason if reason is not DeadLetterReason.HELD_DROP])
async def test_a_row_with_a_letter_whose_file_is_right_is_told_nothing(world: World, reason: DeadLetterReason) -> None:
    await world.published(world.create("t"), reason)
    await world.swept()
    assert world.told == []


async def test_a_row_that_has_neither_a_file_nor_a_letter_is_told_again(world: World) -> None:
    table = world.create("t")
    for _ in range(2):
        await world.swept()
        assert world.told == [table.dotted]
        for claim in await world.ground.claims():
            await world.ground.settle(claim, Retry(world.ground.after(1), "not now"))


async def test_what_is_held_already_counts_among_the_absences(world: World) -> None:
    """Else a catalog that loses its tables one by one would be calm as soon as the first were held."""
    world.inbox.allow(10)
    tables = [world.create(f"t{number:02}") for number in range(20)]
    for table in tables:
        await world.published(table)
    for table in tables[:11]:
        world.catalog.drop(table)
    assert not (await world.swept()).within_limit
    assert [hint.hold_drops for hint in world.inbox.noted] == [True] * 11
    for claim in await world.ground.claims():
        await world.ground.settle(
            claim,
            DeadLettered(
                DeadLetterReason.HELD_DROP, "held", PublishResult(structs.replace(claim.table_state, on_hold=True))
            ),
        )
    world.catalog.drop(tables[11])
    assert not (await world.swept()).within_limit
    assert [(hint.subject, hint.hold_drops) for hint in world.inbox.noted] == [(tables[11], True)]


async def test_where_files_of_dropped_tables_stay_an_absence_is_nothing(world: World) -> None:
    world.inbox.allow(1)
    keep = replace(POLICY, on_drop=OnDrop.KEEP)
    for number in range(3):
        table = world.create(f"t{number}")
        await world.published(table)
        world.catalog.drop(table)
    for _ in range(2):
        assert (await world.swept(keep)).within_limit
        assert world.told == []
    excluded = replace(keep, table_filter=TableFilter(exclude=("sales.t1",)))
    await world.swept(excluded)
    assert world.told == ["sales.t1"]


@pytest.mark.parametrize(("takes", "due"), [(0, 900), (600, 900), (840, 930), (3600, 3690)])
async def test_a_sweep_that_takes_longer_than_its_interval_leaves_a_pause(world: World, takes: int, due: int) -> None:
    world.create("t")
    began = world.clock.now()
    world.catalog.before_load = lambda: world.clock.turn(takes)
    assert (await world.swept()).due_at == began + timedelta(seconds=due)


async def test_of_a_catalog_that_retired_only_what_is_still_published_is_looked_at(world: World) -> None:
    tables = {name: world.create(name) for name in ("new", "withdrawn", "held", "live", "gone")}
    loads: list[None] = []
    world.catalog.before_load = lambda: loads.append(None)
    await world.published(tables["withdrawn"], live=False)
    await world.published(tables["held"], DeadLetterReason.HELD_DROP, live=False)
    for name in ("live", "gone"):
        await world.published(tables[name])
    world.commit(tables["live"])
    world.catalog.drop(tables["gone"])
    swept = await world.swept(replace(POLICY, is_retired=True))
    assert (world.told, swept.tables, len(loads)) == (["sales.gone", "sales.live"], 1, 1)
    assert world.differed == {"sales.gone": "absent", "sales.live": "behind"}


@pytest.mark.parametrize(("reported", "calm"), [(True, True), (False, False)])
async def test_a_renamed_table_that_is_missing_under_both_names_is_one_absence(
    world: World, *, reported: bool, calm: bool
) -> None:
    """Without a report of a rename two names of one uuid may be registered for one metadata file: each counts."""
    world.inbox.allow(1)
    old = world.create("old")
    new = msgspec.structs.replace(old, name="new")
    world.tables[new] = world.tables[old]
    await world.published(old)
    await world.published(new)
    await world.ground.inbox.put([Notification(old, renamed_to=new if reported else None)])
    world.catalog.drop(old)
    assert (await world.swept()).within_limit is calm
    assert [hint.hold_drops for hint in world.inbox.noted] == [not calm] * 2


async def test_while_a_sweep_runs_the_report_of_the_one_before_is_kept(world: World) -> None:
    """What that found wrong may come last in this one."""
    seen: list[SweepReport | None] = []
    sweeps, ports = (SweepRunner(world.clock), SweepPorts(world.catalog, world.inbox, world.clock))
    world.create("orders")
    world.catalog.before_load = lambda: seen.append(sweeps.latest_reports["prod"].previous)
    reports = []
    for _ in range(3):
        sweep = CatalogSweep(CatalogName("prod"), ports, POLICY)
        await sweeps.run(sweep, 0.5)
        reports.append(sweep.report)
    assert seen == [None, *reports[:2]]
    assert [report.previous for report in reports] == [None] * 3


def of(event: str, records: Sequence[EventDict]) -> list[EventDict]:
    return [record for record in records if record["event"] == event]


@pytest.mark.parametrize(("limit", "calm"), [(2, True), (1, False)])
async def test_a_sweep_tells_its_numbers_once(world: World, limit: int, *, calm: bool) -> None:
    same, *gone = [world.create(name) for name in ("same", "gone", "gone_too")]
    for table in (same, *gone):
        await world.published(table)
    for table in gone:
        world.catalog.drop(table)
    for number in range(3):
        world.create(f"new{number}")
    world.inbox.allow(limit)
    with capture_logs() as records:
        assert (await world.swept()).within_limit is calm
    assert of("sweep finished", records) == [
        {
            "event": "sweep finished",
            "log_level": "info",
            "catalog": "prod",
            "tables": 4,
            "notifications": 5,
            "missing": 2,
            "limit": limit,
        }
    ]
    warnings = [] if calm else [{"missing": 2, "known": 3, "limit": 1}]
    assert [{key: one[key] for key in ("missing", "known", "limit")} for one in of("drop limit reached", records)] == (
        warnings
    )
    assert all(one["remedy"].endswith("sfn release prod") for one in of("drop limit reached", records))


async def test_tables_that_fail_are_one_warning_with_the_first_error(world: World) -> None:
    tables = [world.create(f"t{number:04d}") for number in range(2 * MAX_LOGGED)]
    world.catalog.fails_after, world.catalog.fails_with = CONCURRENT_LOADS, trouble(ErrorScope.TABLE)
    with capture_logs() as records:
        await world.swept()
    (record,) = of("tables not checked", records)
    assert (record["log_level"], record["catalog"], record["number"]) == (
        "warning",
        "prod",
        len(tables) - CONCURRENT_LOADS,
    )
    assert record["error"] == str(world.catalog.fails_with)
    assert len(record["tables"]) == MAX_LOGGED
    assert set(record["tables"]) <= {table.dotted for table in tables}
    (told,) = of("sweep finished", records)
    assert (told["tables"], told["notifications"]) == (len(tables), CONCURRENT_LOADS)


async def test_a_sweep_that_ends_in_trouble_tells_no_numbers(world: World) -> None:
    world.create("t")
    world.catalog.fails_with = trouble()
    with capture_logs() as records, pytest.raises(Transient):
        await world.swept()
    assert records == []


CATALOG = CatalogName("prod")
DRAIN = timedelta(seconds=60)
AT_ONCE = 5.0
"""Seconds: much less than the drain, much more than a busy machine takes."""


class Endless(MemoryCatalog):
    """A catalog whose listing has no end.

    Attributes:
        reached: it was asked for.
    """

    def __init__(self) -> None:
        super().__init__(CATALOG.catalog)
        self.reached = anyio.Event()

    @override
    async def tables(self, skip: SkipNamespace | None = None) -> AsyncGenerator[TableIdentifier | UnlistedNamespace]:
        async for found in super().tables(skip):
            yield found
        self.reached.set()
        await anyio.sleep_forever()


class SlowStore(MemoryStore):
    """A store that takes its time.

    Attributes:
        reached: it was asked.
        answers: from then on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.answers = anyio.Event(), anyio.Event()

    @override
    async def list(self, prefix: str, limit: int) -> list[str]:
        self.reached.set()
        await self.answers.wait()
        return await super().list(prefix, limit)


class SlowInbox(WatchedInbox):
    """An inbox that takes its time to say what was claimed.

    Attributes:
        claimed: something was.
        answers: from then on.
    """

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.claimed, self.answers = anyio.Event(), anyio.Event()

    @override
    async def claim(
        self, capacity: Capacity, running: Sequence[LeasedJob] = (), until: datetime | None = None
    ) -> ClaimResult:
        claimed = await super().claim(capacity, running, until)
        if claimed.jobs:
            self.claimed.set()
            with anyio.CancelScope(shield=True):
                await self.answers.wait()
        return claimed


class Stage:
    """A worker, a catalog that can't be walked to its end, and what is slow."""

    def __init__(self) -> None:
        clock = HandClock()
        self.catalog, self.store, self.inbox = Endless(), SlowStore(), SlowInbox(clock)
        self.catalog.create_namespace(*TABLE.namespace)
        self.catalog.create(TABLE)
        self.desk = Desk(WorkerOptions(drain=DRAIN), clock=clock, inbox=self.inbox)
        self.desk.source = ConnectedCatalog(self.catalog, Policy("c1"))
        self.desk.store = self.store


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_a_sweep_ends_at_a_stop_and_a_table_when_it_is_done(stage: Stage) -> None:
    stage.inbox.answers.set()
    await stage.inbox.put([Notification(CATALOG), Notification(TABLE)])
    stop = anyio.Event()
    with anyio.fail_after(AT_ONCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.desk.worker.run, stop)
            await stage.catalog.reached.wait()
            await stage.store.reached.wait()
            stop.set()
            while not stage.desk.book.outcomes:  # noqa: ASYNC110 - a journal has no event
                await anyio.sleep(0.001)
            assert [type(outcome) for outcome in stage.desk.book.outcomes] == [Returned]
            stage.store.answers.set()
    assert [type(outcome) for outcome in stage.desk.book.outcomes] == [Returned, Done]
    assert stage.desk.book.lost == []


async def test_the_next_process_begins_it_at_once_and_no_attempt_was_counted(stage: Stage) -> None:
    stage.inbox.answers.set()
    await stage.inbox.put([Notification(CATALOG)])
    stop = anyio.Event()
    with anyio.fail_after(AT_ONCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.desk.worker.run, stop)
            await stage.catalog.reached.wait()
            stop.set()
    (claim,) = (await stage.inbox.claim(stage.inbox.slots)).jobs
    assert (claim.subject, claim.attempt) == (CATALOG, 1)


async def test_a_sweep_that_is_claimed_while_the_stop_comes_is_given_back_unstarted(stage: Stage) -> None:
    await stage.inbox.put([Notification(CATALOG)])
    stop = anyio.Event()
    with anyio.fail_after(AT_ONCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage.desk.worker.run, stop)
            await stage.inbox.claimed.wait()
            stop.set()
            await anyio.wait_all_tasks_blocked()
            stage.inbox.answers.set()
    assert stage.desk.book.outcomes == []
    status = await stage.inbox.table_status(CATALOG)
    assert status is not None
    assert (status.job.state, status.job.attempt, status.has_unprocessed) == ("queued", 0, True)


MANY = BATCH_SIZE + 4 * CONCURRENT_LOADS


@pytest.mark.parametrize("answered", [0, 1, CONCURRENT_LOADS, BATCH_SIZE + CONCURRENT_LOADS])
async def test_an_outage_in_the_middle_is_the_trouble_that_it_is(world: World, answered: int) -> None:
    gone = world.create("gone")
    await world.published(gone)
    world.catalog.drop(gone)
    for number in range(MANY):
        world.create(f"t{number}")
    world.catalog.fails_after, world.catalog.fails_with = answered, trouble()
    with pytest.raises(Transient) as caught:
        await world.swept()
    assert caught.value is world.catalog.fails_with
    assert gone.dotted not in world.told
    assert len(world.told) == answered, "what was found is told all the same"


async def test_a_tables_own_trouble_ends_no_sweep(world: World) -> None:
    for number in range(MANY):
        world.create(f"t{number}")
    world.catalog.fails_after, world.catalog.fails_with = 7, trouble(ErrorScope.TABLE)
    assert isinstance(await world.swept(), SweepCompleted)
    assert len(world.told) == 7


@pytest.mark.parametrize(
    "error", [FatalError("inbox", expected="a disk", found="none"), trouble(ErrorScope.INBOX), ZeroDivisionError()]
)
@pytest.mark.parametrize("tables", [1, MANY])
async def test_what_the_inbox_raises_comes_out_as_it_is(world: World, error: Exception, tables: int) -> None:
    for number in range(tables):
        world.create(f"t{number}")
    world.inbox.fails_with = error
    with pytest.raises(type(error)) as caught:
        await world.swept()
    assert caught.value is error


async def test_what_ends_the_process_is_told_before_any_trouble(world: World) -> None:
    for number in range(MANY):
        world.create(f"t{number}")
    world.inbox.fails_with = FatalError("inbox", expected="a disk", found="none")
    world.catalog.fails_after, world.catalog.fails_with = BATCH_SIZE, trouble()
    with pytest.raises(FatalError):
        await world.swept()


def warnings(records: Sequence[EventDict]) -> list[EventDict]:
    return [record for record in records if record["log_level"] == "warning"]


async def test_what_is_withheld_counts_as_present_and_is_told_of_once(world: World) -> None:
    hidden = [world.create("t", "closed"), world.create("t", "closed", "inner"), world.create("u", "closed")]
    others = [world.create("t", "closed_too"), world.create("t", "open")]
    for table in (*hidden, *others):
        await world.published(table)
    for table in (hidden[0], hidden[1], *others):
        world.catalog.drop(table)
    world.catalog.close_namespace("closed")
    with capture_logs() as records:
        swept = await world.swept()
    assert (swept.started_at, swept.within_limit) == (world.clock.now(), True)
    assert world.told == ["closed_too.t", "open.t"]
    (record,) = warnings(records)
    assert (record["log_level"], record["catalog"], record["namespaces"]) == ("warning", "prod", ["closed"])
    assert "closed" in record["why"]


async def test_a_table_that_was_listed_and_is_not_found_is_gone_whatever_is_withheld(world: World) -> None:
    gone, unseen = world.create("gone", "torn"), world.create("unseen", "torn")
    for table in (gone, unseen):
        await world.published(table)
    world.catalog.drop(unseen)
    world.catalog.torn = ("torn",)
    world.catalog.lost.add(gone)
    await world.swept()
    assert world.told == ["torn.gone"]


async def test_a_catalog_that_is_withheld_as_a_whole_has_lost_nothing(world: World) -> None:
    await world.published(world.create("t"))
    world.catalog.close_namespace()
    with capture_logs() as records:
        await world.swept()
    assert world.told == []
    assert [record["namespaces"] for record in warnings(records)] == [["(all)"]]


async def test_a_sweep_that_sees_everything_warns_of_nothing(world: World) -> None:
    world.create("t")
    with capture_logs() as records:
        await world.swept()
    assert warnings(records) == []


async def test_many_that_are_withheld_are_one_record_of_bounded_length(world: World) -> None:
    for number in range(2 * MAX_LOGGED):
        world.catalog.close_namespace(f"closed{number:04d}")
    with capture_logs() as records:
        await world.swept()
    (record,) = warnings(records)
    assert (record["number"], len(record["namespaces"])) == (2 * MAX_LOGGED, MAX_LOGGED)


@pytest.mark.parametrize(
    ("exclude", "asked"),
    [
        ("closed.**", False),
        ("closed**", False),
        ("**", False),
        ("*.**", False),
        ("closed.*", True),
        ("closed.t**", True),
        ("close.**", True),
        ("closed", True),
    ],
)
async def test_what_is_excluded_altogether_is_not_even_listed(world: World, exclude: str, *, asked: bool) -> None:
    await world.published(world.create("t", "closed", "inner"))
    world.catalog.close_namespace("closed")
    policy = Policy("id", table_filter=TableFilter(exclude=(exclude,)))
    with capture_logs() as records:
        await world.swept(policy)
    assert len(warnings(records)) == asked


async def test_a_published_table_that_is_excluded_is_told_wherever_it_lies(world: World) -> None:
    for table in (world.create("t", "closed"), world.create("t", "closed", "inner"), world.create("t", "open")):
        await world.published(table)
    world.catalog.close_namespace("closed")
    await world.swept(Policy("id", table_filter=TableFilter(exclude=("closed.*", "open.**"))))
    assert world.told == ["closed.t", "open.t"]


async def test_a_sweep_says_which_namespaces_it_could_not_list(world: World) -> None:
    world.create("t", "open")
    world.catalog.close_namespace("closed", "inner")
    world.catalog.torn = ("torn",)
    assert (await world.swept()).unlisted_namespaces == {"closed.inner", "torn"}


@pytest.mark.parametrize(("limit", "calm"), [(2, True), (1, False)])
async def test_what_is_held_in_a_namespace_that_could_not_be_listed_still_counts(
    world: World, limit: int, *, calm: bool
) -> None:
    """Else a namespace that fails would loosen the drop limit that its own lost tables tripped."""
    world.inbox.allow(0)
    tables = [world.create(name, "closed") for name in ("a", "b")]
    for table in tables:
        await world.published(table)
        world.catalog.drop(table)
    assert not (await world.swept()).within_limit
    for claim in await world.ground.claims():
        await world.ground.settle(
            claim,
            DeadLettered(
                DeadLetterReason.HELD_DROP, "held", PublishResult(structs.replace(claim.table_state, on_hold=True))
            ),
        )
    world.catalog.close_namespace("closed")
    world.inbox.allow(limit)
    assert (await world.swept()).within_limit is calm
