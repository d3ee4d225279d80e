"""What is done to tables that get old."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.spark.matrix.feature import Feature
from tests.spark.matrix.table import BEFORE, Look, Table

COLUMNS: Final = "id INT, item STRING"


def _commits(table: Table, **properties: str) -> list[int]:
    """A table of three commits; their snapshots."""
    table.create(COLUMNS, properties=properties)
    snapshots = []
    for row in ("(1, 'apple')", "(2, 'pear')", "(3, 'fig')"):
        table.insert(row)
        snapshots.append(table.snapshot)
    return snapshots


def compacted(table: Table) -> Iterable[Look]:
    before = _commits(table)[-1]
    table.run("CALL {system}.rewrite_data_files(table => {q}, options => map('rewrite-all', 'true'))")
    yield table.now()
    yield table.at_snapshot(before, BEFORE)


def sorted_anew(table: Table) -> Iterable[Look]:
    _commits(table)
    table.run(
        "CALL {system}.rewrite_data_files(table => {q}, strategy => 'sort', sort_order => 'item DESC', "
        "options => map('rewrite-all', 'true'))"
    )
    yield table.now()


def manifests(table: Table) -> Iterable[Look]:
    _commits(table)
    table.run("CALL {system}.rewrite_manifests({q})")
    yield table.now()


def expired(table: Table) -> Iterable[Look]:
    kept = _commits(table)[-1]
    table.run(
        "DELETE FROM {t} WHERE id = 1", f"CALL {{system}}.expire_snapshots(table => {{q}}, {_NOW}, retain_last => 2)"
    )
    yield table.now()
    yield table.at_snapshot(kept, "as of a snapshot that is left")


def cleaned(table: Table) -> Iterable[Look]:
    """A file that is nobody's goes; the SFN file is nobody's of Iceberg's, too, and stays."""
    _commits(table)
    table.publish()
    yesterday = datetime.fromtimestamp(int(table.java.currentSnapshot().timestampMillis()) / 1000, UTC) - timedelta(
        days=2
    )
    told = f"older_than => TIMESTAMP'{yesterday:%Y-%m-%d %H:%M:%S}'"
    table.run(f"CALL {{system}}.remove_orphan_files(table => {{q}}, {told})")
    yield table.now()


def forgetful(table: Table) -> Iterable[Look]:
    told = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    first = _commits(table, **told)[0]
    yield table.now()
    yield table.at_snapshot(first)


def rolled_back(table: Table) -> Iterable[Look]:
    first, _, last = _commits(table)
    table.run(f"CALL {{system}}.rollback_to_snapshot({{q}}, {first})")
    yield table.now()
    yield table.at_snapshot(last, BEFORE)


def set_back(table: Table) -> Iterable[Look]:
    """The schema of now is that of later."""
    first = _commits(table)[0]
    table.run("ALTER TABLE {t} ADD COLUMN price INT", f"CALL {{system}}.set_current_snapshot({{q}}, {first})")
    yield table.now()


def cherry_picked(table: Table) -> Iterable[Look]:
    _commits(table)
    table.run("ALTER TABLE {t} CREATE BRANCH audit")
    table.insert("(4, 'kiwi')", branch="audit")
    picked = table.java.refs()["audit"].snapshotId()
    table.insert("(5, 'lime')")
    table.run(f"CALL {{system}}.cherrypick_snapshot({{q}}, {picked})")
    yield table.now()


_NOW: Final = "older_than => TIMESTAMP'2999-01-01 00:00:00'"
FEATURES: Final = (
    Feature("rewrite_data_files", compacted),
    Feature("rewrite_data_files by an order", sorted_anew),
    Feature("rewrite_manifests", manifests),
    Feature("expire_snapshots", expired),
    Feature("remove_orphan_files", cleaned),
    Feature("metadata files deleted after each commit", forgetful),
    Feature("rollback", rolled_back),
    Feature("set_current_snapshot under a later schema", set_back),
    Feature("cherrypick_snapshot", cherry_picked),
)
