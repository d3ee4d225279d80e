"""Partitions, files and columns that a query does not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.spark.tour.chapter import Chapter
from tests.spark.tour.place import LAKE
from tests.spark.tour.rendering import table as lines
from tests.spark.tour.stage import Stage
from tests.spark.tour.table import Table

_ALL: Final = ("id", "amount", "note", "at")
_INSERTS: Final = (
    "(1, 10, 'a', TIMESTAMP '2026-11-01 08:00:00'), (2, 20, 'b', TIMESTAMP '2026-11-01 09:00:00')",
    "(3, 300, 'c', TIMESTAMP '2026-11-01 10:00:00'), (4, 400, 'd', TIMESTAMP '2026-11-01 11:00:00')",
    "(5, 50, 'e', TIMESTAMP '2026-11-02 08:00:00')",
    "(6, 60, 'f', TIMESTAMP '2026-11-03 08:00:00')",
)


@dataclass(frozen=True, slots=True)
class _Query:
    """A query with its expected result.

    Attributes:
        opened: manifests, and data files.
    """

    title: str
    text: str
    ids: list[int]
    opened: tuple[int, int]
    columns: tuple[str, ...]


_QUERIES: Final = (
    _Query("no predicate", "SELECT * FROM {t}", [1, 2, 3, 4, 5, 6], (4, 4), _ALL),
    _Query(
        "a predicate on the column that hidden partitions are made of",
        "SELECT * FROM {t} WHERE at >= TIMESTAMP '2026-11-03 00:00:00'",
        [6],
        (1, 1),
        _ALL,
    ),
    _Query(
        "hours of one day, which only one file's statistics contain",
        "SELECT * FROM {t} WHERE at BETWEEN TIMESTAMP '2026-11-01 08:30:00' AND TIMESTAMP '2026-11-01 09:30:00'",
        [2],
        (2, 1),
        _ALL,
    ),
    _Query(
        "a predicate on a column that no partition is made of",
        "SELECT * FROM {t} WHERE amount > 100",
        [3, 4],
        (4, 1),
        _ALL,
    ),
    _Query("one column", "SELECT id FROM {t}", [1, 2, 3, 4, 5, 6], (4, 4), ("id",)),
    _Query(
        "partition, file and column at once",
        "SELECT id FROM {t} WHERE at < TIMESTAMP '2026-11-02 00:00:00' AND amount < 15",
        [1],
        (2, 1),
        ("id", "amount", "at"),
    ),
)


def run(stage: Stage) -> None:
    stage.narrator.step("A table with three days in four files, one per commit")
    table = Table(stage, "events")
    table.create("id BIGINT, amount INT, note STRING, at TIMESTAMP", "days(at)")
    table.run(*(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}" for values in _INSERTS))
    stage.narrator.step("The files that a query through `sfn` opens, by the metrics of its plan")
    for query in _QUERIES:
        _opened(table, query)
    stage.narrator.step("The same with one manifest for all files: its statistics exclude files")
    table.called("rewrite_manifests")
    merged = table.scan("SELECT * FROM {t} WHERE at >= TIMESTAMP '2026-11-03 00:00:00'")
    stage.narrator.check(
        "one manifest read; one file read, three excluded",
        expected=(1, 1, 3),
        found=(merged.manifests, merged.files, merged.skipped),
    )


def _opened(table: Table, query: _Query) -> None:
    narrator = table.stage.narrator
    narrator.note(query.title)
    narrator.show(f"> {query.text.replace('{t}', f'sfn.{table.identifier}')}")
    found, catalogs = table.scan(query.text), table.scan(query.text, LAKE)
    ids = [row[0] for row in found.rows]
    narrator.check("the rows are right", expected=(query.ids, catalogs.rows), found=(ids, found.rows))
    narrator.check("only the necessary files are opened", expected=query.opened, found=(found.manifests, found.files))
    narrator.check("no other column is read", expected=set(query.columns), found=set(found.columns))
    narrator.check("the same through the catalog itself", expected=catalogs, found=found)
    narrator.show(
        *lines(
            ["manifests read", "files read", "files in the table", "columns read"],
            [
                (
                    found.manifests,
                    found.files,
                    len(table.asked("SELECT file_path FROM {t}.files")),
                    ", ".join(found.columns),
                )
            ],
        )
    )


CHAPTER: Final = Chapter("select", "Select: partitions, files and columns that are not read", run)
