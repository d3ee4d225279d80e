"""The small REST catalog of the demo, as any client of Iceberg's REST protocol sees it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from sfn.demo.catalog import application, open_catalog

TABLES = "/v1/namespaces/sales/tables"
COLUMNS = [{"id": 1, "name": "id", "type": "long", "required": False}]
NEW = {"name": "orders", "schema": {"type": "struct", "schema-id": 0, "fields": COLUMNS}}


@pytest.fixture(name="catalog")
async def fixture_catalog(tmp_path: Path) -> AsyncGenerator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(application(open_catalog(tmp_path)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://catalog") as client:
        (await client.post("/v1/namespaces", json={"namespace": ["sales"]})).raise_for_status()
        yield client


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["error"]["type"])


async def test_a_table_is_created_listed_and_loaded(catalog: httpx.AsyncClient, tmp_path: Path) -> None:
    created = (await catalog.post(TABLES, json=NEW)).raise_for_status().json()
    assert created["metadata-location"].startswith(f"{tmp_path.as_uri()}/warehouse/sales/orders/metadata/00000-")
    listed = (await catalog.get(TABLES)).json()
    assert listed["identifiers"] == [{"namespace": ["sales"], "name": "orders"}]
    loaded = (await catalog.get(f"{TABLES}/orders")).json()
    assert loaded["metadata-location"] == created["metadata-location"]
    assert loaded["metadata"]["table-uuid"] == created["metadata"]["table-uuid"]
    assert (await catalog.head(f"{TABLES}/orders")).status_code == 204


async def test_a_commit_writes_the_next_metadata_file(catalog: httpx.AsyncClient) -> None:
    await catalog.post(TABLES, json=NEW)
    change = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"owner": "ana"}}]}
    done = (await catalog.post(f"{TABLES}/orders", json=change)).raise_for_status().json()
    assert "/metadata/00001-" in done["metadata-location"]
    assert (await catalog.get(f"{TABLES}/orders")).json()["metadata"]["properties"]["owner"] == "ana"


async def test_a_commit_to_another_state_is_a_conflict(catalog: httpx.AsyncClient) -> None:
    await catalog.post(TABLES, json=NEW)
    requirement = {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}
    answer = await catalog.post(f"{TABLES}/orders", json={"requirements": [requirement], "updates": []})
    assert error(answer) == (409, "CommitFailedException")


async def test_a_staged_table_exists_after_its_commit(catalog: httpx.AsyncClient) -> None:
    staged = (await catalog.post(TABLES, json={**NEW, "stage-create": True})).raise_for_status().json()
    assert "metadata-location" not in staged
    assert (await catalog.head(f"{TABLES}/orders")).status_code == 404
    metadata = staged["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
    ]
    change = {"requirements": [{"type": "assert-create"}], "updates": updates}
    created = (await catalog.post(f"{TABLES}/orders", json=change)).raise_for_status().json()
    assert created["metadata"]["table-uuid"] == metadata["table-uuid"]
    assert error(await catalog.post(f"{TABLES}/orders", json=change)) == (409, "CommitFailedException")


async def test_a_table_is_renamed_and_dropped(catalog: httpx.AsyncClient) -> None:
    await catalog.post(TABLES, json=NEW)
    names = {
        key: {"namespace": ["sales"], "name": name} for key, name in (("source", "orders"), ("destination", "sold"))
    }
    assert (await catalog.post("/v1/tables/rename", json=names)).status_code == 204
    assert error(await catalog.post("/v1/tables/rename", json=names)) == (404, "NoSuchTableException")
    assert (await catalog.delete(f"{TABLES}/sold")).status_code == 204
    assert (await catalog.get(TABLES)).json()["identifiers"] == []


async def test_namespaces_are_listed_and_dropped(catalog: httpx.AsyncClient) -> None:
    assert (await catalog.get("/v1/namespaces")).json()["namespaces"] == [["sales"]]
    assert (await catalog.head("/v1/namespaces/sales")).status_code == 204
    await catalog.post(TABLES, json=NEW)
    assert error(await catalog.delete("/v1/namespaces/sales")) == (409, "NamespaceNotEmptyException")
    await catalog.delete(f"{TABLES}/orders")
    assert (await catalog.delete("/v1/namespaces/sales")).status_code == 204
    assert error(await catalog.get("/v1/namespaces/sales")) == (404, "NoSuchNamespaceException")


async def test_what_exists_is_not_created_again(catalog: httpx.AsyncClient) -> None:
    await catalog.post(TABLES, json=NEW)
    assert error(await catalog.post(TABLES, json=NEW)) == (409, "AlreadyExistsException")
    assert error(await catalog.post("/v1/namespaces", json={"namespace": ["sales"]})) == (409, "AlreadyExistsException")


async def test_a_location_on_a_store_is_rejected(catalog: httpx.AsyncClient, tmp_path: Path) -> None:
    place = "s3://lake/warehouse/sales/orders"
    answer = await catalog.post(TABLES, json={**NEW, "location": place})
    assert error(answer) == (400, "BadRequestException")
    assert f"expected a location on this machine, such as file:///lake/orders, found {place}" in answer.text
    for location in (f"{tmp_path}/a:b", f"{tmp_path.as_uri()}/other"):
        name = location.rpartition("/")[2].replace(":", "_")
        (await catalog.post(TABLES, json={**NEW, "name": name, "location": location})).raise_for_status()
    move = {"requirements": [], "updates": [{"action": "set-location", "location": place}]}
    assert error(await catalog.post(f"{TABLES}/other", json=move)) == (400, "BadRequestException")


async def test_a_malformed_request_is_rejected(catalog: httpx.AsyncClient) -> None:
    assert error(await catalog.post(TABLES, json={"schema": {}})) == (400, "BadRequestException")
    answer = await catalog.post(f"{TABLES}/absent", json={"requirements": [], "updates": []})
    assert error(answer) == (404, "NoSuchTableException")
