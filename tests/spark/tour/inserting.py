"""Each insert is a snapshot, and each snapshot stays readable."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sfn.reader.blocking import resolve
from tests.spark.tour.chapter import Chapter
from tests.spark.tour.rendering import table as lines
from tests.spark.tour.stage import Row, Stage
from tests.spark.tour.table import Table

_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
_STEPS: Final = (
    (
        "Insert",
        "INSERT INTO {t} VALUES ('north', 1, 10), ('south', 2, 20), ('west', 3, 30)",
        [("north", 1, 10), ("south", 2, 20), ("west", 3, 30)],
    ),
    (
        "Overwrite one partition, which the statement names (static)",
        "INSERT OVERWRITE {t} PARTITION (region = 'north') VALUES (4, 40), (5, 50)",
        [("north", 4, 40), ("north", 5, 50), ("south", 2, 20), ("west", 3, 30)],
    ),
    (
        "Overwrite the partitions that have rows in the statement (dynamic)",
        "INSERT OVERWRITE {t} VALUES ('south', 6, 60), ('east', 7, 70)",
        [("east", 7, 70), ("north", 4, 40), ("north", 5, 50), ("south", 6, 60), ("west", 3, 30)],
    ),
    (
        "Overwrite the table (static, and no partition is named)",
        "INSERT OVERWRITE {t} VALUES ('east', 8, 80)",
        [("east", 8, 80)],
    ),
)


def tell(stage: Stage) -> None:
    stage.narrator.step("Create a table")
    table = Table(stage, "sales")
    table.create("region STRING, id BIGINT, amount INT", "region")
    states: dict[int, list[Row]] = {}
    for title, text, expected in _STEPS:
        stage.narrator.step(title)
        stage.run(f"SET {_MODE} = {'dynamic' if 'dynamic' in title else 'static'}")
        table.run(text)
        found = table.rows
        stage.narrator.show(*lines(("region", "id", "amount"), found))
        stage.narrator.check("these are the rows that the statement meant", expected=expected, found=found)
        states |= {_snapshot(table, known=states): found}
    stage.narrator.step("Every older snapshot is readable yet, through the facade too")
    for snapshot, expected in states.items():
        found = table.same(f"SELECT * FROM {{t}} VERSION AS OF {snapshot}", shown=False)
        stage.narrator.check(
            f"snapshot {snapshot} has the {len(expected)} rows of its time", expected=expected, found=found
        )


def _snapshot(table: Table, known: dict[int, list[Row]]) -> int:
    """The newest, which must be one more, and the one that the SFN file tells of."""
    narrator = table.stage.narrator
    *earlier, newest = table.snapshots()
    narrator.check(f"it is one more snapshot, {newest}", expected=[*known], found=earlier)
    told = resolve(table.directory, table.identifier)
    narrator.check("the SFN file tells of it", expected=newest, found=told.snapshot_id)
    if not known:
        file = Path(told.sfn_file.removeprefix("file://"))
        narrator.show(f"$ cat {file}", *file.read_text().splitlines())
    return newest


CHAPTER: Final = Chapter("insert", "Insert, snapshot, SFN file; overwrites, static and dynamic", tell)
