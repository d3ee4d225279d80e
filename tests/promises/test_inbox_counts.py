"""What an inbox promises to tell of itself: which hints needed no look of their own, which leases ran out, when a
catalog is swept.
"""

from __future__ import annotations

import pytest

from sfn.domain.events import Notification, PutResult
from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, Outcome, Rescheduled, Retry, Returned, SweepCompleted
from tests.promises.inboxes import PLENTY, TERMS, Ground, table

ORDERS, RETURNS = table("orders"), table("returns")
LEASE = TERMS.lease.total_seconds()


async def superseded(ground: Ground) -> int:
    """One more hint of a table: whether a look that was to come anyway answers it."""
    return (await ground.inbox.put([Notification(ORDERS)])).coalesced


async def test_a_hint_joins_one_that_waits(ground: Ground) -> None:
    assert await ground.inbox.put([Notification(ORDERS), Notification(RETURNS), Notification(ORDERS)]) == PutResult(
        3, 0, 1
    )
    assert await ground.inbox.put([Notification(ORDERS)]) == PutResult(1, 0, 1)


async def test_a_duplicate_joins_nothing(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, "etl", "e1")])
    assert await ground.inbox.put([Notification(ORDERS, "etl", "e1")]) == PutResult(0, 1, 0)


async def test_a_hint_that_comes_while_its_row_is_looked_at_has_a_look_of_its_own(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    assert [await superseded(ground) for _ in range(3)] == [0, 1, 1]
    await ground.settle(claim, ground.done())
    assert await superseded(ground) == 1
    await ground.settle(await ground.claim(), ground.done())
    assert await superseded(ground) == 0


@pytest.mark.parametrize("outcome", ["done", "later", "dead", "given up"])
async def test_a_hint_after_all_was_answered_joins_nothing(ground: Ground, outcome: str) -> None:
    outcomes: dict[str, Outcome] = {
        "done": ground.done(),
        "later": Rescheduled(ground.after(60), "replicas lag"),
        "dead": DeadLettered(DeadLetterReason.PERMANENT, "it can't be", recheck_at=ground.after(60)),
        "given up": DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"),
    }
    await ground.settled(ORDERS, outcomes[outcome])
    assert await superseded(ground) == 0


@pytest.mark.parametrize("outcome", [Retry, Returned])
async def test_what_was_not_seen_through_still_waits(ground: Ground, outcome: type[Retry | Returned]) -> None:
    await ground.settled(ORDERS, outcome(ground.after(60), "its store is away"))
    assert await superseded(ground) == 1


async def test_every_lease_that_runs_out_is_told_once(ground: Ground) -> None:
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


async def test_a_catalog_that_is_to_be_swept_says_when(ground: Ground) -> None:
    assert await ground.inbox.table_status(CatalogName("few")) is None
    await ground.inbox.reconcile([Notification(CatalogName("few"))], ground.order())
    claim = await ground.claim()
    await ground.settle(claim, SweepCompleted(ground.after(900), ground.now, within_limit=True))
    await ground.inbox.reconcile([Notification(CatalogName("few"))], ground.order())
    standing = await ground.inbox.table_status(CatalogName("few"))
    assert standing is not None
    assert (standing.state, standing.due_at) == ("queued", ground.after(30))
