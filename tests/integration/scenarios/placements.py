"""Files that lie elsewhere than inside the metadata folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sfn.sfnfile.naming import Placement, folder_below_root
from tests.integration.scenarios.looks import Look, by_name, everywhere
from tests.integration.scenarios.places import moved
from tests.integration.scenarios.scenario import Scenario
from tests.integration.scenarios.stage import Known, Stage


def alongside_rename(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    return [*everywhere(stage.rename("a", "b")), by_name(a, "old")]


def alongside_relocate(stage: Stage) -> list[Look]:
    old = stage.filled("t")
    return [*everywhere(moved(stage, "t")), *everywhere(old, "old place")]


def root_commit(stage: Stage) -> list[Look]:
    table = stage.filled("t")
    return [*everywhere(table), by_name(_at_root(stage, table), "root"), *everywhere(_below_root(stage, table), _BELOW)]


def root_rename(stage: Stage) -> list[Look]:
    a = _at_root(stage, stage.filled("a"))
    b = stage.rename("a", "b")
    return [by_name(_at_root(stage, b), "root"), by_name(a, "root, old"), *everywhere(_below_root(stage, b), _BELOW)]


def root_relocate(stage: Stage) -> list[Look]:
    stage.filled("t")
    table = moved(stage, "t")
    return [by_name(_at_root(stage, table), "root"), *everywhere(_below_root(stage, table), _BELOW)]


def root_drop(stage: Stage) -> list[Look]:
    stage.filled("t")
    table = stage.drop("t")
    return [by_name(_at_root(stage, table), "root"), *everywhere(_below_root(stage, table), _BELOW)]


_BELOW = "its folder below the root"


def _at_root(stage: Stage, table: Known) -> Known:
    return replace(table, directory=stage.section.root)


def _below_root(stage: Stage, table: Known) -> Known:
    folder = folder_below_root(str(stage.section.root), table.identifier[:-1], table.identifier[-1])
    return replace(table, directory=Path(folder))


SCENARIOS = (
    Scenario("placement alongside: rename a → b", alongside_rename, placement=Placement.ALONGSIDE),
    Scenario("placement alongside: relocation", alongside_relocate, placement=Placement.ALONGSIDE),
    Scenario("placement root: commit", root_commit, placement=Placement.ROOT),
    Scenario("placement root: rename a → b", root_rename, placement=Placement.ROOT),
    Scenario("placement root: relocation", root_relocate, placement=Placement.ROOT),
    Scenario("placement root: drop", root_drop, placement=Placement.ROOT),
)
