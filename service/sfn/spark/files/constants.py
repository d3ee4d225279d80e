"""Values of columns that files may lack and are partitioned by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from sfn.reader.data_file import cast_array, to_scalar
from sfn.spark.files.deletes import FILE_COLUMN
from sfn.spark.files.names import COLUMN_PREFIX
from sfn.spark.files.plan import PlannedFile
from sfn.spark.files.schema import read_field

_FILE_OF_VALUES: Final = f"{COLUMN_PREFIX}of"


def fill_partition_values(
    spark: SparkSession,
    rows: DataFrame,
    files: Sequence[PlannedFile],
    fields: Sequence[NestedField],
    names: Mapping[int, str],
    uris: Mapping[str, str],
) -> DataFrame:
    """Return the rows with the value of the partition wherever a column that it has a value of is NULL.

    A file that has the column has no NULL there, so this file lacks it.

    Args:
        rows: as of `sfn.spark.files.deletes.with_positions`.
        files: in which they are.
        fields: the table's columns.
        names: by which these were read, by their ids.
        uris: of the files, by their paths.
    """
    lacking = [field for field in fields if any(field.field_id in file.constants for file in files)]
    values = StructType(
        [
            StructField(_FILE_OF_VALUES, StringType()),
            *(read_field(field, f"{COLUMN_PREFIX}value_{field.field_id}") for field in lacking),
        ]
    )
    for one in values:
        one.metadata, one.nullable = {}, True
    types = to_arrow_schema(values)
    columns = [pa.array([uris[file.path] for file in files], pa.string())]
    for field, kind in zip(lacking, list(types)[1:], strict=True):
        cells = [to_scalar(file.constants.get(field.field_id), field.field_type) for file in files]
        columns.append(pa.concat_arrays([_cell(cell, kind.type) for cell in cells]))
    known = f.broadcast(spark.createDataFrame(pa.Table.from_arrays(columns, schema=types), values))
    joined = rows.join(known, rows[FILE_COLUMN] == known[_FILE_OF_VALUES], "left")
    found = {
        names[field.field_id]: f.coalesce(
            rows[_quoted(names[field.field_id])], known[f"{COLUMN_PREFIX}value_{field.field_id}"]
        )
        for field in lacking
    }
    return joined.withColumns(found)


def _cell(value: pa.Scalar, kind: pa.DataType) -> pa.Array:
    return cast_array(pa.repeat(value, 1), kind) if value.is_valid else pa.nulls(1, kind)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
