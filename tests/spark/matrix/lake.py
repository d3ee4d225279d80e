"""The catalogs that tables are written through, and the way to Iceberg's own library for what SQL has no words for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

REST, HADOOP = "lake", "folders"
"""The real REST catalog, and one that is nothing but folders, whose identifiers may be odd."""
NAMESPACE: Final = "matrix"
_WRITING: Final = {
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # Tables of a handful of rows: compiling a plan would take longer than running it.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}


@dataclass(frozen=True, slots=True)
class Lake:
    """Where tables are written.

    Attributes:
        session: of the writers alone: readers have settings of their own.
        folder: for what is no table of a catalog, yet.
    """

    session: SparkSession
    folder: Path

    def run(self, statement: str) -> None:
        """A statement of SQL."""
        self.session.sql(statement).collect()

    @property
    def java(self) -> Any:  # noqa: ANN401 - Java's packages have no types
        """The JVM's packages."""
        return self.session.sparkContext._jvm  # noqa: SLF001 - the way to what SQL has no words for

    @property
    def iceberg(self) -> Any:  # noqa: ANN401 - as above
        """Iceberg's packages."""
        return self.java.org.apache.iceberg

    def load(self, sql_name: str) -> Any:  # noqa: ANN401 - as above
        """A table as Iceberg's own library has it."""
        return self.iceberg.spark.Spark3Util.loadIcebergTable(self.session._jsparkSession, sql_name)  # noqa: SLF001 - as above

    def catalog(self, name: str) -> Any:  # noqa: ANN401 - as above
        """A catalog as Iceberg's own library has it."""
        return self.iceberg.spark.Spark3Util.loadIcebergCatalog(self.session._jsparkSession, name)  # noqa: SLF001 - as above

    def array(self, kind: Any, *values: object) -> Any:  # noqa: ANN401 - as above
        """A Java array."""
        gateway = self.session.sparkContext._gateway  # noqa: SLF001 - as above
        assert gateway is not None
        made = gateway.new_array(kind, len(values))
        for at, value in enumerate(values):
            made[at] = value
        return made


def founded(spark: SparkSession, folder: Path) -> Lake:
    """The catalogs.

    Args:
        spark: knows the real catalog as `lake`.
        folder: an empty one.
    """
    lake = Lake(spark.newSession(), folder)
    folders = f"spark.sql.catalog.{HADOOP}"
    told = {
        folders: "org.apache.iceberg.spark.SparkCatalog",
        f"{folders}.type": "hadoop",
        f"{folders}.warehouse": (folder / "warehouse").as_uri(),
    }
    for name, value in {**_WRITING, **told}.items():
        lake.session.conf.set(name, value)
    for namespace in (NAMESPACE, f"{NAMESPACE}.deep"):
        lake.run(f"CREATE NAMESPACE {REST}.{namespace}")
    return lake
