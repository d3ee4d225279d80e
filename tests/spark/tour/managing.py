"""Chapters that manage: statements on the real catalog, and tables of a Hadoop catalog."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pyiceberg.table import StaticTable

import sfn.spark
from sfn.errors import Unreadable
from sfn.reader.api import resolve
from sfn.sfnfile import version_hint
from tests.spark.tables import write_sfn_file
from tests.spark.tour.stage import FOLDERS, GATED, LAKE, NAMESPACE, SFN, Chapter, Row, Stage, rows, table_lines
from tests.spark.tour.table import Table

_VIEWS: Final = (
    *("snapshots", "history", "refs", "metadata_log_entries", "manifests", "entries", "files", "partitions"),
    *("all_manifests", "all_data_files"),
)
_OLDER_THAN_LATER: Final = "older_than => TIMESTAMP '2999-01-01 00:00:00'"


def manage_table(stage: Stage) -> None:
    """Run management statements on the real catalog: after each, readers of the directory are right."""
    stage.narrator.step("A table of three snapshots, the first of which has a tag")
    table = Table(stage, "stock")
    table.create("id BIGINT, item STRING")
    table.run("INSERT INTO {t} VALUES (1, 'apple')", "ALTER TABLE {t} CREATE TAG first")
    table.run("INSERT INTO {t} VALUES (2, 'pear')", "INSERT INTO {t} VALUES (3, 'fig')")
    _move_head(table)
    _branch_and_tag(table)
    _compare_metadata_tables(table)
    _rewrite_files(table)
    _expire_snapshots(table)
    _remove_orphan_files(table)
    stage.narrator.step("After all statements each engine reads the same rows from the directory as the catalog does")
    expected = table.catalog_rows("SELECT * FROM {t}")
    for engine in ("iceberg", "files"):
        found = rows(sfn.spark.read(stage.place.session, table.directory, engine=engine))
        stage.narrator.check(f"sfn.spark.read with engine {engine!r}", expected=expected, found=found)


def _move_head(table: Table) -> None:
    """Move the table's head back and forward. For readers of the directory each step is a commit."""
    narrator = table.stage.narrator
    first, second, third = table.snapshots()
    narrator.step("rollback_to_snapshot, set_current_snapshot")
    table.call("rollback_to_snapshot", f"snapshot_id => {first}")
    _ids(table, [1])
    _ids(table, [1, 2, 3], f"VERSION AS OF {third}")
    table.call("set_current_snapshot", f"snapshot_id => {second}")
    _ids(table, [1, 2])
    table.call("set_current_snapshot", "ref => 'first'")
    _ids(table, [1])
    table.call("set_current_snapshot", f"snapshot_id => {third}")
    _ids(table, [1, 2, 3])


def _branch_and_tag(table: Table) -> None:
    table.stage.narrator.step("Branches and tags: CREATE, REPLACE, DROP, fast_forward, cherrypick_snapshot")
    table.run("ALTER TABLE {t} CREATE BRANCH audit", "INSERT INTO {t}.branch_audit VALUES (4, 'kiwi')")
    picked = table.snapshots()[-1]
    _ids(table, [1, 2, 3])
    _ids(table, [1, 2, 3, 4], "VERSION AS OF 'audit'")
    table.run("INSERT INTO {t} VALUES (5, 'lime')")
    table.call("cherrypick_snapshot", f"snapshot_id => {picked}")
    _ids(table, [1, 2, 3, 4, 5])
    table.run("ALTER TABLE {t} CREATE OR REPLACE BRANCH audit", "INSERT INTO {t}.branch_audit VALUES (6, 'plum')")
    table.call("fast_forward", "branch => 'main', to => 'audit'")
    _ids(table, [1, 2, 3, 4, 5, 6])
    table.run("ALTER TABLE {t} CREATE TAG gone", "ALTER TABLE {t} DROP TAG gone", "ALTER TABLE {t} DROP BRANCH audit")
    table.same("SELECT name, type, snapshot_id FROM {t}.refs")
    table.stage.refused(
        f"SELECT * FROM {SFN}.{table.identifier} VERSION AS OF 'audit'", "Cannot find matching snapshot"
    )


def _compare_metadata_tables(table: Table) -> None:
    narrator = table.stage.narrator
    narrator.step("The metadata tables, through the facade as through the catalog")
    for view in _VIEWS:
        ours, theirs = (table.frame(f"SELECT * FROM {{t}}.{view}", one) for one in (SFN, LAKE))
        found, expected = (sorted(map(str, one.collect())) for one in (ours, theirs))
        narrator.check(
            f"{view}: columns and {len(found)} rows", expected=(theirs.schema, expected), found=(ours.schema, found)
        )
    history = "SELECT made_current_at, snapshot_id, is_current_ancestor FROM {t}.history ORDER BY made_current_at"
    printed = table.frame(history, SFN)
    narrator.show(f"> {history.replace('{t}', f'{SFN}.{table.identifier}')}")
    narrator.show(*table_lines(printed.columns, [tuple(row) for row in printed.collect()]))


