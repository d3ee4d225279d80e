"""Rows that were changed: copied into new files, or deleted by files that say so."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from tests.spark.matrix.feature import Feature
from tests.spark.matrix.table import BEFORE, Look, Table

COLUMNS: Final = "id INT, item STRING"
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


def create(
    table: Table, mode: str, version: int = 2, columns: str = COLUMNS, by: str = "", kind: str = "parquet"
) -> None:
    """A table whose rows are changed in a mode."""
    told = {"format-version": str(version), "write.format.default": kind, "write.delete.format.default": kind}
    table.create(columns, by, told | dict.fromkeys(_MODES, mode))


def changed(table: Table, statement: str, mode: str, version: int = 2, kind: str = "parquet") -> Iterable[Look]:
    create(table, mode, version, kind=kind)
    table.insert(*ROWS)
    old = table.snapshot
    table.run(statement)
    assert bool(table.delete_files()) is (mode == "merge-on-read")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


def overwritten(table: Table) -> Iterable[Look]:
    table.create(COLUMNS, "item")
    table.insert(*ROWS)
    table.run("INSERT OVERWRITE {t} VALUES (5, 'pear'), (6, NULL)")
    yield table.now()


def replaced(table: Table) -> Iterable[Look]:
    table.create(COLUMNS)
    table.insert(*ROWS)
    old = table.snapshot
    table.run("CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT 'x' AS id, 1.5D AS price")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


def both(table: Table) -> Iterable[Look]:
    """Position deletes of version 2, then deletion vectors, of which one takes in what was deleted before."""
    create(table, "merge-on-read")
    table.insert(*ROWS)
    table.insert("(5, 'kiwi')", "(6, 'lime')")
    table.run("DELETE FROM {t} WHERE id IN (2, 5)")
    table.run("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')", "DELETE FROM {t} WHERE id = 3")
    yield table.now()


def after_changes(table: Table, version: int) -> Iterable[Look]:
    """Deletes of partitions, under a schema that changes between them."""
    create(table, "merge-on-read", version, by="truncate(1, item)")
    table.insert(*ROWS, "(5, 'peach')")
    table.run("DELETE FROM {t} WHERE id = 2", "ALTER TABLE {t} RENAME COLUMN item TO fruit")
    table.run("ALTER TABLE {t} DROP COLUMN id", "ALTER TABLE {t} ADD COLUMN id BIGINT")
    table.insert("('plum', 7)", "('pea', 8)")
    table.run("DELETE FROM {t} WHERE id = 7")
    yield table.now()


def compacted(table: Table, version: int) -> Iterable[Look]:
    create(table, "merge-on-read", version)
    table.insert(*ROWS)
    table.insert("(5, 'kiwi')", "(6, 'lime')")
    table.run("DELETE FROM {t} WHERE id IN (2, 5)")
    old = table.snapshot
    table.run("CALL {system}.rewrite_data_files(table => {q}, options => map('rewrite-all', 'true'))")
    yield table.now()
    yield table.at_snapshot(old, BEFORE)


FEATURES: Final = (
    *(
        Feature(f"copy-on-write: {name}", partial(changed, statement=statement, mode="copy-on-write"))
        for name, statement in STATEMENTS.items()
    ),
    *(
        Feature(f"position deletes: {name}", partial(changed, statement=statement, mode="merge-on-read"))
        for name, statement in STATEMENTS.items()
    ),
    *(
        Feature(
            f"position deletes in {kind}",
            partial(changed, statement=STATEMENTS["DELETE"], mode="merge-on-read", kind=kind.lower()),
        )
        for kind in ("ORC", "Avro")
    ),
    *(
        Feature(f"deletion vectors: {name}", partial(changed, statement=statement, mode="merge-on-read", version=3))
        for name, statement in STATEMENTS.items()
    ),
    Feature("position deletes, partitions, another schema", partial(after_changes, version=2)),
    Feature("deletion vectors, partitions, another schema", partial(after_changes, version=3)),
    Feature("deletion vectors beside position deletes", both),
    Feature("position deletes, then compaction", partial(compacted, version=2)),
    Feature("deletion vectors, then compaction", partial(compacted, version=3)),
    Feature("dynamic overwrite", overwritten),
    Feature("CREATE OR REPLACE", replaced),
)
