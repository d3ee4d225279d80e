"""What a worker makes of trouble: no wish and no error ends it, and no table is given up for good."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from typing_extensions import override

from sfn.errors import NamedOtherwise, Permanent, Scope, Transient
from sfn.inbox.letters import Wanted
from sfn.words import CatalogName, Cause, Dead, Done, Lane, Later, Outcome, Reason, Released, Retry, TableName, Urgency
from sfn.work.retry import LONGEST_WISH, RetryPolicy
from sfn.work.worker import SURPRISES, Terms
from tests.unit.working import REFRESH, TABLE, Desk

WISHES = [1e9, 1e300, float("inf"), float("nan"), -1e300]
LIVE = Lane("prod", "file://", Urgency.LIVE)


class Unspeakable(Exception):
    """An error that can't even be told."""

    @override
    def __str__(self) -> str:
        raise RuntimeError("unspeakable")


def busy(scope: Scope, wish: float | None) -> Callable[[], Exception]:
    return lambda: Transient("there", scope=scope, expected="an answer", found="none", retry_after=wish)


def refused(scope: Scope = Scope.TABLE) -> Exception:
    return Permanent("there", scope=scope, expected="leave", found="none")


def desk(terms: Terms | None = None) -> Desk:
    """A worker, and the table that it is told of."""
    made = Desk(terms)
    made.catalog.create(TABLE)
    return made


def the_only(outcomes: list[Outcome]) -> Outcome:
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("scope", [Scope.TABLE, Scope.CATALOG, Scope.STORE])
async def test_no_wish_ends_the_worker_or_holds_it_up_for_longer_than_five_minutes(scope: Scope, wish: float) -> None:
    made = desk()
    made.trouble = busy(scope, wish)
    outcome = the_only(await made.hear())
    assert isinstance(outcome, Retry if scope is Scope.TABLE else Released)
    now = made.clock.now()
    assert now < outcome.at <= now + LONGEST_WISH
    assert made.book.surprises == []
    made.trouble = None
    await made.wait_until(outcome.at)
    assert isinstance(the_only(await made.work()), Done)


@pytest.mark.parametrize("wish", WISHES)
async def test_no_wish_holds_up_a_sweep_for_longer_than_five_minutes(wish: float) -> None:
    made = desk()
    trouble = busy(Scope.TABLE, wish)()
    assert isinstance(trouble, Transient)
    made.catalog.trouble = trouble
    outcome = the_only(await made.hear(CatalogName("prod")))
    assert isinstance(outcome, Retry)
    assert outcome.at <= made.clock.now() + LONGEST_WISH


@pytest.mark.parametrize("broken", [False, True], ids=["told", "untold"])
async def test_an_error_that_nobody_can_tell_is_an_outcome_too(broken: bool) -> None:
    made = desk()
    made.book.broken = broken
    made.trouble = Unspeakable
    assert the_only(await made.hear()) == Retry(made.clock.now() + LONGEST_WISH, "Unspeakable", Cause.DEFECT)
    assert any(isinstance(error, Unspeakable) for error in made.book.surprises)


async def test_trouble_that_nobody_can_tell_is_an_outcome_too() -> None:
    made = desk()
    made.trouble = lambda: Permanent("there", scope=Scope.TABLE, expected=Unspeakable(), found="none")  # type: ignore[arg-type]
    assert the_only(await made.hear()) == Retry(made.clock.now() + LONGEST_WISH, "Permanent", Cause.DEFECT)
    assert [type(error) for error in made.book.surprises] == [RuntimeError]


async def test_a_name_that_the_catalogs_paths_can_not_say_has_the_other_name_looked_at_and_no_dead_letter() -> None:
    made, guess = Desk(), TableName("prod", ("a.b",), "t")
    other = TableName("prod", ("a", "b"), "t")
    made.catalog.trouble = NamedOtherwise("there", expected="a name", found="another", instead=("a", "b"))
    outcome = the_only(await made.hear(guess))
    assert isinstance(outcome, Done)
    assert (outcome.forget, [ask.table for ask in outcome.findings.asks]) == (True, [other])
    assert await made.inbox.find(Wanted(status=None), 0, 9) == []


