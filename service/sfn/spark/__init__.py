"""Reading tables by their directories from PySpark, without a catalog.

    import sfn.spark

    sfn.spark.read(spark, "/warehouse/sales/orders").where("amount > 100").show()
    sfn.spark.read(spark, "s3://lake/sales/orders", as_of="v1")

It needs `pip install 'iceberg-sfn[spark]'`; nothing of the service imports it.
"""

from __future__ import annotations

from sfn.spark.reading import read
from sfn.spark.session import session

__all__ = ["read", "session"]
