"""Management statements on the real catalog: after each, readers of the directory are right."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import sfn.spark
from sfn.reader.api import resolve
from sfn.sfnfile import version_hint
from tests.spark.tour.chapter import Chapter
from tests.spark.tour.place import GATED, LAKE, SFN
from tests.spark.tour.rendering import table as lines
from tests.spark.tour.stage import Stage, rows
from tests.spark.tour.table import Table

_VIEWS: Final = (
    *("snapshots", "history", "refs", "metadata_log_entries", "manifests", "entries", "files", "partitions"),
    *("all_manifests", "all_data_files"),
)
_LATER: Final = "older_than => TIMESTAMP '2999-01-01 00:00:00'"


def run(stage: Stage) -> None:
    stage.narrator.step("A table of three snapshots, the first of which has a tag")
    table = Table(stage, "stock")
    table.create("id BIGINT, item STRING")
    table.run("INSERT INTO {t} VALUES (1, 'apple')", "ALTER TABLE {t} CREATE TAG first")
    table.run("INSERT INTO {t} VALUES (2, 'pear')", "INSERT INTO {t} VALUES (3, 'fig')")
    _heads(table)
    _branches(table)
    _views(table)
    _rewrites(table)
    _expires(table)
    _cleans(table)
    stage.narrator.step("After all statements each engine reads the same rows from the directory as the catalog does")
    expected = table.asked("SELECT * FROM {t}")
    for engine in ("iceberg", "files"):
        found = rows(sfn.spark.read(stage.place.session, table.directory, engine=engine))
        stage.narrator.check(f"sfn.spark.read with engine {engine!r}", expected=expected, found=found)


def _heads(table: Table) -> None:
    """Move the table's head back and forward. For readers of the directory each step is a commit."""
    narrator = table.stage.narrator
    first, second, third = table.snapshots()
    narrator.step("rollback_to_snapshot, set_current_snapshot")
    table.called("rollback_to_snapshot", f"snapshot_id => {first}")
    _ids(table, [1])
    _ids(table, [1, 2, 3], f"VERSION AS OF {third}")
    table.called("set_current_snapshot", f"snapshot_id => {second}")
    _ids(table, [1, 2])
    table.called("set_current_snapshot", "ref => 'first'")
    _ids(table, [1])
    table.called("set_current_snapshot", f"snapshot_id => {third}")
    _ids(table, [1, 2, 3])


def _branches(table: Table) -> None:
    table.stage.narrator.step("Branches and tags: CREATE, REPLACE, DROP, fast_forward, cherrypick_snapshot")
    table.run("ALTER TABLE {t} CREATE BRANCH audit", "INSERT INTO {t}.branch_audit VALUES (4, 'kiwi')")
    picked = table.snapshots()[-1]
    _ids(table, [1, 2, 3])
    _ids(table, [1, 2, 3, 4], "VERSION AS OF 'audit'")
    table.run("INSERT INTO {t} VALUES (5, 'lime')")
    table.called("cherrypick_snapshot", f"snapshot_id => {picked}")
    _ids(table, [1, 2, 3, 4, 5])
    table.run("ALTER TABLE {t} CREATE OR REPLACE BRANCH audit", "INSERT INTO {t}.branch_audit VALUES (6, 'plum')")
    table.called("fast_forward", "branch => 'main', to => 'audit'")
    _ids(table, [1, 2, 3, 4, 5, 6])
    table.run("ALTER TABLE {t} CREATE TAG gone", "ALTER TABLE {t} DROP TAG gone", "ALTER TABLE {t} DROP BRANCH audit")
    table.same("SELECT name, type, snapshot_id FROM {t}.refs")
    table.stage.refused(
        f"SELECT * FROM {SFN}.{table.identifier} VERSION AS OF 'audit'", "Cannot find matching snapshot"
    )