async def test_one_that_has_a_file_of_ours_is_refused() -> None:
    """Its file would say for ever what it says now: an operator has to know."""
    made = desk()
    await made.hear()
    made.catalog.trouble = NamedOtherwise("there", expected="a name", found="another", instead=("a", "b"))
    outcome = the_only(await made.hear())
    assert isinstance(outcome, Dead)
    assert outcome.reason is Reason.PERMANENT


async def test_a_table_that_was_refused_by_mistake_heals_without_an_event() -> None:
    made = desk()
    made.trouble = refused
    outcome = the_only(await made.hear())
    assert isinstance(outcome, Dead)
    assert (outcome.reason, outcome.findings) == (Reason.PERMANENT, None)
    assert outcome.look_at == made.clock.now() + REFRESH
    made.trouble = None
    await made.wait_until(outcome.look_at)
    assert isinstance(the_only(await made.work()), Done)
    assert [letter.status.value for letter in await made.inbox.find(Wanted(status=None), 0, 9)] == ["superseded"]


async def test_a_table_that_is_refused_again_waits_again() -> None:
    made = desk()
    made.trouble = refused
    await made.hear()
    for _ in range(3):
        await made.wait_until(made.clock.now() + REFRESH)
        outcome = the_only(await made.work())
        assert isinstance(outcome, Dead)
        assert outcome.look_at == made.clock.now() + REFRESH
    assert [letter.status.value for letter in await made.inbox.find(Wanted(status=None), 0, 9)] == ["open"]


async def test_a_table_whose_budget_is_spent_is_looked_at_again() -> None:
    made = desk(Terms(retry=RetryPolicy(max_attempts=1)))
    made.trouble = busy(Scope.TABLE, None)
    outcome = the_only(await made.hear())
    assert isinstance(outcome, Dead)
    assert (outcome.reason, outcome.look_at) == (Reason.EXHAUSTED, made.clock.now() + REFRESH)


async def test_poison_is_left_alone_for_long() -> None:
    made = desk()
    made.trouble = RuntimeError
    outcomes = await made.hear()
    while isinstance(outcomes[-1], Retry):
        await made.wait_until(outcomes[-1].at)
        outcomes += await made.work()
    assert len(outcomes) == SURPRISES
    assert isinstance(outcomes[-1], Dead)
    assert (outcomes[-1].reason, outcomes[-1].look_at) == (Reason.POISON, made.clock.now() + REFRESH)


async def test_a_catalogs_pauses_grow_as_a_tables_do() -> None:
    made = desk(Terms(retry=RetryPolicy(base=timedelta(seconds=2), cap=timedelta(seconds=13), max_attempts=2)))
    made.catalog.trouble = Transient("there", scope=Scope.TABLE, expected="an answer", found="none")
    outcome = the_only(await made.hear(CatalogName("prod")))
    for pause in (1.5, 3, 6, 9.75, 9.75):
        assert isinstance(outcome, Retry)
        assert outcome.at == made.clock.now() + timedelta(seconds=pause)
        await made.wait_until(outcome.at)
        outcome = the_only(await made.work())


@pytest.mark.parametrize("base", [timedelta(days=1), timedelta(days=900_000_000)])
async def test_no_base_is_too_long_for_a_catalog(base: timedelta) -> None:
    made = desk(Terms(retry=RetryPolicy(base=base)))
    made.catalog.trouble = Transient("there", scope=Scope.TABLE, expected="an answer", found="none")
    outcome = the_only(await made.hear(CatalogName("prod")))
    for _ in range(40):
        assert isinstance(outcome, Retry)
        assert outcome.at <= made.clock.now() + timedelta(minutes=5)
        await made.wait_until(outcome.at)
        outcome = the_only(await made.work())
    assert made.book.surprises == []


async def test_who_never_asked_a_store_tells_nothing_of_it() -> None:
    """A table that was created and not written yet has no files to look at."""
    made = desk()
    await made.hear()
    made.trouble = busy(Scope.STORE, None)
    made.catalog.commit(TABLE)
    outcome = the_only(await made.hear())
    assert isinstance(outcome, Released)
    made.trouble = None
    made.catalog.drop(TABLE)
    made.catalog.stage(TABLE)
    await made.wait_until(outcome.at)
    assert isinstance(the_only(await made.work()), Done)
    await made.work()
    assert made.inbox.slots.of(LIVE) == 1
    made.catalog.create(TABLE)
    assert isinstance(the_only(await made.hear()), Later)
    await made.work()
    assert made.inbox.slots.of(LIVE) == 2
