"""The steps of `manage`: parse partition mappings, check the source table and the session, plan the target table.

    "order_ts=days, customer_id=bucket[8]"
    {"order_ts": "days", "customer_id": ["bucket[8]", "truncate[100]"]}

A row has one value of a mapping: its column's own (1-1, identity), or one that many column values share (n-1).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, combinations, count
from types import MappingProxyType
from typing import Final, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Table
from pyspark.sql.types import ArrayType, DataType, MapType, StructType
from typing_extensions import override

from sfn.errors import NotInstalled, SfnError, suggest_name
from sfn.sfnfile.locations import canonical, is_below
from sfn.spark import start
from sfn.spark.start import ICEBERG_EXTENSIONS

IDENTITY: Final = "identity"
TIME_TRANSFORMS: Final = ("year", "month", "day", "hour")
"""Each contains the next, so Iceberg accepts only one of them for a column."""

MAX_WIDTH: Final = 2**31 - 1

_LETTERS: Final[Mapping[str, str]] = MappingProxyType({"bucket": "N", "truncate": "W"})
_NAMES: Final = (IDENTITY, *_LETTERS, *TIME_TRANSFORMS)
_SHORT: Final[Mapping[str, str]] = MappingProxyType({"truncate": "trunc"})

_WRITTEN: Final = re.compile(r"(\w+)\s*(?:\[\s*(.*?)\s*\])?")
_CUT: Final = (IDENTITY, "truncate", "bucket")
_CLOCK: Final = (IDENTITY, "bucket", *TIME_TRANSFORMS)
TRANSFORMS_BY_TYPE: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "boolean": (IDENTITY,),
        "tinyint": _CUT,
        "smallint": _CUT,
        "int": _CUT,
        "bigint": _CUT,
        "float": (IDENTITY,),
        "double": (IDENTITY,),
        "decimal": _CUT,
        "string": _CUT,
        "binary": _CUT,
        "date": _CLOCK[:-1],
        "timestamp": _CLOCK,
        "timestamp_ntz": _CLOCK,
    }
)
"""The transforms that fit a column, by the type's name in Spark."""


@dataclass(frozen=True, slots=True)
class Transform:
    """A partition transform.

    Attributes:
        name: the name in Iceberg's specification, in the singular.
        width: the number of buckets, or the width after truncation.
    """

    name: str
    width: int | None = None

    @override
    def __str__(self) -> str:
        return self.name if self.width is None else f"{self.name}[{self.width}]"

    def suffix(self) -> str:
        """Return the suffix that Iceberg adds to a column's name for the partition field."""
        if self.name == IDENTITY:
            return ""
        short = _SHORT.get(self.name, self.name)
        return f"_{short}" if self.width is None else f"_{short}_{self.width}"

    def applied_to(self, column: str) -> str:
        """Return the transform of a column in Spark's SQL."""
        if self.name == IDENTITY:
            return column
        return f"{self.name}s({column})" if self.width is None else f"{self.name}({self.width}, {column})"


def fitting_transforms(kind: str) -> Sequence[str]:
    """Return the names of the transforms that fit a type, such as `decimal(9,2)`."""
    found = re.match(r"\w+", kind)
    return () if found is None else TRANSFORMS_BY_TYPE.get(found[0], ())


def list_choices(names: Sequence[str] = _NAMES) -> str:
    """Return a list of transforms as text, as callers write them."""
    *others, last = (f"{name}[{_LETTERS[name]}]" if name in _LETTERS else name for name in names)
    return f"{', '.join(others)} or {last}" if others else last


def parse_transform(text: str) -> Transform:
    """Parse a transform such as `day`, `days` or `bucket[8]`.

    Raises:
        ValueError: it is not valid; the message gives the reason.
    """
    found = _WRITTEN.fullmatch(text.strip())
    word = "" if found is None else found[1].lower()
    name = word.removesuffix("s") if word.removesuffix("s") in TIME_TRANSFORMS else word
    if found is None or name not in _NAMES:
        # Iceberg's metadata allows only these transforms, each of one column.
        one_to_one, many_to_one = list_choices(_NAMES[:1]), list_choices(_NAMES[1:])
        raise ValueError(f"a mapping is 1-1, {one_to_one}, or n-1, {many_to_one}, which {text.strip()!r} is not")
    number = found[2]
    if name not in _LETTERS:
        if number is not None:
            raise ValueError(f"{name} takes no number")
        return Transform(name)
    if number is None:
        raise ValueError(f"{list_choices([name])} needs {'a number' if name == 'bucket' else 'a width'}")
    if not re.fullmatch(r"[0-9]{1,10}", number) or not 1 <= int(number) <= MAX_WIDTH:
        raise ValueError(
            f"{_LETTERS[name]} of {list_choices([name])} is a number from 1 to {MAX_WIDTH}, not {number!r}"
        )
    return Transform(name, int(number))


