"""Read a table by its directory, with the first engine that can."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession

from sfn.errors import NotInstalled, NotSupported, suggest_name
from sfn.reader.api import Time
from sfn.reader.predicate import parse_filter
from sfn.spark.engine_files import FilesEngine
from sfn.spark.engine_iceberg import IcebergEngine
from sfn.spark.engine_sfn import SfnEngine
from sfn.spark.request import Engine, ReadRequest, make_read_request
from sfn.spark.row_filter import apply_filter

AUTO: Final = "auto"

ENGINES: Final[tuple[Engine, ...]] = (IcebergEngine(), FilesEngine(), SfnEngine())
"""The engines in the order in which `auto` tries them."""


def read(
    spark: SparkSession,
    directory: str | os.PathLike[str],
    table: str | Sequence[str] | None = None,
    ref: str | None = None,
    as_of: Time | None = None,
    engine: str = AUTO,
    *,
    row_filter: str | None = None,
    uuid: str | UUID | None = None,
    allowed: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Return the rows of the table in a directory.

    The table's state is fixed now: the DataFrame shows the same rows however often it is read.

    Args:
        spark: the session.
        directory: the table's location: a path, or a URL that both fsspec and Spark have a driver for.
        table: the table's identifier; needed if several tables share the directory.
        ref: a branch or tag; default: `main`.
        as_of: another state: a snapshot's id (int), a time (aware datetime, or ISO 8601 text with a time zone), an
            Ordinal (`YYYYMMDDTHHMMSSmmm`, UTC), an entry of `sfn.history`, or a branch or tag.
        engine: `iceberg`, `files`, `sfn`, or `auto`: the first of them that can.
        row_filter: the condition for the rows, as PyIceberg's `Table.scan` takes it. The engine `files` then opens no
            file that column statistics rule out; it does not see conditions in `where`.
        uuid: the table's uuid, instead of its identifier or with it.
        allowed: prefixes below which files may lead, besides the directory; see `sfn.resolve`.
        storage_options: options for fsspec's driver, for SFN files and metadata. Spark reads data with its own.

    Raises:
        NotSupported: the engine can't read the table; the remedy names one that can.
        NotInstalled: PySpark, pandas or Iceberg's runtime is missing, or has the wrong version.
        Unreadable: see `sfn.errors` for its other kinds.
        ValueError: an argument is not valid; for `as_of` the error is a TypeError, too.
    """
    which = None if row_filter is None else parse_filter(row_filter)
    request = make_read_request(
        directory, table, uuid, ref, as_of, allowed=allowed, storage_options=storage_options, row_filter=row_filter
    )
    rows = _read_with_engine(spark, request, engine)
    return rows if which is None else apply_filter(rows, which)


def _read_with_engine(spark: SparkSession, request: ReadRequest, engine: str) -> DataFrame:
    if engine != AUTO:
        return _engine_named(engine).read(spark, request)
    refusals: list[str] = []
    for one in ENGINES:
        if lacking := one.missing_requirement(spark):
            refusals.append(f"{one.name}: {lacking}")
            continue
        try:
            return one.read(spark, request)
        except (NotSupported, NotInstalled) as refusal:
            refusals.append(f"{one.name}: {refusal.found}")
    raise NotSupported(
        request.directory, expected="a table that one of the engines can read", found="; ".join(refusals)
    )


def _engine_named(name: str) -> Engine:
    for engine in ENGINES:
        if engine.name == name:
            return engine
    known = [AUTO, *(engine.name for engine in ENGINES)]
    raise ValueError(f"an engine, one of {', '.join(known)}: {name!r}; {suggest_name(name, known)}")
