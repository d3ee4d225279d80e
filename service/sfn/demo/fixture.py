"""Iceberg's own REST catalog server, as a process that lives no longer than ours."""

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import httpx

from sfn.demo.guard import GuardedProcess
from sfn.errors import ErrorScope, Permanent

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

# Up sooner and at less cost: it lives for a minute. No file of the JVM's own outlives the killed process.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRuntime:
    """What the server needs.

    Args:
        java: the executable, of version 17 or newer.
        jars: the folder with the server's jars.
    """

    java: Path
    jars: Path


def find_runtime(*, java: Path | None = None, jars: Path | None = None, cache: Path | None = None) -> ServerRuntime:
    """Find what `make jars` fetched, where `java` and `jars` do not say otherwise.

    Args:
        java: `$SFN_JAVA`, if set.
        jars: `$SFN_JARS`, if set.
        cache: `$XDG_CACHE_HOME`, if set.
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
    """A strict REST catalog in `folder`: its database, its warehouse and its log.

    It has no authentication and cannot be told to listen on the loopback interface alone.
    `stop` and `start` again make an outage: port, database and warehouse stay the same.

    Args:
        folder: what it keeps; one that was used before goes on where it was.
        runtime: what runs it.
        port: where it listens; 0 for any that is free.
        patience: seconds that it has to answer.
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
            # The server would start all the same, and share the requests with whoever has the port.
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
        """Kill the server, as a power cut would."""
        if self._server is not None:
            self._server.kill()
            self._server = None

    def client(self, through: str | None = None) -> "RestCatalog":
        """For those who use its tables, through a gateway if one is named."""
        from sfn.demo.direct import DirectCatalog  # noqa: PLC0415 - an optional dependency

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
    """Take a port that nobody listens on, on any interface, as the server will."""
    return socket.create_server(("", port))
