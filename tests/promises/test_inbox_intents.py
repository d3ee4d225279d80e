"""What every inbox promises of commits that pass through a gateway: each is asked for until its outcome is known."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from sfn.domain.events import IntentOutcome, Notification, PutResult
from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import Done, Retry
from sfn.inbox import intents
from sfn.inbox.intents import CHECK_DELAYS, WHOLE_CATALOG_ID, OpenIntentStats
from tests.promises.commits import (
    DAY,
    FIRST,
    LAST,
    ORDERS,
    RETURNS,
    SECOND,
    STOCK,
    THIRD,
    asks,
    intent,
    looks,
    seen,
)
from tests.promises.inboxes import PLENTY, Ground, table

PROD = CatalogName("prod")


async def test_an_open_intent_is_asked_for_at_30_seconds_2_10_and_35_minutes_and_then_goes(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    who = ["prod:sales.orders"]
    assert await asks(ground, 5 * DAY) == [(30, who), (120, who), (600, who), (2100, who)]


async def test_nothing_is_asked_before_its_time(ground: Ground) -> None:
    assert await ground.inbox.put([intent("a")]) == PutResult(0, 0)
    assert (await ground.inbox.claim(PLENTY)).next_due == ground.after(FIRST)
    ground.clock.turn(FIRST - 1)
    assert await looks(ground) == []
    ground.clock.turn(1)
    assert await looks(ground) == ["prod:sales.orders"]
    ground.clock.turn(SECOND - FIRST - 1)
    assert await looks(ground) == []


async def test_a_closed_intent_is_never_asked_for(ground: Ground) -> None:
    await ground.inbox.put([intent("a", ORDERS, RETURNS)])
    assert await ground.inbox.put([IntentOutcome("a", is_known=True)]) == PutResult(0, 0)
    assert await asks(ground) == []


async def test_another_commits_success_leaves_an_intent_open(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    await ground.inbox.put([intent("b")])
    await ground.inbox.put([IntentOutcome("b", is_known=True), Notification(ORDERS, "gateway")])
    assert await looks(ground) == ["prod:sales.orders"]
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_a_look_that_finds_nothing_new_leaves_an_intent_open(ground: Ground) -> None:
    await ground.inbox.put([intent("a"), Notification(ORDERS)])
    await ground.settle(await ground.claim(), Done(ground.after(10 * DAY), forget=True))
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_an_answer_that_does_not_tell_the_outcome_counts_the_asks_anew(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    ground.clock.turn(SECOND)
    assert await looks(ground) == ["prod:sales.orders"]
    await ground.inbox.put([IntentOutcome("a", is_known=False)])
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_what_was_left_open_is_closed_by_nothing(ground: Ground) -> None:
    """Another one may have been left to it."""
    await ground.inbox.put([intent("a")])
    await ground.inbox.put([IntentOutcome("a", is_known=False)])
    await ground.inbox.put([IntentOutcome("a", is_known=True)])
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_an_intent_of_several_tables_is_asked_for_each(ground: Ground) -> None:
    await ground.inbox.put([intent("a", ORDERS, RETURNS, ORDERS)])
    who = ["prod:sales.orders", "prod:sales.returns"]
    assert [(at, sorted(asked)) for at, asked in await asks(ground)] == [
        (at, who) for at in (FIRST, SECOND, THIRD, LAST)
    ]


async def test_an_intent_of_a_catalog_has_it_swept(ground: Ground) -> None:
    await ground.inbox.put([intent("a", PROD)])
    assert [asked for _, asked in await asks(ground)] == [["prod"]] * len(CHECK_DELAYS)


async def test_intents_of_a_table_that_fall_due_together_are_one_look(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    ground.clock.turn(1)
    await ground.inbox.put([intent("b")])
    ground.clock.turn(FIRST)
    claim = await ground.claim()
    assert claim.pending.is_unspecific
    standing = await ground.inbox.table_status(ORDERS)
    assert standing is not None
    assert standing.last_event is not None
    assert (standing.last_event.sender, standing.last_event.event_id, standing.last_event.received_at) == (
        "gateway",
        None,
        ground.now,
    )
    await ground.settle(claim, Done(ground.after(10 * DAY)))
    assert await ground.claims() == []
    # Each still has a schedule of its own.
    assert [at for at, _ in await asks(ground)] == [
        at - FIRST - late for at in (SECOND, THIRD, LAST) for late in (1, 0)
    ]


async def test_a_late_claim_asks_once_and_goes_on_at_the_next_time(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    ground.clock.turn(THIRD + 1)
    assert await looks(ground) == ["prod:sales.orders"]
    assert [at for at, _ in await asks(ground)] == [LAST - THIRD - 1]


async def test_a_claim_after_the_last_time_asks_once(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    ground.clock.turn(2 * DAY)
    assert await asks(ground) == [(0, ["prod:sales.orders"])]


async def test_a_row_in_retry_keeps_its_time_whatever_is_asked_for(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    await ground.settled(ORDERS, Retry(ground.after(FIRST + 40), "its bucket is away"))
    ground.clock.turn(FIRST)
    assert await ground.claims() == []
    ground.clock.turn(40)
    assert (await ground.claim()).attempt == 2


async def test_an_id_that_is_put_twice_is_one(ground: Ground) -> None:
    await ground.inbox.put([intent("a"), intent("a")])
    ground.clock.turn(FIRST / 2)
    await ground.inbox.put([intent("a")])
    assert [at for at, _ in await asks(ground)] == [at - FIRST / 2 for at in (FIRST, SECOND, THIRD, LAST)]


@pytest.mark.parametrize("known", [True, False])
async def test_an_answer_to_nobody_changes_nothing(ground: Ground, known: bool) -> None:
    await ground.inbox.put([intent("a")])
    assert await ground.inbox.put(
        [IntentOutcome("b", is_known=known), IntentOutcome(WHOLE_CATALOG_ID, is_known=known)]
    ) == PutResult(0, 0)
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_notes_of_one_put_are_taken_in_their_order(ground: Ground) -> None:
    await ground.inbox.put(
        [intent("a"), IntentOutcome("a", is_known=True), intent("b", STOCK), IntentOutcome("b", is_known=False)]
    )
    ground.clock.turn(FIRST)
    assert await looks(ground) == ["prod:sales.stock"]


async def test_an_intent_rings_no_bell(ground: Ground) -> None:
    """It is noted while a commit waits for it, and mostly closed before anybody would have to ask."""
    for note in (intent("a"), IntentOutcome("a", is_known=False), intent("b"), IntentOutcome("b", is_known=True)):
        await ground.inbox.claim(PLENTY)
        await ground.inbox.put([note])
        with anyio.move_on_after(0.1) as sleep:
            await ground.inbox.wait(None)
        assert sleep.cancelled_caught


async def test_whoever_waits_for_anything_is_back_by_the_time_of_an_ask(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intents, "CHECK_DELAYS", (timedelta(seconds=0.3), *CHECK_DELAYS[1:]))
    await ground.inbox.claim(PLENTY)
    await ground.inbox.put([intent("a")])
    with anyio.fail_after(5):
        await ground.inbox.wait(None)


async def test_a_moment_that_no_ask_can_have_was_set_by_a_clock_that_was_ahead(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    ground.clock.turn(-LAST - 1)
    who = ["prod:sales.orders"]
    assert await asks(ground) == [(0, who), *((at, who) for at in (FIRST, SECOND, THIRD, LAST))]


async def test_a_catalog_that_is_not_followed_any_more_is_asked_for_like_any(ground: Ground) -> None:
    gone = table("orders", "gone")
    await ground.inbox.put([intent("a", gone)])
    assert [asked for _, asked in await asks(ground)] == [["gone:sales.orders"]] * len(CHECK_DELAYS)


async def test_what_is_open_is_counted_and_told_of_its_table(ground: Ground) -> None:
    await seen(ground, ORDERS, RETURNS)
    opened = ground.now
    await ground.inbox.put([intent("a", ORDERS, RETURNS), intent("b"), intent("c", table("orders", "few"))])
    ground.clock.turn(20)
    await ground.inbox.put([IntentOutcome("b", is_known=False)])
    figures = await ground.inbox.stats()
    assert figures.open_intents == {"prod": 2, "few": 1}
    assert figures.oldest_intent == {"prod": opened, "few": opened}
    standing = await ground.inbox.table_status(ORDERS)
    assert standing is not None
    assert standing.open_intents == OpenIntentStats(2, opened, ground.after(10))
    await ground.inbox.put([IntentOutcome("a", is_known=True), IntentOutcome("c", is_known=True)])
    figures = await ground.inbox.stats()
    assert (figures.open_intents, figures.oldest_intent) == ({"prod": 1}, {"prod": ground.now})
    standing = await ground.inbox.table_status(RETURNS)
    assert standing is not None
    assert standing.open_intents is None