PartitionMappings: TypeAlias = str | Mapping[str, str | Sequence[str]]
ColumnPath: TypeAlias = tuple[str, ...]
"""The names of a column and of the structs that contain it, outermost first."""

_PIECE: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^=`]+?))\s*=\s*(.*?)\s*", re.DOTALL)
_OPENING, _CLOSING = "[(", "])"


class InvalidMappings(ValueError):
    """Mappings that are not valid.

    Attributes:
        problems: one sentence for each invalid mapping, with the valid choices.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class MappingField:
    """A partition field.

    Attributes:
        path: the source column.
        transform: the transform of the column.
        name: the field's own name, if Iceberg's default name is another column's.
    """

    path: ColumnPath
    transform: Transform
    name: str = ""

    @override
    def __str__(self) -> str:
        return f"{_dotted(self.path)}={self.transform}"

    @property
    def sql(self) -> str:
        """The field in the syntax of `ALTER TABLE … ADD PARTITION FIELD`."""
        added = self.transform.applied_to(quote_name(*self.path))
        return f"{added} AS {quote_name(self.name)}" if self.name else added


def parse_partition_fields(
    mappings: PartitionMappings, columns: Mapping[ColumnPath, str], partitioned: Collection[str] = ()
) -> tuple[MappingField, ...]:
    """Parse and check all mappings together, and return the fields to add.

    Args:
        mappings: the mappings, as text or by column.
        columns: the types of the columns, as Spark names them.
        partitioned: the columns that the table is partitioned by already.

    Raises:
        InvalidMappings: some mappings are not valid, or do not fit their columns or each other.
    """
    problems: list[str] = []
    found: list[MappingField] = []
    for column, text in _pairs(mappings, problems):
        try:
            found.append(_field(column, text, columns, partitioned))
        except ValueError as problem:
            problems.append(f"{column}={text}: {problem}")
    problems.extend(_clashes(found))
    if problems:
        raise InvalidMappings(problems)
    return tuple(found)


def quote_name(*names: str) -> str:
    """Return a name of several parts, quoted for Spark's SQL."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def _pairs(mappings: PartitionMappings, problems: list[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(mappings, str):
        for column, texts in mappings.items():
            for text in [texts] if isinstance(texts, str) else texts:
                yield column, text
        return
    for piece in _pieces(mappings) if mappings.strip() else ():
        if found := _PIECE.fullmatch(piece):
            yield found[1].replace("``", "`") if found[1] else found[2], found[3]
        else:
            problems.append(f"{piece.strip()!r} has not the form column=transform")


def _pieces(text: str) -> Sequence[str]:
    """Split a text at commas outside of brackets and backquotes."""
    pieces, depth, inside = [""], 0, False
    for character in text:
        inside ^= character == "`"
        if not inside:
            depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth <= 0 and not inside:
            pieces.append("")
        else:
            pieces[-1] += character
    return pieces


def _field(column: str, text: str, columns: Mapping[ColumnPath, str], partitioned: Collection[str]) -> MappingField:
    """Parse and check one mapping.

    Raises:
        ValueError: it is not valid; the message gives the reason.
    """
    path = _path(column, columns)
    already = {(name,) for name in partitioned}
    if path in already:
        others = [
            _dotted(other) for other, kind in columns.items() if fitting_transforms(kind) and other not in already
        ]
        instead = f" or take {', '.join(others)}" if others else ""
        raise ValueError(f"the table is partitioned by this column already, leave it out{instead}")
    transform = parse_transform(text)
    names = fitting_transforms(columns[path])
    if transform.name not in names:
        raise ValueError(
            f"{columns[path]} takes {list_choices(names)}" if names else f"no transform fits {columns[path]}"
        )
    taken = {_dotted(other) for other in columns if other != path}
    usual = f"{_dotted(path)}{transform.suffix()}"
    name = next(name for name in chain([usual], (f"{usual}_{number}" for number in count(1))) if name not in taken)
    return MappingField(path, transform, "" if name == usual else name)


