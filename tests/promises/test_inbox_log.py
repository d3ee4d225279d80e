"""What an event is worth between its 202 and the fold that makes it part of its table's state."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import anyio
import pytest

from sfn.domain.events import IntentOutcome, Notification, PutResult, TableOrigin, UndecodableRequest
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.domain.jobs import (
    Capacity,
    DeadLettered,
    DeadLetterReason,
    Done,
    LeasedJob,
    Outcome,
    PendingChange,
    Priority,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    SweepCompleted,
    TableState,
    Wakeup,
)
from sfn.inbox import ClaimResult, operations, transitions
from sfn.inbox import inbox as facade
from sfn.inbox.intents import MAX_UNKNOWN_TABLES
from sfn.inbox.model import DeadLetterFilter, DeadLetterStatus, FoldResult
from sfn.inbox.operations import MAX_FOLDED, ClaimRequest, Operations
from sfn.inbox.schema import MAX_OUTCOMES
from sfn.inbox.transaction import Transaction
from sfn.inbox.transitions import MAX_LOCATIONS, SWEEP_PAUSE
from tests.promises.inboxes import (
    DAY,
    EVENT_ONLY,
    FIRST,
    ORDERS,
    PLENTY,
    RETURNS,
    STOCK,
    TERMS,
    Ground,
    asks,
    flood,
    intent,
    looks,
    pointer,
    seen,
    subjects,
    table,
)

PROD = CatalogName("prod")
ODD = UndecodableRequest("etl", "/v1/events", None, b"{", 1, "expected JSON, found {")
MANY = 2 * MAX_FOLDED + 3
"""More records than two folds take."""


async def fold_all(ground: Ground) -> FoldResult:
    """Fold until nothing waits; the sums."""
    records = coalesced = 0
    while True:
        folded = await ground.inbox.fold()
        records, coalesced = records + folded.records, coalesced + folded.coalesced
        if not folded.has_more:
            return FoldResult(records, coalesced)


def told(name: str) -> TableIdentifier:
    """A table of the event-only catalog."""
    return table(name, EVENT_ONLY)


async def locations(ground: Ground, name: TableIdentifier) -> list[str | None]:
    """The locations that events reported for a name of the event-only catalog; None for a table that ended."""
    await fold_all(ground)
    found: list[str | None] = []
    for one in await ground.inbox.reported_tables(name):
        found += one.locations if one.ended_seq is None else [None]
    return found


# ── Order


@pytest.mark.parametrize("together", [True, False])
async def test_events_are_applied_in_the_order_of_their_arrival_and_not_of_their_ids(
    ground: Ground, *, together: bool
) -> None:
    """Else the create and the drop of one request could change places."""
    one = told("orders")
    events = [
        Notification(one, "etl", "z", min_metadata_location=pointer(1), origin=TableOrigin.CREATE),
        Notification(one, "etl", "m", drop=True),
        Notification(one, "etl", "a", min_metadata_location=f"{pointer(0)}.new", origin=TableOrigin.CREATE),
    ]
    for some in [events] if together else [[event] for event in events]:
        await ground.inbox.put(some)
    assert await locations(ground, one) == [None, f"{pointer(0)}.new"]


async def test_duplicate_keeps_the_place_of_the_first_of_its_kind(ground: Ground) -> None:
    one = told("orders")
    first, second = (
        Notification(one, "etl", name, min_metadata_location=f"s3://lake/{name}.json") for name in ("a", "b")
    )
    assert await ground.inbox.put([first, second, first]) == PutResult(2, 1)
    assert await ground.inbox.put([first]) == PutResult(0, 1)
    assert await locations(ground, one) == ["s3://lake/a.json", "s3://lake/b.json"]


async def test_events_of_one_sender_are_applied_in_its_order_beside_many_others(ground: Ground) -> None:
    async def send(name: str) -> None:
        for number in range(10):
            event = Notification(told(name), name, f"{number}", min_metadata_location=f"s3://lake/{name}/{number}.json")
            assert await ground.inbox.put([event]) == PutResult(1, 0)
            if number == 5:
                await ground.inbox.fold()

    names = [f"t{number}" for number in range(12)]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(send, name)
    for name in names:
        last = [f"s3://lake/{name}/{number}.json" for number in range(10)][-MAX_LOCATIONS:]
        assert await locations(ground, told(name)) == last


@pytest.mark.parametrize("seed", range(12))
async def test_events_of_several_names_have_one_result_in_one_fold_and_in_many(ground: Ground, seed: int) -> None:
    """A rename moves what was reported of one name to another one, so events of two names do not commute."""
    choice = random.Random(seed)

    def event(name: str, other: str) -> Notification:
        uuid = choice.choice([None, "u1", "u2"])
        kinds: list[Callable[[], dict[str, Any]]] = [
            lambda: {"min_metadata_location": pointer(choice.randrange(9)), "uuid": uuid},
            lambda: {"min_metadata_location": pointer(0), "uuid": uuid, "origin": TableOrigin.CREATE},
            lambda: {"drop": True, "uuid": uuid},
            lambda: {"renamed_to": other, "uuid": uuid},
            lambda: {"renamed_from": other, "uuid": uuid},
        ]
        return Notification(told(name), **choice.choice(kinds)())

    names = ["a", "b", "c"]
    events = [event(*choice.sample(names, 2)) for _ in range(14)]

    def renamed(suffix: str, one: Notification) -> Notification:
        parts = {
            part: told(f"{getattr(one, part)}{suffix}")
            for part in ("renamed_to", "renamed_from")
            if getattr(one, part) is not None
        }
        fields = {name: getattr(one, name) for name in ("min_metadata_location", "uuid", "origin", "drop")}
        return Notification(told(f"{one.subject.name}{suffix}"), **{**fields, **parts})  # type: ignore[union-attr]

    for one in events:
        await ground.inbox.put([renamed("-many", one)])
        await ground.inbox.fold()
    await ground.inbox.put([renamed("-one", one) for one in events])
    assert (await ground.inbox.fold()).records == len(events)

    async def known(suffix: str) -> list[object]:
        found: list[object] = []
        for name in names:
            tables = await ground.inbox.reported_tables(told(f"{name}{suffix}"))
            found.append(
                [
                    (
                        one.locations,
                        one.uuid,
                        one.created_seq >= 0,
                        one.ended_seq is not None,
                        one.renamed_to and one.renamed_to.name.removesuffix(suffix),
                    )
                    for one in tables
                ]
            )
        return found

    assert await known("-one") == await known("-many")


# ── What the fold needs of an event


async def test_every_part_of_an_event_is_there_when_it_is_applied(ground: Ground) -> None:
    """A body is decoded once: mappings may have changed by the time of the fold."""
    await ground.inbox.put(
        [
            Notification(
                ORDERS,
                "etl",
                "e1",
                min_metadata_location=pointer(3),
                renamed_to=RETURNS,
                drop=True,
                purge=True,
                uuid="u1",
                hold_drops=True,
                force=True,
                adopt_catalog_id="c0",
                body=b'{"name": "orders"}',
            ),
            Notification(STOCK, "gateway", is_guessed=True),
        ]
    )
    claims = {claim.subject: claim for claim in await ground.claims()}
    assert claims[ORDERS].pending == PendingChange(
        min_metadata_location=pointer(3), renamed_to=RETURNS, drop=True, purge=True, force=True, adopt_catalog_id="c0"
    )
    assert claims[ORDERS].table_state == TableState(on_hold=True)
    assert claims[STOCK].pending == PendingChange(is_unspecific=True, is_guessed=True)
    status = await ground.inbox.table_status(ORDERS)
    assert status is not None
    assert status.last_event is not None
    last = status.last_event
    assert (last.sender, last.event_id, last.body) == ("etl", "e1", b'{"name": "orders"}')


async def test_job_waits_since_the_arrival_of_its_event_and_not_since_its_fold(ground: Ground) -> None:
    arrived = ground.now
    await ground.hint(STOCK)
    ground.clock.turn(10)
    await ground.hint(ORDERS)
    ground.clock.turn(10)
    await ground.hint(RETURNS)
    ground.clock.turn(100)
    assert (await ground.inbox.stats()).oldest_due == {"prod": arrived}
    claims = await ground.claims()
    assert subjects(claims) == ["prod:sales.stock", "prod:sales.orders", "prod:sales.returns"]
    await ground.settle(claims[0], Retry(ground.after(60), "its store is away"))
    assert (await ground.inbox.stats()).oldest_due == {"prod": arrived}


async def test_event_that_was_applied_late_still_keeps_the_pause_between_two_publishes(ground: Ground) -> None:
    await ground.settled(ORDERS, Done(ground.after(3600), PublishResult(not_before=ground.after(30))))
    await ground.hint(ORDERS)
    ground.clock.turn(29)
    assert await ground.claims() == []
    ground.clock.turn(1)
    assert subjects(await ground.claims()) == ["prod:sales.orders"]


# ── A record that cannot be applied


@pytest.fixture(name="spoilt")
def fixture_spoilt(monkeypatch: pytest.MonkeyPatch) -> TableIdentifier:
    """A table whose events cannot be applied."""
    spoilt, fold = table("spoilt"), transitions.jobs_after_notification

    def raise_for_one(notification: Notification, *rest: Any) -> object:  # noqa: ANN401 - as it is called
        if notification.subject == spoilt:
            raise ZeroDivisionError("a defect")
        return fold(notification, *rest)

    monkeypatch.setattr(operations, "jobs_after_notification", raise_for_one)
    return spoilt


async def test_record_that_cannot_be_applied_is_a_dead_letter_and_blocks_no_other(
    ground: Ground, spoilt: TableIdentifier
) -> None:
    await ground.hint(ORDERS, spoilt, RETURNS)
    await ground.inbox.put([intent("a", STOCK), ODD, Notification(spoilt, "etl", "e1")])
    claims = await ground.claims()
    # Its table is checked all the same, without what the event said.
    assert sorted(subjects(claims)) == ["prod:sales.orders", "prod:sales.returns", "prod:sales.spoilt"]
    assert await ground.open_letters() == [("prod:sales.spoilt", "poison")]
    (letter,) = await ground.letters()
    assert "ZeroDivisionError: a defect" in letter.detail
    figures = await ground.inbox.stats()
    assert figures.open_intents == {"prod": 1}
    assert figures.dead_letters == {("prod", "poison"): 1, ("", "undecodable"): 1}
    assert await ground.inbox.put([Notification(spoilt, "etl", "e1")]) == PutResult(0, 1)
    assert await ground.inbox.fold() == FoldResult()


async def test_letter_of_a_record_that_could_not_be_applied_is_closed_by_the_next_publish(
    ground: Ground, spoilt: TableIdentifier
) -> None:
    await ground.hint(spoilt)
    await ground.settle(await ground.claim(), ground.done())
    assert await ground.open_letters() == []
    assert [letter.status for letter in await ground.letters()] == [DeadLetterStatus.SUPERSEDED]


# ── What comes during a lease


ENDS: dict[str, Callable[[Ground], Any]] = {
    "done": lambda ground: Done(ground.after(3600)),
    "forgotten": lambda ground: Done(ground.now, forget=True),
    "later": lambda ground: Rescheduled(ground.after(3600), "replicas lag"),
    "held": lambda _: DeadLettered(DeadLetterReason.HELD_DROP, "the limit is reached"),
}


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("end", list(ENDS))
async def test_event_during_a_lease_is_checked_after_it_whenever_it_is_folded(
    ground: Ground, end: str, *, folded: bool
) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(7))])
    if folded:
        await ground.inbox.fold()
    await ground.settle(claim, ENDS[end](ground))
    assert (await ground.claim()).pending.min_metadata_location == pointer(7)


@pytest.mark.parametrize("first", ["event", "wakeup"])
async def test_every_change_during_a_lease_counts_whatever_number_its_record_has(ground: Ground, first: str) -> None:
    """Records are not committed in the order of their numbers, and a wakeup has none: versions count."""
    await ground.hint(ORDERS, RETURNS)
    orders, returns = sorted(await ground.claims(), key=lambda claim: str(claim.subject))
    wake = Done(ground.after(3600), PublishResult(wakeups=(Wakeup(ORDERS),)))
    if first == "event":
        await ground.hint(ORDERS)
        await ground.inbox.fold()
    await ground.settle(returns, wake)
    await ground.settle(orders, Done(ground.after(3600)))
    again = await ground.claim()
    assert (again.subject, again.version > orders.version) == (ORDERS, True)
    await ground.settle(again, Done(ground.after(3600)))
    assert await ground.claims() == []


# ── Operators and sweeps: everything that was accepted before is applied before


@pytest.mark.parametrize("more", [0, MANY])
async def test_release_of_a_held_table_is_not_undone_by_an_older_event(ground: Ground, more: int) -> None:
    held = PublishResult(TableState(on_hold=True))
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.HELD_DROP, "the limit is reached", held))
    await ground.inbox.put([Notification(RETURNS)] * more)
    await ground.inbox.put([Notification(ORDERS, hold_drops=True)])
    assert await ground.inbox.release("prod", ground.order()) == 1
    claims = {claim.subject: claim.table_state for claim in await ground.claims()}
    assert (claims[ORDERS].on_hold, claims[ORDERS].limit_overridden) == (False, True)


@pytest.mark.parametrize("more", [0, MANY])
async def test_replayed_table_is_checked_at_once_and_behind_newer_events(ground: Ground, more: int) -> None:
    await ground.settled(ORDERS, DeadLettered(DeadLetterReason.PERMANENT, "garbage"))
    (letter,) = await ground.letters()
    await ground.inbox.put([Notification(RETURNS)] * more)
    await ground.inbox.put([Notification(ORDERS, min_metadata_location=pointer(4))])
    assert await ground.inbox.replay([letter.id], [], ground.order()) == 1
    claim = next(claim for claim in await ground.claims() if claim.subject == ORDERS)
    assert claim.group.priority is Priority.BACKGROUND
    assert claim.pending.min_metadata_location == pointer(4)


async def test_replay_of_requests_is_applied_when_it_returns_and_after_what_came_before(ground: Ground) -> None:
    one = told("orders")
    await ground.inbox.put([ODD])
    (letter,) = await ground.inbox.list_after(DeadLetterFilter(), 0, 9)
    await ground.inbox.put([Notification(one, "etl", "e2", min_metadata_location="s3://lake/2.json")])
    decoded = [Notification(one, "etl", name, min_metadata_location=f"s3://lake/{name}.json") for name in ("e2", "e1")]
    assert await ground.inbox.replay([letter.id], decoded, ground.order()) == 1
    # What was accepted meanwhile is a duplicate.
    (reported,) = await ground.inbox.reported_tables(one)
    assert reported.locations == ("s3://lake/2.json", "s3://lake/e1.json")


async def test_adoption_comes_after_the_events_before_it(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, adopt_catalog_id="old")])
    await ground.inbox.adopt([Notification(ORDERS, adopt_catalog_id="new")], ground.order())
    assert (await ground.claim()).pending.adopt_catalog_id == "new"


@pytest.mark.parametrize("more", [0, MANY])
async def test_reconciliation_during_a_sweep_causes_another_one(ground: Ground, more: int) -> None:
    await ground.inbox.put([Notification(PROD)])
    sweep = await ground.claim()
    await ground.inbox.put([Notification(RETURNS)] * more)
    await ground.inbox.reconcile([Notification(PROD)], ground.order())
    await ground.settle(sweep, SweepCompleted(ground.after(900), ground.now, within_limit=True))
    ground.clock.turn(SWEEP_PAUSE.total_seconds())
    assert "prod" in subjects(await ground.claims())


@pytest.mark.parametrize("more", [0, MANY])
async def test_sweep_is_settled_after_everything_that_was_accepted_before(ground: Ground, more: int) -> None:
    """What a sweep reports of its tables, it puts; and a request for another sweep must not be taken for this one."""
    await ground.inbox.put([Notification(PROD)])
    sweep = await ground.claim()
    await ground.inbox.put([Notification(RETURNS)] * more)
    await ground.inbox.put([Notification(ORDERS, hold_drops=True), Notification(PROD, "etl", "e1")])
    await ground.settle(sweep, SweepCompleted(ground.after(900), ground.now, within_limit=False))
    assert await ground.inbox.fold() == FoldResult()
    orders = next(claim for claim in await ground.claims() if claim.subject == ORDERS)
    assert orders.table_state.on_hold
    ground.clock.turn(SWEEP_PAUSE.total_seconds())
    assert "prod" in subjects(await ground.claims())


async def test_letter_is_discarded_after_the_requests_before_it(ground: Ground) -> None:
    await ground.inbox.put([ODD])
    (letter,) = await ground.inbox.list_newest(DeadLetterFilter(), 9)
    await ground.inbox.put([ODD])
    assert await ground.inbox.discard([letter.id], ground.order()) == 1
    assert [one.id > letter.id for one in await ground.inbox.list_newest(DeadLetterFilter(), 9)] == [True]


# ── What operators see


async def test_status_shows_an_event_right_after_its_202(ground: Ground) -> None:
    await ground.settled(ORDERS, ground.done())
    await ground.inbox.put([Notification(ORDERS, "etl", "e1", min_metadata_location=pointer(9))])
    await ground.hint(RETURNS)
    status = await ground.inbox.table_status(ORDERS)
    assert status is not None
    assert (status.has_unprocessed, status.job.pending.min_metadata_location, status.unapplied) == (True, pointer(9), 0)
    assert await ground.inbox.table_status(RETURNS) is not None


async def test_undecodable_request_is_listed_right_after_it_was_stored(ground: Ground) -> None:
    await ground.inbox.put([ODD])
    (letter,) = await ground.inbox.list_newest(DeadLetterFilter(), 9)
    assert letter.opened_at == ground.now
    assert await ground.inbox.request_of(letter.id) == ODD


async def test_history_has_the_last_outcomes_newest_first(ground: Ground) -> None:
    assert await ground.inbox.outcome_history(ORDERS) == []
    began = ground.now
    for number in range(MAX_OUTCOMES + 5):
        ground.clock.turn(1)
        await ground.hint(ORDERS)
        claim = await ground.claim()
        ground.clock.turn(2)
        await ground.settle(claim, Retry(ground.now, f"try {number}"))
    history = await ground.inbox.outcome_history(ORDERS)
    assert [one.why for one in history] == [f"try {number}" for number in range(MAX_OUTCOMES + 4, 4, -1)]
    newest, *_, oldest = history
    assert (newest.outcome, newest.attempt, oldest.attempt) == ("retry", MAX_OUTCOMES + 5, 6)
    assert (newest.at, newest.claimed_at) == (ground.now, ground.after(-2))
    assert oldest.at == began + timedelta(seconds=3 * 6)
    assert await ground.inbox.outcome_history(RETURNS) == []


async def test_equal_failures_in_a_row_are_one_outcome(ground: Ground) -> None:
    began = ground.now
    outcomes: list[Outcome] = [
        ground.done(),
        *(Retry(ground.now, "the store hangs") for _ in range(3)),
        *(Returned(ground.now, "the catalog hangs") for _ in range(MAX_OUTCOMES + 5)),
        Retry(ground.now, "the store hangs"),
        ground.done(),
        ground.done(),
    ]
    for outcome in outcomes:
        ground.clock.turn(1)
        await ground.hint(ORDERS)
        claim = await ground.claim()
        await ground.settle(claim, outcome)
    history = await ground.inbox.outcome_history(ORDERS)
    last = 4 + MAX_OUTCOMES + 5
    assert [(one.outcome, one.times, one.first_at, one.at) for one in history] == [
        (name, times, began + timedelta(seconds=first), began + timedelta(seconds=first + times - 1))
        for name, times, first in (
            ("done", 1, last + 3),
            ("done", 1, last + 2),
            ("retry", 1, last + 1),
            ("returned", MAX_OUTCOMES + 5, 5),
            ("retry", 3, 2),
            ("done", 1, 1),
        )
    ]


async def test_history_of_a_forgotten_job_is_forgotten(ground: Ground) -> None:
    await ground.settled(ORDERS, Returned(ground.now, "a stop"))
    await ground.settle(await ground.claim(), Done(ground.now, forget=True))
    assert await ground.inbox.outcome_history(ORDERS) == []
    await ground.settled(ORDERS, ground.done())
    assert [one.outcome for one in await ground.inbox.outcome_history(ORDERS)] == ["done"]


# ── Intents


async def test_intent_and_its_answer_before_the_fold_leave_nothing(ground: Ground) -> None:
    await ground.inbox.put([intent("a", ORDERS, RETURNS)])
    await ground.inbox.put([IntentOutcome("a", is_known=True)])
    figures = await ground.inbox.stats()
    assert (figures.open_intents, figures.tables) == ({}, {})
    assert (await ground.inbox.claim(PLENTY)).next_due is None


@pytest.mark.parametrize("known", [True, False])
async def test_hint_of_an_answer_is_applied_with_it(ground: Ground, *, known: bool) -> None:
    await ground.inbox.put([intent("a")])
    await ground.inbox.put([IntentOutcome("a", is_known=known), Notification(ORDERS, "gateway")])
    assert await looks(ground) == ["prod:sales.orders"]
    assert [at for at, _ in await asks(ground, FIRST)] == ([] if known else [FIRST])


async def test_repeated_intent_in_two_folds_is_one_intent(ground: Ground) -> None:
    await ground.inbox.put([intent("a")])
    await fold_all(ground)
    await ground.inbox.put([intent("a"), intent("a")])
    assert (await ground.inbox.stats()).open_intents == {"prod": 1}


@pytest.mark.parametrize("together", [True, False])
async def test_table_with_an_event_before_its_intent_is_known(ground: Ground, *, together: bool) -> None:
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    await fold_all(ground)
    await ground.hint(ORDERS)
    if not together:
        await fold_all(ground)
    await ground.inbox.put([intent("a")])
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    await fold_all(ground)
    ground.clock.turn(FIRST)
    assert await looks(ground) == ["prod:sales.orders"]


@pytest.mark.parametrize("together", [True, False])
async def test_closed_intent_makes_room_for_its_peer_in_any_fold(ground: Ground, *, together: bool) -> None:
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    await fold_all(ground)
    await ground.inbox.put([IntentOutcome("10.0.0.1 0", is_known=True)])
    if not together:
        await fold_all(ground)
    await ground.inbox.put([intent("a", STOCK)])
    await fold_all(ground)
    await ground.inbox.put([IntentOutcome(f"10.0.0.1 {number}", is_known=True) for number in range(MAX_UNKNOWN_TABLES)])
    await fold_all(ground)
    ground.clock.turn(FIRST)
    assert await looks(ground) == ["prod:sales.stock"]


@pytest.mark.parametrize("together", [True, False])
async def test_unresolved_commits_share_one_schedule_in_any_fold(ground: Ground, *, together: bool) -> None:
    await ground.inbox.put([intent("a"), IntentOutcome("a", is_known=False)])
    await fold_all(ground)
    await ground.inbox.put([intent("b")])
    if not together:
        await fold_all(ground)
    await ground.inbox.put([IntentOutcome("b", is_known=False)])
    assert (await ground.inbox.stats()).open_intents == {"prod": 1}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("late", [FIRST, 2 * FIRST])
async def test_unresolved_commit_is_checked_by_a_claim_that_comes_late(
    ground: Ground, late: float, *, checked: bool
) -> None:
    await ground.inbox.put([intent("a")])
    await fold_all(ground)
    if checked:
        ground.clock.turn(FIRST)
        assert await looks(ground) == ["prod:sales.orders"]
    await ground.inbox.put([IntentOutcome("a", is_known=False)])
    ground.clock.turn(late)
    assert await looks(ground) == ["prod:sales.orders"]


async def test_intent_of_a_whole_catalog_is_checked_by_a_claim_that_comes_late(ground: Ground) -> None:
    await ground.inbox.put(flood(MAX_UNKNOWN_TABLES))
    await fold_all(ground)
    ground.clock.turn(FIRST)
    while await looks(ground):
        pass
    await ground.inbox.put([intent("too many", STOCK)])
    ground.clock.turn(FIRST)
    assert await looks(ground) == ["prod"]


async def test_second_answer_costs_no_check(ground: Ground) -> None:
    await ground.inbox.put([intent("a"), IntentOutcome("a", is_known=False)])
    await fold_all(ground)
    ground.clock.turn(FIRST)
    await ground.inbox.put([IntentOutcome("a", is_known=True)])
    assert await looks(ground) == ["prod:sales.orders"]


# ── Bounds, pruning, and what claims find


async def test_receivers_fold_when_too_many_records_wait(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepting never refuses for want of a worker; it only takes as long as folding."""
    monkeypatch.setattr(facade, "FOLD_LIMIT", 5)
    for number in range(40):
        assert await ground.inbox.put([Notification(ORDERS, "etl", f"{number}")]) == PutResult(1, 0)
    assert 0 < (await ground.inbox.fold()).records <= 6


