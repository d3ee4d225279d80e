"""Reads with Iceberg's runtime."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from pyspark.errors import IllegalArgumentException, UnsupportedOperationException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from sfn.errors import MalformedMetadata, NotSupported
from sfn.facade.tables import DIRECTORY_NAMESPACE
from sfn.spark.asked import ReadRequest
from sfn.spark.iceberg import driver, runtime
from sfn.spark.iceberg.remote import RemoteFacade
from sfn.spark.iceberg.settled import pin_pointer

PINNED_CATALOG, FACADE_CATALOG = "sfn_pinned", "sfn_facade"
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

    def missing_requirement(self, spark: SparkSession) -> str:
        return runtime.missing_runtime(spark)

    def read(self, spark: SparkSession, request: ReadRequest) -> DataFrame:
        runtime.check_runtime(spark)
        uri = spark.conf.get(URI, "")
        if uri:
            remote = RemoteFacade(uri, spark.conf.get(TOKEN, "") or "")
            shown = remote.find_table(request)
            catalog = _register_catalog(spark, FACADE_CATALOG, remote)
            return _read_table(
                _reader_at(spark, shown.version), request.directory, catalog, *DIRECTORY_NAMESPACE, shown.name
            )
        state = pin_pointer(request)
        own = driver.driver_facade()
        catalog = _register_catalog(spark, PINNED_CATALOG, RemoteFacade(own.facade.url, own.facade.token))
        name = own.pinned_tables.add(request, state)
        return _read_table(_reader_at(spark, state.version), state.pointer.key, catalog, *driver.PINNED_NAMESPACE, name)


def _reader_at(spark: SparkSession, version: str | None) -> DataFrameReader:
    return spark.read if version is None else spark.read.option("versionAsOf", version)


def _read_table(reader: DataFrameReader, where: str, *names: str) -> DataFrame:
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


def _register_catalog(spark: SparkSession, name: str, facade: RemoteFacade) -> str:
    """Tell the session of a catalog, which has another name with other properties: Spark opens one but once."""
    properties = _CATALOG | {".uri": facade.uri} | ({".token": facade.token} if facade.token else {})
    own = {
        f".{key.removeprefix(OPTIONS)}": value for key, value in spark.conf.getAll.items() if key.startswith(OPTIONS)
    }
    settings = properties | own
    catalog = f"{name}_{sha256(repr(sorted(settings.items())).encode()).hexdigest()[:_DIGITS]}"
    for key, value in settings.items():
        spark.conf.set(f"{_KEY}{catalog}{key}", value)
    return catalog
