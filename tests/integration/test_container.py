"""The image's commands in a sealed container: as nobody, with nothing writable but its volumes."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGTERM

import anyio.to_thread
import httpx
import pytest

import sfn
from sfn.demo.environment import RestCatalogServer
from tests.integration import sealed
from tests.integration.lake import Lake, lake
from tests.integration.sealed import Container, Done, Running
from tests.integration.waiting import until
from tests.promises import catalogs
from tests.support.deployment import IMAGE, SERVICES, files

rest_server = catalogs.rest_server

VOLUME = IMAGE.the("VOLUME")
TOKEN = files("sfn")["/run/secrets/sender-token"].read_text().strip()
HEALTH_CHECK = IMAGE.command("HEALTHCHECK")

# Who it is, and what becomes of an attempt to write in each of the folders.
ATTEMPT = """\
import errno, os, sys
print(f"{os.getuid()}:{os.getgid()} {os.getcwd()}")
for folder in sys.argv[1:]:
    try:
        open(f"{folder}/written", "w").close()
        print("written")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
# More than SQLite's memory for it holds.
SORT = """\
import os, sqlite3
database = sqlite3.connect(f"{os.environ['SQLITE_TMPDIR']}/sort.db")
database.execute("PRAGMA cache_size=10")
database.execute("CREATE TABLE t (value)")
database.executemany("INSERT INTO t VALUES (randomblob(500))", [()] * 5000)
database.execute("CREATE INDEX i ON t (value)")
"""


@pytest.fixture(name="root", scope="module")
def fixture_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sealed.require()
    return sealed.installed(tmp_path_factory.mktemp("image"))


@pytest.fixture(name="world")
async def fixture_world(tmp_path: Path) -> AsyncGenerator[Lake]:
    async with lake(tmp_path) as made:
        yield made


@pytest.fixture(name="port")
def fixture_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def service(root: Path, folder: Path, *, catalog: str, warehouse: Path, port: int) -> Container:
    """The Compose file's `sfn`, but for where this machine has the catalog, the tables and a free port."""
    environ = {
        "SFN_LISTENER__HOST": "127.0.0.1",
        "SFN_LISTENER__PORT": str(port),
        "SFN_CATALOGS__LAKE__URI": catalog,
        "SFN_STORES__LAKE__PREFIX": str(warehouse),
    }
    volumes = {VOLUME: folder / "inbox", str(warehouse): warehouse}
    for volume in volumes.values():
        volume.mkdir(exist_ok=True)
    return Container(root=root, volumes=volumes, files=files("sfn"), environ=environ)


@asynccontextmanager
async def serving(container: Container, log: Path) -> AsyncGenerator[Running]:
    """The container once it is ready; told to end, it ends with 0."""
    with container.running(log) as running:
        await until(lambda: '"event": "ready"' in running.told() or running.ended())
        assert not running.ended(), running.told()
        yield running
        running.stop(SIGTERM)
        await until(running.ended)
        assert running.process.returncode == 0, running.told()


async def ran(container: Container, *command: str) -> Done:
    return await anyio.to_thread.run_sync(lambda: container.run(*command))


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_nothing_but_the_volumes_can_be_written(root: Path, tmp_path: Path) -> None:
    container = Container(root=root, volumes={VOLUME: tmp_path})
    places = ["", "/tmp", "/opt/sfn/bin", "/etc/sfn", "/usr", IMAGE.the("WORKDIR")]  # noqa: S108 - the container's
    who, *became = container.run("python", "-c", ATTEMPT, *places, VOLUME).stdout.splitlines()
    assert who == f"{IMAGE.the('USER')} {IMAGE.the('WORKDIR')}"
    assert became == ["EROFS"] * len(places) + ["written"]


def test_sqlite_finds_room_for_what_it_sorts(root: Path, tmp_path: Path) -> None:
    done = Container(root=root, volumes={VOLUME: tmp_path}).run("python", "-c", SORT)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_settings_the_image_says_which_file_lacks_them(root: Path, tmp_path: Path) -> None:
    with Container(root=root, volumes={VOLUME: tmp_path}).running(tmp_path / "log") as running:
        assert running.process.wait(60) == 2
    assert running.told().startswith("sfn.toml: catalogs: expected at least one, found none")


async def test_the_image_serves_is_healthy_and_ends(root: Path, world: Lake, port: int) -> None:
    warehouse = world.folder / "warehouse"
    container = service(root, world.folder, catalog=world.uri, warehouse=warehouse, port=port)
    pointer = world.commit("orders")
    before = below(warehouse)
    assert (await ran(container, *HEALTH_CHECK)).returncode == 1
    async with serving(container, world.folder / "log") as running:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False) as client:
            assert (await client.get("/readyz")).status_code == 200
            event = {"namespace": ["sales"], "name": "orders", "metadata_location": pointer}
            assert (await client.post("/v1/events", json=event)).status_code == 202
        await world.until_published("orders")
        checked = await ran(container, *HEALTH_CHECK)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    metadata = "sales/orders/metadata"
    assert below(warehouse) - before == {f"{metadata}/_sfn/sales_orders_main.ver", f"{metadata}/version-hint.text"}
    assert below(world.folder / "inbox") == {"inbox.db", "inbox.db.lock"}
    assert {json.loads(line)["level"] for line in running.told().splitlines()} == {"info"}
    assert (await ran(container, *HEALTH_CHECK)).returncode == 1


async def test_what_the_compose_file_has_one_try_works(
    root: Path, rest_server: RestCatalogServer, tmp_path: Path, port: int
) -> None:
    warehouse = rest_server.folder / "warehouse"
    container = service(root, tmp_path, catalog=rest_server.uri, warehouse=warehouse, port=port)
    here = {"CATALOG_URI": rest_server.uri, "EVENTS_URL": f"http://127.0.0.1:{port}/v1/events"}
    commit = Container(
        root=root,
        files={**files("commit"), str(warehouse): warehouse},
        environ={**SERVICES["commit"]["environment"], **here},
    )
    async with serving(container, tmp_path / "log"):
        for number in range(2):
            done = await ran(commit, *SERVICES["commit"]["entrypoint"])
            assert done.returncode == 0, done.stdout + done.stderr
            found = sfn.resolve(warehouse / "sales" / "orders", table="sales.orders").metadata_location
            assert found.rsplit("/", 1)[-1].startswith(f"{number:05d}-")
            assert f"committed {found}\n" in done.stdout
