"""Puts, results and status of every inbox."""

from __future__ import annotations

import anyio
import pytest

from sfn.domain.events import Notification, PutResult
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    Outcome,
    PendingChange,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    SweepCompleted,
    TableState,
    Wakeup,
)
from sfn.inbox.model import FoldResult, LastEvent, LastResult
from tests.promises.inboxes import DAY, PLENTY, TERMS, Ground, pointer, subjects, table

# ── Puts


ORDERS, RETURNS = table("orders"), table("returns")


async def test_ten_thousand_notifications_are_one_job_with_the_newest_location(ground: Ground) -> None:
    hints = [
        Notification(ORDERS, "etl", f"e{number}", min_metadata_location=pointer(number)) for number in range(10_000)
    ]
    hints.append(hints.pop(5000))
    for start in range(0, len(hints), 1000):
        assert await ground.inbox.put(hints[start : start + 1000]) == PutResult(1000, 0)
    claim = await ground.claim()
    assert claim.pending == PendingChange(min_metadata_location=pointer(9999))
    assert await ground.claims() == []


async def test_last_location_wins_if_locations_cannot_be_compared(ground: Ground) -> None:
    for floor in ("s3://lake/orders/b.json", "s3://lake/orders/a.json"):
        await ground.inbox.put([Notification(ORDERS, min_metadata_location=floor)])
    assert (await ground.claim()).pending.min_metadata_location == "s3://lake/orders/a.json"


async def test_notifications_merge_into_one_pending_change(ground: Ground) -> None:
    await ground.inbox.put(
        [Notification(ORDERS, min_metadata_location=pointer(3)), Notification(ORDERS, drop=True, purge=True)]
    )
    await ground.inbox.put([Notification(ORDERS, renamed_to=RETURNS), Notification(ORDERS)])
    claim = await ground.claim()
    assert claim.pending == PendingChange(
        min_metadata_location=pointer(3), renamed_to=RETURNS, drop=True, purge=True, is_unspecific=True
    )


async def test_event_is_accepted_once(ground: Ground) -> None:
    assert await ground.inbox.put([Notification(ORDERS, "etl", "e1")]) == PutResult(1, 0)
    await ground.settle(await ground.claim(), ground.done())
    assert await ground.inbox.put([Notification(ORDERS, "etl", "e1"), Notification(ORDERS, "etl", "e1")]) == PutResult(
        0, 2
    )
    assert await ground.claims() == []


async def test_repeated_event_in_one_put_is_accepted_once(ground: Ground) -> None:
    hints = [Notification(ORDERS, "etl", "e1"), Notification(RETURNS, "etl", "e1"), Notification(RETURNS, "etl", "e2")]
    assert await ground.inbox.put(hints) == PutResult(2, 1)
    assert sorted(subjects(await ground.claims())) == ["prod:sales.orders", "prod:sales.returns"]


async def test_event_ids_are_unique_per_sender(ground: Ground) -> None:
    assert await ground.inbox.put([Notification(ORDERS, "etl", "e1")]) == PutResult(1, 0)
    assert await ground.inbox.put([Notification(ORDERS, "polaris", "e1")]) == PutResult(1, 0)


async def test_event_without_an_id_is_never_a_duplicate(ground: Ground) -> None:
    assert await ground.inbox.put([Notification(ORDERS, "etl"), Notification(ORDERS, "etl")]) == PutResult(2, 0)
    assert await ground.inbox.put([Notification(ORDERS, "etl")]) == PutResult(1, 0)


async def test_empty_put_changes_nothing(ground: Ground) -> None:
    assert await ground.inbox.put([]) == PutResult(0, 0)
    assert await ground.claims() == []


async def test_concurrent_puts_get_their_own_results(ground: Ground) -> None:
    taken: dict[int, PutResult] = {}

    async def put(number: int) -> None:
        hints = [Notification(table(f"t{number}"), "etl", f"e{number // 2}"), Notification(table(f"u{number}"), "etl")]
        taken[number] = await ground.inbox.put(hints)

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(put, number)
    assert sorted(taken.values(), key=lambda one: one.accepted) == [PutResult(1, 1)] * 20 + [PutResult(2, 0)] * 20
    assert len(await ground.known()) == 60


