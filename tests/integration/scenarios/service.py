"""The service as a process, asked by its operators how far it is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from sfn.clock import SystemClock
from sfn.demo.guard import Guarded

Identifier = tuple[str, ...]

PATIENCE: Final = 60.0
"""Seconds that the service has for each thing to do."""
_FAR: Final = timedelta(minutes=1)
"""No setting makes it wait that long for anything but a file's refresh or expiry."""
_LOOK_EVERY: Final = 0.2
# The service ends an idle connection after some seconds, and may do so as it is used again.
_SOON_LET_GO: Final = httpx.Limits(keepalive_expiry=1.0)
_DRAIN: Final = 20.0
_SEPARATOR: Final = "\x1f"
_TOKEN: Final = "a-token-for-tests"  # noqa: S105 - it opens nothing
_PARTIES: Final = f"""\
[listener]
port = 0
[sweep]
every = "8s"
[senders.test]
secrets = {{ main = "{_TOKEN}" }}
catalogs = {{ CATALOGS }}
[admin]
token = "operators-{_TOKEN}"
[telemetry]
format = "json"
"""


@dataclass(frozen=True, slots=True)
class Followed:
    """A catalog as the service is told of it.

    Attributes:
        name: by which events speak of it.
        settings: lines of its section.
    """

    name: str
    settings: Sequence[str]


class Service:
    """`sfn serve`, which can be stopped and started again.

    Args:
        folder: for its configuration, inbox and log.
        warehouse: URL of the folder that tables lie below.
        catalogs: whom it follows.
    """

    def __init__(self, folder: Path, warehouse: str, catalogs: Sequence[Followed]) -> None:
        self._folder = folder
        self._log = folder / "service.log"
        self._client = httpx.Client(timeout=20.0, trust_env=False, limits=_SOON_LET_GO)
        self._process: Guarded | None = None
        self._catalogs = [followed.name for followed in catalogs]
        named = ", ".join(f'{name} = "{name}"' for name in self._catalogs)
        parts = [_PARTIES.replace("CATALOGS", named)]
        parts += [f'[inbox]\nurl = "sqlite:///{folder}/inbox.db"', f'[stores.lake]\nprefix = "{warehouse}"']
        parts += ["\n".join([f"[catalogs.{one.name}]", *one.settings]) for one in catalogs]
        self._configuration = folder / "sfn.toml"
        self._configuration.write_text("\n".join([*parts, ""]))
        self._configuration.chmod(0o600)

    def start(self) -> None:
        """Start it, and wait until it has walked over all catalogs.

        Raises:
            AssertionError: it ended.
            TimeoutError: it takes too long.
        """
        self._log.write_text("")
        command = [sys.executable, "-m", "sfn", "serve", "--config", str(self._configuration)]
        # No environment: a variable of the user's would win over the file.
        process = self._process = Guarded(command, env={}, log=self._log)
        url = ""
        deadline = _Deadline(f"{self._log} to tell of a ready service")
        while not url:
            if process.status() is not None:
                raise AssertionError(self._log.read_text())
            events = {record.get("event"): record for record in self._records()}
            url = str(events["listening"]["url"]) if "ready" in events else ""
            deadline.wait()
        self._client.base_url = httpx.URL(url)
        self.until_swept()

    def stop(self) -> None:
        """Have it drain and end; it may have ended."""
        process, self._process = self._process, None
        if process is not None:
            status = process.terminate(_DRAIN)
            if status != 0:
                raise AssertionError(f"a service that ends with 0, not {status}: {self._log.read_text()[-4000:]}")

    def close(self) -> None:
        """Kill it if it still runs."""
        self._client.close()
        if self._process is not None:
            self._process.kill()

    def tell(self, event: Mapping[str, object]) -> None:
        """Post an event."""
        answer = self._client.post("/v1/events", json=event, headers=_bearer(_TOKEN))
        if answer.status_code != httpx.codes.ACCEPTED:
            raise AssertionError(f"{event}: {answer.status_code} {answer.text}")

    def until_swept(self) -> None:
        """Wait until a walk over each catalog has ended that began after this."""
        since = SystemClock().now()
        deadline = _Deadline("a sweep of each catalog")
        while not all(_is_swept_since(since, catalog) for catalog in self._asked("status")["catalogs"]):
            deadline.wait()

    def until_settled(self, catalog: str, tables: Sequence[Identifier]) -> None:
        """Wait until nothing is left to do for some tables.

        Raises:
            TimeoutError: it takes too long.
        """
        deadline = _Deadline(f"{tables} of {catalog} to settle")
        before: object = None
        while True:
            rows = [self.row(catalog, table) for table in tables]
            # One row may stir another that was looked at already: twice the same, and nothing was.
            if rows == before and all(row is None or _is_settled(row) for row in rows):
                return
            before = rows
            deadline.wait([row["last"] for row in rows if row is not None])

    def row(self, catalog: str, table: Identifier) -> dict[str, Any] | None:
        """What operators are told of a table; None of one that is not known."""
        namespace = quote(_SEPARATOR.join(table[:-1]), safe="")
        answer = self._get(f"tables/{catalog}/{namespace}/{quote(table[-1], safe='')}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def _asked(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return self._get(path).raise_for_status().json()

    def _get(self, path: str) -> httpx.Response:
        return self._client.get(f"/admin/v1/{path}", headers=_bearer(f"operators-{_TOKEN}"))

    def _records(self) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _is_settled(row: Mapping[str, Any]) -> bool:
    if row["wanted"]["news"]:
        return False
    is_far = datetime.fromisoformat(row["due_at"]) > SystemClock().now() + _FAR
    return bool(row["state"] == "dead" or (row["state"] == "queued" and is_far))


def _is_swept_since(since: datetime, catalog: Mapping[str, Any]) -> bool:
    sweep = catalog["sweep"]
    if sweep is None or sweep["ended_at"] is None:
        return False
    if sweep["error"] is not None:
        raise AssertionError(f"a sweep without an error: {sweep}")
    return datetime.fromisoformat(sweep["began_at"]) >= since


class _Deadline:
    """How long somebody waits for something."""

    def __init__(self, what: str) -> None:
        self._what, self._end = what, time.monotonic() + PATIENCE

    def wait(self, found: object = "nothing of the kind") -> None:
        """A moment.

        Args:
            found: what there is instead.

        Raises:
            TimeoutError: there is none left.
        """
        if time.monotonic() > self._end:
            raise TimeoutError(f"expected {self._what} within {PATIENCE:g} s, found {found}")
        time.sleep(_LOOK_EVERY)
