"""Chapters that read: files that a query opens, earlier states of a table, and all files of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import sfn.spark
from sfn.sfnfile.document import render_ordinal
from tests.spark.tour.stage import GATED, LAKE, NAMESPACE, SFN, Chapter, Stage, rows, table_lines
from tests.spark.tour.table import Inspection, Table, file_name

_ALL: Final = ("id", "amount", "note", "at")
_INSERTS: Final = (
    "(1, 10, 'a', TIMESTAMP '2026-11-01 08:00:00'), (2, 20, 'b', TIMESTAMP '2026-11-01 09:00:00')",
    "(3, 300, 'c', TIMESTAMP '2026-11-01 10:00:00'), (4, 400, 'd', TIMESTAMP '2026-11-01 11:00:00')",
    "(5, 50, 'e', TIMESTAMP '2026-11-02 08:00:00')",
    "(6, 60, 'f', TIMESTAMP '2026-11-03 08:00:00')",
)


@dataclass(frozen=True, slots=True)
class _Query:
    """A query with its expected result.

    Attributes:
        opened: manifests, and data files.
    """

    title: str
    text: str
    ids: list[int]
    opened: tuple[int, int]
    columns: tuple[str, ...]


_QUERIES: Final = (
    _Query("no predicate", "SELECT * FROM {t}", [1, 2, 3, 4, 5, 6], (4, 4), _ALL),
    _Query(
        "a predicate on the column that hidden partitions are made of",
        "SELECT * FROM {t} WHERE at >= TIMESTAMP '2026-11-03 00:00:00'",
        [6],
        (1, 1),
        _ALL,
    ),
    _Query(
        "hours of one day, which only one file's statistics contain",
        "SELECT * FROM {t} WHERE at BETWEEN TIMESTAMP '2026-11-01 08:30:00' AND TIMESTAMP '2026-11-01 09:30:00'",
        [2],
        (2, 1),
        _ALL,
    ),
    _Query(
        "a predicate on a column that no partition is made of",
        "SELECT * FROM {t} WHERE amount > 100",
        [3, 4],
        (4, 1),
        _ALL,
    ),
    _Query("one column", "SELECT id FROM {t}", [1, 2, 3, 4, 5, 6], (4, 4), ("id",)),
    _Query(
        "partition, file and column at once",
        "SELECT id FROM {t} WHERE at < TIMESTAMP '2026-11-02 00:00:00' AND amount < 15",
        [1],
        (2, 1),
        ("id", "amount", "at"),
    ),
)


def select_rows(stage: Stage) -> None:
    """Read with predicates, and check which partitions, files and columns are not read."""
    stage.narrator.step("A table with three days in four files, one per commit")
    table = Table(stage, "events")
    table.create("id BIGINT, amount INT, note STRING, at TIMESTAMP", "days(at)")
    table.run(*(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}" for values in _INSERTS))
    stage.narrator.step("The files that a query through `sfn` opens, by the metrics of its plan")
    for query in _QUERIES:
        _check_opened_files(table, query)
    stage.narrator.step("The same with one manifest for all files: its statistics exclude files")
    table.call("rewrite_manifests")
    merged = table.scan("SELECT * FROM {t} WHERE at >= TIMESTAMP '2026-11-03 00:00:00'")
    stage.narrator.check(
        "one manifest read; one file read, three excluded",
        expected=(1, 1, 3),
        found=(merged.manifests, merged.files, merged.skipped),
    )


def _check_opened_files(table: Table, query: _Query) -> None:
    narrator = table.stage.narrator
    narrator.note(query.title)
    narrator.show(f"> {query.text.replace('{t}', f'sfn.{table.identifier}')}")
    found, catalogs = table.scan(query.text), table.scan(query.text, LAKE)
    ids = [row[0] for row in found.rows]
    narrator.check("the rows are right", expected=(query.ids, catalogs.rows), found=(ids, found.rows))
    narrator.check("only the necessary files are opened", expected=query.opened, found=(found.manifests, found.files))
    narrator.check("no other column is read", expected=set(query.columns), found=set(found.columns))
    narrator.check("the same through the catalog itself", expected=catalogs, found=found)
    narrator.show(
        *table_lines(
            ["manifests read", "files read", "files in the table", "columns read"],
            [
                (
                    found.manifests,
                    found.files,
                    len(table.catalog_rows("SELECT file_path FROM {t}.files")),
                    ", ".join(found.columns),
                )
            ],
        )
    )


SELECT: Final = Chapter("select", "Select: partitions, files and columns that are not read", select_rows)


def read_earlier_states(stage: Stage) -> None:
    """Read earlier states of a table: by snapshot, time, branch, tag and Ordinal."""
    stage.narrator.step("A table with a tag, a branch with a commit of its own, and a later column")
    table = Table(stage, "prices")
    table.create("id BIGINT, price DECIMAL(9, 2)")
    ordinals = []
    for text in ("INSERT INTO {t} VALUES (1, 10.50)", "INSERT INTO {t} VALUES (2, 20.50)"):
        table.run(text)
        ordinals.append(_ordinal(table))
    table.run("ALTER TABLE {t} CREATE TAG v1", "ALTER TABLE {t} CREATE BRANCH audit")
    table.run("INSERT INTO {t}.branch_audit VALUES (9, 90.50)")
    table.run("ALTER TABLE {t} ADD COLUMN note STRING", "INSERT INTO {t} VALUES (3, 30.50, 'third')")
    first, second, *_ = table.snapshots()
    stage.narrator.step("VERSION AS OF, TIMESTAMP AS OF; a tag, a branch")
    for clause, expected in {
        f"VERSION AS OF {first}": [1],
        f"TIMESTAMP AS OF '{_committed(table, second)}'": [1, 2],
        "VERSION AS OF 'v1'": [1, 2],
        "VERSION AS OF 'audit'": [1, 2, 9],
        "": [1, 2, 3],
    }.items():
        found = table.same(f"SELECT * FROM {{t}} {clause}".rstrip())
        stage.narrator.check(f"ids {expected}", expected=expected, found=[row[0] for row in found])
    stage.narrator.step("The same by directory, without a name in a catalog")
    query = f"SELECT id FROM {SFN}.dir.`{table.directory}` VERSION AS OF 'audit'"
    found = stage.run(query)
    stage.narrator.check("ids of the branch", expected=[(1,), (2,), (9,)], found=found)
    _by_ordinal(table, dict(zip(ordinals, (first, second), strict=True)))


def _by_ordinal(table: Table, moments: dict[str, int]) -> None:
    """Read by an Ordinal, which is a time of the catalog: states without a new snapshot have one, too."""
    narrator, session = table.stage.narrator, table.stage.place.session
    narrator.step("As of an Ordinal, with sfn.spark.read")
    for ordinal, snapshot in moments.items():
        narrator.show(f">>> sfn.spark.read(spark, '{table.directory}', as_of='{ordinal}')")
        read = sfn.spark.read(session, table.directory, as_of=ordinal)
        expected = rows(table.frame(f"SELECT * FROM {{t}} VERSION AS OF {snapshot}", LAKE))
        narrator.check(f"the rows of snapshot {snapshot}", expected=expected, found=rows(read))
        narrator.show(*table_lines(read.columns, expected))
    now = sfn.spark.read(session, table.directory, as_of=_ordinal(table))
    narrator.check(
        "the present Ordinal gives the present table", expected=table.catalog_rows("SELECT * FROM {t}"), found=rows(now)
    )


def _ordinal(table: Table) -> str:
    """Of the metadata file that is current."""
    return render_ordinal(table.stage.place.client.load_table(table.identifier).metadata.last_updated_ms)


def _committed(table: Table, snapshot: int) -> str:
    found = table.stage.place.client.load_table(table.identifier).snapshot_by_id(snapshot)
    assert found is not None
    return f"{datetime.fromtimestamp(found.timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"


AS_OF: Final = Chapter("as-of", "As of: snapshot, time, branch, tag and Ordinal", read_earlier_states)


_COLUMNS: Final = "order_id BIGINT, customer_id BIGINT, order_amount DECIMAL(10, 2), order_ts TIMESTAMP"
_MERGE: Final = (
    f"MERGE INTO {{t}} o USING (SELECT * FROM {GATED}.{NAMESPACE}.orders_staging) s ON o.order_id = s.order_id "
    "WHEN MATCHED THEN UPDATE SET order_amount = s.order_amount WHEN NOT MATCHED THEN INSERT *"
)
_DELETE_OLD_METADATA: Final = (
    "ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true', "
    "'write.metadata.previous-versions-max' = '2')"
)


def walk_to_data(stage: Stage) -> None:
    """Run statements, and check after each which files the table has and how they refer to each other."""
    narrator = stage.narrator
    narrator.step("CREATE TABLE: one metadata file, and no snapshot")
    orders = Table(stage, "orders")
    orders.create(_COLUMNS, "hours(order_ts)")
    _walk(orders, metadata=1, lists=0, manifests=0, data=0)
    narrator.step("INSERT: a metadata file, a manifest list, a manifest, a data file")
    orders.run("INSERT INTO {t} VALUES (123, 456, 36.17, TIMESTAMP '2021-01-26 08:10:23')")
    first = _walk(orders, metadata=2, lists=1, manifests=1, data=1)
    hours = {(("order_ts_hour", "2021-01-26-08"),)}
    narrator.check("the row is in the partition of its hour", expected=hours, found=first.partitions)
    narrator.step("A table with rows to merge")
    staging = Table(stage, "orders_staging")
    staging.create(_COLUMNS)
    staging.run(
        "INSERT INTO {t} VALUES (123, 456, 50.00, TIMESTAMP '2021-01-26 08:10:23'), "
        "(124, 326, 60.00, TIMESTAMP '2021-01-27 10:21:46')"
    )
    narrator.step("MERGE: copy-on-write, so the updated order gets another data file")
    orders.run(_MERGE)
    merged = _walk(orders, metadata=3, lists=2, manifests=3, data=3)
    narrator.check(
        "two live data files, none of them the first",
        expected=(2, set()),
        found=(len(merged.data), merged.data & first.data),
    )
    hours |= {(("order_ts_hour", "2021-01-27-10"),)}
    narrator.check("one in each hour", expected=hours, found=merged.partitions)
    _select(orders)
    narrator.step("Garbage collection: the first metadata file is deleted; data and older snapshots stay")
    before = orders.file_names("metadata/*.metadata.json")
    orders.run(_DELETE_OLD_METADATA)
    after = _walk(orders, metadata=3, lists=2, manifests=3, data=3)
    gone = before - orders.file_names("metadata/*.metadata.json")
    narrator.check("the first file was deleted", expected={min(before)}, found=gone)
    narrator.check("no data changed", expected=merged.data, found=after.data)
    orders.same(f"SELECT * FROM {{t}} VERSION AS OF {orders.snapshots()[0]}")


def _select(orders: Table) -> None:
    narrator = orders.stage.narrator
    narrator.step("SELECT, of all and of one day")
    amounts = [f"{row[2]}" for row in orders.same("SELECT * FROM {t}")]
    narrator.check("the amounts as merged", expected=["50.00", "60.00"], found=amounts)
    day = "SELECT order_id FROM {t} WHERE order_ts >= TIMESTAMP '2021-01-27 00:00:00'"
    orders.same(day)
    scan = orders.scan(day)
    narrator.check("one file is read", expected=(1, [(124,)]), found=(scan.files, scan.rows))


def _walk(table: Table, **counts: int) -> Inspection:
    """Check that `sfn inspect`, the directory and the catalog's metadata tables name the same files.

    Args:
        counts: the number files of each kind.
    """
    narrator = table.stage.narrator
    inspection = table.inspect(printed=True)
    named = {
        "metadata": _names(table, "SELECT file FROM {t}.metadata_log_entries"),
        "lists": _names(table, "SELECT manifest_list FROM {t}.snapshots"),
        "manifests": _names(table, "SELECT path FROM {t}.all_manifests"),
        "data": _names(table, "SELECT file_path FROM {t}.all_data_files"),
    }
    patterns = {
        "metadata": "metadata/*.metadata.json",
        "lists": "metadata/snap-*.avro",
        "manifests": "metadata/*-m*.avro",
        "data": "data/**/*.parquet",
    }
    found = {kind: table.file_names(pattern) for kind, pattern in patterns.items()}
    narrator.check(
        f"in the directory: {', '.join(f'{number} {kind}' for kind, number in counts.items())}",
        expected=counts,
        found={kind: len(files) for kind, files in found.items()},
    )
    narrator.check("these are the files that the catalog names", expected=named, found=found)
    current = _current(table)
    narrator.check(
        "sfn inspect shows the current files",
        expected=(file_name(table.pointer), *current),
        found=(inspection.metadata, inspection.manifest_list, inspection.manifests, inspection.data),
    )
    return inspection


def _current(table: Table) -> tuple[str | None, frozenset[str], frozenset[str]]:
    """Manifest list, manifests and data files of the current snapshot, by the catalog's metadata tables."""
    head = "SELECT s.manifest_list FROM {t}.snapshots s JOIN {t}.refs r USING (snapshot_id) WHERE r.name = 'main'"
    return (
        next(iter(_names(table, head)), None),
        _names(table, "SELECT path FROM {t}.manifests"),
        _names(table, "SELECT file_path FROM {t}.data_files"),
    )


def _names(table: Table, query: str) -> frozenset[str]:
    paths: Iterable[object] = (row[0] for row in table.catalog_rows(query))
    return frozenset(file_name(str(path)) for path in paths)


WALK: Final = Chapter("walk", "The classic walk from metadata file to data, statement by statement", walk_to_data)
