"""Directed histories: one for each thing that could lose or falsify a pointer and that chance meets too seldom.

Each is killed by a patch in `tests/mutants`, which is what shows that it can fail; but for those of refused tables that
stir each other, and of a hint that was put twice.
"""

from __future__ import annotations

import asyncio

from sfn.domain.events import Notification
from sfn.domain.jobs import Capacity, DeadLettered, DeadLetterReason
from sfn.inbox.model import AdminCommand
from tests.simulation.operations import REFUSED
from tests.simulation.script import ELSEWHERE, PLACE, Stage, history, named
from tests.simulation.settings import Setting

FILE = f"{PLACE}/metadata/_sfn/n_a_main.ver"
HINT = f"{PLACE}/metadata/version-hint.text"


@history(Stage)
async def test_an_events_own_location_is_never_written(stage: Stage) -> None:
    """Rule 1: an event that tells of a pointer which the catalog never had changes nothing."""
    (table,) = await stage.publish("a")
    never = f"{PLACE}/metadata/00009-{'0' * 8}-0000-0000-0000-{'0' * 12}.metadata.json"
    stage.world.ranks.owner[never] = table.uuid
    await stage.hint("a", min_metadata_location=never)


def test_hints_do_not_defeat_the_backoff() -> None:
    """Rule 2: a hot table whose store fails is tried by its backoff, however many events come."""
    stage = Stage()

    async def act() -> None:
        stage.create("a")
        stage.world.faults.fail = 1.0
        for _ in range(200):
            await stage.hint("a")
            await asyncio.sleep(0.25)
        stage.world.faults.fail = 0.0

    assert stage.run(act) == []
    assert stage.world.counts["retry"] < 20


@history(lambda: Stage(setting=Setting(crashes=5)), briefly=True)
async def test_a_claim_that_ends_the_process_runs_out_of_attempts(stage: Stage) -> None:
    """Rule 3: the attempt is durable before it starts, so what kills every process is a dead letter, and may heal."""

    async def deadly(_node: object, call: str) -> None:
        if call == f"before read {FILE}":
            stage.service.crash(stage.service.nodes[0])
            stage.service.crash(stage.service.nodes[0])
            await asyncio.Future()

    table = stage.create("a")
    stage.service.script = deadly
    await stage.hint("a", min_metadata_location=table.metadata_location)
    await asyncio.sleep(150)
    row = stage.row("a")
    assert row is not None
    assert (row.reason, row.attempt) == (DeadLetterReason.POISON, 5)
    assert stage.world.counts["killed"] <= 2 * 5
    stage.service.script = None


@history(Stage)
async def test_memory_does_not_skip(stage: Stage) -> None:
    """Rule 5: a file that vanished behind our back comes back with the next event, though the pointer is the same."""
    (table,) = await stage.publish("a")
    stage.world.files.bodies.pop(HINT)
    await stage.hint("a", min_metadata_location=table.metadata_location)
    await asyncio.sleep(20)
    assert HINT in stage.world.files.bodies


@history(Stage)
async def test_a_location_is_known_before_anything_is_written_there(stage: Stage) -> None:
    """Rule 6: a crash after the first write and a drop leave no file that says `current` for ever."""
    stage.create("a")
    held = stage.hold(f"after write {FILE}")
    await stage.hint("a")
    await held.reached.wait()
    stage.service.script = None
    for node in list(stage.service.nodes):
        stage.service.crash(node)
    stage.drop("a")


@history(Stage)
async def test_a_rename_forwards_only_to_a_file_that_is_there(stage: Stage) -> None:
    """Rule 7: the old name's file waits for the new name's."""
    await stage.publish("a")
    stage.rename("a", "b")
    held = stage.hold(f"before write {PLACE}/metadata/_sfn/n_b_main.ver")
    await stage.hint("a", renamed_to=named("b"))
    await held.reached.wait()
    await asyncio.sleep(15)
    held.go.set()


@history(lambda: Stage(lagging=0.7))
async def test_an_older_answer_soon_after_a_write_is_not_followed(stage: Stage) -> None:
    """Rule 8: a lagging replica can't take a pointer back."""
    stage.create("a")
    for _ in range(12):
        await asyncio.sleep(2)
        stage.commit("a")
        await stage.hint("a")
        await asyncio.sleep(0.3)
        await stage.hint("a")


@history(Stage)
async def test_an_abandoned_pointer_does_not_come_back(stage: Stage) -> None:
    """Rule 8: a lagging answer that shows what was rolled back is newer than what is held, and yet not followed."""
    first = stage.create("a")
    stage.commit("a")
    await stage.hint("a")
    await asyncio.sleep(30)
    stage.roll_back("a", first)
    await stage.hint("a")
    await asyncio.sleep(0.8)
    assert stage.world.checker.document(FILE)["metadata_file_path"] == first.metadata_location
    stage.world.faults.lagging, stage.world.faults.least_lag = 1.0, 2.0
    held = stage.hold(f"after load {named('a')}")
    await stage.hint("a")
    await held.reached.wait()
    stage.world.faults.lagging = 0.0
    await asyncio.sleep(15)
    held.go.set()


@history(Stage)
async def test_the_hint_of_a_dropped_table_goes_first(stage: Stage) -> None:
    """Rule 9: there is no moment at which a hint speaks of a table whose document says that it is gone."""
    await stage.publish("a")
    stage.drop("a")
    await stage.hint("a", drop=True)


