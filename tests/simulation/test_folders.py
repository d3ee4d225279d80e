"""Directed histories of tables that were nothing but a folder (Hadoop's), whose writers keep a version hint."""

from __future__ import annotations

import asyncio

import pytest

from sfn.sfnfile import version_hint
from tests.simulation.script import PLACE, Stage
from tests.simulation.setting import Setting

HINT = version_hint.key_of(PLACE)


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
    assert stage.world.files.bodies[HINT] == str(version).encode()


def test_a_hint_that_is_a_number_is_ours_where_we_made_it() -> None:
    """There was none: the first is ours, of whatever form, and follows."""
    stage = Stage()

    async def act() -> None:
        stage.register_folder("a")
        stage.world.checker.theirs.clear()
        del stage.world.files.bodies[HINT]
        await stage.hint("a")
        await asyncio.sleep(20)
        assert stage.world.files.bodies[HINT] == b"2"
        table = stage.commit("a")
        await stage.hint("a")
        await asyncio.sleep(20)
        assert stage.world.files.bodies[HINT].decode() == version_hint.text_for(table.metadata_location)

    assert stage.run(act) == []
