"""Which files have none of the rows that are asked for, as the statistics of their columns say.

The rows themselves are compared by Spark. So only what both take for the same rules a file out: PyIceberg makes a
literal fit its column's type, by rounding if need be, and knows no nulls in a struct and no NaN among bounds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import cached_property
from typing import Any, Final

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    IsNull,
    LiteralPredicate,
    NotNull,
    Or,
    Reference,
    SetPredicate,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, _InclusiveMetricsEvaluator, rewrite_not, visit
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import BooleanType, DateType, IcebergType, IntegerType, LongType, StringType
from pyspark.sql import SparkSession
from typing_extensions import override

from sfn.errors import NotInstalled, NotSupported, SfnError
from sfn.reader.data_file import describe_file
from sfn.reader.metadata import AllowedLocations
from sfn.reader.table import to_unreadable
from sfn.sfnfile.locations import scheme_of
from sfn.spark.files_schema import ColumnScope, SchemaHistory, column_scope, first_unmappable_type

# ── manifests: The live files of a snapshot

_WIDTH: Final = 16
"""Manifests that are read at a time."""


def is_data_file(file: DataFile) -> bool:
    """Whether it holds rows; files of version 1, which had no deletes, tell no content."""
    return file.content not in {DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES}


def list_live_files(io: FileIO, snapshot: Snapshot, where: str) -> list[ManifestEntry]:
    """All of its data files and delete files.

    Args:
        where: the metadata file.

    Raises:
        Unreadable: Unsafe, Stale, NotPermitted, Unreachable or MalformedMetadata.
    """

    def entries(manifest: ManifestFile) -> list[ManifestEntry]:
        return manifest.fetch_manifest_entry(io)

    try:
        manifests = list(read_manifest_list(io.new_input(snapshot.manifest_list)))
        if len(manifests) == 1:
            # To start a thread takes half as long as to read it.
            return entries(manifests[0])
        with ThreadPoolExecutor(_WIDTH) as pool:
            return [entry for each in pool.map(entries, manifests) for entry in each]
    except (SfnError, MemoryError):
        raise
    except Exception as error:
        # PyIceberg and the drivers let through whatever they stumble over.
        raise to_unreadable(where, error) from error


# ── pruning: Which files have none of the rows that are asked for

_SAME: Final[dict[type[IcebergType], type]] = {StringType: str, BooleanType: bool}
_INTEGERS: Final[dict[type[IcebergType], int]] = {IntegerType: 1 << 31, LongType: 1 << 63}


def prune_files(entries: Sequence[ManifestEntry], which: BooleanExpression, schema: Schema) -> list[ManifestEntry]:
    """The files that may have such rows, and all delete files.

    Raises:
        ValueError: the filter names a column that there is not.
    """
    sure = visit(rewrite_not(which), _PruningFilter(schema))
    # PyIceberg's public scans plan with it too, but can't be asked for files and deletes by themselves.
    evaluator = _InclusiveMetricsEvaluator(schema, sure, case_sensitive=True)
    return [one for one in entries if not is_data_file(one.data_file) or evaluator.eval(one.data_file)]


class _PruningFilter(BooleanExpressionVisitor[BooleanExpression]):
    """A filter, with what can't rule a file out left to be true; it has no `not`."""

    def __init__(self, schema: Schema) -> None:
        self._types = {field.name: field.field_type for field in schema.fields}
        self._schema = schema

    @override
    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    @override
    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    @override
    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        return AlwaysTrue()

    @override
    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return And(left_result, right_result)

    @override
    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return Or(left_result, right_result)

    @override
    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        name = predicate.term.name if isinstance(predicate.term, Reference) else ""
        kind = self._types.get(name)
        if kind is None:
            self._check(name)
            return AlwaysTrue()
        match predicate:
            case IsNull() | NotNull():
                is_sure = True
            case LiteralPredicate():
                is_sure = _fits(predicate.literal.value, kind)
            case SetPredicate():
                is_sure = all(_fits(literal.value, kind) for literal in predicate.literals)
            case _:
                is_sure = False
        return predicate if is_sure else AlwaysTrue()

    @override
    def visit_bound_predicate(self, predicate: Any) -> BooleanExpression:
        return AlwaysTrue()

    def _check(self, name: str) -> None:
        try:
            self._schema.find_field(name)
        except ValueError as error:
            raise ValueError(f"a row_filter that fits the table's columns: {error}") from error