async def test_statistics_count_what_is_not_applied_yet(ground: Ground) -> None:
    arrived = ground.now
    await ground.hint(ORDERS)
    ground.clock.turn(5)
    await ground.hint(RETURNS)
    figures = await ground.inbox.stats()
    applied = sum(figures.tables.values())
    assert applied + figures.unapplied == 2
    assert figures.oldest_unapplied == (arrived if figures.unapplied else None)
    assert (figures.queued, figures.oldest_queued) == (0, None)


async def test_pruning_keeps_what_is_not_applied_yet(ground: Ground) -> None:
    await ground.inbox.put([Notification(ORDERS, "etl", "e1", min_metadata_location=pointer(3))])
    ground.clock.turn(30 * DAY)
    assert await ground.inbox.run_maintenance_once(timedelta(days=7)) == 0
    assert (await ground.claim()).pending.min_metadata_location == pointer(3)
    assert await ground.inbox.run_maintenance_once(timedelta(days=7)) == 1
    assert await ground.inbox.put([Notification(ORDERS, "etl", "e1")]) == PutResult(1, 0)


async def test_pruning_ends_at_the_first_record_that_is_not_old(ground: Ground) -> None:
    for name in ("e1", "e2", "e3"):
        await ground.inbox.put([Notification(ORDERS, "etl", name)])
        ground.clock.turn(DAY)
    await fold_all(ground)
    assert await ground.inbox.run_maintenance_once(timedelta(days=1.5)) == 2
    results = [await ground.inbox.put([Notification(ORDERS, "etl", name)]) for name in ("e1", "e2", "e3")]
    assert results == [PutResult(1, 0), PutResult(1, 0), PutResult(0, 1)]