async def test_notification_does_not_bring_a_retry_forward(ground: Ground) -> None:
    await ground.settled(ORDERS, Retry(ground.after(60), "its bucket is away"))
    await ground.hint(ORDERS)
    ground.clock.turn(59)
    assert await ground.claims() == []
    ground.clock.turn(1)
    assert (await ground.claim()).attempt == 2


async def test_first_notification_retries_an_old_dead_job_at_once(ground: Ground) -> None:
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


async def test_notification_brings_a_rescheduled_job_forward(ground: Ground) -> None:
    await ground.settled(ORDERS, Rescheduled(ground.after(60), "replicas lag"))
    await ground.hint(ORDERS)
    assert (await ground.claim()).attempt == 1


async def test_notification_does_not_delay_an_overdue_job(ground: Ground) -> None:
    await ground.hint(ORDERS)
    ground.clock.turn(10)
    await ground.hint(RETURNS)
    ground.clock.turn(10)
    await ground.hint(ORDERS)
    assert subjects(await ground.claims()) == ["prod:sales.orders", "prod:sales.returns"]


async def test_notification_does_not_shorten_the_pause_between_publishes(ground: Ground) -> None:
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
async def test_notification_retries_a_blocked_table_at_once(ground: Ground, reason: DeadLetterReason) -> None:
    await ground.settled(ORDERS, DeadLettered(reason, "somebody must act"))
    assert await ground.claims() == []
    await ground.hint(ORDERS)
    assert subjects(await ground.claims()) == ["prod:sales.orders"]


async def test_notification_retries_a_dead_job_after_the_longest_backoff(ground: Ground) -> None:
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.EXHAUSTED, "too often"))
    await ground.hint(ORDERS)
    ground.clock.turn(TERMS.retry_cap.total_seconds() - 1)
    await ground.hint(ORDERS)
    assert await ground.claims() == []
    ground.clock.turn(1)
    assert (await ground.claim()).attempt == 2


async def test_notification_can_hold_its_table(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, hold_drops=True)])
    claim = await ground.claim()
    assert claim.table_state.on_hold
    assert claim.pending == PendingChange()


async def test_notification_can_hold_a_table_during_its_publish(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    await ground.inbox.put([Notification(ORDERS, hold_drops=True)])
    await ground.inbox.fold()
    await ground.settle(claim, Done(ground.after(3600), PublishResult(TableState(has_settled=True))))
    assert (await ground.claim()).table_state.on_hold


async def test_publish_can_end_a_hold(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, hold_drops=True)])
    await ground.settle(await ground.claim(), Done(ground.now, PublishResult(TableState(has_settled=True))))
    assert not (await ground.claim()).table_state.on_hold


async def test_notifications_of_a_catalog_are_one_job(ground: Ground) -> None:
    await ground.inbox.put([Notification(CatalogName("prod")), Notification(CatalogName("prod"))])
    claim = await ground.claim()
    assert claim.subject == CatalogName("prod")
    assert await ground.known() == []


async def test_put_and_settle_end_the_wait_of_a_claim(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    with anyio.move_on_after(0.05) as silence:
        await ground.waiting_claim()
    assert silence.cancelled_caught
    with anyio.fail_after(5):
        assert await ground.claimed_after(ground.hint(RETURNS)) == ["prod:sales.returns"]
        assert await ground.claimed_after(ground.settle(claim, Returned(ground.now, "a stop"))) == ["prod:sales.orders"]


async def test_what_an_operator_makes_due_ends_the_wait_of_a_claim(ground: Ground) -> None:
    with anyio.fail_after(5):
        sweep = ground.inbox.reconcile([Notification(CatalogName("prod"))], ground.order())
        assert await ground.claimed_after(sweep) == ["prod"]


async def test_put_before_a_waiting_claim_is_claimed_at_once(ground: Ground) -> None:
    await ground.claims()
    await ground.hint(ORDERS)
    with anyio.fail_after(5):
        assert await ground.waiting_claim() == ["prod:sales.orders"]


async def test_cancelled_put_does_not_lose_a_wakeup(ground: Ground) -> None:
    async def put_twice() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ground.hint, ORDERS)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await ground.hint(RETURNS)

    with anyio.fail_after(5):
        first = await ground.claimed_after(put_twice())
    assert "prod:sales.returns" in [*first, *subjects(await ground.claims())]


async def test_waiting_claim_ends_at_its_deadline(ground: Ground) -> None:
    with anyio.fail_after(5):
        assert await ground.waiting_claim(0.01) == []
        assert await ground.waiting_claim(-1) == []


