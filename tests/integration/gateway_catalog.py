"""Iceberg's own REST catalog behind a gateway, and the service that learns of its commits in no other way."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
from pyiceberg.catalog.rest import RestCatalog

import sfn
from sfn.demo.demo import DirectCatalog
from sfn.demo.environment import GuardedProcess, RestCatalogServer, ServerRuntime
from sfn.errors import Unreadable
from sfn.sfnfile import document
from sfn.sfnfile.locations import canonical
from tests.support.pages import ROOT
from tests.support.processes import wait_for

Identifier = tuple[str, ...]

PATIENCE: Final = 60.0
"""Seconds that the service has for each thing to do."""
_LOOK_EVERY: Final = 0.05
_DRAIN: Final = 20.0
# No drop is held back, and what is done again is done soon: the tests drop more than any operator would have it.
_CONFIGURATION: Final = """\
[listener]
port = 0
[inbox]
url = "sqlite:///{folder}/inbox.db"
[sweep]
every = "off"
[retry]
cap = "1s"
[catalogs.prod]
uri = "{uri}"
replica_lag = "0"
min_publish_interval = "0"
max_drops = 1000000
[stores.lake]
prefix = "{warehouse}"
[gateway.prod]
upstream = "{uri}"
[telemetry]
format = "json"
"""


@dataclass(frozen=True, slots=True)
class Gated:
    """A catalog, its gateway, and the service.

    Attributes:
        server: the catalog.
        folder: the service's, with its inbox and its log.
        listener: where the service listens.
    """

    server: RestCatalogServer
    folder: Path
    listener: str

    @property
    def uri(self) -> str:
        """The catalog's address through the gateway."""
        return f"{self.listener}/catalog/prod"

    @property
    def warehouse(self) -> Path:
        """The folder that the catalog puts tables in."""
        return Path(self.server.warehouse.removeprefix("file://"))

    def client(self, **properties: str) -> RestCatalog:
        """PyIceberg's own client, through the gateway."""
        return DirectCatalog("gated", uri=self.uri, **properties)

    def held(self) -> dict[Identifier, str]:
        """The pointer of every table in the warehouse, as the catalog itself says it."""
        with httpx.Client(base_url=f"{self.server.uri}/v1", trust_env=False) as client:
            pointers = {name: canonical(_table(client, name)) for name in _tables(client, ())}
        return {name: pointer for name, pointer in pointers.items() if self.warehouse.as_uri() in pointer}

    def published(self) -> dict[Identifier, str]:
        """The pointer of every table, as files in the warehouse say it."""
        found: dict[Identifier, str] = {}
        for file in sorted(self.warehouse.glob("**/_sfn/*.ver")):
            # One may be deleted meanwhile.
            with suppress(FileNotFoundError):
                one = document.parse(file.read_bytes())
                if one.is_live:
                    found[*one.namespace, one.name] = canonical(one.metadata_file_path)
        return found

    def resolved(self, directory: Path, *name: str) -> str | None:
        """What a reader of a table's directory is told; None for a refusal."""
        try:
            return canonical(sfn.resolve(directory, name).metadata_location)
        except Unreadable:
            return None

    def until_followed(self) -> dict[Identifier, str]:
        """Wait until files say of all tables what the catalog says, and of no others; what that is.

        Raises:
            TimeoutError: they do not.
        """
        held = self.held()
        try:
            wait_for(lambda: self.published() == held, "files that say what the catalog says", PATIENCE, _LOOK_EVERY)
        except TimeoutError as error:
            error.add_note(f"the catalog: {held}\nthe files: {self.published()}\n{self._log.read_text()[-4000:]}")
            raise
        return held

    def intents(self, *, left: bool) -> int:
        """How many intents are open, once all that was noted of them is folded.

        Args:
            left: of commits whose answer did not tell their outcome; else of those without an answer.
        """

        def waiting() -> int:
            with closing(sqlite3.connect(f"file:{self.folder}/inbox.db?mode=ro", uri=True)) as inbox:
                return int(inbox.execute("SELECT count(*) FROM pending").fetchone()[0])

        wait_for(lambda: waiting() == 0, "all messages to be folded", PATIENCE, _LOOK_EVERY)
        with closing(sqlite3.connect(f"file:{self.folder}/inbox.db?mode=ro", uri=True)) as inbox:
            query = "SELECT count(DISTINCT id) FROM intent WHERE is_unresolved = ?"
            (count,) = inbox.execute(query, (left,)).fetchone()
        return int(count)

    def passed(self, kind: str) -> dict[str, int]:
        """How many requests passed, by the first digit of the catalog's answer.

        Args:
            kind: `commit` or `other`.
        """
        page = httpx.get(f"{self.listener}/metrics", trust_env=False).raise_for_status().text
        lines = (line.rpartition(" ") for line in page.splitlines() if line.startswith("sfn_gateway_requests_total{"))
        mine = {labels.partition('answer="')[2][:3]: value for labels, _, value in lines if f'kind="{kind}"' in labels}
        return {answer: int(float(value)) for answer, value in mine.items() if float(value)}

    @property
    def _log(self) -> Path:
        return self.folder / "service.log"


