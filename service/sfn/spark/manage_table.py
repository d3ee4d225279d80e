"""Bringing a table that Spark has under Iceberg's management, by Iceberg's own procedures."""

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

# ── managed: What a table is once it is under management

_NEEDLESS: Final = re.compile(r"(?<![^.])`([A-Za-z]\w*)`(?![^.])", re.ASCII)


@dataclass(frozen=True, slots=True)
class ManagedTable:
    """A table under Iceberg's management.

    Attributes:
        table: its name, with its catalog.
        location: its directory: `sfn.spark.read` reads it there once the service has published it.
        metadata_location: its current metadata file.
        data_files: how many were there and were taken over, where they lie.
        partition_fields: what is written from now on is partitioned so, `column=transform`.
        backup: what Spark calls the table of before; None where that kept its name, or was dropped.
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
    """The table of a name, as it is now.

    Args:
        name: with its catalog, in Spark's SQL.
        data_files, backup: as of `ManagedTable`.
    """
    # By way of a plan: the JVM's loader asks the session that is active there, which may be another one.
    plan: Any = spark.table(name)._jdf.queryExecution().analyzed()  # noqa: SLF001 - there is no other way to it
    table = plan.collectLeaves().head().table().table()
    location = str(table.operations().current().metadataFileLocation())
    backup_name = None if backup is None else _plain(backup)
    return ManagedTable(_plain(name), str(table.location()), location, data_files, tuple(_fields(table)), backup_name)


def _plain(name: str) -> str:
    """A name without the backquotes that it can do without."""
    return _NEEDLESS.sub(r"\1", name)


def _fields(table: Any) -> Iterator[str]:  # noqa: ANN401 - of the JVM
    schema = table.schema()
    for field in table.spec().fields():
        yield f"{schema.findColumnName(field.sourceId())}={field.transform().toString()}"


def _shown(value: object) -> str:
    return ", ".join(value) or "none" if isinstance(value, tuple) else "none" if value is None else str(value)


# ── bringing: Brings a table that Spark has under Iceberg's management


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
    """Make a table of Iceberg's of one of Spark's, from the files that it has.

    These stay where and as they are. What is written from then on is partitioned by the mappings, beside what the table
    was partitioned by. All is checked before anything is changed. Nobody may write to the table meanwhile.

    Args:
        spark: a session with Iceberg's runtime and its extensions of SQL.
        table: of the session's own catalog, in Parquet, ORC or Avro.
        partition_value_mappings: `order_ts=days, customer_id=bucket[8]`, or of each column one or several, as a
            mapping. What of a column's value is to make partitions: identity, truncate[W], bucket[N], year, month, day
            or hour.
        snapshot_as: leave the table alone and make another one of its files, of this name, in any catalog of Iceberg's;
            None: in place, for which the session's own catalog is Iceberg's and the table an external one.
        location: where the snapshot writes what is new.
        properties: of the table of Iceberg's.
        rewrite: write the rows that are there anew, partitioned by the mappings.
        drop_backup: once all is done drop what Spark calls the table of before; its files stay.

    Raises:
        Unmanageable: the table, a mapping or the session does not do; all is as it was.
        HalfManaged: a later step failed: what is done, and how to go on or back.
        NotInstalled: Iceberg's runtime or its extensions of SQL are missing.
        ValueError: arguments contradict each other, or `snapshot_as` is no name.
    """
    if snapshot_as is None and location is not None:
        raise ValueError("location is that of snapshot_as: in place a table stays where it is")
    if snapshot_as is not None and drop_backup:
        raise ValueError("either snapshot_as or drop_backup, not both: a snapshot takes no table's name")
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
    """Have Iceberg make it; from how many files.

    Raises:
        Unmanageable: it did not, and all is as it was.
        HalfManaged: it did not, and that is not known.
    """
    try:
        (row,) = spark.sql(target.create_statement(properties)).collect()
    except SPARK_ERRORS as error:
        expected = f"Iceberg's {target.procedure} to take it over"
        if target.backup is None or not table_exists(spark, target.backup):
            remedy = "it is as it was: see to that, then again"
            raise Unmanageable(
                target.source_name, expected=expected, found=error_summary(error), remedy=remedy
            ) from error
        remedy = f"look into the catalog; to go back: {target.undo}"
        found = f"{error_summary(error)}, and Spark has it as {target.backup}"
        raise HalfManaged(target.source_name, expected=expected, found=found, remedy=remedy) from error
    return int(row[0])


def _check_files(target: TargetTable, found: SourceTable, files: int) -> None:
    """Refuse to go on where Iceberg sees other files than Spark, such as those of folders within.

    Raises:
        HalfManaged: rows are missing.
    """
    if files != found.files:
        expected = f"the {found.files} files that Spark reads of it taken over"
        at_hand = f"{files}, and {target.name} made of them: Iceberg does not look into folders within {found.location}"
        remedy = f"go back: {target.undo}; then move the files there, or make their folders partitions"
        raise HalfManaged(target.source_name, expected=expected, found=at_hand, remedy=remedy)


def finish_management(
    spark: SparkSession, target: TargetTable, added: Sequence[MappingField], *, rewrite: bool, drop_backup: bool
) -> None:
    """Do what Iceberg's procedure does not.

    Raises:
        HalfManaged: not all of it could be done.
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
            expected=f"to get {left[0]} done",
            found=f"{error_summary(error)}; {target.name} is Iceberg's by now, with all rows",
            remedy=f"run {', '.join(left)}; or go back: {target.undo}",
        ) from error
