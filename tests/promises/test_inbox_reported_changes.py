"""What every inbox keeps of what is told of a catalog that nobody can ask."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from sfn.domain.events import EventHistory, Notification, ReportedChange, TableHistory, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import (
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
from sfn.inbox.transitions import MAX_REPORTED_CHANGES
from tests.promises.inboxes import TOLD, Ground, pointer, table

ORDERS, RETURNS, LATER = (table(name, TOLD) for name in ("orders", "returns", "later"))


async def told(ground: Ground, name: TableIdentifier = ORDERS) -> EventHistory:
    """All that was told of a name."""
    found = await ground.inbox.event_history(name)
    assert found is not None
    return found


async def said(
    ground: Ground, name: TableIdentifier = ORDERS
) -> list[tuple[str | None, str | None, TableOrigin | None, bool]]:
    """What was told of a name and is to be heard, without its numbers."""
    return [
        (one.metadata_location, one.uuid, one.origin, one.is_end) for one in (await told(ground, name)).reported_changes
    ]


async def settled(ground: Ground, name: TableIdentifier, known: EventHistory) -> None:
    """A publish has heard what was told of a name."""
    (claim,) = [claim for claim in await ground.claims() if claim.subject == name]
    await ground.settle(claim, Done(ground.after(3600), PublishResult(TableState(event_history=known))))


async def test_no_history_is_stored_for_a_queryable_catalog(ground: Ground) -> None:
    hint = Notification(table("orders"), min_metadata_location=pointer(1), uuid="u1", origin=TableOrigin.CREATE)
    await ground.inbox.put([hint, Notification(table("orders"), drop=True)])
    assert await ground.inbox.event_history(table("orders")) is None
    assert (await ground.claim()).pending == PendingChange(min_metadata_location=pointer(1), drop=True)


async def test_table_without_reported_changes_has_no_history(ground: Ground) -> None:
    assert await ground.inbox.event_history(ORDERS) is None
    await ground.hint(ORDERS)
    assert await ground.inbox.event_history(ORDERS) is None


async def test_reported_changes_are_stored_in_order(ground: Ground) -> None:
    await ground.inbox.put(
        [Notification(ORDERS, min_metadata_location=pointer(0), uuid="u1", origin=TableOrigin.CREATE)]
    )
    await ground.inbox.put(
        [Notification(ORDERS, min_metadata_location=pointer(3)), Notification(ORDERS, drop=True, uuid="u1")]
    )
    assert await said(ground) == [
        (pointer(0), "u1", TableOrigin.CREATE, False),
        (pointer(3), None, None, False),
        (None, "u1", None, True),
    ]
    seqs = [one.seq for one in (await told(ground)).reported_changes]
    assert seqs == sorted(set(seqs))
    assert (await ground.claim()).pending.reported_changes == (await told(ground)).reported_changes


async def test_thousands_of_commits_are_reduced_to_the_newest(ground: Ground) -> None:
    hints = [
        Notification(ORDERS, "etl", f"e{number}", min_metadata_location=pointer(number)) for number in range(3_000)
    ]
    hints.append(hints.pop(1500))
    first = Notification(ORDERS, min_metadata_location=pointer(0), origin=TableOrigin.REGISTER)
    await ground.inbox.put([first])
    for start in range(0, len(hints), 1000):
        await ground.inbox.put(hints[start : start + 1000])
    kept = await said(ground)
    assert len(kept) == MAX_REPORTED_CHANGES
    assert kept[0] == (pointer(0), None, TableOrigin.REGISTER, False)
    assert {location for location, *_ in kept} >= {pointer(2999), pointer(2998), pointer(1500)}


async def test_highest_and_last_commit_of_a_known_uuid_are_stored(ground: Ground) -> None:
    for number in (1, 2, 5, 4):
        await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(number), uuid="u1")])
    assert await said(ground) == [(pointer(5), "u1", None, False), (pointer(4), "u1", None, False)]


async def test_excess_commits_of_two_tables_are_reduced_to_the_later_table(ground: Ground) -> None:
    """Whose they are is not said: the numbers begin anew with a table that was created anew."""
    old = [Notification(ORDERS, min_metadata_location=pointer(number)) for number in range(50, 70)]
    new = [Notification(ORDERS, min_metadata_location=f"{pointer(number)}.new") for number in range(5)]
    await ground.inbox.put(
        [*old, Notification(ORDERS, drop=True), replace(new[0], origin=TableOrigin.CREATE), *new[1:]]
    )
    kept = [location for location, *_ in await said(ground)]
    assert kept[-5:] == [hint.min_metadata_location for hint in new]
    assert None in kept


async def test_publish_replaces_applied_changes_with_its_history(ground: Ground) -> None:
    known = EventHistory((TableHistory("u1", pointer(2), changed_seq=1, created_seq=1),))
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    await settled(ground, ORDERS, known)
    assert await told(ground) == known
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(3))])
    assert (await told(ground)).tables == known.tables
    assert await said(ground) == [(pointer(3), None, None, False)]


async def test_change_reported_during_a_publish_stays_pending(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    claim = await ground.claim()
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(3))])
    assert [location for location, *_ in await said(ground)] == [pointer(2), pointer(3)]
    await ground.settle(claim, Done(ground.after(3600)))
    assert pointer(3) in {one.metadata_location for one in (await ground.claim()).pending.reported_changes}


@pytest.mark.parametrize("outcome", ["retry", "released"])
async def test_failed_attempt_applies_no_change(ground: Ground, outcome: str) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    at = ground.after(1)
    await ground.settle(await ground.claim(), Retry(at, "trouble") if outcome == "retry" else Returned(at, "trouble"))
    assert await said(ground) == [(pointer(2), None, None, False)]


async def test_unreadable_change_stays_pending(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    missed = ReportedChange(1, pointer(2), missing_since=ground.now)
    await ground.settle(
        await ground.claim(), Rescheduled(ground.after(60), "not there", PendingChange(reported_changes=(missed,)))
    )
    assert (await told(ground)).reported_changes == (missed,)


async def test_changes_of_a_dead_job_are_doubtful(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    await ground.settle(
        await ground.claim(), DeadLettered(DeadLetterReason.PERMANENT, "garbage", recheck_at=ground.after(60))
    )
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(3))])
    assert [one.is_doubtful for one in (await told(ground)).reported_changes] == [True, False]


async def test_rename_moves_reported_changes_to_the_new_name(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(1), uuid="u1")])
    await settled(ground, ORDERS, EventHistory((TableHistory("u1", pointer(1), changed_seq=1, created_seq=1),)))
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    await ground.inbox.put([Notification(ORDERS, renamed_to=RETURNS), Notification(RETURNS, renamed_from=ORDERS)])
    assert (await told(ground)).reported_changes[-1].renamed_to == RETURNS
    assert await said(ground, RETURNS) == [
        (pointer(1), "u1", TableOrigin.REGISTER, False),
        (pointer(2), None, None, False),
    ]
    assert RETURNS in {claim.subject for claim in await ground.claims()}


async def test_rename_moves_no_change_of_an_earlier_table(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(7)), Notification(ORDERS, drop=True)])
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=f"{pointer(0)}.new", origin=TableOrigin.CREATE)])
    await ground.inbox.put([Notification(ORDERS, renamed_to=RETURNS), Notification(RETURNS, renamed_from=ORDERS)])
    assert await said(ground, RETURNS) == [(f"{pointer(0)}.new", None, TableOrigin.REGISTER, False)]


async def test_rename_can_report_its_own_location(ground: Ground) -> None:
    await ground.inbox.put([Notification(RETURNS, min_metadata_location=pointer(4), uuid="u1", renamed_from=ORDERS)])
    assert await said(ground, RETURNS) == [(pointer(4), "u1", TableOrigin.REGISTER, False)]


async def test_repeated_rename_moves_no_change_again(ground: Ground) -> None:
    rename = [Notification(ORDERS, renamed_to=RETURNS), Notification(RETURNS, renamed_from=ORDERS)]
    await ground.inbox.put(
        [Notification(ORDERS, min_metadata_location=pointer(1), uuid="u1", origin=TableOrigin.CREATE), *rename]
    )
    await ground.inbox.put([Notification(RETURNS, drop=True)])
    before = await said(ground, RETURNS)
    await settled(ground, ORDERS, EventHistory((TableHistory("u1", pointer(1), 1, 1, 2, RETURNS),)))
    await ground.inbox.put(rename)
    assert await said(ground, RETURNS) == before


async def test_late_change_follows_its_table_to_the_last_name(ground: Ground) -> None:
    names = [ORDERS, RETURNS, LATER]
    await ground.inbox.put(
        [Notification(ORDERS, min_metadata_location=pointer(1), uuid="u1", origin=TableOrigin.CREATE)]
    )
    for old, new in pairwise(names):
        await ground.inbox.put(
            [Notification(old, renamed_to=new, uuid="u1"), Notification(new, renamed_from=old, uuid="u1")]
        )
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2), uuid="u1")])
    assert (pointer(2), "u1", None, False) in await said(ground, LATER)


async def test_late_change_without_a_matching_uuid_follows_no_rename(ground: Ground) -> None:
    await ground.inbox.put(
        [Notification(ORDERS, min_metadata_location=pointer(1), uuid="u1", origin=TableOrigin.CREATE)]
    )
    await ground.inbox.put(
        [Notification(ORDERS, renamed_to=RETURNS, uuid="u1"), Notification(RETURNS, renamed_from=ORDERS)]
    )
    await ground.inbox.put(
        [
            Notification(ORDERS, min_metadata_location=pointer(2)),
            Notification(ORDERS, min_metadata_location=pointer(3), uuid="u2"),
        ]
    )
    assert {location for location, *_ in await said(ground, RETURNS)} == {pointer(1)}


async def test_late_create_event_follows_its_rename(ground: Ground) -> None:
    await ground.inbox.put(
        [Notification(ORDERS, renamed_to=RETURNS, uuid="u1"), Notification(RETURNS, renamed_from=ORDERS, uuid="u1")]
    )
    assert await ground.inbox.event_history(RETURNS) is None
    await ground.inbox.put(
        [Notification(ORDERS, min_metadata_location=pointer(0), uuid="u1", origin=TableOrigin.CREATE)]
    )
    assert await said(ground, RETURNS) == [(pointer(0), "u1", TableOrigin.REGISTER, False)]


async def test_rename_cycle_does_not_block(ground: Ground) -> None:
    ends = [Notification(ORDERS, renamed_to=RETURNS, uuid="u1"), Notification(RETURNS, renamed_to=ORDERS, uuid="u1")]
    await ground.inbox.put([*ends, Notification(ORDERS, min_metadata_location=pointer(1), uuid="u1")])
    assert (pointer(1), "u1", None, False) in await said(ground, RETURNS)
