"""What every inbox keeps of what is told of a catalog that nobody can ask."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from sfn.inbox.tellings import KEPT
from sfn.words import (
    Birth,
    Dead,
    Done,
    Findings,
    Hint,
    Later,
    Reason,
    Released,
    Retry,
    Story,
    TableName,
    Telling,
    Told,
    ToldTable,
    Wish,
)
from tests.promises.inboxes import TOLD, Ground, pointer, table

ORDERS, RETURNS, LATER = (table(name, TOLD) for name in ("orders", "returns", "later"))


async def told(ground: Ground, name: TableName = ORDERS) -> Told:
    """All that was told of a name."""
    found = await ground.inbox.told(name)
    assert found is not None
    return found


async def said(ground: Ground, name: TableName = ORDERS) -> list[tuple[str | None, str | None, Birth | None, bool]]:
    """What was told of a name and is to be heard, without its numbers."""
    return [(one.location, one.uuid, one.birth, one.ends) for one in (await told(ground, name)).tellings]


async def settled(ground: Ground, name: TableName, known: Told) -> None:
    """A publish has heard what was told of a name."""
    (claim,) = [claim for claim in await ground.claims() if claim.subject == name]
    await ground.settle(claim, Done(ground.after(3600), Findings(Story(told=known))))


async def test_nothing_is_kept_for_a_catalog_that_can_be_asked(ground: Ground) -> None:
    hint = Hint(table("orders"), floor=pointer(1), uuid="u1", birth=Birth.CREATE)
    await ground.inbox.put([hint, Hint(table("orders"), drop=True)])
    assert await ground.inbox.told(table("orders")) is None
    assert (await ground.claim()).wish == Wish(floor=pointer(1), drop=True)


async def test_nothing_is_told_of_a_name_that_nobody_named(ground: Ground) -> None:
    assert await ground.inbox.told(ORDERS) is None
    await ground.hint(ORDERS)
    assert await ground.inbox.told(ORDERS) is None


async def test_what_was_told_is_kept_in_its_order(ground: Ground) -> None:
    await ground.inbox.put([Hint(ORDERS, floor=pointer(0), uuid="u1", birth=Birth.CREATE)])
    await ground.inbox.put([Hint(ORDERS, floor=pointer(3)), Hint(ORDERS, drop=True, uuid="u1")])
    assert await said(ground) == [
        (pointer(0), "u1", Birth.CREATE, False),
        (pointer(3), None, None, False),
        (None, "u1", None, True),
    ]
    seqs = [one.seq for one in (await told(ground)).tellings]
    assert seqs == sorted(set(seqs))
    assert (await ground.claim()).wish.tellings == (await told(ground)).tellings


async def test_thousands_of_commits_are_few_and_the_newest_is_among_them(ground: Ground) -> None:
    hints = [Hint(ORDERS, "etl", f"e{number}", floor=pointer(number)) for number in range(3_000)]
    hints.append(hints.pop(1500))
    first = Hint(ORDERS, floor=pointer(0), birth=Birth.REGISTER)
    await ground.inbox.put([first])
    for start in range(0, len(hints), 1000):
        await ground.inbox.put(hints[start : start + 1000])
    kept = await said(ground)
    assert len(kept) == KEPT
    assert kept[0] == (pointer(0), None, Birth.REGISTER, False)
    assert {location for location, *_ in kept} >= {pointer(2999), pointer(2998), pointer(1500)}


async def test_of_a_table_that_is_named_the_highest_number_is_enough(ground: Ground) -> None:
    for number in (1, 2, 5, 4):
        await ground.inbox.put([Hint(ORDERS, floor=pointer(number), uuid="u1")])
    assert await said(ground) == [(pointer(5), "u1", None, False), (pointer(4), "u1", None, False)]


async def test_too_many_commits_of_two_tables_leave_the_later_tables(ground: Ground) -> None:
    """Whose they are is not said: the numbers begin anew with a table that was created anew."""
    old = [Hint(ORDERS, floor=pointer(number)) for number in range(50, 70)]
    new = [Hint(ORDERS, floor=f"{pointer(number)}.new") for number in range(5)]
    await ground.inbox.put([*old, Hint(ORDERS, drop=True), replace(new[0], birth=Birth.CREATE), *new[1:]])
    kept = [location for location, *_ in await said(ground)]
    assert kept[-5:] == [hint.floor for hint in new]
    assert None in kept


async def test_what_a_publish_has_heard_is_told_no_more_and_what_it_found_is(ground: Ground) -> None:
    known = Told((ToldTable("u1", pointer(2), told_at=1, born_at=1),))
    await ground.inbox.put([Hint(ORDERS, floor=pointer(2))])
    await settled(ground, ORDERS, known)
    assert await told(ground) == known
    await ground.inbox.put([Hint(ORDERS, floor=pointer(3))])
    assert (await told(ground)).tables == known.tables
    assert await said(ground) == [(pointer(3), None, None, False)]


async def test_what_is_told_during_a_publish_is_still_to_be_heard(ground: Ground) -> None:
    await ground.inbox.put([Hint(ORDERS, floor=pointer(2))])
    claim = await ground.claim()
    await ground.inbox.put([Hint(ORDERS, floor=pointer(3))])
    assert [location for location, *_ in await said(ground)] == [pointer(2), pointer(3)]
    await ground.settle(claim, Done(ground.after(3600)))
    assert pointer(3) in {one.location for one in (await ground.claim()).wish.tellings}


@pytest.mark.parametrize("outcome", ["retry", "released"])
async def test_an_attempt_that_failed_has_heard_nothing(ground: Ground, outcome: str) -> None:
    await ground.inbox.put([Hint(ORDERS, floor=pointer(2))])
    at = ground.after(1)
    await ground.settle(await ground.claim(), Retry(at, "trouble") if outcome == "retry" else Released(at, "trouble"))
    assert await said(ground) == [(pointer(2), None, None, False)]


async def test_what_can_not_be_read_yet_stays_told(ground: Ground) -> None:
    await ground.inbox.put([Hint(ORDERS, floor=pointer(2))])
    missed = Telling(1, pointer(2), missed_at=ground.now)
    await ground.settle(await ground.claim(), Later(ground.after(60), "not there", Wish(tellings=(missed,))))
    assert (await told(ground)).tellings == (missed,)


async def test_what_a_row_was_given_up_with_is_doubtful(ground: Ground) -> None:
    await ground.inbox.put([Hint(ORDERS, floor=pointer(2))])
    await ground.settle(await ground.claim(), Dead(Reason.PERMANENT, "garbage", look_at=ground.after(60)))
    await ground.inbox.put([Hint(ORDERS, floor=pointer(3))])
    assert [one.is_doubtful for one in (await told(ground)).tellings] == [True, False]


async def test_a_rename_takes_along_what_was_told(ground: Ground) -> None:
    await ground.inbox.put([Hint(ORDERS, floor=pointer(1), uuid="u1")])
    await settled(ground, ORDERS, Told((ToldTable("u1", pointer(1), told_at=1, born_at=1),)))
    await ground.inbox.put([Hint(ORDERS, floor=pointer(2))])
    await ground.inbox.put([Hint(ORDERS, renamed_to=RETURNS), Hint(RETURNS, renamed_from=ORDERS)])
    assert (await told(ground)).tellings[-1].to == RETURNS
    assert await said(ground, RETURNS) == [
        (pointer(1), "u1", Birth.REGISTER, False),
        (pointer(2), None, None, False),
    ]
    assert RETURNS in {claim.subject for claim in await ground.claims()}


async def test_a_rename_takes_nothing_along_of_a_table_before(ground: Ground) -> None:
    await ground.inbox.put([Hint(ORDERS, floor=pointer(7)), Hint(ORDERS, drop=True)])
    await ground.inbox.put([Hint(ORDERS, floor=f"{pointer(0)}.new", birth=Birth.CREATE)])
    await ground.inbox.put([Hint(ORDERS, renamed_to=RETURNS), Hint(RETURNS, renamed_from=ORDERS)])
    assert await said(ground, RETURNS) == [(f"{pointer(0)}.new", None, Birth.REGISTER, False)]


async def test_a_rename_may_tell_its_location_itself(ground: Ground) -> None:
    await ground.inbox.put([Hint(RETURNS, floor=pointer(4), uuid="u1", renamed_from=ORDERS)])
    assert await said(ground, RETURNS) == [(pointer(4), "u1", Birth.REGISTER, False)]


async def test_a_rename_that_is_told_twice_takes_nothing_along_again(ground: Ground) -> None:
    rename = [Hint(ORDERS, renamed_to=RETURNS), Hint(RETURNS, renamed_from=ORDERS)]
    await ground.inbox.put([Hint(ORDERS, floor=pointer(1), uuid="u1", birth=Birth.CREATE), *rename])
    await ground.inbox.put([Hint(RETURNS, drop=True)])
    before = await said(ground, RETURNS)
    await settled(ground, ORDERS, Told((ToldTable("u1", pointer(1), 1, 1, 2, RETURNS),)))
    await ground.inbox.put(rename)
    assert await said(ground, RETURNS) == before


async def test_what_is_told_late_follows_its_table_to_its_last_name(ground: Ground) -> None:
    names = [ORDERS, RETURNS, LATER]
    await ground.inbox.put([Hint(ORDERS, floor=pointer(1), uuid="u1", birth=Birth.CREATE)])
    for old, new in pairwise(names):
        await ground.inbox.put([Hint(old, renamed_to=new, uuid="u1"), Hint(new, renamed_from=old, uuid="u1")])
    await ground.inbox.put([Hint(ORDERS, floor=pointer(2), uuid="u1")])
    assert (pointer(2), "u1", None, False) in await said(ground, LATER)


async def test_what_is_told_late_of_a_table_that_is_not_named_follows_nobody(ground: Ground) -> None:
    await ground.inbox.put([Hint(ORDERS, floor=pointer(1), uuid="u1", birth=Birth.CREATE)])
    await ground.inbox.put([Hint(ORDERS, renamed_to=RETURNS, uuid="u1"), Hint(RETURNS, renamed_from=ORDERS)])
    await ground.inbox.put([Hint(ORDERS, floor=pointer(2)), Hint(ORDERS, floor=pointer(3), uuid="u2")])
    assert {location for location, *_ in await said(ground, RETURNS)} == {pointer(1)}


async def test_a_birth_that_its_rename_overtook_follows_it(ground: Ground) -> None:
    await ground.inbox.put([Hint(ORDERS, renamed_to=RETURNS, uuid="u1"), Hint(RETURNS, renamed_from=ORDERS, uuid="u1")])
    assert await ground.inbox.told(RETURNS) is None
    await ground.inbox.put([Hint(ORDERS, floor=pointer(0), uuid="u1", birth=Birth.CREATE)])
    assert await said(ground, RETURNS) == [(pointer(0), "u1", Birth.REGISTER, False)]


async def test_names_that_a_table_was_renamed_to_and_fro_hold_nobody_up(ground: Ground) -> None:
    ends = [Hint(ORDERS, renamed_to=RETURNS, uuid="u1"), Hint(RETURNS, renamed_to=ORDERS, uuid="u1")]
    await ground.inbox.put([*ends, Hint(ORDERS, floor=pointer(1), uuid="u1")])
    assert (pointer(1), "u1", None, False) in await said(ground, RETURNS)
