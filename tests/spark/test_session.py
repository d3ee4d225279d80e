"""What other tests take for granted: Spark writes real tables into the real catalog, and reads them as they were."""

from __future__ import annotations

from pyspark.sql import SparkSession

from sfn.demo.fixture import RestCatalogServer


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