async def test_claim_folds_all_that_waits_so_that_one_check_covers_it(ground: Ground) -> None:
    names = [table(f"t{number}") for number in range(7)]
    await ground.inbox.put([Notification(names[number % 7]) for number in range(MANY)])
    assert len(await ground.claims()) == 7
    assert await ground.inbox.fold() == FoldResult()


async def test_background_jobs_are_found_behind_those_that_an_event_moves(ground: Ground) -> None:
    """The claim reads the first jobs of a group before the fold takes them out of it."""
    for number, name in enumerate((ORDERS, RETURNS, STOCK)):
        await ground.published(name, f"s3://lake/{name.name}", f"u{number}", due=10)
    ground.clock.turn(20)
    await ground.hint(ORDERS, RETURNS)
    claimed = await ground.inbox.claim(Capacity(total=1, live=0, sweeps=0))
    found = subjects(claimed.jobs)
    assert found == ["prod:sales.stock"] or (claimed.next_due is not None and claimed.next_due <= ground.now)


@pytest.mark.parametrize("messages", [[ODD], [intent("a")], [IntentOutcome("a", is_known=True)]])
async def test_results_count_notifications_only(ground: Ground, messages: Sequence[Any]) -> None:
    assert await ground.inbox.put([*messages, Notification(ORDERS, "etl", "e1")]) == PutResult(1, 0)
    assert await ground.inbox.put([*messages, Notification(ORDERS, "etl", "e1")]) == PutResult(0, 1)
    assert (await ground.inbox.claim(PLENTY)).fold.records == 2 * len(messages) + 1


