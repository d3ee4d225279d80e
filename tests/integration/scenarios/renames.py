"""Tables that change their names."""

from __future__ import annotations

from tests.integration.scenarios.looks import Look, by_history, by_name, everywhere
from tests.integration.scenarios.scenario import Scenario
from tests.integration.scenarios.stage import Stage


def rename(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    b = stage.rename("a", "b")
    return [*everywhere(b), by_history(b), by_name(a, "old"), by_history(a, b)]


def back(stage: Stage) -> list[Look]:
    stage.filled("a")
    b = stage.rename("a", "b")
    return [*everywhere(stage.rename("b", "a")), by_name(b, "in between")]


def onward(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    b = stage.rename("a", "b")
    return [*everywhere(stage.rename("b", "c")), by_name(a, "first"), by_name(b, "second")]


def swap(stage: Stage) -> list[Look]:
    a, b = stage.filled("a"), stage.filled("b")
    stage.rename("a", "x")
    now_a, now_b = stage.rename("b", "a"), stage.rename("x", "b")
    first = [*everywhere(now_a, "b's place"), by_name(b, "b's place, old")]
    return [*first, *everywhere(now_b, "a's place"), by_name(a, "a's place, old")]


def blue_green(stage: Stage) -> list[Look]:
    t = stage.filled("t")
    stage.filled("t_new")
    old, new = stage.rename("t", "t_old"), stage.rename("t_new", "t")
    return [*everywhere(new, "new place"), *everywhere(old, "old place"), by_name(t, "old place, old")]


def across(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    return [*everywhere(stage.rename("a", (stage.beside("other"), "a"))), by_name(a, "old")]


def onto_tombstone(stage: Stage) -> list[Look]:
    dropped = stage.filled("t")
    u = stage.filled("u")
    stage.drop("t")
    return [*everywhere(stage.rename("u", "t")), by_name(u, "old"), *everywhere(dropped, "dropped")]


SCENARIOS = (
    Scenario("rename a → b", rename),
    Scenario("rename a → b → a", back),
    Scenario("rename a → b → c", onward),
    Scenario("swap of two names", swap),
    Scenario("blue/green: t → t_old, t_new → t", blue_green),
    Scenario("rename into another namespace", across),
    Scenario("rename u → t, where a dropped t left its file", onto_tombstone),
)
