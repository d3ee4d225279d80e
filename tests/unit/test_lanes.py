"""What may run while a catalog or a store is in trouble."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sfn.errors import Scope
from sfn.words import Lane, Urgency
from sfn.work.lanes import FIRST, LONGEST, Lanes

NOW = datetime(2026, 8, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LANE = Lane("prod", "s3://lake", Urgency.LIVE)
MANY = 32
OF_TWO = MANY - MANY // 4
"""What one of two catalogs may take."""


def lanes(*seen: Lane) -> Lanes:
    """Lanes of which each has had a claim."""
    made = Lanes(MANY)
    for lane in seen or (LANE,):
        made.started(lane)
        made.ended(lane)
    return made


def free(made: Lanes, lane: Lane = LANE, at: datetime = NOW) -> int:
    return made.slots(at).of(lane)


@pytest.mark.parametrize("wish", [1e9, 1e300, float("inf")])
@pytest.mark.parametrize("scope", [Scope.CATALOG, Scope.STORE])
def test_no_wish_closes_a_lane_for_more_than_five_minutes(scope: Scope, wish: float) -> None:
    made = lanes()
    assert made.trouble(LANE, scope, NOW, wish).until == NOW + timedelta(seconds=300)
    assert free(made, at=NOW + timedelta(seconds=300)) == 1


@pytest.mark.parametrize("wish", [float("nan"), -1e300, None])
def test_what_is_no_wish_is_none(wish: float | None) -> None:
    assert lanes().trouble(LANE, Scope.CATALOG, NOW, wish).until == NOW + FIRST


def test_what_was_in_flight_when_a_breaker_opened_does_not_close_it() -> None:
    made = lanes()
    until = made.trouble(LANE, Scope.CATALOG, NOW, 60).until
    for _ in range(20):
        made.success(LANE, NOW + SECOND, stored=True)
    assert free(made, at=NOW + SECOND) == 0
    assert made.reopens_at(NOW + SECOND) == until
    assert free(made, at=until) == 1


def test_half_open_each_success_doubles_what_may_run() -> None:
    made = lanes()
    at = made.trouble(LANE, Scope.STORE, NOW, None).until
    widths = []
    for _ in range(5):
        widths.append(free(made, at=at))
        made.success(LANE, at, stored=True)
    assert widths == [1, 2, 4, 8, 16]
    assert free(made, at=at) == MANY - 1


def test_of_two_wishes_the_later_is_kept() -> None:
    made = lanes()
    assert made.trouble(LANE, Scope.CATALOG, NOW, 10).until == NOW + 10 * SECOND
    assert made.trouble(LANE, Scope.CATALOG, NOW + SECOND, 60).until == NOW + 61 * SECOND
    assert made.trouble(LANE, Scope.CATALOG, NOW + SECOND, 5).until == NOW + 61 * SECOND
    assert made.reopens_at(NOW) == NOW + 61 * SECOND


def test_troubles_at_the_same_time_are_one() -> None:
    made = lanes()
    for _ in range(20):
        assert made.trouble(LANE, Scope.CATALOG, NOW, None).until == NOW + FIRST


def test_each_trouble_after_a_probe_doubles_the_pause() -> None:
    made, at = lanes(), NOW
    for pause in (FIRST, min(2 * FIRST, LONGEST), min(4 * FIRST, LONGEST)):
        before, at = at, made.trouble(LANE, Scope.STORE, at, None).until
        assert at == before + pause


def test_a_breaker_is_of_its_own_catalog_or_store() -> None:
    same_store, same_catalog = Lane("other", "s3://lake", Urgency.CHORE), Lane("prod", "s3://else", Urgency.CHORE)
    made = lanes(LANE, same_store, same_catalog)
    made.trouble(LANE, Scope.STORE, NOW, None)
    assert [free(made, lane) for lane in (LANE, same_store, same_catalog)] == [0, 0, OF_TWO]
    made = lanes(LANE, same_store, same_catalog)
    made.trouble(LANE, Scope.CATALOG, NOW, None)
    assert [free(made, lane) for lane in (LANE, same_store, same_catalog)] == [0, OF_TWO, 0]


def test_a_store_that_is_not_known_yet_is_its_catalogs_own() -> None:
    """What one bucket refuses says nothing of the first publishes of other catalogs."""
    unknown, others = Lane("prod", "", Urgency.LIVE), Lane("other", "", Urgency.LIVE)
    made = lanes(unknown, others)
    made.trouble(unknown, Scope.STORE, NOW, None)
    assert free(made, unknown) == 0
    assert free(made, others) == OF_TWO


def test_a_catalog_and_a_store_may_have_the_same_name() -> None:
    made = lanes(LANE, Lane("s3://lake", "", Urgency.LIVE))
    made.trouble(Lane("s3://lake", "", Urgency.LIVE), Scope.STORE, NOW, None)
    assert free(made) == OF_TWO


def test_a_sweep_has_no_store() -> None:
    sweep, first = Lane("prod", "", Urgency.SWEEP), Lane("prod", "", Urgency.LIVE)
    made = lanes(sweep, first)
    at = made.trouble(first, Scope.STORE, NOW, None).until
    assert free(made, sweep) == MANY // 4
    made.success(sweep, at, stored=True)
    assert free(made, first, at) == 1


def test_who_never_asked_the_store_tells_nothing_of_it() -> None:
    made = lanes()
    at = max(made.trouble(LANE, scope, NOW, None).until for scope in (Scope.STORE, Scope.CATALOG))
    for _ in range(10):
        made.success(LANE, at, stored=False)
    assert free(made, at=at) == 1
    made.success(LANE, at, stored=True)
    assert free(made, at=at) == 2


def test_a_catalog_that_hangs_leaves_every_other_its_share() -> None:
    others = [Lane(f"c{number}", "s3://lake", Urgency.LIVE) for number in range(3)]
    made = lanes(LANE, *others)
    while free(made):
        made.started(LANE)
    assert [free(made, lane) for lane in others] == [MANY // 8] * 3
    assert made.slots(NOW).total == 3 * (MANY // 8)
    for _ in range(MANY // 8):
        made.started(others[0])
    assert [free(made, lane) for lane in (LANE, *others)] == [0, 0, MANY // 8, MANY // 8]


def test_a_catalog_alone_may_take_all_but_the_slot_of_the_chores() -> None:
    made = lanes()
    while free(made):
        made.started(LANE)
    assert (made.slots(NOW).total, free(made, replace(LANE, urgency=Urgency.CHORE))) == (1, 1)


def test_short_lived_tables_leave_a_slot_to_others_that_were_told_of() -> None:
    made, first = lanes(), replace(LANE, urgency=Urgency.SHORT_LIVED)
    while free(made, first):
        made.started(first)
    assert [free(made, lane) for lane in (first, LANE, replace(LANE, urgency=Urgency.CHORE))] == [0, 1, 2]
    made = Lanes(1)
    assert free(made, first) == 1


def test_a_lane_that_had_no_claim_yet_has_the_breakers_of_its_rows_other_lanes() -> None:
    made, first = lanes(), replace(LANE, urgency=Urgency.SHORT_LIVED)
    until = made.trouble(LANE, Scope.STORE, NOW, None).until
    assert [free(made, first, at) for at in (NOW, until)] == [0, 1]


def test_a_sweep_does_not_take_the_slot_that_tables_probe_with() -> None:
    sweep = Lane("prod", "", Urgency.SWEEP)
    made = lanes(LANE, sweep)
    made.started(sweep)
    until = made.trouble(LANE, Scope.CATALOG, NOW, None).until
    assert (free(made, at=NOW), free(made, at=until), free(made, sweep, until)) == (0, 1, 0)
    made.started(LANE)
    assert free(made, at=until) == 0


def test_a_breaker_says_since_when_nothing_succeeds_and_why() -> None:
    made = lanes()
    until = made.trouble(LANE, Scope.CATALOG, NOW, None, "no answer").until
    made.trouble(LANE, Scope.CATALOG, until, None, "no route")
    (breaker,) = made.breakers(until)
    assert (breaker.since, breaker.error) == (NOW, "no route")


def test_what_fails_anew_is_away_since_then() -> None:
    made = lanes()
    until = made.trouble(LANE, Scope.CATALOG, NOW, None, "no answer").until
    (back,) = made.success(LANE, until, stored=False)
    assert (back.name, back.since) == ("prod", NOW)
    assert made.success(LANE, until, stored=False) == []
    assert made.trouble(LANE, Scope.CATALOG, until + SECOND, None, "no route").since == until + SECOND


def test_a_shortage_of_the_process_holds_up_every_lane() -> None:
    others = [LANE, Lane("other", "s3://else", Urgency.CHORE), Lane("other", "", Urgency.SWEEP)]
    made = lanes(*others)
    at = made.trouble(LANE, Scope.PROCESS, NOW, None).until
    assert [free(made, lane) for lane in others] == [0, 0, 0]
    assert [free(made, lane, at) for lane in others] == [1, 1, 1]
    made.started(LANE)
    assert [free(made, lane, at) for lane in others] == [0, 0, 1]
    made.ended(LANE)
    made.success(others[1], at, stored=False)
    assert free(made, at=at) == 2
