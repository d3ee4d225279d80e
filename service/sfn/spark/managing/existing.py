"""A table that Spark has, before it comes under management."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.catalog import Table
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sfn.spark.managing.mapping import ColumnPath, quote_name
from sfn.spark.managing.refusals import SPARK_ERRORS, Unmanageable, map_unmanageable

SESSION_CATALOG: Final = "spark_catalog"

_PROVIDERS: Final = ("parquet", "orc", "avro")
_UNREADABLE: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {"orc": frozenset({"timestamp", "timestamp_ntz"}), "avro": frozenset({"timestamp_ntz"})}
)
_DETAILS: Final = "# Detailed Table Information"
_ICEBERG: Final = "iceberg"
_COPY: Final = "copy it: CREATE TABLE … USING iceberg AS SELECT …"


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of Spark's session catalog, in files that Iceberg can take over.

    Attributes:
        database, table: its name.
        location: where its files lie.
        is_managed: Spark moves its files when it is renamed, and deletes them when it is dropped.
        columns: with those of its structs, each with its type.
        partitioned: those that its partitions are made of.
        files: how many Spark reads of it.
    """

    database: str
    table: str
    location: str
    is_managed: bool
    columns: Mapping[ColumnPath, str]
    partitioned: Collection[str]
    files: int

    @property
    def name(self) -> str:
        """With its catalog, in Spark's SQL."""
        return quote_name(SESSION_CATALOG, self.database, self.table)


def describe_source_table(spark: SparkSession, table: str) -> SourceTable:
    """What there is to know of a table.

    Raises:
        Unmanageable: there is no such table, or Iceberg can't take it over.
    """
    found = _find_table(spark, table)
    database, name = [*(found.namespace or []), found.name][-2:]
    full = quote_name(SESSION_CATALOG, database, name)
    with map_unmanageable(table, expected="a table that Spark can read", remedy="see to that first"):
        rows = spark.table(full)
        files = len(rows._jdf.inputFiles())  # noqa: SLF001 - there they are counted: a list of them would come over here
        partitioned = [column.name for column in spark.catalog.listColumns(full) if column.isPartition]
        details = _details(spark, full)
    _check_times(table, details["Provider"].lower(), rows.schema)
    is_managed = details["Type"] == "MANAGED"
    return SourceTable(database, name, details["Location"], is_managed, dict(_columns(rows.schema)), partitioned, files)


def table_exists(spark: SparkSession, name: str) -> bool:
    """Whether the session has a table of a name."""
    try:
        return spark.catalog.tableExists(name)
    except SPARK_ERRORS:
        return False


def _find_table(spark: SparkSession, table: str) -> Table:
    """What a name is of.

    Raises:
        Unmanageable: no table, or none that Iceberg takes over.
    """
    catalog = spark.catalog
    here = f"{catalog.currentCatalog()}.{catalog.currentDatabase()}"
    remedy = f"take one that SHOW TABLES has; what is not said of a name is {here}"
    with map_unmanageable(table, expected="a table of this session", remedy=remedy):
        found = catalog.getTable(table)
    if found.isTemporary or found.tableType == "VIEW":
        kind = "a temporary view" if found.isTemporary else "a view"
        remedy = "take the table that it reads"
        raise Unmanageable(table, expected="a table with files of its own", found=kind, remedy=remedy)
    names = [found.catalog or "", *(found.namespace or []), found.name]
    with map_unmanageable(table, expected="a table that Spark can describe", remedy="see to that first"):
        provider = _details(spark, quote_name(*names)).get("Provider", "nothing").lower()
    if provider == _ICEBERG:
        remedy = "add partition fields with ALTER TABLE … ADD PARTITION FIELD"
        raise Unmanageable(table, expected="a table that is not Iceberg's yet", found="one that is", remedy=remedy)
    if found.catalog != SESSION_CATALOG or provider not in _PROVIDERS:
        expected = f"a table of {SESSION_CATALOG} USING {', '.join(_PROVIDERS[:-1])} or {_PROVIDERS[-1]}"
        found_there = f"one of {found.catalog} USING {provider}"
        raise Unmanageable(table, expected=expected, found=found_there, remedy=_COPY)
    return found


def _details(spark: SparkSession, name: str) -> Mapping[str, str]:
    rows = [(row.col_name, row.data_type) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()]
    # Of a column that somebody called so there is nothing behind the last one.
    heading = max(number for number, (name, _) in enumerate(rows) if name == _DETAILS)
    return dict(rows[heading + 1 :])


def _columns(kind: StructType, above: ColumnPath = ()) -> Iterator[tuple[ColumnPath, str]]:
    for field in kind.fields:
        path = (*above, field.name)
        yield path, field.dataType.simpleString()
        if isinstance(field.dataType, StructType):
            yield from _columns(field.dataType, path)


def _check_times(table: str, provider: str, schema: StructType) -> None:
    """Refuse times that Iceberg can't read as Spark writes them.

    Raises:
        Unmanageable: a column is one, or holds one.
    """
    unreadable = _UNREADABLE.get(provider, frozenset())
    if times := [field.name for field in schema.fields if not unreadable.isdisjoint(_type_names(field.dataType))]:
        found = f"{', '.join(times)} in {provider}, where Iceberg can't read such times as Spark writes them"
        raise Unmanageable(table, expected="columns that Iceberg can read from its files", found=found, remedy=_COPY)


def _type_names(kind: DataType) -> Iterator[str]:
    """A type's name, and those of all types in it."""
    yield kind.typeName()
    match kind:
        case StructType():
            inner = [field.dataType for field in kind.fields]
        case ArrayType():
            inner = [kind.elementType]
        case MapType():
            inner = [kind.keyType, kind.valueType]
        case _:
            inner = []
    for one in inner:
        yield from _type_names(one)
