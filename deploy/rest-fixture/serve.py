"""`make catalog`: Iceberg's own REST catalog with a table, for whoever has none at hand, until it is interrupted.

Each line on the standard input, such as an empty one, is a commit. What it keeps is there when it is started again.
"""

import os
import sys
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pyarrow as pa

from sfn.demo.environment import RestCatalogServer, find_runtime
from sfn.errors import SfnError

if TYPE_CHECKING:
    from pyiceberg.table import Table

NAMESPACE, NAME = "sales", "orders"
ROWS = pa.table({"id": pa.array([], pa.int64()), "item": pa.array([], pa.string())})


def main(folder: Path, port: int) -> None:
    told = {name: Path(os.environ[name]) for name in ("SFN_JAVA", "SFN_JARS", "XDG_CACHE_HOME") if os.environ.get(name)}
    runtime = find_runtime(java=told.get("SFN_JAVA"), jars=told.get("SFN_JARS"), cache=told.get("XDG_CACHE_HOME"))
    folder.mkdir(parents=True, exist_ok=True)
    with RestCatalogServer(folder, runtime, port=port) as server:
        catalog = server.client()
        catalog.create_namespace_if_not_exists(NAMESPACE)
        table = catalog.create_table_if_not_exists((NAMESPACE, NAME), ROWS.schema)
        print(f"a catalog   {server.uri}   (on all addresses, and it asks nobody who they are)")
        print(f"its tables  {folder.resolve() / 'warehouse'}")
        print(f"one of them {NAMESPACE}.{NAME}, at {table.metadata_location}")
        print("Enter makes a commit, Ctrl-C ends it.", flush=True)
        for number, _ in enumerate(sys.stdin, 1):
            print(commit(table, number), flush=True)
        Event().wait()


def commit(table: "Table", number: int) -> str:
    """One more row; the new pointer."""
    table.refresh().append(pa.table({"id": [number], "item": [f"item {number}"]}))
    return str(table.metadata_location)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]))
    except KeyboardInterrupt:
        print()
    except SfnError as error:
        sys.exit(f"{error}")
