"""What every inbox promises about the brake: steps back are counted, and too many are held."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from sfn.inbox.letters import RELEASED
from sfn.words import (
    Backward,
    CatalogName,
    Claim,
    Dead,
    Done,
    Findings,
    Hint,
    Reason,
    Slots,
    Step,
    Story,
    Swept,
    TableName,
)
from tests.promises.inboxes import Ground, pointer, table

FEW = "few"
"""A catalog whose brake lets two steps pass."""
HOUR = 3600.0


def tables(catalog: str, count: int) -> list[TableName]:
    return [table(f"t{number}", catalog) for number in range(count)]


async def claimed(ground: Ground, catalog: str = FEW, count: int = 4) -> list[Claim]:
    """Claims of tables of a catalog."""
    await ground.hint(*tables(catalog, count))
    return await ground.claims()


async def permitted(ground: Ground, claim: Claim, step: Step | None = None) -> bool:
    await ground.inbox.renew([claim])
    return await ground.inbox.permit(claim, step or Step(Backward.DROP, "u1", pointer(1)), ground.now)


async def test_so_many_steps_an_hour_pass_and_no_more(ground: Ground) -> None:
    claims = await claimed(ground)
    assert [await permitted(ground, claim) for claim in claims] == [True, True, False, False]


async def test_the_same_step_is_asked_for_as_often_as_need_be(ground: Ground) -> None:
    first, second, third, _ = await claimed(ground)
    assert [await permitted(ground, first) for _ in range(5)] == [True] * 5
    assert await permitted(ground, second)
    assert not await permitted(ground, third)
    assert await permitted(ground, first)
    assert not await permitted(ground, third)


async def test_another_step_of_the_same_row_is_another_step(ground: Ground) -> None:
    claim, *_ = await claimed(ground)
    steps = [
        Step(Backward.DROP, "u1", pointer(1)),
        Step(Backward.OLDER, "u1", pointer(1)),
        Step(Backward.OLDER, "u2", pointer(1)),
        Step(Backward.OLDER, "u1", pointer(2)),
    ]
    assert [await permitted(ground, claim, step) for step in steps] == [True, True, False, False]


async def test_the_hour_slides(ground: Ground) -> None:
    claims = await claimed(ground)
    assert await permitted(ground, claims[0])
    ground.clock.turn(HOUR / 2)
    claims = await claimed(ground)
    assert await permitted(ground, claims[1])
    ground.clock.turn(HOUR / 2)
    claims = await claimed(ground)
    assert await permitted(ground, claims[2])
    assert not await permitted(ground, claims[3])


async def test_once_it_is_on_it_stays_on(ground: Ground) -> None:
    for claim in await claimed(ground):
        await permitted(ground, claim)
    ground.clock.turn(2 * HOUR)
    (claim, *_) = await claimed(ground)
    assert not await permitted(ground, claim)


async def test_each_catalog_has_its_own(ground: Ground) -> None:
    for claim in await claimed(ground, "prod"):
        assert await permitted(ground, claim)
    claims = await claimed(ground)
    assert [await permitted(ground, claim) for claim in claims] == [True, True, False, False]
    (claim,) = [claim for claim in await claimed(ground, "prod", 5) if claim.subject == table("t4")]
    assert await permitted(ground, claim)


async def test_without_a_limit_ten_steps_pass_or_one_in_a_hundred(ground: Ground) -> None:
    assert await ground.inbox.limit("prod") == 10
    assert await ground.inbox.limit(FEW) == 2
    live = Done(ground.after(HOUR), ground.done().findings)
    for start in range(0, 1200, 100):
        await ground.hint(*(table(f"t{number}") for number in range(start, start + 100)))
        for claim in await ground.claims(Slots(total=100, live=100, sweeps=0)):
            await ground.settle(claim, live)
    assert await ground.inbox.limit("prod") == 12


async def test_an_operator_lets_go_what_is_held_once(ground: Ground) -> None:
    for claim in await claimed(ground):
        allowed = await permitted(ground, claim)
        held = Findings(Story(held=True, visited=True))
        outcome = Done(ground.after(HOUR)) if allowed else Dead(Reason.HELD_DROP, "the brake is on", held)
        await ground.settle(claim, outcome)
    await ground.settled(table("odd", FEW), Dead(Reason.PERMANENT, "its location is nonsense"))
    assert await ground.inbox.release("prod", ground.order()) == 0
    assert await ground.inbox.release(FEW, ground.order()) == 2
    assert await ground.open_letters(FEW) == [("few:sales.odd", "permanent")]
    claims = await ground.claims()
    assert [(claim.story.held, claim.story.waived, claim.attempt) for claim in claims] == [(False, True, 1)] * 2
    assert [await permitted(ground, claim) for claim in claims] == [True, True]


async def test_an_operator_also_lets_go_what_a_hint_has_brought_back(ground: Ground) -> None:
    """Else the table would be held anew at its next look, and released twice by hand."""
    held = Findings(Story(held=True))
    await ground.settled(table("a", FEW), Dead(Reason.HELD_DROP, "the brake is on", held))
    await ground.settled(table("b", FEW), Dead(Reason.HELD_DROP, "the brake is on", held))
    await ground.hint(table("a", FEW))
    running = await ground.claim()
    await ground.hint(table("b", FEW))
    assert await ground.inbox.release(FEW, ground.order()) == 2
    assert not await ground.inbox.settle(running, Dead(Reason.HELD_DROP, "the brake is on", held), ground.now)
    assert [claim.story.waived for claim in await ground.claims()] == [True, True]


async def test_many_that_are_let_go_hold_nobody_up(ground: Ground) -> None:
    count = 2 * RELEASED + 1
    await ground.hint(*tables(FEW, count))
    async with anyio.create_task_group() as settling:
        for claim in await ground.claims(Slots(total=count, live=count, sweeps=0)):
            settling.start_soon(ground.settle, claim, Dead(Reason.HELD_DROP, "the brake is on"))
    released: list[int] = []

    async def release() -> None:
        released.append(await ground.inbox.release(FEW, ground.order("all of it")))

    async with anyio.create_task_group() as releasing:
        releasing.start_soon(release)
        await anyio.lowlevel.checkpoint()
        await ground.hint(table("orders"))
        assert released == []
    assert released == [count]
    (entry,) = await ground.inbox.audited(None, 9)
    assert (entry.action, entry.about, entry.count) == ("release", "all of it", count)
    assert not (await ground.inbox.brake(FEW)).tripped
    assert await ground.open_letters(FEW) == []


@pytest.mark.parametrize("calm", [True, False])
async def test_a_calm_sweep_takes_it_off(ground: Ground, *, calm: bool) -> None:
    for claim in await claimed(ground):
        await permitted(ground, claim)
    await ground.inbox.put([Hint(CatalogName(FEW))])
    sweep = next(claim for claim in await ground.claims() if claim.subject == CatalogName(FEW))
    await ground.settle(sweep, Swept(ground.after(HOUR), began=ground.now, calm=calm))
    ground.clock.turn(2 * HOUR)
    claims = await claimed(ground)
    tables_ = [claim for claim in claims if claim.subject != CatalogName(FEW)]
    assert await permitted(ground, tables_[0]) is calm


async def test_a_brake_that_holds_tables_is_on_whoever_told_it_to(ground: Ground) -> None:
    assert not (await ground.inbox.brake("prod")).tripped
    await ground.settled(table("orders"), Dead(Reason.HELD_DROP, "a sweep found too many gone"))
    assert (await ground.inbox.brake("prod")).tripped
    assert (await ground.inbox.figures()).tripped == {"prod"}
    await ground.inbox.release("prod", ground.order())
    assert not (await ground.inbox.brake("prod")).tripped
    assert (await ground.inbox.figures()).tripped == frozenset()


async def test_a_brake_that_only_tripped_is_on_too(ground: Ground) -> None:
    for claim in await claimed(ground, count=3):
        await permitted(ground, claim)
    assert (await ground.inbox.brake(FEW)).tripped
    assert (await ground.inbox.figures()).tripped == {FEW}
