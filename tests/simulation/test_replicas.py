"""Directed histories of replicas that share an inbox in a database: who has which row, and for how long.

Each is killed by a patch in `tests/mutants`, which is what shows that it can fail.
"""

from __future__ import annotations

import asyncio

import pytest

from sfn.errors import Transient
from sfn.inbox.model import JobState
from tests.simulation.replicated import LEASE, LOOK, Cut, Replicated
from tests.simulation.script import PLACE, Asleep, Held, named

FILE = f"{PLACE}/metadata/_sfn/n_a_main.ver"


def test_who_claims_at_the_same_time_gets_no_row_that_another_one_has() -> None:
    stage = Replicated()

    async def act() -> None:
        claiming = stage.hold("after sql due")
        await stage.begin(claiming)
        await asyncio.sleep(3)
        assert stage.claims("a") == []
        claiming.go.set()
        await asyncio.sleep(3)
        assert [claim.node for claim in stage.claims("a")] == [claiming.node]

    assert stage.run(act, briefly=True) == []


def test_what_a_dead_replica_had_another_one_has_within_a_lease_and_a_look() -> None:
    stage = Replicated()

    async def act() -> None:
        working = stage.hold(f"before read {FILE}")
        await stage.begin(working)
        assert working.node is not None
        stage.service.crash(working.node)
        await asyncio.sleep(LEASE + LOOK)
        assert [claim.node is working.node for claim in stage.claims("a")] == [True, False]
        await asyncio.sleep(LOOK)
        assert stage.states(["a"]) == {"current": 1}

    assert stage.run(act, briefly=True) == []


def test_a_settle_that_comes_late_ends_nothing_that_another_one_has() -> None:
    """Rule 3: who settles slept, its lease ran out, and its row is worked on elsewhere."""
    stage = Replicated()

    async def act() -> None:
        asleep = Asleep(stage, f"before read {FILE}")
        await stage.begin(asleep)
        (first,), claim = stage.claims("a"), stage.claim("a")
        assert first.node is not None
        working = Held("before load cat0:n.a", stage.other(first.node))
        stage.direct(asleep, working)
        await working.reached.wait()
        settling = stage.settle(first.node, claim)
        asleep.wake()
        assert not await settling
        row = stage.row("a")
        assert row is not None
        assert (row.state, stage.claims("a")[-1].node) == (JobState.LEASED, working.node)
        working.go.set()

    assert stage.run(act, briefly=True) == []


def test_a_sleeper_that_wakes_learns_that_another_one_has_its_row() -> None:
    stage = Replicated()

    async def act() -> None:
        asleep = Asleep(stage, f"before read {FILE}")
        await stage.begin(asleep)
        reading = Held(f"after read {FILE}", stage.claims("a")[0].node)
        working = Held("before load cat0:n.a", stage.other(reading.node))
        stage.direct(asleep, reading, working)
        await working.reached.wait()
        asleep.wake()
        await reading.reached.wait()
        await asyncio.sleep(LEASE / 2)
        assert stage.world.counts["fenced"] == 1
        working.go.set()

    assert stage.run(act, briefly=True) == []


def test_who_could_not_renew_its_leases_still_has_what_nobody_took() -> None:
    """Rule 3: who asks for more is no dead process."""
    stage = Replicated(replicas=1)

    async def act() -> None:
        working = stage.hold(f"before read {FILE}")
        await stage.begin(working)
        stage.kept.server.restart(LEASE + LOOK)
        await asyncio.sleep(LEASE + 3 * LOOK)
        row = stage.row("a")
        assert row is not None
        assert (row.attempt, row.crashes) == (1, 0)
        working.go.set()

    assert stage.run(act, briefly=True) == []
    assert stage.world.counts["fenced"] == 0


def test_no_claim_of_a_row_that_was_forgotten_has_its_successor() -> None:
    stage = Replicated()

    async def act() -> None:
        for _ in range(2):
            await stage.hint("a")
            await asyncio.sleep(100)
            assert stage.row("a") is None
        assert len(stage.claims("a")) > 1

    assert stage.run(act, briefly=True) == []


