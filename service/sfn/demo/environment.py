"""The processes of the demo: catalog servers and the listener."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx
from typing_extensions import override

from sfn.errors import ErrorScope, Permanent, SfnError

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

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


class CatalogServer(ABC):
    """A REST catalog in a process, with its database, warehouse and log in a folder.

    The catalog has no authentication. `stop` and `start` make an outage: port, database and warehouse stay the same.

    Args:
        folder: the folder for its files; a used folder continues with its tables.
        port: the port; 0 for any free port.
        patience: the most seconds until it answers.
    """

    title: str
    """The catalog's kind, in words."""
    host = "127.0.0.1"
    """The address that the catalog listens on."""

    def __init__(self, folder: Path, *, port: int = 0, patience: float = 60.0) -> None:
        self.folder = folder.resolve()
        self.log = self.folder / "catalog.log"
        self.warehouse = (self.folder / "warehouse").as_uri()
        self._patience = patience
        self._server: GuardedProcess | None = None
        self._port = port or self._free_port()
        self.uri = f"http://127.0.0.1:{self._port}"
        self.settings = f'uri = "{self.uri}"'
        """The lines of the listener's section `catalogs.NAME`."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _start_process(self) -> GuardedProcess: ...

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            Permanent: it does not answer in time, or another process has its port.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._bind_port(self._port).close()
        except OSError as error:
            # Iceberg's own server would start nevertheless, and share the requests with the process that has the port.
            raise self._not_ready_error("a free port", f"port {self._port}: {error.strerror}") from error
        self._server = self._start_process()
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

    def client(self, through: str | None = None, **properties: str) -> RestCatalog:
        """Return a client of PyIceberg, through a gateway if one is given."""
        from sfn.demo.demo import DirectCatalog  # noqa: PLC0415 - an optional dependency

        return DirectCatalog("demo", uri=through or self.uri, **properties)

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

    def _free_port(self) -> int:
        with self._bind_port(0) as probe:
            return int(probe.getsockname()[1])

    def _bind_port(self, port: int) -> socket.socket:
        return socket.create_server((self.host, port))


class SqlCatalogServer(CatalogServer):
    """PyIceberg's SQL catalog with a SQLite file, behind the small REST server of `sfn.demo.catalog`."""

    title = "PyIceberg's SQL catalog, behind a small REST server"

    @override
    def _start_process(self) -> GuardedProcess:
        # Environment variables of the user could configure PyIceberg otherwise.
        return GuardedProcess(
            [sys.executable, "-m", "sfn.demo.catalog", self.folder, str(self._port)], env={}, log=self.log
        )


class RestCatalogServer(CatalogServer):
    """Iceberg's REST catalog server. It listens on all interfaces: it has no setting for that.

    Args:
        runtime: Java and jars.
    """

    title = "Iceberg's own REST catalog server"
    host = ""

    def __init__(self, folder: Path, runtime: ServerRuntime, *, port: int = 0, patience: float = 60.0) -> None:
        super().__init__(folder, port=port, patience=patience)
        self._runtime = runtime

    @override
    def _start_process(self) -> GuardedProcess:
        scratch = self.folder / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        return GuardedProcess(
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
{settings}
replica_lag = "500ms"
min_publish_interval = "100ms"
{more}

[gateway.{catalog}]
upstream = "{uri}"

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


@dataclass(slots=True)
class RunningService:
    """A running listener.

    Attributes:
        url: its base URL.
        gateway: the URL of its gateway.
        reader_token: the token for its facade.
        configuration: its configuration file.
        log: its log file, JSON lines.
        process: its process.
        client: an HTTP client with the sender's token.
    """

    url: str
    gateway: str
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
def running_service(folder: Path, server: CatalogServer, more: str = "") -> Iterator[RunningService]:
    """Run a listener in a folder; at the end it is killed, if it still runs.

    Args:
        folder: the folder for its configuration, inbox and log.
        server: the catalog.
        more: further lines of the catalog's section in the configuration.

    Raises:
        SfnError: it does not get ready.
    """
    token, reader_token = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    configuration = folder / "sfn.toml"
    configuration.write_text(
        _CONFIGURATION.format(
            more=more,
            catalog=DEMO_CATALOG,
            settings=server.settings,
            uri=server.uri,
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
            service = RunningService(
                url, f"{url}/catalog/{DEMO_CATALOG}", reader_token, configuration, log, process, client
            )
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
