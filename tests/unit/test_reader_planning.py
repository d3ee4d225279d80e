"""Files that a filter must not leave out: deletes, and data that old writers list under a partition one too late."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from pyiceberg import types
from pyiceberg.manifest import DataFileContent
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.typedef import Record

import sfn
from sfn.errors import NotSupported
from tests.unit.listed_table import POSITIONS, ListedTable, listed, own_catalog

Create: TypeAlias = Callable[..., ListedTable]
NAN, INF = float("nan"), float("inf")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400_000_000
"""Microseconds."""
COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}


@pytest.fixture(name="create")
def fixture_create(tmp_path: Path) -> Iterator[Create]:
    """Makes a table of the columns `id` and `x` that is partitioned by a transform of `x`, if by anything."""
    with own_catalog(tmp_path) as catalog:
        yield partial(listed, catalog)


# Partitions by NaN.


@pytest.mark.parametrize("kind", [types.DoubleType(), types.FloatType()])
@pytest.mark.parametrize(
    ("of_data", "of_deletes", "left"),
    [
        (NAN, NAN, [1, 3]),
        (struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0], NAN, [1, 3]),
        (INF, INF, [1, 3]),
        (-INF, INF, [1, 2, 3]),
        (-0.0, -0.0, [1, 3]),
        (None, None, [1, 3]),
        (NAN, None, [1, 2, 3]),
    ],
)
def test_deletes_are_found_by_the_partition_of_numbers(
    create: Create,
    kind: types.PrimitiveType,
    of_data: float | None,
    of_deletes: float | None,
    left: Sequence[int],
) -> None:
    made = create(kind, IdentityTransform())
    (path,) = made.data(("1.parquet", {"id": [1, 2, 3], "x": [of_data] * 3}, Record(of_data)))
    rows = pa.table({"file_path": [path, "/elsewhere"], "pos": [1, 0]}, schema=POSITIONS)
    made.deletes("deletes.parquet", rows, Record(of_deletes), DataFileContent.POSITION_DELETES)
    assert made.ids() == left
    assert made.ids("id = 2") == [one for one in left if one == 2]
    assert made.table.refresh().scan().to_arrow().num_rows == len(left)


# Deletes with statistics.


STATISTICS = [
    pytest.param({"lower_bounds": {2: b"zzz"}, "upper_bounds": {2: b"zzz"}}, "x = 'new'", id="bounds"),
    pytest.param({"lower_bounds": {2: b"zzz"}, "upper_bounds": {2: b"zzz"}}, "x like 'n%'", id="bounds, a prefix"),
    pytest.param({"value_counts": {2: 1}, "null_value_counts": {2: 1}}, "x is not null", id="only null"),
    pytest.param({"null_value_counts": {2: 0}}, "x is null or id = 2", id="no null"),
    pytest.param({"record_count": 0}, "id = 2", id="no rows, it is said"),
]


@pytest.mark.parametrize(("said", "row_filter"), STATISTICS)
def test_a_filter_hides_no_equality_delete(create: Create, said: Mapping[str, Any], row_filter: str) -> None:
    made = create(types.StringType(), None)
    made.data(("1.parquet", {"id": [1, 2, 3], "x": ["old", "new", None]}, Record()))
    rows = pa.table({"id": pa.array([2], pa.int64()), "x": ["zzz"]})
    made.deletes("deletes.parquet", rows, Record(), DataFileContent.EQUALITY_DELETES, equality_ids=[1], **said)
    for which in (None, row_filter):
        with pytest.raises(NotSupported, match="equality deletes"):
            made.read(which)


@pytest.mark.parametrize(("said", "row_filter"), STATISTICS)
def test_a_filter_hides_no_position_delete(create: Create, said: Mapping[str, Any], row_filter: str) -> None:
    """Writers may keep the deleted rows, and their statistics, beside the positions."""
    made = create(types.StringType(), None)
    (path,) = made.data(("1.parquet", {"id": [1, 2, 3], "x": ["old", "new", None]}, Record()))
    rows = pa.table({"file_path": [path], "pos": [1]}, schema=POSITIONS)
    made.deletes("deletes.parquet", rows, Record(), DataFileContent.POSITION_DELETES, **said)
    assert made.ids() == [1, 3]
    assert 2 not in made.ids(row_filter)


def test_deletes_of_other_partitions_matter_not(create: Create) -> None:
    made = create(types.StringType(), IdentityTransform())
    made.data(("1.parquet", {"id": [1, 2], "x": ["a", "a"]}, Record("a")))
    made.data(("2.parquet", {"id": [3], "x": ["b"]}, Record("b")))
    rows = pa.table({"id": pa.array([3], pa.int64())})
    made.deletes("deletes.parquet", rows, Record("b"), DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    assert made.ids("x = 'a'") == [1, 2]
    with pytest.raises(NotSupported, match="equality deletes"):
        made.read("x <= 'b'")


# Times before 1970.


MOMENTS = [-62_135_596_800_000_000, -365 * DAY - 1, -31 * DAY, -DAY - 1, -DAY, -3_600_000_001, -1, 0, 1, 400 * DAY]
DAYS = [-719_162, -366, -365, -32, -31, -1, 0, 1, 400]
BY_TIME = [
    *((types.TimestampType(), unit) for unit in ("year", "month", "day", "hour")),
    (types.TimestamptzType(), "hour"),
    *((types.DateType(), unit) for unit in ("year", "month", "day")),
]
TRANSFORMS: Mapping[str, Transform[Any, Any]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}


def rounded(micros: int, unit: str) -> int:
    """The number of years, months, days or hours since 1970, rounded towards zero."""
    if unit in ("day", "hour"):
        width = DAY if unit == "day" else DAY // 24
        return micros // width if micros >= 0 else -(-micros // width)
    moment = EPOCH + timedelta(microseconds=micros)
    months = (moment.year - 1970) * 12 + moment.month - 1
    width = 1 if unit == "month" else 12
    is_exact = months % width == 0 and (moment.day, moment.hour, moment.minute, moment.second, moment.microsecond) == (
        1,
        0,
        0,
        0,
        0,
    )
    return months // width + (micros < 0 and not is_exact)


@pytest.mark.parametrize(("kind", "unit"), BY_TIME, ids=lambda one: f"{one}")
def test_times_before_1970_are_found_where_the_writer_rounded_them(
    create: Create, kind: types.PrimitiveType, unit: str
) -> None:
    is_day = isinstance(kind, types.DateType)
    values, width = (DAYS, DAY) if is_day else (MOMENTS, 1)
    made = create(kind, TRANSFORMS[unit], version=1)
    exact = TRANSFORMS[unit].transform(kind)
    partitions = {(number, of) for number, one in enumerate(values) for of in (exact(one), rounded(one * width, unit))}
    files = [(f"{number},{of}.parquet", number, of) for number, of in partitions]
    made.data(*((name, {"id": [number], "x": [values[number]]}, Record(of)) for name, number, of in files))
    directory = made.directory

    def text(value: int) -> str:
        if is_day:
            return f"'{date(1970, 1, 1) + timedelta(days=value)}'"
        zone = EPOCH if isinstance(kind, types.TimestamptzType) else EPOCH.replace(tzinfo=None)
        return f"'{(zone + timedelta(microseconds=value)).isoformat()}'"

    def check(row_filter: str, holds: Callable[[int], bool]) -> None:
        found = sfn.read(directory, row_filter=row_filter)["id"].to_pylist()
        assert sorted(found) == sorted(number for number, _ in partitions if holds(values[number])), row_filter

    for literal in (-DAY // width, -1, 0):
        for sign, compare in COMPARED.items():
            check(f"x {sign} {text(literal)}", partial(_flipped, compare, literal))
    check(f"x in ({text(values[1])}, {text(-1)})", {values[1], -1}.__contains__)


def _flipped(compare: Callable[[Any, Any], bool], literal: int, value: int) -> bool:
    return compare(value, literal)


def test_partitions_beyond_the_next_one_are_not_opened(create: Create) -> None:
    made = create(types.DateType(), YearTransform())
    placed = [(-800, -3), (-1, -1), (-1, 0), (1, 1), (800, 2)]
    made.data(*((f"{at}.parquet", {"id": [at], "x": [day]}, Record(year)) for at, (day, year) in enumerate(placed)))
    for number in (3, 4):
        made.path(f"{number}.parquet").unlink()
    assert made.ids("x < '1970-01-01'") == [0, 1, 2]
    assert made.ids("x = '1969-12-31' or x < '1968-01-01'") == [0, 1, 2]
    made.path("0.parquet").unlink()
    assert made.ids("x = '1969-12-31'") == [1, 2]