def _views(table: Table) -> None:
    narrator = table.stage.narrator
    narrator.step("The metadata tables, through the facade as through the catalog")
    for view in _VIEWS:
        ours, theirs = (table.queried(f"SELECT * FROM {{t}}.{view}", one) for one in (SFN, LAKE))
        found, expected = (sorted(map(str, one.collect())) for one in (ours, theirs))
        narrator.check(
            f"{view}: columns and {len(found)} rows", expected=(theirs.schema, expected), found=(ours.schema, found)
        )
    history = "SELECT made_current_at, snapshot_id, is_current_ancestor FROM {t}.history ORDER BY made_current_at"
    shown = table.queried(history, SFN)
    narrator.show(f"> {history.replace('{t}', f'{SFN}.{table.identifier}')}")
    narrator.show(*lines(shown.columns, [tuple(row) for row in shown.collect()]))


def _rewrites(table: Table) -> None:
    narrator = table.stage.narrator
    narrator.step("rewrite_data_files, rewrite_manifests")
    before = table.inspect()
    done = table.called("rewrite_data_files", "options => map('rewrite-all', 'true')")
    after = table.inspect()
    narrator.check(
        "the old files are rewritten as one", expected=len(before.data), found=done["rewritten_data_files_count"]
    )
    narrator.check("sfn inspect finds that one", expected=(1, set()), found=(len(after.data), after.data & before.data))
    _ids(table, [1, 2, 3, 4, 5, 6])
    table.run("INSERT INTO {t} VALUES (7, 'quince')")
    before = table.inspect()
    table.called("rewrite_manifests")
    after = table.inspect()
    narrator.check(
        "one manifest instead of several, for the same files",
        expected=(True, 1, before.data),
        found=(len(before.manifests) > 1, len(after.manifests), after.data),
    )
    _ids(table, [1, 2, 3, 4, 5, 6, 7])


def _expires(table: Table) -> None:
    narrator = table.stage.narrator
    narrator.step("expire_snapshots: files that no snapshot needs are deleted, except those of the tag")
    second = table.snapshots()[1]
    done = table.called("expire_snapshots", f"{_LATER}, retain_last => 1")
    narrator.check("data files were deleted", expected=True, found=done["deleted_data_files_count"] > 0)
    narrator.check("two snapshots are left", expected=2, found=table.inspect().snapshots)
    _ids(table, [1, 2, 3, 4, 5, 6, 7])
    _ids(table, [1], "VERSION AS OF 'first'")
    table.stage.refused(
        f"SELECT * FROM {SFN}.{table.identifier} VERSION AS OF {second}", "Cannot find snapshot with ID"
    )


def _cleans(table: Table) -> None:
    """Remove orphan files. No metadata names SFN files and the version hint either, but they must stay."""
    narrator, folder = table.stage.narrator, Path(table.directory)
    narrator.step("remove_orphan_files")
    cleaner = f"CALL {GATED}.system.remove_orphan_files(table => '{table.identifier}', {_LATER})"
    table.stage.refused(cleaner, "less than 24 hours")
    stray, ours = folder / "data" / "stray.parquet", Path(resolve(table.directory).sfn_file.removeprefix("file://"))
    stray.write_text("of no table")
    at = datetime.fromtimestamp(ours.stat().st_mtime, UTC)
    old, yesterday = at - timedelta(days=9), at - timedelta(days=2)
    kept = [ours, Path(version_hint.key_of(table.directory))]
    for file in folder.rglob("*"):
        os.utime(file, (old.timestamp(), old.timestamp()))
    narrator.note("all files are made nine days old, and a file is added that belongs to no table")
    table.called("remove_orphan_files", f"older_than => TIMESTAMP '{yesterday:%Y-%m-%d %H:%M:%S}'")
    narrator.check("that file is deleted", expected=False, found=stray.exists())
    for file in kept:
        narrator.check(f"{file.relative_to(folder)} still exists", expected=True, found=file.exists())
    _ids(table, [1, 2, 3, 4, 5, 6, 7])


def _ids(table: Table, expected: list[int], clause: str = "") -> None:
    """Check the ids of the rows, now or in another state, and that every file exists."""
    found = table.same(f"SELECT * FROM {{t}} {clause}", shown=False) if clause else table.rows
    table.stage.narrator.check(f"ids {expected} {clause}".rstrip(), expected=expected, found=[row[0] for row in found])
    table.verify()


CHAPTER: Final = Chapter("manage", "Management views and statements, on the real catalog", run)
