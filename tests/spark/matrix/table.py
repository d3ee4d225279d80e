"""A table that Spark writes through a catalog, the states that are read of it, and what a DataFrame shows of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import VariantVal

from sfn.sfnfile.document import Document, render, render_ordinal
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, FileLayout, FileOwner, Naming
from tests.spark.session import INTERPRETED

REST, HADOOP = "lake", "folders"
"""The real REST catalog, and one that is nothing but folders, whose identifiers may be odd."""
NAMESPACE: Final = "matrix"
_WRITER_SETTINGS: Final = {"spark.sql.sources.partitionOverwriteMode": "dynamic", **INTERPRETED}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS: Final = "id INT, item STRING"
BEFORE: Final = "as of the snapshot before"
"""The title of the state of one commit ago."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A row of the matrix, or several: something that a table can have.

    Attributes:
        title: of its first row; the other rows add the state's title to it.
        write: writes a table that has it, and yields the states to read.
        catalog, namespace: what it is written through, and into.
        name: the table's; None for any.
    """

    title: str
    write: Callable[[Table], Iterable[State]]
    catalog: str = REST
    namespace: tuple[str, ...] = (NAMESPACE,)
    name: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """One state of a table.

    Attributes:
        truth: what the catalog shows; None where Iceberg's own library can't read the table.
        arguments: the state, as arguments of `sfn.spark.read`.
        title: what distinguishes it from the other states of the table; empty for the current one.
    """

    truth: Result | None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a table was at a time.

    Attributes:
        ordinal: the time, in Unix milliseconds.
        result: what the catalog showed then.
    """

    ordinal: int
    result: Result | None


