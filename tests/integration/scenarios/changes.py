"""Scenarios of one table in its place: commits and branches, renames, ends, and what gets no files."""

from __future__ import annotations

from pyiceberg.types import DoubleType
from pyiceberg.view.metadata import ViewVersion

from tests.integration.scenarios.looks import (
    OUTAGE,
    OUTAGE_OR_SILENCE,
    Look,
    Scenario,
    by_history,
    by_name,
    by_ref,
    by_uuid,
    everywhere,
    file_of,
    why,
)
from tests.integration.scenarios.places import moved
from tests.integration.scenarios.stage import SCHEMA, Known, Stage, folder

BRANCH, UNPUBLISHED, TAG = "release-1", "audit", "v1"
BURST = 10


def create(stage: Stage) -> list[Look]:
    return everywhere(stage.create("t"))


def commit(stage: Stage) -> list[Look]:
    stage.create("t")
    return everywhere(stage.append("t"))


def burst(stage: Stage) -> list[Look]:
    table = stage.create("t")
    with stage.changes(), stage.at_once():
        for _ in range(BURST):
            stage.append("t")
    return [*everywhere(table), by_history(table)]


def schema(stage: Stage) -> list[Look]:
    stage.filled("t")
    with stage.load("t").update_schema() as update:
        update.add_column("price", DoubleType())
        update.rename_column("item", "fruit")
    return everywhere(stage.committed("t"))


def branch(stage: Stage) -> list[Look]:
    table = _branched(stage, BRANCH, UNPUBLISHED)
    return [*everywhere(table), by_ref(table, BRANCH), by_ref(table, UNPUBLISHED)]


def unbranch(stage: Stage) -> list[Look]:
    _branched(stage, BRANCH)
    with stage.changes():
        stage.load("t").manage_snapshots().remove_branch(BRANCH).commit()
        table = stage.committed("t")
    return [*everywhere(table), by_ref(table, BRANCH), file_of(table, BRANCH)]


def tag(stage: Stage) -> list[Look]:
    table = stage.filled("t")
    stage.load("t").manage_snapshots().create_tag(_snapshot(stage), TAG).commit()
    stage.append("t")
    return [*everywhere(table), by_ref(table, TAG), file_of(table, TAG)]


def rollback(stage: Stage) -> list[Look]:
    stage.filled("t")
    first = _snapshot(stage)
    stage.append("t")
    with stage.changes():
        stage.load("t").manage_snapshots().rollback_to_snapshot(first).commit()
        table = stage.committed("t")
    return everywhere(table)


def _branched(stage: Stage, *branches: str) -> Known:
    """A table with branches that have a commit each of which `main` knows nothing."""
    table = stage.filled("t")
    for name in branches:
        stage.load("t").manage_snapshots().create_branch(_snapshot(stage), name).commit()
        table = stage.append("t", name)
    return table


def _snapshot(stage: Stage) -> int:
    snapshot = stage.load("t").current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


COMMITS = (
    Scenario("create", create),
    Scenario("commit", commit),
    Scenario("ten commits in a burst", burst, OUTAGE),
    Scenario("schema change", schema),
    Scenario("commits to a published branch and to another", branch),
    Scenario("published branch deleted", unbranch, OUTAGE),
    Scenario("tag, then a commit", tag),
    Scenario("rollback to an older snapshot", rollback, OUTAGE),
)


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


RENAMES = (
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


ENDS = (
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


OFF, ON = {"sfn.enabled": "false"}, {"sfn.enabled": "true"}
ENCRYPTED = {"encryption.key-id": "a-key", "format-version": "3"}


def view(stage: Stage) -> list[Look]:
    query = {"type": "sql", "sql": "SELECT 1 AS id, 'x' AS item", "dialect": "spark"}
    namespace = {"default-namespace": [stage.namespace], "schema-id": 0}
    version = ViewVersion.model_validate({"version-id": 1, "representations": [query], **namespace})
    made = stage.catalog.create_view(stage.identifier("v"), SCHEMA, version)
    stage.tell_of("v")
    return everywhere(Known(stage.identifier("v"), folder(made.location()), str(made.uuid()), ""))


def encrypted(stage: Stage) -> list[Look]:
    return everywhere(stage.create("t", properties=ENCRYPTED))


def off(stage: Stage) -> list[Look]:
    stage.filled("t")
    return everywhere(stage.set("t", OFF))


def on(stage: Stage) -> list[Look]:
    stage.filled("t")
    stage.set("t", OFF)
    return everywhere(stage.set("t", ON))


LEFT_ALONE = (
    Scenario("view", view),
    Scenario("encrypted table", encrypted),
    Scenario("switched off by sfn.enabled=false", off),
    Scenario("… and on again", on),
)
