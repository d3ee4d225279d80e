"""Which columns of a data file belong to the table: those with a field id; without any id, those that are mapped."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

import sfn
from sfn.errors import MalformedMetadata, NotSupported
from tests.support.real_table import own_catalog, published_table

# The catalog numbers columns in this order.
POINT = types.StructType(NestedField(6, "x", types.LongType()), NestedField(7, "y", types.LongType()))
SCHEMA = Schema(
    NestedField(1, "id", types.LongType()),
    NestedField(2, "s", types.StringType()),
    NestedField(3, "point", POINT),
    NestedField(4, "points", types.ListType(8, types.StructType(NestedField(9, "x", types.LongType())))),
    NestedField(
        5, "named", types.MapType(10, types.StringType(), 11, types.StructType(NestedField(12, "x", types.LongType())))
    ),
)
MAPPING: Sequence[Mapping[str, Any]] = [
    {"field-id": 1, "names": ["id", "number"]},
    {"field-id": 2, "names": ["s"]},
    {"field-id": 3, "names": ["point"], "fields": [{"field-id": 6, "names": ["x"]}]},
    {
        "field-id": 4,
        "names": ["points"],
        "fields": [{"field-id": 8, "names": ["element"], "fields": [{"field-id": 9, "names": ["x"]}]}],
    },
    {
        "field-id": 5,
        "names": ["named"],
        "fields": [
            {"field-id": 10, "names": ["key"]},
            {"field-id": 11, "names": ["value"], "fields": [{"field-id": 12, "names": ["x"]}]},
        ],
    },
    {"names": ["dropped"]},
]
LONG = pa.int64()
NOTHING = {field.name: None for field in SCHEMA.fields}


@pytest.fixture(name="catalog")
def fixture_catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with own_catalog(tmp_path) as catalog:
        yield catalog


@pytest.fixture(name="table")
def fixture_table(catalog: SqlCatalog) -> Callable[..., str]:
    """Publish a table of one file, and return its directory; a partition is a column's id and its value."""

    def made(
        rows: pa.Table,
        mapping: Sequence[Mapping[str, Any]] | None,
        schema: Schema = SCHEMA,
        partition: tuple[int, object] | None = None,
    ) -> str:
        properties = {} if mapping is None else {"schema.name-mapping.default": json.dumps(mapping)}
        spec = PartitionSpec(PartitionField(partition[0], 1000, IdentityTransform(), "of")) if partition else None
        table = catalog.create_table(
            "sales.orders", schema, partition_spec=spec or PartitionSpec(), properties=properties
        )
        path = Path(table.location().removeprefix("file://")) / "data" / "1.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows, path)
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file://{path}",
            file_format=FileFormat.PARQUET,
            partition=Record(*(partition or ())[1:]),
            record_count=rows.num_rows,
            file_size_in_bytes=path.stat().st_size,
        )
        file.spec_id = 0
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(file)
        return f"{published_table(table).path}"

    return made


def column(name: str, kind: pa.DataType, number: int | None = None) -> pa.Field:
    return pa.field(name, kind, metadata=None if number is None else {"PARQUET:field_id": f"{number}"})


def one(fields: Sequence[pa.Field], **values: Any) -> pa.Table:  # noqa: ANN401 - of any type
    """Return a table of one row, in which columns without a value are NULL."""
    return pa.table([pa.array([values.get(field.name)], field.type) for field in fields], schema=pa.schema(fields))


@pytest.mark.parametrize("kind", [LONG, pa.uint64(), pa.time32("ms"), pa.struct([column("p.q", pa.float16())])])
@pytest.mark.parametrize("name", ["unknown", "p.q", "dropped"])
def test_column_that_is_not_mapped_is_ignored(
    table: Callable[[pa.Table, Sequence[Mapping[str, Any]]], str], name: str, kind: pa.DataType
) -> None:
    directory = table(one([column("number", LONG), column(name, kind)], number=7), MAPPING)
    assert sfn.read(directory).to_pylist() == [NOTHING | {"id": 7}]
    assert sfn.read(directory, row_filter="id = 7", selected_fields=("id",)).to_pylist() == [{"id": 7}]