async def test_leases_and_attempts_outlast_events_that_come_meanwhile(ground: Ground) -> None:
    await ground.hint(ORDERS)
    claim = await ground.claim()
    for _ in range(3):
        await ground.hint(ORDERS)
        assert await ground.claims() == []
    ground.clock.turn(TERMS.lease.total_seconds() - 1)
    assert await ground.inbox.renew([claim]) == [claim]
    await ground.settle(claim, Done(ground.after(3600)))
    assert (await ground.claim()).attempt == 1


async def test_seen_tables_have_no_second_check_for_one_event(ground: Ground) -> None:
    await seen(ground, ORDERS)
    assert await looks(ground) == []
    await ground.hint(ORDERS)
    assert await looks(ground) == ["prod:sales.orders"]
    assert await looks(ground) == []


# ── Pauses between folds


async def waited(ground: Ground, capacity: Capacity = PLENTY) -> list[str]:
    """The jobs that a worker's claim leases, which waits for them for a minute at most."""
    return subjects((await ground.inbox.claim(capacity, (), ground.after(60))).jobs)


async def test_event_after_a_large_fold_waits_for_the_next_one(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facade, "FOLD_PAUSE", 0.3)
    await ground.inbox.put([Notification(ORDERS), Notification(ORDERS)])
    began = anyio.current_time()
    assert await waited(ground) == ["prod:sales.orders"]
    await ground.inbox.put([Notification(STOCK)])
    assert (await ground.inbox.fold()).records == 1  # a small fold does not end the pause of a large one
    await ground.inbox.put([Notification(RETURNS)])
    with anyio.fail_after(30):
        assert sorted(await waited(ground)) == ["prod:sales.returns", "prod:sales.stock"]
    assert anyio.current_time() >= began + 0.4


