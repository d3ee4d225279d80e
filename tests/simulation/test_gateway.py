"""Directed histories of commits that pass through a gateway: no event is sent, nothing is swept, and none is lost.

Most are killed by a patch in `tests/mutants`, which is what shows that they can fail.
"""

from __future__ import annotations

import asyncio

import pytest

from sfn.publish.policy import TableFilter
from tests.simulation.faults import CUT, REFUSED, SILENT, Fate
from tests.simulation.gateway import SILENCE
from tests.simulation.rest_catalog import (
    committed,
    committed_first,
    committed_together,
    created,
    dropped,
    emptied,
    renamed,
)
from tests.simulation.script import (
    ELSEWHERE,
    FIRST,
    HALF_AN_HOUR,
    LAGGING,
    LAST,
    MINUTE,
    PLACE,
    SECOND,
    SOON,
    Gated,
    KilledAtCall,
    history,
    named,
)

FULL = 60.0
"""Seconds for which the inbox takes nothing."""


@history(Gated, briefly=True)
async def test_an_answered_commit_is_published_at_once(stage: Gated) -> None:
    table = await stage.begin()
    assert await stage.ask(committed(named("a"), table)) == 200
    await asyncio.sleep(SOON)
    assert stage.is_published("a")
    assert stage.open_intents() == []


@history(lambda: Gated(lagging=0.9), briefly=True)
async def test_of_an_answer_that_broke_off_the_commit_is_known(stage: Gated) -> None:
    """There is no location in it to compare a lagging replica's answer with."""
    table = await stage.begin()
    assert await stage.ask(committed(named("a"), table), Fate(whole=False)) == 200
    assert stage.open_intents() == []
    await asyncio.sleep(LAGGING)
    assert stage.is_published("a")


@history(Gated, briefly=True)
async def test_who_is_killed_before_the_intent_has_forwarded_nothing(stage: Gated) -> None:
    table = await stage.begin()
    stage.service.script = KilledAtCall("before append")
    stage.send(committed(named("a"), table))
    await asyncio.sleep(LAST)
    assert len(stage.server.asked) == 1


@history(Gated, briefly=True)
async def test_what_was_noted_and_never_forwarded_is_asked_for_in_vain(stage: Gated) -> None:
    table = await stage.begin()
    stage.service.script = KilledAtCall("before forward")
    stage.send(committed(named("a"), table))
    await asyncio.sleep(LAST - 1)
    assert len(stage.server.asked) == 1
    assert stage.open_intents() == [named("a")]


@history(Gated, briefly=True)
async def test_an_intent_that_is_applied_without_a_claim_stays_open(stage: Gated) -> None:
    table = await stage.begin()
    forwarding = stage.hold("before forward")
    stage.send(committed(named("a"), table))
    await forwarding.reached.wait()
    assert (await stage.service.kept.operator.fold()).records == 1
    assert stage.open_intents() == [named("a")]
    forwarding.go.set()


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


@history(Gated, briefly=True)
async def test_a_commit_is_published_though_the_gateway_died_before_it_noted_the_answer(stage: Gated) -> None:
    table = await stage.begin()
    stage.service.script = KilledAtCall("before append", 2)
    assert await stage.send(committed(named("a"), table)) == 200
    await asyncio.sleep(FIRST + SOON)
    assert stage.is_published("a")


@history(Gated, briefly=True)
async def test_nothing_comes_between_the_end_of_an_intent_and_the_hint(stage: Gated) -> None:
    """They are one transaction: whoever dies has made both, or neither."""
    table = await stage.begin()
    stage.service.script = KilledAtCall("before append", 3)
    assert await stage.send(committed(named("a"), table)) == 200
    await asyncio.sleep(FIRST + SOON)
    assert stage.is_published("a")


@pytest.mark.parametrize("status", [409, 503, CUT])
@history(Gated, briefly=True)
async def test_a_commit_that_is_made_half_an_hour_after_an_answer_that_told_nothing_is_published(
    stage: Gated, status: int
) -> None:
    table = await stage.begin()
    assert await stage.ask(committed(named("a"), table), Fate(HALF_AN_HOUR, 1, status)) == (status or 502)
    await asyncio.sleep(LAST + SOON)
    assert stage.table("a") != table
    assert stage.is_published("a")