@contextmanager
def gated(folder: Path, runtime: ServerRuntime) -> Iterator[Gated]:
    """A catalog without tables, its gateway and the service; all are killed in the end.

    Args:
        folder: an empty one.
        runtime: runs the catalog.
    """
    (folder / "catalog").mkdir()
    with RestCatalogServer(folder / "catalog", runtime) as server, beside(server, folder) as found:
        yield found


@contextmanager
def beside(server: RestCatalogServer, folder: Path, module: Sequence[str] = ("sfn",)) -> Iterator[Gated]:
    """A gateway and the service for a catalog that runs.

    Args:
        folder: for the service's configuration, inbox and log.
        module: what is started with `python -m`, and arguments of its own before those of `sfn`.
    """
    configuration, log = folder / "sfn.toml", folder / "service.log"
    configuration.write_text(_CONFIGURATION.format(folder=folder, uri=server.uri, warehouse=server.warehouse))
    # No variable of the user's, which would win over the file.
    command: list[str | Path] = [sys.executable, "-m", *module, "serve", "--config", configuration]
    process = GuardedProcess(command, env={"PYTHONPATH": str(ROOT)}, log=log)
    try:
        yield Gated(server, folder, _listener(process, log))
        status = process.terminate(_DRAIN)
        assert status == 0, log.read_text()[-4000:]
    finally:
        process.kill()


def _listener(process: GuardedProcess, log: Path) -> str:
    def is_ready() -> bool:
        assert process.status() is None, log.read_text()
        return '"event": "ready"' in log.read_text()

    wait_for(is_ready, f"{log} to tell of a ready service", PATIENCE, _LOOK_EVERY)
    line = next(line for line in log.read_text().splitlines() if '"event": "started"' in line)
    return line.partition('"url": "')[2].partition('"')[0].rstrip("/")


def _tables(client: httpx.Client, parent: Identifier) -> Iterator[Identifier]:
    answer = client.get("/namespaces", params={"parent": ".".join(parent)} if parent else {})
    for levels in answer.raise_for_status().json()["namespaces"]:
        found = client.get(f"{_path(levels)}/tables").raise_for_status().json()["identifiers"]
        yield from ((*one["namespace"], one["name"]) for one in found)
        yield from _tables(client, tuple(levels))


def _table(client: httpx.Client, name: Identifier) -> str:
    table = client.get(f"{_path(name[:-1])}/tables/{quote(name[-1], safe='')}")
    return str(table.raise_for_status().json()["metadata-location"])


def _path(namespace: Sequence[str]) -> str:
    # What the server has between levels, it knows encoded alone.
    return f"/namespaces/{'%2E'.join(quote(level, safe='') for level in namespace)}"
