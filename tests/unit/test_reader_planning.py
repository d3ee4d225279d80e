"""Files that a filter must not leave out: deletes, and data that old writers list under a partition one too late."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from typing_extensions import override

import sfn
from sfn.errors import NotSupported
from tests.unit.real_table import published_table

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
POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)


class DeleteManifest(ManifestWriterV2):
    """A manifest of delete files, which PyIceberg does not write."""

    @override
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    @override
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class RowDelta(_FastAppendFiles):
    """A commit of delete files."""

    @override
    def new_manifest_writer(self, spec: PartitionSpec) -> DeleteManifest:
        output = self.new_manifest_output()
        return DeleteManifest(spec, self.schema(), output, self._snapshot_id, self._compression)


class Made:
    """A table, to which files are added."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def path(self, name: str) -> Path:
        path = Path(self.table.location().removeprefix("file://")) / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def data(self, *files: tuple[str, Mapping[str, Sequence[Any]], Record]) -> list[str]:
        """Add files of rows in partitions; their paths as the manifest has them."""
        whole = schema_to_pyarrow(self.table.schema())
        added = []
        for name, rows, partition in files:
            schema = pa.schema([whole.field(column) for column in rows])
            arrays = [pa.array(values, schema.field(column).type) for column, values in rows.items()]
            added.append(self._file(name, pa.Table.from_arrays(arrays, schema=schema), partition))
        with self.table.transaction() as change, change.update_snapshot().fast_append() as append:
            for file in added:
                append.append_data_file(file)
        return [file.file_path for file in added]

    def deletes(self, name: str, rows: pa.Table, partition: Record, content: DataFileContent, **said: Any) -> None:  # noqa: ANN401 - of a DataFile
        """Add a file of deletes, and what its manifest says of it."""
        file = self._file(name, rows, partition, content, **said)
        with self.table.transaction() as change, RowDelta(Operation.DELETE, change, self.table.io) as delta:
            delta.append_data_file(file)

    def read(self, row_filter: str | None = None) -> pa.Table:
        return sfn.read(str(published_table(self.table).path), row_filter=row_filter)

    def ids(self, row_filter: str | None = None) -> list[int]:
        return sorted(self.read(row_filter)["id"].to_pylist())

    def _file(
        self,
        name: str,
        rows: pa.Table,
        partition: Record,
        content: DataFileContent = DataFileContent.DATA,
        **said: Any,  # noqa: ANN401 - as above
    ) -> DataFile:
        path = self.path(name)
        pq.write_table(rows, path)
        file = DataFile.from_args(
            content=content,
            file_path=f"file://{path}",
            file_format=FileFormat.PARQUET,
            partition=partition,
            file_size_in_bytes=path.stat().st_size,
            **{"record_count": rows.num_rows, **said},
        )
        file.spec_id = self.table.metadata.default_spec_id
        return file


@pytest.fixture(name="create")
def fixture_create(tmp_path: Path) -> Iterator[Callable[..., Made]]:
    with closing(SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("sales")

        def create(kind: types.PrimitiveType, transform: Transform[Any, Any] | None, *, version: str = "2") -> Made:
            """A table of the columns `id` and `x` that is partitioned by a transform of `x`, if by anything."""
            schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", kind))
            spec = PartitionSpec(PartitionField(2, 1000, transform, "p")) if transform else PartitionSpec()
            properties = {"format-version": version}
            return Made(catalog.create_table("sales.orders", schema, partition_spec=spec, properties=properties))

        yield create


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
    create: Callable[..., Made],
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
def test_a_filter_hides_no_equality_delete(
    create: Callable[..., Made], said: Mapping[str, Any], row_filter: str
) -> None:
    made = create(StringType(), None)
    made.data(("1.parquet", {"id": [1, 2, 3], "x": ["old", "new", None]}, Record()))
    rows = pa.table({"id": pa.array([2], pa.int64()), "x": ["zzz"]})
    made.deletes("deletes.parquet", rows, Record(), DataFileContent.EQUALITY_DELETES, **({"equality_ids": [1]} | said))
    for which in (None, row_filter):
        with pytest.raises(NotSupported, match="equality deletes"):
            made.read(which)


@pytest.mark.parametrize(("said", "row_filter"), STATISTICS)
def test_a_filter_hides_no_position_delete(
    create: Callable[..., Made], said: Mapping[str, Any], row_filter: str
) -> None:
    """Writers may keep the deleted rows, and their statistics, beside the positions."""
    made = create(StringType(), None)
    (path,) = made.data(("1.parquet", {"id": [1, 2, 3], "x": ["old", "new", None]}, Record()))
    rows = pa.table({"file_path": [path], "pos": [1]}, schema=POSITIONS)
    made.deletes("deletes.parquet", rows, Record(), DataFileContent.POSITION_DELETES, **said)
    assert made.ids() == [1, 3]
    assert 2 not in made.ids(row_filter)


def test_deletes_of_other_partitions_matter_not(create: Callable[..., Made]) -> None:
    made = create(StringType(), IdentityTransform())
    of_a = ("1.parquet", {"id": [1, 2], "x": ["a", "a"]}, Record("a"))
    made.data(of_a, ("2.parquet", {"id": [3], "x": ["b"]}, Record("b")))
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
TRANSFORMS = {"year": YearTransform(), "month": MonthTransform(), "day": DayTransform(), "hour": HourTransform()}


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
    create: Callable[..., Made], kind: types.PrimitiveType, unit: str
) -> None:
    is_day = isinstance(kind, types.DateType)
    values, width = (DAYS, DAY) if is_day else (MOMENTS, 1)
    made = create(kind, TRANSFORMS[unit], version="1")
    exact = TRANSFORMS[unit].transform(kind)
    partitions = {(number, of) for number, one in enumerate(values) for of in (exact(one), rounded(one * width, unit))}
    files = [(f"{number},{of}.parquet", number, of) for number, of in partitions]
    made.data(*((name, {"id": [number], "x": [values[number]]}, Record(of)) for name, number, of in files))
    directory = str(published_table(made.table).path)

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


def test_partitions_beyond_the_next_one_are_not_opened(create: Callable[..., Made]) -> None:
    made = create(types.DateType(), YearTransform())
    placed = [(-800, -3), (-1, -1), (-1, 0), (1, 1), (800, 2)]
    made.data(*((f"{at}.parquet", {"id": [at], "x": [day]}, Record(year)) for at, (day, year) in enumerate(placed)))
    for number in (3, 4):
        made.path(f"{number}.parquet").unlink()
    assert made.ids("x < '1970-01-01'") == [0, 1, 2]
    assert made.ids("x = '1969-12-31' or x < '1968-01-01'") == [0, 1, 2]
    made.path("0.parquet").unlink()
    assert made.ids("x = '1969-12-31'") == [1, 2]