def _fits(value: Any, kind: IcebergType) -> bool:  # noqa: ANN401 - a literal of any type
    """Whether a literal is the same value to PyIceberg and to Spark, once it is compared to a column of a type."""
    if type(kind) in _INTEGERS:
        return type(value) is int and -_INTEGERS[type(kind)] <= value < _INTEGERS[type(kind)]
    if isinstance(kind, DateType):
        return isinstance(value, str) and _is_day(value)
    same = _SAME.get(type(kind))
    return same is not None and isinstance(value, same)


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


# ── features: What a table may have that this engine can't read


def not_supported_error(where: str, found: str) -> NotSupported:
    """The refusal of a table.

    Args:
        where: its metadata file, or the file of its that is meant.
        found: what it has.
    """
    return NotSupported(
        where,
        expected="a table that the engine `files` can read",
        found=found,
        remedy="engine='iceberg' reads what Iceberg's own library can",
    )


def check_schema(where: str, schema: Schema, past: SchemaHistory, *, case_sensitive: bool) -> None:
    """Refuse columns that can't be read right.

    Raises:
        NotSupported: there is one.
    """
    for field in schema.fields:
        if kind := first_unmappable_type(field.field_type):
            raise not_supported_error(where, f"{kind}, of column {field.name!r}")
        if column_scope(field, past) is ColumnScope.NOTHING:
            raise not_supported_error(
                where, f"files that may have nothing of a part of column {field.name!r}, which was added"
            )
    for field in index_by_id(schema).values():
        # Files that lack the column can't be told from those with a null in it, once they are read.
        if field.initial_default is not None:
            raise not_supported_error(where, f"an initial default, of column {field.name!r}")
    if not case_sensitive:
        counted = Counter(name.lower() for name in schema.column_names)
        if alike := [name for name, times in counted.items() if times > 1]:
            raise not_supported_error(where, f"columns that differ in case alone: {alike[0]!r}")


def check_files(where: str, files: Iterable[DataFile]) -> None:
    """Refuse files that Spark's Parquet reader, or PyIceberg, can't read.

    Raises:
        NotSupported: there is one.
    """
    for file in files:
        if found := _unsupported_property(file):
            raise not_supported_error(where, found)


def _unsupported_property(file: DataFile) -> str:
    if file.key_metadata is not None:
        return "an encrypted file"
    if file.file_format is not FileFormat.PUFFIN and _is_hidden(file):
        return f"a file that Spark passes over in silence, by its name or its size: {file.file_path}"
    if is_data_file(file):
        return "" if file.file_format is FileFormat.PARQUET else describe_file("data", file)
    if file.content is DataFileContent.EQUALITY_DELETES:
        return "equality deletes"
    known = (FileFormat.PARQUET, FileFormat.PUFFIN)
    return "" if file.file_format in known else describe_file("position deletes", file)


def _is_hidden(file: DataFile) -> bool:
    """Whether Spark takes a file for none of data (`PartitioningAwareFileIndex`)."""
    name = file.file_path.rpartition("/")[2]
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or file.file_size_in_bytes <= 0


# ── footers: Whether data files have the ids that columns are found by

_MOST: Final = 1_000
"""Footers that are read of a table."""
_FIELD_ID: Final = b"PARQUET:field_id"


def files_to_check(entries: Iterable[ManifestEntry], whole: TableMetadata) -> list[str]:
    """Return the data files whose footers are to be checked.

    A table with a name mapping may have files without ids, which were imported. Its other files may be of the same
    commit, so none stands for another.
    """
    if TableProperties.DEFAULT_NAME_MAPPING not in whole.properties:
        return []
    return [entry.data_file.file_path for entry in entries if is_data_file(entry.data_file)]


