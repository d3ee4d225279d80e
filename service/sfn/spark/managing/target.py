"""The table of Iceberg's that is to be, and the statements that make it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from sfn.sfnfile.locations import canonical, is_below
from sfn.spark.managing.existing import SESSION_CATALOG, SourceTable, table_exists
from sfn.spark.managing.mapping import MappingField, quote_name
from sfn.spark.managing.refusals import Unmanageable, map_unmanageable
from sfn.spark.managing.surroundings import check_catalog, check_in_place

_BACKUP: Final = "_backup_"
"""What Iceberg's `migrate` adds to the name of the table of before."""
_NAME: Final = re.compile(r"(?:(?:`(?:[^`]|``)+`|[^`.\s]+)(?:\.(?!$)|$))+")
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")
_MIN_NAME_PARTS: Final = 3
"""A catalog, a namespace and a table."""


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table of Iceberg's that is to be. All names are as Spark's SQL has them.

    Attributes:
        source_name: what the caller calls the table of Spark's.
        name: its own, with its catalog.
        procedure: that makes it.
        arguments: of that.
        undo: how to undo it.
        backup: the table of before, where its own name is taken from it.
    """

    source_name: str
    name: str
    procedure: str
    arguments: Mapping[str, str]
    undo: str
    backup: str | None = None
    catalog: str = field(default=SESSION_CATALOG, kw_only=True)

    def create_statement(self, properties: Mapping[str, str]) -> str:
        """The statement that makes it."""
        values = {name: _sql_literal(value) for name, value in self.arguments.items()}
        if properties:
            values["properties"] = (
                f"map({', '.join(_sql_literal(text) for pair in properties.items() for text in pair)})"
            )
        return self._call(self.procedure, values)

    def add_field_statement(self, added: MappingField) -> str:
        """The statement that adds a partition field."""
        return f"ALTER TABLE {self.name} ADD PARTITION FIELD {added.sql}"

    @property
    def rewrite_statement(self) -> str:
        """The statement that writes its rows anew."""
        return self._call(
            "rewrite_data_files", {"table": _sql_literal(self.name), "options": "map('rewrite-all', 'true')"}
        )

    def _call(self, procedure: str, values: Mapping[str, str]) -> str:
        arguments = ", ".join(f"{name} => {value}" for name, value in values.items())
        return f"CALL {quote_name(self.catalog)}.system.{procedure}({arguments})"


def target_in_place(spark: SparkSession, asked: str, found: SourceTable) -> TargetTable:
    """The table itself.

    Raises:
        Unmanageable: the session's catalog is not Iceberg's, Spark would move the files, or the backup's name is taken.
    """
    check_in_place(spark, asked)
    if found.is_managed:
        # Iceberg renames it, and with that Spark moves its files to where they go with the backup.
        raise Unmanageable(
            asked,
            expected="an external table, whose files stay where they are",
            found="one whose files Spark moves and deletes with it (MANAGED)",
            remedy="give snapshot_as and rewrite=True, or make it anew with LOCATION",
        )
    backup = quote_name(SESSION_CATALOG, found.database, f"{found.table}{_BACKUP}")
    if table_exists(spark, backup):
        remedy = f"rename or drop it: Iceberg keeps {asked} as it is now under that name"
        raise Unmanageable(asked, expected=f"no table {backup} yet", found="one", remedy=remedy)
    former = quote_name(found.database, found.table)
    back = f"DROP TABLE {found.name}, remove {found.location}/data, ALTER TABLE {backup} RENAME TO {former}"
    return TargetTable(asked, found.name, "migrate", {"table": found.name}, back, backup)


def target_of_snapshot(
    spark: SparkSession, asked: str, found: SourceTable, name: str, location: str | None
) -> TargetTable:
    """Another table of its files.

    Args:
        name: with a catalog.
        location: where it writes; None: where its catalog says.

    Raises:
        Unmanageable: there is no such catalog or namespace, or there is such a table, or the places are one.
        ValueError: the name is none.
    """
    parts = [(one or other).replace("``", "`") for one, other in _PART.findall(name)]
    if not _NAME.fullmatch(name) or len(parts) < _MIN_NAME_PARTS:
        raise ValueError(f"snapshot_as is catalog.namespace.table: {name!r}")
    catalog, *namespace, _ = parts
    check_catalog(spark, asked, catalog)
    made, above = quote_name(*parts), quote_name(catalog, *namespace)
    with map_unmanageable(asked, expected=f"a namespace {above}", remedy=f"CREATE NAMESPACE {above}"):
        spark.sql(f"DESCRIBE NAMESPACE {above}").collect()
    if table_exists(spark, made):
        raise Unmanageable(asked, expected=f"no table {made} yet", found="one", remedy="give another snapshot_as")
    if location is not None:
        here, there = canonical(found.location), canonical(location)
        if is_below(here, there) or is_below(there, here):
            # Iceberg itself takes what is spelled otherwise.
            expected = f"a location apart from the table's, {found.location}"
            raise Unmanageable(asked, expected=expected, found=location, remedy="give another location")
    arguments = {"source_table": found.name, "table": made} | ({"location": location} if location else {})
    return TargetTable(asked, made, "snapshot", arguments, f"DROP TABLE {made}", catalog=catalog)


def _sql_literal(value: str) -> str:
    """A literal of Spark's SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
