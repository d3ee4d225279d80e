"""Rows of files, less those that are deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sfn.spark.files.names import COLUMN_PREFIX
from sfn.spark.files.plan import PlannedFile, ReadPlan
from sfn.spark.files.relation import ParquetReader
from sfn.spark.files.schema import FIELD_ID

_POSITIONS: Final = StructType(
    [
        StructField("file_path", StringType(), False, {FIELD_ID: 2147483546}),
        StructField("pos", LongType(), False, {FIELD_ID: 2147483545}),
    ]
)
"""Columns of a file of position deletes; the ids are Iceberg's."""
_BROADCAST: Final = 1_000_000
"""Deleted rows that each executor has in memory; of more Spark decides."""
FILE_COLUMN: Final = f"{COLUMN_PREFIX}file"
"""The column with the URI of the file that a row is in."""
_ROW_COLUMN: Final = f"{COLUMN_PREFIX}row"


def with_positions(rows: DataFrame) -> DataFrame:
    """The rows of files, with the file of each and its position there."""
    metadata = rows.metadataColumn("_metadata")
    return rows.select("*", metadata["file_path"].alias(FILE_COLUMN), metadata["row_index"].alias(_ROW_COLUMN))


class DeletedRows:
    """What is deleted from the files of a plan.

    Args:
        uris: of every file of the plan, by its path.
    """

    def __init__(self, spark: SparkSession, reader: ParquetReader, plan: ReadPlan, uris: Mapping[str, str]) -> None:
        self._spark, self._reader, self._plan, self._uris = spark, reader, plan, uris

    def remove_from(self, rows: DataFrame) -> DataFrame:
        """The rows of files, as of `placed`, less the deleted ones."""
        deleted = self._deleted()
        if self._count() <= _BROADCAST:
            deleted = f.broadcast(deleted)
        is_deleted = (rows[FILE_COLUMN] == deleted[FILE_COLUMN]) & (rows[_ROW_COLUMN] == deleted[_ROW_COLUMN])
        return rows.join(deleted, is_deleted, "left_anti")

    def _count(self) -> int:
        return sum(file.records for file in self._plan.deletes) + sum(
            len(vector.positions) for vector in self._plan.vectors.values()
        )

    def _deleted(self) -> DataFrame:
        """URI and position of each deleted row."""
        found = [self._by_vectors()] if self._plan.vectors else []
        found += [self._by_positions()] if self._plan.deletes else []
        first, *others = found
        for other in others:
            first = first.union(other)
        return first

    def _by_vectors(self) -> DataFrame:
        files: list[str] = []
        positions = []
        for file in self._plan.with_deletes:
            vector = self._plan.vectors.get(file.path)
            if vector is not None and vector.sequence >= file.sequence:
                files.append(self._uris[file.path])
                positions.append(pa.array(vector.positions.to_array(), pa.int64()))
        table = pa.table({FILE_COLUMN: pa.array(files, pa.string()), "rows": pa.array(positions, pa.list_(pa.int64()))})
        return self._spark.createDataFrame(table).select(FILE_COLUMN, f.explode("rows").alias(_ROW_COLUMN))

    def _by_positions(self) -> DataFrame:
        """As the files say that are older than none of the rows that they delete."""
        deletes = self._plan.deletes
        read = self._reader.rows([(self._uris[file.path], file.size) for file in deletes], _POSITIONS)
        by = read.metadataColumn("_metadata")["file_path"]
        return (
            read.select("file_path", read["pos"].alias(_ROW_COLUMN), by.alias("by"))
            .join(f.broadcast(self._listed(self._plan.with_deletes, "file_path", FILE_COLUMN, "added")), "file_path")
            .join(f.broadcast(self._listed(deletes, "delete_path", "by", "deleted")), "by")
            .where("deleted >= added")
            .select(FILE_COLUMN, _ROW_COLUMN)
        )

    def _listed(self, files: Sequence[PlannedFile], path: str, uri: str, sequence: str) -> DataFrame:
        return self._spark.createDataFrame(
            pa.table(
                {
                    path: pa.array([file.path for file in files], pa.string()),
                    uri: pa.array([self._uris[file.path] for file in files], pa.string()),
                    sequence: pa.array([file.sequence for file in files], pa.int64()),
                }
            )
        )