class Table:
    """A table to be.

    Args:
        name: its own.
        namespace: levels.
        catalog: which one of the lake's it is to be in.
    """

    def __init__(self, lake: Lake, name: str, namespace: tuple[str, ...], catalog: str = "lake") -> None:
        self.lake, self.name, self.namespace, self._catalog = lake, name, namespace, catalog
        parts = (catalog, *namespace, name)
        self.sql_name = ".".join(f"`{part.replace('`', '``')}`" for part in parts)

    def run(self, *statements: str) -> None:
        """SQL; `{t}` stands for the table, `{q}` for its name as procedures take it, `{system}` for where these are."""
        quoted = ".".join(f"`{part}`" for part in (*self.namespace, self.name)).replace("'", "\\'")
        for statement in statements:
            text = statement.replace("{t}", self.sql_name).replace("{q}", f"'{quoted}'")
            self.lake.run(text.replace("{system}", f"{self._catalog}.system"))

    def create(
        self, columns: str, partitioned: str = "", properties: Mapping[str, str] | None = None, tail: str = ""
    ) -> None:
        """Create it, of version 2 if no property says otherwise."""
        all_properties = {"format-version": "2", **(properties or {})}
        clause = f"PARTITIONED BY ({partitioned})" if partitioned else ""
        listed = ", ".join(f"'{name}'='{value}'" for name, value in all_properties.items())
        self.run(f"CREATE TABLE {{t}} ({columns}) USING iceberg {clause} {tail} TBLPROPERTIES ({listed})")

    def create_of(self, *fields: Any, properties: Mapping[str, str] | None = None) -> None:  # noqa: ANN401 - Java's
        """Create it with columns that SQL has no words for."""
        iceberg = self.lake.iceberg
        schema = iceberg.Schema(self.lake.array(iceberg.types.Types.NestedField, *fields))
        named = iceberg.catalog.TableIdentifier.parse(".".join((*self.namespace, self.name)))
        self.lake.catalog(self._catalog).createTable(
            named, schema, iceberg.PartitionSpec.unpartitioned(), dict(properties or {})
        )

    def insert(self, *rows: str, branch: str = "") -> None:
        """Commit rows, in one file for each partition."""
        into = f"{{t}}.`branch_{branch}`" if branch else "{t}"
        self.run(f"INSERT INTO {into} SELECT /*+ COALESCE(1) */ * FROM VALUES {', '.join(rows)}")

    @property
    def java(self) -> Any:  # noqa: ANN401 - Java's
        """Iceberg's own object for it, as it is now."""
        return self.lake.load(self.sql_name)

    @property
    def snapshot(self) -> int:
        """The current one."""
        return int(self.java.currentSnapshot().snapshotId())

    def files(self) -> list[str]:
        """Its metadata file, and the data files of now."""
        rows = self.lake.session.sql(f"SELECT file_path FROM {self.sql_name}.files").collect()
        return [str(self.java.operations().current().metadataFileLocation()), *(row.file_path for row in rows)]

    def delete_files(self) -> int:
        """How many files of deletes the current snapshot has added."""
        return int(self.java.currentSnapshot().summary().getOrDefault("added-delete-files", "0"))

    def result(self, clause: str = "") -> Result | None:
        """What the catalog shows of it; None where Iceberg's own library refuses."""
        try:
            return Result.by(self.lake.session.sql(f"SELECT * FROM {self.sql_name} {clause}"))
        except (PySparkException, Py4JJavaError):
            return None

    def now(self) -> State:
        """Its present state."""
        return State(self.result())

    def at_snapshot(self, number: int, title: str = "as of a snapshot") -> State:
        return State(self.result(f"VERSION AS OF {number}"), {"as_of": number}, title)

    def at_ref(self, name: str, title: str, *, by: str = "ref") -> State:
        return State(self.result(f"VERSION AS OF '{name}'"), {by: name}, title)

    def at_time(self, milliseconds: int, title: str = "as of a time") -> State:
        at = _EPOCH + timedelta(milliseconds=milliseconds)
        return State(self.result(f"TIMESTAMP AS OF '{at:%Y-%m-%d %H:%M:%S.%f}'"), {"as_of": at}, title)

    def as_it_was(self, then: Moment, title: str = "as of an Ordinal") -> State:
        return State(then.result, {"as_of": render_ordinal(then.ordinal)}, title)

    def moment(self) -> Moment:
        """What it is now, for later."""
        return Moment(int(self.java.operations().current().lastUpdatedMillis()), self.result())

    @property
    def directory(self) -> str:
        """Its location."""
        return canonical(str(self.java.location()))

    def publish(self, naming: Naming = IDENTIFIER) -> None:
        """Write what the service would write now: the SFN file, and that of the commit where each has one."""
        metadata = self.java.operations().current()
        head = metadata.currentSnapshot()
        ordinal = int(metadata.lastUpdatedMillis())
        owner = FileOwner(self.namespace, self.name, str(metadata.uuid()))
        document = Document(
            catalog_id="0123456789abcdef0123456789abcdef",
            namespace=self.namespace,
            name=self.name,
            guid=owner.guid,
            metadata_file_path=str(metadata.metadataFileLocation()),
            ordinal=ordinal,
            written_at=_EPOCH + timedelta(milliseconds=ordinal),
            snapshot_id=None if head is None else int(head.snapshotId()),
        )
        site = FileLayout(canonical(str(metadata.location())), naming)
        names = [site.keys(owner)[0]]
        if naming is ORDINAL:
            names.append(site.folder + naming.commit_file_names(owner, ordinal)[0])
        for name in names:
            file = Path(name.removeprefix("file://"))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(render(document))


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that is promised to be the same with every engine.

    Attributes:
        columns: name, type and nullability of each; comments are no part of it.
        rows: in any order, and how often each is there.
    """

    columns: tuple[str, ...]
    rows: Counter[str]

    @classmethod
    def by(cls, frame: DataFrame) -> Self:
        columns = tuple(map(str, _uncommented(frame.schema.jsonValue())["fields"]))
        return cls(columns, Counter(map(_text_of, frame.collect())))


def _uncommented(schema: Any) -> Any:  # noqa: ANN401 - JSON
    match schema:
        case dict():
            return {key: _uncommented(value) for key, value in schema.items() if key != "metadata"}
        case list():
            return [_uncommented(value) for value in schema]
        case _:
            return schema


def _text_of(value: object) -> str:
    """A value; equal ones in the same words, of which NaN is one."""
    match value:
        case Row():
            return (
                f"{{{', '.join(f'{name}: {_text_of(it)}' for name, it in zip(value.__fields__, value, strict=True))}}}"
            )
        case list():
            return f"[{', '.join(map(_text_of, value))}]"
        case Mapping():
            return f"{{{', '.join(sorted(f'{_text_of(key)} -> {_text_of(it)}' for key, it in value.items()))}}}"
        case VariantVal():
            return value.toJson()
        case _:
            return repr(value)


EVERYWHERE: Final[Mapping[str, object]] = {}
"""Deletes without a partition."""


def record(table: Table, schema: Any, values: Mapping[str, object]) -> Any:  # noqa: ANN401 - Java's
    """A row."""
    made = table.lake.iceberg.data.GenericRecord.create(schema)
    for name, value in values.items():
        made.setField(name, value)
    return made


def _new_file(table: Table, kind: str) -> Any:  # noqa: ANN401 - Java's
    """A new file of the table."""
    path = f"{table.directory}/data/{uuid4()}.{kind}"
    output = table.java.io().newOutputFile(path)
    return table.lake.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(output)


def _partition_of(table: Table, schema: Any, row: Mapping[str, object]) -> Any:  # noqa: ANN401 - Java's
    """That of a row; none of a table that has none."""
    spec = table.java.spec()
    if spec.isUnpartitioned():
        return None
    key = table.lake.iceberg.PartitionKey(spec, schema)
    whole = record(table, schema, row)
    key.partition(table.lake.iceberg.data.InternalRecordWrapper(schema.asStruct()).wrap(whole))
    return key


def _appender_factory(table: Table, ids: Any, deleted: Any) -> Any:  # noqa: ANN401 - Java's
    return table.lake.iceberg.data.GenericAppenderFactory(
        table.java, table.java.schema(), table.java.spec(), None, ids, deleted, None
    )


def append(table: Table, rows: Sequence[Mapping[str, object]], kind: str = "parquet") -> None:
    """Commit rows of one partition in one file; values are what Iceberg's generic records hold."""
    schema, form = table.java.schema(), table.lake.iceberg.FileFormat.fromString(kind)
    writer = _appender_factory(table, None, None).newDataWriter(
        _new_file(table, kind), form, _partition_of(table, schema, rows[0])
    )
    for row in rows:
        writer.write(record(table, schema, row))
    writer.close()
    table.java.newAppend().appendFile(writer.toDataFile()).commit()


