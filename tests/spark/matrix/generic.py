"""Files that Iceberg's own library writes where Spark has no words for them: equality deletes, and types of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from tests.spark.matrix.table import Table

EVERYWHERE: Final[Mapping[str, object]] = {}
"""Deletes without a partition."""


def record(table: Table, schema: Any, values: Mapping[str, object]) -> Any:  # noqa: ANN401 - Java's
    """A row."""
    made = table.lake.iceberg.data.GenericRecord.create(schema)
    for name, value in values.items():
        made.setField(name, value)
    return made


def _output(table: Table, kind: str) -> Any:  # noqa: ANN401 - Java's
    """A new file of the table."""
    place = f"{table.directory}/data/{uuid4()}.{kind}"
    output = table.java.io().newOutputFile(place)
    return table.lake.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(output)


def _partition(table: Table, schema: Any, row: Mapping[str, object]) -> Any:  # noqa: ANN401 - Java's
    """That of a row; none of a table that has none."""
    spec = table.java.spec()
    if spec.isUnpartitioned():
        return None
    key = table.lake.iceberg.PartitionKey(spec, schema)
    whole = record(table, schema, row)
    key.partition(table.lake.iceberg.data.InternalRecordWrapper(schema.asStruct()).wrap(whole))
    return key


def _factory(table: Table, ids: Any, deleted: Any) -> Any:  # noqa: ANN401 - Java's
    return table.lake.iceberg.data.GenericAppenderFactory(
        table.java, table.java.schema(), table.java.spec(), None, ids, deleted, None
    )


def append(table: Table, rows: Sequence[Mapping[str, object]], kind: str = "parquet") -> None:
    """Commit rows of one partition in one file; values are what Iceberg's generic records hold."""
    schema, form = table.java.schema(), table.lake.iceberg.FileFormat.fromString(kind)
    writer = _factory(table, None, None).newDataWriter(_output(table, kind), form, _partition(table, schema, rows[0]))
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
    writer = _factory(table, ids, schema).newEqDeleteWriter(
        _output(table, kind), form, _partition(table, whole, within)
    )
    for row in rows:
        writer.write(record(table, schema, row))
    writer.close()
    table.java.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
