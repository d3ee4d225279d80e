"""Directed histories of a gateway whose inbox takes nothing for a while."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.fates import CUT, REFUSED, Fate
from tests.simulation.gated import HALF_AN_HOUR, LAGGING, LAST, SOON, Gated
from tests.simulation.requests import committed
from tests.simulation.script import named

FULL = 60.0
"""Seconds for which the inbox takes nothing."""


def fill(stage: Gated, seconds: float = FULL) -> None:
    """Have the inbox take nothing from now on, for a while."""
    stage.world.weather.inbox_full.append((stage.world.time, stage.world.time + seconds))


def test_a_commit_that_can_not_be_noted_is_refused_where_it_is_not_to_pass() -> None:
    stage = Gated("refuse")

    async def act() -> None:
        table = await stage.begin()
        fill(stage)
        assert await stage.ask(committed(named("a"), table)) == 503
        assert len(stage.server.asked) == 1

    assert stage.run(act) == []


def test_a_commit_that_passed_without_a_note_is_found_once_the_inbox_answers() -> None:
    stage = Gated("pass")

    async def act() -> None:
        table = await stage.begin()
        fill(stage)
        ends = stage.world.time + FULL
        assert await stage.ask(committed(named("a"), table)) == 200
        # How long the inbox lets the gateway wait before it says no is drawn.
        await asyncio.sleep(ends - SOON - stage.world.time)
        assert not stage.is_published("a")
        await asyncio.sleep(SOON + LAGGING)
        assert stage.is_published("a")

    assert stage.run(act) == []
    assert stage.world.counts["unnoted"] == 1


def test_a_sweep_that_comes_before_the_catalogs_replicas_have_heard_is_not_the_last() -> None:
    stage = Gated("pass")

    async def act() -> None:
        table = await stage.begin()
        fill(stage, 12)
        stage.world.weather.lagging, stage.world.weather.least_lag, stage.world.weather.lag = 1.0, 5.0, 6.0
        assert await stage.send(committed(named("a"), table)) == 200
        await asyncio.sleep(FULL)
        assert stage.world.counts["swept"] > 1
        assert stage.is_published("a")

    assert stage.run(act) == []


@pytest.mark.parametrize("full", [8.0, FULL])
def test_a_commit_that_passed_without_a_note_and_is_made_much_later_is_asked_for(full: float) -> None:
    """Be it that the inbox answers by the time that the catalog does, or only after that."""
    stage = Gated("pass")

    async def act() -> None:
        table = await stage.begin()
        fill(stage, full)
        assert await stage.send(committed(named("a"), table), Fate(HALF_AN_HOUR, 10, CUT)) == 502
        await asyncio.sleep(LAST + FULL + SOON)
        assert stage.table("a") != table
        assert stage.is_published("a")

    assert stage.run(act) == []
    assert stage.world.counts["unnoted"] == 1


def test_a_commit_of_somebody_whom_the_catalog_should_have_refused_is_found_too() -> None:
    """It is not noted before, as anybody can ask for one."""
    stage = Gated("pass")

    async def act() -> None:
        table = await stage.begin()
        stage.gateway.doubts()
        fill(stage)
        assert await stage.ask(committed(named("a"), table)) == 200
        await asyncio.sleep(FULL + LAGGING)
        assert stage.is_published("a")

    assert stage.run(act) == []
    assert stage.world.counts["unnoted"] == 0


@pytest.mark.parametrize("status", [409, 503, CUT])
def test_so_is_one_whose_answer_does_not_tell_what_became_of_it(status: int) -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        stage.gateway.doubts()
        assert await stage.ask(committed(named("a"), table), Fate(HALF_AN_HOUR, 1, status)) == (status or 502)
        await asyncio.sleep(LAST + SOON)
        assert stage.table("a") != table
        assert stage.is_published("a")

    assert stage.run(act) == []


@pytest.mark.parametrize("status", REFUSED)
def test_who_does_not_say_who_it_is_and_is_refused_costs_no_note(status: int) -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        stage.gateway.doubts()
        # The inbox takes nothing: to note it before would end in a 503, to note it afterwards in a debt.
        fill(stage)
        assert await stage.ask(committed(named("a"), table), Fate(None, 1, status)) == status
        assert not stage.gateway.owes

    assert stage.run(act) == []


def test_what_a_process_owed_is_lost_with_it_until_the_next_sweep() -> None:
    """That is stated: it is remembered in memory alone."""
    stage = Gated("pass")

    async def act() -> None:
        table = await stage.begin()
        fill(stage)
        assert await stage.ask(committed(named("a"), table)) == 200
        await asyncio.sleep(10)
        stage.kill()
        await asyncio.sleep(FULL + LAST)
        assert not stage.is_published("a")
        await stage.sweep()

    assert stage.run(act) == []
    assert stage.world.counts["debt lost"] == 1
