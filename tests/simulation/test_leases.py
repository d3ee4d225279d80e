"""Directed histories of a process that sleeps or waits while its lease runs out."""

from __future__ import annotations

import asyncio
import json

import pytest

from sfn.sfnfile.naming import ORDINAL, FileLayout, FileOwner
from tests.simulation.node import Node
from tests.simulation.script import ELSEWHERE, PLACE, Asleep, Blocked, Stage, history, named
from tests.simulation.settings import TERMS, Setting

FILE = f"{PLACE}/metadata/_sfn/n_a_main.ver"
HINT = f"{PLACE}/metadata/version-hint.text"
TAKEN_OVER = 30
"""Seconds after which somebody else has the row of who sleeps."""
LEASE = TERMS.lease.total_seconds()


@history(Stage)
async def test_who_read_the_tag_after_the_answer_asks_again(stage: Stage) -> None:
    """Rule 4: who slept between the answer and the tag has the tag of a newer document, and an older answer."""
    stage.create("a", opaque=True)
    asleep = Asleep(stage, f"before read {FILE}", late="renew")
    await stage.hint("a")
    await asleep.reached.wait()
    stage.commit("a", opaque=True)
    await asyncio.sleep(TAKEN_OVER)
    row = stage.row("a")
    assert row is not None
    assert row.attempt == 0
    asleep.wake()
    await asyncio.sleep(10)


def test_who_wrote_a_hint_after_its_lease_was_lost_has_the_row_looked_at_again() -> None:
    """Rule 3: what a sleeper wrote may stay behind what its successor wrote, and the successor has settled."""
    stage = Stage()

    async def act() -> None:
        (first,) = await stage.publish("a")
        stage.commit("a")
        asleep = Asleep(stage, f"before write {HINT}")
        await stage.hint("a")
        await asleep.reached.wait()
        stage.roll_back("a", first)
        await asyncio.sleep(2 * TAKEN_OVER)
        assert stage.world.checker.document(FILE)["metadata_file_path"] == first.metadata_location
        asleep.wake()
        await asyncio.sleep(10)

    stage.world.checker.ignore_moves_back = True
    assert stage.run(act, briefly=True) == []


def test_a_late_hint_is_found_out_by_the_document() -> None:
    """Rule 9: a hint's content can repeat, so its swap alone does not tell who slept that the document is another's.

    Where the service was installed twice no lease tells it either.
    """
    stage = Stage(setting=Setting(inboxes=2))

    async def act() -> None:
        first = stage.create("a")
        await stage.hint("a")
        await stage.hint("a", service=1)
        await asyncio.sleep(20)
        second = stage.commit("a")
        held = stage.hold(f"before write {HINT}")
        await stage.hint("a", min_metadata_location=second.metadata_location)
        await held.reached.wait()
        stage.roll_back("a", first)
        await stage.hint("a", service=1)
        await asyncio.sleep(TAKEN_OVER)
        assert stage.world.checker.document(FILE)["metadata_file_path"] == first.metadata_location
        held.go.set()
        await asyncio.sleep(5)
        assert stage.world.checker.hint(PLACE) == first.metadata_location

    stage.world.checker.ignore_moves_back = True
    assert stage.run(act, briefly=True) == []


@history(Stage)
async def test_a_late_tombstone_meets_the_document_of_who_made_its_hint_anew(stage: Stage) -> None:
    """Rule 9: who silenced the hint of a table that then came back would find the document as it was."""
    (table,) = await stage.publish("a")
    stage.drop("a")
    asleep = Asleep(stage, f"before write {FILE}")
    await stage.hint("a", drop=True)
    await asleep.reached.wait()
    assert stage.world.checker.hint(PLACE) is None
    stage.world.set(0, named("a"), table)
    await stage.hint("a")
    await asyncio.sleep(2 * TAKEN_OVER)
    assert stage.world.checker.hint(PLACE) == table.metadata_location
    asleep.wake()
    await asyncio.sleep(10)
    assert stage.world.checker.document(FILE)["state"] == "current"


