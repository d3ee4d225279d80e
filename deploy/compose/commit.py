"""One commit to the table `sales.orders`, made where it is missing, and the event that tells of it.

Ends with 0 once the table's directory says what the catalog says.
"""

import os
import sys
import time
from pathlib import Path

import httpx
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import sfn

NAMESPACE, NAME = "sales", "orders"
COUNT = "commits"
SECONDS = 60


def commit() -> tuple[str, str]:
    """Make the table, or change a property of it; where it lies, and its metadata file."""
    catalog = RestCatalog("lake", uri=os.environ["CATALOG_URI"])
    catalog.create_namespace_if_not_exists(NAMESPACE)
    if not catalog.table_exists((NAMESPACE, NAME)):
        schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "item", StringType()))
        table = catalog.create_table((NAMESPACE, NAME), schema, properties={COUNT: "0"})
    else:
        table = catalog.load_table((NAMESPACE, NAME))
        with table.transaction() as transaction:
            transaction.set_properties({COUNT: str(int(table.properties[COUNT]) + 1)})
    return table.location(), table.metadata_location


def tell(pointer: str) -> None:
    """Post the event."""
    token = Path(os.environ["TOKEN_FILE"]).read_text().strip()
    event = {"namespace": [NAMESPACE], "name": NAME, "metadata_location": pointer}
    answer = httpx.post(os.environ["EVENTS_URL"], json=event, headers={"Authorization": f"Bearer {token}"})
    print(f"{answer.status_code} {answer.text}")
    answer.raise_for_status()


def published(location: str) -> str:
    """What the table's directory says; nothing yet where there is no file."""
    try:
        return sfn.resolve(location, table=f"{NAMESPACE}.{NAME}").metadata_location
    except sfn.NotFound:
        return ""


def main() -> None:
    location, pointer = commit()
    print(f"committed {pointer}")
    tell(pointer)
    deadline = time.monotonic() + SECONDS
    while published(location) != pointer:
        if time.monotonic() > deadline:
            sys.exit(f"{location} does not say so after {SECONDS} s: docker compose logs sfn")
        time.sleep(0.1)
    print(f"published in {location}")


if __name__ == "__main__":
    main()
