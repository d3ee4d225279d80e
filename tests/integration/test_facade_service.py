"""The facade of the service: what is published, as a catalog of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import httpx
import pytest

from tests.integration.lake import Lake, lake
from tests.integration.process import Daemon, configure, serving

FACADE = """\
[facade]
token = "a-token-of-readers"
"""
PREFIX = "/iceberg/v1/prod/namespaces"
READER = {"Authorization": "Bearer a-token-of-readers"}


@pytest.fixture(name="world")
async def fixture_world(tmp_path: Path) -> AsyncGenerator[Lake]:
    async with lake(tmp_path) as made:
        yield made


async def get(daemon: Daemon, path: str, **fields: str) -> httpx.Response:
    return await daemon.client.get(path, headers={**READER, **fields})


async def until_shown(daemon: Daemon, name: str, pointer: str) -> httpx.Response:
    """Ask for a table until it is at a metadata file."""
    with anyio.fail_after(20):
        while True:
            answer = await get(daemon, f"{PREFIX}/sales/tables/{name}")
            if answer.status_code == httpx.codes.OK and answer.json()["metadata-location"] == pointer:
                return answer
            await anyio.sleep(0.05)


async def listed(daemon: Daemon) -> list[str]:
    answer = await get(daemon, f"{PREFIX}/sales/tables")
    return [one["name"] for one in answer.json().get("identifiers", [])]


async def test_what_is_published_is_shown_to_readers(world: Lake) -> None:
    world.commit("orders")
    world.commit("items")
    async with serving(configure(world, FACADE)) as daemon:
        await world.until_published("orders", "items")
        assert (await get(daemon, "/iceberg/v1/config")).json()["overrides"] == {"prefix": "prod"}
        with anyio.fail_after(20):
            # A row is settled after its file is there, and a listing is kept for a moment.
            while await listed(daemon) != ["items", "orders"]:  # noqa: ASYNC110 - no event crosses processes
                await anyio.sleep(0.1)
        first = await get(daemon, f"{PREFIX}/sales/tables/orders")
        again = await get(daemon, f"{PREFIX}/sales/tables/orders", **{"If-None-Match": first.headers["etag"]})
        assert (first.status_code, again.status_code) == (200, 304)
        pointer = world.commit("orders")
        await daemon.tell("orders")
        told = await until_shown(daemon, "orders", pointer)
        assert told.json()["metadata"]["properties"]["gc.enabled"] == "false"
        directory = str(world.directory("orders")).replace("/", "%2F")
        assert (await get(daemon, f"{PREFIX}/dir/tables/{directory}")).content == told.content
        assert (await get(daemon, f"{PREFIX}/dir/tables/%2Fetc")).status_code == httpx.codes.FORBIDDEN
        # The inbox of the service lies beside the warehouse.
        inbox = f"{world.folder}/inbox".replace("/", "%2F")
        assert (await get(daemon, f"{PREFIX}/dir/tables/{inbox}")).status_code == httpx.codes.FORBIDDEN
        page = (await daemon.client.get("/metrics")).text
        assert 'sfn_facade_requests_total{status="304"} 1.0' in page
        assert 'sfn_facade_requests_total{status="403"} 2.0' in page


async def test_only_its_readers_are_let_in_and_they_nowhere_else(world: Lake) -> None:
    world.commit("orders")
    async with serving(configure(world, f'{FACADE}[admin]\ntoken = "an-operator"\n')) as daemon:
        # A sender's token, as all requests of this client have it; an operator's; none.
        for fields in ({}, {"Authorization": "Bearer an-operator"}, {"Authorization": ""}):
            answer = await daemon.client.get("/iceberg/v1/config", headers=fields)
            assert answer.status_code == httpx.codes.UNAUTHORIZED
        assert (await get(daemon, "/admin/v1/status")).status_code == httpx.codes.UNAUTHORIZED
        sent = await daemon.client.post("/v1/events", headers=READER, json={"namespace": ["sales"], "name": "orders"})
        assert sent.status_code == httpx.codes.UNAUTHORIZED


async def test_a_table_elsewhere_is_not_shown_however_it_was_published(world: Lake) -> None:
    """Of all tables those below the facade's own roots are."""
    world.commit("orders")
    (world.folder / "warehouse" / "public").mkdir(parents=True)
    more = f'{FACADE}roots = ["{world.folder}/warehouse/public"]\n'
    async with serving(configure(world, more)) as daemon:
        await world.until_published("orders")
        assert (await get(daemon, PREFIX)).json()["namespaces"] == [["dir"]]
        answer = await get(daemon, f"{PREFIX}/sales/tables/orders")
        assert answer.status_code == httpx.codes.NOT_FOUND
        directory = str(world.directory("orders")).replace("/", "%2F")
        assert (await get(daemon, f"{PREFIX}/dir/tables/{directory}")).status_code == httpx.codes.FORBIDDEN


async def test_files_below_a_root_of_their_own_are_found(world: Lake) -> None:
    world.commit("orders")
    metadata = world.directory("orders") / "metadata"
    (world.folder / "warehouse" / "pointers").mkdir(parents=True)
    file = configure(world, FACADE)
    text = file.read_text()
    placing = f'[catalogs.prod]\nplacement = "root"\nroot = "{world.folder}/warehouse/pointers"\n'
    file.write_text(text.replace("[catalogs.prod]\n", placing))
    async with serving(file) as daemon:
        pointer = world.commit("orders")
        await daemon.tell("orders")
        await until_shown(daemon, "orders", pointer)
        assert [path.name for path in metadata.iterdir() if not path.name.endswith(".json")] == []


async def test_there_is_none_without_its_role(world: Lake) -> None:
    async with serving(configure(world, FACADE), {"SFN_ROLES": "receiver,worker"}) as daemon:
        assert (await get(daemon, "/iceberg/v1/config")).status_code == httpx.codes.NOT_FOUND
