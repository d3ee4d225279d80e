"""DuckDB attached to a catalog, as a process of its own: `python -m tests.integration.duckdb_client URI STATEMENT…`."""

from __future__ import annotations

import json
import sys

from sfn.demo.environment import duckdb_for_iceberg


def main(uri: str, *statements: str) -> None:
    """Print what comes of each statement, a line each."""
    with duckdb_for_iceberg() as session:
        session.execute(f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none')")
        for statement in statements:
            print(json.dumps(session.execute(statement).fetchall()))


if __name__ == "__main__":
    main(*sys.argv[1:])