async def test_claim_leases_without_a_fold_what_is_due(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facade, "FOLD_PAUSE", 600)
    monkeypatch.setattr(facade, "MAX_FOLD_PAUSE", 600)
    one = Capacity(1, 1, 1)
    await ground.inbox.put([Notification(ORDERS), Notification(STOCK)])
    first = await waited(ground, one)
    await ground.inbox.put([Notification(RETURNS)])
    assert sorted([*first, *await waited(ground, one)]) == ["prod:sales.orders", "prod:sales.stock"]


async def test_interrupt_ends_a_pause(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facade, "FOLD_PAUSE", 600)
    monkeypatch.setattr(facade, "MAX_FOLD_PAUSE", 600)
    await ground.inbox.put([Notification(ORDERS)])
    assert await waited(ground) == ["prod:sales.orders"]
    await ground.inbox.put([Notification(STOCK)])
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waited, ground)
            await anyio.sleep(0.2)
            ground.inbox.interrupt()
    assert subjects((await ground.inbox.claim(PLENTY)).jobs) == ["prod:sales.stock"]


async def test_claim_after_one_that_leased_jobs_waits_at_once(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due by then is what the first one left, or what came since."""
    claims: list[ClaimRequest] = []
    claim = operations.Operations.claim

    async def counted(
        self: Operations, transaction: Transaction, request: ClaimRequest, made: list[LeasedJob]
    ) -> ClaimResult:
        claims.append(request)
        return await claim(self, transaction, request, made)

    monkeypatch.setattr(operations.Operations, "claim", counted)
    await ground.inbox.put([Notification(ORDERS)])
    assert await waited(ground) == ["prod:sales.orders"]
    first = len(claims)
    await ground.inbox.put([Notification(STOCK)])
    with anyio.fail_after(30):
        assert await waited(ground) == ["prod:sales.stock"]
    assert len(claims) == first + 1


@pytest.mark.parametrize("interrupted", [True, False])
async def test_claim_finds_what_the_last_one_had_no_capacity_for(ground: Ground, *, interrupted: bool) -> None:
    one = Capacity(1, 1, 1)
    await ground.inbox.put([Notification(ORDERS), Notification(STOCK)])
    first = await waited(ground, one)
    if interrupted:
        ground.inbox.interrupt()
    with anyio.fail_after(30):
        assert sorted([*first, *await waited(ground, one)]) == ["prod:sales.orders", "prod:sales.stock"]
