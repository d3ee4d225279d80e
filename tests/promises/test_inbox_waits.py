"""For how long something that was told waits to be published: however often it failed, or was given back."""

from __future__ import annotations

import pytest

from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Outcome,
    PendingChange,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    Wakeup,
)
from sfn.inbox.model import DeadLetterFilter
from tests.promises.inboxes import Ground, table

ORDERS, STOCK = table("orders"), table("stock")


async def test_the_most_overdue_row_is_the_oldest_that_something_was_told_of(ground: Ground) -> None:
    await ground.published(STOCK, due=10)
    told = ground.clock.turn(100)
    assert (await ground.inbox.stats()).oldest_due == {}
    await ground.hint(ORDERS)
    ground.clock.turn(7)
    await ground.hint(table("late"))
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}
    await ground.claims()
    assert (await ground.inbox.stats()).oldest_due == {}


@pytest.mark.parametrize("outcome", [Retry, Returned])
async def test_a_row_that_fails_waits_since_something_was_told(ground: Ground, outcome: type[Retry | Returned]) -> None:
    told = ground.now
    await ground.hint(ORDERS)
    ground.clock.turn(5)
    for _ in range(3):
        await ground.settle(await ground.claim(), outcome(ground.after(30), "its store is away"))
        assert (await ground.inbox.stats()).oldest_due == {"prod": told}
        ground.clock.turn(30)
    claim = await ground.claim()
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}
    await ground.settle(claim, ground.done())
    assert (await ground.inbox.stats()).oldest_due == {}


async def test_a_row_whose_worker_died_waits_since_something_was_told(ground: Ground) -> None:
    told = ground.now
    await ground.hint(ORDERS)
    await ground.claim()
    ground.clock.turn(100)
    await ground.claims()
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}


@pytest.mark.parametrize("outcome", [Retry, Returned])
async def test_what_is_told_of_a_row_that_fails_waits_since_then(
    ground: Ground, outcome: type[Retry | Returned]
) -> None:
    await ground.published(ORDERS, due=10)
    ground.clock.turn(10)
    await ground.settle(await ground.claim(), outcome(ground.after(60), "its store is away"))
    ground.clock.turn(5)
    assert (await ground.inbox.stats()).oldest_due == {}
    told = ground.now
    await ground.hint(ORDERS)
    ground.clock.turn(5)
    await ground.hint(ORDERS)
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}


async def test_what_is_told_while_a_chore_runs_waits_since_then(ground: Ground) -> None:
    await ground.published(ORDERS, due=10)
    ground.clock.turn(10)
    claim, told = await ground.claim(), ground.clock.turn(5)
    await ground.hint(ORDERS)
    ground.clock.turn(5)
    await ground.settle(claim, Retry(ground.after(60), "no"))
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}


@pytest.mark.parametrize("outcome", ["later", "held"])
async def test_what_waits_on_purpose_is_not_overdue(ground: Ground, outcome: str) -> None:
    outcomes: dict[str, Outcome] = {
        "later": Rescheduled(ground.after(600), "absent for 10 min first", PendingChange(drop=True)),
        "held": DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"),
    }
    await ground.settled(ORDERS, Returned(ground.after(1), "its store is away"))
    ground.clock.turn(1)
    await ground.settle(await ground.claim(), outcomes[outcome])
    ground.clock.turn(300)
    assert (await ground.inbox.stats()).oldest_due == {}


@pytest.mark.parametrize(
    "reason",
    [
        DeadLetterReason.PERMANENT,
        DeadLetterReason.EXHAUSTED,
        DeadLetterReason.POISON,
        DeadLetterReason.LOCATION_REFUSED,
    ],
)
async def test_a_table_that_is_given_up_waits_until_its_letter_is_closed(
    ground: Ground, reason: DeadLetterReason
) -> None:
    dead = DeadLettered(reason, "it can't be", recheck_at=ground.after(600))
    given_up = ground.now
    await ground.settled(ORDERS, dead)
    await ground.settled(STOCK, DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"))
    ground.clock.turn(300)
    await ground.settled(table("later"), DeadLettered(reason, "nor can this", recheck_at=ground.after(600)))
    assert (await ground.inbox.stats()).oldest_due == {"prod": given_up}
    ground.clock.turn(300)
    await ground.settle(await ground.claim(), ground.done())
    assert (await ground.inbox.stats()).oldest_due == {"prod": ground.after(-300)}
    letters = await ground.inbox.list_after(DeadLetterFilter(), 0, 9)
    await ground.inbox.discard([letter.id for letter in letters], ground.order())
    assert (await ground.inbox.stats()).oldest_due == {}


async def test_what_another_row_asks_of_one_that_the_brake_holds_is_not_overdue(ground: Ground) -> None:
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"))
    await ground.settled(
        STOCK, Rescheduled(ground.after(600), "renamed", result=PublishResult(wakeups=(Wakeup(ORDERS),)))
    )
    assert (await ground.inbox.stats()).oldest_due == {}
