"""An inbox that takes nothing: commits pass, and their catalog is swept afterwards, or they are refused beforehand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.faults.disks import filled, small
from tests.faults.holding import Holding
from tests.faults.lake import serving
from tests.faults.service import CATALOG, Service, Setting, eventually, running
from tests.servers.postgres import Postgres

TABLES = ("orders", "customers")
COMMITS = 5
"""To each table, while nothing is noted."""
Record = Callable[[str, object], None]


@pytest.fixture(name="server", scope="module")
def fixture_server() -> Iterator[Postgres]:
    """One that no other test is troubled by."""
    with Postgres() as server:
        yield server


@pytest.fixture(name="dsn")
def fixture_dsn(server: Postgres) -> Iterator[str]:
    with server.database() as name:
        yield server.dsn(name)


@pytest.fixture(name="lake")
def fixture_lake(tmp_path: Path) -> Holding:
    lake = Holding(tmp_path / "warehouse")
    for name in TABLES:
        lake.create(name)
    return lake


def _gateway(lake: Holding, on_failure: str) -> str:
    return f'[gateway.{CATALOG}]\nupstream = "{lake.uri}"\non_inbox_failure = "{on_failure}"'


async def test_commits_pass_while_the_database_is_away_and_are_found_by_a_sweep(
    server: Postgres, dsn: str, lake: Holding, tmp_path: Path, record_property: Record
) -> None:
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, url=dsn, more=_gateway(lake, "pass"))
    async with serving(lake), running(setting) as service:
        await _published(service, lake)
        await anyio.to_thread.run_sync(server.stop)
        await _passed(service, lake)
        unnoted = await _unnoted(service)
        began = anyio.current_time()
        await anyio.to_thread.run_sync(server.start)
        await eventually(lambda: not lake.wrong())
        found_in = round(anyio.current_time() - began, 2)
    record_property("unnoted", {"unnoted": unnoted, "found_in": found_in})
    print("unnoted:", {"unnoted": unnoted, "found_in": found_in})
    assert unnoted == len(TABLES) * COMMITS


async def test_commits_are_refused_while_the_database_is_away_and_the_catalog_never_hears_of_them(
    server: Postgres, dsn: str, lake: Holding, tmp_path: Path
) -> None:
    setting = Setting(tmp_path / "sfn", lake.uri, lake.warehouse, url=dsn, more=_gateway(lake, "refuse"))
    async with serving(lake), running(setting) as service:
        await _published(service, lake)
        await anyio.to_thread.run_sync(server.stop)
        before = dict(lake.commits)
        answer = await service.commit("orders")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert (await answer.json())["error"]["type"] == "ServiceUnavailableException"
        # Who only reads is in no danger.
        async with service.session.get(service.gateway("orders")) as loaded:
            assert loaded.status == 200
        assert (lake.commits, await _unnoted(service)) == (before, 0)
        await anyio.to_thread.run_sync(server.start)
        with anyio.fail_after(20):
            while (await service.commit("orders")).status != 200:
                assert lake.commits == before
        await eventually(lambda: not lake.wrong())


async def test_commits_pass_while_the_disk_is_full_and_are_found_by_a_sweep(
    lake: Holding, tmp_path: Path, record_property: Record
) -> None:
    disk, more = tmp_path / "disk", _gateway(lake, "pass")
    setting = Setting(
        tmp_path / "sfn", lake.uri, lake.warehouse, inbox=disk / "inbox.db", launcher=small(disk), more=more
    )
    async with serving(lake), running(setting) as service:
        await _published(service, lake)
        ballast = Path(f"/proc/{service.child().pid}/root{disk}/ballast")
        for filling in (16_000, 1_000, 1):
            await filled(service, lake, filling)
        await _passed(service, lake)
        unnoted = await _unnoted(service)
        await anyio.Path(ballast).unlink()
        await eventually(lambda: not lake.wrong())
    record_property("full disk", {"unnoted": unnoted})
    print("full disk:", {"unnoted": unnoted})
    assert unnoted > 0


async def _published(service: Service, lake: Holding) -> None:
    """Commit to every table, which is published for that."""
    for name in TABLES:
        assert (await service.commit(name)).status == 200
    await eventually(lambda: not lake.wrong())


async def _passed(service: Service, lake: Holding) -> None:
    """Commit to every table while nothing is noted: nobody who commits is told."""
    for name in TABLES * COMMITS:
        assert (await service.commit(name)).status == 200
    assert lake.wrong() == list(TABLES)


async def _unnoted(service: Service) -> float:
    """The metric of that name."""
    async with service.session.get(f"{service.url}/metrics") as answer:
        (value,) = re.findall(r"^sfn_gateway_unrecorded_total\S* (\S+)$", await answer.text(), re.MULTILINE)
        return float(value)
