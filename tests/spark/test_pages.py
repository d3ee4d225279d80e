"""What the pages on Spark have a user of PySpark write does what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sfn import history
from sfn.demo.environment import RestCatalogServer
from sfn.sfnfile.document import render_ordinal
from sfn.sfnfile.naming import ORDINAL
from sfn.spark import start
from tests.spark.beside import beside

ROOT = Path(__file__).parents[2]
EXAMPLE = "/warehouse/sales/orders"
SHOWN = {
    "docs/spark/README.md": {"orders": [1, 2], "before": [1], "added": [2], "loaded": [1, 2]},
    "docs/spark/reading.md": {"orders": [1, 2], "added": [2]},
}
"""The rows that names of their examples have in the end, where these are the table's."""
COUNTED = {"docs/spark/README.md": {"history": 2}, "docs/spark/reading.md": {"commits": 4, "pointer": 1}}
STREAMS = {"docs/spark/README.md": "commits", "docs/spark/reading.md": "stream"}


@pytest.fixture(name="directory", scope="module")
def fixture_directory(spark: SparkSession, catalog: RestCatalogServer) -> str:
    """A table of four commits, of which the third is a tag."""
    spark.sql("CREATE NAMESPACE lake.pages")
    directory = ""
    with catalog.client() as client:
        for statement in (
            "CREATE TABLE {} (id BIGINT) USING iceberg",
            "INSERT INTO {} VALUES (1)",
            "ALTER TABLE {} CREATE TAG v1",
            "INSERT INTO {} VALUES (2)",
        ):
            spark.sql(statement.format("lake.pages.orders"))
            directory = beside(client.load_table("pages.orders"), "pages.orders", ORDINAL)
    return directory


@pytest.mark.parametrize("page", SHOWN)
def test_its_python_runs(page: str, spark: SparkSession, directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "check_java", lambda _home: None)  # the JVM of these tests was started before
    text = (ROOT / page).read_text()
    (block,) = (
        one for one in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if "sfn.spark" in one
    )
    _, first, _, last = (render_ordinal(commit.ordinal) for commit in history(directory))
    block = block.replace(EXAMPLE, directory).replace("20261122T120000000", first).replace("20261123T120000000", last)
    names: dict[str, object] = {}
    exec(block, names)  # noqa: S102 - it is ours
    assert isinstance(names["spark"], SparkSession)
    assert names["spark"].version == spark.version
    frames = {name: value for name, value in names.items() if isinstance(value, DataFrame)}
    stream = frames.pop(STREAMS[page])
    assert stream.isStreaming
    assert stream.columns[0] == "ordinal"
    assert {name: sorted(row.id for row in frames.pop(name).collect()) for name in SHOWN[page]} == SHOWN[page]
    assert {name: frame.count() for name, frame in frames.items()} == COUNTED[page]
