"""The service as a process, asked by its operators how far it is, and the sections in which it follows the catalog."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from sfn.clock import SystemClock
from sfn.demo.environment import GuardedProcess
from sfn.sfnfile.naming import NAMINGS, Naming, Placement
from tests.support.processes import wait_for

Identifier = tuple[str, ...]
Row = dict[str, Any]

PATIENCE: Final = 60.0
"""Seconds that the service has for each thing to do."""
_FAR: Final = timedelta(minutes=1)
"""No setting makes it wait that long for anything but a file's refresh or expiry."""
_LOOK_EVERY: Final = 0.5
# Plays at once share the client, whose pool may let go of an idle connection as another thread takes it up again.
_NONE_KEPT: Final = httpx.Limits(max_keepalive_connections=0)
_DRAIN: Final = 20.0
_SEPARATOR: Final = "\x1f"
_TOKEN: Final = "a-token-for-tests"  # noqa: S105 - it opens nothing
_SELDOM: Final = "2m"
"""From one sweep to the next; one that is ordered waits a tenth of it, an absent table a quarter: not `_FAR`."""
_OPERATOR: Final = f"operators-{_TOKEN}"
_PARTIES: Final = f"""\
[listener]
port = 0
[sweep]
every = "{_SELDOM}"
[senders.test]
secrets = {{ main = "{_TOKEN}" }}
catalogs = {{ CATALOGS }}
[admin]
token = "{_OPERATOR}"
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
        self._client = httpx.Client(timeout=20.0, trust_env=False, limits=_NONE_KEPT)
        self._process: GuardedProcess | None = None
        self._started_at = SystemClock().now()
        self._catalogs = [followed.name for followed in catalogs]
        named = ", ".join(f'{name} = "{name}"' for name in self._catalogs)
        parts = [_PARTIES.replace("CATALOGS", named)]
        parts += [f'[inbox]\nurl = "sqlite:///{folder}/inbox.db"', f'[stores.lake]\nprefix = "{warehouse}"']
        parts += ["\n".join([f"[catalogs.{one.name}]", *one.settings]) for one in catalogs]
        self._configuration = folder / "sfn.toml"
        self._configuration.write_text("\n".join([*parts, ""]))
        self._configuration.chmod(0o600)

    def start(self) -> None:
        """Start it, and wait until it is ready.

        Raises:
            AssertionError: it ended.
            TimeoutError: it takes too long.
        """
        self._log.write_text("")
        self._started_at = SystemClock().now()
        command = [sys.executable, "-m", "sfn", "serve", "--config", str(self._configuration)]
        # No environment: a variable of the user's would win over the file.
        self._process = GuardedProcess(command, env={}, log=self._log)
        self._wait(self._is_ready, f"{self._log} to tell of a ready service")
        listening = next(record for record in self._records() if record.get("event") == "started")
        self._client.base_url = httpx.URL(str(listening["url"]))

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

    def sweep(self, catalogs: Sequence[str]) -> None:
        """Have it walk over catalogs, and wait until it has."""
        since = SystemClock().now()
        order = {"catalogs": list(catalogs)}
        self._client.post("/admin/v1/reconcile", json=order, headers=_bearer(_OPERATOR)).raise_for_status()
        self._until_swept(since, catalogs)

    def first_sweep(self, catalogs: Sequence[str]) -> None:
        """Wait until it has walked over catalogs since it was started."""
        self._until_swept(self._started_at, catalogs)

    def until_settled(self, catalog: str, tables: Sequence[Identifier]) -> None:
        """Wait until nothing is left to do for some tables.

        Raises:
            TimeoutError: it takes too long.
        """
        self._until_all(_is_settled, catalog, tables)

    def until_looked_at(self, catalog: str, tables: Sequence[Identifier]) -> None:
        """Wait until nothing is known of some tables for which they were not looked at.

        Raises:
            TimeoutError: it takes too long.
        """
        self._until_all(_is_looked_at, catalog, tables)

    def row(self, catalog: str, table: Identifier) -> Row | None:
        """What operators are told of a table; None of one that is not known."""
        namespace = quote(_SEPARATOR.join(table[:-1]), safe="")
        answer = self._get(f"tables/{catalog}/{namespace}/{quote(table[-1], safe='')}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found: Row = answer.raise_for_status().json()
        return found

    def _until_all(self, holds: Callable[[Row], bool], catalog: str, tables: Sequence[Identifier]) -> None:
        before: list[Row | None] = []

        def all_of_them() -> bool:
            nonlocal before
            last, before = before, [self.row(catalog, table) for table in tables]
            # One row may stir another that was looked at already: twice the same, and nothing was.
            is_still = len(tables) == 1 or last == before
            return is_still and all(row is None or holds(row) for row in before)

        # What was told just now is never done at once.
        time.sleep(_LOOK_EVERY)
        try:
            self._wait(all_of_them, f"{tables} of {catalog}")
        except TimeoutError as error:
            error.add_note(f"{before}")
            raise

    def _until_swept(self, since: datetime, catalogs: Sequence[str]) -> None:
        def swept() -> bool:
            found = self._get("status").raise_for_status().json()["catalogs"]
            return all(_is_swept_since(since, catalog) for catalog in found if catalog["name"] in catalogs)

        self._wait(swept, f"a sweep of each of {catalogs}")

    def _is_ready(self) -> bool:
        process = self._process
        if process is None or process.status() is not None:
            raise AssertionError(self._log.read_text())
        return {"started", "ready"} <= {record.get("event") for record in self._records()}

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        wait_for(holds, what, PATIENCE, _LOOK_EVERY)

    def _get(self, path: str) -> httpx.Response:
        return self._client.get(f"/admin/v1/{path}", headers=_bearer(_OPERATOR))

    def _records(self) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _is_looked_at(row: Row) -> bool:
    return not row["pending"]["has_unprocessed"] and row["state"] in {"dead", "queued"}


def _is_settled(row: Row) -> bool:
    is_far = datetime.fromisoformat(row["due_at"]) > SystemClock().now() + _FAR
    return _is_looked_at(row) and (row["state"] == "dead" or is_far)


def _is_swept_since(since: datetime, catalog: Mapping[str, Any]) -> bool:
    sweep = catalog["sweep"]
    if sweep is None or sweep["ended_at"] is None:
        return False
    if sweep["error"] is not None:
        raise AssertionError(f"a sweep without an error: {sweep}")
    return datetime.fromisoformat(sweep["started_at"]) >= since


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the configuration.

    Attributes:
        naming: what files are called.
        placement: where they lie.
        warehouse: where the catalog puts tables.
        expires: whether tombstones go as soon as they may.
    """

    naming: Naming
    placement: Placement
    warehouse: Path
    expires: bool = False

    @property
    def name(self) -> str:
        """By which events speak of it, and with which its namespaces begin."""
        if self.expires:
            return f"{self.naming.setting}-expiring"
        return self.naming.setting if self.placement is Placement.INSIDE else f"{self.naming.setting}-{self.placement}"

    @property
    def catalog_id(self) -> str:
        """By which its files speak of it."""
        return f"catalog-of-{self.name}"

    @property
    def root(self) -> Path:
        """Where files lie that lie below a root."""
        return self.warehouse / "pointers" / self.name

    def followed(self, told: str) -> Followed:
        """How the service is told of it.

        Args:
            told: the line that says where the catalog is.
        """
        lines = [
            told,
            f'catalog_id = "{self.catalog_id}"',
            f'include = ["{self.name}_*.**"]',
            f'naming = "{self.naming.setting}"',
            f'placement = "{self.placement}"',
            'replica_lag = "200ms"',
            'absence_delay = "1s"',
            'min_publish_interval = "0s"',
            "max_drops = 1000000",
            *(['expire_after = "2s"'] if self.expires else []),
        ]
        return Followed(self.name, [*lines, *self._branches(), *self._root()])

    def _branches(self) -> Sequence[str]:
        return ['branches = ["main", "release-*"]'] if self.naming.has_branch_files else []

    def _root(self) -> Sequence[str]:
        return [f'root = "{self.root}"'] if self.placement is Placement.ROOT else []


def founded(warehouse: Path) -> list[Section]:
    """All of them, with the roots that they need: a service makes none, as one that is missing may be a lost mount."""
    all_of_them = [Section(naming, placement, warehouse) for placement in Placement for naming in NAMINGS.values()]
    all_of_them += [Section(naming, Placement.INSIDE, warehouse, expires=True) for naming in NAMINGS.values()]
    for section in all_of_them:
        section.root.mkdir(parents=True)
    return all_of_them