def delete_equal(
    table: Table, *rows: Mapping[str, object], within: Mapping[str, object] = EVERYWHERE, kind: str = "parquet"
) -> None:
    """Commit a file of equality deletes.

    Args:
        rows: what is deleted; all have the same columns.
        within: a row of the partition in which it is; of a table without partitions nothing.
    """
    whole = table.java.schema()
    names = table.lake.array(table.lake.java.java.lang.String, *rows[0])
    schema = whole.select(names)
    ids = table.lake.array(table.lake.java.int, *(whole.findField(name).fieldId() for name in rows[0]))
    form = table.lake.iceberg.FileFormat.fromString(kind)
    writer = _appender_factory(table, ids, schema).newEqDeleteWriter(
        _new_file(table, kind), form, _partition_of(table, whole, within)
    )
    for row in rows:
        writer.write(record(table, schema, row))
    writer.close()
    table.java.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


@dataclass(frozen=True, slots=True)
class Lake:
    """Where tables are written.

    Attributes:
        session: of the writers alone: readers have settings of their own.
        folder: for what is no table of a catalog, yet.
    """

    session: SparkSession
    folder: Path

    def run(self, statement: str) -> None:
        """A statement of SQL."""
        self.session.sql(statement).collect()

    @property
    def java(self) -> Any:  # noqa: ANN401 - Java's packages have no types
        """The JVM's packages."""
        return self.session.sparkContext._jvm  # noqa: SLF001 - the way to what SQL has no words for

    @property
    def iceberg(self) -> Any:  # noqa: ANN401 - as above
        """Iceberg's packages."""
        return self.java.org.apache.iceberg

    def load(self, sql_name: str) -> Any:  # noqa: ANN401 - as above
        """A table as Iceberg's own library has it."""
        return self.iceberg.spark.Spark3Util.loadIcebergTable(self.session._jsparkSession, sql_name)  # noqa: SLF001 - as above

    def catalog(self, name: str) -> Any:  # noqa: ANN401 - as above
        """A catalog as Iceberg's own library has it."""
        return self.iceberg.spark.Spark3Util.loadIcebergCatalog(self.session._jsparkSession, name)  # noqa: SLF001 - as above

    def array(self, kind: Any, *values: object) -> Any:  # noqa: ANN401 - as above
        """A Java array."""
        gateway = self.session.sparkContext._gateway  # noqa: SLF001 - as above
        assert gateway is not None
        made = gateway.new_array(kind, len(values))
        for at, value in enumerate(values):
            made[at] = value
        return made


def open_lake(spark: SparkSession, folder: Path) -> Lake:
    """The catalogs.

    Args:
        spark: knows the real catalog as `lake`.
        folder: an empty one.
    """
    lake = Lake(spark.newSession(), folder)
    folders = f"spark.sql.catalog.{HADOOP}"
    catalog = {
        folders: "org.apache.iceberg.spark.SparkCatalog",
        f"{folders}.type": "hadoop",
        f"{folders}.warehouse": (folder / "warehouse").as_uri(),
    }
    for name, value in {**_WRITER_SETTINGS, **catalog}.items():
        lake.session.conf.set(name, value)
    for namespace in (NAMESPACE, f"{NAMESPACE}.deep"):
        lake.run(f"CREATE NAMESPACE {REST}.{namespace}")
    return lake