def _path(column: str, columns: Mapping[ColumnPath, str]) -> ColumnPath:
    names = {_dotted(path): path for path in columns}
    if column in names:
        return names[column]
    alike = [path for name, path in names.items() if name.lower() == column.lower()]
    if len(alike) == 1:
        # Spark ignores case, Iceberg does not.
        return alike[0]
    raise ValueError(f"no such column, {suggest_name(column, list(names))}")


def _dotted(path: ColumnPath) -> str:
    return ".".join(path)


def _clashes(found: Sequence[MappingField]) -> Iterator[str]:
    """Yield a sentence for each field that another one makes redundant: Iceberg's `PartitionSpec` refuses it."""
    for one, other in combinations(found, 2):
        if one.path != other.path:
            continue
        if one.transform == other.transform:
            yield f"{one}: given twice, leave one out"
        elif one.transform.name in TIME_TRANSFORMS and other.transform.name in TIME_TRANSFORMS:
            coarse, fine = sorted((one, other), key=lambda field: TIME_TRANSFORMS.index(field.transform.name))
            yield f"{fine}: each {fine.transform} lies in one {coarse.transform}, keep it or {coarse}"


SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""The exceptions of a failed statement."""


class Unmanageable(SfnError):
    """The table can't be turned into an Iceberg table as requested. It is unchanged."""


class HalfManaged(SfnError):
    """The table is an Iceberg table, but a later step failed; the remedy says how to continue and how to go back."""


@contextmanager
def map_unmanageable(where: str, *, expected: str, remedy: str = "") -> Iterator[None]:
    """Refuse a table with Spark's own message, before anything is changed."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise Unmanageable(where, expected=expected, found=error_summary(error), remedy=remedy) from error


def error_summary(error: Exception) -> str:
    """Return the first line of an error, without the JVM's stack and the query's plan."""
    if isinstance(error, Py4JJavaError):
        kind, _, text = str(error.java_exception.toString()).partition(": ")
        return f"{kind.rpartition('.')[2]}: {_line(text)}"
    return _line(str(error))


def _line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "nothing more").rstrip(".")


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
    """A table of Spark's session catalog, with files that Iceberg can take over.

    Attributes:
        database, table: its name.
        location: the directory of its files.
        is_managed: whether Spark moves its files on a rename, and deletes them on a drop.
        columns: the types of its columns, including those within structs.
        partitioned: the columns that it is partitioned by.
        files: the number of files that Spark reads.
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
        """The name with its catalog, in Spark's SQL."""
        return quote_name(SESSION_CATALOG, self.database, self.table)


def describe_source_table(spark: SparkSession, table: str) -> SourceTable:
    """Collect what is needed about a table.

    Raises:
        Unmanageable: there is no such table, or Iceberg can't take it over.
    """
    found = _find_table(spark, table)
    database, name = [*(found.namespace or []), found.name][-2:]
    full = quote_name(SESSION_CATALOG, database, name)
    with map_unmanageable(table, expected="a table that Spark can read", remedy="fix that first"):
        rows = spark.table(full)
        files = len(rows._jdf.inputFiles())  # noqa: SLF001 - counted in the JVM: the list itself would be copied
        partitioned = [column.name for column in spark.catalog.listColumns(full) if column.isPartition]
        details = _details(spark, full)
    _check_times(table, details["Provider"].lower(), rows.schema)
    is_managed = details["Type"] == "MANAGED"
    return SourceTable(database, name, details["Location"], is_managed, dict(_columns(rows.schema)), partitioned, files)


def table_exists(spark: SparkSession, name: str) -> bool:
    """Return whether the session has a table of a name."""
    try:
        return spark.catalog.tableExists(name)
    except SPARK_ERRORS:
        return False


def _find_table(spark: SparkSession, table: str) -> Table:
    """Return the table of a name.

    Raises:
        Unmanageable: there is no table of this name, or Iceberg can't take it over.
    """
    catalog = spark.catalog
    here = f"{catalog.currentCatalog()}.{catalog.currentDatabase()}"
    remedy = f"take one that SHOW TABLES lists; a name without a catalog and database is looked up in {here}"
    with map_unmanageable(table, expected="a table of this session", remedy=remedy):
        found = catalog.getTable(table)
    if found.isTemporary or found.tableType == "VIEW":
        kind = "a temporary view" if found.isTemporary else "a view"
        remedy = "take the table that it reads"
        raise Unmanageable(table, expected="a table with files of its own", found=kind, remedy=remedy)
    names = [found.catalog or "", *(found.namespace or []), found.name]
    with map_unmanageable(table, expected="a table that Spark can describe", remedy="fix that first"):
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
    # A column may have the heading's name, so take the last row with it.
    heading = max(number for number, (name, _) in enumerate(rows) if name == _DETAILS)
    return dict(rows[heading + 1 :])