def check_field_ids(io: FileIO, files: Sequence[str], where: str) -> None:
    """Refuse a table with files that lack ids.

    Args:
        files: as of `in_doubt`.
        where: the metadata file.

    Raises:
        NotSupported: there is one, or there are too many to check.
        Unreadable: Unsafe, Stale, NotPermitted, Unreachable or MalformedMetadata.
    """
    if not files:
        return
    if len(files) > _MOST:
        raise not_supported_error(where, f"a name mapping, and more than {_MOST:,} files")

    def has_ids(path: str) -> bool:
        with io.new_input(path).open() as stream:
            return any(field.metadata and _FIELD_ID in field.metadata for field in pq.read_schema(stream))

    try:
        with ThreadPoolExecutor(_WIDTH) as pool:
            found = list(pool.map(has_ids, files))
    except (SfnError, MemoryError):
        raise
    except Exception as error:
        # PyArrow and the drivers let through whatever they stumble over.
        raise to_unreadable(where, error) from error
    for path, is_found in zip(files, found, strict=True):
        if not is_found:
            raise not_supported_error(path, "a file without field ids, which a name mapping is for")


# ── spelling: Locations as Spark opens them

_DRIVERS: Final = {"s3": ("s3", "s3a"), "gs": ("gs",), "abfss": ("abfss", "abfs")}
"""What Hadoop may have a driver registered as for a scheme, the first one first."""
_REMEDIES: Final = {
    "s3": "start Spark with org.apache.hadoop:hadoop-aws of its own Hadoop's version",
    "gs": "start Spark with com.google.cloud.bigdataoss:gcs-connector",
    "abfss": "start Spark with org.apache.hadoop:hadoop-azure of its own Hadoop's version",
}
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/:=+,-]*")
"""Spelled alike in a path and in a URI."""


def check_file_location(path: str, allowed_locations: AllowedLocations, where: str) -> str:
    """Return the canonical location of a data or delete file, which Hadoop opens as it is.

    Args:
        path: as metadata names it.
        allowed_locations: where it may lie.
        where: the metadata file.

    Raises:
        Unsafe: it lies where a reader is not led.
        NotSupported: Hadoop would open another file: it leaves out the empty segments of a name.
    """
    place = allowed_locations.check_file(path, where)
    if scheme_of(place) != "file" and "//" in place.partition("://")[2]:
        raise not_supported_error(where, f"a file with an empty segment in its name, which Hadoop leaves out: {path}")
    return place


class HadoopUris:
    """How the session opens canonical locations.

    Percent signs of a location stand for themselves, as Iceberg has it. Each URI is spelled as `_metadata.file_path`
    has it, or deleted rows would not be found: by Hadoop itself, which is slow, where that is not plain.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        # Every Hadoop has a driver for this machine's files; each question to the JVM takes half a millisecond.
        self._schemes = {"file": "file"}

    @cached_property
    def _hadoop(self) -> Any:  # noqa: ANN401 - PySpark has no name of its own for what follows
        jvm: Any = self._spark._jvm  # noqa: SLF001 - as above
        return jvm.org.apache.hadoop.fs

    def uri(self, place: str) -> str:
        """The URI of a canonical location.

        Raises:
            NotInstalled: the session has no driver for its scheme.
        """
        scheme = scheme_of(place)
        if scheme not in self._schemes:
            self._schemes[scheme] = self._driver(scheme, place)
        rest = place.removeprefix(f"{scheme}:")
        # Hadoop leaves out a host that is empty.
        path = f"{self._schemes[scheme]}:{rest.removeprefix('//') if scheme == 'file' else rest}"
        return path if _PLAIN.fullmatch(path) else str(self._hadoop.Path(path).toUri().toString())

    def _driver(self, scheme: str, place: str) -> str:
        names = _DRIVERS.get(scheme, (scheme,))
        conf = self._spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as above
        for name in names:
            try:
                self._hadoop.FileSystem.getFileSystemClass(name, conf)
            except Py4JJavaError:
                continue
            return name
        raise NotInstalled(
            place,
            expected=f"that Spark has a driver for {' or '.join(f'{name}:' for name in names)}",
            found="none",
            remedy=_REMEDIES.get(scheme, ""),
        )
