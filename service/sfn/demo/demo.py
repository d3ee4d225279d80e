"""A real catalog, the service and a table on one machine: what `sfn demo` shows and what tests stand on."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self, TypeVar

from pyiceberg.catalog.rest import RestCatalog
from requests import Session
from typing_extensions import override

from sfn.demo import environment
from sfn.demo.environment import (
    NAMESPACE,
    CatalogServer,
    ItemRow,
    Lake,
    RestCatalogServer,
    RunningService,
    ServerRuntime,
    running_service,
)
from sfn.errors import Dropped, SfnError, Unreadable
from sfn.reader.api import resolve
from sfn.sfnfile import document, version_hint
from sfn.sfnfile.naming import FileLayout, FileOwner

# ── narrator: Tells what happens

T = TypeVar("T")

_PATIENCE = 20.0
_PAUSE = 0.01


@dataclass(slots=True)
class Narrator:
    """One telling.

    Attributes:
        say: prints a line.
    """

    say: Callable[[str], None]
    _began: float = field(default_factory=time.monotonic)
    _steps: int = 0

    def step(self, what: str) -> None:
        """A new step begins."""
        self._steps += 1
        self.say("")
        self._line(f"{self._steps}. {what}")

    def note(self, what: str) -> None:
        """Something to know within a step."""
        self._line(f"   {what}")

    def show(self, *lines: str) -> None:
        """What there is to see, without times."""
        for line in lines:
            self.say(f"{'':16}{line}")

    def check(self, what: str, *, expected: object, found: object) -> None:
        """A result that must be the expected one.

        Raises:
            SfnError: it is another.
        """
        if found != expected:
            raise SfnError(f"step {self._steps}, {what}", expected=str(expected), found=str(found))
        self.note(f"✓ {what}")

    def wait_for(self, what: str, probe: Callable[[], T], expected: T) -> float:
        """Wait until a look finds the expected; after how many seconds it did. What a reader refuses is waited out.

        Raises:
            SfnError: it takes too long.
        """
        began = time.monotonic()
        found: T | Unreadable | None = None
        while time.monotonic() - began < _PATIENCE:
            try:
                found = probe()
            except Unreadable as refusal:
                found = refusal
            if found == expected:
                return time.monotonic() - began
            time.sleep(_PAUSE)
        raise SfnError(f"step {self._steps}, {what}", expected=f"{expected} in {_PATIENCE:g} s", found=str(found))

    def _line(self, text: str) -> None:
        self.say(f"{time.monotonic() - self._began:6.1f} s  {text}")


# ── direct: PyIceberg's client of a catalog on this machine


class DirectCatalog(RestCatalog):
    """A client that asks no proxy, whatever `HTTP_PROXY` is."""

    # PyIceberg has no setting for it, and its first request is sent while the client is made.
    @override
    def _create_session(self) -> Session:
        session = super()._create_session()
        session.trust_env = False
        return session


# ── sql: PyIceberg's SQL catalog in a SQLite file

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

SQL_CATALOG_NAME = "demo"
"""The database may hold several catalogs, told apart by this."""


class SqlCatalogFile:
    """A catalog in `folder`: its database and its warehouse. While it is stopped somebody keeps its database locked."""

    title = "PyIceberg's SQL catalog, in a SQLite file"

    def __init__(self, folder: Path) -> None:
        self.warehouse = (folder / "warehouse").as_uri()
        self.place = f"sqlite:///{folder / 'catalog.db'}"
        self.settings = (
            f'type = "pyiceberg"\nproperties = {{ type = "sql", uri = "{self.place}", name = "{SQL_CATALOG_NAME}" }}'
        )
        self.upstream: str | None = None
        self._database = folder / "catalog.db"
        self._lock: sqlite3.Connection | None = None
        (folder / "warehouse").mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.start()

    def start(self) -> None:
        """Let go of the database."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def stop(self) -> None:
        """Lock the database, as a migration would."""
        self._lock = sqlite3.connect(self._database, isolation_level=None)
        self._lock.execute("BEGIN EXCLUSIVE")

    def client(self, through: str | None = None) -> SqlCatalog:
        """For those who use its tables; the first one makes the database. No gateway leads to it."""
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - an optional dependency

        return SqlCatalog(SQL_CATALOG_NAME, uri=self.place, warehouse=self.warehouse)


