"""Operators at work on the service as a real process."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.lake import Lake, lake
from tests.integration.process import Daemon, configure, serving
from tests.integration.waiting import until

ADMIN = '[admin]\ntoken = "operators"\n'


@pytest.fixture(name="world")
async def fixture_world(tmp_path: Path) -> AsyncGenerator[Lake]:
    async with lake(tmp_path) as made:
        yield made


async def ordered(daemon: Daemon, path: str, content: object = None, method: str = "POST") -> Any:  # noqa: ANN401 - JSON
    """The answer to an operator."""
    headers = {"Authorization": "Bearer operators"}
    answer = await daemon.client.request(method, f"/admin/v1/{path}", json=content, headers=headers)
    assert answer.status_code in {200, 202}, answer.text
    return answer.json()


async def story(daemon: Daemon, name: str) -> dict[str, Any]:
    told: dict[str, Any] = await ordered(daemon, f"tables/prod/sales/{name}", method="GET")
    return told


def ours(world: Lake, name: str) -> list[str]:
    """The files beside a table that are no catalog's."""
    found = world.directory(name).rglob("*")
    return sorted(file.name for file in found if file.suffix in {".ver", ".text"})


async def test_a_catalog_that_retires_leaves_no_file_also_after_a_restart(world: Lake) -> None:
    configuration = configure(world, ADMIN)
    async with serving(configuration) as daemon:
        world.commit("orders")
        world.commit("stock")
        await daemon.tell("orders")
        await daemon.tell("stock")
        await world.until_published("orders", "stock")
        assert await ordered(daemon, "catalogs/prod:retire") == {"tables": 2}
        await until(lambda: not ours(world, "orders") and not ours(world, "stock"))
        assert (await daemon.tell("orders")).json() == {"accepted": 0, "duplicates": 0, "ignored": 1}
    async with serving(configuration) as daemon:
        world.commit("orders")
        assert (await daemon.tell("orders")).json() == {"accepted": 0, "duplicates": 0, "ignored": 1}
        await ordered(daemon, "catalogs/prod:retire", {"undo": True})
        await world.until_published("orders", "stock")
        assert (await daemon.tell("orders")).json()["accepted"] == 1


async def test_files_under_an_old_catalog_id_are_adopted(world: Lake) -> None:
    configuration = configure(world, ADMIN)
    async with serving(configuration) as daemon:
        world.commit("orders")
        await daemon.tell("orders")
        await world.until_published("orders")
        (reached,) = daemon.records("catalog reached")
    configuration.write_text(
        configuration.read_text().replace("[catalogs.prod]", '[catalogs.prod]\ncatalog_id = "new"')
    )
    async with serving(configuration) as daemon:
        world.commit("orders")
        await daemon.tell("orders")
        await daemon.until_logged("settled", table="sales.orders", reason="foreign-catalog")
        told = await story(daemon, "orders")
        assert f"sfn adopt prod --from {reached['catalog_id']}" in told["dead_letters"][0]["detail"]
        assert await ordered(daemon, "catalogs/prod:adopt", {"from": reached["catalog_id"]}) == {"tables": 1}
        await world.until_published("orders")
        await daemon.until_logged("settled", table="sales.orders", outcome="done")
        told = await story(daemon, "orders")
        assert [letter["status"] for letter in told["dead_letters"]] == ["superseded"]


async def test_a_sweep_that_an_operator_asks_for_says_what_differed(world: Lake) -> None:
    async with serving(configure(world, f'{ADMIN}[sweep]\nevery = "off"')) as daemon:
        world.commit("orders")
        asked = await ordered(daemon, "reconcile")
        assert asked["catalogs"] == ["prod"]
        await daemon.until_logged("settled", table="sales.orders", outcome="done")
        status = await ordered(daemon, "status", method="GET")
        (prod,) = status["catalogs"]
        assert prod["sweep"]["began_at"] >= asked["asked_at"]
        assert (prod["sweep"]["state"], prod["sweep"]["differed"]) == (
            "ended",
            [{"table": "sales.orders", "kind": "new"}],
        )
        assert (status["ready"], prod["tables"]["scheduled"]) == (True, 1)


async def test_a_dead_letter_is_replayed_once_its_cause_is_gone(world: Lake) -> None:
    configuration = configure(world, ADMIN)
    async with serving(configuration) as daemon:
        world.commit("orders")
        blocked = world.directory("orders") / "metadata" / "_sfn"
        blocked.mkdir()
        (blocked / "sales_orders_main.ver").write_text("no document of ours")
        await daemon.tell("orders")
        await daemon.until_logged("settled", table="sales.orders", reason="foreign-file")
        (letter,) = (await ordered(daemon, "dead-letters", method="GET"))["dead_letters"]
        (blocked / "sales_orders_main.ver").unlink()
        newest = world.commit("orders")
        answer = await ordered(daemon, "dead-letters:replay", {"ids": [letter["id"]]})
        assert answer == {"replayed": 1, "failed": [], "passed": [], "next": None}
        await world.until_published("orders")
        assert world.published("orders") == newest


async def test_a_backup_of_the_running_inbox_is_restored(world: Lake, tmp_path: Path) -> None:
    configuration = configure(world, ADMIN)
    inbox, copy = tmp_path / "inbox" / "inbox.db", tmp_path / "copy.db"
    async with serving(configuration) as daemon:
        world.commit("orders")
        await daemon.tell("orders")
        await world.until_published("orders")
        await daemon.until_logged("settled", table="sales.orders", outcome="done")
        with closing(sqlite3.connect(inbox)) as running, closing(sqlite3.connect(copy)) as made:
            running.backup(made)
        world.commit("orders")
        await daemon.tell("orders")
        await world.until_published("orders")
    copy.replace(inbox)
    for beside in ("-wal", "-shm"):
        inbox.with_name(f"{inbox.name}{beside}").unlink(missing_ok=True)
    world.commit("orders")
    async with serving(configuration) as daemon:
        assert not daemon.records("inbox opened", new=True)
        # The sweep of the start may have to wait: one was made less than half a minute before.
        await daemon.tell("orders")
        await world.until_published("orders")
        assert (await story(daemon, "orders"))["published"] is not None
