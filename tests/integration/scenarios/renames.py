"""Tables that change their names."""

from __future__ import annotations

from tests.integration.scenarios.looks import Look, by_history, by_name, everywhere
from tests.integration.scenarios.places import moved
from tests.integration.scenarios.scenario import OUTAGE, OUTAGE_OR_SILENCE, Scenario
from tests.integration.scenarios.stage import Stage


def rename(stage: Stage) -> list[Look]:
    a = stage.grown("a")
    with stage.changes():
        b = stage.rename("a", "b")
    return [*everywhere(b), by_history(b), by_name(a, "old"), by_history(a, b)]


def rename_commit(stage: Stage) -> list[Look]:
    a = stage.grown("a")
    with stage.changes():
        stage.rename("a", "b")
        b = stage.append("b")
    return [*everywhere(b), by_history(b), by_name(a, "old"), by_history(a, b)]


def back(stage: Stage) -> list[Look]:
    stage.filled("a")
    with stage.changes():
        b = stage.rename("a", "b")
        a = stage.rename("b", "a")
    return [*everywhere(a), by_name(b, "in between")]


def onward(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    with stage.changes():
        b = stage.rename("a", "b")
        c = stage.rename("b", "c")
    return [*everywhere(c), by_name(a, "first"), by_name(b, "second")]


def swap(stage: Stage) -> list[Look]:
    a, b = stage.filled("a"), stage.filled("b")
    with stage.changes():
        stage.rename("a", "x")
        now_a, now_b = stage.rename("b", "a"), stage.rename("x", "b")
    first = [*everywhere(now_a, "b's place"), by_name(b, "b's place, old")]
    return [*first, *everywhere(now_b, "a's place"), by_name(a, "a's place, old")]


def blue_green(stage: Stage) -> list[Look]:
    t = stage.filled("t")
    stage.filled("t_new")
    with stage.changes():
        old, new = stage.rename("t", "t_old"), stage.rename("t_new", "t")
    return [*everywhere(new, "new place"), *everywhere(old, "old place"), by_name(t, "old place, old")]


def across(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    with stage.changes():
        b = stage.rename("a", (stage.beside("other"), "a"))
    return [*everywhere(b), by_name(a, "old")]


def onto_tombstone(stage: Stage) -> list[Look]:
    dropped = stage.filled("t")
    u = stage.filled("u")
    with stage.changes():
        stage.drop("t")
        t = stage.rename("u", "t")
    return [*everywhere(t), by_name(u, "old"), *everywhere(dropped, "dropped")]


def relocate_rename(stage: Stage) -> list[Look]:
    old = stage.filled("a")
    with stage.changes():
        moved(stage, "a")
        new = stage.rename("a", "b")
    return [*everywhere(new), *everywhere(old, "old place")]


SCENARIOS = (
    Scenario("rename a → b", rename, OUTAGE),
    Scenario("rename a → b, then a commit", rename_commit, OUTAGE_OR_SILENCE),
    Scenario("rename a → b → a", back, OUTAGE),
    Scenario("rename a → b → c", onward, OUTAGE),
    Scenario("swap of two names", swap, OUTAGE_OR_SILENCE),
    Scenario("blue/green: t → t_old, t_new → t", blue_green, OUTAGE),
    Scenario("rename into another namespace", across, OUTAGE),
    Scenario("drop t, rename u → t", onto_tombstone, OUTAGE_OR_SILENCE),
    Scenario("relocation, then a rename", relocate_rename, OUTAGE_OR_SILENCE),
)