def _rewrite_files(table: Table) -> None:
    narrator = table.stage.narrator
    narrator.step("rewrite_data_files, rewrite_manifests")
    before = table.inspect()
    done = table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    after = table.inspect()
    narrator.check(
        "the old files are rewritten as one", expected=len(before.data), found=done["rewritten_data_files_count"]
    )
    narrator.check("sfn inspect finds that one", expected=(1, set()), found=(len(after.data), after.data & before.data))
    _ids(table, [1, 2, 3, 4, 5, 6])
    table.run("INSERT INTO {t} VALUES (7, 'quince')")
    before = table.inspect()
    table.call("rewrite_manifests")
    after = table.inspect()
    narrator.check(
        "one manifest instead of several, for the same files",
        expected=(True, 1, before.data),
        found=(len(before.manifests) > 1, len(after.manifests), after.data),
    )
    _ids(table, [1, 2, 3, 4, 5, 6, 7])


def _expire_snapshots(table: Table) -> None:
    narrator = table.stage.narrator
    narrator.step("expire_snapshots: files that no snapshot needs are deleted, except those of the tag")
    second = table.snapshots()[1]
    done = table.call("expire_snapshots", f"{_OLDER_THAN_LATER}, retain_last => 1")
    narrator.check("data files were deleted", expected=True, found=done["deleted_data_files_count"] > 0)
    narrator.check("two snapshots are left", expected=2, found=table.inspect().snapshots)
    _ids(table, [1, 2, 3, 4, 5, 6, 7])
    _ids(table, [1], "VERSION AS OF 'first'")
    table.stage.refused(
        f"SELECT * FROM {SFN}.{table.identifier} VERSION AS OF {second}", "Cannot find snapshot with ID"
    )


def _remove_orphan_files(table: Table) -> None:
    """Remove orphan files. No metadata names SFN files and the version hint either, but they must stay."""
    narrator, folder = table.stage.narrator, Path(table.directory)
    narrator.step("remove_orphan_files")
    cleaner = f"CALL {GATED}.system.remove_orphan_files(table => '{table.identifier}', {_OLDER_THAN_LATER})"
    table.stage.refused(cleaner, "less than 24 hours")
    stray, ours = folder / "data" / "stray.parquet", Path(resolve(table.directory).sfn_file.removeprefix("file://"))
    stray.write_text("of no table")
    at = datetime.fromtimestamp(ours.stat().st_mtime, UTC)
    old, yesterday = at - timedelta(days=9), at - timedelta(days=2)
    kept = [ours, Path(version_hint.key_of(table.directory))]
    for file in folder.rglob("*"):
        os.utime(file, (old.timestamp(), old.timestamp()))
    narrator.note("all files are made nine days old, and a file is added that belongs to no table")
    table.call("remove_orphan_files", f"older_than => TIMESTAMP '{yesterday:%Y-%m-%d %H:%M:%S}'")
    narrator.check("that file is deleted", expected=False, found=stray.exists())
    for file in kept:
        narrator.check(f"{file.relative_to(folder)} still exists", expected=True, found=file.exists())
    _ids(table, [1, 2, 3, 4, 5, 6, 7])


def _ids(table: Table, expected: list[int], clause: str = "") -> None:
    """Check the ids of the rows, now or in another state, and that every file exists."""
    found = table.same(f"SELECT * FROM {{t}} {clause}", printed=False) if clause else table.rows
    table.stage.narrator.check(f"ids {expected} {clause}".rstrip(), expected=expected, found=[row[0] for row in found])
    table.verify()


MANAGE: Final = Chapter("manage", "Management views and statements, on the real catalog", manage_table)


@dataclass(frozen=True, slots=True)
class _HadoopTable:
    """A table of the catalog of folders."""

    stage: Stage
    title: str

    @property
    def name(self) -> str:
        return f"{FOLDERS}.{NAMESPACE}.{self.title}"

    @property
    def directory(self) -> Path:
        return self.stage.place.warehouse / FOLDERS / NAMESPACE / self.title

    def metadata(self, number: int) -> str:
        """Where one of its metadata files is."""
        return (self.directory / "metadata" / f"v{number}.metadata.json").as_uri()

    def hint(self) -> tuple[str, int, int]:
        """What its version hint says; that it is the same file, written when it was."""
        file = Path(version_hint.key_of(str(self.directory)))
        stat = file.stat()
        return file.read_text(), stat.st_ino, stat.st_mtime_ns

    def rows(self) -> list[Row]:
        """As its own catalog reads it."""
        return rows(self.stage.sql(f"SELECT * FROM {self.name}"))