def test_part_of_a_column_that_is_not_mapped_is_ignored(
    table: Callable[[pa.Table, Sequence[Mapping[str, Any]]], str],
) -> None:
    parts = pa.struct([column("x", LONG), column("y", LONG)])
    fields = [column("point", parts), column("points", pa.list_(parts)), column("named", pa.map_(pa.string(), parts))]
    both = {"x": 1, "y": 2}
    directory = table(one(fields, point=both, points=[both], named=[("a", both)]), MAPPING)
    expected = {"point": {"x": 1, "y": None}, "points": [{"x": 1}], "named": [("a", {"x": 1})]}
    assert sfn.read(directory).to_pylist() == [NOTHING | expected]


@pytest.mark.parametrize("mapping", [None, MAPPING])
def test_column_without_a_field_id_is_ignored_where_others_have_one(
    table: Callable[[pa.Table, Sequence[Mapping[str, Any]] | None], str], mapping: Sequence[Mapping[str, Any]] | None
) -> None:
    point = pa.struct([column("x", LONG), column("was_y", LONG, 7)])
    fields = [column("was_id", LONG, 1), column("s", pa.string()), column("point", point, 3)]
    rows = one(fields, was_id=7, s="another column of this name", point={"x": 1, "was_y": 2})
    expected = NOTHING | {"id": 7, "point": {"x": None, "y": 2}}
    assert sfn.read(table(rows, mapping)).to_pylist() == [expected]


def test_list_and_map_of_parts_that_are_not_mapped_are_null(
    table: Callable[[pa.Table, Sequence[Mapping[str, Any]]], str],
) -> None:
    fields = [column("id", LONG), column("points", pa.list_(LONG)), column("named", pa.map_(LONG, LONG))]
    mapping = [{key: part for key, part in each.items() if key != "fields"} for each in MAPPING]
    rows = one(fields, id=7, points=[1], named=[(1, 2)])
    assert sfn.read(table(rows, mapping)).to_pylist() == [NOTHING | {"id": 7}]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_list_of_structs_of_which_nothing_is_known_is_null(table: Callable[..., str], depth: int) -> None:
    kind: pa.DataType = pa.struct([column("x", LONG)])
    for _ in range(1, depth):
        kind = pa.struct([column("inner", kind, 20)])
    points = pa.list_(column("element", kind, 8))
    directory = table(one([column("id", LONG, 1), column("points", points, 4)], id=7, points=[{}]), None)
    assert sfn.read(directory).to_pylist() == [NOTHING | {"id": 7}]


# The catalog numbers them level by level.
DEEP = Schema(
    NestedField(1, "id", types.LongType()),
    NestedField(
        2,
        "p",
        types.StructType(
            NestedField(3, "c", types.StringType()),
            NestedField(4, "d", types.StringType()),
            NestedField(
                5,
                "q",
                types.StructType(
                    NestedField(6, "c", types.DecimalType(9, 2)), NestedField(7, "e", types.LongType(), required=False)
                ),
            ),
        ),
    ),
)
PLAIN_D = pa.struct([column("d", pa.string(), 4)])
PLAIN_E = pa.struct([column("q", pa.struct([column("e", LONG, 7)]), 5)])
NO_Q = {"d": None, "q": None}


@pytest.mark.parametrize(
    ("kind", "values", "partition", "expected"),
    [
        # Iceberg's own library has no NULL for a struct either that it knows a part of.
        (PLAIN_D, [{"d": "x"}, {"d": None}, None], (3, "a"), [{"c": "a", **NO_Q, "d": "x"}] + [{"c": "a", **NO_Q}] * 2),
        (PLAIN_D, [{"d": "x"}, None], (3, None), [{"c": None, **NO_Q, "d": "x"}, None]),
        (
            PLAIN_E,
            [{"q": {"e": 1}}, {"q": None}, None],
            (6, Decimal("1.50")),
            [
                {"c": None, "d": None, "q": {"c": Decimal("1.50"), "e": 1}},
                {"c": None, "d": None, "q": {"c": Decimal("1.50"), "e": None}},
                None,
            ],
        ),
        # What it has itself is not the partition's.
        (pa.struct([column("was_c", pa.string(), 3)]), [{"was_c": "b"}, None], (3, "a"), [{"c": "b", **NO_Q}, None]),
    ],
)
def test_part_of_a_struct_that_the_file_lacks_is_that_of_its_partition(
    table: Callable[..., str],
    kind: pa.DataType,
    values: Sequence[Any],
    partition: tuple[int, object],
    expected: Any,  # noqa: ANN401 - of any type
) -> None:
    schema = pa.schema([column("id", LONG, 1), column("p", kind, 2)])
    directory = table(pa.table([range(len(values)), pa.array(values, kind)], schema=schema), None, DEEP, partition)
    found = sfn.read(directory)
    assert found["p"].to_pylist() == expected
    name = {3: "p.c", 6: "p.q.c"}[partition[0]]
    parts = [_at(row, name) for row in found.to_pylist()]
    is_null, others = f"{name} is null", f"{name} = '{parts[0]}'"
    nulls = [place for place, value in enumerate(parts) if value is None]
    places = [place for place, value in enumerate(parts) if value is not None]
    assert sfn.read(directory, row_filter=is_null)["id"].to_pylist() == nulls
    if parts[0] == partition[1] is not None:
        for fields in (("id",), ("p.d", "id")):
            assert sfn.read(directory, row_filter=others, selected_fields=fields)["id"].to_pylist() == places
    assert sfn.read(directory, selected_fields=(name,)).num_rows == len(values)


