"""What a sweep tells of: what is new, what is gone, and of what was given up only what is new."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import DeadLettered, DeadLetterReason, PublishResult, Retry
from sfn.publish.policy import OnDrop, TableFilter
from sfn.worker.sweep import CatalogSweep, SweepPorts, SweepReport, SweepRunner
from tests.unit.sweeping import POLICY, World


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
    assert world.differed == {"sales.gone": "absent", "sales.moved": "changed", "sales.new": "new"}


async def test_a_table_that_is_found_under_another_name_is_no_absence(world: World) -> None:
    """However many: a namespace that is renamed is no catalog that lost its tables."""
    world.inbox.allow(0)
    old = world.create("old")
    new = replace(old, name="new")
    await world.published(old)
    world.catalog.rename(old, new)
    assert (await world.swept()).within_limit
    assert world.differed == {"sales.new": "new", "sales.old": "renamed"}
    assert [(hint.subject, hint.renamed_to, hint.hold_drops) for hint in world.inbox.noted] == [
        (new, None, False),
        (old, new, False),
    ]


async def test_a_table_whose_name_another_one_has_by_now_is_told_of_under_its_new_name(world: World) -> None:
    old = world.create("old")
    new = replace(old, name="new")
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
    world.catalog.register(replace(one, name="two"), world.tables[one])
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
    assert world.differed == {"sales.gone": "held", "sales.lost": "held"}
    for claim in await world.ground.claims():
        await world.ground.settle(claim, DeadLettered(DeadLetterReason.HELD_DROP, "held"))
    world.commit(back)
    await world.ground.settled(back, DeadLettered(DeadLetterReason.HELD_DROP, "held"))
    assert (await world.swept()).differing == 3
    assert world.differed == {"sales.back": "changed", "sales.gone": "held", "sales.lost": "held"}
    for claim in await world.ground.claims():
        await world.ground.settle(claim, DeadLettered(DeadLetterReason.HELD_DROP, "held"))
    await world.swept()
    assert (world.told, world.differed["sales.back"]) == ([], "held")


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
    assert world.differed == {"sales.gone": "held", "sales.lost": "held"}


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
    other = replace(listed, name="ORDERS")
    world.tables[other] = world.tables[listed]
    for table in (listed, other):
        await world.published(table)
    assert (await world.swept()).within_limit
    assert world.differed == {"sales.ORDERS": "renamed"}
    assert [(hint.subject, hint.renamed_to) for hint in world.inbox.noted] == [(other, listed)]


async def test_a_table_whose_listed_name_has_another_table_by_now_is_absent(world: World) -> None:
    listed = world.create("orders")
    other = replace(listed, name="ORDERS")
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
            DeadLettered(DeadLetterReason.HELD_DROP, "held", PublishResult(replace(claim.table_state, on_hold=True))),
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
    assert world.differed == {"sales.gone": "absent", "sales.live": "changed"}


@pytest.mark.parametrize(("reported", "calm"), [(True, True), (False, False)])
async def test_a_renamed_table_that_is_missing_under_both_names_is_one_absence(
    world: World, *, reported: bool, calm: bool
) -> None:
    """Without a report of a rename two names of one uuid may be registered for one metadata file: each counts."""
    world.inbox.allow(1)
    old = world.create("old")
    new = replace(old, name="new")
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
    sweeps, ports = (
        SweepRunner(world.clock),
        SweepPorts(world.catalog, world.inbox, world.inbox, world.inbox, world.clock),
    )
    world.create("orders")
    world.catalog.before_load = lambda: seen.append(sweeps.latest_reports["prod"].previous)
    reports = []
    for _ in range(3):
        sweep = CatalogSweep(CatalogName("prod"), ports, POLICY)
        await sweeps.run(sweep, 0.5)
        reports.append(sweep.report)
    assert seen == [None, *reports[:2]]
    assert [report.previous for report in reports] == [None] * 3