# ── story: What the demo shows

_COMMITS: tuple[tuple[ItemRow, ...], ...] = (
    ((1, "anvil", 19.5), (2, "rope", 4.25)),
    ((3, "magnet", 12.0),),
    ((4, "rocket skates", 99.9), (5, "bird seed", 1.75)),
)
_ROW_DURING_OUTAGE: ItemRow = (6, "umbrella", 8.0)
_OUTAGE = 2.0


def run_demo(runtime: ServerRuntime | None, say: Callable[[str], None], reason_without_runtime: str = "") -> None:
    """Show it all, in a temporary folder that is gone afterwards, as are all processes.

    Args:
        runtime: what the catalog server needs; None to do with PyIceberg's SQL catalog.
        say: prints a line.
        reason_without_runtime: why there is no runtime.

    Raises:
        SfnError: something is not as it should be.
    """
    environment.require_packages()
    narrator = Narrator(say)
    if runtime is None:
        narrator.say(f"Without a REST catalog server, on PyIceberg's SQL catalog: {reason_without_runtime}")
    narrator.step("What this takes: PyIceberg and DuckDB, a temporary folder")
    with TemporaryDirectory(prefix="sfn-demo-") as folder:
        narrator.note(folder)
        _Demo(narrator, Path(folder).resolve()).run(runtime)
    narrator.say("")
    narrator.note("All processes are gone, and the folder too. Everything was as it should be.")


@dataclass(slots=True)
class _Demo:
    narrator: Narrator
    folder: Path

    def run(self, runtime: ServerRuntime | None) -> None:
        with ExitStack() as stack:
            folder = self.folder / "catalog"
            folder.mkdir()
            server: RestCatalogServer | SqlCatalogFile
            server = SqlCatalogFile(folder) if runtime is None else RestCatalogServer(folder, runtime)
            self.narrator.step(f"Start a catalog: {server.title}")
            stack.enter_context(server)
            self.narrator.note(f"it answers at {server.place}; tables lie below {server.warehouse}")
            self.narrator.step("Start the service: sfn serve, as a process of its own")
            service = stack.enter_context(running_service(self.folder, server))
            self.narrator.note(f"it is ready at {service.url}; its inbox is a SQLite file beside its configuration")
            if service.gateway is not None:
                self.narrator.note(f"its gateway is {service.gateway}: the catalog's users change this address alone")
            users = _TableUsers(self.narrator, Lake.connect(server, service.gateway), service)
            users.create(
                "orders", "which metadata file is current; `guid` is the table, `AsOfOrdinal` says which file is newer"
            )
            for rows in _COMMITS:
                users.append("orders", rows)
            users.rename("orders", "sales")
            users.create_and_drop("scratch")
            users.block_and_replay("returns", beside=users.lake.directory("sales"))
            users.outlast(server, "sales", _ROW_DURING_OUTAGE)
            self._switch_off(users, server, service)

    def _switch_off(self, users: _TableUsers, server: CatalogServer, service: RunningService) -> None:
        directory = users.lake.directory("sales")
        self.narrator.step("Switch off the service and the catalog")
        service.stop()
        self.narrator.note("✓ the service drained and ended with 0")
        server.stop()
        self.narrator.note(f"what is left of {NAMESPACE}.sales is a directory: {directory}")
        expected = [*(row for rows in _COMMITS for row in rows), _ROW_DURING_OUTAGE]
        self.narrator.step("Read the table by its directory alone")
        found = environment.read_with_duckdb(directory)
        self.narrator.check("DuckDB: SELECT * FROM iceberg_scan('<directory>')", expected=expected, found=found)
        self._show(found)
        found = environment.read_with_pyiceberg(directory)
        self.narrator.check("PyIceberg: StaticTable, by sfn.resolve('<directory>')", expected=expected, found=found)
        self._show(found)

    def _show(self, rows: Sequence[ItemRow]) -> None:
        self.narrator.show(*(f"{number}  {item:<14} {price:>6.2f}" for number, item, price in rows))


