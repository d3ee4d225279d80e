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


async def test_nothing_is_kept_for_a_catalog_that_can_be_asked(ground: Ground) -> None:
    hint = Notification(table("orders"), min_metadata_location=pointer(1), uuid="u1", origin=TableOrigin.CREATE)
    await ground.inbox.put([hint, Notification(table("orders"), drop=True)])
    assert await ground.inbox.event_history(table("orders")) is None
    assert (await ground.claim()).pending == PendingChange(min_metadata_location=pointer(1), drop=True)


async def test_nothing_is_told_of_a_name_that_nobody_named(ground: Ground) -> None:
    assert await ground.inbox.event_history(ORDERS) is None
    await ground.hint(ORDERS)
    assert await ground.inbox.event_history(ORDERS) is None


async def test_what_was_told_is_kept_in_its_order(ground: Ground) -> None:
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


async def test_thousands_of_commits_are_few_and_the_newest_is_among_them(ground: Ground) -> None:
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


async def test_of_a_table_that_is_named_the_highest_number_is_enough(ground: Ground) -> None:
    for number in (1, 2, 5, 4):
        await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(number), uuid="u1")])
    assert await said(ground) == [(pointer(5), "u1", None, False), (pointer(4), "u1", None, False)]


async def test_too_many_commits_of_two_tables_leave_the_later_tables(ground: Ground) -> None:
    """Whose they are is not said: the numbers begin anew with a table that was created anew."""
    old = [Notification(ORDERS, min_metadata_location=pointer(number)) for number in range(50, 70)]
    new = [Notification(ORDERS, min_metadata_location=f"{pointer(number)}.new") for number in range(5)]
    await ground.inbox.put(
        [*old, Notification(ORDERS, drop=True), replace(new[0], origin=TableOrigin.CREATE), *new[1:]]
    )
    kept = [location for location, *_ in await said(ground)]
    assert kept[-5:] == [hint.min_metadata_location for hint in new]
    assert None in kept


async def test_what_a_publish_has_heard_is_told_no_more_and_what_it_found_is(ground: Ground) -> None:
    known = EventHistory((TableHistory("u1", pointer(2), changed_seq=1, created_seq=1),))
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    await settled(ground, ORDERS, known)
    assert await told(ground) == known
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(3))])
    assert (await told(ground)).tables == known.tables
    assert await said(ground) == [(pointer(3), None, None, False)]


async def test_what_is_told_during_a_publish_is_still_to_be_heard(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    claim = await ground.claim()
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(3))])
    assert [location for location, *_ in await said(ground)] == [pointer(2), pointer(3)]
    await ground.settle(claim, Done(ground.after(3600)))
    assert pointer(3) in {one.metadata_location for one in (await ground.claim()).pending.reported_changes}


@pytest.mark.parametrize("outcome", ["retry", "released"])
async def test_an_attempt_that_failed_has_heard_nothing(ground: Ground, outcome: str) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    at = ground.after(1)
    await ground.settle(await ground.claim(), Retry(at, "trouble") if outcome == "retry" else Returned(at, "trouble"))
    assert await said(ground) == [(pointer(2), None, None, False)]


async def test_what_can_not_be_read_yet_stays_told(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    missed = ReportedChange(1, pointer(2), missing_since=ground.now)
    await ground.settle(
        await ground.claim(), Rescheduled(ground.after(60), "not there", PendingChange(reported_changes=(missed,)))
    )
    assert (await told(ground)).reported_changes == (missed,)


async def test_what_a_row_was_given_up_with_is_doubtful(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(2))])
    await ground.settle(
        await ground.claim(), DeadLettered(DeadLetterReason.PERMANENT, "garbage", recheck_at=ground.after(60))
    )
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(3))])
    assert [one.is_doubtful for one in (await told(ground)).reported_changes] == [True, False]


async def test_a_rename_takes_along_what_was_told(ground: Ground) -> None:
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


async def test_a_rename_takes_nothing_along_of_a_table_before(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(7)), Notification(ORDERS, drop=True)])
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=f"{pointer(0)}.new", origin=TableOrigin.CREATE)])
    await ground.inbox.put([Notification(ORDERS, renamed_to=RETURNS), Notification(RETURNS, renamed_from=ORDERS)])
    assert await said(ground, RETURNS) == [(f"{pointer(0)}.new", None, TableOrigin.REGISTER, False)]


async def test_a_rename_may_tell_its_location_itself(ground: Ground) -> None:
    await ground.inbox.put([Notification(RETURNS, min_metadata_location=pointer(4), uuid="u1", renamed_from=ORDERS)])
    assert await said(ground, RETURNS) == [(pointer(4), "u1", TableOrigin.REGISTER, False)]


async def test_a_rename_that_is_told_twice_takes_nothing_along_again(ground: Ground) -> None:
    rename = [Notification(ORDERS, renamed_to=RETURNS), Notification(RETURNS, renamed_from=ORDERS)]
    await ground.inbox.put(
        [Notification(ORDERS, min_metadata_location=pointer(1), uuid="u1", origin=TableOrigin.CREATE), *rename]
    )
    await ground.inbox.put([Notification(RETURNS, drop=True)])
    before = await said(ground, RETURNS)
    await settled(ground, ORDERS, EventHistory((TableHistory("u1", pointer(1), 1, 1, 2, RETURNS),)))
    await ground.inbox.put(rename)
    assert await said(ground, RETURNS) == before


async def test_what_is_told_late_follows_its_table_to_its_last_name(ground: Ground) -> None:
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


async def test_what_is_told_late_of_a_table_that_is_not_named_follows_nobody(ground: Ground) -> None:
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


async def test_a_birth_that_its_rename_overtook_follows_it(ground: Ground) -> None:
    await ground.inbox.put(
        [Notification(ORDERS, renamed_to=RETURNS, uuid="u1"), Notification(RETURNS, renamed_from=ORDERS, uuid="u1")]
    )
    assert await ground.inbox.event_history(RETURNS) is None
    await ground.inbox.put(
        [Notification(ORDERS, min_metadata_location=pointer(0), uuid="u1", origin=TableOrigin.CREATE)]
    )
    assert await said(ground, RETURNS) == [(pointer(0), "u1", TableOrigin.REGISTER, False)]


async def test_names_that_a_table_was_renamed_to_and_fro_hold_nobody_up(ground: Ground) -> None:
    ends = [Notification(ORDERS, renamed_to=RETURNS, uuid="u1"), Notification(RETURNS, renamed_to=ORDERS, uuid="u1")]
    await ground.inbox.put([*ends, Notification(ORDERS, min_metadata_location=pointer(1), uuid="u1")])
    assert (pointer(1), "u1", None, False) in await said(ground, RETURNS)
