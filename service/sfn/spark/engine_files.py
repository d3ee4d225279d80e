"""The engine `files`: PyIceberg plans, and Spark's own Parquet reader reads. The engine needs no jar."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_name_by_id
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.table.deletion_vector import PROPERTY_REFERENCED_DATA_FILE
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sfn.errors import NotInstalled, SfnError
from sfn.reader.data_file import cast_array, to_scalar
from sfn.reader.predicate import parse_filter
from sfn.reader.table import open_allowed_io, to_unreadable
from sfn.spark import files_pruning
from sfn.spark.files_pruning import HadoopUris, check_file_location, is_data_file, prune_files
from sfn.spark.files_schema import (
    COLUMN_PREFIX,
    FIELD_ID,
    SchemaHistory,
    column_names,
    output_columns,
    read_field,
    result_field,
    schema_history,
)
from sfn.spark.request import ReadRequest
from sfn.spark.time_travel import PinnedTable, pin_table

_SETTINGS: Final = {
    "spark.sql.parquet.fieldId.read.enabled": "true",
    # A file without field ids is an error; its columns are not NULL.
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    # Iceberg counts days and microseconds by the Gregorian calendar, also for dates before its introduction.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # Times of 96 bits are in UTC, also those that Impala wrote.
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "false",
    # Rows are never left out silently.
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.streaming.fileStreamSink.metadata.ignored": "false",
}
"""Spark's settings for reading a table's files, independent of the caller's session."""

_TASKS: Final = "spark.sql.files.minPartitionNum"
_OPENING: Final = 4 << 20
"""The cost of opening a file, in bytes, as in Spark."""
_LEAST: Final = 16 << 20
"""The minimum size of a task in bytes, as in Iceberg's own library."""


