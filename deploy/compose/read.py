"""Print the rows of a table by its directory alone, with DuckDB. No catalog is asked.

The argument is the directory: a path, or a URL such as `s3://lake/warehouse/sales/orders`. For S3 the keys and the
endpoint are in the variables of AWS's own tools.
"""

import importlib
import os
import sys
from pathlib import Path

import duckdb

EXTENSIONS = ("avro", "httpfs", "iceberg")


def connect() -> duckdb.DuckDBPyConnection:
    """Open DuckDB with its extensions. They come from PyPI packages here; elsewhere `INSTALL iceberg` gets them."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in EXTENSIONS:
        folder = Path(importlib.import_module(f"duckdb_extension_{name}").__file__).parent
        (file,) = folder.glob(f"extensions/*/{name}.duckdb_extension")
        connection.load_extension(str(file))
    return connection


def create_secret(connection: duckdb.DuckDBPyConnection) -> None:
    """Use the keys of the environment for S3, at an endpoint that needs the bucket's name in the path."""
    scheme, _, host = os.environ["AWS_ENDPOINT_URL_S3"].partition("://")
    options = {
        "KEY_ID": os.environ["AWS_ACCESS_KEY_ID"],
        "SECRET": os.environ["AWS_SECRET_ACCESS_KEY"],
        "REGION": os.environ["AWS_REGION"],
        "ENDPOINT": host,
        "URL_STYLE": "path",
        "USE_SSL": str(scheme == "https").lower(),
    }
    listed = ", ".join(f"{name} '{value}'" for name, value in options.items())
    connection.execute(f"CREATE SECRET (TYPE s3, {listed})")


def main() -> None:
    directory = sys.argv[1]
    connection = connect()
    if directory.startswith("s3://"):
        create_secret(connection)
    try:
        rows = connection.sql("SELECT * FROM iceberg_scan(?) ORDER BY ALL", params=[directory])
        print(f"{directory}\n{rows}")
    except duckdb.Error as error:
        sys.exit(f"{directory}: {error}\nIf there is no table yet, run the service `commit`, or `commit-s3`, first.")


if __name__ == "__main__":
    main()
