"""Read tables by their directories from PySpark, without a catalog; and turn Spark's tables into Iceberg tables.

    import sfn.spark

    spark = sfn.spark.session()
    sfn.spark.read(spark, "/warehouse/sales/orders").where("amount > 100").show()
    sfn.spark.read(spark, "s3://lake/sales/orders", as_of="v1")
    sfn.spark.changes(spark, "/warehouse/sales/orders", "20261122T120000000")
    sfn.spark.view(spark, "/warehouse/sales/orders", "snapshots")
    sfn.spark.manage(spark, "sales.legacy_orders", "order_ts=days, customer_id=bucket[8]")
    spark.readStream.format("sfn-log").load("/warehouse/sales/orders")

The package needs `pip install '.[spark]'`; the listener does not import it. Each Python worker of Spark imports
this package for a data source. To keep that fast, its modules are imported on first use.

- `read_table`: choose an engine and read. Start here. `request`: `ReadRequest`, and the protocol `Engine`.
- `engine_iceberg`: Iceberg's own library, through a facade. `engine_files`: Spark's Parquet reader, planned by
  PyIceberg (`files_pruning`, `files_schema`). `engine_sfn`: a Python data source, without any jar.
- `time_travel`: pin a table's state: `PinnedTable`, `PinnedScan`. `change_log`: rows appended between two times.
- `source_timeline`: the data source `sfn-log`. `source_options`: the options of both data sources.
- `manage_table`, `manage_target`: turn a Spark table into an Iceberg table. `views`: metadata tables.
- `start`: check requirements, and start a session.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from sfn.spark.start import check_packages

if TYPE_CHECKING:
    from sfn.spark.change_log import changes
    from sfn.spark.manage_table import manage
    from sfn.spark.read_table import read
    from sfn.spark.start import session
    from sfn.spark.views import view

__all__ = ["changes", "manage", "read", "session", "view"]

# No module may have the name of its function: once imported, the module would hide the function.
_WHERE: Final = {
    "changes": "sfn.spark.change_log",
    "manage": "sfn.spark.manage_table",
    "read": "sfn.spark.read_table",
    "session": "sfn.spark.start",
    "view": "sfn.spark.views",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Report a missing package in one line, not as the ImportError of some module.
    check_packages()
    return getattr(import_module(_WHERE[name]), name)
