"""Scan planning and reading through PyIceberg."""

from __future__ import annotations

import operator
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyiceberg import types
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
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
from sfn.errors import (
    MalformedMetadata,
    NotInstalled,
    NotPermitted,
    NotSupported,
    RefNotFound,
    Stale,
    Unreachable,
    Unreadable,
    WrongTable,
)
from sfn.reader.pyiceberg_files import BoundedIO
from tests.support.real_table import (
    IDENTIFIER,
    POSITIONS,
    ListedTable,
    RealTable,
    listed,
    own_catalog,
    real_table,
    table_by_price,
    table_in_memory,
)
from tests.support.table_directory import OTHER_UUID

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
    create: Create, kind: types.PrimitiveType, of_data: float | None, of_deletes: float | None, left: Sequence[int]
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


@pytest.fixture(name="made", scope="module")
def fixture_made(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    return real_table(tmp_path_factory.mktemp("lake"))


@pytest.fixture(name="stored")
def fixture_stored(tmp_path: Path) -> Iterator[str]:
    """A table in another file system than this machine's."""
    bucket = str(uuid4())
    yield table_in_memory(tmp_path, bucket)
    MemoryFileSystem().rm(f"/{bucket}", recursive=True)


def test_a_table_is_pyicebergs_own_and_named_as_it_is(made: RealTable) -> None:
    table = sfn.resolve(made.directory).table()
    assert table.name() == ("sales", "orders")
    assert table.metadata_location == made.pointer
    assert table.scan().to_arrow().sort_by("id")["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize(("ref", "ids"), [("main", [1, 2]), ("audit", [1, 3]), ("v1", [1])])
@pytest.mark.parametrize("table", [None, IDENTIFIER])
async def test_a_table_is_pinned_to_its_ref(made: RealTable, table: str | None, ref: str, ids: list[int]) -> None:
    found = sfn.resolve(made.directory, table, ref=ref)
    head = {"main": made.main, "audit": made.audit, "v1": made.tagged}[ref]
    pinned = found.table()
    assert pinned.metadata.current_snapshot_id == found.snapshot_id == head
    rows = sfn.read(made.directory, table, ref=ref).sort_by("id")
    assert rows["id"].to_pylist() == ids
    assert rows.equals((await sfn.aread(made.directory, table, ref=ref)).sort_by("id"))


def test_a_branch_has_the_tables_schema_and_a_tag_that_of_its_time(made: RealTable) -> None:
    columns = {ref: sfn.read(made.directory, ref=ref).column_names for ref in ("main", "audit", "v1")}
    assert columns == {"main": ["id", "day", "note"], "audit": ["id", "day", "note"], "v1": ["id", "day"]}


def test_rows_and_columns_are_chosen(made: RealTable) -> None:
    rows = sfn.read(made.directory, row_filter="day = '2026-11-02'", selected_fields=["id"])
    assert rows.to_pydict() == {"id": [2]}
    assert sfn.read(made.directory, limit=1).num_rows == 1


def test_an_earlier_time_has_its_rows(made: RealTable) -> None:
    first, *_ = (entry for entry in sfn.history(made.directory) if "00002-" in entry.metadata_location)
    assert sfn.read(made.directory, as_of=first.at)["id"].to_pylist() == [1]


def test_files_of_any_store_are_opened_as_the_directory_was(stored: str) -> None:
    table = sfn.resolve(stored, storage_options={"skip_instance_cache": True}).table()
    assert table.scan().to_arrow().to_pydict() == {"id": [1], "day": ["2026-11-01"]}
    assert sfn.read(stored, IDENTIFIER)["id"].to_pylist() == [1]
    # Engines send it to other processes.
    again = pickle.loads(pickle.dumps(table.io))  # noqa: S301 - our own
    assert again.new_input(table.metadata_location).exists()


def test_a_table_read_from_its_directory_is_read_only(stored: str) -> None:
    io = sfn.resolve(stored).table().io
    with pytest.raises(PermissionError, match="read only"):
        io.new_output(f"{stored}/x")
    with pytest.raises(PermissionError, match="read only"):
        io.delete(f"{stored}/x")


def test_pyicebergs_own_properties_are_for_who_prefers_them(made: RealTable) -> None:
    io = sfn.resolve(made.directory).table({"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}).io
    assert type(io.new_input(made.pointer)).__name__ == "FsspecInputFile"


def test_no_representation_has_the_options(stored: str) -> None:
    found = sfn.resolve(stored, storage_options={"secret": "hush"})
    assert "hush" not in repr(found) + repr(found.file_system_options) + repr(found.table().io)


@pytest.fixture(name="mutable")
def fixture_mutable(tmp_path: Path) -> RealTable:
    return real_table(tmp_path)


def test_what_changes_after_it_was_resolved_is_refused(mutable: RealTable) -> None:
    found, tag = sfn.resolve(mutable.directory), sfn.resolve(mutable.directory, ref="v1")
    file = Path(mutable.pointer.removeprefix("file://"))
    body = file.read_text()
    file.write_text(body.replace('"v1"', '"v2"'))
    with pytest.raises(RefNotFound, match="found audit, main, v2"):
        tag.table()
    file.write_text(body.replace(found.document.guid or "", OTHER_UUID))
    with pytest.raises(WrongTable):
        found.table()
    file.write_text('{"format-version": 99}')
    with pytest.raises(MalformedMetadata, match="metadata that PyIceberg can read"):
        found.table()
    file.unlink()
    with pytest.raises(Stale, match="no such file"):
        found.table()


@pytest.mark.parametrize(("call", "package"), [("resolve(d).table()", "pyiceberg"), ("read(d)", "pyarrow")])
def test_a_missing_extra_is_named(made: RealTable, call: str, package: str) -> None:
    code = (
        f"import sys, sfn; sys.modules[{package!r}] = None; d = sys.argv[1]\n"
        f"try: sfn.{call}\n"
        "except sfn.NotInstalled as refusal: print(refusal)"
    )
    arguments = [sys.executable, "-c", code, made.directory]
    told = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.startswith(f"{package}: expected an installed package")
    assert told.stdout.endswith("; pip install 'pyiceberg[pyarrow]'\n")


def broken(file: Path) -> None:
    file.write_bytes(b"\xff" * 1_000)


def forbidden(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("pattern", "harm", "refusal"),
    [
        ("*.parquet", Path.unlink, Stale),
        ("snap-*.avro", Path.unlink, Stale),
        ("*-m0.avro", Path.unlink, Stale),
        ("*.parquet", broken, MalformedMetadata),
        ("snap-*.avro", broken, MalformedMetadata),
        ("*-m0.avro", broken, MalformedMetadata),
        ("*.parquet", forbidden, Unreadable),
    ],
)
def test_what_is_gone_or_broken_below_the_metadata_is_refused(
    mutable: RealTable, pattern: str, harm: Callable[[Path], None], refusal: type[Unreadable]
) -> None:
    for file in mutable.place.path.rglob(pattern):
        harm(file)
    with pytest.raises(refusal) as caught:
        sfn.read(mutable.directory)
    names_itself = refusal is MalformedMetadata and pattern.endswith(".avro")
    assert Path(caught.value.where).match(pattern) if names_itself else caught.value.where == mutable.pointer
    assert "sfn verify --deep" in caught.value.remedy


@pytest.mark.parametrize("error", [PermissionError("not you"), OSError("the wire")])
def test_what_a_driver_says_is_said_again(made: RealTable, error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(BoundedIO, "new_input", refused)
    kind = NotPermitted if isinstance(error, PermissionError) else Unreachable
    with pytest.raises(kind, match=str(error)):
        sfn.read(made.directory)


def in_snappy(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"\x0edeflate", b"\x0csnappy"))


@pytest.mark.parametrize("properties", [None, {}])
@pytest.mark.parametrize(("harm", "refusal"), [(broken, MalformedMetadata), (in_snappy, NotInstalled)])
def test_a_manifest_is_checked_whoever_opens_it(
    mutable: RealTable, harm: Callable[[Path], None], refusal: type[Unreadable], properties: dict[str, str] | None
) -> None:
    for file in mutable.place.path.rglob("*-m0.avro"):
        harm(file)
    with pytest.raises(refusal) as caught:
        sfn.read(mutable.directory, properties=properties)
    assert caught.value.where.endswith("-m0.avro")


@pytest.mark.parametrize(
    ("row_filter", "prices"),
    [("price = 0.1", [0.1]), ("price <= 0.1", [0.1]), ("price > 0.1", [0.3, 5]), ("price in (0.3, 5.0)", [0.3, 5])],
)
def test_a_partition_of_doubles_is_found_by_them(tmp_path: Path, row_filter: str, prices: list[float]) -> None:
    rows = sfn.read(table_by_price(tmp_path), row_filter=row_filter)
    assert sorted(rows["price"].to_pylist()) == prices


@pytest.mark.parametrize("row_filter", ["id >", "nobody = 1", "id = 'x'", parse("nobody = 1")])
def test_a_wrong_filter_is_named(made: RealTable, row_filter: str | BooleanExpression) -> None:
    with pytest.raises(ValueError, match="a row_filter that fits the table's columns: ") as caught:
        sfn.read(made.directory, row_filter=row_filter)
    assert repr(row_filter) in str(caught.value)


def test_a_column_that_is_not_there_is_named(made: RealTable) -> None:
    with pytest.raises(ValueError, match="nobody"):
        sfn.read(made.directory, selected_fields=["nobody"])
