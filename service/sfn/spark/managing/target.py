"""The table of Iceberg's that is to be, and the statements that make it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from sfn.pointer.location import canonical, is_below
from sfn.spark.managing.existing import SESSION_CATALOG, Existing, exists
from sfn.spark.managing.mapping import Field, quoted
from sfn.spark.managing.refusals import Unmanageable, unmanageable
from sfn.spark.managing.surroundings import check_catalog, check_in_place

_BACKUP: Final = "_backup_"
"""What Iceberg's `migrate` adds to the name of the table of before."""
_NAME: Final = re.compile(r"(?:(?:`(?:[^`]|``)+`|[^`.\s]+)(?:\.(?!$)|$))+")
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")
_LEAST: Final = 3
"""A catalog, a namespace and a table."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table of Iceberg's that is to be. All names are as Spark's SQL has them.

    Attributes:
        asked: what the caller calls the table of Spark's.
        name: its own, with its catalog.
        procedure: that makes it.
        arguments: of that.
        back: how to undo it.
        backup: the table of before, where its own name is taken from it.
    """

    asked: str
    name: str
    procedure: str
    arguments: Mapping[str, str]
    back: str
    backup: str | None = None
    catalog: str = field(default=SESSION_CATALOG, kw_only=True)

    def making(self, properties: Mapping[str, str]) -> str:
        """The statement that makes it."""
        told = {name: _text(value) for name, value in self.arguments.items()}
        if properties:
            told["properties"] = f"map({', '.join(_text(text) for pair in properties.items() for text in pair)})"
        return self._call(self.procedure, told)

    def adding(self, added: Field) -> str:
        """The statement that adds a partition field."""
        return f"ALTER TABLE {self.name} ADD PARTITION FIELD {added.sql}"

    @property
    def rewriting(self) -> str:
        """The statement that writes its rows anew."""
        return self._call("rewrite_data_files", {"table": _text(self.name), "options": "map('rewrite-all', 'true')"})

    def _call(self, procedure: str, told: Mapping[str, str]) -> str:
        arguments = ", ".join(f"{name} => {value}" for name, value in told.items())
        return f"CALL {quoted(self.catalog)}.system.{procedure}({arguments})"


def in_place(spark: SparkSession, asked: str, found: Existing) -> Target:
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
    backup = quoted(SESSION_CATALOG, found.database, f"{found.table}{_BACKUP}")
    if exists(spark, backup):
        remedy = f"rename or drop it: Iceberg keeps {asked} as it is now under that name"
        raise Unmanageable(asked, expected=f"no table {backup} yet", found="one", remedy=remedy)
    former = quoted(found.database, found.table)
    back = f"DROP TABLE {found.name}, remove {found.location}/data, ALTER TABLE {backup} RENAME TO {former}"
    return Target(asked, found.name, "migrate", {"table": found.name}, back, backup)


def snapshot(spark: SparkSession, asked: str, found: Existing, name: str, location: str | None) -> Target:
    """Another table of its files.

    Args:
        name: with a catalog.
        location: where it writes; None: where its catalog says.

    Raises:
        Unmanageable: there is no such catalog or namespace, or there is such a table, or the places are one.
        ValueError: the name is none.
    """
    parts = [(one or other).replace("``", "`") for one, other in _PART.findall(name)]
    if not _NAME.fullmatch(name) or len(parts) < _LEAST:
        raise ValueError(f"snapshot_as is catalog.namespace.table: {name!r}")
    catalog, *namespace, _ = parts
    check_catalog(spark, asked, catalog)
    made, above = quoted(*parts), quoted(catalog, *namespace)
    with unmanageable(asked, expected=f"a namespace {above}", remedy=f"CREATE NAMESPACE {above}"):
        spark.sql(f"DESCRIBE NAMESPACE {above}").collect()
    if exists(spark, made):
        raise Unmanageable(asked, expected=f"no table {made} yet", found="one", remedy="give another snapshot_as")
    if location is not None:
        here, there = canonical(found.location), canonical(location)
        if is_below(here, there) or is_below(there, here):
            # Iceberg itself takes what is spelled otherwise.
            expected = f"a location apart from the table's, {found.location}"
            raise Unmanageable(asked, expected=expected, found=location, remedy="give another location")
    told = {"source_table": found.name, "table": made} | ({"location": location} if location else {})
    return Target(asked, made, "snapshot", told, f"DROP TABLE {made}", catalog=catalog)


def _text(value: str) -> str:
    """A literal of Spark's SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
