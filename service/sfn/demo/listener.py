"""The service as a process of its own, configured by a file: it stands before the catalog, or is told of commits."""

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import httpx

from sfn.demo.catalog import CatalogServer
from sfn.demo.guard import GuardedProcess
from sfn.errors import SfnError

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
    """A running service.

    Attributes:
        url: where it listens.
        gateway: where the catalog's users find it; None: they use the catalog itself.
        reader_token: the token of those who read through its facade.
        configuration: its file.
        log: its log, JSON lines.
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
        """Where its facade is: a catalog that nobody can write to."""
        return f"{self.url}/iceberg"

    def post_event(self, event: Mapping[str, object]) -> None:
        """Post an event.

        Raises:
            SfnError: it was not accepted.
        """
        answer = self.client.post("/v1/events", json=event)
        if answer.status_code != httpx.codes.ACCEPTED or answer.json()["accepted"] < 1:
            raise SfnError(f"{self.url}/v1/events", expected="202 and an event taken", found=answer.text)

    def run_command(self, *command: str) -> list[str]:
        """Run `sfn` as its operators do; what it prints.

        Raises:
            SfnError: it failed.
        """
        line = [sys.executable, "-m", "sfn", *command, "--config", str(self.configuration), "--url", self.url]
        # As for the service: no variable of the user's.
        done = subprocess.run(line, env={"COLUMNS": "110"}, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise SfnError(
                f"sfn {' '.join(command)}", expected="exit code 0", found=f"{done.returncode}: {done.stderr}"
            )
        return done.stdout.splitlines()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()

    def restart(self) -> None:
        """Start it again at the same address.

        Raises:
            SfnError: it does not get ready.
        """
        known = sum(1 for _ in _log_records(self.log))
        text = self.configuration.read_text()
        self.configuration.write_text(text.replace("port = 0", f"port = {httpx.URL(self.url).port}"))
        self.process = _start_process(self.configuration, self.log)
        _wait_until_ready(self.process, self.log, known)

    def stop(self) -> None:
        """Ask it to end, as an orchestrator does.

        Raises:
            SfnError: it did not end well.
        """
        status = self.process.terminate(_DRAIN)
        if status != 0:
            raise SfnError(str(self.log), expected="a service that drains and ends with 0", found=f"{status}")

    def count_log_records(self, **wanted: str) -> int:
        """How many records with these values its log has."""
        return sum(wanted.items() <= record.items() for record in _log_records(self.log))


@contextmanager
def running_service(folder: Path, server: CatalogServer) -> Iterator[RunningService]:
    """A service in a folder, killed in the end if it still runs.

    Args:
        folder: for its configuration, inbox and log.
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
    # No environment: a variable of the user's would win over the file.
    return GuardedProcess([sys.executable, "-m", "sfn", "serve", "--config", configuration], env={}, log=log)


def _wait_until_ready(process: GuardedProcess, log: Path, known: int = 0) -> str:
    """Wait until it is ready; its address. So many records are of a process before."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.status() is None:
        events = {record.get("event"): record for record in islice(_log_records(log), known, None)}
        if "ready" in events:
            return str(events["listening"]["url"])
        time.sleep(0.05)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    found = f"status {process.status()} and this log:\n{tail}"
    raise SfnError(str(log), expected=f"a ready service within {_PATIENCE:g} s", found=found)


def _log_records(log: Path) -> Iterator[dict[str, object]]:
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{") and line.endswith("}"):
            yield json.loads(line)
