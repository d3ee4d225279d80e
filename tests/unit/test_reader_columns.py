"""Which columns of a data file belong to the table: those with a field id; without any id, those that are mapped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

import sfn
from sfn.errors import MalformedMetadata
from tests.unit.real_table import published_table

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
    with closing(SqlCatalog("own", uri=f"sqlite:///{tmp_path}/own.db", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("sales")
        yield catalog


@pytest.fixture(name="table")
def fixture_table(catalog: SqlCatalog) -> Callable[[pa.Table, Sequence[Mapping[str, Any]] | None], str]:
    """Publish a table of one file, and return its directory."""

    def made(rows: pa.Table, mapping: Sequence[Mapping[str, Any]] | None) -> str:
        properties = {} if mapping is None else {"schema.name-mapping.default": json.dumps(mapping)}
        table = catalog.create_table("sales.orders", SCHEMA, properties=properties)
        path = Path(table.location().removeprefix("file://")) / "data" / "1.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows, path)
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file://{path}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
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
    table: Callable[[pa.Table, Sequence[Mapping[str, Any]] | None], str],
    mapping: Sequence[Mapping[str, Any]] | None,
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


def test_file_without_field_ids_is_refused_without_a_mapping(
    table: Callable[[pa.Table, Sequence[Mapping[str, Any]] | None], str],
) -> None:
    directory = table(one([column("id", LONG)], id=7), None)
    with pytest.raises(MalformedMetadata, match="field-ids"):
        sfn.read(directory)
