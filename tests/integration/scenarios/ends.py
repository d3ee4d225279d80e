"""Tables that are dropped, and those that come after them."""

from __future__ import annotations

from tests.integration.scenarios.looks import Look, by_name, by_uuid, everywhere
from tests.integration.scenarios.scenario import Scenario
from tests.integration.scenarios.stage import Stage


def drop(stage: Stage) -> list[Look]:
    stage.filled("t")
    return everywhere(stage.drop("t"))


def purge(stage: Stage) -> list[Look]:
    stage.filled("t")
    return everywhere(stage.drop("t", purge=True))


def undrop(stage: Stage) -> list[Look]:
    stage.filled("t")
    dropped = stage.drop("t")
    return everywhere(stage.register("t", dropped.pointer))


def again_here(stage: Stage) -> list[Look]:
    first = stage.filled("t", at=stage.place("t"))
    stage.drop("t")
    second = stage.filled("t", at=stage.place("t"))
    return [*everywhere(second), by_uuid(first, "old")]


def again_elsewhere(stage: Stage) -> list[Look]:
    first = stage.filled("t")
    stage.drop("t")
    second = stage.filled("t", at=stage.place("t"))
    return [*everywhere(second), *everywhere(first, "old place")]


def renamed_and_dropped(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    stage.rename("a", "b")
    return [*everywhere(stage.drop("b")), by_name(a, "old")]


SCENARIOS = (
    Scenario("drop", drop),
    Scenario("drop with purge", purge),
    Scenario("undrop: its metadata registered again", undrop),
    Scenario("rename a → b, drop b", renamed_and_dropped),
    Scenario("drop and create again in the same directory", again_here),
    Scenario("drop and create again elsewhere", again_elsewhere),
)