def test_one_replica_sweeps_at_a_time_and_another_one_when_that_died() -> None:
    stage = Replicated(replicas=3)

    async def act() -> None:
        stage.create("a")
        listing = stage.hold("before tables")
        await listing.reached.wait()
        assert listing.node is not None
        for _ in range(int(2 * LEASE)):
            await asyncio.sleep(1)
            assert stage.sweepers() == [listing.node]
        stage.service.crash(listing.node)
        await asyncio.sleep(LEASE + LOOK)
        await asyncio.sleep(LOOK)
        assert stage.states(["a"]) == {"current": 1}

    assert stage.run(act, briefly=True) == []


def test_a_lease_that_was_renewed_in_the_last_moment_is_its_owners() -> None:
    stage = Replicated()

    async def act() -> None:
        asleep = Asleep(stage, f"before read {FILE}")
        await stage.begin(asleep)
        (claim,) = stage.claims("a")
        await asyncio.sleep(claim.at + LEASE - stage.world.time - 1)
        other = stage.other(claim.node)
        looking, taking = Held("before sql begin", other), Held("after sql overdue", other)
        reading = Held(f"after read {FILE}", claim.node)
        stage.direct(asleep, looking, reading)
        await looking.reached.wait()
        await asyncio.sleep(LOOK)
        stage.direct(asleep, taking, reading)
        looking.go.set()
        await taking.reached.wait()
        asleep.wake()
        await asyncio.sleep(3)
        taking.go.set()
        await asyncio.sleep(LOOK)
        reading.go.set()

    assert stage.run(act, briefly=True) == []


def test_what_nobody_is_told_of_is_found_by_looking() -> None:
    stage = Replicated()
    stage.world.weather.unheard = 1.0

    async def act() -> None:
        await asyncio.sleep(LEASE)  # until nobody looks whether the first sweep's lease ran out
        stage.create("a")
        await stage.hint("a")
        await asyncio.sleep(LOOK + LOOK)
        assert stage.states(["a"]) == {"current": 1}

    assert stage.run(act, briefly=True) == []


@pytest.mark.parametrize("call", ["before sql commit", "after sql commit"])
def test_a_put_of_which_nobody_knows_whether_it_was_taken_is_not_acknowledged(call: str) -> None:
    """Rule 3."""
    stage = Replicated()

    async def act() -> None:
        first, _ = stage.service.nodes
        cut = Cut(stage, "before sql log", call)
        stage.direct(cut)
        put = stage.put(first, named("a"))
        await cut.done.wait()
        with pytest.raises(Transient, match="uncertain"):
            await put
        is_taken = call.startswith("after")
        assert (stage.row("a") is not None) is is_taken
        again = stage.put(first, named("a"))
        assert (await again).accepted == 1

    assert stage.run(act, briefly=True) == []


def test_a_claim_that_was_made_unknown_to_its_worker_is_given_back() -> None:
    stage = Replicated()

    async def act() -> None:
        stage.create("a")
        cut = Cut(stage, "after sql due", "after sql commit")
        stage.direct(cut)
        await stage.hint("a")
        await cut.done.wait()
        assert [claim.node for claim in stage.claims("a")] == [cut.node]
        await asyncio.sleep(LOOK + LOOK)
        assert stage.states(["a"]) == {"current": 1}

    assert stage.run(act, briefly=True) == []


def test_a_settle_that_was_taken_unknown_to_its_worker_is_known_by_its_next_try() -> None:
    stage = Replicated()

    async def act() -> None:
        stage.create("a")
        cut = Cut(stage, "after sql close", "after sql commit")
        stage.direct(cut)
        await stage.hint("a")
        await cut.done.wait()
        await asyncio.sleep(LOOK + LOOK)

    assert stage.run(act, briefly=True) == []
    assert stage.world.counts["fenced"] == 0
