"""Features of the snapshots: branches, tags and earlier states, and maintenance procedures."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from sfn.sfnfile.naming import ORDINAL
from tests.spark.matrix.table import BEFORE, COLUMNS, Feature, State, Table


def branch(table: Table) -> Iterable[State]:
    """Its head is read with the table's schema, which changed since."""
    table.create(COLUMNS)
    table.insert("(1, 'apple')")
    table.run("ALTER TABLE {t} CREATE BRANCH audit")
    table.insert("(2, 'pear')", branch="audit")
    table.run("ALTER TABLE {t} ADD COLUMN price INT", "ALTER TABLE {t} RENAME COLUMN item TO fruit")
    table.insert("(3, 'fig', 7)")
    yield table.now()
    yield table.at_ref("audit", "by `ref`")
    yield table.at_ref("audit", "by `as_of`", by="as_of")


def tag(table: Table) -> Iterable[State]:
    """What it names is read with the schema of its time."""
    table.create(COLUMNS)
    table.insert("(1, 'apple')")
    table.run("ALTER TABLE {t} CREATE TAG v1", "ALTER TABLE {t} ADD COLUMN price INT")
    table.run("ALTER TABLE {t} RENAME COLUMN item TO fruit")
    table.insert("(3, 'fig', 7)")
    yield table.now()
    yield table.at_ref("v1", "by `ref`")
    yield table.at_ref("v1", "by `as_of`", by="as_of")


def odd_refs(table: Table) -> Iterable[State]:
    table.create(COLUMNS)
    table.insert("(1, 'apple')")
    table.run("ALTER TABLE {t} CREATE BRANCH `feature/Größe 1`", "ALTER TABLE {t} CREATE TAG `2026.11`")
    table.insert("(2, 'pear')")
    yield table.at_ref("feature/Größe 1", "branch `feature/Größe 1`")
    yield table.at_ref("2026.11", "tag `2026.11`")


def earlier_states(table: Table) -> Iterable[State]:
    table.create(COLUMNS)
    table.insert("(1, 'apple')")
    first, at, then = table.snapshot, int(table.java.currentSnapshot().timestampMillis()), table.moment()
    table.run("ALTER TABLE {t} DROP COLUMN item")
    without = table.moment()
    table.run("DELETE FROM {t}")
    table.insert("(2)")
    yield table.now()
    yield table.at_snapshot(first)
    yield table.at_time(at)
    yield table.as_it_was(then)
    yield table.as_it_was(without, "as of the Ordinal of a change of schema")


def file_for_each_commit(table: Table) -> Iterable[State]:
    """Each commit has a file of its own."""
    table.create(COLUMNS)
    table.insert("(1, 'apple')")
    table.publish(ORDINAL)
    then = table.moment()
    table.run("ALTER TABLE {t} ADD COLUMN price INT")
    table.publish(ORDINAL)
    without = table.moment()
    table.insert("(2, 'pear', 3)")
    table.publish(ORDINAL)
    yield table.now()
    yield table.as_it_was(then)
    yield table.as_it_was(without, "as of the Ordinal of a change of schema")


REFS: Final = (
    Feature("branch", branch),
    Feature("tag", tag),
    Feature("odd names of refs", odd_refs),
    Feature("states of before", earlier_states),
    Feature("states of before, a file for each commit", file_for_each_commit),
)


def _three_commits(table: Table, **properties: str) -> list[int]:
    """A table of three commits; their snapshots."""
    table.create(COLUMNS, properties=properties)
    snapshots = []
    for row in ("(1, 'apple')", "(2, 'pear')", "(3, 'fig')"):
        table.insert(row)
        snapshots.append(table.snapshot)
    return snapshots


def data_files_rewritten(table: Table) -> Iterable[State]:
    before = _three_commits(table)[-1]
    table.run("CALL {system}.rewrite_data_files(table => {q}, options => map('rewrite-all', 'true'))")
    yield table.now()
    yield table.at_snapshot(before, BEFORE)


def data_files_sorted(table: Table) -> Iterable[State]:
    _three_commits(table)
    table.run(
        "CALL {system}.rewrite_data_files(table => {q}, strategy => 'sort', sort_order => 'item DESC', "
        "options => map('rewrite-all', 'true'))"
    )
    yield table.now()


def manifests_rewritten(table: Table) -> Iterable[State]:
    _three_commits(table)
    table.run("CALL {system}.rewrite_manifests({q})")
    yield table.now()


def snapshots_expired(table: Table) -> Iterable[State]:
    last = _three_commits(table)[-1]
    table.run(
        "DELETE FROM {t} WHERE id = 1",
        f"CALL {{system}}.expire_snapshots(table => {{q}}, {_OLDER_THAN}, retain_last => 2)",
    )
    yield table.now()
    yield table.at_snapshot(last, "as of a snapshot that is left")


def orphans_removed(table: Table) -> Iterable[State]:
    """A file that no metadata names is deleted; the SFN file stays, though no metadata names it either."""
    _three_commits(table)
    table.publish()
    yesterday = datetime.fromtimestamp(int(table.java.currentSnapshot().timestampMillis()) / 1000, UTC) - timedelta(
        days=2
    )
    arguments = f"older_than => TIMESTAMP'{yesterday:%Y-%m-%d %H:%M:%S}'"
    table.run(f"CALL {{system}}.remove_orphan_files(table => {{q}}, {arguments})")
    yield table.now()


def metadata_deleted(table: Table) -> Iterable[State]:
    arguments = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    first = _three_commits(table, **arguments)[0]
    yield table.now()
    yield table.at_snapshot(first)


def rolled_back(table: Table) -> Iterable[State]:
    first, _, last = _three_commits(table)
    table.run(f"CALL {{system}}.rollback_to_snapshot({{q}}, {first})")
    yield table.now()
    yield table.at_snapshot(last, BEFORE)


def set_back(table: Table) -> Iterable[State]:
    """The schema of now is that of later."""
    first = _three_commits(table)[0]
    table.run("ALTER TABLE {t} ADD COLUMN price INT", f"CALL {{system}}.set_current_snapshot({{q}}, {first})")
    yield table.now()


def cherry_picked(table: Table) -> Iterable[State]:
    _three_commits(table)
    table.run("ALTER TABLE {t} CREATE BRANCH audit")
    table.insert("(4, 'kiwi')", branch="audit")
    picked = table.java.refs()["audit"].snapshotId()
    table.insert("(5, 'lime')")
    table.run(f"CALL {{system}}.cherrypick_snapshot({{q}}, {picked})")
    yield table.now()


_OLDER_THAN: Final = "older_than => TIMESTAMP'2999-01-01 00:00:00'"
MAINTENANCE: Final = (
    Feature("rewrite_data_files", data_files_rewritten),
    Feature("rewrite_data_files by an order", data_files_sorted),
    Feature("rewrite_manifests", manifests_rewritten),
    Feature("expire_snapshots", snapshots_expired),
    Feature("remove_orphan_files", orphans_removed),
    Feature("metadata files deleted after each commit", metadata_deleted),
    Feature("rollback", rolled_back),
    Feature("set_current_snapshot under a later schema", set_back),
    Feature("cherrypick_snapshot", cherry_picked),
)
