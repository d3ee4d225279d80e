"""The classic walk: after each statement, exactly these files, and how they refer to each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.spark.tour.chapter import Chapter
from tests.spark.tour.inspection import Inspection, name
from tests.spark.tour.place import GATED, NAMESPACE
from tests.spark.tour.stage import Stage
from tests.spark.tour.table import Table

_COLUMNS: Final = "order_id BIGINT, customer_id BIGINT, order_amount DECIMAL(10, 2), order_ts TIMESTAMP"
_MERGE: Final = (
    f"MERGE INTO {{t}} o USING (SELECT * FROM {GATED}.{NAMESPACE}.orders_staging) s ON o.order_id = s.order_id "
    "WHEN MATCHED THEN UPDATE SET order_amount = s.order_amount WHEN NOT MATCHED THEN INSERT *"
)
_FORGET: Final = (
    "ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true', "
    "'write.metadata.previous-versions-max' = '2')"
)


def run(stage: Stage) -> None:
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
    before = orders.lying("metadata/*.metadata.json")
    orders.run(_FORGET)
    after = _walk(orders, metadata=3, lists=2, manifests=3, data=3)
    gone = before - orders.lying("metadata/*.metadata.json")
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


def _walk(table: Table, **lying: int) -> Inspection:
    """Check that `sfn inspect`, the directory and the catalog's metadata tables name the same files.

    Args:
        lying: how many files of each kind.
    """
    narrator = table.stage.narrator
    shown = table.inspect(shown=True)
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
    found = {kind: table.lying(pattern) for kind, pattern in patterns.items()}
    narrator.check(
        f"in the directory: {', '.join(f'{number} {kind}' for kind, number in lying.items())}",
        expected=lying,
        found={kind: len(files) for kind, files in found.items()},
    )
    narrator.check("these are the files that the catalog names", expected=named, found=found)
    current = _current(table)
    narrator.check(
        "sfn inspect shows the current files",
        expected=(name(table.pointer), *current),
        found=(shown.metadata, shown.manifest_list, shown.manifests, shown.data),
    )
    return shown


def _current(table: Table) -> tuple[str | None, frozenset[str], frozenset[str]]:
    """Manifest list, manifests and data files of the current snapshot, by the catalog's metadata tables."""
    head = "SELECT s.manifest_list FROM {t}.snapshots s JOIN {t}.refs r USING (snapshot_id) WHERE r.name = 'main'"
    return (
        next(iter(_names(table, head)), None),
        _names(table, "SELECT path FROM {t}.manifests"),
        _names(table, "SELECT file_path FROM {t}.data_files"),
    )


def _names(table: Table, query: str) -> frozenset[str]:
    paths: Iterable[object] = (row[0] for row in table.asked(query))
    return frozenset(name(str(path)) for path in paths)


CHAPTER: Final = Chapter("walk", "The classic walk from metadata file to data, statement by statement", run)
