"""Directed histories of SFN files and version hints: their names, branches, files of commits, and refreshes.

Most are killed by a patch in `tests/mutants`, which is what shows that they can fail.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sfn.domain.identifiers import TableIdentifier
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import ORDINAL, UUID, FileLayout, FileOwner, Placement
from tests.simulation.incidents import Incidents
from tests.simulation.script import PLACE, Asleep, Stage, history, named
from tests.simulation.settings import DAY, Setting

COMMITS = Setting(policies=({"naming": ORDINAL},))
BY_UUID = Setting(policies=({"naming": UUID},))
BELOW_ROOT = Setting(policies=({"naming": UUID, "placement": Placement.ROOT, "root": "s3://lake/sfn"},))
BRANCHED = Setting(policies=({"branches": ("main", "r-*")},))
HEAD = FileLayout(PLACE, ORDINAL).keys(FileOwner(("n",), "a"))[0]

VERSION_HINT = version_hint.key_of(PLACE)

LAYOUTS: dict[str, dict[str, Any]] = {
    "identifier": {"branches": ("main", "r-*")},
    "alongside": {"placement": Placement.ALONGSIDE},
    "uuid": {"naming": UUID},
    "commits": {"naming": ORDINAL},
}


@history(lambda: Stage(setting=COMMITS))
async def test_a_head_is_written_and_before_the_files_of_commits(stage: Stage) -> None:
    """Rule 9: a writer that loses the race for the head leaves no commit behind that the head did not allot."""
    await stage.publish("a")
    asleep = Asleep(stage, f"before write {HEAD}")
    stage.commit("a")
    await stage.hint("a")
    await asleep.reached.wait()
    await asyncio.sleep(30)
    for _ in range(3):
        stage.commit("a")
        await stage.hint("a")
        await asyncio.sleep(20)
    asleep.wake()
    await asyncio.sleep(20)


@history(lambda: Stage(setting=COMMITS))
async def test_a_commit_whose_writer_died_gets_its_file_from_the_next_one(stage: Stage) -> None:
    await stage.publish("a")
    slow = stage.hold(f"after write {HEAD}")
    for _ in range(3):
        stage.commit("a")
    await stage.hint("a")
    await slow.reached.wait()
    stage.service.crash(next(node for node in stage.service.nodes if node.alive))
    stage.service.crash(next(node for node in stage.service.nodes if node.alive))
    stage.service.script = None
    stage.commit("a")
    await stage.hint("a")


@history(lambda: Stage(setting=COMMITS))
async def test_commits_that_come_as_one_are_all_in_the_timeline(stage: Stage) -> None:
    await stage.publish("a")
    for _ in range(3):
        stage.commit("a")
    await stage.hint("a")


@history(lambda: Stage(setting=COMMITS))
async def test_a_purge_leaves_no_file(stage: Stage) -> None:
    (table,) = await stage.publish("a")
    stage.drop("a")
    stage.world.purge(table)
    await stage.hint("a", drop=True, purge=True)
    await asyncio.sleep(60)
    assert [key for key in stage.world.files.bodies if key.endswith(".ver")] == []


@history(lambda: Stage(setting=Setting(shared=True)))
async def test_two_identifiers_with_one_plain_name_each_have_a_file(stage: Stage) -> None:
    """Created at the same moment, by two processes: who comes second finds out when it writes."""
    names = [TableIdentifier("cat0", ("a_b",), "c"), TableIdentifier("cat0", ("a",), "b_c")]
    plain = FileLayout(PLACE).keys(FileOwner(("a_b",), "c"))[0]
    first = stage.hold(f"before write {plain}")
    for name in names:
        stage.create_as(name)
        await stage.hint_as(name)
    await first.reached.wait()
    await asyncio.sleep(10)
    assert stage.world.checker.document(plain)["state"] == "current"
    assert len(stage.world.checker.documents(PLACE)) == 1
    first.go.set()


@history(lambda: Stage(setting=BRANCHED))
async def test_branches_end_before_what_leads_them(stage: Stage) -> None:
    """Else nobody would know of a branch that was left behind."""
    lead = FileLayout(PLACE).keys(FileOwner(("n",), "a"))[0]
    stage.create("a")
    stage.commit("a", branches={"r-x": 7})
    await stage.hint("a")
    await asyncio.sleep(20)
    slow = stage.hold(f"after write {lead}")
    stage.drop("a")
    await stage.hint("a", drop=True)
    await slow.reached.wait()
    for node in list(stage.service.nodes):
        stage.service.crash(node)


@history(lambda: Stage(setting=BRANCHED))
async def test_every_branch_follows_the_pointer(stage: Stage) -> None:
    stage.create("a")
    stage.commit("a", branches={"r-x": 7, "r-y": 8})
    await stage.hint("a")
    await asyncio.sleep(20)
    stage.commit("a")
    await stage.hint("a")


@history(lambda: Stage(setting=BY_UUID))
async def test_a_file_by_uuid_is_taken_over_only_from_who_lost_the_table(stage: Stage) -> None:
    """One table registered under two names: they don't take its file from one another."""
    (table,) = await stage.publish("a")
    stage.world.set(0, named("b"), table)
    await stage.hint("b")
    await asyncio.sleep(60)
    file = FileLayout(PLACE, UUID).keys(FileOwner((), "", table.uuid))[0]
    assert json.loads(stage.world.files.bodies[file])["name"] == "a"
    stage.drop("b")
    await stage.hint("b", drop=True)


