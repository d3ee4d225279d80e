"""What every inbox promises of many commits that pass through a gateway: they have no more room than they need."""

from __future__ import annotations

import anyio

from sfn.domain.events import IntentOutcome
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.inbox.intents import CHECK_DELAYS, MAX_CHECKS_PER_CLAIM, MAX_UNKNOWN_TABLES, MERGE_WINDOW, WHOLE_CATALOG_ID
from tests.promises.commits import (
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