def _at(row: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - of any type
    """Return a part of a struct."""
    value: Any = row
    for part in name.split("."):
        value = None if value is None else value[part]
    return value


def test_struct_that_is_null_stays_so_where_a_part_of_it_may_not_be(table: Callable[..., str]) -> None:
    whole = types.StructType(
        NestedField(3, "c", types.StringType()), NestedField(4, "d", types.LongType(), required=True)
    )
    want = Schema(NestedField(1, "id", types.LongType()), NestedField(2, "p", whole))
    kind = pa.struct([column("d", LONG, 4).with_nullable(False)])
    rows = pa.table(
        [[0, 1], pa.array([{"d": 5}, None], kind)], schema=pa.schema([column("id", LONG, 1), column("p", kind, 2)])
    )
    found = sfn.read(table(rows, None, want, (3, "a")))
    assert found["p"].to_pylist()[1] is None
    pq.write_table(found, io.BytesIO())


def test_part_of_a_partition_is_known_of_any_batch(table: Callable[..., str]) -> None:
    """Parts of what is NULL stay NULL, whatever lies there, and rows are counted from where a batch begins."""
    values = [None if place % 3 else {"d": f"{place}"} for place in range(200_000)]
    rows = pa.table(
        [range(len(values)), pa.array(values, PLAIN_D)],
        schema=pa.schema([column("id", LONG, 1), column("p", PLAIN_D, 2)]),
    )
    found = sfn.read(table(rows, None, DEEP, (3, "a")), row_filter="id >= 131071")
    assert found["p"].to_pylist() == [
        {"c": "a", "q": None, "d": None if place % 3 else f"{place}"} for place in range(131_071, 200_000)
    ]


def test_time_of_milliseconds_is_read(table: Callable[..., str]) -> None:
    schema = Schema(NestedField(1, "id", types.LongType()), NestedField(2, "t", types.TimeType()))
    noon = pa.scalar(12 * 3_600_000 + 1, pa.int32()).cast(pa.time32("ms")).as_py()
    rows = one([column("id", LONG, 1), column("t", pa.time32("ms"), 2)], id=7, t=noon)
    directory = table(rows, None, schema)
    assert sfn.read(directory).to_pylist() == [{"id": 7, "t": noon}]
    assert sfn.read(directory, row_filter="t > '12:00:00'")["id"].to_pylist() == [7]
    assert sfn.read(directory, row_filter="t = '12:00:00'")["id"].to_pylist() == []


def test_column_of_another_type_is_not_supported(table: Callable[..., str]) -> None:
    """Of a uuid as text: the file is sound, and what reads it is another matter."""
    schema = Schema(NestedField(1, "id", types.LongType()), NestedField(2, "u", types.UUIDType()))
    fields = [column("id", LONG, 1), column("u", pa.string(), 2)]
    directory = table(one(fields, id=7, u="00000000-0000-4000-8000-000000000007"), None, schema)
    with pytest.raises(NotSupported, match=r"1\.parquet.*columns of the table's types"):
        sfn.read(directory)
    assert sfn.read(directory, selected_fields=("id",)).to_pylist() == [{"id": 7}]


def test_file_without_field_ids_is_refused_without_a_mapping(
    table: Callable[[pa.Table, Sequence[Mapping[str, Any]] | None], str],
) -> None:
    directory = table(one([column("id", LONG)], id=7), None)
    with pytest.raises(MalformedMetadata, match="field-ids"):
        sfn.read(directory)
