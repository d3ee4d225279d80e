"""Intents of every inbox."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from sfn.domain.events import IntentOutcome, Notification, PutResult
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import Done, Retry
from sfn.inbox import intents
from sfn.inbox.intents import CHECK_DELAYS, MAX_CHECKS_PER_CLAIM, MAX_UNKNOWN_TABLES, MERGE_WINDOW, WHOLE_CATALOG_ID
from sfn.inbox.model import OpenIntentStats
from tests.promises.inboxes import (
    DAY,
    FIRST,
    LAST,
    ORDERS,
    PLENTY,
    RETURNS,
    SECOND,
    STOCK,
    THIRD,
    Ground,
    asks,
    flood,
    intent,
    looks,
    seen,
    table,
)

# ── Single intents


PROD = CatalogName("prod")


async def test_open_intent_is_checked_after_30_seconds_2_10_and_35_minutes(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    who = ["prod:sales.orders"]
    assert await asks(ground, 5 * DAY) == [(30, who), (120, who), (600, who), (2100, who)]


async def test_intent_is_not_checked_early(ground: Ground) -> None:
    assert await ground.inbox.put([intent("a")]) == PutResult(0, 0)
    assert (await ground.inbox.claim(PLENTY)).next_due == ground.after(FIRST)
    ground.clock.turn(FIRST - 1)
    assert await looks(ground) == []
    ground.clock.turn(1)
    assert await looks(ground) == ["prod:sales.orders"]
    ground.clock.turn(SECOND - FIRST - 1)
    assert await looks(ground) == []


async def test_closed_intent_is_not_checked(ground: Ground) -> None:
    await ground.inbox.put([intent("a", ORDERS, RETURNS)])
    assert await ground.inbox.put([IntentOutcome("a", is_known=True)]) == PutResult(0, 0)
    assert await asks(ground) == []


@pytest.mark.parametrize("folded", [True, False])
async def test_success_of_another_commit_leaves_an_intent_open(ground: Ground, *, folded: bool) -> None:
    await ground.inbox.put([intent("a")])
    await ground.inbox.put([intent("b")])
    if folded:
        await ground.inbox.fold()
    await ground.inbox.put([IntentOutcome("b", is_known=True), Notification(ORDERS, "gateway")])
    assert await looks(ground) == ["prod:sales.orders"]
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_check_without_changes_leaves_an_intent_open(ground: Ground) -> None:
    await ground.inbox.put([intent("a"), Notification(ORDERS)])
    await ground.settle(await ground.claim(), Done(ground.after(10 * DAY), forget=True))
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_unknown_outcome_restarts_the_checks(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    ground.clock.turn(SECOND)
    assert await looks(ground) == ["prod:sales.orders"]
    await ground.inbox.put([IntentOutcome("a", is_known=False)])
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_unresolved_intent_cannot_be_closed(ground: Ground) -> None:
    """Another one may have been left to it."""
    await ground.inbox.put([intent("a")])
    await ground.inbox.put([IntentOutcome("a", is_known=False)])
    await ground.inbox.put([IntentOutcome("a", is_known=True)])
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_intent_of_several_tables_checks_each_table(ground: Ground) -> None:
    await ground.inbox.put([intent("a", ORDERS, RETURNS, ORDERS)])
    who = ["prod:sales.orders", "prod:sales.returns"]
    assert [(at, sorted(asked)) for at, asked in await asks(ground)] == [
        (at, who) for at in (FIRST, SECOND, THIRD, LAST)
    ]


async def test_intent_of_a_catalog_causes_a_sweep(ground: Ground) -> None:
    await ground.inbox.put([intent("a", PROD)])
    assert [asked for _, asked in await asks(ground)] == [["prod"]] * len(CHECK_DELAYS)


async def test_intents_of_a_table_that_are_due_together_cause_one_check(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    ground.clock.turn(1)
    await ground.inbox.put([intent("b")])
    ground.clock.turn(FIRST)
    claim = await ground.claim()
    assert claim.pending.is_unspecific
    standing = await ground.inbox.table_status(ORDERS)
    assert standing is not None
    # A check is no event.
    assert standing.last_event is None
    await ground.settle(claim, Done(ground.after(10 * DAY)))
    assert await ground.claims() == []
    # Each still has a schedule of its own.
    assert [at for at, _ in await asks(ground)] == [
        at - FIRST - late for at in (SECOND, THIRD, LAST) for late in (1, 0)
    ]


async def test_late_claim_checks_once_and_continues_the_schedule(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    ground.clock.turn(THIRD + 1)
    assert await looks(ground) == ["prod:sales.orders"]
    assert [at for at, _ in await asks(ground)] == [LAST - THIRD - 1]


async def test_claim_after_the_last_check_time_checks_once(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    ground.clock.turn(2 * DAY)
    assert await asks(ground) == [(0, ["prod:sales.orders"])]


async def test_intent_does_not_bring_a_retry_forward(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    await ground.settled(ORDERS, Retry(ground.after(FIRST + 40), "its bucket is away"))
    ground.clock.turn(FIRST)
    assert await ground.claims() == []
    ground.clock.turn(40)
    assert (await ground.claim()).attempt == 2


async def test_repeated_intent_id_is_one_intent(ground: Ground) -> None:
    await ground.inbox.put([intent("a"), intent("a")])
    ground.clock.turn(FIRST / 2)
    await ground.inbox.put([intent("a")])
    assert [at for at, _ in await asks(ground)] == [at - FIRST / 2 for at in (FIRST, SECOND, THIRD, LAST)]


@pytest.mark.parametrize("known", [True, False])
async def test_outcome_of_an_unknown_intent_changes_nothing(ground: Ground, known: bool) -> None:
    await ground.inbox.put([intent("a")])
    assert await ground.inbox.put(
        [IntentOutcome("b", is_known=known), IntentOutcome(WHOLE_CATALOG_ID, is_known=known)]
    ) == PutResult(0, 0)
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_messages_of_one_put_are_applied_in_order(ground: Ground) -> None:
    await ground.inbox.put(
        [intent("a"), IntentOutcome("a", is_known=True), intent("b", STOCK), IntentOutcome("b", is_known=False)]
    )
    ground.clock.turn(FIRST)
    assert await looks(ground) == ["prod:sales.stock"]


async def test_intent_does_not_wake_the_worker(ground: Ground) -> None:
    """It is noted while a commit waits for it, and mostly closed before anybody would have to ask."""
    for note in (intent("a"), IntentOutcome("a", is_known=False), intent("b"), IntentOutcome("b", is_known=True)):
        await ground.inbox.claim(PLENTY)
        with anyio.move_on_after(0.1) as sleep:
            await ground.claimed_after(ground.inbox.put([note]))
        assert sleep.cancelled_caught


async def test_claim_waits_until_a_check_is_due(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intents, "CHECK_DELAYS", (timedelta(seconds=0.3), *CHECK_DELAYS[1:]))
    await ground.inbox.put([intent("a")])

    async def let_time_pass() -> None:
        await anyio.sleep(0.1)
        ground.clock.turn(0.3)

    with anyio.fail_after(5):
        assert await ground.claimed_after(let_time_pass()) == ["prod:sales.orders"]


async def test_check_time_too_far_in_the_future_is_due_at_once(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    ground.clock.turn(-LAST - 1)
    who = ["prod:sales.orders"]
    assert await asks(ground) == [(0, who), *((at, who) for at in (FIRST, SECOND, THIRD, LAST))]


async def test_intent_of_an_unconfigured_catalog_is_checked(ground: Ground) -> None:
    gone = table("orders", "gone")
    await ground.inbox.put([intent("a", gone)])
    assert [asked for _, asked in await asks(ground)] == [["gone:sales.orders"]] * len(CHECK_DELAYS)


async def test_open_intents_are_in_the_statistics_and_the_table_status(ground: Ground) -> None:
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


async def test_concurrent_commits_have_one_intent_each(ground: Ground) -> None:
    async def commit(number: int) -> None:
        await ground.inbox.put([intent(f"{number}", table(f"t{number}"))])
        if number % 2:
            await ground.inbox.put([IntentOutcome(f"{number}", is_known=True)])

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(commit, number)
    ground.clock.turn(FIRST)
    assert sorted(await looks(ground)) == sorted(f"prod:sales.t{number}" for number in range(0, 40, 2))


async def fold_all(ground: Ground) -> None:
    """Apply all that was accepted."""
    while (await ground.inbox.fold()).has_more:
        pass


async def test_peer_over_its_limit_gets_one_intent_for_the_whole_catalog(ground: Ground) -> None:
    await ground.inbox.put([*flood(MAX_UNKNOWN_TABLES), intent("too many", STOCK), intent("again", RETURNS)])
    await fold_all(ground)
    await ground.inbox.put([IntentOutcome("too many", is_known=True), IntentOutcome("again", is_known=True)])
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    assert [asked for _, asked in await asks(ground)] == [["prod"]] * len(CHECK_DELAYS)


async def test_repeated_intent_id_does_not_exceed_the_limit(ground: Ground) -> None:
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    assert await asks(ground) == []


async def test_closed_intent_makes_room_for_its_peer(ground: Ground) -> None:
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    await ground.inbox.put([IntentOutcome("10.0.0.1 0", is_known=True)])
    await ground.inbox.put([intent("a", STOCK)])
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    assert [asked for _, asked in await asks(ground)] == [["prod:sales.stock"]] * len(CHECK_DELAYS)


async def test_known_tables_other_peers_and_whole_catalogs_do_not_count(ground: Ground) -> None:
    await seen(ground, ORDERS)
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    few = CatalogName("few")
    await ground.inbox.put([intent("a"), intent("b", STOCK, peer="10.0.0.2"), intent("c", few)])
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    ground.clock.turn(FIRST)
    assert sorted(await looks(ground)) == ["few", "prod:sales.orders", "prod:sales.stock"]


async def test_extended_catalog_intent_does_not_delay_its_next_check(ground: Ground) -> None:
    await ground.inbox.put([*flood(MAX_UNKNOWN_TABLES), intent("too many", STOCK)])
    # Intents whose answers come before the fold count as none.
    await fold_all(ground)
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES, "10.0.0.2"))
    ground.clock.turn(FIRST - 10)
    await ground.inbox.put([intent("more", STOCK, peer="10.0.0.2")])
    await fold_all(ground)
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


async def test_unresolved_commits_within_the_merge_window_share_one_intent(ground: Ground) -> None:
    await left(ground, "a")
    ground.clock.turn(SOON)
    await left(ground, "b")
    assert [at for at, _ in await asks(ground)] == [at - SOON for at in (FIRST, SECOND, THIRD, LAST)]


async def test_unresolved_commit_after_the_merge_window_has_its_own_checks(ground: Ground) -> None:
    await left(ground, "a")
    ground.clock.turn(SOON + 1)
    await left(ground, "b")
    # So soon after the second one it would have been the first one's.
    ground.clock.turn(SOON)
    await left(ground, "c")
    late = 2 * SOON + 1
    times = sorted(at - late + after for at in (FIRST, SECOND, THIRD, LAST) for after in (0, SOON + 1))
    assert [at for at, _ in await asks(ground)] == times


async def test_commit_merges_only_with_an_unresolved_one_of_the_same_table(ground: Ground) -> None:
    await left(ground, "a", RETURNS)
    await ground.inbox.put([intent("b")])
    await left(ground, "c")
    await ground.inbox.put([IntentOutcome("b", is_known=True)])
    ground.clock.turn(FIRST)
    assert sorted(await looks(ground)) == ["prod:sales.orders", "prod:sales.returns"]


async def test_commits_with_repeated_outcomes_do_not_merge(ground: Ground) -> None:
    await left(ground, "a")
    ground.clock.turn(SOON + 1)
    await left(ground, "b")
    await ground.inbox.put([IntentOutcome("a", is_known=False)])
    await ground.inbox.put([IntentOutcome("b", is_known=False)])
    assert [at for at, _ in await asks(ground)] == [FIRST, SECOND, THIRD, LAST]


async def test_checks_beyond_the_batch_size_follow_in_the_next_claim(ground: Ground) -> None:
    who = [table(f"t{number:04}") for number in range(MAX_CHECKS_PER_CLAIM + 1)]
    for name in who:
        await ground.inbox.put([intent(name.name, name)])
    ground.clock.turn(FIRST + 5)
    claimed = await ground.inbox.claim(PLENTY)
    assert claimed.next_due is not None
    assert claimed.next_due <= ground.now
    assert len(await ground.known()) == MAX_CHECKS_PER_CLAIM
    await ground.inbox.claim(PLENTY)
    assert len(await ground.known()) == MAX_CHECKS_PER_CLAIM + 1