async def test_cancelled_claim_gives_its_jobs_back(ground: Ground) -> None:
    """Whenever it is cancelled: before, during or after the transaction that leases a job; no outcome is recorded."""
    for number in range(30):
        found: list[LeasedJob] = []

        async def claim(found: list[LeasedJob] = found) -> None:
            found.extend((await ground.inbox.claim(PLENTY, (), ground.after(DAY))).jobs)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(claim)
            await anyio.sleep(0.002)
            tasks.start_soon(ground.hint, ORDERS)
            await anyio.sleep(number * 0.0002)
            tasks.cancel_scope.cancel()
        if not found:
            await ground.hint(ORDERS)
        with anyio.fail_after(20):
            while not found:
                await claim()
        assert [(str(claim.subject), claim.attempt) for claim in found] == [("prod:sales.orders", 1)]
        standing = await ground.inbox.table_status(ORDERS)
        assert standing is not None
        assert standing.job.outcomes == number
        await ground.settle(found[0], ground.done())


# ── Reported results


ORDERS, RETURNS = table("orders"), table("returns")
LEASE = TERMS.lease.total_seconds()


async def coalesced(ground: Ground) -> int:
    """One more hint of a table: whether a look that was to come anyway answers it."""
    await ground.hint(ORDERS)
    folded = await ground.inbox.fold()
    assert folded.records == 1
    return folded.coalesced


async def test_notification_coalesces_with_a_waiting_one(ground: Ground) -> None:
    await ground.hint(ORDERS, RETURNS, ORDERS)
    assert await ground.inbox.fold() == FoldResult(3, 1)
    assert await coalesced(ground) == 1


async def test_claim_reports_what_coalesced_in_its_fold(ground: Ground) -> None:
    await ground.hint(ORDERS, RETURNS, ORDERS)
    assert (await ground.inbox.claim(PLENTY)).fold == FoldResult(3, 1)
    assert (await ground.inbox.claim(PLENTY)).fold == FoldResult()


async def test_duplicate_does_not_coalesce(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, "etl", "e1")])
    assert await ground.inbox.put([Notification(ORDERS, "etl", "e1")]) == PutResult(0, 1)
    assert await ground.inbox.fold() == FoldResult(1, 0)