def _columns(kind: StructType, above: ColumnPath = ()) -> Iterator[tuple[ColumnPath, str]]:
    for member in kind.fields:
        path = (*above, member.name)
        yield path, member.dataType.simpleString()
        if isinstance(member.dataType, StructType):
            yield from _columns(member.dataType, path)


def _check_times(table: str, provider: str, schema: StructType) -> None:
    """Refuse columns with times that Iceberg can't read as Spark writes them.

    Raises:
        Unmanageable: there is such a column.
    """
    unreadable = _UNREADABLE.get(provider, frozenset())
    if times := [field.name for field in schema.fields if not unreadable.isdisjoint(_type_names(field.dataType))]:
        found = f"{', '.join(times)} in {provider}, where Iceberg can't read such times as Spark writes them"
        raise Unmanageable(table, expected="columns that Iceberg can read from its files", found=found, remedy=_COPY)


def _type_names(kind: DataType) -> Iterator[str]:
    """Yield the name of a type, and the names of all types within it."""
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


_KEY: Final = "spark.sql.catalog."
_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
_IN_PLACE: Final = "org.apache.iceberg.spark.SparkSessionCatalog"


def check_session(spark: SparkSession) -> None:
    """Check that a session has Iceberg.

    Raises:
        NotInstalled: it lacks Iceberg's runtime, or its SQL extensions.
    """
    start.check_runtime(spark, otherwise="")
    check_extensions(spark.conf.get("spark.sql.extensions", "") or "")


def check_extensions(found: str) -> None:
    """Check that a comma-separated list of SQL extensions contains Iceberg's.

    Raises:
        NotInstalled: it does not.
    """
    if ICEBERG_EXTENSIONS not in [name.strip() for name in found.split(",")]:
        raise NotInstalled(
            "Spark",
            expected="Iceberg's extensions of SQL",
            found=f"spark.sql.extensions={found}" if found else "no spark.sql.extensions",
            remedy=f"start the session with spark.sql.extensions={ICEBERG_EXTENSIONS}; it can't be set later",
        )


def check_in_place(spark: SparkSession, table: str) -> None:
    """Check that the session's own catalog can hold Iceberg tables.

    Raises:
        Unmanageable: it is not Iceberg's catalog.
    """
    key = f"{_KEY}{SESSION_CATALOG}"
    found = spark.conf.get(key, None)
    if found != _IN_PLACE:
        remedy = (
            f"set {key}={_IN_PLACE}, {key}.type=rest and {key}.uri=<the catalog's> (or type=hive) before the session "
            "uses Iceberg there, or give snapshot_as"
        )
        raise Unmanageable(
            table, expected="Iceberg's catalog as that of the session", found=found or "Spark's own", remedy=remedy
        )


def check_catalog(spark: SparkSession, table: str, catalog: str) -> None:
    """Check that a catalog of the session is Iceberg's.

    Raises:
        Unmanageable: the session has no such catalog.
    """
    conf = spark.conf.getAll
    known = sorted(
        key.removeprefix(_KEY)
        for key, value in conf.items()
        if key.startswith(_KEY) and "." not in key.removeprefix(_KEY) and value in (_CATALOG, _IN_PLACE)
    )
    if catalog not in known:
        remedy = suggest_name(catalog, known) or f"set {_KEY}{catalog}={_CATALOG}, {_KEY}{catalog}.type=rest and ….uri"
        raise Unmanageable(table, expected="a snapshot in a catalog of Iceberg's", found=catalog, remedy=remedy)


_BACKUP: Final = "_backup_"
"""The suffix that Iceberg's `migrate` adds to the name of the original table."""
_NAME: Final = re.compile(r"(?:(?:`(?:[^`]|``)+`|[^`.\s]+)(?:\.(?!$)|$))+")
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.\s]+)")
_MIN_NAME_PARTS: Final = 3
"""A catalog, a namespace and a table."""


