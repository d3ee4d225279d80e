"""What every inbox keeps of the tables that events report in an event-only catalog."""

from __future__ import annotations

import pytest
from msgspec import structs

from sfn.domain.events import Notification, TableOrigin, current_table
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    Outcome,
    PendingChange,
    PublishedPointer,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    TableState,
)
from tests.promises.inboxes import AT, EVENT_ONLY, Ground, pointer, table

ORDERS, RETURNS, LATER = (table(name, EVENT_ONLY) for name in ("orders", "returns", "later"))


def commit(
    number: int, uuid: str | None = None, origin: TableOrigin | None = None, name: TableIdentifier = ORDERS
) -> Notification:
    return Notification(name, min_metadata_location=pointer(number), uuid=uuid, origin=origin)


def rename(old: TableIdentifier, new: TableIdentifier, uuid: str | None = None) -> list[Notification]:
    """Both halves of a rename."""
    return [Notification(old, renamed_to=new, uuid=uuid), Notification(new, renamed_from=old, uuid=uuid)]


async def now(ground: Ground, name: TableIdentifier = ORDERS) -> tuple[str | None, tuple[str, ...]] | None:
    """The table that has a name, and the files that may be its newest one."""
    found = current_table(await ground.inbox.reported_tables(name))
    return (found.uuid, found.locations) if found is not None else None


def published(ground: Ground, claim: LeasedJob, number: int, uuid: str = "u1") -> PublishResult:
    """What a publish of a file leaves, which knows no more than was known when its job was claimed."""
    live = PublishedPointer(pointer(number), uuid, AT, ground.now)
    return PublishResult(structs.replace(claim.table_state, live=live, has_settled=True))


async def test_no_reported_table_is_stored_for_a_queryable_catalog(ground: Ground) -> None:
    hint = commit(1, "u1", TableOrigin.CREATE, table("orders"))
    await ground.inbox.put([hint, Notification(table("orders"), drop=True)])
    assert await ground.inbox.reported_tables(table("orders")) == ()
    assert (await ground.claim()).pending == PendingChange(min_metadata_location=pointer(1), drop=True)


async def test_name_without_events_about_a_table_has_no_reported_table(ground: Ground) -> None:
    assert await ground.inbox.reported_tables(ORDERS) == ()
    await ground.hint(ORDERS)
    assert await ground.inbox.reported_tables(ORDERS) == ()


async def test_events_are_folded_in_the_order_of_their_numbers(ground: Ground) -> None:
    await ground.inbox.put([commit(0, "u1", TableOrigin.CREATE)])
    await ground.inbox.put([commit(3, "u1"), commit(2, "u1")])
    assert await now(ground) == ("u1", (pointer(3),))
    await ground.inbox.put([Notification(ORDERS, drop=True, uuid="u1"), commit(4, "u1")])
    assert await now(ground) is None
    (ended,) = await ground.inbox.reported_tables(ORDERS)
    assert ended.ended_seq is not None
    assert ended.ended_seq > ended.created_seq >= 0
    assert (await ground.claim()).table_state.reported == (ended,)


async def test_thousands_of_commits_are_one_location(ground: Ground) -> None:
    hints = [
        Notification(ORDERS, "etl", f"e{number}", min_metadata_location=pointer(number)) for number in range(3_000)
    ]
    hints.append(hints.pop(1500))
    for start in range(0, len(hints), 1000):
        await ground.inbox.put(hints[start : start + 1000])
    assert await now(ground) == (None, (pointer(2999),))


@pytest.mark.parametrize("outcome", ["done", "rescheduled", "retry", "released", "dead", "dead with a result"])
async def test_no_outcome_changes_what_events_reported(ground: Ground, outcome: str) -> None:
    await ground.inbox.put([commit(2, "u1")])
    claim = await ground.claim()
    known = await ground.inbox.reported_tables(ORDERS)
    at, forgetful = ground.after(3600), PublishResult(TableState())
    outcomes: dict[str, Outcome] = {
        "done": Done(at, forgetful),
        "rescheduled": Rescheduled(at, "a replica may lag", PendingChange(), forgetful),
        "retry": Retry(at, "trouble"),
        "released": Returned(at, "trouble"),
        "dead": DeadLettered(DeadLetterReason.PERMANENT, "garbage", recheck_at=at),
        "dead with a result": DeadLettered(DeadLetterReason.HELD_DROP, "held", forgetful),
    }
    await ground.settle(claim, outcomes[outcome])
    assert await ground.inbox.reported_tables(ORDERS) == known


async def test_event_during_a_publish_is_not_lost(ground: Ground) -> None:
    await ground.inbox.put([commit(2, "u1")])
    claim = await ground.claim()
    await ground.inbox.put([commit(3, "u1")])
    await ground.inbox.fold()
    await ground.settle(claim, Done(ground.after(3600), published(ground, claim, 2)))
    assert await now(ground) == ("u1", (pointer(3),))
    assert (await ground.claim()).subject == ORDERS


async def test_publish_shows_the_uuid_for_later_events(ground: Ground) -> None:
    await ground.inbox.put([commit(2)])
    claim = await ground.claim()
    await ground.settle(claim, Done(ground.after(3600), published(ground, claim, 2)))
    await ground.inbox.put([Notification(ORDERS, drop=True, uuid="u2")])
    assert await now(ground) == ("u1", (pointer(2),))
    await ground.inbox.put([Notification(ORDERS, drop=True, uuid="u1")])
    assert await now(ground) is None


async def test_next_event_replaces_the_location_of_a_dead_letter(ground: Ground) -> None:
    await ground.inbox.put([commit(2, "u1")])
    claim = await ground.claim()
    await ground.settle(claim, Done(ground.after(1), published(ground, claim, 2)))
    await ground.inbox.put([commit(99, "u1")])
    ground.clock.turn(1)
    await ground.settle(
        await ground.claim(), DeadLettered(DeadLetterReason.PERMANENT, "garbage", recheck_at=ground.after(60))
    )
    await ground.inbox.put([commit(3, "u1")])
    assert await now(ground) == ("u1", (pointer(3),))


async def test_rename_moves_the_table_to_the_job_of_the_new_name(ground: Ground) -> None:
    await ground.inbox.put([commit(1, "u1")])
    await ground.inbox.put(rename(ORDERS, RETURNS))
    assert (await now(ground), await now(ground, RETURNS)) == (None, ("u1", (pointer(1),)))
    assert RETURNS in {claim.subject for claim in await ground.claims()}


async def test_late_event_changes_the_job_of_the_last_name(ground: Ground) -> None:
    await ground.inbox.put([commit(1, "u1", TableOrigin.CREATE)])
    for old, new in ((ORDERS, RETURNS), (RETURNS, LATER)):
        await ground.inbox.put(rename(old, new, "u1"))
    for claim in await ground.claims():
        await ground.settle(claim, Done(ground.after(3600)))
    await ground.inbox.put([commit(2, "u1")])
    assert await now(ground, LATER) == ("u1", (pointer(2),))
    assert {claim.subject for claim in await ground.claims()} == {ORDERS, LATER}


async def test_rename_cycle_does_not_block(ground: Ground) -> None:
    ends = [Notification(ORDERS, renamed_to=RETURNS, uuid="u1"), Notification(RETURNS, renamed_to=ORDERS, uuid="u1")]
    await ground.inbox.put([*ends, commit(1, "u1")])
    assert {claim.subject for claim in await ground.claims()} == {ORDERS, RETURNS}