@pytest.mark.parametrize("seconds", [1, 2 * TAKEN_OVER], ids=["at once", "one of them late"])
def test_the_hint_of_two_names_files_goes_with_the_second_of_them(seconds: float) -> None:
    """Rule 9: the newer file waits for the older one, so neither leaves the hint to the other."""
    stage = Stage()

    async def act() -> None:
        (table,) = await stage.publish("b")
        stage.world.set(0, named("a"), table)
        await stage.hint("a")
        await asyncio.sleep(20)
        stage.rename("a", "c")
        stage.commit("c", place=ELSEWHERE)
        stage.drop("b")
        # By the log of its table, what comes of this one wakes both.
        late, early = Blocked(f"before write {FILE}"), Blocked(f"before write {FILE.replace('n_a', 'n_b')}")

        async def blocked(node: Node, call: str) -> None:
            await early(node, call)
            await late(node, call)

        stage.service.script = blocked
        await stage.hint("c")
        await asyncio.sleep(10)
        early.free.set()
        await stage.hint("a", renamed_to=named("c"))
        await asyncio.sleep(10)
        await stage.hint("b", drop=True)
        await asyncio.sleep(seconds)
        assert stage.states(["a", "b"]) == {"current": 1, "renamed": 1}
        late.free.set()
        await asyncio.sleep(10)
        assert stage.states(["a", "b"]) == {"renamed": 2}
        assert stage.world.checker.hint(PLACE) is None

    assert stage.run(act) == []
    assert not stage.world.checker.stated


@history(lambda: Stage(setting=Setting(conditional_delete=False)))
async def test_a_late_delete_meets_what_came_in_the_tombstones_place(stage: Stage) -> None:
    """Rule 10: where a delete has no condition, who slept before it would delete a live file."""
    await stage.publish("a")
    stage.drop("a")
    await stage.hint("a", drop=True)
    await asyncio.sleep(60)
    asleep = Asleep(stage, f"before delete {FILE}")
    await asyncio.sleep(5200)
    stage.create("a")
    await stage.hint("a")
    await asyncio.sleep(2 * TAKEN_OVER)
    assert json.loads(stage.world.files.bodies[FILE])["state"] == "current"
    asleep.wake()
    await asyncio.sleep(10)


@history(lambda: Stage(setting=Setting(policies=({"naming": ORDINAL},))))
async def test_a_head_never_goes_back_whoever_wakes(stage: Stage) -> None:
    """Rule 4: who slept between read and swap while many commits passed, some of them as one, writes nothing."""
    head = FileLayout(PLACE, ORDINAL).keys(FileOwner(("n",), "a"))[0]
    await stage.publish("a")
    stage.commit("a")
    asleep = Asleep(stage, f"before write {head}")
    await stage.hint("a")
    await asleep.reached.wait()
    for number in range(49):
        stage.commit("a")
        if number % 3:
            await stage.hint("a")
            await asyncio.sleep(2)
    last = stage.commit("a")
    await stage.hint("a")
    await asyncio.sleep(TAKEN_OVER)
    before = stage.world.checker.document(head)
    assert before["metadata_file_path"] == last.metadata_location
    asleep.wake()
    await asyncio.sleep(10)
    after = stage.world.checker.document(head)
    assert (after["Ordinal"], after["metadata_file_path"]) == (before["Ordinal"], last.metadata_location)


@pytest.mark.parametrize("before", range(0, 8, 2))
def test_a_slow_inbox_takes_no_lease_from_who_works(before: int) -> None:
    """Rule 3: who asks for more is no dead process, whether its renewal waits before that question or behind it."""
    stage = Stage()

    async def act() -> None:
        stage.service.nodes.pop().stop.set()
        stage.create("a")
        working = stage.hold(f"before write {FILE}")
        await stage.hint("a")
        await working.reached.wait()
        for _ in range(5):
            await asyncio.sleep(before)
            stage.service.occupy(LEASE + 5)
            await stage.hint("b")
            await asyncio.sleep(2 * LEASE)
        row = stage.row("a")
        assert row is not None
        assert (row.attempt, row.crashes) == (1, 0)
        working.go.set()

    assert stage.run(act, briefly=True) == []
    assert stage.world.counts["fenced"] == 0
