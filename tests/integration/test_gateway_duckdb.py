"""DuckDB reads and writes tables through a gateway, and the service follows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog

from tests.integration.gated import gated
from tests.integration.pages import ROOT
from tests.real_catalog import runtime


def said(uri: str, *statements: str) -> list[object]:
    """What DuckDB says to each statement."""
    line = [sys.executable, "-m", "tests.integration.duckdb_client", uri, *statements]
    # No variable of the user's: a proxy would be asked for the catalog.
    done = subprocess.run(line, cwd=ROOT, env={}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(answer) for answer in done.stdout.splitlines()]


def rows_of(catalog: RestCatalog) -> list[tuple[object, object]]:
    rows = catalog.load_table(("duck", "orders")).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["item"]) for row in rows)


def test_what_duckdb_writes_is_in_the_catalog_and_published(tmp_path: Path) -> None:
    with gated(tmp_path.resolve(), runtime()) as place:
        answers = said(
            place.uri,
            "CREATE SCHEMA lake.duck",
            "CREATE TABLE lake.duck.orders (id BIGINT, item VARCHAR)",
            "INSERT INTO lake.duck.orders VALUES (1, 'pear'), (2, 'fig')",
            "SELECT * FROM lake.duck.orders ORDER BY id",
        )
        assert answers == [[], [], [[2]], [[1, "pear"], [2, "fig"]]]
        first = place.until_followed()
        assert list(first) == [("duck", "orders")]
        answers = said(
            place.uri,
            "UPDATE lake.duck.orders SET item = 'plum' WHERE id = 2",
            "DELETE FROM lake.duck.orders WHERE id = 1",
            "FROM lake.duck.orders",
        )
        assert answers == [[[1]], [[1]], [[2, "plum"]]]
        assert rows_of(place.client()) == [(2, "plum")]
        second = place.until_followed()
        assert second != first
        assert place.resolved(place.warehouse / "duck" / "orders", "duck", "orders") == second["duck", "orders"]
        said(place.uri, "DROP TABLE lake.duck.orders")
        assert place.until_followed() == {}
        # A table is staged, and then committed.
        assert place.passed("commit") == {"2xx": 6}
        assert place.intents(left=False) == place.intents(left=True) == 0
