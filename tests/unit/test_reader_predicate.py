"""What a row filter selects: the rules of `docs/read/filters.md`, type by type, and in files that are odd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import expressions as iceberg
from pyiceberg import types
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.parser import parse
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

import sfn
from sfn.errors import NotSupported
from sfn.reader.predicate import bind_filter, parse_filter
from tests.support.real_table import published_table

NAN, INF = float("nan"), float("inf")
FLOATS = [-INF, -1.5, -0.0, 0.0, 0.1, 2.0, INF, NAN, None]
DAYS = [date(1969, 12, 31), date(2026, 11, 2), None]
TIMES = [-1, 0, 1_793_620_800_000_000, None]
UUIDS = [UUID(int=1 << 127), UUID(int=1), None]
# More digits than a double has.
MANY = [
    Decimal(one)
    for one in ("12345678901234567890.12", "12345678901234567890.11", "12345678901234567000.00", "-0.01", "0.01")
]
FINE = [Decimal(one) for one in ("0.1234567890123456789", "0.1234567890123456788", "-9.0000000000000000000")]
WIDE = types.DecimalType(38, 2)


def column(kind: types.IcebergType, number: int = 1, name: str = "x", *, required: bool = False) -> NestedField:
    return NestedField(number, name, kind, required=required)


def of(kind: type[iceberg.LiteralPredicate], value: Any, name: str = "x") -> BooleanExpression:  # noqa: ANN401 - of any type
    return kind(term=Reference(name), value=literal(value))


def selected(kind: types.IcebergType, values: Sequence[Any], which: str | BooleanExpression) -> list[Any]:
    """The values of a column that a filter selects, by their places."""
    schema = Schema(column(kind), column(types.LongType(), 2, "place"))
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    arrays = [pa.array(values, arrow.field("x").type), pa.array(range(len(values)), pa.int64())]
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow)
    places = bind_filter(schema, which).apply(batch).column("place").to_pylist()
    return [values[place] for place in places]


@pytest.mark.parametrize(
    ("kind", "values", "which", "expected"),
    [
        (types.IntegerType(), [1, 2, 3, None], "x > 1.5", [2, 3]),
        (types.IntegerType(), [1, 2, 3, None], "x <= 2.5", [1, 2]),
        (types.IntegerType(), [1, 2, None], "x = 1.5", []),
        (types.IntegerType(), [1, 2, None], "x <> 1.5", [1, 2]),
        (types.IntegerType(), [1, 2, None], "x in (1.0, 1.5)", [1]),
        (types.IntegerType(), [1, 2, None], "x not in (1.5, 2.5)", [1, 2]),
        (types.IntegerType(), [1, None], "x < 99999999999", [1]),
        (types.IntegerType(), [1, None], "not (x > 99999999999)", [1]),
        (types.LongType(), [(1 << 63) - 1, None], f"x < {1 << 63}", [(1 << 63) - 1]),
        (types.LongType(), [5, 6, None], "x = '5'", [5]),
        (types.LongType(), [5, 6, None], "x < '5.5'", [5]),
        (types.LongType(), [1, None, 3], "x <> 1", [3]),
        (types.LongType(), [1, None, 3], "x not in (1, 7)", [3]),
        (types.LongType(), [1, None, 3], "not (x = 1 or x is null)", [3]),
        (types.LongType(), [1, None, 3], "x = 1 or x is null", [1, None]),
        (types.LongType(), [1, None], "true", [1, None]),
        (types.LongType(), [1, None], "false", []),
        (types.LongType(), [1, None], "x is not nan", [1]),
        (types.DoubleType(), FLOATS, "x = 0.0", [-0.0, 0.0]),
        (types.DoubleType(), FLOATS, "x in (0.0, 2.0)", [-0.0, 0.0, 2.0]),
        (types.DoubleType(), FLOATS, "x > 0.1", [2.0, INF, NAN]),
        (types.DoubleType(), FLOATS, "not (x > 0.1)", [-INF, -1.5, -0.0, 0.0, 0.1]),
        (types.DoubleType(), FLOATS, "x <> 0", [-INF, -1.5, 0.1, 2.0, INF, NAN]),
        (types.DoubleType(), FLOATS, "x not in (0, 2)", [-INF, -1.5, 0.1, INF, NAN]),
        (types.DoubleType(), FLOATS, "x is nan", [NAN]),
        (types.DoubleType(), FLOATS, "not (x is nan)", FLOATS[:-2]),
        (types.DoubleType(), FLOATS, "x is not nan", FLOATS[:-2]),
        (types.FloatType(), [0.1, None], "x = 0.1", [0.1]),
        (types.FloatType(), [0.1, NAN, INF], of(iceberg.LessThan, 1e300), [0.1]),
        (types.DecimalType(9, 2), [Decimal("0.10"), Decimal("0.15"), None], "x = 0.1", [Decimal("0.10")]),
        (types.DecimalType(9, 2), [Decimal("0.15"), Decimal("0.16")], "x > 0.155", [Decimal("0.16")]),
        (types.DecimalType(3, 2), [Decimal("9.99"), None], "x < 1000", [Decimal("9.99")]),
        (WIDE, MANY, "x = 12345678901234567890.12", MANY[:1]),
        (WIDE, MANY, "12345678901234567890.12 = x", MANY[:1]),
        (WIDE, MANY, "x <> 12345678901234567890.12", MANY[1:]),
        (WIDE, MANY, "x > 12345678901234567890.11", MANY[:1]),
        (WIDE, MANY, "x <= 12345678901234567890.11", MANY[1:]),
        (WIDE, MANY, "x > 12345678901234567890.115", MANY[:1]),
        (WIDE, MANY, "x in (12345678901234567890.12, 1.5)", MANY[:1]),
        (WIDE, MANY, "x in (1, 12345678901234567890.12, 1.2345678901234567E+19)", [MANY[0], MANY[2]]),
        (WIDE, MANY, "x not in (12345678901234567890.12, 1)", MANY[1:]),
        (WIDE, MANY, "x between 12345678901234567000 and 12345678901234567890.11", MANY[1:3]),
        (WIDE, [-one for one in MANY], "x = -12345678901234567890.12", [-MANY[0]]),
        (WIDE, [-one for one in MANY], "x < -12345678901234567890.11", [-MANY[0]]),
        (WIDE, MANY, "x = +12345678901234567890.12", MANY[:1]),
        (WIDE, MANY, "x >= 1234567890123456789012E-2", MANY[:1]),
        (WIDE, MANY, "x > 1e25", []),
        (WIDE, MANY, "x < 1e999999999 and x > -1e999999999", MANY),
        (WIDE, MANY, "x > 1e-999999999", [*MANY[:3], MANY[4]]),
        (WIDE, MANY, "x >= -1e-999999999", [*MANY[:3], MANY[4]]),
        (WIDE, MANY, f"x < {10**400} and x < {10**400}.5", MANY),
        (types.DecimalType(20, 19), FINE, "x = 0.1234567890123456789", FINE[:1]),
        (types.DecimalType(20, 19), FINE, "x < .1234567890123456789", FINE[1:]),
        (types.DecimalType(20, 19), FINE, "x in (-9., 1234567890123456788e-19)", FINE[1:]),
        (types.DecimalType(20, 19), FINE, f"x < 0.{'1234567890123456789' * 3}", FINE),
        (types.LongType(), [(1 << 53) + 1, (1 << 53) + 2], f"x > {(1 << 53) + 1}.5", [(1 << 53) + 2]),
        (types.LongType(), [(1 << 53) + 1, (1 << 53) + 2], f"x = {(1 << 53) + 1}.0", [(1 << 53) + 1]),
        (types.LongType(), [1500, 1501, -1], "x = 1.5E3", [1500]),
        (types.DoubleType(), FLOATS, "x in (1e-1, 2)", [0.1, 2.0]),
        (types.DoubleType(), FLOATS, f"x > 1e400 or x < -{10**400}", [NAN]),
        (types.FloatType(), [0.1, None], "x = 0.10000000000000000000001", [0.1]),
        (types.DateType(), DAYS, "x = '2026-11-02'", [DAYS[1]]),
        (types.DateType(), DAYS, of(iceberg.LessThan, datetime(2026, 11, 2, 12, tzinfo=UTC)), DAYS[:2]),
        (types.DateType(), DAYS, of(iceberg.EqualTo, datetime(2026, 11, 2, 12, tzinfo=UTC)), []),
        (types.TimestampType(), TIMES, "x < '1970-01-01T00:00:00'", [-1]),
        (types.TimestamptzType(), TIMES, "x >= '1970-01-01T00:00:00+00:00'", TIMES[1:3]),
        (types.TimestampNanoType(), [-1, 1, None], "x > '1970-01-01T00:00:00'", [1]),
        (types.TimestampType(), TIMES, of(iceberg.GreaterThan, date(1970, 1, 1)), [TIMES[2]]),
        (types.BooleanType(), [True, False, None], "x = true", [True]),
        (types.BooleanType(), [True, False, None], "x <> true", [False]),
        (types.StringType(), ["a", "", "\uffff", "😀", None], "x > '\uffff'", ["😀"]),
        (types.StringType(), ["a%b", "ab", None], "x like 'a%'", ["a%b", "ab"]),
        (types.StringType(), ["a%b", "ab", None], "x not like 'ab%'", ["a%b"]),
        (types.StringType(), ["it's", None], "x = 'it''s'", ["it's"]),
        (types.StringType(), ["it's 1.5", "1"], "x = 'it''s 1.5'", ["it's 1.5"]),
        (types.StringType(), ["a\\'1", "1.5"], "x in ('a\\'1', '2.5')", ["a\\'1"]),
        (types.StringType(), ["1.5\t2", "1.5 2"], "x = '1.5\t2'", ["1.5\t2"]),
        (types.StringType(), ["1.5\t2", "1.5 2"], "x\tlike '1.5\t%'", ["1.5\t2"]),
        (types.UUIDType(), [one and one.bytes for one in UUIDS], f"x > '{UUIDS[1]}'", [UUIDS[0].bytes]),  # type: ignore[union-attr] # the last alone is None
        (types.BinaryType(), [b"", b"\xff", None], of(iceberg.GreaterThan, b"\x00"), [b"\xff"]),
        (
            types.FixedType(2),
            [b"aa", b"bb", None],
            iceberg.In(term=Reference("x"), values={literal(b"aa"), literal(b"cc")}),
            [b"aa"],
        ),
        (types.ListType(2, types.LongType()), [[1], None, []], "x is null", [None]),
    ],
)
def test_a_filter_selects(
    kind: types.IcebergType, values: Sequence[Any], which: str | BooleanExpression, expected: Sequence[Any]
) -> None:
    assert repr(selected(kind, values, which)) == repr(list(expected))


@pytest.mark.slow
@given(st.lists(st.integers(-3, 3) | st.none()), st.decimals(-4, 4, places=1), st.sampled_from(["<", "<=", "=", "<>"]))
def test_a_number_between_two_values_is_compared_as_it_is(
    values: list[int | None], literal: Decimal, operator: str
) -> None:
    tests: Mapping[str, Callable[[int], bool]] = {
        "<": lambda value: value < literal,
        "<=": lambda value: value <= literal,
        "=": lambda value: value == literal,
        "<>": lambda value: value != literal,
    }
    holds = tests[operator]
    expected = [value for value in values if value is not None and holds(value)]
    rest = [value for value in values if value is not None and not holds(value)]
    assert selected(types.IntegerType(), values, f"x {operator} {literal}") == expected
    assert selected(types.IntegerType(), values, f"not (x {operator} {literal})") == rest


def test_a_part_of_a_struct_that_is_null_is_null() -> None:
    kind = types.StructType(column(types.LongType(), 3, "y", required=True))
    values = [{"y": 1}, None, {"y": 2}]
    assert selected(kind, values, "x.y is null") == [None]
    assert selected(kind, values, "x.y <> 1") == [{"y": 2}]
    assert selected(kind, values, "x is not null") == [{"y": 1}, {"y": 2}]


@pytest.mark.slow
def test_a_long_list_of_values_is_no_deep_tree() -> None:
    listed = ", ".join(f"'{number}'" for number in range(5_000))
    assert selected(types.StringType(), ["7", "x", None], f"x in ({listed})") == ["7"]


@pytest.mark.parametrize(
    ("kind", "which"),
    [
        (types.DoubleType(), "x > 1.5"),
        (types.DoubleType(), "x >= 1.5"),
        (types.DoubleType(), "x <> 1.5"),
        (types.DoubleType(), "not (x < 1.5)"),
        (types.DoubleType(), "not (x = 1.5)"),
        (types.DoubleType(), "x in (0.0, 1.5)"),
        (types.DoubleType(), "x is nan"),
        (types.StringType(), "x not like 'a%'"),
        (types.LongType(), "x <> 1"),
        (types.TimestampNanoType(), "x > '1970-01-01T00:00:00'"),
        (types.UUIDType(), f"x > '{UUIDS[1]}'"),
        (types.UUIDType(), f"x = '{UUIDS[1]}'"),
        (types.UUIDType(), f"x in ('{UUIDS[1]}', '{UUIDS[0]}')"),
        (types.ListType(2, types.LongType()), "x is null"),
    ],
)
def test_no_statistics_are_asked_that_may_mislead(kind: types.IcebergType, which: str) -> None:
    assert bind_filter(Schema(column(kind)), which).pruning == AlwaysTrue()


def test_a_required_part_of_a_struct_is_not_taken_for_one_without_nulls() -> None:
    kind = types.StructType(column(types.LongType(), 3, "y", required=True))
    assert bind_filter(Schema(column(kind)), "x.y is null").pruning == AlwaysTrue()


def test_files_are_ruled_out_by_the_value_that_is_compared() -> None:
    schema = Schema(column(types.LongType()))
    assert bind_filter(schema, "x > 1.5").pruning == of(iceberg.GreaterThan, 1)
    assert bind_filter(schema, "not (x > 1.5)").pruning == of(iceberg.LessThanOrEqual, 1)
    assert bind_filter(Schema(column(types.FloatType())), "x = 0.1").pruning == of(iceberg.EqualTo, 0.10000000149011612)


def test_numbers_of_a_text_have_its_digits() -> None:
    assert parse_filter("x = 0.1") == of(iceberg.EqualTo, Decimal("0.1"))
    assert parse_filter('"a 1 5".b2 = -1.50') == of(iceberg.EqualTo, Decimal("-1.50"), "a 1 5.b2")


@pytest.mark.parametrize(
    "which",
    [
        *(
            "x >",
            "x = 1.2.3",
            "x = 1..2",
            "x = 5.and x = 6",
            "x = 1_000",
            "x = 1.5e",
            "x = 1e5e5",
            "x .5 = 1",
            "x.5 = 1",
        ),
        *(
            "x5.5 = 1",
            "x in (1.5, 'a')",
            "x like 5",
            "x = - 5",
            "x = --5",
            "x = 1.5x",
            "x = 0x10",
            "x = 'a' 1.5",
            "5x = 1",
        ),
        *("x = 1.5'a'", "x = '1.5", 'x = "1.5"', "x = 1e99999999999999999999"),
    ],
)
def test_what_is_no_filter_is_quoted(which: str) -> None:
    with pytest.raises(ValueError, match="a row_filter such as") as raised:
        parse_filter(which)
    assert repr(which) in f"{raised.value}"


@pytest.mark.parametrize(
    ("which", "found", "place"),
    [("x > 3 4", "'4'", 6), ("x in (1,2,3,4,5,6,7,8,9,1,2,3,4) y", "'y'", 33), ("x = 1.50 y", "'y'", 9)],
)
def test_what_is_no_filter_is_found_where_it_is(which: str, found: str, place: int) -> None:
    with pytest.raises(ValueError, match=rf"found {found}  \(at char {place}\)"):
        parse_filter(which)


def test_only_whole_numbers_have_a_limit_of_digits() -> None:
    assert parse_filter(f"x = {'0' * 6000}.{'0' * 5000}1") == of(iceberg.EqualTo, Decimal("1E-5001"))
    assert parse_filter(f"x = {'9' * 4300}") == of(iceberg.EqualTo, int("9" * 4300))
    with pytest.raises(ValueError, match="4300 digits"):
        parse_filter(f"x = {'9' * 4301}")


LITERALS = st.sampled_from(["5", "-12", "+7", "1.5", "-.25", "7.", "'a''1.5'", "'\\'2'", "'\"'", "true"])
COLUMNS = st.sampled_from(["x", "x5", "$x", "_1.y2", '"a 1.5"', '"it\'s 5".x', "x . y"])
TESTS = st.one_of(
    st.builds("{} {} {}".format, COLUMNS, st.sampled_from(["=", "<=", "!=", "in", "like", "not like"]), LITERALS),
    st.builds("{} {}{}".format, LITERALS, st.sampled_from(["<", ">=", "<>"]), COLUMNS),
    st.builds("{} between {} and {}".format, COLUMNS, LITERALS, LITERALS),
    st.builds("{} in({}, {},{})".format, COLUMNS, LITERALS, LITERALS, LITERALS),
)


@pytest.mark.slow
@given(st.lists(TESTS, min_size=1, max_size=3).map(" and ".join), st.integers(0, 40))
def test_a_text_means_what_it_means_to_pyiceberg(text: str, gone: int) -> None:
    """Also where a character is missing; numbers are none here that a double has no room for."""
    for one in (text, text[:gone] + text[gone + 1 :]):
        try:
            expected = parse(one)
        except Exception:  # noqa: BLE001, S112 - of no family; with exponents and mixed lists more is taken here
            continue
        assert parse_filter(one) == expected


@pytest.fixture(name="catalog")
def fixture_catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with closing(SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("sales")
        yield catalog


def table_of(
    catalog: SqlCatalog,
    schema: Schema,
    files: Mapping[str, tuple[pa.Table, Record]],
    spec: PartitionSpec | None = None,
    bounds: Mapping[int, bytes] | None = None,
    **options: Any,  # noqa: ANN401 - of `pq.write_table`
) -> str:
    """A published table of some files; its directory."""
    table = catalog.create_table("sales.orders", schema, partition_spec=spec or PartitionSpec())
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        for name, (rows, partition) in files.items():
            append.append_data_file(_file(table, name, rows, partition, bounds, options))
    return str(published_table(table).path)


def _file(
    table: Table,
    name: str,
    rows: pa.Table,
    partition: Record,
    bounds: Mapping[int, bytes] | None,
    options: Mapping[str, Any],
) -> DataFile:
    path = Path(table.location().removeprefix("file://")) / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = schema_to_pyarrow(table.schema())
    pq.write_table(rows.cast(pa.schema([whole.field(name) for name in rows.column_names])), path, **options)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    file.spec_id = table.metadata.default_spec_id
    return file


PLACE = Schema(column(types.LongType(), 1, "id"), column(types.StringType(), 2, "s"))
BY_PLACE = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s"))


@pytest.mark.parametrize("fields", [("id",), ("id", "s"), ("*",)])
@pytest.mark.parametrize(
    ("which", "ids"),
    [
        ("s = 'a'", [1, 2]),
        ("s = 'a' or id = 3", [1, 2, 3]),
        ("s is null", [4]),
        ("s <> 'a'", [3]),
        ("s like 'a%' and id > 1", [2]),
    ],
)
def test_a_column_that_only_the_partition_has_is_compared_whatever_is_selected(
    catalog: SqlCatalog, fields: tuple[str, ...], which: str, ids: list[int]
) -> None:
    files = {
        "s=a/1.parquet": (pa.table({"id": [1, 2]}), Record("a")),
        "s=b/2.parquet": (pa.table({"id": [3]}), Record("b")),
        "s=null/3.parquet": (pa.table({"id": [4]}), Record(None)),
    }
    directory = table_of(catalog, PLACE, files, BY_PLACE)
    found = sfn.read(directory, row_filter=which, selected_fields=fields)
    assert sorted(found["id"].to_pylist()) == ids
    assert found.column_names == (["id"] if fields == ("id",) else ["id", "s"])


def test_nan_beside_one_other_value_is_found(catalog: SqlCatalog) -> None:
    schema = Schema(column(types.DoubleType()))
    directory = table_of(catalog, schema, {"1.parquet": (pa.table({"x": [NAN, 1.5]}), Record())})
    for which in ("x is nan", "x > 2.0", "x <> 1.5", "x not in (1.5, 7.0)"):
        assert repr(sfn.read(directory, row_filter=which)["x"].to_pylist()) == "[nan]", which


def test_bounds_that_can_not_be_decoded_rule_no_file_out(catalog: SqlCatalog) -> None:
    files = {"1.parquet": (pa.table({"id": [1, 2], "s": ["a", "b"]}), Record())}
    directory = table_of(catalog, PLACE, files, bounds={2: b"\xff\xfe"})
    assert sfn.read(directory, row_filter="s = 'a'")["id"].to_pylist() == [1]


def test_bounds_rule_a_file_out(catalog: SqlCatalog) -> None:
    """They say here what is not so, to be seen at work."""
    files = {"1.parquet": (pa.table({"id": [1, 2], "s": ["a", "b"]}), Record())}
    directory = table_of(catalog, PLACE, files, bounds={2: b"z"})
    assert sfn.read(directory, row_filter="s = 'a'").num_rows == 0
    assert sfn.read(directory, row_filter="s <> 'b'").num_rows == 1


def test_a_limit_counts_rows_that_the_filter_selects(catalog: SqlCatalog) -> None:
    files = {f"{number}.parquet": (pa.table({"x": [number, -1]}), Record()) for number in range(40)}
    directory = table_of(catalog, Schema(column(types.LongType())), files)
    assert sfn.read(directory, row_filter="x >= 30", limit=5).num_rows == 5
    assert sfn.read(directory, row_filter="x >= 30", limit=50).num_rows == 10
    assert sfn.read(directory, limit=0).num_rows == 0
    assert sfn.read(directory).num_rows == 80


def test_a_part_of_a_struct_is_selected_and_another_compared(catalog: SqlCatalog) -> None:
    parts = (column(types.LongType(), 2, "y"), column(types.StringType(), 3, "z"))
    schema = Schema(column(types.StructType(*parts)))
    rows = pa.table({"x": pa.array([{"y": 1, "z": "a"}, {"y": 2, "z": "b"}, None])})
    directory = table_of(catalog, schema, {"1.parquet": (rows, Record())})
    found = sfn.read(directory, row_filter="x.y > 1", selected_fields=("x.z",))
    assert found.to_pylist() == [{"x": {"z": "b"}}]


@pytest.mark.parametrize("which", [None, "id = 1"])
def test_a_name_with_a_dot_is_no_path(catalog: SqlCatalog, which: str | None) -> None:
    schema = Schema(column(types.LongType(), 1, "id"), column(types.DoubleType(), 2, "p.q"))
    directory = table_of(catalog, schema, {"1.parquet": (pa.table({"id": [1], "p.q": [1.5]}), Record())})
    assert sfn.read(directory, row_filter=which).to_pylist() == [{"id": 1, "p.q": 1.5}]
    assert sfn.read(directory, row_filter=of(iceberg.GreaterThan, 1.0, "p.q")).num_rows == 1


def test_a_null_list_of_structs_is_no_empty_one(catalog: SqlCatalog) -> None:
    kind = types.ListType(2, types.StructType(column(types.LongType(), 3, "y")))
    rows = pa.table({"x": pa.array([None, [], [{"y": 1}]])})
    directory = table_of(catalog, Schema(column(kind)), {"1.parquet": (rows, Record())})
    assert sfn.read(directory)["x"].to_pylist() == [None, [], [{"y": 1}]]
    assert sfn.read(directory, row_filter="x is null").num_rows == 1


def test_times_of_96_bits_may_be_far_away(catalog: SqlCatalog) -> None:
    far = [datetime(1, 1, 1), datetime(9999, 12, 31)]  # noqa: DTZ001 - the column has no zone
    rows = pa.table({"x": pa.array(far, pa.timestamp("us"))})
    schema = Schema(column(types.TimestampType()))
    files = {"1.parquet": (rows, Record())}
    directory = table_of(catalog, schema, files, use_deprecated_int96_timestamps=True)
    assert sfn.read(directory)["x"].to_pylist() == far
    assert sfn.read(directory, row_filter="x > '2026-01-01T00:00:00'")["x"].to_pylist() == far[1:]


def test_a_uuid_is_compared(catalog: SqlCatalog) -> None:
    rows = pa.table({"x": pa.array([one and one.bytes for one in UUIDS], pa.uuid())})
    directory = table_of(catalog, Schema(column(types.UUIDType())), {"1.parquet": (rows, Record())})
    assert sfn.read(directory, row_filter=f"x = '{UUIDS[1]}'")["x"].to_pylist() == [UUIDS[1]]
    assert sfn.read(directory, row_filter=f"x in ('{UUIDS[1]}', '{UUIDS[0]}')").num_rows == 2


def test_what_pyiceberg_does_not_read_is_refused_before_any_row(catalog: SqlCatalog) -> None:
    table = catalog.create_table("sales.orders", PLACE)
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{table.location()}/data/1.avro",
            file_format=FileFormat.AVRO,
            partition=Record(),
            record_count=1,
            file_size_in_bytes=1,
        )
        file.spec_id = 0
        append.append_data_file(file)
    with pytest.raises(NotSupported, match="data in Avro files; read it with PySpark"):
        sfn.read(str(published_table(table).path))
