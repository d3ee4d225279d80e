"""The commands of the images in a sealed container without Docker: no rights, and nothing writable but volumes.

Bubblewrap makes the namespaces. The root file system is put together from this machine's libraries and Python, and from
the packages that an image's lock names, taken from the tests' own environment.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import distribution
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import anyio.to_thread
import httpx
import pytest
from typing_extensions import override

import sfn
from sfn.demo.environment import RestCatalogServer
from sfn.settings.environment import UNREACHABLE
from tests.promises import catalogs
from tests.servers.process import Server
from tests.support.deployment import DEPLOY, ENGINE, FOLDER_OF_ENGINE, IMAGE, ROOT, SERVICES, Stage, files, here
from tests.support.processes import until
from tests.support.programs import found
from tests.support.service import Lake

HOME: Final = "/nonexistent"
"""As the Dockerfile's user has it."""

_SYSTEM: Final = ("bin", "sbin", "lib", "lib32", "lib64", "usr")
_NAMESPACES: Final = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent")

Done: TypeAlias = subprocess.CompletedProcess[str]


def environment(folder: Path, lock: Path, *more: str) -> Path:
    """A virtual environment with the packages that a lock names, and more that only a test needs."""
    root = folder / "opt"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True, timeout=120)
    (site,) = root.glob("lib/python*/site-packages")
    for name in (*here(lock), *more):
        _take(name, site)
    return root


def installed(folder: Path) -> Path:
    """The environment that the image has at `/opt/sfn`: what its lock names, and the project's wheel."""
    root = environment(folder, DEPLOY / "image.lock")
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
    """What is run of an image.

    Args:
        root: its environment, of `installed` or `environment`.
        image: the last stage of its Dockerfile.
        volumes: folders that can be written, by where they are mounted.
        files: files that can't, by where they are mounted.
        environ: variables beside the image's own.
        options: more of bubblewrap's own, such as to take the network away.
    """

    root: Path
    image: Stage = IMAGE
    volumes: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()

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
        uid, gid = self.image.the("USER").split(":")
        variables = {"HOME": HOME, **self.image.pairs("ENV"), **self.environ}
        folder, prefix = self.image.the("WORKDIR"), Path(variables["PATH"].partition(":")[0]).parent
        settings = DEPLOY / "image.toml"
        # Compose mounts a file system in memory there, and the listener does without one.
        scratch = () if self.image is not IMAGE else ("--remount-ro", "/tmp")  # noqa: S108 - the container's
        return [
            "bwrap",
            *(*_NAMESPACES, "--uid", uid, "--gid", gid, "--cap-drop", "ALL", *self.options, *more),
            *_system(),
            *("--tmpfs", "/tmp", "--dir", folder),  # noqa: S108 - the container's
            *("--ro-bind", str(self.root), str(self.root), "--symlink", str(self.root), str(prefix)),
            *(("--ro-bind", str(settings), "/etc/sfn/sfn.toml") if self.image is IMAGE else ()),
            *[word for target, file in self.files.items() for word in ("--ro-bind", str(file), target)],
            *[word for target, volume in self.volumes.items() for word in ("--bind", str(volume), target)],
            *(*scratch, "--remount-ro", "/"),
            *("--clearenv", *[word for name, value in variables.items() for word in ("--setenv", name, value)]),
            *("--chdir", folder),
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


@pytest.fixture(name="engine", scope="module")
def fixture_engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require()
    # SQLAlchemy is for PyIceberg's own catalog, which stands for Iceberg's server where tables lie on S3.
    return environment(tmp_path_factory.mktemp("engine"), FOLDER_OF_ENGINE / "engine.lock", "sqlalchemy")


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


def table_rows(done: Done) -> list[list[str]]:
    """The cells of the table that DuckDB prints, without its heads."""
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines[2:]]


def one_shot(
    root: Path,
    name: str,
    environ: Mapping[str, str],
    volumes: Mapping[str, Path] | None = None,
    more_files: Mapping[str, Path] | None = None,
) -> Container:
    """A service of the Compose file that runs when asked to, with variables of its own beside the file's."""
    return Container(
        root=root,
        image=ENGINE,
        volumes=volumes or {},
        files={**files(name), **(more_files or {})},
        environ={**SERVICES[name].get("environment", {}), **environ},
        options=("--unshare-net",) if SERVICES[name].get("network_mode") == "none" else (),
    )


def command(name: str) -> list[str]:
    return [*SERVICES[name]["entrypoint"], *SERVICES[name]["command"]]


