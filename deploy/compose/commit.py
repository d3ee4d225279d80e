"""Commit two rows to the table `sales.orders`, which the first commit creates, and send the event that reports it.

Ends with 0 once the table's directory names the commit. Everything here is what an engine does: the script needs
PyIceberg, and nothing of the listener but the address for events.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

NAMESPACE, NAME = "sales", "orders"
TIMEOUT = 60
"""Seconds for the answer to the event, and from there to the files."""


def commit() -> Table:
    """Append two rows to the table. PyIceberg reads its settings from PYICEBERG_CATALOG__LAKE__…"""
    catalog = load_catalog("lake")
    catalog.create_namespace_if_not_exists(NAMESPACE)
    schema = pa.schema([("id", pa.int64()), ("item", pa.string())])
    table = catalog.create_table_if_not_exists((NAMESPACE, NAME), schema)
    first = 2 * len(table.snapshots()) + 1
    table.append(pa.table({"id": [first, first + 1], "item": [f"item {first}", f"item {first + 1}"]}))
    return table


def send_event(metadata_location: str) -> None:
    """Report the commit to the listener."""
    token = Path(os.environ["TOKEN_FILE"]).read_text().strip()
    event = {"namespace": [NAMESPACE], "name": NAME, "metadata_location": metadata_location}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["EVENTS_URL"], json.dumps(event).encode(), headers)  # noqa: S310 - http
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - as above
        print(f"{answer.status} {answer.read().decode()}")


def published(table: Table) -> str:
    """Return the name of the metadata file in the version hint; empty if there is no hint yet."""
    try:
        with table.io.new_input(f"{table.location()}/metadata/version-hint.text").open() as hint:
            return hint.read().decode().strip()
    except FileNotFoundError:
        return ""


def main() -> None:
    table = commit()
    print(f"committed {table.metadata_location}")
    send_event(table.metadata_location)
    name = table.metadata_location.rsplit("/", 1)[-1].removesuffix(".metadata.json")
    deadline = time.monotonic() + TIMEOUT
    while published(table) != name:
        if time.monotonic() > deadline:
            sys.exit(f"{table.location()} does not name the commit after {TIMEOUT} s: see the log of the listener")
        time.sleep(0.1)
    print(f"published in {table.location()}")


if __name__ == "__main__":
    main()
