"""The processes of the demo: catalog servers and the listener; and the client that uses the tables."""

from __future__ import annotations

import importlib
import json
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import httpx

from sfn.errors import ErrorScope, Permanent, SfnError
from sfn.reader.api import resolve
from sfn.sfnfile.locations import canonical

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyiceberg.catalog import MetastoreCatalog
    from pyiceberg.catalog.rest import RestCatalog


class CatalogServer(Protocol):
    """A catalog in a folder, which can be stopped and started again.

    Attributes:
        title: the catalog's kind, in words.
        place: its address.
        warehouse: the location of its tables.
        settings: the lines of the listener's section `catalogs.NAME`.
        upstream: the address for a gateway; None if no gateway is possible.
    """

    title: str
    place: str
    warehouse: str
    settings: str
    upstream: str | None

    def start(self) -> None:
        """Start to answer."""
        ...

    def stop(self) -> None:
        """Stop to answer, without a warning."""
        ...

    def client(self, through: str | None = None) -> RestCatalog | MetastoreCatalog:
        """Return a client.

        Args:
            through: the gateway's URL; None for the catalog itself.
        """
        ...


NAMESPACE = "shop"
_NEEDED_PACKAGES = ("pyarrow", "pyiceberg", "duckdb", "duckdb_extension_iceberg")
_EXTENSIONS = ("avro", "httpfs", "iceberg")
ItemRow = tuple[int, str, float]


def require_packages() -> None:
    """Import the optional packages of the demo.

    Raises:
        SfnError: the optional dependencies are not installed.
    """
    for name in _NEEDED_PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise SfnError(
                "sfn demo",
                expected="PyIceberg and DuckDB",
                found=f"no {error.name or name}",
                remedy="pip install '.[demo]'",
            ) from error


@dataclass(frozen=True, slots=True)
class Lake:
    """A client of the tables of one namespace."""

    catalog: RestCatalog | MetastoreCatalog

    @classmethod
    def connect(cls, server: CatalogServer, through: str | None) -> Lake:
        """Connect, through a gateway if one is given, and create the namespace."""
        catalog = server.client(through)
        catalog.create_namespace(NAMESPACE)
        return cls(catalog)

    def create(self, name: str) -> str:
        """Create an empty table. Return its metadata location."""
        from pyiceberg.schema import Schema  # noqa: PLC0415 - an optional dependency
        from pyiceberg.types import DoubleType, LongType, NestedField, StringType  # noqa: PLC0415 - an optional dependency

        schema = Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "item", StringType(), required=False),
            NestedField(3, "price", DoubleType(), required=False),
        )
        return str(self.catalog.create_table((NAMESPACE, name), schema).metadata_location)

    def append(self, name: str, *rows: ItemRow) -> str:
        """Commit rows. Return the new metadata location."""
        import pyarrow as pa  # noqa: PLC0415 - an optional dependency

        table = self.catalog.load_table((NAMESPACE, name))
        ids, items, prices = zip(*rows, strict=True)
        table.append(pa.table({"id": list(ids), "item": list(items), "price": list(prices)}))
        return str(table.metadata_location)

    def rename(self, old: str, new: str) -> None:
        """Rename a table."""
        self.catalog.rename_table((NAMESPACE, old), (NAMESPACE, new))

    def drop(self, name: str) -> None:
        """Drop a table without deleting its files."""
        self.catalog.drop_table((NAMESPACE, name))

    def pointer(self, name: str) -> str:
        """Return the metadata location in the catalog."""
        return str(self.catalog.load_table((NAMESPACE, name)).metadata_location)

    def directory(self, name: str) -> Path:
        """Return a table's directory."""
        location = self.catalog.load_table((NAMESPACE, name)).location()
        return Path(canonical(location).removeprefix("file://"))


def read_with_pyiceberg(directory: Path) -> list[ItemRow]:
    """Read a table's rows from its directory with PyIceberg and `sfn.resolve`."""
    from pyiceberg.table import StaticTable  # noqa: PLC0415 - an optional dependency

    table = StaticTable.from_metadata(resolve(directory).metadata_location)
    return sorted((row["id"], row["item"], row["price"]) for row in table.scan().to_arrow().to_pylist())


