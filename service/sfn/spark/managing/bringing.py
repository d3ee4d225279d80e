"""Brings a table that Spark has under Iceberg's management."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from sfn.spark.managing.existing import Existing, existing, exists
from sfn.spark.managing.managed import Managed, managed
from sfn.spark.managing.mapping import Field, Told, Unfit, fields
from sfn.spark.managing.refusals import FOREIGN, HalfManaged, Unmanageable, told
from sfn.spark.managing.surroundings import check_session
from sfn.spark.managing.target import Target, in_place, snapshot


def manage(
    spark: SparkSession,
    table: str,
    partition_value_mappings: Told = "",
    *,
    snapshot_as: str | None = None,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
    rewrite: bool = False,
    drop_backup: bool = False,
) -> Managed:
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
    found = existing(spark, table)
    if snapshot_as is None:
        target = in_place(spark, table, found)
    else:
        target = snapshot(spark, table, found, snapshot_as, location)
    try:
        added = fields(partition_value_mappings, found.columns, found.partitioned)
    except Unfit as unfit:
        expected = "partition_value_mappings that fit its columns"
        raise Unmanageable(table, expected=expected, found=str(unfit), remedy="correct them all") from unfit
    files = _made(spark, target, properties or {})
    _check_files(target, found, files)
    finish(spark, target, added, rewrite=rewrite, drop_backup=drop_backup)
    return managed(spark, target.name, files, None if drop_backup else target.backup)


def _made(spark: SparkSession, target: Target, properties: Mapping[str, str]) -> int:
    """Have Iceberg make it; from how many files.

    Raises:
        Unmanageable: it did not, and all is as it was.
        HalfManaged: it did not, and that is not known.
    """
    try:
        (row,) = spark.sql(target.making(properties)).collect()
    except FOREIGN as error:
        expected = f"Iceberg's {target.procedure} to take it over"
        if target.backup is None or not exists(spark, target.backup):
            remedy = "it is as it was: see to that, then again"
            raise Unmanageable(target.asked, expected=expected, found=told(error), remedy=remedy) from error
        remedy = f"look into the catalog; to go back: {target.back}"
        found = f"{told(error)}, and Spark has it as {target.backup}"
        raise HalfManaged(target.asked, expected=expected, found=found, remedy=remedy) from error
    return int(row[0])


def _check_files(target: Target, found: Existing, files: int) -> None:
    """Refuse to go on where Iceberg sees other files than Spark, such as those of folders within.

    Raises:
        HalfManaged: rows are missing.
    """
    if files != found.files:
        expected = f"the {found.files} files that Spark reads of it taken over"
        at_hand = f"{files}, and {target.name} made of them: Iceberg does not look into folders within {found.location}"
        remedy = f"go back: {target.back}; then move the files there, or make their folders partitions"
        raise HalfManaged(target.asked, expected=expected, found=at_hand, remedy=remedy)


def finish(spark: SparkSession, target: Target, added: Sequence[Field], *, rewrite: bool, drop_backup: bool) -> None:
    """Do what Iceberg's procedure does not.

    Raises:
        HalfManaged: not all of it could be done.
    """
    steps = [target.adding(field) for field in added]
    if rewrite:
        steps.append(target.rewriting)
    if drop_backup:
        steps.append(f"DROP TABLE {target.backup}")
    for number, step in enumerate(steps):
        with _half(target, steps[number:]):
            spark.sql(step).collect()


@contextmanager
def _half(target: Target, left: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except FOREIGN as error:
        raise HalfManaged(
            target.asked,
            expected=f"to get {left[0]} done",
            found=f"{told(error)}; {target.name} is Iceberg's by now, with all rows",
            remedy=f"run {', '.join(left)}; or go back: {target.back}",
        ) from error
