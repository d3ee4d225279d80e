"""What a table may have that this engine can't read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema, index_by_id

from sfn.errors import NotSupported
from sfn.reader.data_file import describe_file
from sfn.spark.files.history import SchemaHistory
from sfn.spark.files.manifests import is_data_file
from sfn.spark.files.nested import ColumnScope, column_scope
from sfn.spark.files.schema import first_unmappable_type


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
