"""Managed tables: partitions by transforms of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.spark.tour.chapter import Chapter
from tests.spark.tour.stage import Stage
from tests.spark.tour.table import Table

_COLUMNS: Final = "id BIGINT, word STRING, at TIMESTAMP"
_ROW: Final = "(1, 'apple', TIMESTAMP '2026-11-01 10:20:30')"


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A table that has several of them.

    Attributes:
        mappings: what SQL says; the partition field that it makes, and what people read of the row's partition.
    """

    title: str
    columns: str
    row: str
    mappings: Mapping[str, tuple[str, str]]


_OF_TIMES: Final = _Mapped(
    "mapped_times",
    "born TIMESTAMP, hired TIMESTAMP, paid TIMESTAMP, seen TIMESTAMP",
    ", ".join(["TIMESTAMP '2026-11-01 10:20:30'"] * 4),
    {
        "years(born)": ("born_year: year", "2026"),
        "months(hired)": ("hired_month: month", "2026-11"),
        "days(paid)": ("paid_day: day", "2026-11-01"),
        "hours(seen)": ("seen_hour: hour", "2026-11-01-10"),
    },
)
_OF_VALUES: Final = _Mapped(
    "mapped_values",
    "id BIGINT, word STRING, region STRING",
    "1, 'apple', 'north'",
    {
        "bucket(4, id)": ("id_bucket: bucket[4]", "0"),
        "truncate(2, word)": ("word_trunc: truncate[2]", "ap"),
        "region": ("region: identity", "north"),
    },
)


def run(stage: Stage) -> None:
    stage.narrator.step("Partitions by years, months, days and hours of a time")
    _mapped(stage, _OF_TIMES)
    stage.narrator.step("Partitions by buckets, by prefixes of words, and by the value itself")
    _mapped(stage, _OF_VALUES)
    _later(stage)


def _mapped(stage: Stage, one: _Mapped) -> None:
    table = Table(stage, one.title)
    table.create(one.columns, ", ".join(one.mappings))
    nothing = ", ".join(["NULL"] * (one.columns.count(",") + 1))
    table.run(f"INSERT INTO {{t}} VALUES ({one.row}), ({nothing})")
    found = table.inspect()
    fields = tuple(field for field, _ in one.mappings.values())
    stage.narrator.check(f"sfn inspect: partitioned by {', '.join(fields)}", expected=fields, found=found.partitioned)
    names = [field.partition(":")[0] for field in fields]
    values = [value for _, value in one.mappings.values()]
    expected = {tuple(zip(names, of, strict=True)) for of in (values, ["null"] * len(names))}
    stage.narrator.check(
        f"its partitions are {', '.join(values)}, and null of each", expected=expected, found=found.partitions
    )
    table.same("SELECT partition, record_count FROM {t}.partitions")


def _later(stage: Stage) -> None:
    stage.narrator.step("A partition field that is added later: old files keep their layout")
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
        "there are files of both layouts", expected={(day,), (day, ("shard", "0"))}, found=found.partitions
    )
    table.same("SELECT partition, record_count FROM {t}.partitions")


CHAPTER: Final = Chapter("create", "Managed tables: partitions by value mappings of columns", run)
