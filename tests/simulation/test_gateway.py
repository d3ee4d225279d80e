"""Directed histories of commits that pass through a gateway: no event is sent, nothing is swept, and none is lost.

Most are killed by a patch in `tests/mutants`, which is what shows that they can fail.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.fates import CUT, REFUSED, SILENT, Fate
from tests.simulation.gated import FIRST, HALF_AN_HOUR, LAGGING, LAST, MINUTE, SECOND, SOON, Gated, KilledAt
from tests.simulation.gateway import SILENCE
from tests.simulation.requests import committed, created, dropped
from tests.simulation.script import PLACE, named


def test_an_answered_commit_is_published_at_once() -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        assert await stage.ask(committed(named("a"), table)) == 200
        await asyncio.sleep(SOON)
        assert stage.is_published("a")
        assert stage.open_intents() == []

    assert stage.run(act) == []


def test_of_an_answer_that_broke_off_the_commit_is_known() -> None:
    """There is no location in it to compare a lagging replica's answer with."""
    stage = Gated(lagging=0.9)

    async def act() -> None:
        table = await stage.begin()
        assert await stage.ask(committed(named("a"), table), Fate(whole=False)) == 200
        assert stage.open_intents() == []
        await asyncio.sleep(LAGGING)
        assert stage.is_published("a")

    assert stage.run(act) == []


def test_who_is_killed_before_the_intent_has_forwarded_nothing() -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        stage.service.script = KilledAt("before put")
        stage.send(committed(named("a"), table))
        await asyncio.sleep(LAST)
        assert len(stage.server.asked) == 1

    assert stage.run(act) == []


def test_what_was_noted_and_never_forwarded_is_asked_for_in_vain() -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        stage.service.script = KilledAt("before forward")
        stage.send(committed(named("a"), table))
        await asyncio.sleep(LAST - 1)
        assert len(stage.server.asked) == 1
        assert stage.open_intents() == [named("a")]

    assert stage.run(act) == []


@pytest.mark.parametrize("replicas", [0, 2])
def test_a_commit_is_published_though_the_gateway_died_before_the_answer(replicas: int) -> None:
    stage = Gated(replicas=replicas)

    async def act() -> None:
        table = await stage.begin()
        stage.send(committed(named("a"), table), Fate(1, 5))
        await asyncio.sleep(3)
        stage.kill()
        await asyncio.sleep(FIRST - 5)
        assert not stage.is_published("a")
        await asyncio.sleep(2 + 2 * SOON)
        assert stage.is_published("a")

    assert stage.run(act) == []


def test_a_commit_is_published_though_the_gateway_died_before_it_noted_the_answer() -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        stage.service.script = KilledAt("before put", 2)
        assert await stage.send(committed(named("a"), table)) == 200
        await asyncio.sleep(FIRST + SOON)
        assert stage.is_published("a")

    assert stage.run(act) == []


def test_nothing_comes_between_the_end_of_an_intent_and_the_hint() -> None:
    """They are one transaction: whoever dies has made both, or neither."""
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        stage.service.script = KilledAt("before put", 3)
        assert await stage.send(committed(named("a"), table)) == 200
        await asyncio.sleep(FIRST + SOON)
        assert stage.is_published("a")

    assert stage.run(act) == []


@pytest.mark.parametrize("status", [409, 503, CUT])
def test_a_commit_that_is_made_half_an_hour_after_an_answer_that_told_nothing_is_published(status: int) -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        assert await stage.ask(committed(named("a"), table), Fate(HALF_AN_HOUR, 1, status)) == (status or 502)
        await asyncio.sleep(LAST + SOON)
        assert stage.table("a") != table
        assert stage.is_published("a")

    assert stage.run(act) == []


def test_a_commit_that_is_never_answered_is_published() -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        assert await stage.ask(committed(named("a"), table), Fate(MINUTE, SILENT)) == 504
        await asyncio.sleep(FIRST + SOON)
        assert stage.is_published("a")

    assert stage.run(act) == []


