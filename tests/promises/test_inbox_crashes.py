"""What an inbox promises about rows whose processes did not come back from them."""

from __future__ import annotations

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import ConcurrencyGroup, DeadLettered, DeadLetterReason, Done, Priority, Retry
from sfn.inbox.model import NewDeadLetter
from tests.promises.inboxes import PLENTY, TERMS, Ground, pointer, table

ORDERS, RETURNS = table("orders"), table("returns")
LEASE = TERMS.lease.total_seconds()
HOUR = 3600
LIVE = ConcurrencyGroup("prod", "", Priority.LIVE)


async def test_a_row_that_five_processes_did_not_come_back_from_is_poison(ground: Ground) -> None:
    await ground.hint(ORDERS)
    for attempt in range(1, TERMS.max_crashes + 1):
        assert (await ground.claim()).attempt == attempt
        ground.clock.turn(LEASE)
    assert await ground.claims() == []
    assert await ground.open_letters() == [("prod:sales.orders", "poison")]
    (letter,) = await ground.letters()
    assert letter.attempts == TERMS.max_crashes


async def test_poison_is_told_once_and_looked_at_again(ground: Ground) -> None:
    """It may only have been beside what ended the process: what was acknowledged must not be stranded."""
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(3))])
    told: list[NewDeadLetter] = []
    for _ in range(TERMS.max_crashes):
        told += (await ground.inbox.claim(PLENTY)).poison_letters
        ground.clock.turn(LEASE)
    told += (await ground.inbox.claim(PLENTY)).poison_letters
    told += (await ground.inbox.claim(PLENTY)).poison_letters
    assert [(letter.subject, letter.reason) for letter in told] == [(ORDERS, DeadLetterReason.POISON)]
    ground.clock.turn(TERMS.poison_pause.total_seconds())
    claim = await ground.claim()
    assert (claim.pending.min_metadata_location, claim.group.priority) == (pointer(3), Priority.LIVE)
    await ground.settle(claim, Done(ground.after(HOUR)))
    assert await ground.open_letters() == []


async def test_crashes_count_in_a_row_only(ground: Ground) -> None:
    await ground.hint(ORDERS)
    for _ in range(3):
        for _ in range(TERMS.max_crashes - 1):
            await ground.claim()
            ground.clock.turn(LEASE)
        await ground.settle(await ground.claim(), Retry(ground.now, "it failed"))
    assert await ground.open_letters() == []


async def test_a_catalog_is_never_poison_but_paused(ground: Ground) -> None:
    """Were it dead, nobody would look at its tables any more."""
    await ground.inbox.put([Notification(CatalogName("prod"))])
    for _ in range(TERMS.max_crashes):
        await ground.claim()
        ground.clock.turn(LEASE)
    assert await ground.claims() == []
    assert await ground.open_letters() == []
    ground.clock.turn(TERMS.retry_cap.total_seconds())
    assert (await ground.claim()).subject == CatalogName("prod")


async def test_a_crash_of_a_row_that_was_dead_before_opens_no_letter_anew(ground: Ground) -> None:
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"))
    await ground.hint(ORDERS)
    await ground.claim()
    ground.clock.turn(LEASE)
    await ground.claim()
    assert await ground.open_letters() == [("prod:sales.orders", "held-drop")]
