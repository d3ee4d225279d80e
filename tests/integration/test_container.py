"""The image's commands in a sealed container without Docker: as nobody, with nothing writable but its volumes.

Bubblewrap makes the namespaces. The root file system is put together from this machine's libraries and Python, and from
the packages that the image's lock names, taken from the tests' own environment.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Final, TypeAlias

import anyio.to_thread
import httpx
import pytest

import sfn
from sfn.demo.environment import RestCatalogServer
from tests.promises import catalogs
from tests.support.deployment import DEPLOY, IMAGE, ROOT, SERVICES, files, here
from tests.support.processes import until
from tests.support.service import Lake

HOME: Final = "/nonexistent"
"""As the Dockerfile's user has it."""

_SYSTEM: Final = ("bin", "sbin", "lib", "lib32", "lib64", "usr")
_PREFIX: Final = "/opt/sfn"
_NAMESPACES: Final = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent")

Done: TypeAlias = subprocess.CompletedProcess[str]


def installed(folder: Path) -> Path:
    """The environment that the image has at `/opt/sfn`: what its lock names, and the project's wheel."""
    root = folder / "opt"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True, timeout=120)
    (site,) = root.glob("lib/python*/site-packages")
    for name in here(DEPLOY / "image.lock"):
        _take(name, site)
    _pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", f"--wheel-dir={folder}", f"{ROOT}")
    (wheel,) = folder.glob("*.whl")
    _pip(f"--python={root}/bin/python", "install", "--no-deps", "--no-index", f"{wheel}")
    return root


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True, timeout=120)


def _take(name: str, site: Path) -> None:
    """Link or copy a distribution of the tests' own environment; its commands stay behind."""
    for file in distribution(name).files or ():
        source, target = Path(str(file.locate())), site / file
        if ".." in file.parts or not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What is run of the image.

    Args:
        root: what `installed` made.
        volumes: folders that can be written, by where they are mounted.
        files: files that can't, by where they are mounted.
        environ: variables beside the image's own.
    """

    root: Path
    volumes: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str) -> Done:
        """Run a command beside what runs already, as `docker exec` does, and wait for its end."""
        return subprocess.run(
            [*self._sealed(), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @contextmanager
    def running(self, log: Path) -> Iterator[Running]:
        """The image's own command as process 1; killed in the end if it still runs."""
        reading, writing = os.pipe()
        command = [*self._sealed("--as-pid-1", "--info-fd", str(writing)), *IMAGE.command("ENTRYPOINT")]
        with os.fdopen(reading) as info, log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *IMAGE.command("CMD")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[writing],
            )
            os.close(writing)
            try:
                yield Running(process, json.load(info)["child-pid"], log)
            finally:
                process.kill()
                process.wait()

    def _sealed(self, *more: str) -> list[str]:
        uid, gid = IMAGE.the("USER").split(":")
        variables = {"HOME": HOME, **IMAGE.pairs("ENV"), **self.environ}
        said = [word for name, value in variables.items() for word in ("--setenv", name, value)]
        return [
            "bwrap",
            *(*_NAMESPACES, "--uid", uid, "--gid", gid, "--cap-drop", "ALL", *more),
            *_system(),
            *("--tmpfs", "/tmp", "--dir", IMAGE.the("WORKDIR")),  # noqa: S108 - the container's
            *("--ro-bind", str(self.root), str(self.root), "--symlink", str(self.root), _PREFIX),
            *("--ro-bind", str(DEPLOY / "image.toml"), "/etc/sfn/sfn.toml"),
            *[word for target, file in self.files.items() for word in ("--ro-bind", str(file), target)],
            *[word for target, folder in self.volumes.items() for word in ("--bind", str(folder), target)],
            *("--remount-ro", "/tmp", "--remount-ro", "/"),  # noqa: S108 - the container's
            *("--clearenv", *said, "--chdir", IMAGE.the("WORKDIR")),
        ]


@dataclass(frozen=True, slots=True)
class Running:
    """The container's process 1.

    Attributes:
        process: bubblewrap, which ends as it ends.
        pid: its own, as it is known out here.
        log: what it writes.
    """

    process: subprocess.Popen[bytes]
    pid: int
    log: Path

    def told(self) -> str:
        return self.log.read_text()

    def stop(self, number: Signals) -> None:
        os.kill(self.pid, number)

    def ended(self) -> bool:
        return self.process.poll() is not None


def _system() -> Iterator[str]:
    """This machine's libraries and Python, which stand for those of the base image."""
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    yield from ("--ro-bind", sys.base_prefix, sys.base_prefix)
    yield from ("--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache")
    yield from ("--proc", "/proc", "--dev", "/dev")


def require() -> None:
    """Skip the test where no container can be made. On a build server a kernel that forbids it is the only excuse."""
    if shutil.which("bwrap") is None:
        if os.environ.get("CI") == "true":  # noqa: TID251 - the test run's own surroundings
            pytest.fail("bubblewrap is not installed")
        pytest.skip("no sealed container: bubblewrap is not installed")
    least = ["bwrap", *_NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    refused = subprocess.run(least, capture_output=True, text=True, timeout=60, check=False)
    if refused.returncode != 0:
        pytest.skip(f"no sealed container: {refused.stderr.strip()}")


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
    require()
    return installed(tmp_path_factory.mktemp("image"))


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
