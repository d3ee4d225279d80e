"""A catalog that PyIceberg opens: a SQL database, AWS Glue, a Hive metastore, DynamoDB, or one of somebody's own.

PyIceberg is an optional dependency: it is imported where such a catalog is configured, and nowhere else.
"""

from sfn.catalog.library.catalog import LibraryCatalog, check
from sfn.catalog.library.settings import LibrarySettings

__all__ = ["LibraryCatalog", "LibrarySettings", "check"]