@history(Gated, briefly=True)
async def test_a_commit_that_is_never_answered_is_published(stage: Gated) -> None:
    table = await stage.begin()
    assert await stage.ask(committed(named("a"), table), Fate(MINUTE, SILENT)) == 504
    await asyncio.sleep(FIRST + SOON)
    assert stage.is_published("a")


@history(Gated, briefly=True)
async def test_the_asks_are_counted_from_an_answer_that_told_nothing(stage: Gated) -> None:
    """What stands before the catalog may have kept the request for long, and the catalog begins only then."""
    table = await stage.begin()
    kept_for = SILENCE - 10
    assert await stage.ask(committed(named("a"), table), Fate(kept_for + HALF_AN_HOUR, kept_for, 503)) == 503
    await asyncio.sleep(LAST + SOON)
    assert stage.table("a") != table
    assert stage.is_published("a")


@pytest.mark.parametrize("status", REFUSED)
@history(Gated, briefly=True)
async def test_a_refused_commit_is_not_asked_for(stage: Gated, status: int) -> None:
    table = await stage.begin()
    looks = stage.world.counts["done"]
    assert await stage.ask(committed(named("a"), table), Fate(None, 1, status)) == status
    assert stage.open_intents() == []
    await asyncio.sleep(LAST)
    assert stage.world.counts["done"] == looks


@history(Gated, briefly=True)
async def test_a_drop_that_a_balancer_sent_twice_is_published_at_once(stage: Gated) -> None:
    await stage.begin()
    assert await stage.ask(dropped(named("a")), Fate(twice=True)) == 404
    assert stage.open_intents() == []
    await asyncio.sleep(LAGGING)
    assert stage.states(["a"]) == {"dropped": 1}


@history(Gated, briefly=True)
async def test_a_create_that_a_balancer_sent_twice_is_published(stage: Gated) -> None:
    assert await stage.ask(created(named("a"), PLACE), Fate(twice=True)) == 409
    await asyncio.sleep(FIRST + SOON)
    assert stage.is_published("a")


@history(Gated, briefly=True)
async def test_a_drop_among_too_many_that_are_not_found_is_asked_for(stage: Gated) -> None:
    """Whoever makes up names has the inbox filled by none of them, and hides nothing behind them."""
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


@history(Gated, briefly=True)
async def test_the_success_of_one_writer_says_nothing_of_another_one_that_was_cut_off(stage: Gated) -> None:
    table = await stage.begin()
    cut_off = stage.send(committed(named("a"), table), Fate(HALF_AN_HOUR, 4, CUT))
    await asyncio.sleep(1)
    assert await stage.ask(committed(named("a"), table)) == 200
    assert await cut_off == 502
    second = stage.table("a")
    await asyncio.sleep(LAST + SOON)
    assert stage.table("a") != second
    assert stage.is_published("a")


@history(Gated, briefly=True)
async def test_the_success_of_one_writer_closes_no_intent_of_a_gateway_that_died(stage: Gated) -> None:
    table = await stage.begin()
    stage.send(committed(named("a"), table), Fate(HALF_AN_HOUR, SILENT))
    await asyncio.sleep(1)
    stage.kill()
    assert await stage.ask(committed(named("a"), table)) == 200
    await asyncio.sleep(LAST + SOON)
    assert stage.is_published("a")


@history(Gated, briefly=True)
async def test_a_client_that_gave_up_has_its_commit_published(stage: Gated) -> None:
    """One that was gone before its body came has forwarded nothing, and nothing is noted of it."""
    table = await stage.begin()
    stage.send(committed(named("a"), table), Fate(MINUTE))
    stage.send(committed(named("a"), table), goes=True)
    await asyncio.sleep(MINUTE + SOON)
    assert stage.is_published("a")
    assert len(stage.server.asked) == 2
    assert stage.open_intents() == []


@pytest.mark.parametrize("fate", [Fate(), Fate(ended=1, status=CUT)], ids=["answered", "cut off"])
@history(Gated, briefly=True)
async def test_of_a_rename_the_new_name_gets_its_file_and_the_old_one_leads_there(stage: Gated, fate: Fate) -> None:
    await stage.begin()
    await stage.ask(renamed(named("a"), named("b")), fate)
    await asyncio.sleep(SECOND)
    assert stage.is_published("b")
    assert stage.states(["a"]) == {"renamed": 1}


