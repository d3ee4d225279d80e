"""What other tests take for granted: Spark writes real tables into the real catalog, and reads them as they were."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import sfn.spark
from sfn.demo.environment import RestCatalogServer
from sfn.spark import start


def test_a_table_is_written_and_read_as_it_was(spark: SparkSession, catalog: RestCatalogServer) -> None:
    spark.sql("CREATE NAMESPACE lake.session")
    spark.sql("CREATE TABLE lake.session.orders (id BIGINT, at TIMESTAMP) USING iceberg")
    spark.sql("INSERT INTO lake.session.orders VALUES (1, TIMESTAMP '2026-11-25 12:00:00')")
    spark.sql("INSERT INTO lake.session.orders VALUES (2, NULL)")
    first, _ = spark.sql("SELECT snapshot_id FROM lake.session.orders.snapshots ORDER BY committed_at").collect()
    now = spark.sql("SELECT id, CAST(at AS STRING) FROM lake.session.orders ORDER BY id").collect()
    then = spark.sql(f"SELECT id FROM lake.session.orders VERSION AS OF {first.snapshot_id}").collect()
    assert [tuple(row) for row in now] == [(1, "2026-11-25 12:00:00"), (2, None)]
    assert [row.id for row in then] == [1]
    with catalog.client() as client:
        assert client.load_table(("session", "orders")).scan().count() == 2


def test_a_session_is_had_as_often_as_it_is_asked_for(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "check_java", lambda _home: None)  # the JVM of these tests was started before
    for _ in range(2):
        assert sfn.spark.session(facade="http://127.0.0.1:8087/iceberg", token="t").version == spark.version  # noqa: S106 - an example
    assert spark.conf.get("spark.sql.catalog.sfn.uri") == "http://127.0.0.1:8087/iceberg"
    for name in [name for name in spark.conf.getAll if name.startswith("spark.sql.catalog.sfn")]:
        spark.conf.unset(name)
