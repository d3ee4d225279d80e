"""Reading tables by their directories from PySpark, without a catalog; and bringing those that Spark has to Iceberg.

    import sfn.spark

    spark = sfn.spark.session()
    sfn.spark.read(spark, "/warehouse/sales/orders").where("amount > 100").show()
    sfn.spark.read(spark, "s3://lake/sales/orders", as_of="v1")
    sfn.spark.changes(spark, "/warehouse/sales/orders", "20261122T120000000")
    sfn.spark.view(spark, "/warehouse/sales/orders", "snapshots")
    sfn.spark.manage(spark, "sales.legacy_orders", "order_ts=days, customer_id=bucket[8]")
    spark.readStream.format("sfn-log").load("/warehouse/sales/orders")

It needs `pip install '.[spark]'`; nothing of the service imports it. What lies here is imported when it is
first used: each of Spark's Python processes imports this package on the way to a data source.
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

# None of these modules is called as what it has: once imported, it would itself be found under that name.
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
    # A package that is missing is told in one line, not as whatever imports it first.
    check_packages()
    return getattr(import_module(_WHERE[name]), name)
