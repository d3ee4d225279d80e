"""A catalog that PyIceberg opens: a SQL database, AWS Glue, a Hive metastore, DynamoDB, or one of somebody's own.

PyIceberg is an optional dependency: it is imported where such a catalog is configured, and nowhere else.
"""

from sfn.catalog.library.catalog import PyIcebergCatalog, check_can_open
from sfn.catalog.library.settings import PyIcebergSettings

__all__ = ["PyIcebergCatalog", "PyIcebergSettings", "check_can_open"]