def read_with_duckdb(directory: Path) -> list[ItemRow]:
    """Read a table's rows from its directory with DuckDB, which uses the version hint."""
    with duckdb_for_iceberg() as connection:
        return connection.execute(
            "SELECT id, item, price FROM iceberg_scan(?) ORDER BY id", [str(directory)]
        ).fetchall()


def duckdb_for_iceberg() -> DuckDBPyConnection:
    """Open DuckDB in memory with the extensions for Iceberg."""
    import duckdb  # noqa: PLC0415 - an optional dependency

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in _EXTENSIONS:
        connection.load_extension(str(_extension(name)))
    return connection


def _extension(name: str) -> Path:
    """Return the file of an extension from its PyPI package, so that DuckDB downloads nothing."""
    package = importlib.import_module(f"duckdb_extension_{name}")
    (file,) = Path(str(package.__file__)).parent.glob(f"extensions/*/{name}.duckdb_extension")
    return file


# The guard kills its process group when its standard input ends. Only this process has the other end of the pipe, so
# that happens when this process ends in any way. PR_SET_PDEATHSIG works on Linux only, and already acts when the
# *thread* ends that started the process.
_GUARD = ("/bin/sh", "-c", "read -r _; kill -KILL 0")


class GuardedProcess:
    """A process that does not outlive this one: a guard in its process group kills it.

    Args:
        command: the program and its arguments.
        env: the whole environment.
        log: the file to append the output to.
    """

    def __init__(self, command: Sequence[str | Path], *, env: Mapping[str, str], log: Path) -> None:
        self._guard = subprocess.Popen(_GUARD, stdin=subprocess.PIPE, process_group=0)  # noqa: S603
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(  # noqa: S603
                    command,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    process_group=self._guard.pid,
                )
        except BaseException:
            self._end(self._guard)
            raise

    def status(self) -> int | None:
        """Return the exit status; None while the process runs."""
        return self._process.poll()

    def terminate(self, patience: float) -> int:
        """Terminate the process. Return its exit status, or -1 if it had to be killed.

        Args:
            patience: seconds until it is killed.
        """
        self._process.terminate()
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process, like a power cut. Do nothing if it has ended."""
        self._end(self._process)
        self._end(self._guard)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        if process.stdin:
            process.stdin.close()


# The server lives for a minute, so it should start fast. UsePerfData would leave a file of the killed JVM behind.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRuntime:
    """Java and jars of the server.

    Args:
        java: the java executable, version 17 or newer.
        jars: the folder with the server's jars.
    """

    java: Path
    jars: Path


def find_runtime(*, java: Path | None = None, jars: Path | None = None, cache: Path | None = None) -> ServerRuntime:
    """Return the given Java and jars, or those that `make jars` downloaded.

    Args:
        java: `$SFN_JAVA`, if set.
        jars: `$SFN_JARS`, if set.
        cache: `$XDG_CACHE_HOME`, if set.

    Raises:
        Permanent: Java or the jars are missing.
    """
    fetched = (cache or Path.home() / ".cache") / "iceberg-sfn" / "rest-fixture-1.11.0" / "env"
    lines = fetched.read_text().splitlines() if fetched.is_file() else []
    found = dict(line.split("=", 1) for line in lines)
    java = java or Path(found.get("SFN_JAVA", ""))
    jars = jars or Path(found.get("SFN_JARS", ""))
    if java.is_file() and any(jars.glob("iceberg-open-api-*.jar")):
        return ServerRuntime(java=java, jars=jars)
    raise Permanent(
        str(fetched),
        scope=ErrorScope.CATALOG,
        expected="a Java and the jars of Iceberg's REST catalog server",
        found=f"SFN_JAVA={java} SFN_JARS={jars}" if lines else "no such file",
        remedy="run `make jars` in the source tree, or set SFN_JAVA and SFN_JARS",
    )


class RestCatalogServer:
    """Iceberg's REST catalog server, with its database, warehouse and log in a folder.

    The server has no authentication, and listens on all interfaces: it has no setting for that. `stop` and `start` make
    an outage: port, database and warehouse stay the same.

    Args:
        folder: the folder for its files; a used folder continues with its tables.
        runtime: Java and jars.
        port: the port; 0 for any free port.
        patience: the most seconds until it answers.
    """

    title = "Iceberg's own REST catalog server"

    def __init__(self, folder: Path, runtime: ServerRuntime, *, port: int = 0, patience: float = 60.0) -> None:
        self.folder = folder.resolve()
        self.log = self.folder / "catalog.log"
        self.warehouse = (self.folder / "warehouse").as_uri()
        self._runtime = runtime
        self._patience = patience
        self._server: GuardedProcess | None = None
        self._port = port or _free_port()
        self.uri = self.place = f"http://127.0.0.1:{self._port}"
        self.settings = f'uri = "{self.uri}"'
        self.upstream: str | None = self.uri

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        try:
            _bind_port(self._port).close()
        except OSError as error:
            # The server would start nevertheless, and share the requests with the process that has the port.
            raise self._not_ready_error("a free port", f"port {self._port}: {error.strerror}") from error
        scratch = self.folder / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        self._server = GuardedProcess(
            [self._runtime.java, *_JVM, f"-Djava.io.tmpdir={scratch}", "-cp", f"{self._runtime.jars}/*", _MAIN],
            env={
                "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
                "CATALOG_JDBC_STRICT__MODE": "true",
                "CATALOG_REST_PORT": str(self._port),
                "CATALOG_URI": f"jdbc:sqlite:{self.folder / 'catalog.db'}",
                "CATALOG_WAREHOUSE": self.warehouse,
            },
            log=self.log,
        )
        try:
            self._wait(self._server)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill the server, like a power cut."""
        if self._server is not None:
            self._server.kill()
            self._server = None

    def client(self, through: str | None = None) -> RestCatalog:
        """Return a client, through a gateway if one is given."""
        from sfn.demo.demo import DirectCatalog  # noqa: PLC0415 - an optional dependency

        return DirectCatalog("demo", uri=through or self.uri)

    def _wait(self, server: GuardedProcess) -> None:
        deadline = time.monotonic() + self._patience
        with httpx.Client(base_url=self.uri, timeout=5.0, trust_env=False) as client:
            while time.monotonic() < deadline:
                if (status := server.status()) is not None:
                    raise self._not_ready_error("a running server", f"it ended with status {status}")
                try:
                    if client.get("/v1/config").is_success:
                        return
                except httpx.TransportError:
                    pass
                time.sleep(0.05)
        raise self._not_ready_error("an answer to GET /v1/config", f"none in {self._patience:g} seconds")

    def _not_ready_error(self, expected: str, found: str) -> Permanent:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.is_file() else []
        log_tail = "\n".join(["", *lines[-15:]]) if lines else ""
        return Permanent(str(self.log), scope=ErrorScope.CATALOG, expected=expected, found=f"{found}{log_tail}")


