"""Features of changed rows: copy-on-write, position deletes, deletion vectors and equality deletes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tests.spark.matrix.table import BEFORE, COLUMNS, Feature, State, Table, delete_equal

ROWS: Final = ("(1, 'apple')", "(2, 'pear')", "(3, NULL)", "(4, 'fig')")
_MODES: Final = ("write.delete.mode", "write.update.mode", "write.merge.mode")
STATEMENTS: Final = {
    "DELETE": "DELETE FROM {t} WHERE id = 2",
    "UPDATE": "UPDATE {t} SET item = 'plum' WHERE id = 2",
    "MERGE": (
        "MERGE INTO {t} t USING (SELECT * FROM VALUES (1, 'x'), (2, 'plum'), (9, 'kiwi') AS s(id, item)) s "
        "ON t.id = s.id "
        "WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ),
}


def create_with_mode(
    table: Table, mode: str, version: int = 2, columns: str = COLUMNS, by: str = "", kind: str = "parquet"
) -> None:
    """Create a table that changes rows by copy-on-write or merge-on-read."""
    properties = {"format-version": str(version), "write.format.default": kind, "write.delete.format.default": kind}
    table.create(columns, by, properties | dict.fromkeys(_MODES, mode))


def changed_by(table: Table, statement: str, mode: str, version: int = 2, kind: str = "parquet") -> Iterable[State]:
    create_with_mode(table, mode, version, kind=kind)
    table.insert(*ROWS)
    old = table.snapshot
    table.run(statement)
    assert bool(table.delete_files()) is (mode == "merge-on-read")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


def overwritten(table: Table) -> Iterable[State]:
    table.create(COLUMNS, "item")
    table.insert(*ROWS)
    table.run("INSERT OVERWRITE {t} VALUES (5, 'pear'), (6, NULL)")
    yield table.now()


def replaced(table: Table) -> Iterable[State]:
    table.create(COLUMNS)
    table.insert(*ROWS)
    old = table.snapshot
    table.run("CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT 'x' AS id, 1.5D AS price")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


def position_deletes_then_vectors(table: Table) -> Iterable[State]:
    """Position deletes of version 2, then deletion vectors, of which one takes in what was deleted before."""
    create_with_mode(table, "merge-on-read")
    table.insert(*ROWS)
    table.insert("(5, 'kiwi')", "(6, 'lime')")
    table.run("DELETE FROM {t} WHERE id IN (2, 5)")
    table.run("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')", "DELETE FROM {t} WHERE id = 3")
    yield table.now()


def deleted_under_changed_schema(table: Table, version: int) -> Iterable[State]:
    """Deletes of partitions, under a schema that changes between them."""
    create_with_mode(table, "merge-on-read", version, by="truncate(1, item)")
    table.insert(*ROWS, "(5, 'peach')")
    table.run("DELETE FROM {t} WHERE id = 2", "ALTER TABLE {t} RENAME COLUMN item TO fruit")
    table.run("ALTER TABLE {t} DROP COLUMN id", "ALTER TABLE {t} ADD COLUMN id BIGINT")
    table.insert("('plum', 7)", "('pea', 8)")
    table.run("DELETE FROM {t} WHERE id = 7")
    yield table.now()


def changed_then_compacted(table: Table, version: int) -> Iterable[State]:
    create_with_mode(table, "merge-on-read", version)
    table.insert(*ROWS)
    table.insert("(5, 'kiwi')", "(6, 'lime')")
    table.run("DELETE FROM {t} WHERE id IN (2, 5)")
    old = table.snapshot
    table.run("CALL {system}.rewrite_data_files(table => {q}, options => map('rewrite-all', 'true'))")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


ROW_CHANGES: Final = (
    *(
        Feature(f"copy-on-write: {name}", partial(changed_by, statement=statement, mode="copy-on-write"))
        for name, statement in STATEMENTS.items()
    ),
    *(
        Feature(f"position deletes: {name}", partial(changed_by, statement=statement, mode="merge-on-read"))
        for name, statement in STATEMENTS.items()
    ),
    *(
        Feature(
            f"position deletes in {kind}",
            partial(changed_by, statement=STATEMENTS["DELETE"], mode="merge-on-read", kind=kind.lower()),
        )
        for kind in ("ORC", "Avro")
    ),
    *(
        Feature(f"deletion vectors: {name}", partial(changed_by, statement=statement, mode="merge-on-read", version=3))
        for name, statement in STATEMENTS.items()
    ),
    Feature("position deletes, partitions, another schema", partial(deleted_under_changed_schema, version=2)),
    Feature("deletion vectors, partitions, another schema", partial(deleted_under_changed_schema, version=3)),
    Feature("deletion vectors beside position deletes", position_deletes_then_vectors),
    Feature("position deletes, then compaction", partial(changed_then_compacted, version=2)),
    Feature("deletion vectors, then compaction", partial(changed_then_compacted, version=3)),
    Feature("dynamic overwrite", overwritten),
    Feature("CREATE OR REPLACE", replaced),
)


def equal_rows_deleted(table: Table, version: int = 2, kind: str = "parquet") -> Iterable[State]:
    """Later rows stay, also one that is equal to a deleted row."""
    create_with_mode(table, "merge-on-read", version, kind=kind)
    table.insert(*ROWS)
    old = table.snapshot
    delete_equal(table, {"id": 2}, {"id": 3}, kind=kind)
    table.insert("(2, 'pear again')")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


def nulls_deleted(table: Table) -> Iterable[State]:
    """Two columns are compared, and null equals null."""
    create_with_mode(table, "merge-on-read")
    table.insert(*ROWS)
    delete_equal(table, {"id": 3, "item": None}, {"id": 1, "item": "pear"})
    yield table.now()


def deleted_in_partition(table: Table) -> Iterable[State]:
    create_with_mode(table, "merge-on-read", columns="id INT, item STRING, region STRING", by="region")
    table.insert("(1, 'apple', 'n')", "(2, 'pear', 'n')", "(1, 'fig', 's')")
    delete_equal(table, {"id": 1}, within={"region": "n"})
    yield table.now()


def column_dropped(table: Table) -> Iterable[State]:
    """What was compared is in no schema of now."""
    create_with_mode(table, "merge-on-read")
    table.insert(*ROWS)
    delete_equal(table, {"item": "pear"})
    table.run("ALTER TABLE {t} DROP COLUMN item")
    yield table.now()


def renamed_and_widened(table: Table) -> Iterable[State]:
    create_with_mode(table, "merge-on-read")
    table.insert(*ROWS)
    delete_equal(table, {"id": 2})
    table.run("ALTER TABLE {t} RENAME COLUMN id TO number", "ALTER TABLE {t} ALTER COLUMN number TYPE BIGINT")
    yield table.now()


def equality_and_position_deletes(table: Table, version: int) -> Iterable[State]:
    create_with_mode(table, "merge-on-read", version)
    table.insert(*ROWS)
    delete_equal(table, {"id": 1})
    table.run("DELETE FROM {t} WHERE id = 2")
    yield table.now()


def equality_deletes_compacted(table: Table) -> Iterable[State]:
    """The current snapshot has no equality deletes; the one before has them."""
    create_with_mode(table, "merge-on-read")
    table.insert(*ROWS)
    delete_equal(table, {"id": 2})
    old = table.snapshot
    options = "map('rewrite-all', 'true', 'remove-dangling-deletes', 'true', 'use-starting-sequence-number', 'false')"
    table.run(f"CALL {{system}}.rewrite_data_files(table => {{q}}, options => {options})")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


EQUALITY_DELETES: Final = (
    Feature("equality deletes", equal_rows_deleted),
    Feature("equality deletes (v3)", partial(equal_rows_deleted, version=3)),
    Feature("equality deletes in Avro", partial(equal_rows_deleted, kind="avro")),
    Feature("equality deletes of nulls, by two columns", nulls_deleted),
    Feature("equality deletes in a partition", deleted_in_partition),
    Feature("equality deletes by a column that was dropped", column_dropped),
    Feature("equality deletes by a column that was renamed and widened", renamed_and_widened),
    Feature("equality deletes beside position deletes", partial(equality_and_position_deletes, version=2)),
    Feature("equality deletes beside deletion vectors", partial(equality_and_position_deletes, version=3)),
    Feature("equality deletes, then compaction", equality_deletes_compacted),
)
"""No SQL of Spark writes equality deletes. Flink and other engines do."""
