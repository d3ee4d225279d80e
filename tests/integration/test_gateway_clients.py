"""PyIceberg and DuckDB do their usual work through a gateway, and nobody tells the service of it otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import ViewVersion

from sfn.sfnfile.locations import canonical
from tests.integration.gateway_catalog import Gated, gated
from tests.support.pages import ROOT
from tests.support.processes import wait_for
from tests.support.programs import runtime

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "item", StringType(), required=False))
ROWS = pa.table({"id": [1, 2], "item": ["pear", "fig"]})
WITHIN = 20.0


@pytest.fixture(name="place", scope="module")
def fixture_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    """One catalog for all; each test has a namespace of its own."""
    with gated(tmp_path_factory.mktemp("gated").resolve(), runtime()) as place:
        yield place
        place.until_followed()
        assert place.intents(left=False) == 0


@pytest.fixture(name="catalog", scope="module")
def fixture_catalog(place: Gated) -> RestCatalog:
    return place.client()


def directory(table: Table) -> Path:
    return Path(canonical(table.location()).removeprefix("file://"))


def assert_published(place: Gated, table: Table) -> None:
    """Wait until whoever reads the table's directory is told its current metadata file."""
    pointer, where, name = canonical(str(table.metadata_location)), directory(table), table.name()
    wait_for(lambda: place.resolved(where, *name) == pointer, f"{where} to name {pointer}", WITHIN, 0.02)
    assert place.server.client().load_table(name).metadata_location == table.metadata_location


def assert_gone(place: Gated, where: Path, *name: str) -> None:
    """Wait until no file in the directory is current for the name."""
    wait_for(lambda: name not in place.published(), f"{name} to be retired", WITHIN, 0.02)
    assert place.resolved(where, *name) is None


def made(catalog: RestCatalog, namespace: str, name: str = "orders") -> Table:
    catalog.create_namespace_if_not_exists(namespace)
    table: Table = catalog.create_table((namespace, name), SCHEMA)
    return table


def posted(place: Gated, path: str, body: object) -> httpx.Response:
    return httpx.post(f"{place.uri}/v1/{path}", json=body, trust_env=False, timeout=20.0)


def test_every_commit_of_a_table_is_followed(place: Gated, catalog: RestCatalog) -> None:
    table = made(catalog, "commits")
    assert_published(place, table)
    table.append(ROWS)
    assert_published(place, table)
    table.overwrite(ROWS.slice(1), "id == 2")
    assert_published(place, table)
    table.delete("id == 1")
    assert_published(place, table)
    with table.update_schema() as schema:
        schema.add_column("price", LongType()).rename_column("item", "name")
    assert_published(place, table)
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "id_bucket")
    assert_published(place, table)
    with table.transaction() as change:
        change.set_properties({"owner": "shop"})
    assert_published(place, table)
    with table.manage_snapshots() as snapshots:
        snapshots.create_tag(table.snapshots()[0].snapshot_id, "first")
    assert_published(place, table)
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "name": "fig", "price": None}]


def test_namespaces_pass_nested_ones_too(place: Gated, catalog: RestCatalog) -> None:
    for namespace in (("deep",), ("deep", "er"), ("deep", "er", "est")):
        catalog.create_namespace(namespace, {"level": str(len(namespace))})
    assert catalog.list_namespaces("deep") == [("deep", "er")]
    catalog.update_namespace_properties(("deep", "er"), removals={"level"}, updates={"owner": "shop"})
    properties = catalog.load_namespace_properties(("deep", "er"))
    assert {key: properties.get(key) for key in ("level", "owner")} == {"level": None, "owner": "shop"}
    table = catalog.create_table(("deep", "er", "est", "orders"), SCHEMA)
    assert_published(place, table)
    table.append(ROWS)
    assert_published(place, table)
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(("deep", "er", "est"))
    catalog.drop_table(("deep", "er", "est", "orders"))
    assert_gone(place, directory(table), "deep", "er", "est", "orders")
    catalog.drop_namespace(("deep", "er", "est"))
    assert catalog.list_namespaces(("deep", "er")) == []


