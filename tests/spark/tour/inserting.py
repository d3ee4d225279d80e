"""Each insert is a snapshot, and each snapshot stays readable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfn.reader.api import resolve
from tests.spark.tour.chapter import Chapter
from tests.spark.tour.rendering import table as lines
from tests.spark.tour.stage import Row, Stage
from tests.spark.tour.table import Table

_MODE: Final = "spark.sql.sources.partitionOverwriteMode"


@dataclass(frozen=True, slots=True)
class _Step:
    """A statement.

    Attributes:
        mode: of overwrites.
        rows: what the table then has.
    """

    title: str
    mode: str
    text: str
    rows: list[Row]


_STEPS: Final = (
    _Step(
        "Insert",
        "static",
        "INSERT INTO {t} VALUES ('north', 1, 10), ('south', 2, 20), ('west', 3, 30)",
        [("north", 1, 10), ("south", 2, 20), ("west", 3, 30)],
    ),
    _Step(
        "Overwrite the partition that the statement names",
        "static",
        "INSERT OVERWRITE {t} PARTITION (region = 'north') VALUES (4, 40), (5, 50)",
        [("north", 4, 40), ("north", 5, 50), ("south", 2, 20), ("west", 3, 30)],
    ),
    _Step(
        "Overwrite the partitions that the statement has rows for",
        "dynamic",
        "INSERT OVERWRITE {t} VALUES ('south', 6, 60), ('east', 7, 70)",
        [("east", 7, 70), ("north", 4, 40), ("north", 5, 50), ("south", 6, 60), ("west", 3, 30)],
    ),
    _Step(
        "Overwrite the table: no partition is named",
        "static",
        "INSERT OVERWRITE {t} VALUES ('east', 8, 80)",
        [("east", 8, 80)],
    ),
)


def run(stage: Stage) -> None:
    narrator = stage.narrator
    narrator.step("Create a table")
    table = Table(stage, "sales")
    table.create("region STRING, id BIGINT, amount INT", "region")
    states: dict[int, list[Row]] = {}
    for step in _STEPS:
        narrator.step(step.title)
        stage.run(f"SET {_MODE} = {step.mode}")
        table.run(step.text)
        narrator.show(*lines(("region", "id", "amount"), table.rows))
        narrator.check("these are the rows that the statement meant", expected=step.rows, found=table.rows)
        states[_snapshot(table, known=states)] = table.rows
    narrator.step("Every older snapshot is still readable, through the facade, too")
    for snapshot, expected in states.items():
        found = table.same(f"SELECT * FROM {{t}} VERSION AS OF {snapshot}", shown=False)
        narrator.check(f"snapshot {snapshot}: rows of its time, {len(expected)}", expected=expected, found=found)


def _snapshot(table: Table, known: dict[int, list[Row]]) -> int:
    """Return the newest snapshot, which must be a new one and that of the SFN file."""
    narrator = table.stage.narrator
    *earlier, newest = table.snapshots()
    narrator.check(f"there is one more snapshot, {newest}", expected=[*known], found=earlier)
    resolved = resolve(table.directory, table.identifier)
    narrator.check("the SFN file names it", expected=newest, found=resolved.snapshot_id)
    if not known:
        file = Path(resolved.sfn_file.removeprefix("file://"))
        narrator.show(f"$ cat {file}", *file.read_text().splitlines())
    return newest


CHAPTER: Final = Chapter("insert", "Insert, snapshot, SFN file; overwrites, static and dynamic", run)
