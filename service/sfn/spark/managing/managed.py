"""What a table is once it is under management."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from html import escape
from typing import Any, Final

from pyspark.sql import SparkSession

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
