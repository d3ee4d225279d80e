"""The shared parts of all chapters: a real catalog, a listener with a gateway and a facade, and a Spark session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from sfn.demo.environment import RestCatalogServer, RunningService, running_service

NAMESPACE: Final = "tour"
LAKE, GATED, SFN, FOLDERS = "lake", "gated", "sfn", "folders"
"""The catalog itself, the same through the service's gateway, the facade, and a catalog that is nothing but folders."""

_SETTINGS: Final = {
    "spark.sql.sources.partitionOverwriteMode": "static",
    # Tables of a handful of rows: compiling a plan would take longer than running it.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where tables live.

    Attributes:
        session: knows the catalogs by the names above.
        service: sees what passes its gateway.
        client: of the catalog itself, for what it says.
        warehouse: the folder that all tables lie below, those of the catalog of folders too.
    """

    session: SparkSession
    service: RunningService
    client: Catalog
    warehouse: Path


@contextmanager
def place(spark: SparkSession, catalog: RestCatalogServer, folder: Path) -> Iterator[Place]:
    """Run a listener, with a session of its own.

    Args:
        spark: knows the catalog as `lake`, which has no namespace `tour` yet.
        folder: an empty one, for what the service keeps.
    """
    followed = copy(catalog)
    # Other tests have tables there too, whose files they write themselves.
    followed.settings = f'{catalog.settings}\ninclude = ["{NAMESPACE}.**"]'
    warehouse = Path(catalog.warehouse.removeprefix("file://"))
    with running_service(folder, followed) as service, catalog.client() as client:
        session = spark.newSession()
        properties = {
            **_SETTINGS,
            **_catalog(GATED, type="rest", uri=f"{service.gateway}"),
            **_catalog(SFN, type="rest", uri=service.facade, token=service.reader_token),
            **_catalog(FOLDERS, type="hadoop", warehouse=f"{catalog.warehouse}/{FOLDERS}"),
        }
        for name, value in properties.items():
            session.conf.set(name, value)
        session.sql(f"CREATE NAMESPACE {GATED}.{NAMESPACE}")
        yield Place(session, service, client, warehouse)


def _catalog(name: str, **properties: str) -> Mapping[str, str]:
    own = {"": "org.apache.iceberg.spark.SparkCatalog", ".cache-enabled": "false"}
    options = own | {f".{key}": value for key, value in properties.items()}
    return {f"spark.sql.catalog.{name}{key}": value for key, value in options.items()}
