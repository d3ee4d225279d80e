"""Directed histories of commits through a gateway that are of other tables than the path says, or of none.

Each is killed by a patch in `tests/mutants`, which is what shows that it can fail; but for that of a namespace.
"""

from __future__ import annotations

import asyncio

import pytest

from sfn.publish.policy import TableFilter
from tests.simulation.fates import CUT, Fate
from tests.simulation.gated import LAGGING, MINUTE, SECOND, SOON, Gated, KilledAt
from tests.simulation.requests import committed_first, committed_together, created, dropped, emptied, renamed
from tests.simulation.script import ELSEWHERE, PLACE, named


@pytest.mark.parametrize("fate", [Fate(), Fate(ended=1, status=CUT)], ids=["answered", "cut off"])
def test_of_a_rename_the_new_name_gets_its_file_and_the_old_one_leads_there(fate: Fate) -> None:
    stage = Gated()

    async def act() -> None:
        await stage.begin()
        await stage.ask(renamed(named("a"), named("b")), fate)
        await asyncio.sleep(SECOND)
        assert stage.is_published("b")
        assert stage.states(["a"]) == {"renamed": 1}

    assert stage.run(act) == []


@pytest.mark.parametrize("fate", [Fate(), Fate(ended=1, status=CUT)], ids=["answered", "cut off"])
def test_of_a_rename_to_what_is_not_published_the_old_name_is_looked_at(fate: Fate) -> None:
    """Its new name has nobody look at it."""
    stage = Gated(table_filter=TableFilter(exclude=("n.hidden",)))

    async def act() -> None:
        await stage.begin()
        await stage.ask(renamed(named("a"), named("hidden")), fate)
        await asyncio.sleep(SECOND)
        assert stage.states(["a"]) == {"dropped": 1}
        await stage.ask(dropped(named("hidden")))

    assert stage.run(act) == []


def test_every_table_of_a_transaction_is_published() -> None:
    stage = Gated(lagging=0.9)

    async def act() -> None:
        tables = [(named("a"), await stage.begin()), (named("b"), await stage.begin("b", ELSEWHERE))]
        assert await stage.ask(committed_together(tables)) == 204
        await asyncio.sleep(LAGGING)
        assert stage.is_published("a")
        assert stage.is_published("b")

    assert stage.run(act) == []


def test_a_staged_create_is_nothing_to_ask_for_until_its_first_commit() -> None:
    stage = Gated()

    async def act() -> None:
        assert await stage.ask(created(named("a"), PLACE, staged=True), Fate(ended=1, status=503)) == 503
        assert stage.open_intents() == []
        assert await stage.ask(committed_first(named("a"), PLACE)) == 200
        await asyncio.sleep(SOON)
        assert stage.is_published("a")

    assert stage.run(act) == []
    assert stage.world.counts["swept"] == 0


def test_a_namespace_that_was_dropped_with_its_tables_has_the_catalog_swept() -> None:
    stage = Gated()

    async def act() -> None:
        await stage.begin()
        await stage.begin("b", ELSEWHERE)
        assert await stage.ask(emptied(named("a"))) == 204
        await asyncio.sleep(SECOND)
        assert stage.states(["a", "b"]) == {"dropped": 2}

    assert stage.run(act) == []


@pytest.mark.parametrize("is_told", [False, True])
def test_a_name_that_had_a_table_is_looked_at_again_where_a_replica_does_not_know_its_new_one(is_told: bool) -> None:
    """Be it that the end of the one before was told of, or not: nobody knows which came first."""
    stage = Gated()

    async def act() -> None:
        stage.service.script = KilledAt(f"before write {PLACE}/metadata/_sfn/n_a_main.ver")
        assert await stage.ask(created(named("a"), PLACE)) == 200
        if is_told:
            assert await stage.ask(dropped(named("a"))) == 204
        else:
            stage.drop("a")
        await asyncio.sleep(MINUTE)
        assert stage.states(["a"]) == {}
        stage.world.weather.lagging, stage.world.weather.least_lag = 1.0, 3.0
        assert await stage.ask(created(named("a"), ELSEWHERE)) == 200
        await asyncio.sleep(LAGGING)
        assert stage.is_published("a")

    assert stage.run(act) == []
