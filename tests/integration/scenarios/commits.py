"""Commits, branches and tags."""

from __future__ import annotations

from pyiceberg.types import DoubleType

from tests.integration.scenarios.looks import Look, by_history, by_ref, everywhere, file_of
from tests.integration.scenarios.scenario import OUTAGE, Scenario
from tests.integration.scenarios.stage import Known, Stage

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


SCENARIOS = (
    Scenario("create", create),
    Scenario("commit", commit),
    Scenario("ten commits in a burst", burst, OUTAGE),
    Scenario("schema change", schema),
    Scenario("commits to a published branch and to another", branch),
    Scenario("published branch deleted", unbranch, OUTAGE),
    Scenario("tag, then a commit", tag),
    Scenario("rollback to an older snapshot", rollback, OUTAGE),
)