async def test_what_the_compose_file_has_one_try_works(
    root: Path, engine: Path, rest_server: RestCatalogServer, tmp_path: Path, port: int
) -> None:
    warehouse = rest_server.folder / "warehouse"
    container = service(root, tmp_path, catalog=rest_server.uri, warehouse=warehouse, port=port)
    here = {"PYICEBERG_CATALOG__LAKE__URI": rest_server.uri, "EVENTS_URL": f"http://127.0.0.1:{port}/v1/events"}
    commit = one_shot(engine, "commit", here, {str(warehouse): warehouse})
    directory = f"{warehouse}/sales/orders"
    read = one_shot(engine, "read", {}, more_files={str(warehouse): warehouse})
    entrypoint = SERVICES["read"]["entrypoint"]
    missing = await ran(read, *entrypoint, directory)
    assert (missing.returncode, "run the service `commit`" in missing.stderr) == (1, True)
    async with serving(container, tmp_path / "log"):
        for number in range(1, 3):
            done = await ran(commit, *command("commit"))
            assert done.returncode == 0, done.stdout + done.stderr
            pointer = sfn.resolve(directory, table="sales.orders").metadata_location
            assert f"committed {pointer}\n" in done.stdout
            expected = [[f"{one}", f"item {one}"] for one in range(1, 2 * number + 1)]
            assert table_rows(await ran(read, *entrypoint, directory)) == expected


class S3OfCompose(Server):
    """The Compose file's `s3` with its own options, but for the port and the folder."""

    title = "versitygw"

    def __init__(self) -> None:
        self._program = found("SFN_VERSITYGW")
        super().__init__()
        (self.folder / "buckets" / "lake").mkdir(parents=True)

    @override
    def _answers(self) -> bool:
        path = urlsplit(SERVICES["s3"]["healthcheck"]["test"][-1]).path
        try:
            return httpx.get(f"{self.url}{path}", timeout=5.0, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    @override
    def _command(self) -> Sequence[str | Path]:
        *options, kind, _ = SERVICES["s3"]["command"]
        options[options.index("--port") + 1] = f"127.0.0.1:{self.port}"
        return [self._program, *options, kind, self.folder / "buckets"]

    @override
    def _environment(self) -> Mapping[str, str]:
        variables: Mapping[str, str] = SERVICES["s3"]["environment"]
        return variables


@pytest.fixture(name="s3")
def fixture_s3() -> Iterator[S3OfCompose]:
    with S3OfCompose() as server:
        yield server


async def test_what_the_compose_file_has_one_try_on_s3_works(
    root: Path, engine: Path, s3: S3OfCompose, tmp_path: Path, port: int
) -> None:
    """In the place of Iceberg's server, whose S3 client is not among the tests' jars, PyIceberg keeps the catalog."""
    keys = SERVICES["sfn-s3"]["environment"] | {"AWS_ENDPOINT_URL_S3": s3.url}
    lake = tmp_path / "lake"
    lake.mkdir()
    catalog = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": "s3://lake/warehouse"}
    given = {f"PYICEBERG_CATALOG__LAKE__{name.upper()}": value for name, value in catalog.items()}
    given |= {"PYICEBERG_CATALOG__LAKE__S3__ENDPOINT": s3.url, "EVENTS_URL": f"http://127.0.0.1:{port}/v1/events"}
    settings = tmp_path / "sfn.toml"
    text = files("sfn-s3")["/etc/sfn/sfn.toml"].read_text()
    properties = ", ".join(f'"{name}" = "{value}"' for name, value in (catalog | {"s3.endpoint": s3.url}).items())
    settings.write_text(
        text.replace('uri = "http://catalog-s3:8181"', f'type = "pyiceberg"\nproperties = {{ {properties} }}')
    )
    (tmp_path / "inbox").mkdir()
    container = Container(
        root=root,
        volumes={VOLUME: tmp_path / "inbox", str(lake): lake},
        files=files("sfn-s3") | {"/etc/sfn/sfn.toml": settings},
        environ=keys
        | {
            "SFN_LISTENER__HOST": "127.0.0.1",
            "SFN_LISTENER__PORT": str(port),
            "SFN_STORES__LAKE__ENDPOINT": s3.url,
        },
    )
    commit = one_shot(engine, "commit-s3", keys | given, {str(lake): lake})
    read = one_shot(engine, "read-s3", keys)
    async with serving(container, tmp_path / "log"):
        for number in range(1, 3):
            done = await ran(commit, *command("commit-s3"))
            assert (done.returncode, done.stderr) == (0, ""), done.stdout
            assert "published in s3://lake/warehouse/sales/orders" in done.stdout
            expected = [[f"{one}", f"item {one}"] for one in range(1, 2 * number + 1)]
            assert table_rows(await ran(read, *command("read-s3"))) == expected
        metadata = s3.folder / "buckets" / "lake" / "warehouse" / "sales" / "orders" / "metadata"
        assert (metadata / "_sfn" / "sales_orders_main.ver").is_file()


async def test_loopback_behind_a_network_of_its_own_is_warned_of(root: Path, world: Lake, tmp_path: Path) -> None:
    container = service(root, world.folder, catalog=world.uri, warehouse=world.folder / "warehouse", port=8085)
    marker = tmp_path / "dockerenv"
    marker.touch()
    sealed = replace(container, files={**container.files, "/.dockerenv": marker}, options=("--unshare-net",))
    async with serving(sealed, world.folder / "log") as running:
        warned = [one for one in map(json.loads, running.told().splitlines()) if one["level"] == "warning"]
    assert [(one["event"], one.get("container")) for one in warned[:1]] == [(UNREACHABLE, "/.dockerenv")]