async def test_notification_during_a_check_gets_its_own_check(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    assert [await coalesced(ground) for _ in range(3)] == [0, 1, 1]
    await ground.settle(claim, ground.done())
    assert await coalesced(ground) == 1
    await ground.settle(await ground.claim(), ground.done())
    assert await coalesced(ground) == 0


@pytest.mark.parametrize("outcome", ["done", "later", "dead", "given up"])
async def test_notification_after_a_finished_check_does_not_coalesce(ground: Ground, outcome: str) -> None:
    outcomes: dict[str, Outcome] = {
        "done": ground.done(),
        "later": Rescheduled(ground.after(60), "replicas lag"),
        "dead": DeadLettered(DeadLetterReason.PERMANENT, "it can't be", recheck_at=ground.after(60)),
        "given up": DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"),
    }
    await ground.settled(ORDERS, outcomes[outcome])
    assert await coalesced(ground) == 0


@pytest.mark.parametrize("outcome", [Retry, Returned])
async def test_notification_coalesces_with_a_failed_or_returned_job(
    ground: Ground, outcome: type[Retry | Returned]
) -> None:
    await ground.settled(ORDERS, outcome(ground.after(60), "its store is away"))
    assert await coalesced(ground) == 1


async def test_every_expired_lease_is_reported_once(ground: Ground) -> None:
    await ground.hint(ORDERS, RETURNS)
    first, second = await ground.claims()
    ground.clock.turn(LEASE / 2)
    assert await ground.inbox.renew([second]) == [second]
    ground.clock.turn(LEASE / 2)
    claimed = await ground.inbox.claim(PLENTY)
    assert ([claim.subject for claim in claimed.jobs], claimed.expired_leases) == ([first.subject], 1)
    assert (await ground.inbox.claim(PLENTY)).expired_leases == 0
    await ground.settle(second, Done(ground.after(60)))
    ground.clock.turn(LEASE)
    assert (await ground.inbox.claim(PLENTY)).expired_leases == 1


async def test_catalog_status_has_the_time_of_the_next_sweep(ground: Ground) -> None:
    assert await ground.inbox.table_status(CatalogName("few")) is None
    await ground.inbox.reconcile([Notification(CatalogName("few"))], ground.order())
    claim = await ground.claim()
    await ground.settle(claim, SweepCompleted(ground.after(900), ground.now, within_limit=True))
    await ground.inbox.reconcile([Notification(CatalogName("few"))], ground.order())
    standing = await ground.inbox.table_status(CatalogName("few"))
    assert standing is not None
    assert (standing.job.state, standing.job.due_at) == ("queued", ground.after(30))


# ── Status


STOCK = table("stock")


async def test_table_status_has_the_event_the_pending_change_and_the_result(ground: Ground) -> None:
    assert await ground.inbox.table_status(ORDERS) is None
    await ground.inbox.put(
        [Notification(ORDERS, "etl", "e1", min_metadata_location=pointer(2), body=b'{"name": "orders"}')]
    )
    told = ground.now
    standing = await ground.inbox.table_status(ORDERS)
    assert standing is not None
    found = (standing.job.state, standing.has_unprocessed, standing.job.pending, standing.job.last_result)
    assert found == ("queued", True, PendingChange(min_metadata_location=pointer(2)), None)
    assert standing.last_event == LastEvent("etl", "e1", told, b'{"name": "orders"}')
    claim = await ground.claim()
    ground.clock.turn(5)
    await ground.settle(claim, Retry(ground.after(9), "the store hangs"))
    standing = await ground.inbox.table_status(ORDERS)
    assert standing is not None
    assert standing.job.last_result == LastResult("retry", "the store hangs", ground.now)
    assert (standing.job.attempt, standing.job.failing_since, standing.job.due_at) == (1, told, ground.after(9))


async def test_wakeups_do_not_hide_the_last_event(ground: Ground) -> None:
    async def last(name: TableIdentifier) -> LastEvent | None:
        standing = await ground.inbox.table_status(name)
        assert standing is not None
        return standing.last_event

    told = LastEvent("etl", "e1", ground.now, b"one")
    await ground.inbox.put([Notification(ORDERS, "etl", "e1", body=b"one")])
    await ground.settle(await ground.claim(), ground.done())
    for _ in range(2):
        await ground.hint(RETURNS)
        returns = next(claim for claim in await ground.claims() if claim.subject == RETURNS)
        await ground.settle(returns, Done(ground.after(60), PublishResult(wakeups=(Wakeup(ORDERS), Wakeup(STOCK)))))
        assert await last(ORDERS) == told
        assert await last(STOCK) is None
    await ground.inbox.put([Notification(ORDERS, "etl", "e2", body=b"two")])
    assert await last(ORDERS) == LastEvent("etl", "e2", ground.now, b"two")


async def test_successful_last_result_has_no_reason(ground: Ground) -> None:
    await ground.settled(ORDERS, ground.done())
    standing = await ground.inbox.table_status(ORDERS)
    assert standing is not None
    assert (standing.job.last_result, standing.has_unprocessed) == (LastResult("done", None, ground.now), False)
    assert standing.job.table_state.live is not None


async def test_every_table_is_counted_in_one_state(ground: Ground) -> None:
    async def counted() -> dict[str, int]:
        figures = await ground.inbox.stats()
        return {state: count for (catalog, state), count in figures.tables.items() if catalog == "prod" and count}

    names = [table(name) for name in ("a", "b", "c", "d", "e", "f")]
    await ground.inbox.put([Notification(CatalogName("prod"))])
    await ground.hint(*names)
    assert await counted() == {"due": 6}
    sweep, a, b, c, d, e, _ = sorted(await ground.claims(), key=lambda claim: str(claim.subject))
    assert await counted() == {"leased": 6}
    await ground.settle(sweep, Retry(ground.after(9), ""))
    await ground.settle(a, ground.done())
    await ground.settle(b, Retry(ground.after(9), ""))
    await ground.settle(c, DeadLettered(DeadLetterReason.HELD_DROP, ""))
    await ground.settle(d, DeadLettered(DeadLetterReason.POISON, ""))
    await ground.settle(e, Done(ground.now, forget=True))
    assert await counted() == {"scheduled": 1, "retrying": 1, "held": 1, "dead": 1, "leased": 1}
    figures = await ground.inbox.stats()
    assert figures.dead_letters == {("prod", "held-drop"): 1, ("prod", "poison"): 1}