@history(lambda: Stage(setting=BY_UUID))
async def test_of_two_files_by_uuid_the_older_one_loses_the_name_at_once(stage: Stage) -> None:
    """Whatever becomes of the newer one: nobody who asks by name comes back to the table that had it before."""
    await stage.publish("a")
    stage.drop("a")
    second = stage.create("a")
    file = FileLayout(PLACE, UUID).keys(FileOwner((), "", second.uuid))[0]
    slow = stage.hold(f"after write {file}")
    await stage.hint("a")
    await slow.reached.wait()
    for node in list(stage.service.nodes):
        stage.service.crash(node)
    stage.service.script = None
    stage.rename("a", "b")
    await stage.hint("a", renamed_to=named("b"))
    await stage.hint("b")
    await asyncio.sleep(60)


@history(lambda: Stage(setting=BELOW_ROOT))
async def test_a_table_that_was_made_anew_is_there_before_the_older_one_ends(stage: Stage) -> None:
    """Rule 9: nobody who asks by its name, and found it, is told that there is none; where no hint tells it too."""
    await stage.publish("a")
    stage.drop("a")
    stage.create("a")
    await asyncio.sleep(10)
    await stage.hint("a")


@history(lambda: Stage(setting=Setting(policies=({"naming": UUID, "branches": ("main", "r-*")},))), briefly=True)
async def test_a_branch_that_ended_before_a_rename_has_no_live_file_for_ever(stage: Stage) -> None:
    """The table's file goes over to the new name, which has none of the branch."""
    stage.create("a")
    stage.commit("a", branches={"r-1": 7})
    await stage.hint("a")
    await asyncio.sleep(20)
    stage.rename("a", "b")
    stage.commit("b", branches={})
    await stage.hint("b")
    await stage.hint("a", renamed_to=named("b"))


@pytest.mark.parametrize("setting", [Setting(), Setting(conditional_delete=False)])
@pytest.mark.parametrize("version", [2, 3])
def test_their_hint_stays_as_it_is_whatever_becomes_of_the_name(setting: Setting, version: int) -> None:
    """Rule 9: that a document of ours names `v2.metadata.json` does not make a `2` ours."""
    stage = Stage(setting=setting)

    async def act() -> None:
        stage.register_folder("a", version=version)
        await stage.hint("a")
        await asyncio.sleep(20)
        for _ in range(4):
            stage.commit("a")
            await stage.hint("a")
            await asyncio.sleep(20)
        stage.rename("a", "b")
        await stage.hint("a")
        await stage.hint("b")
        await asyncio.sleep(300)
        stage.drop("b")
        await stage.hint("b")
        await asyncio.sleep(300)
        assert stage.states(["b"]) == {"dropped": 1}

    assert stage.run(act) == []
    assert stage.world.files.bodies[VERSION_HINT] == str(version).encode()


@history(Stage)
async def test_a_hint_that_is_a_number_is_ours_where_we_made_it(stage: Stage) -> None:
    """There was none: the first is ours, of whatever form, and follows."""
    stage.register_folder("a")
    stage.world.checker.theirs.clear()
    del stage.world.files.bodies[VERSION_HINT]
    await stage.hint("a")
    await asyncio.sleep(20)
    assert stage.world.files.bodies[VERSION_HINT] == b"2"
    table = stage.commit("a")
    await stage.hint("a")
    await asyncio.sleep(20)
    assert stage.world.files.bodies[VERSION_HINT].decode() == version_hint.text_for(table.metadata_location)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_of_ours_grows_old_enough_to_be_cleaned_away(layout: str) -> None:
    """Rule 14: live files, those of commits and branches, hints and tombstones."""
    stage = Stage(setting=Setting(policies=(LAYOUTS[layout] | {"expire_after": 5 * DAY},)))

    async def act() -> None:
        await stage.publish("a", "b")
        stage.commit("a", branches={"r-1": 7})
        await stage.hint("a")
        stage.drop("b")
        await stage.hint("b", drop=True)
        for _ in range(12):
            await asyncio.sleep(DAY.total_seconds() / 4)
            Incidents(stage.world).clean()

    assert stage.run(act, briefly=True) == []
    assert stage.states(["a", "b"])["dropped"] == 1
