"""What every inbox promises about what is known of tables: findings, locations, the roster, dead letters."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from sfn.catalogs import Loaded
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName, Table, TableIdentifier
from sfn.domain.jobs import (
    DeadLettered,
    DeadLetterReason,
    Done,
    IndexedTable,
    PendingChange,
    PublishCache,
    PublishedPointer,
    PublishResult,
    Rescheduled,
    Retry,
    StoredObject,
    SweepCompleted,
    TableState,
    Wakeup,
)
from sfn.inbox.model import MAX_UNLISTED_NAMESPACES
from tests.promises.inboxes import AT, Ground, pointer, subjects, table

ORDERS, RETURNS, STOCK = table("orders"), table("returns"), table("stock")
ELSEWHERE = "s3://lake/elsewhere"


def everything(at: datetime) -> PublishResult:
    """Findings with a value in every field that a row keeps."""
    loaded = Loaded(Table("u1", AT, pointer(3), (pointer(1), pointer(2)), 7, 8, "encrypted"), "v3")
    story = TableState(
        live=PublishedPointer(pointer(3), "u1", AT, at),
        has_settled=True,
        missing_since={"u0": at, "u9": at + timedelta(microseconds=1)},
        on_hold=True,
        limit_overridden=True,
        version_hints={AT: ("3", "00003-größe")},
        foreign_version_hint="7",
        renamed_to=RETURNS,
        refresh_at=at + timedelta(days=1),
        misses=2,
        listed_as=STOCK,
    )
    memo = PublishCache(
        loaded.table, loaded.etag, {f"{AT}/a.ver": StoredObject(b"\x00\xff", "t1"), f"{AT}/b.ver": None}
    )
    return PublishResult(story, memo)


@pytest.mark.parametrize("ended", [None, DeadLetterReason.FOREIGN_FILE])
async def test_event_under_another_spelling_reaches_the_job(ground: Ground, ended: DeadLetterReason | None) -> None:
    """Also of one that was given up: a plain ask would not bring it back."""
    outcome = Done(ground.after(3600)) if ended is None else DeadLettered(ended, "something lies there")
    await ground.settled(RETURNS, outcome)
    ask = Wakeup(RETURNS, min_metadata_location=pointer(3), drop=True, purge=True)
    await ground.settled(ORDERS, Done(ground.after(3600), PublishResult(wakeups=(ask,))))
    claim = await ground.claim()
    assert claim.subject == RETURNS
    assert (claim.pending.min_metadata_location, claim.pending.drop, claim.pending.purge) == (pointer(3), True, True)


async def test_publish_result_is_available_to_the_next_claim(ground: Ground) -> None:
    findings = everything(ground.now)
    await ground.settled(ORDERS, Done(ground.now, findings))
    claim = await ground.claim()
    assert (claim.table_state, claim.cache) == (findings.table_state, findings.cache)
    assert claim.subject == ORDERS


@pytest.mark.parametrize(
    "name",
    [
        TableIdentifier("prod", (), "orders"),
        TableIdentifier("prod", ("a.b", "c"), "größe_🧊"),
        TableIdentifier("prod", ("a", "b.c"), 'quo"te\\'),
        TableIdentifier('pr"od', ("a",), "\x1f\n"),
    ],
    ids=repr,
)
async def test_special_characters_in_names_are_preserved(ground: Ground, name: TableIdentifier) -> None:
    others = (TableIdentifier(name.catalog, ("a",), "b"), TableIdentifier("other", name.namespace, name.name))
    await ground.hint(name, *others)
    assert name in [claim.subject for claim in await ground.claims()]
    assert name in [row.table for row in await ground.known(name.catalog)]
    assert [row.table.catalog for row in await ground.known(name.catalog)] == [name.catalog] * 2


async def test_table_index_has_live_dead_and_notified_tables(ground: Ground) -> None:
    live = PublishedPointer(pointer(3), "u1", AT, ground.now)
    findings = PublishResult(TableState(live=live, has_settled=True), PublishCache(etag="v3"))
    await ground.settled(ORDERS, Done(ground.after(3600), findings))
    await ground.settled(RETURNS, DeadLettered(DeadLetterReason.PERMANENT, "its location is nonsense"))
    await ground.inbox.put([Notification(STOCK, min_metadata_location=pointer(5)), Notification(CatalogName("prod"))])
    assert await ground.known() == [
        IndexedTable(ORDERS, live, "v3"),
        IndexedTable(RETURNS, None, None, DeadLetterReason.PERMANENT),
        IndexedTable(STOCK, None, None, min_metadata_location=pointer(5)),
    ]
    assert await ground.known("elsewhere") == []


async def test_table_index_of_many_pages_has_every_table_once(ground: Ground) -> None:
    names = [table(f"t{number:04d}") for number in range(1_203)]
    await ground.hint(*names[:700], table("t0000", "another"), table("t0000", "q"))
    await ground.hint(*names[700:])
    assert [row.table for row in await ground.known()] == names


async def test_tables_with_a_uuid_match_the_table_index(ground: Ground) -> None:
    await ground.published(ORDERS)
    await ground.published(RETURNS, ELSEWHERE)
    await ground.published(STOCK, uuid="u2")
    await ground.published(table("orders", "other"))
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"))
    carrying = await ground.inbox.with_uuid("prod", "u1")
    assert carrying == [row for row in await ground.known() if row.table in {ORDERS, RETURNS}]
    assert [(row.table, row.is_stuck) for row in carrying] == [(ORDERS, True), (RETURNS, False)]
    assert await ground.inbox.with_uuid("prod", "u3") == []


async def test_neighbours_are_other_tables_with_a_live_file_at_a_location(ground: Ground) -> None:
    await ground.published(ORDERS)
    await ground.published(RETURNS, uuid="u2")
    await ground.published(STOCK, ELSEWHERE)
    await ground.published(table("orders", "other"))
    assert await ground.inbox.at_location(ORDERS, AT) == {RETURNS}
    assert await ground.inbox.at_location(STOCK, AT) == {ORDERS, RETURNS}
    await ground.settled(RETURNS, Done(ground.after(3600), PublishResult(TableState(has_settled=True))))
    assert await ground.inbox.at_location(ORDERS, AT) == frozenset()


async def test_recorded_location_survives_a_failed_attempt(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    assert await ground.inbox.record_location(claim, AT, "u1") == frozenset()
    assert await ground.inbox.record_location(claim, ELSEWHERE, "u1") == frozenset()
    await ground.settle(claim, Retry(ground.now, "it failed"))
    claim = await ground.claim()
    assert claim.locations == {AT, ELSEWHERE}
    await ground.settle(claim, Done(ground.now, PublishResult(vacated=frozenset({AT}))))
    assert (await ground.claim()).locations == {ELSEWHERE}


async def test_tables_at_one_location_are_notified_of_each_other_once(ground: Ground) -> None:
    await ground.published(ORDERS)
    await ground.published(STOCK, uuid="u2")
    await ground.published(table("orders", "other"), uuid="u3")
    await ground.hint(RETURNS)
    claim = await ground.claim()
    assert await ground.inbox.record_location(claim, AT, "u1") == frozenset({STOCK})
    assert subjects(await ground.claims()) == ["prod:sales.stock"]
    assert await ground.inbox.record_location(claim, AT, "u9") == frozenset({ORDERS, STOCK})
    assert await ground.claims() == []


async def test_settle_wakes_other_jobs_in_its_transaction(ground: Ground) -> None:
    await ground.settled(RETURNS, Done(ground.after(3600)))
    asks = (Wakeup(RETURNS), Wakeup(STOCK, AT))
    await ground.settled(ORDERS, Rescheduled(ground.after(60), "it was renamed", result=PublishResult(wakeups=asks)))
    stock, returns = sorted(await ground.claims(), key=lambda claim: str(claim.subject), reverse=True)
    assert (returns.subject, returns.pending, returns.locations) == (RETURNS, PendingChange(), frozenset())
    assert (stock.subject, stock.pending, stock.locations) == (STOCK, PendingChange(), frozenset({AT}))
    assert stock.table_state == TableState(has_settled=True)


async def test_fenced_settle_wakes_no_job(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    await ground.settle(claim, Done(ground.after(3600)))
    outcome = Done(ground.now, PublishResult(wakeups=(Wakeup(RETURNS),), wake_locations=frozenset({AT})))
    assert not await ground.inbox.settle(claim, outcome, ground.now)
    assert [row.table for row in await ground.known()] == [ORDERS]
    assert await ground.claims() == []


async def test_wakeup_with_a_known_location_is_ignored(ground: Ground) -> None:
    await ground.published(RETURNS)
    await ground.settled(ORDERS, Done(ground.after(3600), PublishResult(wakeups=(Wakeup(RETURNS, AT),))))
    assert await ground.claims() == []
    await ground.settled(ORDERS, Done(ground.after(3600), PublishResult(wakeups=(Wakeup(RETURNS, ELSEWHERE),))))
    assert (await ground.claim()).locations == {AT, ELSEWHERE}


async def test_settle_wakes_all_tables_at_a_location(ground: Ground) -> None:
    await ground.published(RETURNS)
    await ground.published(STOCK, ELSEWHERE)
    await ground.published(table("orders", "other"))
    await ground.published(ORDERS)
    await ground.settled(ORDERS, Done(ground.after(3600), PublishResult(wake_locations=frozenset({AT}))))
    assert subjects(await ground.claims()) == ["prod:sales.returns"]


@pytest.mark.parametrize("outcome", [Retry, DeadLettered])
async def test_wakeup_does_not_bring_a_failed_job_forward(ground: Ground, outcome: type[Retry | DeadLettered]) -> None:
    failed = (
        Retry(ground.after(60), "it failed")
        if outcome is Retry
        else DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on")
    )
    await ground.settled(RETURNS, failed)
    await ground.settled(ORDERS, Done(ground.after(3600), PublishResult(wakeups=(Wakeup(RETURNS),))))
    assert await ground.claims() == []


@pytest.mark.parametrize("folded", [True, False])
async def test_wakeup_does_not_delay_an_overdue_job(ground: Ground, *, folded: bool) -> None:
    await ground.hint(ORDERS)
    orders = await ground.claim()
    await ground.hint(RETURNS)
    ground.clock.turn(10)
    await ground.hint(STOCK)
    if folded:
        await ground.inbox.fold()
    await ground.settle(orders, Done(ground.after(3600), PublishResult(wakeups=(Wakeup(RETURNS),))))
    assert subjects(await ground.claims()) == ["prod:sales.returns", "prod:sales.stock"]


async def test_wakeup_during_a_lease_repeats_the_job(ground: Ground) -> None:
    await ground.hint(ORDERS, RETURNS)
    orders, returns = await ground.claims()
    await ground.settle(orders, Done(ground.after(3600), PublishResult(wakeups=(Wakeup(RETURNS, ELSEWHERE),))))
    await ground.settle(returns, ground.done())
    again = await ground.claim()
    assert (again.subject, again.locations) == (RETURNS, frozenset({ELSEWHERE}))


async def test_forgotten_job_leaves_nothing_behind(ground: Ground) -> None:
    await ground.published(ORDERS, due=0)
    findings = PublishResult(wakeups=(Wakeup(RETURNS),), wake_locations=frozenset({AT}))
    await ground.settle(await ground.claim(), Done(ground.now, findings, forget=True))
    assert [row.table for row in await ground.known()] == [RETURNS]
    assert await ground.inbox.at_location(RETURNS, AT) == frozenset()
    await ground.hint(ORDERS)
    orders = next(claim for claim in await ground.claims() if claim.subject == ORDERS)
    found = (orders.attempt, orders.locations, orders.table_state, orders.cache)
    assert found == (1, frozenset(), TableState(), PublishCache())


async def test_dead_job_preserves_its_state_until_a_new_result(ground: Ground) -> None:
    await ground.published(ORDERS)
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.PERMANENT, "its location is nonsense"))
    row = await ground.row(ORDERS)
    assert row is not None
    assert row.live is not None
    await ground.hint(ORDERS)
    ground.clock.turn(300)
    await ground.settle(
        await ground.claim(),
        DeadLettered(DeadLetterReason.PERMANENT, "still", PublishResult(TableState(has_settled=True))),
    )
    assert await ground.row(ORDERS) == IndexedTable(ORDERS, None, None, DeadLetterReason.PERMANENT)


async def test_job_has_one_open_dead_letter_until_a_success(ground: Ground) -> None:
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.HELD_DROP, "the brake is on"))
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.FOREIGN_CATALOG, "somebody else is there"))
    assert await ground.open_letters() == [("prod:sales.orders", "foreign-catalog")]
    await ground.settled(ORDERS, Rescheduled(ground.now, "replicas lag"))
    assert len(await ground.open_letters()) == 1
    await ground.settle(await ground.claim(), Done(ground.after(3600)))
    assert await ground.open_letters() == []
    (letter,) = await ground.letters()
    assert (letter.status, letter.detail, letter.attempts) == ("superseded", "somebody else is there", 2)


async def test_dead_job_with_a_recheck_time_is_checked_again(ground: Ground) -> None:
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.FOREIGN_FILE, "not ours", recheck_at=ground.after(60)))
    assert await ground.row(ORDERS) == IndexedTable(ORDERS, None, None, DeadLetterReason.FOREIGN_FILE)
    assert await ground.claims() == []
    ground.clock.turn(60)
    assert (await ground.claim()).attempt == 1
    assert await ground.open_letters() == [("prod:sales.orders", "foreign-file")]


async def test_claims_have_the_time_of_the_last_sweep(ground: Ground) -> None:
    await ground.inbox.put([Notification(CatalogName("prod"))])
    claim = await ground.claim()
    assert claim.swept_at is None
    await ground.settle(claim, SweepCompleted(ground.after(900), started_at=ground.now, within_limit=True))
    assert await ground.claims() == []
    await ground.hint(ORDERS, table("orders", "other"))
    ground.clock.turn(900)
    swept = {str(claim.subject): claim.swept_at for claim in await ground.claims()}
    began = ground.after(-900)
    assert swept == {"prod": began, "prod:sales.orders": began, "other:sales.orders": None}


async def test_sweep_does_not_count_for_unlisted_namespaces(ground: Ground) -> None:
    await ground.inbox.put([Notification(CatalogName("prod"))])
    withheld = frozenset({"closed", "a.closed"})
    await ground.settle(
        await ground.claim(),
        SweepCompleted(ground.after(900), ground.now, within_limit=True, unlisted_namespaces=withheld),
    )
    unseen = [TableIdentifier("prod", ("closed",), "t"), TableIdentifier("prod", ("closed", "inner"), "t")]
    unseen.append(TableIdentifier("prod", ("a", "closed"), "t"))
    seen = [TableIdentifier("prod", ("a",), "closed"), TableIdentifier("prod", ("closed too",), "t"), ORDERS]
    await ground.hint(*unseen, *seen)
    swept = {claim.subject: claim.swept_at for claim in await ground.claims()}
    assert swept == dict.fromkeys(unseen) | dict.fromkeys(seen, ground.now)


async def test_complete_sweep_counts_for_all_tables(ground: Ground) -> None:
    for withheld in (frozenset({""}), frozenset[str]()):
        await ground.inbox.put([Notification(CatalogName("prod"))])
        await ground.settle(
            await ground.claim(),
            SweepCompleted(ground.after(900), ground.now, within_limit=True, unlisted_namespaces=withheld),
        )
        await ground.hint(ORDERS)
        claim = await ground.claim()
        assert claim.swept_at == (None if withheld else ground.now)
        await ground.settle(claim, Done(ground.after(3600)))
        ground.clock.turn(60)


async def test_too_many_unlisted_namespaces_count_as_the_whole_catalog(ground: Ground) -> None:
    await ground.inbox.put([Notification(CatalogName("prod"))])
    withheld = frozenset(f"n{number}" for number in range(MAX_UNLISTED_NAMESPACES + 1))
    await ground.settle(
        await ground.claim(),
        SweepCompleted(ground.after(900), ground.now, within_limit=True, unlisted_namespaces=withheld),
    )
    await ground.hint(ORDERS)
    assert (await ground.claim()).swept_at is None


async def test_pause_applies_to_every_outcome(ground: Ground) -> None:
    paused = PublishResult(not_before=ground.after(30))
    await ground.settled(ORDERS, Rescheduled(ground.now, "replicas lag", result=paused))
    assert await ground.claims() == []
    ground.clock.turn(30)
    await ground.settle(await ground.claim(), Done(ground.now, replace(paused, not_before=None)))
    assert subjects(await ground.claims()) == ["prod:sales.orders"]
