"""What every inbox promises to those who put into it. A new adapter is one more line in `inboxes.ADAPTERS`."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from sfn.domain.events import Notification, PutResult
from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import (
    Capacity,
    DeadLettered,
    DeadLetterReason,
    Done,
    PendingChange,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    TableState,
)
from tests.promises.inboxes import TERMS, Ground, pointer, subjects, table

ORDERS, RETURNS = table("orders"), table("returns")


async def test_ten_thousand_hints_are_one_row_with_the_highest_floor(ground: Ground) -> None:
    hints = [
        Notification(ORDERS, "etl", f"e{number}", min_metadata_location=pointer(number)) for number in range(10_000)
    ]
    hints.append(hints.pop(5000))
    for start in range(0, len(hints), 1000):
        # The first of all has nothing before it.
        assert await ground.inbox.put(hints[start : start + 1000]) == PutResult(1000, 0, 1000 if start else 999)
    claim = await ground.claim()
    assert claim.pending == PendingChange(min_metadata_location=pointer(9999))
    assert await ground.claims() == []


async def test_what_cannot_be_compared_counts_as_the_floor_told_last(ground: Ground) -> None:
    for floor in ("s3://lake/orders/b.json", "s3://lake/orders/a.json"):
        await ground.inbox.put([Notification(ORDERS, min_metadata_location=floor)])
    assert (await ground.claim()).pending.min_metadata_location == "s3://lake/orders/a.json"


async def test_all_that_hints_said_is_wished_for(ground: Ground) -> None:
    await ground.inbox.put(
        [Notification(ORDERS, min_metadata_location=pointer(3)), Notification(ORDERS, drop=True, purge=True)]
    )
    await ground.inbox.put([Notification(ORDERS, renamed_to=RETURNS), Notification(ORDERS)])
    claim = await ground.claim()
    assert claim.pending == PendingChange(
        min_metadata_location=pointer(3), renamed_to=RETURNS, drop=True, purge=True, is_unspecific=True
    )


async def test_an_event_is_taken_once(ground: Ground) -> None:
    assert await ground.inbox.put([Notification(ORDERS, "etl", "e1")]) == PutResult(1, 0)
    await ground.settle(await ground.claim(), ground.done())
    assert await ground.inbox.put([Notification(ORDERS, "etl", "e1"), Notification(ORDERS, "etl", "e1")]) == PutResult(
        0, 2
    )
    assert await ground.claims() == []


async def test_an_event_is_taken_once_of_those_that_come_together(ground: Ground) -> None:
    hints = [Notification(ORDERS, "etl", "e1"), Notification(RETURNS, "etl", "e1"), Notification(RETURNS, "etl", "e2")]
    assert await ground.inbox.put(hints) == PutResult(2, 1)
    assert sorted(subjects(await ground.claims())) == ["prod:sales.orders", "prod:sales.returns"]


async def test_senders_number_their_events_each_for_itself(ground: Ground) -> None:
    assert await ground.inbox.put([Notification(ORDERS, "etl", "e1")]) == PutResult(1, 0)
    assert await ground.inbox.put([Notification(ORDERS, "polaris", "e1")]) == PutResult(1, 0, 1)


async def test_an_event_without_an_id_is_never_a_duplicate(ground: Ground) -> None:
    assert await ground.inbox.put([Notification(ORDERS, "etl"), Notification(ORDERS, "etl")]) == PutResult(2, 0, 1)
    assert await ground.inbox.put([Notification(ORDERS, "etl")]) == PutResult(1, 0, 1)


async def test_nothing_is_put_by_an_empty_put(ground: Ground) -> None:
    assert await ground.inbox.put([]) == PutResult(0, 0)
    assert await ground.claims() == []


async def test_many_who_put_at_once_are_each_told_their_own(ground: Ground) -> None:
    taken: dict[int, PutResult] = {}

    async def put(number: int) -> None:
        hints = [Notification(table(f"t{number}"), "etl", f"e{number // 2}"), Notification(table(f"u{number}"), "etl")]
        taken[number] = await ground.inbox.put(hints)

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(put, number)
    assert sorted(taken.values(), key=lambda one: one.accepted) == [PutResult(1, 1)] * 20 + [PutResult(2, 0)] * 20
    assert len(await ground.known()) == 60


async def test_a_hint_does_not_bring_a_retry_forward(ground: Ground) -> None:
    await ground.settled(ORDERS, Retry(ground.after(60), "its bucket is away"))
    await ground.hint(ORDERS)
    ground.clock.turn(59)
    assert await ground.claims() == []
    ground.clock.turn(1)
    assert (await ground.claim()).attempt == 2


async def test_what_was_given_up_long_ago_is_looked_at_with_the_first_that_is_told_of_it(ground: Ground) -> None:
    await ground.settled(
        ORDERS, DeadLettered(DeadLetterReason.PERMANENT, "it can't be", recheck_at=ground.after(86_400))
    )
    ground.clock.turn(TERMS.retry_cap.total_seconds())
    await ground.hint(ORDERS)
    await ground.settle(
        await ground.claim(), DeadLettered(DeadLetterReason.PERMANENT, "still", recheck_at=ground.after(86_400))
    )
    for _ in range(3):
        await ground.hint(ORDERS)
        assert await ground.claims() == []
        ground.clock.turn(TERMS.retry_cap.total_seconds() / 3)
    assert subjects(await ground.claims()) == ["prod:sales.orders"]


async def test_a_hint_brings_forward_what_waits_without_a_failure(ground: Ground) -> None:
    await ground.settled(ORDERS, Rescheduled(ground.after(60), "replicas lag"))
    await ground.hint(ORDERS)
    assert (await ground.claim()).attempt == 1


async def test_a_hint_does_not_put_off_what_is_overdue(ground: Ground) -> None:
    await ground.hint(ORDERS)
    ground.clock.turn(10)
    await ground.hint(RETURNS)
    ground.clock.turn(10)
    await ground.hint(ORDERS)
    assert subjects(await ground.claims()) == ["prod:sales.orders", "prod:sales.returns"]


async def test_no_hint_shortens_the_pause_between_publishes(ground: Ground) -> None:
    paused = PublishResult(not_before=ground.after(30))
    await ground.settled(ORDERS, Done(ground.after(3600), paused))
    await ground.hint(ORDERS)
    ground.clock.turn(29)
    assert await ground.claims() == []
    ground.clock.turn(1)
    assert subjects(await ground.claims()) == ["prod:sales.orders"]


BESIDE = [
    DeadLetterReason.HELD_DROP,
    DeadLetterReason.FOREIGN_CATALOG,
    DeadLetterReason.FOREIGN_FILE,
    DeadLetterReason.LOCATION_REFUSED,
]


@pytest.mark.parametrize("reason", BESIDE)
async def test_a_hint_brings_back_at_once_what_waits_for_others(ground: Ground, reason: DeadLetterReason) -> None:
    await ground.settled(ORDERS, DeadLettered(reason, "somebody must act"))
    assert await ground.claims() == []
    await ground.hint(ORDERS)
    assert subjects(await ground.claims()) == ["prod:sales.orders"]


async def test_a_hint_brings_back_a_dead_row_after_the_longest_pause_with_its_attempts(ground: Ground) -> None:
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.EXHAUSTED, "too often"))
    await ground.hint(ORDERS)
    ground.clock.turn(TERMS.retry_cap.total_seconds() - 1)
    await ground.hint(ORDERS)
    assert await ground.claims() == []
    ground.clock.turn(1)
    assert (await ground.claim()).attempt == 2


async def test_a_held_hint_holds_its_table(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, hold_drops=True)])
    claim = await ground.claim()
    assert claim.table_state.on_hold
    assert claim.pending == PendingChange()


async def test_a_held_hint_holds_a_table_that_is_just_being_published(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    await ground.inbox.put([Notification(ORDERS, hold_drops=True)])
    await ground.settle(claim, Done(ground.after(3600), PublishResult(TableState(has_settled=True))))
    assert (await ground.claim()).table_state.on_hold


async def test_a_publish_that_let_go_of_a_table_is_believed(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, hold_drops=True)])
    await ground.settle(await ground.claim(), Done(ground.now, PublishResult(TableState(has_settled=True))))
    assert not (await ground.claim()).table_state.on_hold


async def test_a_catalog_is_a_row_as_a_table_is(ground: Ground) -> None:
    await ground.inbox.put([Notification(CatalogName("prod")), Notification(CatalogName("prod"))])
    claim = await ground.claim()
    assert claim.subject == CatalogName("prod")
    assert await ground.known() == []


async def test_the_bell_rings_for_a_put_and_for_a_settle(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    with anyio.move_on_after(0.05) as silence:
        await ground.inbox.wait(None)
    assert silence.cancelled_caught
    with anyio.fail_after(5):
        await ground.hint(RETURNS)
        await ground.inbox.wait(None)
        await ground.claims()
        await ground.settle(claim, Returned(ground.now, "a stop"))
        await ground.inbox.wait(None)


async def test_a_hint_whose_row_was_due_already_rings_no_bell(ground: Ground) -> None:
    await ground.hint(ORDERS)
    await ground.claims(Capacity(total=0, live=0, sweeps=0))
    await ground.hint(ORDERS)
    with anyio.move_on_after(0.05) as silence:
        await ground.inbox.wait(None)
    assert silence.cancelled_caught


async def test_what_is_put_while_a_claim_runs_still_rings(ground: Ground) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ground.claims)
        await anyio.lowlevel.checkpoint()
        await ground.hint(ORDERS)
    with anyio.fail_after(5):
        await ground.inbox.wait(None)


async def test_a_caller_that_goes_away_takes_no_ring_with_it(ground: Ground) -> None:
    await ground.claims()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ground.hint, ORDERS)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await ground.hint(RETURNS)
    with anyio.fail_after(5):
        await ground.inbox.wait(None)


async def test_a_wait_ends_at_its_time(ground: Ground) -> None:
    await ground.claims()
    with anyio.fail_after(5):
        await ground.inbox.wait(ground.now + timedelta(seconds=0.01))
        await ground.inbox.wait(ground.now - timedelta(seconds=1))
