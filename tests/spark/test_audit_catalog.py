"""An audit of real tables: its report in the catalog, read by SQL, and a look at each table's data files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sfn.audit.spark_job import AuditRequest, run_audit
from sfn.audit.storage import parse_report_location
from sfn.demo.environment import RestCatalogServer
from sfn.settings import load
from tests.spark.beside import published

NAMESPACE, OWNER = "audited", "0123456789abcdef0123456789abcdef"


@pytest.fixture(name="order", scope="module")
def fixture_order(
    spark: SparkSession, catalog: RestCatalogServer, tmp_path_factory: pytest.TempPathFactory
) -> AuditRequest:
    """Of three tables: one is whole, one lacks a data file, one has no rows."""
    spark.sql(f"CREATE NAMESPACE lake.{NAMESPACE}")
    directories = []
    for name in ("whole", "broken", "empty"):
        spark.sql(f"CREATE TABLE lake.{NAMESPACE}.{name} (id BIGINT) USING iceberg")
        if name != "empty":
            spark.sql(f"INSERT INTO lake.{NAMESPACE}.{name} VALUES (1)")
        with catalog.client() as client:
            directories.append(published(client, f"{NAMESPACE}.{name}"))
        if name == "broken":
            (file,) = Path(directories[-1], "data").glob("*.parquet")
            file.unlink()
    configuration = tmp_path_factory.mktemp("audit") / "sfn.toml"
    configuration.write_text(
        f'[catalogs.prod]\nuri = "{catalog.uri}"\ncatalog_id = "{OWNER}"\ninclude = ["{NAMESPACE}.*"]\n\n'
        f'[stores.lake]\nprefix = "{Path(directories[0]).parents[1]}"\n'
    )
    settings = load(configuration, {})
    return AuditRequest(
        settings, ("prod",), parse_report_location("prod:ops.report", settings, {}), 2, 200.0, 5.0, deep=True
    )


def test_the_report_has_both_pointers_and_what_a_snapshot_needs_that_is_not_there(
    spark: SparkSession, order: AuditRequest
) -> None:
    found = run_audit(spark, order, None, lambda _done, _total: None)
    assert (found.states, found.failures, found.failed) == ({"current": 3}, [], {})
    rows = spark.sql("SELECT * FROM lake.ops.report").collect()
    assert all(row.metadata_location == row.sfn_metadata_location for row in rows)
    said = {row.identifier.removeprefix(f"{NAMESPACE}."): row.deep for row in rows}
    assert (said.pop("whole"), said.pop("empty")) == ("", "")
    assert "expected a file, found none" in said["broken"]
