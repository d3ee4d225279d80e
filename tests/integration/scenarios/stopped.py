"""What happened while the service was down: it finds the outcome, and learns nothing of the way."""

from __future__ import annotations

from tests.integration.scenarios.looks import Look, by_history, by_name, by_uuid, everywhere
from tests.integration.scenarios.places import moved
from tests.integration.scenarios.scenario import Scenario
from tests.integration.scenarios.stage import Stage


def rename_commit(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    with stage.while_stopped():
        stage.rename("a", "b")
        b = stage.append("b")
    return [*everywhere(b), by_history(b), by_name(a, "old"), by_history(a, b)]


def drop_create(stage: Stage) -> list[Look]:
    first = stage.filled("t")
    with stage.while_stopped():
        stage.drop("t")
        second = stage.filled("t")
    return [*everywhere(second), by_uuid(first, "old")]


def relocate_rename(stage: Stage) -> list[Look]:
    old = stage.filled("a")
    with stage.while_stopped():
        moved(stage, "a")
        new = stage.rename("a", "b")
    return [*everywhere(new), *everywhere(old, "old place")]


def rename_drop(stage: Stage) -> list[Look]:
    a, b = stage.filled("a"), stage.filled("b")
    with stage.while_stopped():
        stage.drop("b")
        now = stage.rename("a", "b")
    return [*everywhere(now), by_name(a, "old"), *everywhere(b, "dropped")]


def rename_then_drop(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    with stage.while_stopped():
        stage.rename("a", "b")
        stage.drop("b")
    return everywhere(a)


def dropped(stage: Stage) -> list[Look]:
    stage.filled("t")
    with stage.while_stopped():
        table = stage.drop("t")
    return everywhere(table)


def swapped(stage: Stage) -> list[Look]:
    a, b = stage.filled("a"), stage.filled("b")
    with stage.while_stopped():
        stage.rename("a", "x")
        now_a, now_b = stage.rename("b", "a"), stage.rename("x", "b")
    first = [*everywhere(now_a, "b's place"), by_name(b, "b's place, old")]
    return [*first, *everywhere(now_b, "a's place"), by_name(a, "a's place, old")]


SCENARIOS = (
    Scenario("service down: rename and commit", rename_commit, stops=True),
    Scenario("service down: drop and create again", drop_create, stops=True),
    Scenario("service down: relocation and rename", relocate_rename, stops=True),
    Scenario("service down: drop b, rename a → b", rename_drop, stops=True),
    Scenario("service down: rename a → b, drop b", rename_then_drop, stops=True),
    Scenario("service down: swap of two names", swapped, stops=True),
    Scenario("service down: drop", dropped, stops=True),
)