class ParquetReader:
    """A reader of files with its own settings, which hold whenever a DataFrame is evaluated.

    Spark uses the settings at evaluation time, from the session in which a file relation was made. So the relation is
    made in a copy of the caller's session with the settings above. A plan of the caller's own session contains it like
    any `BaseRelation`.

    PySpark has no API for this, so the JVM's objects are used.

    Args:
        sizes: sizes of the files in bytes, for a number of tasks as in Iceberg's own library.
    """

    def __init__(self, spark: SparkSession, sizes: Sequence[int]) -> None:
        self._spark = spark
        self._caller: Any = spark._jsparkSession  # noqa: SLF001 - see above
        self._session = self._caller.cloneSession()
        conf = self._session.conf()
        for name, value in _SETTINGS.items():
            conf.set(name, value)
        if conf.getOption(_TASKS).isEmpty():
            most = max(spark.sparkContext.defaultParallelism, int(conf.get("spark.sql.shuffle.partitions")))
            conf.set(_TASKS, str(max(1, min(most, sum(size + _OPENING for size in sizes) // _LEAST))))

    def rows(self, files: Iterable[tuple[str, int]], schema: StructType) -> DataFrame:
        """Return the rows of Parquet files.

        Spark gets the files as a log of files that a stream has written (`FileStreamSinkLog`). So Spark makes no
        request for each file, ignores patterns in names, caches the list, and takes columns as nullable as the schema
        says.

        Args:
            files: URI and size in bytes of each.
            schema: a schema with field ids, see `sfn.spark.files_schema`.
        """
        with TemporaryDirectory(prefix="sfn-") as folder:
            log = Path(folder) / "_spark_metadata" / "0"
            log.parent.mkdir()
            log.write_text("\n".join(["v1", *(_entry(uri, size) for uri, size in files)]))
            reader = self._session.read().schema(self._caller.parseDataType(schema.json()))
            # Without this option Spark would look for partitions in the paths.
            read = reader.option("recursiveFileLookup", "true").format("parquet").load(f"file:{folder}")
        return DataFrame(self._caller.baseRelationToDataFrame(read.queryExecution().analyzed().relation()), self._spark)


def _entry(uri: str, size: int) -> str:
    return json.dumps(
        {
            "path": uri,
            "size": size,
            "isDir": False,
            "modificationTime": 0,
            "blockReplication": 1,
            "blockSize": max(size, 1),
            "action": "add",
        }
    )


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file to read.

    Attributes:
        path: the path as manifests and position deletes spell it.
        size: bytes.
        sequence: the sequence number of the commit that added it: a delete applies only to rows that are not newer.
        records: the number of rows.
        constants: values of the file's partition, by field id, for columns that the file may lack.
    """

    path: str
    size: int
    sequence: int
    records: int
    constants: Mapping[int, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The files to read.

    Attributes:
        plain: data files without deleted rows.
        with_deletes: data files that may have deleted rows, as far as the manifests show.
        deletes: files of position deletes.
        vectors: deletion vectors by the path of a data file.
        listed_twice: a data file that is listed more than once; empty if there is none.
    """

    plain: Sequence[PlannedFile]
    with_deletes: Sequence[PlannedFile]
    deletes: Sequence[PlannedFile]
    vectors: Mapping[str, DeletionVector]
    listed_twice: str


def plan_read(
    entries: Iterable[ManifestEntry],
    vectors: Mapping[str, DeletionVector],
    specs: Mapping[int, PartitionSpec] | None = None,
) -> ReadPlan:
    """Return the plan for live files.

    Args:
        entries: manifest entries of data files and position deletes; entries of vectors are ignored.
        vectors: the deletion vectors.
        specs: the table's partition specs by id; None if it has no partitions.
    """
    data: dict[str, ManifestEntry] = {}
    deletes: dict[str, PlannedFile] = {}
    index, twice = DeleteFileIndex(), ""
    for entry in entries:
        file = entry.data_file
        if is_data_file(file):
            twice = file.file_path if file.file_path in data else twice
            data[file.file_path] = entry
        elif file.file_format is FileFormat.PARQUET:
            index.add_delete_file(entry, file.partition)
            deletes[file.file_path] = _to_planned_file(entry)
    plain: list[PlannedFile] = []
    touched: list[PlannedFile] = []
    needed: set[str] = set()
    for path, entry in data.items():
        one = _to_planned_file(entry, (specs or {}).get(entry.data_file.spec_id))
        found = index.for_data_file(one.sequence, entry.data_file, entry.data_file.partition)
        vector = vectors.get(path)
        is_touched = found or (vector is not None and vector.sequence >= one.sequence)
        (touched if is_touched else plain).append(one)
        needed.update(delete.file_path for delete in found)
    return ReadPlan(plain, touched, [deletes[path] for path in sorted(needed)], vectors, twice)


def _to_planned_file(entry: ManifestEntry, spec: PartitionSpec | None = None) -> PlannedFile:
    file = entry.data_file
    constants = {} if spec is None else _constants(file, spec)
    return PlannedFile(
        file.file_path, file.file_size_in_bytes, entry.sequence_number or 0, file.record_count, constants
    )


def _constants(file: DataFile, spec: PartitionSpec) -> dict[int, Any]:
    """Return the values of the identity partition columns that the file may lack.

    Only the size of a column in the file proves that the file has it: an import may set its counts or bounds from the
    partition alone.
    """
    found = {
        one.source_id: file.partition[number]
        for number, one in enumerate(spec.fields)
        if isinstance(one.transform, IdentityTransform)
    }
    sizes = file.column_sizes or {}
    return {number: value for number, value in found.items() if not sizes.get(number)}


_POSITIONS: Final = StructType(
    [
        StructField("file_path", StringType(), False, {FIELD_ID: 2147483546}),
        StructField("pos", LongType(), False, {FIELD_ID: 2147483545}),
    ]
)
"""Columns of a file of position deletes; the ids are Iceberg's."""
_BROADCAST: Final = 1_000_000
"""The number of deleted rows that each executor may hold in memory; for more, Spark decides."""
FILE_COLUMN: Final = f"{COLUMN_PREFIX}file"
"""The column with the URI of a row's file."""
_ROW_COLUMN: Final = f"{COLUMN_PREFIX}row"


def with_positions(rows: DataFrame) -> DataFrame:
    """Add each row's file and its position there to the rows of files."""
    metadata = rows.metadataColumn("_metadata")
    return rows.select("*", metadata["file_path"].alias(FILE_COLUMN), metadata["row_index"].alias(_ROW_COLUMN))


class DeletedRows:
    """The deleted rows of a plan.

    Args:
        uris: the URIs of all files of the plan, by path.
    """

    def __init__(self, spark: SparkSession, reader: ParquetReader, plan: ReadPlan, uris: Mapping[str, str]) -> None:
        self._spark, self._reader, self._plan, self._uris = spark, reader, plan, uris

    def remove_from(self, rows: DataFrame) -> DataFrame:
        """Return the rows of files, from `with_positions`, without the deleted ones."""
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
        """Return URI and position of each deleted row."""
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
        """Return the rows that files of position deletes name, if the delete is not older than the row."""
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


_FILE_OF_VALUES: Final = f"{COLUMN_PREFIX}of"


def fill_partition_values(
    spark: SparkSession,
    rows: DataFrame,
    files: Sequence[PlannedFile],
    fields: Sequence[NestedField],
    names: Mapping[int, str],
    uris: Mapping[str, str],
) -> DataFrame:
    """Replace NULL in the identity partition columns by the partition's value.

    A file that has the column has no NULL there, so the file of such a row lacks the column.

    Args:
        rows: rows from `with_positions`.
        files: the files of the rows.
        fields: the table's columns.
        names: the names by which the columns were read, by field id.
        uris: the URIs of the files, by path.
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
    for column, kind in zip(lacking, list(types)[1:], strict=True):
        cells = [to_scalar(file.constants.get(column.field_id), column.field_type) for file in files]
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


class FilesEngine:
    """The engine `files`.

    Its limits, compared with Iceberg's own library, are checked in `sfn.spark.files_pruning`.
    """

    name: Final = "files"

    def missing_requirement(self, spark: SparkSession) -> str:
        return "Spark Connect" if getattr(spark, "_jvm", None) is None else ""

    def read(self, spark: SparkSession, request: ReadRequest) -> DataFrame:
        if lacking := self.missing_requirement(spark):
            remedy = "use a classic session, or engine='sfn'"
            raise NotInstalled("Spark", expected="a session with its JVM", found=lacking, remedy=remedy)
        pinned = pin_table(request)
        where, found = pinned.found.metadata_location, pinned.found
        case_sensitive = spark.conf.get("spark.sql.caseSensitive") == "true"
        past = schema_history(pinned.metadata.schemas, pinned.metadata.last_column_id)
        files_pruning.check_schema(where, pinned.schema, past, case_sensitive=case_sensitive)
        plan = _plan_files(
            pinned, open_allowed_io(where, found.allowed_locations, found.file_system_options), request.row_filter
        )
        if not plan.plain and not plan.with_deletes:
            return spark.createDataFrame([], StructType([result_field(field) for field in pinned.schema.fields]))
        return _read_files(spark, pinned, plan, past)


def _plan_files(pinned: PinnedTable, io: FileIO, row_filter: str | None) -> ReadPlan:
    where = pinned.found.metadata_location
    entries: Sequence[ManifestEntry] = []
    if pinned.snapshot is not None:
        entries = files_pruning.list_live_files(io, pinned.snapshot, where)
    if row_filter is not None:
        entries = prune_files(entries, parse_filter(row_filter), pinned.schema)
    files_pruning.check_files(where, (entry.data_file for entry in entries))
    files_pruning.check_field_ids(io, files_pruning.files_to_check(entries, pinned.metadata), where)
    plan = plan_read(entries, read_deletion_vectors(io, entries, where), pinned.metadata.specs())
    _check_nested(plan, pinned.schema)
    required = {field.field_id: field.name for field in pinned.schema.fields if field.required}
    for file in (*plan.plain, *plan.with_deletes):
        for number in file.constants.keys() & required.keys():
            # Otherwise Spark would fail on a file without the column in the middle of a query.
            raise files_pruning.not_supported_error(
                file.path, f"a file that may lack the required column {required[number]!r}, a partition's"
            )
    if plan.listed_twice:
        raise files_pruning.not_supported_error(where, f"a file that is listed twice: {plan.listed_twice}")
    return plan


def _check_nested(plan: ReadPlan, schema: Schema) -> None:
    """Refuse files that may lack a partitioned field of a struct: `fill_partition_values` handles columns only.

    Raises:
        NotSupported: there is such a file.
    """
    top = {field.field_id for field in schema.fields}
    nested = {number: name for number, name in index_name_by_id(schema).items() if number not in top}
    for file in (*plan.plain, *plan.with_deletes):
        for number in file.constants.keys() & nested.keys():
            if file.constants[number] is not None:
                raise files_pruning.not_supported_error(
                    file.path, f"a file that may lack {nested[number]!r}, a field of a struct and a partition's"
                )


def _read_files(spark: SparkSession, pinned: PinnedTable, plan: ReadPlan, past: SchemaHistory) -> DataFrame:
    where, allowed_locations, hadoop_uris = (
        pinned.found.metadata_location,
        pinned.found.allowed_locations,
        HadoopUris(spark),
    )
    every = (*plan.plain, *plan.with_deletes, *plan.deletes)
    uris = {file.path: hadoop_uris.uri(check_file_location(file.path, allowed_locations, where)) for file in every}
    fields = pinned.schema.fields
    names = column_names(pinned.schema, past)
    schema = StructType([read_field(field, names[field.field_id]) for field in fields])
    reader = ParquetReader(spark, [file.size for file in every])

    deletes = DeletedRows(spark, reader, plan, uris)
    parts = []
    for files, is_touched in ((plan.plain, False), (plan.with_deletes, True)):
        for some, is_lacking in _group_by_lacking(files, {column.field_id for column in fields}):
            part = reader.rows([(uris[file.path], file.size) for file in some], schema)
            part = with_positions(part) if is_touched or is_lacking else part
            part = deletes.remove_from(part) if is_touched else part
            parts.append(fill_partition_values(spark, part, some, fields, names, uris) if is_lacking else part)
    first, *others = [output_columns(part, fields, names, past) for part in parts]
    for other in others:
        first = first.union(other)
    return first


def _group_by_lacking(
    files: Sequence[PlannedFile], columns: Collection[int]
) -> list[tuple[Sequence[PlannedFile], bool]]:
    """Return the files that have all columns, and the files that may lack one; empty groups are left out."""

    def is_lacking(file: PlannedFile) -> bool:
        # A column of a NULL partition is NULL anyway.
        return any(value is not None for number, value in file.constants.items() if number in columns)

    groups = (([file for file in files if is_lacking(file) is lacking], lacking) for lacking in (False, True))
    return [(some, lacking) for some, lacking in groups if some]


_VECTOR_KIND: Final = "deletion-vector-v1"
_VECTOR_MAGIC: Final = b"\xd1\xd3\x39\x64"


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The deleted rows of a data file.

    Attributes:
        positions: the positions of the rows, from 0.
        sequence: the sequence number of the commit that deleted them.
    """

    positions: BitMap64
    sequence: int


def read_deletion_vectors(io: FileIO, entries: Iterable[ManifestEntry], where: str) -> Mapping[str, DeletionVector]:
    """Return the deletion vectors by data file.

    PyIceberg does not reveal which vector of a Puffin file an entry refers to, so all vectors of a file with a live
    entry are used. This is correct, because a replaced vector has no row that its successor lacks.

    Args:
        where: the metadata file.

    Raises:
        Unreadable: Unsafe, Stale, NotPermitted, Unreachable or MalformedMetadata.
    """
    sequences: dict[str, int] = {}
    for entry in entries:
        file = entry.data_file
        if file.content is DataFileContent.POSITION_DELETES and file.file_format is FileFormat.PUFFIN:
            sequences[file.file_path] = max(entry.sequence_number or 0, sequences.get(file.file_path, 0))
    vectors: dict[str, DeletionVector] = {}
    try:
        for path, sequence in sequences.items():
            for data_file, positions in _in_file(io, path):
                known = vectors.get(data_file, DeletionVector(BitMap64(), 0))
                vectors[data_file] = DeletionVector(positions | known.positions, max(sequence, known.sequence))
    except (SfnError, MemoryError):
        raise
    except Exception as error:
        # PyIceberg and the drivers raise errors of any type.
        raise to_unreadable(where, error) from error
    return vectors


def _in_file(io: FileIO, path: str) -> Iterable[tuple[str, BitMap64]]:
    with io.new_input(path).open() as stream:
        puffin = PuffinFile(stream.read())
    for blob in puffin.footer.blobs:
        if blob.type == _VECTOR_KIND:
            yield blob.properties[PROPERTY_REFERENCED_DATA_FILE], decode_bitmap(puffin.get_blob_payload(blob))


def decode_bitmap(blob: bytes) -> BitMap64:
    """Decode a blob `deletion-vector-v1`: length, magic, a 64-bit Roaring bitmap in the portable format, CRC.

    Raises:
        ValueError: the blob is of another kind, or damaged.
    """
    length = int.from_bytes(blob[:4], "big")
    content, checksum = blob[4 : 4 + length], blob[4 + length : 8 + length]
    if content[:4] != _VECTOR_MAGIC or crc32(content) != int.from_bytes(checksum, "big"):
        raise ValueError("a deletion vector that is damaged")
    return BitMap64.deserialize(content[4:])
