"""Managed tables: partitions that are made of columns by value mappings."""

from __future__ import annotations

from typing import Final

from tests.spark.tour.chapter import Chapter
from tests.spark.tour.stage import Stage
from tests.spark.tour.table import Table

_COLUMNS: Final = "id BIGINT, word STRING, at TIMESTAMP"
_ROW: Final = "(1, 'apple', TIMESTAMP '2026-11-01 10:20:30')"
_MAPPINGS: Final = {
    "years(at)": ("at_year: year", "2026"),
    "months(at)": ("at_month: month", "2026-11"),
    "days(at)": ("at_day: day", "2026-11-01"),
    "hours(at)": ("at_hour: hour", "2026-11-01-10"),
    "truncate(2, word)": ("word_trunc: truncate[2]", "ap"),
    "bucket(4, id)": ("id_bucket: bucket[4]", "0"),
    "word": ("word: identity", "apple"),
}
"""What SQL says; the partition field that it makes, and the partition that the row above is in."""


def tell(stage: Stage) -> None:
    for number, (mapping, (field, value)) in enumerate(_MAPPINGS.items()):
        stage.narrator.step(f"A table whose partitions are {mapping}")
        table = Table(stage, f"mapped_{number}")
        table.create(_COLUMNS, mapping)
        table.run(f"INSERT INTO {{t}} VALUES {_ROW}, (NULL, NULL, NULL)")
        found = table.inspect()
        stage.narrator.check(f"sfn inspect: partitioned by {field}", expected=(field,), found=found.partitioned)
        expected = {((field.partition(":")[0], one),) for one in (value, "null")}
        stage.narrator.check(f"its partitions are {value} and null", expected=expected, found=found.partitions)
    _later(stage)


def _later(stage: Stage) -> None:
    stage.narrator.step("A partition field that is added later: files of before stay where they are")
    table = Table(stage, "mapped_later")
    table.create(_COLUMNS, "days(at)")
    table.run(f"INSERT INTO {{t}} VALUES {_ROW}")
    table.run("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id) AS shard", f"INSERT INTO {{t}} VALUES {_ROW}")
    found = table.inspect()
    expected = ("at_day: day", "shard: bucket[4]")
    stage.narrator.check(
        f"sfn inspect: partitioned by {', '.join(expected)}", expected=expected, found=found.partitioned
    )
    day = ("at_day", "2026-11-01")
    stage.narrator.check(
        "it has files of both layouts", expected={(day,), (day, ("shard", "0"))}, found=found.partitions
    )
    table.same("SELECT partition, record_count FROM {t}.partitions")


CHAPTER: Final = Chapter("create", "Managed tables: partitions by value mappings of columns", tell)