@dataclass(frozen=True, slots=True)
class TargetTable:
    """The Iceberg table to create. All names are in Spark's SQL.

    Attributes:
        source_name: the caller's name of the source table.
        name: the target's name, with its catalog.
        procedure: Iceberg's procedure that creates it.
        arguments: the procedure's arguments.
        undo: the way back, for messages.
        backup: the name that the original table gets, if the target takes its name.
    """

    source_name: str
    name: str
    procedure: str
    arguments: Mapping[str, str]
    undo: str
    backup: str | None = None
    catalog: str = field(default=SESSION_CATALOG, kw_only=True)

    def create_statement(self, properties: Mapping[str, str]) -> str:
        values = {name: _sql_literal(value) for name, value in self.arguments.items()}
        if properties:
            values["properties"] = (
                f"map({', '.join(_sql_literal(text) for pair in properties.items() for text in pair)})"
            )
        return self._call(self.procedure, values)

    def add_field_statement(self, added: MappingField) -> str:
        """Return the statement that adds a partition field."""
        return f"ALTER TABLE {self.name} ADD PARTITION FIELD {added.sql}"

    @property
    def rewrite_statement(self) -> str:
        """The statement that rewrites the table's rows."""
        return self._call(
            "rewrite_data_files", {"table": _sql_literal(self.name), "options": "map('rewrite-all', 'true')"}
        )

    def _call(self, procedure: str, values: Mapping[str, str]) -> str:
        arguments = ", ".join(f"{name} => {value}" for name, value in values.items())
        return f"CALL {quote_name(self.catalog)}.system.{procedure}({arguments})"


def target_in_place(spark: SparkSession, source_name: str, found: SourceTable) -> TargetTable:
    """Plan the conversion of the table itself.

    Raises:
        Unmanageable: the session's catalog is not Iceberg's, Spark would move the files, or the backup's name is taken.
    """
    check_in_place(spark, source_name)
    if found.is_managed:
        # Iceberg renames the table, and then Spark would move the files to the backup's directory.
        raise Unmanageable(
            source_name,
            expected="an external table, so that its files stay in place",
            found="one with files that Spark moves and deletes with it (MANAGED)",
            remedy="give snapshot_as and rewrite=True, or recreate it with LOCATION",
        )
    backup = quote_name(SESSION_CATALOG, found.database, f"{found.table}{_BACKUP}")
    if table_exists(spark, backup):
        remedy = f"rename or drop it: Iceberg keeps the present {source_name} under that name"
        raise Unmanageable(source_name, expected=f"no table {backup} yet", found="one", remedy=remedy)
    former = quote_name(found.database, found.table)
    back = f"DROP TABLE {found.name}, remove {found.location}/data, ALTER TABLE {backup} RENAME TO {former}"
    return TargetTable(source_name, found.name, "migrate", {"table": found.name}, back, backup)


def target_of_snapshot(
    spark: SparkSession, source_name: str, found: SourceTable, name: str, location: str | None
) -> TargetTable:
    """Plan another table of the same files.

    Args:
        name: the new table's name, with a catalog.
        location: the new table's directory; None for the catalog's default.

    Raises:
        Unmanageable: the catalog or namespace does not exist, the table does, or the two directories overlap.
        ValueError: the name is not valid.
    """
    parts = [(one or other).replace("``", "`") for one, other in _PART.findall(name)]
    if not _NAME.fullmatch(name) or len(parts) < _MIN_NAME_PARTS:
        raise ValueError(f"snapshot_as is catalog.namespace.table: {name!r}")
    catalog, *namespace, _ = parts
    check_catalog(spark, source_name, catalog)
    made, above = quote_name(*parts), quote_name(catalog, *namespace)
    with map_unmanageable(source_name, expected=f"a namespace {above}", remedy=f"CREATE NAMESPACE {above}"):
        spark.sql(f"DESCRIBE NAMESPACE {above}").collect()
    if table_exists(spark, made):
        raise Unmanageable(source_name, expected=f"no table {made} yet", found="one", remedy="give another snapshot_as")
    if location is not None:
        here, there = canonical(found.location), canonical(location)
        if is_below(here, there) or is_below(there, here):
            # Iceberg compares only the spelling of the locations.
            expected = f"a location apart from the table's, {found.location}"
            raise Unmanageable(source_name, expected=expected, found=location, remedy="give another location")
    arguments = {"source_table": found.name, "table": made} | ({"location": location} if location else {})
    return TargetTable(source_name, made, "snapshot", arguments, f"DROP TABLE {made}", catalog=catalog)


def _sql_literal(value: str) -> str:
    """Return a string literal of Spark's SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
