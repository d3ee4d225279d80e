"""Tables that are dropped, and those that come after them."""

from __future__ import annotations

from tests.integration.scenarios.looks import Look, by_name, by_uuid, everywhere, why
from tests.integration.scenarios.places import moved
from tests.integration.scenarios.scenario import OUTAGE, OUTAGE_OR_SILENCE, Scenario
from tests.integration.scenarios.stage import Stage


def drop(stage: Stage) -> list[Look]:
    stage.filled("t")
    with stage.changes():
        table = stage.drop("t")
    return everywhere(table)


def purge(stage: Stage) -> list[Look]:
    stage.filled("t")
    with stage.changes():
        table = stage.drop("t", purge=True)
    return everywhere(table)


def undrop(stage: Stage) -> list[Look]:
    stage.filled("t")
    with stage.changes():
        dropped = stage.drop("t")
        table = stage.register("t", dropped.pointer)
    return everywhere(table)


def again_here(stage: Stage) -> list[Look]:
    first = stage.filled("t", at=stage.place("t"))
    with stage.changes():
        stage.drop("t")
        second = stage.filled("t", at=stage.place("t"))
    return [*everywhere(second), by_uuid(first, "old")]


def again_elsewhere(stage: Stage) -> list[Look]:
    first = stage.filled("t")
    with stage.changes():
        stage.drop("t")
        second = stage.filled("t", at=stage.place("t"))
    return [*everywhere(second), *everywhere(first, "old place")]


def renamed_and_dropped(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    with stage.changes():
        stage.rename("a", "b")
        b = stage.drop("b")
    return [*everywhere(b), by_name(a, "old")]


def older_row(stage: Stage) -> list[Look]:
    """The second name has an older metadata file of the same table, and its end is heard of later."""
    older = stage.register("u", stage.filled("t").pointer)
    stage.append("t")
    with stage.muted():
        stage.drop("u")
    with stage.at_once():
        table = stage.drop("t")
        stage.until_looked_at()
        meanwhile = why(stage, table, "meanwhile")
        stage.tell_of("u", "drop")
    return [*everywhere(table), by_name(older, "u"), meanwhile]


def expired_drop(stage: Stage) -> list[Look]:
    stage.filled("t")
    return everywhere(stage.drop("t"))


def expired_rename(stage: Stage) -> list[Look]:
    a = stage.filled("a")
    return [*everywhere(stage.rename("a", "b")), by_name(a, "old")]


def expired_move(stage: Stage) -> list[Look]:
    old = stage.filled("t")
    return [*everywhere(moved(stage, "t")), *everywhere(old, "old place")]


SCENARIOS = (
    Scenario("drop", drop, OUTAGE_OR_SILENCE),
    Scenario("drop with purge", purge, OUTAGE),
    Scenario("undrop: its metadata registered again", undrop, OUTAGE),
    Scenario("rename a → b, drop b", renamed_and_dropped, OUTAGE_OR_SILENCE),
    Scenario("drop and create again in the same directory", again_here, OUTAGE_OR_SILENCE),
    Scenario("drop and create again elsewhere", again_elsewhere, OUTAGE),
    Scenario("drop t while u has an older file of the same table, then drop u", older_row),
    Scenario("drop, tombstone expired", expired_drop, expires=True),
    Scenario("rename a → b, tombstone expired", expired_rename, expires=True),
    Scenario("relocation, tombstones expired", expired_move, expires=True),
)
