"""Choose the files for the engine `files`, and refuse tables that it can't read.

Spark compares the rows themselves. So a file is ruled out only by conditions that PyIceberg and Spark understand alike:
PyIceberg fits a literal to its column's type, by rounding if need be, and ignores NULL in structs and NaN in bounds.
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

_WIDTH: Final = 16
"""The number of manifests or footers that are read at a time."""


def is_data_file(file: DataFile) -> bool:
    """Return whether a file holds rows; files of version 1, which had no deletes, have no content field."""
    return file.content not in {DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES}


def list_live_files(io: FileIO, snapshot: Snapshot, where: str) -> list[ManifestEntry]:
    """Return all data files and delete files of a snapshot.

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
            # Starting a thread takes half as long as reading a manifest.
            return entries(manifests[0])
        with ThreadPoolExecutor(_WIDTH) as pool:
            return [entry for each in pool.map(entries, manifests) for entry in each]
    except (SfnError, MemoryError):
        raise
    except Exception as error:
        # PyIceberg and the drivers raise errors of any type.
        raise to_unreadable(where, error) from error


_SAME: Final[dict[type[IcebergType], type]] = {StringType: str, BooleanType: bool}
_INTEGERS: Final[dict[type[IcebergType], int]] = {IntegerType: 1 << 31, LongType: 1 << 63}


def prune_files(entries: Sequence[ManifestEntry], which: BooleanExpression, schema: Schema) -> list[ManifestEntry]:
    """Return the files that may have matching rows, and all delete files.

    Raises:
        ValueError: the filter names a column that does not exist.
    """
    sure = visit(rewrite_not(which), _PruningFilter(schema))
    # PyIceberg's public scans use this evaluator too, but do not return files and deletes separately.
    evaluator = _InclusiveMetricsEvaluator(schema, sure, case_sensitive=True)
    return [one for one in entries if not is_data_file(one.data_file) or evaluator.eval(one.data_file)]


class _PruningFilter(BooleanExpressionVisitor[BooleanExpression]):
    """A visitor that replaces conditions that can't rule a file out by true; filters here have no `not`."""

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
    """Return whether PyIceberg and Spark compare a literal with a column of this type alike."""
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


def not_supported_error(where: str, found: str) -> NotSupported:
    """Return the error for a table that the engine can't read.

    Args:
        where: the metadata file, or the file that can't be read.
        found: the unsupported feature.
    """
    return NotSupported(
        where,
        expected="a table that the engine `files` can read",
        found=found,
        remedy="engine='iceberg' reads what Iceberg's own library can",
    )


def check_schema(where: str, schema: Schema, past: SchemaHistory, *, case_sensitive: bool) -> None:
    """Refuse columns that can't be read correctly.

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
        # In the rows that Spark reads, a missing column looks like one with NULL.
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
        return f"a file that Spark silently ignores, by its name or its size: {file.file_path}"
    if is_data_file(file):
        return "" if file.file_format is FileFormat.PARQUET else describe_file("data", file)
    if file.content is DataFileContent.EQUALITY_DELETES:
        return "equality deletes"
    known = (FileFormat.PARQUET, FileFormat.PUFFIN)
    return "" if file.file_format in known else describe_file("position deletes", file)


def _is_hidden(file: DataFile) -> bool:
    """Return whether Spark ignores a file, because it does not look like a data file (`PartitioningAwareFileIndex`)."""
    name = file.file_path.rpartition("/")[2]
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or file.file_size_in_bytes <= 0


_MOST: Final = 1_000
"""The maximum number of footers that are read for a table."""
_FIELD_ID: Final = b"PARQUET:field_id"


def files_to_check(entries: Iterable[ManifestEntry], whole: TableMetadata) -> list[str]:
    """Return the data files that may lack field ids.

    A table with a name mapping may have imported files without ids. One commit may add both kinds of files, so each
    file has to be checked.
    """
    if TableProperties.DEFAULT_NAME_MAPPING not in whole.properties:
        return []
    return [entry.data_file.file_path for entry in entries if is_data_file(entry.data_file)]


def check_field_ids(io: FileIO, files: Sequence[str], where: str) -> None:
    """Refuse a table with files that lack field ids.

    Args:
        files: the files from `files_to_check`.
        where: the metadata file.

    Raises:
        NotSupported: there is such a file, or there are too many files to check.
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
        # PyArrow and the drivers raise errors of any type.
        raise to_unreadable(where, error) from error
    for path, is_found in zip(files, found, strict=True):
        if not is_found:
            raise not_supported_error(path, "a file without field ids, which a name mapping is for")


_DRIVERS: Final = {"s3": ("s3", "s3a"), "gs": ("gs",), "abfss": ("abfss", "abfs")}
"""Names under which Hadoop may have a driver for a scheme, in the order of preference."""
_REMEDIES: Final = {
    "s3": "start Spark with org.apache.hadoop:hadoop-aws of its own Hadoop's version",
    "gs": "start Spark with com.google.cloud.bigdataoss:gcs-connector",
    "abfss": "start Spark with org.apache.hadoop:hadoop-azure of its own Hadoop's version",
}
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/:=+,-]*")
"""Characters with the same spelling in a path and in a URI."""


def check_file_location(path: str, allowed_locations: AllowedLocations, where: str) -> str:
    """Return the canonical location of a data or delete file, if Hadoop opens it unchanged.

    Args:
        path: the location in the metadata.
        allowed_locations: the places that are allowed.
        where: the metadata file.

    Raises:
        Unsafe: the location is not allowed.
        NotSupported: Hadoop would open another file, because it drops empty segments of a name.
    """
    place = allowed_locations.check_file(path, where)
    if scheme_of(place) != "file" and "//" in place.partition("://")[2]:
        raise not_supported_error(where, f"a file with an empty segment in its name, which Hadoop leaves out: {path}")
    return place


class HadoopUris:
    """A conversion of canonical locations to the URIs with which the session opens them.

    A percent sign in a location stands for itself, as in Iceberg. Each URI is spelled as in `_metadata.file_path`,
    because deleted rows are found by it. Hadoop itself, which is slow, converts only locations with special characters.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        # Every Hadoop has a driver for local files; each call to the JVM takes half a millisecond.
        self._schemes = {"file": "file"}

    @cached_property
    def _hadoop(self) -> Any:  # noqa: ANN401 - PySpark has no name of its own for what follows
        jvm: Any = self._spark._jvm  # noqa: SLF001 - as above
        return jvm.org.apache.hadoop.fs

    def uri(self, place: str) -> str:
        """Return the URI of a canonical location.

        Raises:
            NotInstalled: the session has no driver for its scheme.
        """
        scheme = scheme_of(place)
        if scheme not in self._schemes:
            self._schemes[scheme] = self._driver(scheme, place)
        rest = place.removeprefix(f"{scheme}:")
        # Hadoop drops an empty host.
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