def test_a_staged_table_is_published_once_it_is_committed(place: Gated, catalog: RestCatalog) -> None:
    catalog.create_namespace("staged")
    with catalog.create_table_transaction(("staged", "orders"), SCHEMA) as change:
        change.append(ROWS)
        assert not catalog.table_exists(("staged", "orders"))
        assert ("staged", "orders") not in place.published()
    table = catalog.load_table(("staged", "orders"))
    assert_published(place, table)
    assert table.scan().to_arrow().num_rows == 2
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(("staged", "orders"), SCHEMA)


def test_a_renamed_table_is_found_by_its_new_name(place: Gated, catalog: RestCatalog) -> None:
    before = made(catalog, "renamed")
    catalog.create_namespace("renamed_to")
    catalog.rename_table(("renamed", "orders"), ("renamed_to", "sales"))
    table = catalog.load_table(("renamed_to", "sales"))
    assert directory(table) == directory(before)
    assert_published(place, table)
    table.append(ROWS)
    assert_published(place, table)
    wait_for(lambda: ("renamed", "orders") not in place.published(), "the old name to be retired", WITHIN, 0.02)
    again = made(catalog, "renamed")
    assert_published(place, again)
    assert_published(place, table)


@pytest.mark.parametrize("purge", [False, True])
def test_a_dropped_table_is_retired_and_may_come_again(place: Gated, catalog: RestCatalog, *, purge: bool) -> None:
    namespace = f"dropped_{purge}".lower()
    table = made(catalog, namespace)
    table.append(ROWS)
    assert_published(place, table)
    (catalog.purge_table if purge else catalog.drop_table)((namespace, "orders"))
    assert_gone(place, directory(table), namespace, "orders")
    metadata = Path(canonical(str(table.metadata_location)).removeprefix("file://"))
    assert metadata.exists() is not purge
    with pytest.raises(NoSuchTableError):
        catalog.drop_table((namespace, "orders"))
    if purge:
        assert_published(place, made(catalog, namespace))
    else:
        assert_published(place, catalog.register_table((namespace, "found"), str(table.metadata_location)))


def test_views_pass_and_nothing_is_published_of_them(place: Gated, catalog: RestCatalog) -> None:
    table = made(catalog, "views")
    query = {"type": "sql", "sql": "SELECT 1 AS id", "dialect": "spark"}
    said = {"version-id": 1, "schema-id": 0, "timestamp-ms": 1, "summary": {}, "default-namespace": ["views"]}
    version = ViewVersion.model_validate({**said, "representations": [query]})
    view = catalog.create_view(("views", "totals"), SCHEMA, version)
    assert catalog.list_views("views") == [("views", "totals")]
    assert catalog.load_view(("views", "totals")).metadata.view_uuid == view.metadata.view_uuid
    assert catalog.view_exists(("views", "totals"))
    catalog.drop_view(("views", "totals"))
    assert not catalog.view_exists(("views", "totals"))
    assert_published(place, table)
    assert [name for name in place.published() if name[0] == "views"] == [("views", "orders")]


def test_a_scan_that_the_catalog_plans_has_the_same_rows(place: Gated) -> None:
    catalog = place.client(**{"scan-planning-mode": "server"})
    assert catalog.supports_server_side_planning()
    table = made(catalog, "planned")
    table.append(ROWS)
    assert table.scan("id == 2").to_arrow().to_pylist() == [{"id": 2, "item": "fig"}]


def change(table: Table, key: str, uuid: str | None = None) -> dict[str, Any]:
    """One table's part of a transaction."""
    return {
        "identifier": {"namespace": list(table.name()[:-1]), "name": table.name()[-1]},
        "requirements": [{"type": "assert-table-uuid", "uuid": uuid or str(table.metadata.table_uuid)}],
        "updates": [{"action": "set-properties", "updates": {key: "1"}}],
    }


