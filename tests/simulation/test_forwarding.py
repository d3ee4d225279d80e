"""Directed histories of whoever comes to where a table was, or calls it as it was called."""

from __future__ import annotations

import asyncio

import pytest

from sfn.sfnfile.naming import ORDINAL, UUID
from tests.simulation.script import ELSEWHERE, PLACE, Stage, history
from tests.simulation.settings import Files, Setting

NAMINGS: list[Files] = [{}, {"naming": ORDINAL}, {"naming": UUID}]


@pytest.mark.parametrize("files", NAMINGS, ids=["identifier", "ordinal", "uuid"])
def test_whoever_comes_to_where_a_table_was_is_led_to_where_it_is(files: Files) -> None:
    stage = Stage(setting=Setting(policies=(files,)))

    async def act() -> None:
        await stage.publish("a")
        stage.commit("a", place=ELSEWHERE)
        await stage.hint("a")

    assert stage.run(act, briefly=True) == []


@pytest.mark.parametrize("files", NAMINGS[:2], ids=["identifier", "ordinal"])
def test_whoever_calls_a_table_as_it_was_called_is_led_to_it(files: Files) -> None:
    """Through every name that it had."""
    stage = Stage(setting=Setting(policies=(files,)))

    async def act() -> None:
        stage.create("a")
        await stage.hint("a")
        for old, new in ("ab", "bc"):
            await asyncio.sleep(20)
            stage.rename(old, new)
            await stage.hint(old)
            await stage.hint(new)
        await asyncio.sleep(20)
        stage.commit("c")
        await stage.hint("c")

    assert stage.run(act, briefly=True) == []


@history(Stage, briefly=True)
async def test_whoever_calls_a_table_by_a_name_that_another_one_has_now_is_told_both(stage: Stage) -> None:
    await stage.publish("a")
    stage.rename("a", "b")
    await stage.hint("a")
    await stage.hint("b")
    await asyncio.sleep(20)
    stage.create("a", ELSEWHERE)
    await stage.hint("a")


@history(Stage, briefly=True)
async def test_a_table_is_not_given_up_while_a_file_beside_says_its_new_name(stage: Stage) -> None:
    """Nobody told of the rename, and whoever publishes the new name has written its file, but not settled."""
    await stage.publish("a")
    stage.rename("a", "b")
    slow = stage.hold(f"after write {PLACE}/metadata/_sfn/n_b_main.ver")
    await stage.hint("b")
    await slow.reached.wait()
    await stage.hint("a", drop=True)
    await asyncio.sleep(60)
    assert stage.world.checker.document(f"{PLACE}/metadata/_sfn/n_a_main.ver")["state"] == "current"
    slow.go.set()
    await asyncio.sleep(60)
    assert stage.world.checker.document(f"{PLACE}/metadata/_sfn/n_a_main.ver")["state"] == "renamed"


@history(Stage, briefly=True)
async def test_a_table_is_not_given_up_while_a_sweep_knows_its_new_name(stage: Stage) -> None:
    """Nobody told of the rename, and the new name's file, which will lie elsewhere, is not written for long."""
    await stage.publish("a")
    free = stage.block(f"before write {ELSEWHERE}/metadata/_sfn/n_b_main.ver")
    stage.rename("a", "b")
    stage.commit("b", place=ELSEWHERE)
    await asyncio.sleep(600)
    assert stage.world.checker.document(f"{PLACE}/metadata/_sfn/n_a_main.ver")["state"] == "current"
    free.set()
    await asyncio.sleep(120)
    assert stage.world.checker.document(f"{PLACE}/metadata/_sfn/n_a_main.ver")["state"] == "renamed"


@history(Stage, briefly=True)
async def test_a_drop_told_of_one_table_gives_up_no_other(stage: Stage) -> None:
    """Nobody told that the next table of the name was renamed, nor that it was created."""
    await stage.publish("a")
    stage.drop("a")
    stage.create("a", ELSEWHERE)
    await stage.hint("a", drop=True)
    await asyncio.sleep(3)
    stage.rename("a", "b")
    await stage.hint("a")
    await asyncio.sleep(30)
    assert stage.world.checker.document(f"{ELSEWHERE}/metadata/_sfn/n_a_main.ver")["state"] == "current"


@history(Stage, briefly=True)
async def test_a_table_that_was_given_up_too_early_is_found_again(stage: Stage) -> None:
    """It had another name, and whoever was to publish that was away until nobody waited for it any more."""
    await stage.publish("a")
    free = stage.block(f"before write {PLACE}/metadata/_sfn/n_b_main.ver")
    stage.rename("a", "b")
    await stage.hint("a", drop=True)
    await stage.hint("b")
    await asyncio.sleep(60)
    assert stage.world.checker.document(f"{PLACE}/metadata/_sfn/n_a_main.ver")["state"] == "dropped"
    free.set()


@history(Stage, briefly=True)
async def test_a_table_that_another_one_has_the_name_of_is_not_given_up_while_a_sweep_knows_its_new_name(
    stage: Stage,
) -> None:
    """Its row has published the other one since; the new name's file, which will lie elsewhere, is not written."""
    await stage.publish("a")
    free = stage.block(f"before write {ELSEWHERE}/metadata/_sfn/n_b_main.ver")
    stage.rename("a", "b")
    stage.commit("b", place=ELSEWHERE)
    stage.create("a", "s3://lake/2")
    await stage.hint("a")
    await asyncio.sleep(600)
    assert stage.world.checker.document(f"{PLACE}/metadata/_sfn/n_a_main.ver")["state"] == "current"
    free.set()
