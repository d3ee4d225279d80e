"""What every inbox promises to tell operators of how things stand."""

from __future__ import annotations

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, PendingChange, PublishResult, Retry, Wakeup
from sfn.inbox.model import LastEvent
from tests.promises.inboxes import Ground, pointer, table

ORDERS, RETURNS, STOCK = table("orders"), table("returns"), table("stock")


async def test_a_tables_standing_is_its_whole_story(ground: Ground) -> None:
    assert await ground.inbox.table_status(ORDERS) is None
    await ground.inbox.put(
        [Notification(ORDERS, "etl", "e1", min_metadata_location=pointer(2), body=b'{"name": "orders"}')]
    )
    told = ground.now
    standing = await ground.inbox.table_status(ORDERS)
    assert standing is not None
    assert (standing.state, standing.has_unprocessed, standing.pending, standing.last_result) == (
        "queued",
        True,
        PendingChange(min_metadata_location=pointer(2)),
        None,
    )
    assert standing.last_event == LastEvent("etl", "e1", told, b'{"name": "orders"}')
    claim = await ground.claim()
    ground.clock.turn(5)
    await ground.settle(claim, Retry(ground.after(9), "the store hangs"))
    standing = await ground.inbox.table_status(ORDERS)
    assert standing is not None
    assert standing.last_result is not None
    assert (standing.last_result.outcome, standing.last_result.why, standing.last_result.at) == (
        "retry",
        "the store hangs",
        ground.now,
    )
    assert (standing.attempt, standing.failing_since, standing.due_at) == (1, told, ground.after(9))


async def test_the_last_event_is_found_however_often_others_asked_for_a_look_since(ground: Ground) -> None:
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


async def test_a_last_claim_that_was_well_says_no_why(ground: Ground) -> None:
    await ground.settled(ORDERS, ground.done())
    standing = await ground.inbox.table_status(ORDERS)
    assert standing is not None
    assert standing.last_result is not None
    assert (standing.last_result.outcome, standing.last_result.why, standing.has_unprocessed) == ("done", None, False)
    assert standing.table_state.live is not None


async def test_every_row_of_a_table_is_counted_once(ground: Ground) -> None:
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
