"""What becomes of a sweep in trouble: it ends as the trouble that it met, and what was found is told."""

from __future__ import annotations

import pytest

from sfn.domain.jobs import SweepCompleted
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.worker.sweep import BATCH_SIZE, CONCURRENT_LOADS
from tests.unit.sweeping import World, trouble

MANY = BATCH_SIZE + 4 * CONCURRENT_LOADS


@pytest.fixture
def world() -> World:
    return World()


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
