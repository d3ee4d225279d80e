"""Directed histories of replicas that change the same rows at once.

Each is killed by a patch in `tests/mutants`, which is what shows that it can fail.
"""

from __future__ import annotations

import asyncio

from sfn.inbox.model import AdminCommand
from tests.simulation.replicated import Blocked, Replicated
from tests.simulation.script import ELSEWHERE, PLACE, Held, named
from tests.simulation.setting import Setting

FILE = f"{PLACE}/metadata/_sfn/n_a_main.ver"


def test_who_settle_with_asks_for_each_others_rows_wait_for_nobody_in_a_circle() -> None:
    stage = Replicated()

    async def act() -> None:
        for name, place in (("a", PLACE), ("b", ELSEWHERE)):
            stage.create(name, place)
            await stage.hint(name)
        await asyncio.sleep(20)
        first, second = stage.service.nodes
        settling = Held("after sql get", first), Held("after sql get", second)
        stage.direct(*settling)
        settles = [stage.settle(first, stage.claim("a"), asked="b")]
        await settling[0].reached.wait()
        settles.append(stage.settle(second, stage.claim("b"), asked="a"))
        await asyncio.sleep(1)
        for held in settling:
            held.go.set()
        assert [await settle for settle in settles] == [False, False]

    assert stage.run(act, briefly=True) == []


def test_an_event_that_waited_for_its_row_is_newer_than_what_the_row_was_claimed_for() -> None:
    """Rule 2: a number says what a look has seen, and so must be drawn once nobody else can change the row."""
    stage = Replicated()

    async def act() -> None:
        stage.create("a")
        await stage.hint("a")
        await asyncio.sleep(20)
        first, second = stage.service.nodes
        stage.commit("a")
        late, looking = Held("after sql get", first), Held("after load cat0:n.a")
        stage.direct(late, looking)
        puts = [stage.put(first, named("a"))]
        await late.reached.wait()
        puts.append(stage.put(second, named("a")))
        await asyncio.sleep(1.5)
        last = stage.commit("a")
        late.go.set()
        await asyncio.sleep(1.5)
        looking.go.set()
        await asyncio.sleep(8)
        assert stage.world.checker.document(FILE)["metadata_file_path"] == last.metadata_location
        for put in puts:
            assert (await put).accepted == 1

    assert stage.run(act, briefly=True) == []


def test_what_two_replicas_are_told_of_a_row_at_once_is_both_told() -> None:
    stage = Replicated()

    async def act() -> None:
        stage.create("a")
        await stage.hint("a")
        await asyncio.sleep(20)
        first, second = stage.service.nodes
        claiming, putting = Blocked("before sql overdue"), Held("after sql get", first)
        stage.direct(claiming, putting)
        puts = [stage.put(first, named("a"), renamed_to=named("b"))]
        await putting.reached.wait()
        puts.append(stage.put(second, named("a"), drop=True))
        await asyncio.sleep(1)
        putting.go.set()
        await asyncio.wait(puts)
        row = stage.row("a")
        assert row is not None
        assert (row.pending.drop, row.pending.renamed_to) == (True, named("b"))
        claiming.free.set()

    assert stage.run(act, briefly=True) == []


def test_a_brake_of_several_replicas_lets_no_more_pass_than_it_may() -> None:
    """Rule 8: who counts and who adds is the same one."""
    names = ["a", "b", "c"]
    stage = Replicated(Setting(max_drops=1))

    async def act() -> None:
        for number, name in enumerate(names):
            stage.create(name, f"s3://lake/{number}")
            await stage.hint(name)
        await asyncio.sleep(20)
        counting, others = Held("after sql drops"), Blocked("after sql drops")
        stage.direct(counting, others)
        for name in names:
            stage.drop(name)
            await stage.hint(name, drop=True)
        await counting.reached.wait()
        await asyncio.sleep(20)
        counting.go.set()
        others.free.set()
        await asyncio.sleep(10)
        assert stage.states(names) == {"current": 2, "dropped": 1}
        await stage.kept.release("cat0", AdminCommand("", "", stage.world.loop.now()))

    assert stage.run(act, briefly=True) == []


def test_who_comes_to_a_place_just_as_another_one_leaves_it_is_told() -> None:
    """Either it is seen by who leaves, or it sees that the other one has left."""
    stage = Replicated()

    async def act() -> None:
        stage.create("a")
        await stage.hint("a")
        await asyncio.sleep(20)
        coming = stage.hold("after sql live_at")
        table = stage.create("b")
        await stage.hint("b")
        await coming.reached.wait()
        stage.commit("a", place=ELSEWHERE)
        await stage.hint("a")
        await asyncio.sleep(3)
        coming.go.set()
        await asyncio.sleep(10)
        assert stage.world.checker.hint(PLACE) == table.metadata_location

    assert stage.run(act, briefly=True) == []
