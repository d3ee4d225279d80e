"""Directed histories of replicas that share an inbox in a database, and the promises of every inbox on that database.

Most are killed by a patch in `tests/mutants`, which is what shows that they can fail.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from types import ModuleType

import pytest

from sfn.domain.events import Intent, IntentOutcome, Notification
from sfn.errors import Transient
from sfn.inbox.intents import CHECK_DELAYS
from sfn.inbox.model import AdminCommand, JobState
from sfn.inbox.transaction import WorkerSignal
from tests.promises import (
    test_inbox,
    test_inbox_admin,
    test_inbox_claims,
    test_inbox_drop_limit,
    test_inbox_intents,
    test_inbox_jobs,
    test_inbox_reported_tables,
)
from tests.promises.inboxes import TERMS, Ground
from tests.simulation.database import Database
from tests.simulation.faults import Faults
from tests.simulation.loop import SimulatedLoop
from tests.simulation.replicas import opened
from tests.simulation.rules import Rules
from tests.simulation.script import (
    ELSEWHERE,
    LEASE,
    LOOK,
    PLACE,
    Asleep,
    Blocked,
    Cut,
    Held,
    Replicated,
    history,
    named,
)
from tests.simulation.settings import Setting
from tests.support.clock import HandClock

FILE = f"{PLACE}/metadata/_sfn/n_a_main.ver"

FIRST = CHECK_DELAYS[0].total_seconds()
GATEWAY = "gateway"
COMMIT = Intent("i", (named("a"),), GATEWAY, "10.0.0.1")

Promise = Callable[[Ground], Awaitable[None]]
OF_EACH = (
    test_inbox,
    test_inbox_admin,
    test_inbox_claims,
    test_inbox_drop_limit,
    test_inbox_intents,
    test_inbox_jobs,
    test_inbox_reported_tables,
)

MANY = {
    "test_table_index_of_many_pages_has_every_table_once",
    "test_short_lived_table_does_not_wait_behind_a_backlog",
    "test_large_release_does_not_block_notifications",
    "test_ten_thousand_notifications_are_one_job_with_the_newest_location",
    "test_thousands_of_commits_are_one_location",
    "test_default_limit_is_ten_steps_or_one_percent",
}
"""They are about more rows than any history has."""


@history(Replicated, briefly=True)
async def test_who_claims_at_the_same_time_gets_no_row_that_another_one_has(stage: Replicated) -> None:
    claiming = stage.hold("token claim")
    await stage.begin(claiming)
    await asyncio.sleep(3)
    assert stage.claims("a") == []
    claiming.go.set()
    await asyncio.sleep(3)
    assert [claim.node for claim in stage.claims("a")] == [claiming.node]


@history(Replicated, briefly=True)
async def test_what_a_dead_replica_had_another_one_has_within_a_lease_and_a_look(stage: Replicated) -> None:
    working = stage.hold(f"before read {FILE}")
    await stage.begin(working)
    assert working.node is not None
    stage.service.crash(working.node)
    await asyncio.sleep(LEASE + LOOK)
    assert [claim.node is working.node for claim in stage.claims("a")] == [True, False]
    await asyncio.sleep(LOOK)
    assert stage.states(["a"]) == {"current": 1}


@history(Replicated, briefly=True)
async def test_a_settle_that_comes_late_ends_nothing_that_another_one_has(stage: Replicated) -> None:
    """Rule 3: who settles slept, its lease ran out, and its row is worked on elsewhere."""
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


@history(Replicated, briefly=True)
async def test_a_sleeper_that_wakes_learns_that_another_one_has_its_row(stage: Replicated) -> None:
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


def test_who_could_not_renew_its_leases_still_has_what_nobody_took() -> None:
    """Rule 3: who asks for more is no dead process."""
    stage = Replicated(replicas=1)

    async def act() -> None:
        working = stage.hold(f"before read {FILE}")
        await stage.begin(working)
        # Its claim comes before its renewal.
        stage.direct(Blocked("before renew"), working)
        stage.kept.database.restart(LEASE + LOOK)
        await asyncio.sleep(LEASE + 3 * LOOK)
        row = stage.row("a")
        assert row is not None
        assert (row.attempt, row.crashes) == (1, 0)
        working.go.set()

    assert stage.run(act, briefly=True) == []
    assert stage.world.counts["fenced"] == 0


@history(Replicated, briefly=True)
async def test_no_claim_of_a_row_that_was_forgotten_has_its_successor(stage: Replicated) -> None:
    for _ in range(2):
        await stage.hint("a")
        await asyncio.sleep(100)
        assert stage.row("a") is None
    assert len(stage.claims("a")) > 1


@history(lambda: Replicated(replicas=3), briefly=True)
async def test_one_replica_sweeps_at_a_time_and_another_one_when_that_died(stage: Replicated) -> None:
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


@history(Replicated, briefly=True)
async def test_a_lease_that_was_renewed_in_the_last_moment_is_its_owners(stage: Replicated) -> None:
    asleep = Asleep(stage, f"before read {FILE}")
    await stage.begin(asleep)
    (claim,) = stage.claims("a")
    await asyncio.sleep(claim.at + LEASE - stage.world.time - 1)
    other = stage.other(claim.node)
    looking, taking = Held("before claim", other), Held("amid claim", other)
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


def test_a_job_without_a_signal_is_found_by_the_poll() -> None:
    stage = Replicated()
    stage.world.faults.unheard = 1.0

    async def act() -> None:
        # Until no claim is due for an expired lease of the first sweep, or for intents.
        await asyncio.sleep(LEASE + 5)
        stage.create("a")
        await stage.hint("a")
        await asyncio.sleep(LOOK + LOOK)
        assert stage.states(["a"]) == {"current": 1}

    assert stage.run(act, briefly=True) == []


@pytest.mark.parametrize("call", ["drawn append", "committed append"])
@history(Replicated, briefly=True)
async def test_put_of_which_nobody_knows_whether_it_was_taken_is_not_acknowledged(stage: Replicated, call: str) -> None:
    """Rule 3."""
    first, _ = stage.service.nodes
    cut = Cut(stage, "before append", call)
    stage.direct(cut)
    put = stage.put(first, named("a"))
    await cut.done.wait()
    with pytest.raises(Transient, match="uncertain"):
        await put
    is_taken = call.startswith("committed")
    assert (stage.row("a") is not None) is is_taken
    again = stage.put(first, named("a"))
    assert (await again).accepted == 1


@history(Replicated, briefly=True)
async def test_a_claim_that_was_made_unknown_to_its_worker_is_given_back(stage: Replicated) -> None:
    stage.create("a")
    cut = Cut(stage, "token claim", "committed claim")
    stage.direct(cut)
    await stage.hint("a")
    await cut.done.wait()
    assert [claim.node for claim in stage.claims("a")] == [cut.node]
    await asyncio.sleep(LOOK + LOOK)
    assert stage.states(["a"]) == {"current": 1}


def test_a_settle_that_was_taken_unknown_to_its_worker_is_known_by_its_next_try() -> None:
    stage = Replicated()

    async def act() -> None:
        stage.create("a")
        cut = Cut(stage, "begun settle_all", "committed settle_all")
        stage.direct(cut)
        await stage.hint("a")
        await cut.done.wait()
        await asyncio.sleep(LOOK + LOOK)

    assert stage.run(act, briefly=True) == []
    assert stage.world.counts["fenced"] == 0


@history(Replicated, briefly=True)
async def test_who_settle_with_asks_for_each_others_rows_wait_for_nobody_in_a_circle(stage: Replicated) -> None:
    await stage.publish("a", "b")
    first, second = stage.service.nodes
    settling = Held("begun settle_all", first)
    stage.direct(settling)
    settles = [stage.settle(first, stage.claim("a"), asked="b")]
    await settling.reached.wait()
    settles.append(stage.settle(second, stage.claim("b"), asked="a"))
    await asyncio.sleep(1)
    settling.go.set()
    assert [await settle for settle in settles] == [False, False]


@history(Replicated, briefly=True)
async def test_an_event_with_a_lower_number_that_is_committed_late_is_newer_than_the_claim(stage: Replicated) -> None:
    """Rule 2: a number is drawn before it is committed, so that numbers do not say what a look has seen."""
    await stage.publish("a")
    first, second = stage.service.nodes
    stage.commit("a")
    late, looking = Held("drawn append", first), Held("after load cat0:n.a")
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


@history(Replicated, briefly=True)
async def test_an_event_that_is_committed_while_a_fold_runs_is_in_the_next_one(stage: Replicated) -> None:
    """Rule 2: its number is lower than those that are folded, and it was not there when they were read."""
    await stage.publish("a")
    first, second = stage.service.nodes
    before = stage.version("a")
    late, folding = Held("drawn append", first), Held("decided claim")
    stage.direct(late, folding)
    putting = stage.put(first, named("a"))
    await late.reached.wait()
    assert (await stage.put(second, named("b"))).accepted == 1
    await folding.reached.wait()
    late.go.set()
    assert (await putting).accepted == 1
    folding.go.set()
    await asyncio.sleep(1)
    assert stage.version("a") == before + 1


@history(Replicated, briefly=True)
async def test_what_two_replicas_are_told_of_a_row_at_once_is_both_told(stage: Replicated) -> None:
    await stage.publish("a")
    first, second = stage.service.nodes
    claiming, putting = Blocked("before claim"), Held("drawn append", first)
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


@history(lambda: Replicated(Setting(max_drops=1)), briefly=True)
async def test_a_brake_of_several_replicas_lets_no_more_pass_than_it_may(stage: Replicated) -> None:
    """Rule 8: who counts and who adds is the same one."""
    names = ["a", "b", "c"]
    await stage.publish(*names)
    counting = stage.hold("decided allow_step")
    for name in names:
        stage.drop(name)
        await stage.hint(name, drop=True)
    await counting.reached.wait()
    await asyncio.sleep(3)
    counting.go.set()
    await asyncio.sleep(30)
    assert stage.states(names) == {"current": 2, "dropped": 1}
    await stage.kept.release("cat0", AdminCommand("", "", stage.world.loop.now()))


@history(Replicated, briefly=True)
async def test_who_comes_to_a_place_just_as_another_one_leaves_it_is_told(stage: Replicated) -> None:
    """Either it is seen by who leaves, or it sees that the other one has left."""
    await stage.publish("a")
    coming = stage.hold("decided record_location")
    table = stage.create("b")
    await stage.hint("b")
    await coming.reached.wait()
    stage.commit("a", place=ELSEWHERE)
    await stage.hint("a")
    await asyncio.sleep(3)
    coming.go.set()
    await asyncio.sleep(10)
    assert stage.world.checker.hint(PLACE) == table.metadata_location


@history(Replicated, briefly=True)
async def test_an_event_that_comes_while_a_location_is_recorded_is_not_forgotten(stage: Replicated) -> None:
    """Rule 2: who folds it and who records the location change the same job, one after the other."""
    recording = stage.hold("decided record_location")
    await stage.begin(recording)
    before = stage.version("a")
    stage.commit("a")
    assert (await stage.put(stage.other(recording.node), named("a"))).accepted == 1
    await asyncio.sleep(3)
    recording.go.set()
    await asyncio.sleep(1)
    assert stage.version("a") == before + 1


@history(Replicated, briefly=True)
async def test_a_commit_is_published_though_its_gateway_died_before_it_heard_the_end(stage: Replicated) -> None:
    await stage.publish("a")
    gateway, _ = stage.service.nodes
    await stage.note(gateway, COMMIT)
    stage.service.crash(gateway)
    # The catalog tries it for so long, and no sweep comes by soon afterwards.
    await asyncio.sleep(CHECK_DELAYS[1].total_seconds() - 10)
    last = stage.commit("a")
    await asyncio.sleep(15)
    assert stage.pointer("a") == last.metadata_location


@history(Replicated, briefly=True)
async def test_who_answers_a_commit_and_who_asks_for_it_wait_for_nobody_in_a_circle(stage: Replicated) -> None:
    await asyncio.sleep(5)
    first, _ = stage.service.nodes
    await stage.note(first, COMMIT)
    asking = stage.hold("begun claim")
    await asking.reached.wait()
    stage.create("a")
    answer = stage.note(stage.other(asking.node), IntentOutcome("i", is_known=True), Notification(named("a"), GATEWAY))
    await asyncio.sleep(1)
    asking.go.set()
    assert (await answer).accepted == 1


@history(Replicated, briefly=True)
async def test_what_is_not_asked_for_because_another_one_has_the_lock_is_asked_for_soon(stage: Replicated) -> None:
    await stage.publish("a")
    first, _ = stage.service.nodes
    await stage.note(first, COMMIT)
    await asyncio.sleep(FIRST - 1)
    before = stage.version("a")
    settling = Held("begun settle_all", first)
    stage.direct(settling)
    settle = stage.settle(first, stage.claim("a"))
    await asyncio.sleep(3)
    assert stage.version("a") == before
    settling.go.set()
    assert not await settle
    await asyncio.sleep(3)
    assert stage.version("a") == before + 1


def promises(module: ModuleType) -> list[tuple[str, Promise]]:
    """Those that need nothing but an inbox."""
    found = inspect.getmembers(module, inspect.iscoroutinefunction)
    tests = [(name, one) for name, one in found if name.startswith("test_") and name not in MANY]
    return [(name, one) for name, one in tests if [*inspect.signature(one).parameters] == ["ground"]]


PROMISES = dict(pair for module in OF_EACH for pair in promises(module))


@pytest.mark.parametrize("name", PROMISES)
def test_the_twin_keeps_what_every_inbox_promises(name: str) -> None:
    loop, bad, clock = SimulatedLoop(), list[tuple[str, str]](), HandClock()
    asyncio.set_event_loop(loop)
    database = Database(loop, random.Random(1), Faults(), lambda _: None)
    rules = Rules("", loop, lambda *what: bad.append(what))
    try:
        inbox = opened(database, rules, None, TERMS, clock, WorkerSignal())
        loop.run_until_complete(PROMISES[name](Ground(inbox, clock)))
    finally:
        loop.close()
    assert bad == []
