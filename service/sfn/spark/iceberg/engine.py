"""Reads with Iceberg's runtime."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from pyspark.errors import IllegalArgumentException, UnsupportedOperationException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from sfn.errors import MalformedMetadata, NotSupported
from sfn.facade.directories import NAMESPACE
from sfn.spark.asked import Asked
from sfn.spark.iceberg import driver, runtime
from sfn.spark.iceberg.remote import Remote
from sfn.spark.iceberg.settled import settled

PINNED, FACADE = "sfn_pinned", "sfn_facade"
"""What Spark calls the catalog in the driver, and one elsewhere."""
OPTIONS: Final = "spark.sfn.iceberg."
"""What follows it in a session's configuration is a property of these catalogs, such as `s3.endpoint`."""
URI, TOKEN = "spark.sfn.facade.uri", "spark.sfn.facade.token"
"""A facade elsewhere, instead of the driver's own, and a reader's token of it."""

_DIGITS: Final = 12
_KEY: Final = "spark.sql.catalog."
_CATALOG: Final = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".cache-enabled": "false"}


class IcebergEngine:
    """Implements `Engine`. Reads whatever Iceberg's runtime reads.

    With a facade elsewhere a branch is looked up by Spark, when it plans a query; snapshots and times are settled now.
    """

    name: Final = "iceberg"

    def why_not(self, spark: SparkSession) -> str:
        return runtime.missing(spark)

    def read(self, spark: SparkSession, asked: Asked) -> DataFrame:
        runtime.check(spark)
        uri = spark.conf.get(URI, "")
        if uri:
            remote = Remote(uri, spark.conf.get(TOKEN, "") or "")
            shown = remote.shown(asked)
            catalog = _configured(spark, FACADE, remote)
            return _table(_at(spark, shown.version), asked.directory, catalog, *NAMESPACE, shown.name)
        state = settled(asked)
        own = driver.driver()
        catalog = _configured(spark, PINNED, Remote(own.facade.url, own.facade.token))
        name = own.pins.add(asked, state)
        return _table(_at(spark, state.version), state.pointer.key, catalog, *driver.NAMESPACE, name)


def _at(spark: SparkSession, version: str | None) -> DataFrameReader:
    return spark.read if version is None else spark.read.option("versionAsOf", version)


def _table(reader: DataFrameReader, where: str, *names: str) -> DataFrame:
    """The rows of a table.

    Args:
        where: its metadata file, or its directory.

    Raises:
        NotSupported: it has a column of a type that Spark has not.
        MalformedMetadata: Iceberg's library refuses the metadata, such as a branch at a snapshot that is not there.
    """
    try:
        return reader.table(".".join(f"`{name.replace('`', '``')}`" for name in names))
    except UnsupportedOperationException as error:
        found = str(error).partition("\n")[0]
        raise NotSupported(where, expected="columns of types that Spark has", found=found) from error
    except IllegalArgumentException as error:
        found, remedy = str(error).partition("\n")[0], "`sfn verify` lists what is wrong with the table"
        raise MalformedMetadata(where, expected="metadata that Iceberg can read", found=found, remedy=remedy) from error


def _configured(spark: SparkSession, name: str, facade: Remote) -> str:
    """Tell the session of a catalog, which has another name with other properties: Spark opens one but once."""
    properties = _CATALOG | {".uri": facade.uri} | ({".token": facade.token} if facade.token else {})
    own = {
        f".{key.removeprefix(OPTIONS)}": value for key, value in spark.conf.getAll.items() if key.startswith(OPTIONS)
    }
    told = properties | own
    catalog = f"{name}_{sha256(repr(sorted(told.items())).encode()).hexdigest()[:_DIGITS]}"
    for key, value in told.items():
        spark.conf.set(f"{_KEY}{catalog}{key}", value)
    return catalog