@dataclass(slots=True)
class _TableUsers:
    """Those who use the tables: through the gateway, or telling the service of it."""

    narrator: Narrator
    lake: Lake
    service: RunningService

    @property
    def _route_text(self) -> str:
        """How the service hears of what is done."""
        return ", and tell the service" if self.service.gateway is None else ", through the gateway"

    def create(self, name: str, meaning: str) -> None:
        self.narrator.step(f"Create the table {NAMESPACE}.{name} with PyIceberg{self._route_text}")
        pointer = self.lake.create(name)
        self._notify_and_wait(name, "create", pointer)
        file = self._sfn_file(self.lake.directory(name), name)
        self.narrator.note(f"the file: {file}")
        self.narrator.note(f"it says {meaning}")
        self.narrator.show(*file.read_text().splitlines())

    def append(self, name: str, rows: Sequence[ItemRow]) -> None:
        self.narrator.step(f"Commit {len(rows)} row{'s' * (len(rows) > 1)} to {NAMESPACE}.{name}{self._route_text}")
        self._notify_and_wait(name, "commit", self.lake.append(name, *rows))

    def rename(self, old: str, new: str) -> None:
        self.narrator.step(f"Rename {NAMESPACE}.{old} to {NAMESPACE}.{new}{self._route_text}")
        directory, pointer = self.lake.directory(old), self.lake.pointer(old)
        self.lake.rename(old, new)
        self._notify(old, "rename", destination={"namespace": [NAMESPACE], "name": new})
        self._await_pointer(directory, new, pointer)

        def state_of_the_old() -> str:
            return document.parse(self._sfn_file(directory, old).read_bytes()).state.value

        waited = self.narrator.wait_for("the old name's file", state_of_the_old, document.DocumentState.RENAMED.value)
        self.narrator.note(f"✓ {waited:.2f} s after that the old name's file says `renamed`")
        found = resolve(directory, (NAMESPACE, old)).metadata_location
        self.narrator.check("whoever asks for the old name is led to the table", expected=pointer, found=found)
        self.narrator.note(f"a rename moves no file: {NAMESPACE}.{new} stays in the folder {directory.name}")

    def create_and_drop(self, name: str) -> None:
        self.create(name, "the same of the other table, as each table has a file of its own")
        self.narrator.step(f"Drop {NAMESPACE}.{name}{self._route_text}")
        directory = self.lake.directory(name)
        self.lake.drop(name)
        self._notify(name, "drop")
        waited = self.narrator.wait_for("the reader's refusal", lambda: _is_dropped(directory), expected=True)
        self.narrator.note(f"✓ {waited:.2f} s later readers are refused: the catalog was asked twice, and listed")
        hint = self._version_hint_file(directory)
        self.narrator.check("the version hint is gone", expected=False, found=hint.exists())

    def block_and_replay(self, name: str, beside: Path) -> None:
        self.narrator.step(
            f"Put a strange file where the one of {NAMESPACE}.{name} belongs, and create that{self._route_text}"
        )
        directory = beside.parent / name
        stray = self._sfn_file(directory, name)
        stray.parent.mkdir(parents=True)
        stray.write_text("somebody's notes")
        pointer = self.lake.create(name)
        self._notify(name, "create", metadata_location=pointer)
        waited = self.narrator.wait_for(
            "a dead letter", lambda: self.service.count_log_records(outcome="dead") > 0, expected=True
        )
        self.narrator.note(f"✓ {waited:.2f} s later it is a dead letter: the file is not ours, and is left alone")
        self._run_command("status")
        self.narrator.note("`LAST SWEEP` is that of the start: the tables came later, and were heard of at once")
        self._run_command("status", f"{NAMESPACE}.{name}")
        self.narrator.step("Take the file away, and replay the dead letter")
        stray.unlink()
        self._run_command("dead-letters", "replay", "--table", f"{NAMESPACE}.{name}", "--yes")
        self._await_pointer(directory, name, pointer)
        self._run_command("status")

    def _run_command(self, *command: str) -> None:
        self.narrator.note(f"$ sfn {' '.join(command)}")
        self.narrator.show(*self.service.run_command(*command))

    def outlast(self, server: CatalogServer, name: str, row: ItemRow) -> None:
        directory, before = self.lake.directory(name), self.lake.pointer(name)
        if self.service.gateway is None:
            self.narrator.step(f"Commit to {NAMESPACE}.{name}, and stop the catalog before the service has heard of it")
            pointer = self.lake.append(name, row)
            server.stop()
            self._notify(name, "commit", metadata_location=pointer)
            self.narrator.note("✓ the event was accepted: it is on disk")
        else:
            self.narrator.step(f"Kill the service, commit to {NAMESPACE}.{name} past it, and stop the catalog too")
            self.service.kill()
            pointer = Lake(server.client()).append(name, row)
            server.stop()
            self.service.restart()
            self.narrator.note("✓ the service is there again, and has heard of nothing")
        time.sleep(_OUTAGE)
        found = resolve(directory).metadata_location
        self.narrator.check(
            f"{_OUTAGE:g} s later the file says what it said: late, not wrong", expected=before, found=found
        )
        self.narrator.wait_for(
            "an answer in vain", lambda: self.service.count_log_records(event="catalog away") > 0, expected=True
        )
        self.narrator.note("✓ the service has asked the catalog in vain")
        self.narrator.step("Start the catalog again, and tell nobody")
        server.start()
        self.narrator.note("it answers")
        self._await_pointer(directory, name, pointer)

    def _notify_and_wait(self, name: str, operation: str, pointer: str) -> None:
        directory = self.lake.directory(name)
        self._notify(name, operation, metadata_location=pointer)
        self._await_pointer(directory, name, pointer)

    def _notify(self, name: str, operation: str, **more: object) -> None:
        if self.service.gateway is None:
            self.service.post_event({"namespace": [NAMESPACE], "name": name, "operation": operation, **more})

    def _await_pointer(self, directory: Path, name: str, pointer: str) -> None:
        """The file beside the table, and the version hint, come to say what the catalog says."""
        what = f"the pointer of {NAMESPACE}.{name}"
        waited = self.narrator.wait_for(what, lambda: resolve(directory, (NAMESPACE, name)).metadata_location, pointer)
        self.narrator.note(f"✓ {waited:.2f} s later the file beside the table says {pointer.rsplit('/', 1)[-1]}")
        hint = self._version_hint_file(directory)
        stem = version_hint.text_for(pointer)
        waited = self.narrator.wait_for("the version hint", lambda: hint.read_text() if hint.exists() else None, stem)
        self.narrator.note(f"✓ {waited:.2f} s after that the version hint says so too, for readers that know only that")
        self.narrator.check("that is the catalog's pointer", expected=pointer, found=self.lake.pointer(name))

    @staticmethod
    def _version_hint_file(directory: Path) -> Path:
        return Path(version_hint.key_of(str(directory)))

    @staticmethod
    def _sfn_file(directory: Path, name: str) -> Path:
        return Path(FileLayout(str(directory)).keys(FileOwner((NAMESPACE,), name))[0])


def _is_dropped(directory: Path) -> bool:
    try:
        resolve(directory)
    except Dropped:
        return True
    except Unreadable:
        return False
    return False
