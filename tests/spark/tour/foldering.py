"""The classic layout: tables of a Hadoop catalog, a folder with a version hint of its writers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.table import StaticTable

import sfn.spark
from sfn.errors import Unreadable
from sfn.reader.api import resolve
from sfn.sfnfile import version_hint
from tests.spark.beside import beside
from tests.spark.tour.chapter import Chapter
from tests.spark.tour.place import FOLDERS, GATED, NAMESPACE, SFN
from tests.spark.tour.stage import Row, Stage, rows
from tests.spark.tour.table import Table


@dataclass(frozen=True, slots=True)
class _Folder:
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


def run(stage: Stage) -> None:
    _beside(stage)
    folder = _Folder(stage, "journal")
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
    _left_alone(folder, hint)
    stage.narrator.step(
        "A commit through the catalog: readers of the SFN file see it, the folder's own catalog does not"
    )
    table.run("INSERT INTO {t} VALUES (2)")
    stage.narrator.check("the table has both rows", expected=[(1,), (2,)], found=table.rows)
    stage.narrator.check("the folder's own catalog has the first", expected=[(1,)], found=folder.rows())
    shown = [line for line in stage.place.service.run_command("status", table.identifier) if "version hint" in line]
    stage.narrator.show(f"$ sfn status {table.identifier}", *shown)
    stage.narrator.check(
        "the status says that the version hint is foreign", expected=True, found='foreign ("1")' in "".join(shown)
    )
    _left_alone(folder, hint)
    stage.narrator.step(
        "The table is dropped from the catalog: the SFN file becomes a tombstone, and the version hint stays"
    )
    stage.run(f"DROP TABLE {GATED}.{table.identifier}")
    waited = stage.narrator.wait_for("a reader's refusal", lambda: _refusal(folder.directory), "Dropped")
    stage.narrator.note(f"✓ {waited:.2f} s later readers of the SFN file get the error Dropped")
    stage.narrator.check("the folder's own catalog still reads it", expected=[(1,)], found=folder.rows())
    _left_alone(folder, hint)


def _beside(stage: Stage) -> None:
    """Show a table without a catalog and without a listener."""
    narrator, session = stage.narrator, stage.place.session
    narrator.step("A table that is nothing but a folder")
    folder = _Folder(stage, "ledger")
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
    beside(StaticTable.from_metadata(folder.metadata(2)), name)
    for engine in ("iceberg", "files"):
        found = rows(sfn.spark.read(session, folder.directory, engine=engine))
        narrator.check(f"sfn.spark.read with engine {engine!r}", expected=expected, found=found)
    found = stage.run(f"SELECT * FROM {SFN}.dir.`{folder.directory}`")
    narrator.check("the facade shows it by its directory", expected=expected, found=found)
    _left_alone(folder, hint)
    narrator.step("Its writers commit: the SFN file stays the same until it is written again")
    stage.run(f"INSERT INTO {folder.name} VALUES (3, 30)")
    hint = folder.hint()
    narrator.check("the hint follows its own writers", expected="3", found=hint[0])
    found = rows(sfn.spark.read(session, folder.directory))
    narrator.check("late, not wrong", expected=expected, found=found)
    beside(StaticTable.from_metadata(folder.metadata(3)), name)
    found = rows(sfn.spark.read(session, folder.directory))
    narrator.check("after the SFN file is rewritten, all rows are there", expected=folder.rows(), found=found)
    _left_alone(folder, hint)


def _left_alone(folder: _Folder, hint: tuple[str, int, int]) -> None:
    what = f"version-hint.text is Hadoop's, says {hint[0]}, and was not changed"
    folder.stage.narrator.check(what, expected=hint, found=folder.hint())


def _refusal(directory: Path) -> str:
    """What a reader of the directory is refused with."""
    try:
        return f"{resolve(directory).metadata_location}, and no refusal"
    except Unreadable as refusal:
        return type(refusal).__name__


CHAPTER: Final = Chapter("folders", "The classic layout: Hadoop's tables and their own version hint", run)
