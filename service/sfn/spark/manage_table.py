"""Turn a table that Spark has into an Iceberg table, by Iceberg's own procedures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from html import escape
from typing import Any, Final

from pyspark.sql import SparkSession

from sfn.spark.manage_target import (
    SPARK_ERRORS,
    HalfManaged,
    InvalidMappings,
    MappingField,
    PartitionMappings,
    SourceTable,
    TargetTable,
    Unmanageable,
    check_session,
    describe_source_table,
    error_summary,
    parse_partition_fields,
    table_exists,
    target_in_place,
    target_of_snapshot,
)

_NEEDLESS: Final = re.compile(r"(?<![^.])`([A-Za-z]\w*)`(?![^.])", re.ASCII)


@dataclass(frozen=True, slots=True)
class ManagedTable:
    """An Iceberg table that `manage` made.

    Attributes:
        table: the table's name, with its catalog.
        location: the table's directory; `sfn.spark.read` reads it there once the listener has published it.
        metadata_location: the current metadata file.
        data_files: the number of existing files that were taken over in place.
        partition_fields: the partitioning of new rows, as `column=transform`.
        backup: Spark's new name of the original table; None if that kept its name, or was dropped.
    """

    table: str
    location: str
    metadata_location: str
    data_files: int
    partition_fields: tuple[str, ...]
    backup: str | None = None

    def _repr_html_(self) -> str:
        """For a notebook."""
        rows = ((field.name.replace("_", " "), getattr(self, field.name)) for field in fields(self))
        lines = (f"<tr><th>{escape(name)}</th><td>{escape(_shown(value))}</td></tr>" for name, value in rows)
        return f"<table>{''.join(lines)}</table>"


def describe_managed_table(spark: SparkSession, name: str, data_files: int, backup: str | None) -> ManagedTable:
    """Return the present description of a table.

    Args:
        name: the table's name with its catalog, in Spark's SQL.
        data_files, backup: see `ManagedTable`.
    """
    # Use a plan: the JVM's table loader uses the JVM's active session, which may be another one.
    plan: Any = spark.table(name)._jdf.queryExecution().analyzed()  # noqa: SLF001 - there is no other way to it
    table = plan.collectLeaves().head().table().table()
    location = str(table.operations().current().metadataFileLocation())
    backup_name = None if backup is None else _plain(backup)
    return ManagedTable(_plain(name), str(table.location()), location, data_files, tuple(_fields(table)), backup_name)


def _plain(name: str) -> str:
    """Return a name without unnecessary backquotes."""
    return _NEEDLESS.sub(r"\1", name)


def _fields(table: Any) -> Iterator[str]:  # noqa: ANN401 - of the JVM
    schema = table.schema()
    for field in table.spec().fields():
        yield f"{schema.findColumnName(field.sourceId())}={field.transform().toString()}"


def _shown(value: object) -> str:
    return ", ".join(value) or "none" if isinstance(value, tuple) else "none" if value is None else str(value)


def manage(
    spark: SparkSession,
    table: str,
    partition_value_mappings: PartitionMappings = "",
    *,
    snapshot_as: str | None = None,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
    rewrite: bool = False,
    drop_backup: bool = False,
) -> ManagedTable:
    """Make an Iceberg table of a Spark table, from its existing files.

    The files stay unchanged and in place. New rows are partitioned by the mappings, in addition to the table's existing
    partitioning. Everything is checked before anything is changed. No other process may write to the table meanwhile.

    Args:
        spark: a session with Iceberg's runtime and its SQL extensions.
        table: a table of the session's own catalog, in Parquet, ORC or Avro.
        partition_value_mappings: `order_ts=days, customer_id=bucket[8]`, or a mapping from each column to one or
            several transforms: identity, truncate[W], bucket[N], year, month, day or hour.
        snapshot_as: the name of a new table, in any Iceberg catalog, that shares the files; the original is unchanged.
            None: convert in place; the session's own catalog must be Iceberg's, and the table an external one.
        location: the directory for the new table's own files.
        properties: properties of the Iceberg table.
        rewrite: rewrite the existing rows, partitioned by the mappings.
        drop_backup: at the end, drop the original table, which Spark has renamed; its files stay.

    Raises:
        Unmanageable: the table, a mapping or the session is not suitable; nothing was changed.
        HalfManaged: a later step failed; the message says what is done, and how to continue or go back.
        NotInstalled: Iceberg's runtime or its SQL extensions are missing.
        ValueError: arguments contradict each other, or `snapshot_as` is no name.
    """
    if snapshot_as is None and location is not None:
        raise ValueError("location needs snapshot_as: in place a table keeps its location")
    if snapshot_as is not None and drop_backup:
        raise ValueError("either snapshot_as or drop_backup, not both: with snapshot_as there is no backup")
    check_session(spark)
    found = describe_source_table(spark, table)
    if snapshot_as is None:
        target = target_in_place(spark, table, found)
    else:
        target = target_of_snapshot(spark, table, found, snapshot_as, location)
    try:
        added = parse_partition_fields(partition_value_mappings, found.columns, found.partitioned)
    except InvalidMappings as unfit:
        expected = "partition_value_mappings that fit its columns"
        raise Unmanageable(table, expected=expected, found=str(unfit), remedy="correct them all") from unfit
    files = _create_target(spark, target, properties or {})
    _check_files(target, found, files)
    finish_management(spark, target, added, rewrite=rewrite, drop_backup=drop_backup)
    return describe_managed_table(spark, target.name, files, None if drop_backup else target.backup)


def _create_target(spark: SparkSession, target: TargetTable, properties: Mapping[str, str]) -> int:
    """Run Iceberg's procedure, and return the number of files that it took over.

    Raises:
        Unmanageable: the procedure failed, and nothing was changed.
        HalfManaged: the procedure failed, and the state is not known.
    """
    try:
        (row,) = spark.sql(target.create_statement(properties)).collect()
    except SPARK_ERRORS as error:
        expected = f"Iceberg's {target.procedure} to take it over"
        if target.backup is None or not table_exists(spark, target.backup):
            remedy = "nothing was changed: fix that, and try again"
            raise Unmanageable(
                target.source_name, expected=expected, found=error_summary(error), remedy=remedy
            ) from error
        remedy = f"check the catalog; to go back: {target.undo}"
        found = f"{error_summary(error)}, and Spark has it as {target.backup}"
        raise HalfManaged(target.source_name, expected=expected, found=found, remedy=remedy) from error
    return int(row[0])


def _check_files(target: TargetTable, found: SourceTable, files: int) -> None:
    """Refuse to continue if Iceberg sees other files than Spark, such as those in subfolders.

    Raises:
        HalfManaged: rows are missing.
    """
    if files != found.files:
        expected = f"all {found.files} files that Spark reads taken over"
        at_hand = f"{files}, now in {target.name}: Iceberg ignores folders within {found.location}"
        remedy = f"go back: {target.undo}; then move the files there, or make their folders partitions"
        raise HalfManaged(target.source_name, expected=expected, found=at_hand, remedy=remedy)


def finish_management(
    spark: SparkSession, target: TargetTable, added: Sequence[MappingField], *, rewrite: bool, drop_backup: bool
) -> None:
    """Add the partition fields, and do the other steps after Iceberg's procedure.

    Raises:
        HalfManaged: a step failed.
    """
    steps = [target.add_field_statement(field) for field in added]
    if rewrite:
        steps.append(target.rewrite_statement)
    if drop_backup:
        steps.append(f"DROP TABLE {target.backup}")
    for number, step in enumerate(steps):
        with _map_half_managed(target, steps[number:]):
            spark.sql(step).collect()


@contextmanager
def _map_half_managed(target: TargetTable, left: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except SPARK_ERRORS as error:
        raise HalfManaged(
            target.source_name,
            expected=f"success of {left[0]}",
            found=f"{error_summary(error)}; {target.name} is an Iceberg table now, with all rows",
            remedy=f"run {', '.join(left)}; or go back: {target.undo}",
        ) from error