@pytest.mark.parametrize("fate", [Fate(), Fate(ended=1, status=CUT)], ids=["answered", "cut off"])
@history(lambda: Gated(table_filter=TableFilter(exclude=("n.hidden",))), briefly=True)
async def test_of_a_rename_to_what_is_not_published_the_old_name_is_looked_at(stage: Gated, fate: Fate) -> None:
    """Its new name has nobody look at it."""
    await stage.begin()
    await stage.ask(renamed(named("a"), named("hidden")), fate)
    await asyncio.sleep(SECOND)
    assert stage.states(["a"]) == {"dropped": 1}
    await stage.ask(dropped(named("hidden")))


@history(lambda: Gated(lagging=0.9), briefly=True)
async def test_every_table_of_a_transaction_is_published(stage: Gated) -> None:
    tables = [(named("a"), await stage.begin()), (named("b"), await stage.begin("b", ELSEWHERE))]
    assert await stage.ask(committed_together(tables)) == 204
    await asyncio.sleep(LAGGING)
    assert stage.is_published("a")
    assert stage.is_published("b")


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


@history(Gated, briefly=True)
async def test_a_namespace_that_was_dropped_with_its_tables_has_the_catalog_swept(stage: Gated) -> None:
    await stage.begin()
    await stage.begin("b", ELSEWHERE)
    assert await stage.ask(emptied(named("a"))) == 204
    await asyncio.sleep(SECOND)
    assert stage.states(["a", "b"]) == {"dropped": 2}


@pytest.mark.parametrize("is_told", [False, True])
@history(Gated, briefly=True)
async def test_a_name_that_had_a_table_is_looked_at_again_where_a_replica_does_not_know_its_new_one(
    stage: Gated, is_told: bool
) -> None:
    """Be it that the end of the one before was told of, or not: nobody knows which came first."""
    stage.service.script = KilledAtCall(f"before write {PLACE}/metadata/_sfn/n_a_main.ver")
    assert await stage.ask(created(named("a"), PLACE)) == 200
    if is_told:
        assert await stage.ask(dropped(named("a"))) == 204
    else:
        stage.drop("a")
    await asyncio.sleep(MINUTE)
    assert stage.states(["a"]) == {}
    stage.world.faults.lagging, stage.world.faults.least_lag = 1.0, 3.0
    assert await stage.ask(created(named("a"), ELSEWHERE)) == 200
    await asyncio.sleep(LAGGING)
    assert stage.is_published("a")


def fill(stage: Gated, seconds: float = FULL) -> None:
    """Have the inbox take nothing from now on, for a while."""
    stage.world.faults.inbox_full.append((stage.world.time, stage.world.time + seconds))


@history(lambda: Gated("refuse"), briefly=True)
async def test_a_commit_that_can_not_be_noted_is_refused_where_it_is_not_to_pass(stage: Gated) -> None:
    table = await stage.begin()
    fill(stage)
    assert await stage.ask(committed(named("a"), table)) == 503
    assert len(stage.server.asked) == 1


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


@history(lambda: Gated("pass"), briefly=True)
async def test_a_sweep_that_comes_before_the_catalogs_replicas_have_heard_is_not_the_last(stage: Gated) -> None:
    table = await stage.begin()
    fill(stage, 12)
    stage.world.faults.lagging, stage.world.faults.least_lag, stage.world.faults.lag = 1.0, 5.0, 6.0
    assert await stage.send(committed(named("a"), table)) == 200
    await asyncio.sleep(FULL)
    assert stage.world.counts["swept"] > 1
    assert stage.is_published("a")


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
@history(Gated, briefly=True)
async def test_so_is_one_whose_answer_does_not_tell_what_became_of_it(stage: Gated, status: int) -> None:
    table = await stage.begin()
    stage.gateway.doubts()
    assert await stage.ask(committed(named("a"), table), Fate(HALF_AN_HOUR, 1, status)) == (status or 502)
    await asyncio.sleep(LAST + SOON)
    assert stage.table("a") != table
    assert stage.is_published("a")


@pytest.mark.parametrize("status", REFUSED)
@history(Gated, briefly=True)
async def test_who_does_not_say_who_it_is_and_is_refused_costs_no_note(stage: Gated, status: int) -> None:
    table = await stage.begin()
    stage.gateway.doubts()
    # The inbox takes nothing: to note it before would end in a 503, to note it afterwards in a debt.
    fill(stage)
    assert await stage.ask(committed(named("a"), table), Fate(None, 1, status)) == status
    assert not stage.gateway.owes


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