def test_the_asks_are_counted_from_an_answer_that_told_nothing() -> None:
    """What stands before the catalog may have kept the request for long, and the catalog begins only then."""
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        kept_for = SILENCE - 10
        assert await stage.ask(committed(named("a"), table), Fate(kept_for + HALF_AN_HOUR, kept_for, 503)) == 503
        await asyncio.sleep(LAST + SOON)
        assert stage.table("a") != table
        assert stage.is_published("a")

    assert stage.run(act) == []


@pytest.mark.parametrize("status", REFUSED)
def test_a_refused_commit_is_not_asked_for(status: int) -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        looks = stage.world.counts["done"]
        assert await stage.ask(committed(named("a"), table), Fate(None, 1, status)) == status
        assert stage.open_intents() == []
        await asyncio.sleep(LAST)
        assert stage.world.counts["done"] == looks

    assert stage.run(act) == []


def test_a_drop_that_a_balancer_sent_twice_is_published_at_once() -> None:
    stage = Gated()

    async def act() -> None:
        await stage.begin()
        assert await stage.ask(dropped(named("a")), Fate(twice=True)) == 404
        assert stage.open_intents() == []
        await asyncio.sleep(LAGGING)
        assert stage.states(["a"]) == {"dropped": 1}

    assert stage.run(act) == []


def test_a_create_that_a_balancer_sent_twice_is_published() -> None:
    stage = Gated()

    async def act() -> None:
        assert await stage.ask(created(named("a"), PLACE), Fate(twice=True)) == 409
        await asyncio.sleep(FIRST + SOON)
        assert stage.is_published("a")

    assert stage.run(act) == []


def test_a_drop_among_too_many_that_are_not_found_is_asked_for() -> None:
    """Whoever makes up names has the inbox filled by none of them, and hides nothing behind them."""
    stage = Gated()

    async def act() -> None:
        await stage.begin()
        # They are counted by the second: all within one, and this one behind them.
        await asyncio.sleep(1 - asyncio.get_running_loop().time() % 1)
        for number in range(60):
            stage.send(dropped(named(f"none {number}")))
        await asyncio.sleep(0.6)
        stage.send(dropped(named("a")), Fate(twice=True))
        await asyncio.sleep(1)
        assert named("a") in stage.open_intents()
        assert len(stage.open_intents()) < 60
        await asyncio.sleep(SECOND)
        assert stage.states(["a"]) == {"dropped": 1}

    assert stage.run(act) == []


def test_the_success_of_one_writer_says_nothing_of_another_one_that_was_cut_off() -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        cut_off = stage.send(committed(named("a"), table), Fate(HALF_AN_HOUR, 4, CUT))
        await asyncio.sleep(1)
        assert await stage.ask(committed(named("a"), table)) == 200
        assert await cut_off == 502
        second = stage.table("a")
        await asyncio.sleep(LAST + SOON)
        assert stage.table("a") != second
        assert stage.is_published("a")

    assert stage.run(act) == []


def test_the_success_of_one_writer_closes_no_intent_of_a_gateway_that_died() -> None:
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        stage.send(committed(named("a"), table), Fate(HALF_AN_HOUR, SILENT))
        await asyncio.sleep(1)
        stage.kill()
        assert await stage.ask(committed(named("a"), table)) == 200
        await asyncio.sleep(LAST + SOON)
        assert stage.is_published("a")

    assert stage.run(act) == []


def test_a_client_that_gave_up_has_its_commit_published() -> None:
    """One that was gone before its body came has forwarded nothing, and nothing is noted of it."""
    stage = Gated()

    async def act() -> None:
        table = await stage.begin()
        stage.send(committed(named("a"), table), Fate(MINUTE))
        stage.send(committed(named("a"), table), goes=True)
        await asyncio.sleep(MINUTE + SOON)
        assert stage.is_published("a")
        assert len(stage.server.asked) == 2
        assert stage.open_intents() == []

    assert stage.run(act) == []