def read_hadoop_tables(stage: Stage) -> None:
    """Read tables of a Hadoop catalog, whose writers keep a version hint of their own."""
    _read_without_catalog(stage)
    folder = _HadoopTable(stage, "journal")
    stage.narrator.step(
        "Another one is registered in the real catalog: it gets an SFN file, and its version hint stays unchanged"
    )
    stage.run(f"CREATE TABLE {folder.name} USING iceberg AS SELECT 1 AS id")
    hint = folder.hint()
    named = f"table => '{NAMESPACE}.journal', metadata_file => '{folder.metadata(1)}'"
    stage.run(f"CALL {GATED}.system.register_table({named})")
    table = Table(stage, "journal")
    table.follow()
    stage.narrator.check("SFN file and hint lead to one file", expected=folder.metadata(1), found=table.published())
    _check_hint_unchanged(folder, hint)
    stage.narrator.step(
        "A commit through the catalog: readers of the SFN file see it, the folder's own catalog does not"
    )
    table.run("INSERT INTO {t} VALUES (2)")
    stage.narrator.check("the table has both rows", expected=[(1,), (2,)], found=table.rows)
    stage.narrator.check("the folder's own catalog has the first", expected=[(1,)], found=folder.rows())
    printed = [line for line in stage.place.service.run_command("status", table.identifier) if "version hint" in line]
    stage.narrator.show(f"$ sfn status {table.identifier}", *printed)
    stage.narrator.check(
        "the status says that the version hint is foreign", expected=True, found='foreign ("1")' in "".join(printed)
    )
    _check_hint_unchanged(folder, hint)
    stage.narrator.step(
        "The table is dropped from the catalog: the SFN file becomes a tombstone, and the version hint stays"
    )
    stage.run(f"DROP TABLE {GATED}.{table.identifier}")
    waited = stage.narrator.wait_for("a reader's refusal", lambda: _refusal(folder.directory), "Dropped")
    stage.narrator.note(f"✓ {waited:.2f} s later readers of the SFN file get the error Dropped")
    stage.narrator.check("the folder's own catalog still reads it", expected=[(1,)], found=folder.rows())
    _check_hint_unchanged(folder, hint)


def _read_without_catalog(stage: Stage) -> None:
    """Show a table without a catalog and without a listener."""
    narrator, session = stage.narrator, stage.place.session
    narrator.step("A table that is nothing but a folder")
    folder = _HadoopTable(stage, "ledger")
    stage.run(f"CREATE TABLE {folder.name} (id BIGINT, amount INT) USING iceberg")
    stage.run(f"INSERT INTO {folder.name} VALUES (1, 10), (2, 20)")
    hint = folder.hint()
    narrator.check("its own version-hint.text says 2", expected="2", found=hint[0])
    narrator.show(f">>> spark.read.format('iceberg').load('{folder.directory}')")
    expected = folder.rows()
    found = rows(session.read.format("iceberg").load(str(folder.directory)))
    narrator.check("Spark reads it by its path", expected=expected, found=found)
    narrator.step("Readers of SFN files report that there is none")
    narrator.check("sfn.resolve refuses: NotFound", expected="NotFound", found=_refusal(folder.directory))
    narrator.step("With an SFN file the table is read like any other")
    name = f"{NAMESPACE}.{folder.title}"
    write_sfn_file(StaticTable.from_metadata(folder.metadata(2)), name)
    for engine in ("iceberg", "files"):
        found = rows(sfn.spark.read(session, folder.directory, engine=engine))
        narrator.check(f"sfn.spark.read with engine {engine!r}", expected=expected, found=found)
    found = stage.run(f"SELECT * FROM {SFN}.dir.`{folder.directory}`")
    narrator.check("the facade shows it by its directory", expected=expected, found=found)
    _check_hint_unchanged(folder, hint)
    narrator.step("Its writers commit: the SFN file stays the same until it is written again")
    stage.run(f"INSERT INTO {folder.name} VALUES (3, 30)")
    hint = folder.hint()
    narrator.check("the hint follows its own writers", expected="3", found=hint[0])
    found = rows(sfn.spark.read(session, folder.directory))
    narrator.check("late, not wrong", expected=expected, found=found)
    write_sfn_file(StaticTable.from_metadata(folder.metadata(3)), name)
    found = rows(sfn.spark.read(session, folder.directory))
    narrator.check("after the SFN file is rewritten, all rows are there", expected=folder.rows(), found=found)
    _check_hint_unchanged(folder, hint)


def _check_hint_unchanged(folder: _HadoopTable, hint: tuple[str, int, int]) -> None:
    what = f"version-hint.text is Hadoop's, says {hint[0]}, and was not changed"
    folder.stage.narrator.check(what, expected=hint, found=folder.hint())


def _refusal(directory: Path) -> str:
    """What a reader of the directory is refused with."""
    try:
        return f"{resolve(directory).metadata_location}, and no refusal"
    except Unreadable as refusal:
        return type(refusal).__name__


HADOOP: Final = Chapter("folders", "The classic layout: Hadoop's tables and their own version hint", read_hadoop_tables)
