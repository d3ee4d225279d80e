"""What every inbox promises about the brake: steps back are counted, and too many are held."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import (
    BackwardStep,
    Capacity,
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    PublishResult,
    StepKind,
    SweepCompleted,
    TableState,
)
from sfn.inbox import MissingTableStats
from sfn.inbox.model import RELEASE_BATCH_SIZE
from tests.promises.inboxes import Ground, pointer, table

FEW = "few"
"""A catalog whose brake lets two steps pass."""
HOUR = 3600.0


def tables(catalog: str, count: int) -> list[TableIdentifier]:
    return [table(f"t{number}", catalog) for number in range(count)]


async def claimed(ground: Ground, catalog: str = FEW, count: int = 4) -> list[LeasedJob]:
    """Claims of tables of a catalog."""
    await ground.hint(*tables(catalog, count))
    return await ground.claims()


async def permitted(ground: Ground, claim: LeasedJob, step: BackwardStep | None = None) -> bool:
    await ground.inbox.renew([claim])
    return await ground.inbox.allow_step(claim, step or BackwardStep(StepKind.DROP, "u1", pointer(1)), ground.now)


async def test_steps_beyond_the_hourly_limit_do_not_pass(ground: Ground) -> None:
    claims = await claimed(ground)
    assert [await permitted(ground, claim) for claim in claims] == [True, True, False, False]


async def test_repeated_step_counts_once(ground: Ground) -> None:
    first, second, third, _ = await claimed(ground)
    assert [await permitted(ground, first) for _ in range(5)] == [True] * 5
    assert await permitted(ground, second)
    assert not await permitted(ground, third)
    assert await permitted(ground, first)
    assert not await permitted(ground, third)


async def test_different_step_of_the_same_job_counts_again(ground: Ground) -> None:
    claim, *_ = await claimed(ground)
    steps = [
        BackwardStep(StepKind.DROP, "u1", pointer(1)),
        BackwardStep(StepKind.OLDER, "u1", pointer(1)),
        BackwardStep(StepKind.OLDER, "u2", pointer(1)),
        BackwardStep(StepKind.OLDER, "u1", pointer(2)),
    ]
    assert [await permitted(ground, claim, step) for step in steps] == [True, True, False, False]


async def test_limit_applies_to_a_sliding_hour(ground: Ground) -> None:
    claims = await claimed(ground)
    assert await permitted(ground, claims[0])
    ground.clock.turn(HOUR / 2)
    claims = await claimed(ground)
    assert await permitted(ground, claims[1])
    ground.clock.turn(HOUR / 2)
    claims = await claimed(ground)
    assert await permitted(ground, claims[2])
    assert not await permitted(ground, claims[3])


async def test_reached_limit_stays_in_effect(ground: Ground) -> None:
    for claim in await claimed(ground):
        await permitted(ground, claim)
    ground.clock.turn(2 * HOUR)
    (claim, *_) = await claimed(ground)
    assert not await permitted(ground, claim)


async def test_each_catalog_has_its_own_limit(ground: Ground) -> None:
    back = BackwardStep(StepKind.OLDER, "u1", pointer(1))
    for claim in await claimed(ground, "prod"):
        assert await permitted(ground, claim, back)
    claims = await claimed(ground)
    assert [await permitted(ground, claim) for claim in claims] == [True, True, False, False]
    (claim,) = [claim for claim in await claimed(ground, "prod", 5) if claim.subject == table("t4")]
    assert await permitted(ground, claim, back)


@pytest.mark.slow
async def test_default_limit_is_ten_steps_or_one_percent(ground: Ground) -> None:
    assert await ground.inbox.max_missing(FEW) == 2
    live = Done(ground.after(HOUR), ground.done().result)
    for start in range(0, 1200, 100):
        await ground.hint(*(table(f"t{number}") for number in range(start, start + 100)))
        for claim in await ground.claims(Capacity(total=100, live=100, sweeps=0)):
            await ground.settle(claim, live)
    assert await ground.inbox.max_missing("prod") == 12


async def live(ground: Ground, count: int, catalog: str = "prod") -> list[LeasedJob]:
    """Publish tables, each at a place of its own, and claim them again."""
    names = tables(catalog, count)
    for number, name in enumerate(names):
        await ground.published(name, f"s3://lake/{catalog}/{number}", f"u{number}")
    await ground.hint(*names)
    return await ground.claims()


async def gone(ground: Ground, claim: LeasedJob) -> None:
    """Settle a drop: the table has no live file any more."""
    await ground.settle(claim, Done(ground.after(HOUR), PublishResult(TableState(has_settled=True))))


async def dropped(ground: Ground, claims: list[LeasedJob]) -> int:
    """Drop tables one after the other as far as that is allowed; how many."""
    count = 0
    for claim in claims:
        if await permitted(ground, claim):
            await gone(ground, claim)
            count += 1
    return count


@pytest.mark.parametrize(
    ("count", "most"), [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (8, 3), (10, 4), (20, 9), (21, 10), (22, 10), (30, 10)]
)
async def test_half_of_the_tables_cannot_be_dropped_within_an_hour(ground: Ground, count: int, most: int) -> None:
    """Two or more that are half of the tables are held: a catalog with a single table may lose it."""
    claims = await live(ground, count)
    assert await ground.inbox.max_missing("prod") == most
    assert (await ground.inbox.drop_limit_state("prod")).limit == most
    assert await dropped(ground, claims) == most
    brake = await ground.inbox.drop_limit_state("prod")
    assert (brake.limit, brake.live_tables, brake.limit_reached) == (most, count - most, count > 1)


async def test_the_limit_can_be_reported_for_live_tables_that_were_counted_before(ground: Ground) -> None:
    assert await ground.inbox.live_counts() == {}
    await live(ground, 8)
    assert await ground.inbox.live_counts() == {"prod": 8}
    earlier = await ground.inbox.drop_limit_state("prod", 4)
    assert (earlier.limit, earlier.live_tables) == (1, 4)


async def test_unsettled_drops_count_towards_the_half(ground: Ground) -> None:
    """Workers ask at the same time: a drop that was allowed counts once, whether its row has settled or not."""
    claims = await live(ground, 8)
    assert [await permitted(ground, claim) for claim in claims] == [True] * 3 + [False] * 5


async def test_drops_within_an_hour_count_together(ground: Ground) -> None:
    claims = await live(ground, 4)
    assert await dropped(ground, claims[:1]) == 1
    ground.clock.turn(HOUR / 2)
    await ground.hint(*tables("prod", 4)[1:])
    claims = [claim for claim in await ground.claims() if claim.subject != table("t0")]
    assert not await permitted(ground, claims[0])


async def test_drops_hours_apart_do_not_count_together(ground: Ground) -> None:
    for number in range(4):
        claims = await live(ground, 4) if not number else await ground.claims()
        (claim,) = [claim for claim in claims if claim.subject == table(f"t{number}")]
        assert await permitted(ground, claim)
        await gone(ground, claim)
        ground.clock.turn(HOUR)
        await ground.hint(*tables("prod", 4)[number + 1 :])


async def test_repeatedly_dropped_table_counts_once(ground: Ground) -> None:
    """It is dropped three times within the hour, and the other two are still there."""
    claims = await live(ground, 3)
    for number in range(3):
        (claim,) = [claim for claim in claims if claim.subject == table("t0")]
        assert await permitted(ground, claim, BackwardStep(StepKind.DROP, f"u{number}", pointer(number)))
        await gone(ground, claim)
        await ground.published(table("t0"), "s3://lake/again", f"n{number}")
        await ground.hint(table("t0"))
        claims = await ground.claims()


async def test_rollbacks_do_not_count_towards_the_half(ground: Ground) -> None:
    back = BackwardStep(StepKind.OLDER, "u1", pointer(1))
    assert [await permitted(ground, claim, back) for claim in await live(ground, 3)] == [True] * 3


async def test_configured_limit_replaces_the_half(ground: Ground) -> None:
    assert await dropped(ground, await live(ground, 3, FEW)) == 2


async def test_release_restarts_the_hour(ground: Ground) -> None:
    claims = await live(ground, 4)
    assert await dropped(ground, claims[:2]) == 1
    held = PublishResult(claims[1].table_state, claims[1].cache)
    await ground.settle(claims[1], DeadLettered(DeadLetterReason.HELD_DROP, "too many", held))
    assert await ground.inbox.release("prod", ground.order()) == 1
    (claim,) = await ground.claims()
    assert claim.table_state.limit_overridden
    await gone(ground, claim)
    # Two tables are left: the next one may go, the last one may not.
    await ground.inbox.renew(claims)
    assert [await permitted(ground, claim) for claim in claims[2:]] == [True, False]


async def renamed(ground: Ground, count: int, catalog: str = "prod") -> list[tuple[LeasedJob, LeasedJob]]:
    """Publish tables under an old and a new name, report the renames, and claim each table under both names."""
    pairs = [(name, table(f"new{number}", catalog)) for number, name in enumerate(tables(catalog, count))]
    for number, pair in enumerate(pairs):
        for name in pair:
            await ground.published(name, f"s3://lake/{catalog}/{number}", f"u{number}")
    await ground.inbox.put([Notification(old, renamed_to=new) for old, new in pairs])
    await ground.hint(*(new for _, new in pairs))
    claims = {claim.subject: claim for claim in await ground.claims()}
    return [(claims[old], claims[new]) for old, new in pairs]


def drop_of(claim: LeasedJob, uuid: str | None = None) -> BackwardStep:
    """Return the drop of a claimed table, or of another table with the name."""
    assert claim.table_state.live is not None
    return BackwardStep(StepKind.DROP, uuid or claim.table_state.live.uuid, claim.table_state.live.metadata_location)


async def allowed(ground: Ground, *claims: LeasedJob) -> list[bool]:
    """Ask for the drop of each claimed table."""
    return [await permitted(ground, claim, drop_of(claim)) for claim in claims]


@pytest.mark.parametrize("old_first", [True, False])
@pytest.mark.parametrize("settled", [True, False])
async def test_renamed_and_dropped_table_counts_once(ground: Ground, *, old_first: bool, settled: bool) -> None:
    one, other = await renamed(ground, 2)
    for claim in one if old_first else one[::-1]:
        assert await allowed(ground, claim) == [True]
        if settled:
            await gone(ground, claim)
    assert (await ground.inbox.drop_limit_state("prod")).steps == 1
    assert await allowed(ground, *other) == [False, False]


async def test_old_names_count_once_against_a_configured_limit(ground: Ground) -> None:
    pairs = await renamed(ground, 3, FEW)
    assert await allowed(ground, *(claim for pair in pairs for claim in pair)) == [True] * 4 + [False] * 2


async def test_other_name_of_a_counted_table_passes_a_reached_limit(ground: Ground) -> None:
    (old, new), other = await renamed(ground, 2)
    assert await allowed(ground, new, *other, old) == [True, False, False, True]
    assert (await ground.inbox.drop_limit_state("prod")).limit_reached


async def test_old_names_do_not_enlarge_a_catalog(ground: Ground) -> None:
    """Five tables with ten names may lose two tables, as five tables with five names do."""
    pairs = await renamed(ground, 5)
    assert await ground.inbox.max_missing("prod") == 2
    brake = await ground.inbox.drop_limit_state("prod")
    assert (brake.limit, brake.live_tables) == (2, 5)
    olds, news = [old for old, _ in pairs], [new for _, new in pairs]
    assert await allowed(ground, *news) == [True, True, False, False, False]
    assert await allowed(ground, *olds) == [True, True, False, False, False]


async def test_two_names_of_one_uuid_count_twice_without_a_rename(ground: Ground) -> None:
    """Both are registered for one metadata file: a catalog that loses them loses both."""
    for name in tables("prod", 4):
        await ground.published(name, "s3://lake/copied", "u1")
    assert await ground.inbox.max_missing("prod") == 1
    await ground.hint(*tables("prod", 4))
    assert await allowed(ground, *(await ground.claims())) == [True, False, False, False]


async def test_tables_with_swapped_names_count_twice(ground: Ground) -> None:
    """Each name was left by one table and taken by the other: each uuid still counts."""
    names = tables("prod", 3)
    for number, name in enumerate(names):
        await ground.published(name, f"s3://lake/{number}", f"u{number}")
    await ground.inbox.put([Notification(names[0], renamed_to=names[1]), Notification(names[1], renamed_to=names[0])])
    claims = {claim.subject: claim for claim in await ground.claims()}
    one, other = claims[names[0]], claims[names[1]]
    assert await permitted(ground, one, drop_of(one, "u0"))
    assert await permitted(ground, other, drop_of(other, "u0"))
    assert not await permitted(ground, one, drop_of(one, "u1"))
    assert not await permitted(ground, other, drop_of(other, "u1"))


@pytest.mark.parametrize("uuid", [None, ""])
async def test_name_with_an_unknown_uuid_counts(ground: Ground, uuid: str | None) -> None:
    ((old, new), *_) = await renamed(ground, 2)
    step = BackwardStep(StepKind.DROP, uuid, pointer(1))
    assert [await permitted(ground, claim, step) for claim in (old, new)] == [True, False]


async def test_rename_to_an_unknown_name_counts_as_a_drop(ground: Ground) -> None:
    """Events alone, however many report a rename, let no table pass uncounted."""
    claims = await live(ground, 4)
    await ground.inbox.put([Notification(name, renamed_to=table("nowhere")) for name in tables("prod", 4)])
    assert await allowed(ground, *claims) == [True, False, False, False]


async def missing(ground: Ground, claim: LeasedJob) -> None:
    """A look at a published table that the catalog does not show any more."""
    assert isinstance(claim.subject, TableIdentifier)
    assert claim.table_state.live is not None
    story = TableState(
        live=claim.table_state.live, has_settled=True, missing_since={claim.table_state.live.uuid or "": ground.now}
    )
    await ground.settle(claim, Done(ground.after(HOUR), PublishResult(story)))


async def test_missing_tables_are_counted_from_the_first_check(ground: Ground) -> None:
    began, claims = ground.now, await live(ground, 3)
    assert (await ground.inbox.stats()).missing == {}
    await missing(ground, claims[0])
    ground.clock.turn(5)
    await missing(ground, claims[1])
    assert (await ground.inbox.stats()).missing == {"prod": MissingTableStats(2, began)}
    # One is there again, the other one was dropped.
    await ground.hint(*tables("prod", 2))
    back, lost = sorted((claim for claim in await ground.claims()), key=lambda claim: str(claim.subject))
    await ground.settle(
        back, Done(ground.after(HOUR), PublishResult(TableState(live=back.table_state.live, has_settled=True)))
    )
    assert (await ground.inbox.stats()).missing == {"prod": MissingTableStats(1, ground.now)}
    await ground.settle(
        lost,
        Done(
            ground.after(HOUR),
            PublishResult(TableState(has_settled=True, missing_since=lost.table_state.missing_since)),
        ),
    )
    assert (await ground.inbox.stats()).missing == {}


async def test_release_lets_held_drops_pass_once(ground: Ground) -> None:
    for claim in await claimed(ground):
        allowed = await permitted(ground, claim)
        held = PublishResult(TableState(on_hold=True, has_settled=True))
        outcome = (
            Done(ground.after(HOUR)) if allowed else DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on", held)
        )
        await ground.settle(claim, outcome)
    await ground.settled(table("odd", FEW), DeadLettered(DeadLetterReason.PERMANENT, "its location is nonsense"))
    assert await ground.inbox.release("prod", ground.order()) == 0
    assert await ground.inbox.release(FEW, ground.order()) == 2
    assert await ground.open_letters(FEW) == [("few:sales.odd", "permanent")]
    claims = await ground.claims()
    assert [(claim.table_state.on_hold, claim.table_state.limit_overridden, claim.attempt) for claim in claims] == [
        (False, True, 1)
    ] * 2
    assert [await permitted(ground, claim) for claim in claims] == [True, True]


async def test_release_includes_held_tables_with_new_notifications(ground: Ground) -> None:
    """Else the table would be held anew at its next look, and released twice by hand."""
    held = PublishResult(TableState(on_hold=True))
    await ground.settled(table("a", FEW), DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on", held))
    await ground.settled(table("b", FEW), DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on", held))
    await ground.hint(table("a", FEW))
    running = await ground.claim()
    await ground.hint(table("b", FEW))
    assert await ground.inbox.release(FEW, ground.order()) == 2
    assert not await ground.inbox.settle(
        running, DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on", held), ground.now
    )
    assert [claim.table_state.limit_overridden for claim in await ground.claims()] == [True, True]


async def test_large_release_does_not_block_notifications(ground: Ground) -> None:
    count = 2 * RELEASE_BATCH_SIZE + 1
    await ground.hint(*tables(FEW, count))
    async with anyio.create_task_group() as settling:
        for claim in await ground.claims(Capacity(total=count, live=count, sweeps=0)):
            settling.start_soon(ground.settle, claim, DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"))
    released: list[int] = []

    async def release() -> None:
        released.append(await ground.inbox.release(FEW, ground.order("all of it")))

    async with anyio.create_task_group() as releasing:
        releasing.start_soon(release)
        await anyio.lowlevel.checkpoint()
        await ground.hint(table("orders"))
        assert released == []
    assert released == [count]
    (entry,) = await ground.inbox.audit_log(None, 9)
    assert (entry.action, entry.target, entry.count) == ("release", "all of it", count)
    assert not (await ground.inbox.drop_limit_state(FEW)).limit_reached
    assert await ground.open_letters(FEW) == []


@pytest.mark.parametrize("calm", [True, False])
async def test_calm_sweep_resets_a_reached_limit(ground: Ground, *, calm: bool) -> None:
    for claim in await claimed(ground):
        await permitted(ground, claim)
    await ground.inbox.put([Notification(CatalogName(FEW))])
    sweep = next(claim for claim in await ground.claims() if claim.subject == CatalogName(FEW))
    await ground.settle(sweep, SweepCompleted(ground.after(HOUR), started_at=ground.now, within_limit=calm))
    ground.clock.turn(2 * HOUR)
    claims = await claimed(ground)
    tables_ = [claim for claim in claims if claim.subject != CatalogName(FEW)]
    assert await permitted(ground, tables_[0]) is calm


async def test_limit_is_reached_while_tables_are_held(ground: Ground) -> None:
    assert not (await ground.inbox.drop_limit_state("prod")).limit_reached
    await ground.settled(table("orders"), DeadLettered(DeadLetterReason.HELD_DROP, "a sweep found too many gone"))
    assert (await ground.inbox.drop_limit_state("prod")).limit_reached
    assert (await ground.inbox.stats()).limit_reached == {"prod"}
    await ground.inbox.release("prod", ground.order())
    assert not (await ground.inbox.drop_limit_state("prod")).limit_reached
    assert (await ground.inbox.stats()).limit_reached == frozenset()


async def test_limit_is_reached_without_held_tables(ground: Ground) -> None:
    for claim in await claimed(ground, count=3):
        await permitted(ground, claim)
    assert (await ground.inbox.drop_limit_state(FEW)).limit_reached
    assert (await ground.inbox.stats()).limit_reached == {FEW}


async def test_what_passed_within_the_hour_is_listed(ground: Ground) -> None:
    await ground.hint(*tables("few", 2))
    first, second = await ground.claims()
    assert await permitted(ground, first)
    ground.clock.turn(60)
    step = BackwardStep(StepKind.OLDER, "u1", "file:///t/metadata/1.json")
    assert await permitted(ground, second, step)
    passed = await ground.inbox.passed_steps("few")
    assert [(one.table, one.at, one.is_drop) for one in passed] == [
        (first.subject, ground.after(-60), True),
        (second.subject, ground.now, False),
    ]
    ground.clock.turn(3_541)
    assert [one.table for one in await ground.inbox.passed_steps("few")] == [second.subject]
    assert await ground.inbox.passed_steps("prod") == []
