"""What a sweep tells of: what is new, what is gone, and of what was given up only what is new."""

from __future__ import annotations

import pytest

from sfn.words import Dead, Reason, Retry
from tests.unit.sweeping import World


@pytest.fixture
def world() -> World:
    return World()


async def test_only_what_differs_is_told(world: World) -> None:
    new, same, moved, gone = (world.create(name) for name in ("new", "same", "moved", "gone"))
    for table in (same, moved, gone):
        await world.published(table)
    pointer = world.commit(moved)
    world.catalog.drop(gone)
    assert (await world.swept()).calm
    assert world.told == [gone.identifier, moved.identifier, new.identifier]
    floors = {hint.subject: hint.floor for hint in world.inbox.noted}
    assert (floors[moved], floors[new], floors[gone]) == (pointer, world.tables[new].metadata_location, None)


@pytest.mark.parametrize("reason", [None, *Reason])
async def test_a_table_that_is_gone_is_told_whatever_its_letter_says(world: World, reason: Reason | None) -> None:
    table = world.create("t")
    await world.published(table, reason)
    world.catalog.drop(table)
    await world.swept()
    silent = reason in {Reason.HELD_DROP, Reason.POISON}
    assert world.told == ([] if silent else [table.identifier])


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("reason", list(Reason))
async def test_a_row_with_a_letter_is_told_of_each_pointer_once(world: World, reason: Reason, *, live: bool) -> None:
    table = world.create("t")
    await world.published(table, reason, live=live)
    pointers = [world.commit(table) for _ in range(2)]
    for told in (["sales.t"], [], []):
        await world.swept()
        assert world.told == told
        for claim in await world.ground.claims():
            await world.ground.settle(claim, Dead(reason, "again"))
    row = await world.ground.row(table)
    assert row is not None
    assert row.told == pointers[-1]


@pytest.mark.parametrize("reason", list(Reason))
async def test_a_row_with_a_letter_whose_file_is_right_is_told_nothing(world: World, reason: Reason) -> None:
    await world.published(world.create("t"), reason)
    await world.swept()
    assert world.told == []


async def test_a_row_that_has_neither_a_file_nor_a_letter_is_told_again(world: World) -> None:
    table = world.create("t")
    for _ in range(2):
        await world.swept()
        assert world.told == [table.identifier]
        for claim in await world.ground.claims():
            await world.ground.settle(claim, Retry(world.ground.after(1), "not now"))