def test_trouble_of_a_catalog_spends_no_tables_budget() -> None:
    """Rule 11: an outage costs no attempt and makes no dead letter."""
    stage = Stage()

    async def act() -> None:
        for name, place in (("a", PLACE), ("b", ELSEWHERE)):
            stage.create(name, place)
        stage.world.truths[0].down.append((stage.world.time, stage.world.time + 300))
        for _ in range(20):
            for name in ("a", "b"):
                await stage.hint(name)
                row = stage.row(name)
                assert row is not None
                assert row.attempt <= 1
            await asyncio.sleep(10)

    assert stage.run(act) == []
    assert stage.world.counts["dead"] == 0
    assert stage.world.counts["retry"] == 0


def test_store_that_is_read_only_for_a_while_gives_no_table_up() -> None:
    """Rule 11: what a store denies to everybody is no table's fault; its end does not reach all folders at once."""
    stage = Stage()
    names = {"a": PLACE, "b": ELSEWHERE}

    async def act() -> None:
        for name, place in names.items():
            stage.create(name, place)
            await stage.hint(name)
        await asyncio.sleep(60)
        stage.world.faults.read_only.append((stage.world.time, stage.world.time + 400))
        for _ in range(60):
            for name in names:
                stage.commit(name)
                await stage.hint(name)
            await asyncio.sleep(10)

    assert stage.run(act) == []
    assert stage.world.counts["dead"] == 0
    assert stage.world.counts["denied store"] > 60


def test_events_of_drops_pass_no_more_than_the_brake_allows() -> None:
    """Rule 8: of many tables that events say were dropped, so many are believed as the brake lets pass."""
    stage = Stage(setting=Setting(max_drops=3))
    names = [f"t{number}" for number in range(8)]

    async def act() -> None:
        await stage.publish(*names)
        stage.world.truths[0].blank.append((stage.world.time, stage.world.time + 60))
        for name in names:
            await stage.hint(name, drop=True)
        await asyncio.sleep(50)
        assert stage.states(names) == {"current": 5, "dropped": 3}

    stage.run(act, briefly=True)


@history(Stage, briefly=True)
async def test_a_slot_that_is_freed_after_the_bell_rang_is_taken(stage: Stage) -> None:
    """Whoever is woken by a settled claim may find its slot still taken: it must look again once it is free."""
    names = [f"t{number}" for number in range(12)]

    async def slowly(_node: object, call: str) -> None:
        if call == "after settle_all":
            await asyncio.sleep(1)

    stage.service.script = slowly
    for number, name in enumerate(names):
        stage.create(name, f"s3://lake/t{number}")
    await asyncio.gather(*(stage.hint(name) for name in names))  # noqa: TID251 - they come together
    await asyncio.sleep(10)
    assert stage.states(names)["current"] == 12


def test_two_refused_tables_do_not_stir_each_other_for_ever() -> None:
    """Each was where the other is now, and in the place of each lies a file of somebody else."""
    stage = Stage()

    async def act() -> None:
        places = {"a": (PLACE, ELSEWHERE), "b": (ELSEWHERE, PLACE)}
        for name, (place, _) in places.items():
            stage.create(name, place)
            await stage.hint(name)
        await asyncio.sleep(20)
        for name, (was, place) in places.items():
            key = f"metadata/_sfn/n_{name}_main.ver"
            theirs = stage.world.files.bodies[f"{was}/{key}"].replace(b"cat0", b"cat9")
            stage.world.files.lay(f"{place}/{key}", theirs)
            stage.commit(name, place=place)
            await stage.hint(name)
        await asyncio.sleep(600)

    stage.run(act, briefly=True)
    assert 2 <= stage.world.counts["dead"] < 30


@history(lambda: Stage(setting=Setting(max_drops=1)))
async def test_locations_that_are_refused_give_up_no_table(stage: Stage) -> None:
    """Rule 8: a catalog, or a setting, that is wrong about every table at once takes none from its readers."""
    await stage.publish(*"abc")
    for name in "abc":
        stage.commit(name, place=f"{REFUSED}{name}")
        await stage.hint(name)
    await asyncio.sleep(600)
    assert stage.states(list("abc")) == {"current": 3}
    for number, name in enumerate("abc"):
        stage.commit(name, place=f"{PLACE}{number}")
        await stage.hint(name)


@history(Stage, briefly=True)
async def test_a_hint_that_was_put_twice_is_one(stage: Stage) -> None:
    """De-duplication is by sender and event id."""
    hint = Notification(named("a"), sender="test", event_id="same")
    inbox = stage.service.nodes[0].inbox
    first, second = await inbox.put([hint]), await inbox.put([hint])
    assert (first.accepted, first.duplicates, second.accepted, second.duplicates) == (1, 0, 0, 1)


@history(Stage, briefly=True)
async def test_events_are_applied_in_the_order_in_which_they_were_accepted(stage: Stage) -> None:
    """Rule 2: of two events that one fold applies, the later one is the last word."""
    await stage.publish("a")
    free = stage.block("before claim")
    for name in "bc":
        await stage.hint("a", renamed_to=named(name))
    row = stage.row("a")
    assert row is not None
    assert row.pending.renamed_to == named("c")
    free.set()


@history(Stage, briefly=True)
async def test_an_order_is_carried_out_after_the_events_that_were_accepted_before_it(stage: Stage) -> None:
    """A job that is replayed waits behind newer events, with all that was reported of its table before."""
    operator, now = stage.service.kept.operator, stage.world.loop.now
    free = stage.block("before claim")
    await stage.hint("a")
    (claim,) = (await operator.claim(Capacity(total=9, live=9, sweeps=1))).jobs
    outcome = DeadLettered(DeadLetterReason.PERMANENT, "given up", None, None)
    assert await operator.settle(claim, outcome, now())
    await stage.hint("a")
    (letter,) = stage.service.kept.letters()
    assert await operator.replay([letter.id], [], AdminCommand("ann", "", now())) == 1
    row = stage.row("a")
    assert row is not None
    assert (row.version, row.processed_version) == (2, 2)
    free.set()
