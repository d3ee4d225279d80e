"""Intents of every inbox."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from sfn.domain.events import IntentOutcome, Notification, PutResult
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import Done, Retry
from sfn.inbox import intents
from sfn.inbox.intents import (
    CHECK_DELAYS,
    MAX_CHECKS_PER_CLAIM,
    MAX_UNKNOWN_TABLES,
    MERGE_WINDOW,
    WHOLE_CATALOG_ID,
    OpenIntentStats,
)
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
    flood,
    intent,
    looks,
    seen,
)
from tests.promises.inboxes import PLENTY, Ground, table

# ── Single intents


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


# ── Many intents


SOON = MERGE_WINDOW.total_seconds()


async def test_many_who_commit_at_once_have_an_intent_each(ground: Ground) -> None:
    async def commit(number: int) -> None:
        await ground.inbox.put([intent(f"{number}", table(f"t{number}"))])
        if number % 2:
            await ground.inbox.put([IntentOutcome(f"{number}", is_known=True)])

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(commit, number)
    ground.clock.turn(FIRST)
    assert sorted(await looks(ground)) == sorted(f"prod:sales.t{number}" for number in range(0, 40, 2))


async def test_a_peer_has_so_many_for_tables_never_seen_and_then_one_of_the_whole_catalog(ground: Ground) -> None:
    await ground.inbox.put([*flood(MAX_UNKNOWN_TABLES), intent("too many", STOCK), intent("again", RETURNS)])
    await ground.inbox.put([IntentOutcome("too many", is_known=True), IntentOutcome("again", is_known=True)])
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    assert [asked for _, asked in await asks(ground)] == [["prod"]] * len(CHECK_DELAYS)


async def test_an_id_that_is_put_again_by_a_peer_that_has_too_many_is_one_all_the_same(ground: Ground) -> None:
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    assert await asks(ground) == []


async def test_what_is_closed_makes_room_for_its_peer(ground: Ground) -> None:
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    await ground.inbox.put([IntentOutcome("10.0.0.1 0", is_known=True)])
    await ground.inbox.put([intent("a", STOCK)])
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    assert [asked for _, asked in await asks(ground)] == [["prod:sales.stock"]] * len(CHECK_DELAYS)


async def test_tables_that_have_a_row_other_peers_and_whole_catalogs_do_not_count(ground: Ground) -> None:
    await seen(ground, ORDERS)
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    few = CatalogName("few")
    await ground.inbox.put([intent("a"), intent("b", STOCK, peer="10.0.0.2"), intent("c", few)])
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    ground.clock.turn(FIRST)
    assert sorted(await looks(ground)) == ["few", "prod:sales.orders", "prod:sales.stock"]


async def test_a_catalogs_own_intent_is_counted_from_the_last_one_and_its_next_ask_is_not_put_off(
    ground: Ground,
) -> None:
    await ground.inbox.put([*flood(MAX_UNKNOWN_TABLES), intent("too many", STOCK)])
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES, "10.0.0.2"))
    ground.clock.turn(FIRST - 10)
    await ground.inbox.put([intent("more", STOCK, peer="10.0.0.2")])
    # It is no request's.
    await ground.inbox.put([IntentOutcome(WHOLE_CATALOG_ID, is_known=True)])
    await ground.inbox.put([IntentOutcome(WHOLE_CATALOG_ID, is_known=False)])
    await ground.inbox.put([IntentOutcome(f"10.0.0.2 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    # A catalog rests for half a minute after a sweep.
    assert await asks(ground) == [(at, ["prod"]) for at in (10, FIRST + 10, SECOND, THIRD, LAST)]


async def left(ground: Ground, number: str, *named: TableIdentifier) -> None:
    """A commit that was answered in a way that does not tell whether it was made."""
    await ground.inbox.put([intent(number, *named)])
    await ground.inbox.put([IntentOutcome(number, is_known=False)])


async def test_of_commits_left_open_soon_one_after_the_other_one_is_asked_for(ground: Ground) -> None:
    await left(ground, "a")
    ground.clock.turn(SOON)
    await left(ground, "b")
    assert [at for at, _ in await asks(ground)] == [at - SOON for at in (FIRST, SECOND, THIRD, LAST)]


async def test_a_commit_left_open_later_than_that_has_times_of_its_own(ground: Ground) -> None:
    await left(ground, "a")
    ground.clock.turn(SOON + 1)
    await left(ground, "b")
    # So soon after the second one it would have been the first one's.
    ground.clock.turn(SOON)
    await left(ground, "c")
    late = 2 * SOON + 1
    times = sorted(at - late + after for at in (FIRST, SECOND, THIRD, LAST) for after in (0, SOON + 1))
    assert [at for at, _ in await asks(ground)] == times


async def test_a_commit_is_left_to_another_of_the_same_table_alone_and_not_to_one_that_may_be_closed(
    ground: Ground,
) -> None:
    await left(ground, "a", RETURNS)
    await ground.inbox.put([intent("b")])
    await left(ground, "c")
    await ground.inbox.put([IntentOutcome("b", is_known=True)])
    ground.clock.turn(FIRST)
    assert sorted(await looks(ground)) == ["prod:sales.orders", "prod:sales.returns"]


async def test_commits_that_are_answered_again_are_not_left_to_each_other(ground: Ground) -> None:
    await left(ground, "a")
    ground.clock.turn(SOON + 1)
    await left(ground, "b")
    await ground.inbox.put([IntentOutcome("a", is_known=False)])
    await ground.inbox.put([IntentOutcome("b", is_known=False)])
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_more_than_are_asked_for_at_once_are_asked_for_one_claim_after_the_other(ground: Ground) -> None:
    who = [table(f"t{number:04}") for number in range(MAX_CHECKS_PER_CLAIM + 1)]
    for name in who:
        await ground.inbox.put([intent(name.name, name)])
    ground.clock.turn(FIRST + 5)
    claimed = await ground.inbox.claim(PLENTY)
    assert claimed.next_due == ground.now
    assert len(await ground.known()) == MAX_CHECKS_PER_CLAIM
    await ground.inbox.claim(PLENTY)
    assert len(await ground.known()) == MAX_CHECKS_PER_CLAIM + 1
