"""Claims of every inbox: leases, fences, groups and order."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from msgspec import structs

from sfn.domain.events import Notification, PutResult
from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import (
    BackwardStep,
    Capacity,
    ConcurrencyGroup,
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    Outcome,
    PendingChange,
    Priority,
    PublishCache,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    StepKind,
    TableState,
    Wakeup,
)
from sfn.inbox.model import DeadLetterFilter, NewDeadLetter
from tests.promises.inboxes import AT, PLENTY, TERMS, Ground, pointer, subjects, table

# ── Leases, fences, groups and order


ORDERS, RETURNS = table("orders"), table("returns")
LEASE = TERMS.lease.total_seconds()
HOUR = 3600
LIVE = ConcurrencyGroup("prod", "", Priority.LIVE)


async def stolen(ground: Ground) -> tuple[LeasedJob, LeasedJob]:
    """A claim whose lease ran out, and the one that has its row now."""
    await ground.hint(ORDERS)
    old = await ground.claim()
    ground.clock.turn(LEASE)
    return old, await ground.claim()


async def test_claim_counts_as_an_attempt_even_if_its_lease_expires(ground: Ground) -> None:
    old, new = await stolen(ground)
    assert (old.attempt, new.attempt) == (1, 2)
    assert new.failing_since == old.failing_since
    await ground.settle(new, Retry(ground.now, "it failed"))
    assert (await ground.claim()).attempt == 3


async def test_success_resets_the_attempts(ground: Ground) -> None:
    await ground.settled(ORDERS, Retry(ground.now, "it failed"))
    await ground.settle(await ground.claim(), Done(ground.now))
    ground.clock.turn(5)
    claim = await ground.claim()
    assert (claim.attempt, claim.failing_since) == (1, ground.now)


async def test_returned_job_costs_no_attempt(ground: Ground) -> None:
    for _ in range(7):
        await ground.settled(ORDERS, Returned(ground.now, "its store is away"))
    claim = await ground.claim()
    assert (claim.attempt, claim.failing_since) == (1, ground.now)


async def test_leased_job_is_not_claimed_again(ground: Ground) -> None:
    await ground.hint(ORDERS)
    await ground.claim()
    await ground.hint(ORDERS)
    ground.clock.turn(LEASE - 1)
    assert await ground.claims() == []


async def test_renewed_lease_stays_valid(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    for _ in range(3):
        ground.clock.turn(LEASE - 1)
        assert await ground.inbox.renew([claim]) == [claim]
        assert await ground.claims() == []
    ground.clock.turn(LEASE)
    assert (await ground.claim()).attempt == 2


async def test_claim_renews_the_leases_in_use(ground: Ground) -> None:
    """Its renewals may be late because the inbox is slow, or the whole process stood still."""
    await ground.hint(ORDERS, RETURNS)
    held, left = await ground.claims()
    ground.clock.turn(LEASE + 1)
    claimed = await ground.inbox.claim(PLENTY, [held])
    assert (subjects(claimed.jobs), claimed.expired_leases) == ([str(left.subject)], 1)
    assert await ground.inbox.renew([held, left]) == [held]
    ground.clock.turn(LEASE - 1)
    assert await ground.claims() == []


async def test_claim_does_not_restore_a_lost_lease(ground: Ground) -> None:
    old, new = await stolen(ground)
    ground.clock.turn(LEASE)
    claimed = await ground.inbox.claim(PLENTY, [old])
    assert ([claim.attempt for claim in claimed.jobs], claimed.expired_leases) == ([new.attempt + 1], 1)


async def test_lost_lease_is_not_renewed(ground: Ground) -> None:
    old, new = await stolen(ground)
    assert await ground.inbox.renew([old, new]) == [new]


async def test_lost_lease_changes_nothing(ground: Ground) -> None:
    old, new = await stolen(ground)
    step = BackwardStep(StepKind.DROP, "u1", pointer(1))
    assert not await ground.inbox.settle(old, ground.done(), ground.now)
    assert await ground.inbox.record_location(old, AT, "u1") is None
    assert not await ground.inbox.allow_step(old, step, ground.now)
    assert await ground.inbox.renew([old]) == []
    assert await ground.inbox.record_location(new, AT, "u1") == frozenset()
    await ground.settle(new, Retry(ground.now, "it failed"))
    assert not await ground.inbox.settle(new, ground.done(), ground.now)
    assert (await ground.claim()).locations == frozenset({AT})


async def test_claim_of_a_forgotten_job_cannot_settle_the_next_one(ground: Ground) -> None:
    """Tokens never repeat: a process that slept through all of it must not settle the new row."""
    await ground.hint(ORDERS)
    old = await ground.claim()
    await ground.settle(old, Done(ground.now, forget=True))
    assert await ground.row(ORDERS) is None
    await ground.hint(ORDERS)
    new = await ground.claim()
    assert new.fencing_token != old.fencing_token
    assert not await ground.inbox.settle(old, Done(ground.now, forget=True), ground.now)
    await ground.settle(new, ground.done())


async def test_notification_during_a_lease_makes_the_job_due_afterwards(ground: Ground) -> None:
    for outcome in (
        Done(ground.after(3600)),
        Rescheduled(ground.after(60), "replicas lag"),
        Done(ground.now, forget=True),
    ):
        await ground.hint(ORDERS)
        claim = await ground.claim()
        await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(7))])
        assert await ground.claims() == []
        await ground.settle(claim, outcome)
        again = await ground.claim()
        assert again.pending == PendingChange(min_metadata_location=pointer(7), is_unspecific=True)
        await ground.settle(again, Done(ground.after(3600)))


@pytest.mark.parametrize("outcome", [Retry, Returned])
async def test_notification_during_a_lease_does_not_shorten_a_pause(
    ground: Ground, outcome: type[Retry | Returned]
) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    await ground.hint(ORDERS)
    await ground.inbox.fold()
    await ground.settle(claim, outcome(ground.after(60), "its store is away"))
    assert await ground.claims() == []
    ground.clock.turn(60)
    assert (await ground.claim()).pending == PendingChange(is_unspecific=True)


async def test_pending_change_survives_a_reschedule_but_not_a_success(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(3))])
    claim = await ground.claim()
    await ground.settle(
        claim, Rescheduled(ground.now, "replicas lag", structs.replace(claim.pending, is_rechecked=True))
    )
    claim = await ground.claim()
    assert claim.pending == PendingChange(min_metadata_location=pointer(3), is_rechecked=True)
    await ground.settle(claim, Done(ground.now))
    assert (await ground.claim()).pending == PendingChange()


async def test_failure_preserves_the_pending_change_and_clears_the_cache(ground: Ground) -> None:
    done = ground.done(due=0)
    await ground.settled(ORDERS, replace(done, result=replace(done.result, cache=PublishCache(etag="v1"))))
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(3))])
    claim = await ground.claim()
    assert claim.cache == PublishCache(etag="v1")
    await ground.settle(claim, Retry(ground.now, "it failed"))
    claim = await ground.claim()
    assert (claim.pending.min_metadata_location, claim.cache) == (pointer(3), PublishCache())


async def test_longest_waiting_job_is_claimed_first(ground: Ground) -> None:
    for name in ("c", "a", "b"):
        await ground.hint(table(name))
        ground.clock.turn(1)
    assert subjects(await ground.claims(Capacity(total=2, live=2, sweeps=1))) == ["prod:sales.c", "prod:sales.a"]


async def test_claims_do_not_exceed_the_capacity(ground: Ground) -> None:
    await ground.hint(*(table(f"t{number}") for number in range(20)))
    await ground.inbox.put([Notification(CatalogName(f"c{number}")) for number in range(3)])
    assert len(await ground.claims(Capacity(total=5, live=4, sweeps=0))) == 4
    assert len(await ground.claims(Capacity(total=2, live=4, sweeps=2))) == 4
    assert await ground.claims(Capacity(total=0, live=0, sweeps=0)) == []
    assert len(await ground.claims(replace(PLENTY, per_group={LIVE: 3}))) == 3 + 1


async def test_background_jobs_have_a_slot_beside_many_live_jobs(ground: Ground) -> None:
    await ground.published(RETURNS, due=0)
    await ground.hint(*(table(f"t{number}") for number in range(50)))
    for _ in range(3):
        claims = await ground.claims(Capacity(total=5, live=4, sweeps=0))
        urgencies = Counter(claim.group.priority for claim in claims)
        assert urgencies == {Priority.LIVE: 4, Priority.BACKGROUND: 1}
        for claim in claims:
            await ground.settle(claim, ground.done(due=0 if claim.group.priority is Priority.BACKGROUND else 3600))


async def test_short_lived_table_does_not_wait_behind_a_backlog(ground: Ground) -> None:
    """That it is one stays known where what is remembered of it is dropped."""
    await ground.published(RETURNS, due=7200, short_lived=True)
    await ground.hint(*(table(f"t{number}") for number in range(1000)))
    await ground.hint(RETURNS)
    (claim,) = await ground.claims(Capacity(total=1, live=1, sweeps=0))
    assert (claim.subject, claim.group.priority) == (RETURNS, Priority.SHORT_LIVED)
    await ground.settle(claim, Retry(ground.now, "it failed"))
    claim, *others = await ground.claims(Capacity(total=5, live=4, sweeps=0))
    assert (claim.subject, claim.group.priority, len(others)) == (RETURNS, Priority.SHORT_LIVED, 3)


async def test_short_lived_tables_do_not_exceed_their_slots(ground: Ground) -> None:
    names = [table(f"s{number}") for number in range(5)]
    for name in names:
        await ground.published(name, f"{AT}/{name.name}", due=7200, short_lived=True)
    await ground.hint(*names, *(table(f"t{number}") for number in range(50)))
    claims = await ground.claims(Capacity(total=5, live=4, sweeps=0, short_lived=3))
    assert Counter(claim.group.priority for claim in claims) == {Priority.SHORT_LIVED: 3, Priority.LIVE: 1}


async def test_short_lived_table_without_notification_is_a_background_job(ground: Ground) -> None:
    await ground.published(RETURNS, due=0, short_lived=True)
    assert (await ground.claim()).group.priority is Priority.BACKGROUND


async def test_waiting_short_lived_table_is_overdue(ground: Ground) -> None:
    await ground.published(RETURNS, due=7200, short_lived=True)
    since = ground.now
    await ground.hint(RETURNS)
    ground.clock.turn(60)
    assert (await ground.inbox.stats()).oldest_due == {"prod": since}


async def test_groups_take_turns(ground: Ground) -> None:
    await ground.hint(*(table(f"t{number}", "big") for number in range(100)))
    await ground.hint(*(table(f"t{number}", name) for name in ("small", "tiny") for number in range(2)))
    claims = await ground.claims(Capacity(total=9, live=9, sweeps=0))
    assert Counter(claim.group.catalog for claim in claims) == {"big": 5, "small": 2, "tiny": 2}


async def test_groups_share_a_single_slot(ground: Ground) -> None:
    for name in ("big", "small", "tiny"):
        await ground.hint(*(table(f"t{number}", name) for number in range(9)))
    one = Capacity(total=1, live=1, sweeps=0)
    claimed = [claim.group.catalog for _ in range(9) for claim in await ground.claims(one)]
    assert Counter(claimed) == {"big": 3, "small": 3, "tiny": 3}


async def test_blocked_group_does_not_delay_others(ground: Ground) -> None:
    await ground.hint(*(table(f"t{number}", "away") for number in range(1000)))
    await ground.hint(ORDERS)
    open_ = replace(PLENTY, per_group={ConcurrencyGroup("away", "", Priority.LIVE): 0})
    claimed = await ground.inbox.claim(open_)
    assert subjects(claimed.jobs) == ["prod:sales.orders"]
    assert claimed.next_due == ground.after(LEASE)


async def test_job_moves_to_the_group_of_its_store(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    assert claim.group == LIVE
    await ground.inbox.record_location(claim, AT, "u1")
    await ground.settle(claim, Retry(ground.now, "it failed"))
    claim = await ground.claim()
    assert claim.group == ConcurrencyGroup("prod", "s3://lake", Priority.LIVE)
    await ground.settle(claim, ground.done(due=0))
    assert (await ground.claim()).group == ConcurrencyGroup("prod", "s3://lake", Priority.BACKGROUND)


async def test_location_and_event_id_of_any_length_are_stored(ground: Ground) -> None:
    """An index of PostgreSQL takes no more than 2,704 bytes."""
    long = f"file:///{random.Random(1).randbytes(2000).hex()}"
    event = [Notification(RETURNS, "\U0001f9ca" * 500, f"{long[:500]}\U0001f9ca")]
    assert [await ground.inbox.put(event) for _ in range(2)] == [PutResult(1, 0), PutResult(0, 1)]
    (claim,) = await ground.claims()
    await ground.published(ORDERS, long)
    result = PublishResult(TableState(), wake_locations=frozenset({long}))
    await ground.settle(claim, Done(ground.after(HOUR), result))
    assert subjects(await ground.claims()) == ["prod:sales.orders"]


async def test_claim_reports_when_the_next_job_is_due(ground: Ground) -> None:
    assert (await ground.inbox.claim(PLENTY)).next_due is None
    await ground.settled(RETURNS, Done(ground.after(50)))
    await ground.settled(ORDERS, Retry(ground.after(20), "it failed"))
    assert (await ground.inbox.claim(PLENTY)).next_due == ground.after(20)
    blocked = replace(PLENTY, per_group={LIVE: 0})
    assert (await ground.inbox.claim(blocked)).next_due == ground.after(50)
    ground.clock.turn(30)
    claimed = await ground.inbox.claim(PLENTY)
    assert (subjects(claimed.jobs), claimed.next_due) == (["prod:sales.orders"], ground.after(20))


# ── Abandoned jobs


ORDERS, RETURNS = table("orders"), table("returns")


async def test_job_is_poison_after_five_crashes(ground: Ground) -> None:
    await ground.hint(ORDERS)
    for attempt in range(1, TERMS.max_crashes + 1):
        assert (await ground.claim()).attempt == attempt
        ground.clock.turn(LEASE)
    assert await ground.claims() == []
    assert await ground.open_letters() == [("prod:sales.orders", "poison")]
    (letter,) = await ground.letters()
    assert letter.attempts == TERMS.max_crashes


async def test_poison_is_reported_once_and_retried(ground: Ground) -> None:
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


async def test_only_consecutive_crashes_count(ground: Ground) -> None:
    await ground.hint(ORDERS)
    for _ in range(3):
        for _ in range(TERMS.max_crashes - 1):
            await ground.claim()
            ground.clock.turn(LEASE)
        await ground.settle(await ground.claim(), Retry(ground.now, "it failed"))
    assert await ground.open_letters() == []


async def test_crashing_sweep_is_paused_and_never_poison(ground: Ground) -> None:
    """Were it dead, nobody would look at its tables any more."""
    await ground.inbox.put([Notification(CatalogName("prod"))])
    for _ in range(TERMS.max_crashes):
        await ground.claim()
        ground.clock.turn(LEASE)
    assert await ground.claims() == []
    assert await ground.open_letters() == []
    ground.clock.turn(TERMS.retry_cap.total_seconds())
    assert (await ground.claim()).subject == CatalogName("prod")


async def test_crash_of_a_dead_job_opens_no_second_dead_letter(ground: Ground) -> None:
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"))
    await ground.hint(ORDERS)
    await ground.claim()
    ground.clock.turn(LEASE)
    await ground.claim()
    assert await ground.open_letters() == [("prod:sales.orders", "held-drop")]


# ── Waiting time of a change


STOCK = table("stock")


async def test_a_table_waits_from_its_oldest_notification_until_it_is_published(ground: Ground) -> None:
    await ground.published(STOCK, due=10)
    told = ground.clock.turn(100)
    assert (await ground.inbox.stats()).oldest_due == {}
    await ground.hint(ORDERS)
    ground.clock.turn(7)
    await ground.hint(table("late"))
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}
    claims = await ground.claims()
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}
    for claim in claims:
        await ground.settle(claim, ground.done(str(claim.subject)))
    assert (await ground.inbox.stats()).oldest_due == {}


@pytest.mark.parametrize("outcome", [Retry, Returned])
async def test_failing_job_is_overdue_since_its_notification(ground: Ground, outcome: type[Retry | Returned]) -> None:
    told = ground.now
    await ground.hint(ORDERS)
    ground.clock.turn(5)
    for _ in range(3):
        await ground.settle(await ground.claim(), outcome(ground.after(30), "its store is away"))
        assert (await ground.inbox.stats()).oldest_due == {"prod": told}
        ground.clock.turn(30)
    claim = await ground.claim()
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}
    await ground.settle(claim, ground.done())
    assert (await ground.inbox.stats()).oldest_due == {}


async def test_crashed_job_is_overdue_since_its_notification(ground: Ground) -> None:
    told = ground.now
    await ground.hint(ORDERS)
    await ground.claim()
    ground.clock.turn(100)
    await ground.claims()
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}


@pytest.mark.parametrize("outcome", [Retry, Returned])
async def test_notification_of_a_failing_job_is_overdue_since_its_arrival(
    ground: Ground, outcome: type[Retry | Returned]
) -> None:
    await ground.published(ORDERS, due=10)
    ground.clock.turn(10)
    await ground.settle(await ground.claim(), outcome(ground.after(60), "its store is away"))
    ground.clock.turn(5)
    assert (await ground.inbox.stats()).oldest_due == {}
    told = ground.now
    await ground.hint(ORDERS)
    ground.clock.turn(5)
    await ground.hint(ORDERS)
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}


@pytest.mark.parametrize("folded", [True, False])
async def test_notification_during_a_background_job_is_overdue_since_its_arrival(
    ground: Ground, *, folded: bool
) -> None:
    await ground.published(ORDERS, due=10)
    ground.clock.turn(10)
    claim, told = await ground.claim(), ground.clock.turn(5)
    await ground.hint(ORDERS)
    if folded:
        await ground.inbox.fold()
    ground.clock.turn(5)
    await ground.settle(claim, Retry(ground.after(60), "no"))
    assert (await ground.inbox.stats()).oldest_due == {"prod": told}


@pytest.mark.parametrize("outcome", ["later", "held"])
async def test_rescheduled_or_held_job_is_not_overdue(ground: Ground, outcome: str) -> None:
    outcomes: dict[str, Outcome] = {
        "later": Rescheduled(ground.after(600), "absent for 10 min first", PendingChange(drop=True)),
        "held": DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"),
    }
    await ground.settled(ORDERS, Returned(ground.after(1), "its store is away"))
    ground.clock.turn(1)
    await ground.settle(await ground.claim(), outcomes[outcome])
    ground.clock.turn(300)
    assert (await ground.inbox.stats()).oldest_due == {}


@pytest.mark.parametrize(
    "reason",
    [
        DeadLetterReason.PERMANENT,
        DeadLetterReason.EXHAUSTED,
        DeadLetterReason.POISON,
        DeadLetterReason.LOCATION_REFUSED,
    ],
)
async def test_dead_job_is_overdue_until_its_dead_letter_is_closed(ground: Ground, reason: DeadLetterReason) -> None:
    dead = DeadLettered(reason, "it can't be", recheck_at=ground.after(600))
    given_up = ground.now
    await ground.settled(ORDERS, dead)
    await ground.settled(STOCK, DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"))
    ground.clock.turn(300)
    await ground.settled(table("later"), DeadLettered(reason, "nor can this", recheck_at=ground.after(600)))
    assert (await ground.inbox.stats()).oldest_due == {"prod": given_up}
    ground.clock.turn(300)
    await ground.settle(await ground.claim(), ground.done())
    assert (await ground.inbox.stats()).oldest_due == {"prod": ground.after(-300)}
    letters = await ground.inbox.list_after(DeadLetterFilter(), 0, 9)
    await ground.inbox.discard([letter.id for letter in letters], ground.order())
    assert (await ground.inbox.stats()).oldest_due == {}


async def test_wakeup_of_a_held_table_is_not_overdue(ground: Ground) -> None:
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"))
    await ground.settled(
        STOCK, Rescheduled(ground.after(600), "renamed", result=PublishResult(wakeups=(Wakeup(ORDERS),)))
    )
    assert (await ground.inbox.stats()).oldest_due == {}
