"""What a session must have before its tables can come under management."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from sfn.errors import NotInstalled, suggest_name
from sfn.spark.iceberg import runtime
from sfn.spark.managing.existing import SESSION_CATALOG
from sfn.spark.managing.refusals import Unmanageable
from sfn.spark.starting import ICEBERG_EXTENSIONS

_KEY: Final = "spark.sql.catalog."
_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
_IN_PLACE: Final = "org.apache.iceberg.spark.SparkSessionCatalog"


def check_session(spark: SparkSession) -> None:
    """Refuse a session that lacks Iceberg.

    Raises:
        NotInstalled: it has no runtime of Iceberg's, or not its extensions of SQL.
    """
    runtime.check_runtime(spark, otherwise="")
    check_extensions(spark.conf.get("spark.sql.extensions", "") or "")


def check_extensions(found: str) -> None:
    """Refuse extensions of SQL, with commas between, that lack Iceberg's.

    Raises:
        NotInstalled: they do.
    """
    if ICEBERG_EXTENSIONS not in [name.strip() for name in found.split(",")]:
        raise NotInstalled(
            "Spark",
            expected="Iceberg's extensions of SQL",
            found=f"spark.sql.extensions={found}" if found else "no spark.sql.extensions",
            remedy=f"start the session with spark.sql.extensions={ICEBERG_EXTENSIONS}, which it takes only then",
        )


def check_in_place(spark: SparkSession, table: str) -> None:
    """Refuse a session whose own catalog can't have a table of Iceberg's instead of one of Spark's.

    Raises:
        Unmanageable: it is another one than Iceberg's.
    """
    key = f"{_KEY}{SESSION_CATALOG}"
    found = spark.conf.get(key, None)
    if found != _IN_PLACE:
        remedy = (
            f"set {key}={_IN_PLACE}, {key}.type=rest and {key}.uri=<the catalog's> (or type=hive) before the session "
            "uses Iceberg there, or give snapshot_as"
        )
        raise Unmanageable(
            table, expected="Iceberg's catalog as that of the session", found=found or "Spark's own", remedy=remedy
        )


def check_catalog(spark: SparkSession, table: str, catalog: str) -> None:
    """Refuse a catalog that is not Iceberg's.

    Raises:
        Unmanageable: the session has none of that name.
    """
    conf = spark.conf.getAll
    known = sorted(
        key.removeprefix(_KEY)
        for key, value in conf.items()
        if key.startswith(_KEY) and "." not in key.removeprefix(_KEY) and value in (_CATALOG, _IN_PLACE)
    )
    if catalog not in known:
        remedy = suggest_name(catalog, known) or f"set {_KEY}{catalog}={_CATALOG}, {_KEY}{catalog}.type=rest and ….uri"
        raise Unmanageable(table, expected="a snapshot in a catalog of Iceberg's", found=catalog, remedy=remedy)