def test_a_transaction_of_several_tables_is_followed_in_each_of_them(place: Gated, catalog: RestCatalog) -> None:
    one, other = made(catalog, "several", "one"), made(catalog, "several", "other")
    changes = {"table-changes": [change(one, "both"), change(other, "both")]}
    assert posted(place, "transactions/commit", changes).status_code == httpx.codes.NO_CONTENT
    for table in (one.refresh(), other.refresh()):
        assert table.properties["both"] == "1"
        assert_published(place, table)
    left = place.intents(left=True)
    wrong = {
        "table-changes": [change(one, "none"), change(other, "none", uuid="0" * 8 + "-0000-0000-0000-" + "0" * 12)]
    }
    assert posted(place, "transactions/commit", wrong).status_code == httpx.codes.CONFLICT
    assert "none" not in one.refresh().properties
    assert_published(place, one)
    # A 409 may be the answer to a try of which an earlier one still runs; the client has it before that is noted.
    wait_for(lambda: place.intents(left=True) == left + 1, "an intent to be left open", WITHIN, 0.02)


def test_metrics_of_a_scan_pass(place: Gated, catalog: RestCatalog) -> None:
    made(catalog, "metrics")
    report = {
        "report-type": "scan-report",
        "table-name": "metrics.orders",
        "snapshot-id": 1,
        "filter": True,
        "schema-id": 0,
        "projected-field-ids": [1],
        "projected-field-names": ["id"],
        "metrics": {},
    }
    answer = posted(place, "namespaces/metrics/tables/orders/metrics", report)
    assert (answer.status_code, answer.content) == (httpx.codes.NO_CONTENT, b"")


def test_clients_that_get_in_each_others_way_are_told_so_and_the_last_commit_is_published(
    place: Gated, catalog: RestCatalog
) -> None:
    made(catalog, "busy")
    refused = place.passed("commit").get("4xx", 0)

    def append(number: int) -> None:
        client = place.client()
        for _ in range(5):
            while True:
                # PyIceberg itself tries again four times.
                with suppress(CommitFailedException):
                    client.load_table(("busy", "orders")).append(ROWS.slice(number % 2, 1))
                    break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(4)))
    table = catalog.load_table(("busy", "orders"))
    assert table.scan().to_arrow().num_rows == 20
    assert place.passed("commit")["4xx"] > refused
    assert_published(place, table)


def said(place: Gated, *statements: str) -> list[object]:
    """What DuckDB says to each statement."""
    line = [sys.executable, "-m", "tests.integration.child_processes", "duckdb", place.uri, *statements]
    # No variable of the user's: a proxy would be asked for the catalog.
    done = subprocess.run(line, cwd=ROOT, env={}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(answer) for answer in done.stdout.splitlines()]


def test_what_duckdb_writes_is_in_the_catalog_and_published(place: Gated, catalog: RestCatalog) -> None:
    before, left = place.passed("commit").get("2xx", 0), place.intents(left=True)
    answers = said(
        place,
        "CREATE SCHEMA lake.duck",
        "CREATE TABLE lake.duck.orders (id BIGINT, item VARCHAR)",
        "INSERT INTO lake.duck.orders VALUES (1, 'pear'), (2, 'fig')",
        "SELECT * FROM lake.duck.orders ORDER BY id",
    )
    assert answers == [[], [], [[2]], [[1, "pear"], [2, "fig"]]]
    assert_published(place, catalog.load_table(("duck", "orders")))
    update, delete = (
        "UPDATE lake.duck.orders SET item = 'plum' WHERE id = 2",
        "DELETE FROM lake.duck.orders WHERE id = 1",
    )
    assert said(place, update, delete, "FROM lake.duck.orders") == [[[1]], [[1]], [[2, "plum"]]]
    table = catalog.load_table(("duck", "orders"))
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "item": "plum"}]
    assert_published(place, table)
    said(place, "DROP TABLE lake.duck.orders")
    assert_gone(place, directory(table), "duck", "orders")
    # A table is staged, and then committed.
    assert place.passed("commit")["2xx"] == before + 6
    assert place.intents(left=True) == left