def _free_port() -> int:
    with _bind_port(0) as probe:
        return int(probe.getsockname()[1])


def _bind_port(port: int) -> socket.socket:
    """Bind a free port on all interfaces, as the server does."""
    return socket.create_server(("", port))


DEMO_CATALOG = "demo"
_PATIENCE = 20.0
_DRAIN = 15.0
_CONFIGURATION = """\
[listener]
port = 0

[inbox]
url = "sqlite:///{folder}/inbox.db"

[sweep]
every = "1m"

[catalogs.{catalog}]
{catalog_settings}
replica_lag = "500ms"
min_publish_interval = "100ms"
{gateway}

[stores.warehouse]
prefix = "{warehouse}"

[senders.demo]
secrets = {{ main = "{token}" }}

[facade]
token = "{readers}"

[admin]
token = "{operators}"

[telemetry]
format = "json"
"""


_GATEWAY = """
[gateway.{catalog}]
upstream = "{upstream}"
"""


@dataclass(slots=True)
class RunningService:
    """A running listener.

    Attributes:
        url: its base URL.
        gateway: the URL of its gateway; None if there is no gateway.
        reader_token: the token for its facade.
        configuration: its configuration file.
        log: its log file, JSON lines.
        process: its process.
        client: an HTTP client with the sender's token.
    """

    url: str
    gateway: str | None
    reader_token: str
    configuration: Path
    log: Path
    process: GuardedProcess
    client: httpx.Client

    @property
    def facade(self) -> str:
        """Return the URL of its facade."""
        return f"{self.url}/iceberg"

    def post_event(self, event: Mapping[str, object]) -> None:
        """Send an event.

        Raises:
            SfnError: the event was not accepted.
        """
        answer = self.client.post("/v1/events", json=event)
        if answer.status_code != httpx.codes.ACCEPTED or answer.json()["accepted"] < 1:
            raise SfnError(f"{self.url}/v1/events", expected="202 and an accepted event", found=answer.text)

    def run_command(self, *command: str) -> list[str]:
        """Run a command of `sfn` with the operators' token. Return the lines that it prints.

        Raises:
            SfnError: the command failed.
        """
        line = [sys.executable, "-m", "sfn", *command, "--config", str(self.configuration), "--url", self.url]
        # The user's environment variables must not override the configuration.
        done = subprocess.run(line, env={"COLUMNS": "110"}, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise SfnError(
                f"sfn {' '.join(command)}", expected="exit code 0", found=f"{done.returncode}: {done.stderr}"
            )
        return done.stdout.splitlines()

    def kill(self) -> None:
        """Kill the process, like a power cut."""
        self.process.kill()

    def restart(self) -> None:
        """Start the listener again at the same address.

        Raises:
            SfnError: it does not get ready.
        """
        known = sum(1 for _ in _log_records(self.log))
        text = self.configuration.read_text()
        self.configuration.write_text(text.replace("port = 0", f"port = {httpx.URL(self.url).port}"))
        self.process = _start_process(self.configuration, self.log)
        _wait_until_ready(self.process, self.log, known)

    def stop(self) -> None:
        """Terminate the listener, as an orchestrator does.

        Raises:
            SfnError: it did not end with 0.
        """
        status = self.process.terminate(_DRAIN)
        if status != 0:
            raise SfnError(str(self.log), expected="a service that drains and ends with 0", found=f"{status}")

    def count_log_records(self, **fields: str) -> int:
        """Return how many log records have these fields."""
        return sum(fields.items() <= record.items() for record in _log_records(self.log))


@contextmanager
def running_service(folder: Path, server: CatalogServer) -> Iterator[RunningService]:
    """Run a listener in a folder; at the end it is killed, if it still runs.

    Args:
        folder: the folder for its configuration, inbox and log.
        server: the catalog.

    Raises:
        SfnError: it does not get ready.
    """
    token, reader_token = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    configuration = folder / "sfn.toml"
    configuration.write_text(
        _CONFIGURATION.format(
            catalog=DEMO_CATALOG,
            catalog_settings=server.settings,
            gateway="" if server.upstream is None else _GATEWAY.format(catalog=DEMO_CATALOG, upstream=server.upstream),
            folder=folder,
            warehouse=server.warehouse,
            token=token,
            readers=reader_token,
            operators=secrets.token_urlsafe(24),
        )
    )
    configuration.chmod(0o600)
    log = folder / "service.log"
    process = _start_process(configuration, log)
    service: RunningService | None = None
    try:
        url = _wait_until_ready(process, log)
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=10.0, trust_env=False) as client:
            gateway = None if server.upstream is None else f"{url}/catalog/{DEMO_CATALOG}"
            service = RunningService(url, gateway, reader_token, configuration, log, process, client)
            yield service
    finally:
        (process if service is None else service.process).kill()


def _start_process(configuration: Path, log: Path) -> GuardedProcess:
    # Environment variables of the user would override the configuration file.
    return GuardedProcess([sys.executable, "-m", "sfn", "serve", "--config", configuration], env={}, log=log)


def _wait_until_ready(process: GuardedProcess, log: Path, known: int = 0) -> str:
    """Wait until a listener is ready, and return its URL.

    Args:
        process: the listener's process.
        log: its log file.
        known: the number of log records of an earlier process, to skip.
    """
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.status() is None:
        events = {record.get("event"): record for record in islice(_log_records(log), known, None)}
        if "ready" in events:
            return str(events["started"]["url"])
        time.sleep(0.05)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    found = f"status {process.status()} and this log:\n{tail}"
    raise SfnError(str(log), expected=f"a ready service within {_PATIENCE:g} s", found=found)


def _log_records(log: Path) -> Iterator[dict[str, object]]:
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{") and line.endswith("}"):
            yield json.loads(line)
