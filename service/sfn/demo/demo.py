"""The steps of `sfn demo`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from pyiceberg.catalog.rest import RestCatalog
from requests import Session
from typing_extensions import override

from sfn.demo.environment import (
    CatalogServer,
    RestCatalogServer,
    RunningService,
    ServerRuntime,
    SqlCatalogServer,
    running_service,
)
from sfn.demo.lake import NAMESPACE, ItemRow, Lake, read_with_duckdb, read_with_pyiceberg
from sfn.errors import Dropped, SfnError, Unreadable
from sfn.reader.api import resolve
from sfn.sfnfile import document, version_hint
from sfn.sfnfile.naming import FileLayout, FileOwner

T = TypeVar("T")

_PATIENCE = 20.0
_PAUSE = 0.01


@dataclass(slots=True)
class Narrator:
    """A printer of numbered steps with times, which checks results.

    Attributes:
        say: prints a line.
    """

    say: Callable[[str], None]
    _began: float = field(default_factory=time.monotonic)
    _steps: int = 0

    def step(self, what: str) -> None:
        """Begin a step."""
        self._steps += 1
        self.say("")
        self._line(f"{self._steps}. {what}")

    def note(self, what: str) -> None:
        """Print a remark within a step."""
        self._line(f"   {what}")

    def show(self, *lines: str) -> None:
        """Print lines without times, such as the output of a command."""
        for line in lines:
            self.say(f"{'':16}{line}")

    def check(self, what: str, *, expected: object, found: object) -> None:
        """Check that a result is the expected one, and print that.

        Raises:
            SfnError: the result is another.
        """
        if found != expected:
            raise SfnError(f"step {self._steps}, {what}", expected=str(expected), found=str(found))
        self.note(f"✓ {what}")

    def wait_for(self, what: str, probe: Callable[[], T], expected: T) -> float:
        """Repeat a probe until it returns the expected value, and return the seconds that took.

        An `Unreadable` error of the probe is waited out, like a wrong value.

        Raises:
            SfnError: the value does not come in time.
        """
        began = time.monotonic()
        found: T | Unreadable | None = None
        while time.monotonic() - began < _PATIENCE:
            try:
                found = probe()
            except Unreadable as error:
                found = error
            if found == expected:
                return time.monotonic() - began
            time.sleep(_PAUSE)
        raise SfnError(f"step {self._steps}, {what}", expected=f"{expected} in {_PATIENCE:g} s", found=str(found))

    def _line(self, text: str) -> None:
        self.say(f"{time.monotonic() - self._began:6.1f} s  {text}")


class DirectCatalog(RestCatalog):
    """A client that uses no proxy, even if `HTTP_PROXY` is set."""

    # PyIceberg has no setting for this, and its constructor sends the first request already.
    @override
    def _create_session(self) -> Session:
        session = super()._create_session()
        session.trust_env = False
        return session


_COMMITS: tuple[tuple[ItemRow, ...], ...] = (
    ((1, "anvil", 19.5), (2, "rope", 4.25)),
    ((3, "magnet", 12.0),),
    ((4, "rocket skates", 99.9), (5, "bird seed", 1.75)),
)
_ROW_DURING_OUTAGE: ItemRow = (6, "umbrella", 8.0)
_OUTAGE = 2.0


def run_demo(runtime: ServerRuntime | None, say: Callable[[str], None]) -> None:
    """Run all steps in a temporary folder. The folder and all processes are removed at the end.

    Args:
        runtime: Java and jars of Iceberg's own catalog server; None to use PyIceberg's SQL catalog.
        say: prints a line.

    Raises:
        SfnError: a result is not the expected one.
    """
    narrator = Narrator(say)
    narrator.step("Check the requirements: PyIceberg, DuckDB and a temporary folder")
    with TemporaryDirectory(prefix="sfn-demo-") as folder:
        narrator.note(folder)
        _Demo(narrator, Path(folder).resolve()).run(runtime)
    narrator.say("")
    narrator.note("All checks passed. All processes and the folder were removed.")


@dataclass(slots=True)
class _Demo:
    narrator: Narrator
    folder: Path

    def run(self, runtime: ServerRuntime | None) -> None:
        with ExitStack() as stack:
            folder = self.folder / "catalog"
            server = SqlCatalogServer(folder) if runtime is None else RestCatalogServer(folder, runtime)
            self.narrator.step(f"Start a catalog: {server.title}")
            stack.enter_context(server)
            self.narrator.note(f"the catalog answers at {server.uri}; its tables are below {server.warehouse}")
            self.narrator.step("Start the listener: sfn serve, in a process of its own")
            service = stack.enter_context(running_service(self.folder, server))
            self.narrator.note(f"the listener is ready at {service.url}; its inbox is a SQLite file")
            self.narrator.note(f"the gateway is {service.gateway}: clients only change the catalog's address")
            lake = Lake.connect(server, service.gateway)
            lake.create_namespace()
            users = _TableUsers(self.narrator, lake, service)
            users.create(
                "orders",
                "the file names the current metadata file; `guid` is the table, `AsOfOrdinal` orders the versions",
            )
            for rows in _COMMITS:
                users.append("orders", rows)
            users.rename("orders", "sales")
            users.create_and_drop("scratch")
            users.block_and_replay("returns", sibling=users.lake.directory("sales"))
            users.survive_outage(server, "sales", _ROW_DURING_OUTAGE)
            self._switch_off(users, server, service)

    def _switch_off(self, users: _TableUsers, server: CatalogServer, service: RunningService) -> None:
        directory = users.lake.directory("sales")
        self.narrator.step("Stop the listener and the catalog")
        service.stop()
        self.narrator.note("✓ the listener drained and ended with 0")
        server.stop()
        self.narrator.note(f"of {NAMESPACE}.sales only a directory is left: {directory}")
        expected = [*(row for rows in _COMMITS for row in rows), _ROW_DURING_OUTAGE]
        self.narrator.step("Read the table from its directory alone")
        found = read_with_duckdb(directory)
        self.narrator.check("DuckDB: SELECT * FROM iceberg_scan('<directory>')", expected=expected, found=found)
        self._show(found)
        found = read_with_pyiceberg(directory)
        self.narrator.check(
            "PyIceberg: sfn.resolve('<directory>') and a scan; DuckDB reads the files", expected=expected, found=found
        )
        self._show(found)

    def _show(self, rows: Sequence[ItemRow]) -> None:
        self.narrator.show(*(f"{number}  {item:<14} {price:>6.2f}" for number, item, price in rows))


@dataclass(slots=True)
class _TableUsers:
    """The clients of the tables. They commit through the gateway."""

    narrator: Narrator
    lake: Lake
    service: RunningService

    def create(self, name: str, explanation: str) -> None:
        self.narrator.step(f"Create the table {NAMESPACE}.{name} with PyIceberg, through the gateway")
        self._await_pointer(name, self.lake.create(name))
        file = self._sfn_file(self.lake.directory(name), name)
        self.narrator.note(f"the SFN file: {file}")
        self.narrator.note(explanation)
        self.narrator.show(*file.read_text().splitlines())

    def append(self, name: str, rows: Sequence[ItemRow]) -> None:
        self.narrator.step(f"Commit {len(rows)} row{'s' * (len(rows) > 1)} to {NAMESPACE}.{name}, through the gateway")
        self._await_pointer(name, self.lake.append(name, *rows))

    def rename(self, old: str, new: str) -> None:
        self.narrator.step(f"Rename {NAMESPACE}.{old} to {NAMESPACE}.{new}, through the gateway")
        directory, pointer = self.lake.directory(old), self.lake.pointer(old)
        self.lake.rename(old, new)
        self._await_pointer(new, pointer)

        def state_of_the_old() -> str:
            return document.parse(self._sfn_file(directory, old).read_bytes()).state.value

        waited = self.narrator.wait_for("the old name's file", state_of_the_old, document.DocumentState.RENAMED.value)
        self.narrator.note(f"✓ {waited:.2f} s later the old name's SFN file is a tombstone: `renamed`")
        found = resolve(directory, (NAMESPACE, old)).metadata_location
        self.narrator.check("readers of the old name find the table", expected=pointer, found=found)
        self.narrator.note(f"a rename moves no files: {NAMESPACE}.{new} stays in the folder {directory.name}")

    def create_and_drop(self, name: str) -> None:
        self.create(name, "each table has an SFN file of its own")
        self.narrator.step(f"Drop {NAMESPACE}.{name}, through the gateway")
        directory = self.lake.directory(name)
        self.lake.drop(name)
        waited = self.narrator.wait_for("the error of readers", lambda: _is_dropped(directory), expected=True)
        self.narrator.note(f"✓ {waited:.2f} s later readers get an error: two queries and a listing confirmed the drop")
        hint = self._version_hint_file(directory)
        self.narrator.check("the version hint is gone", expected=False, found=hint.exists())

    def block_and_replay(self, name: str, sibling: Path) -> None:
        self.narrator.step(
            f"Put a foreign file in the place of an SFN file, and create {NAMESPACE}.{name}, through the gateway"
        )
        directory = sibling.parent / name
        foreign = self._sfn_file(directory, name)
        foreign.parent.mkdir(parents=True)
        foreign.write_text("notes of another user")
        pointer = self.lake.create(name)
        waited = self.narrator.wait_for(
            "a dead letter", lambda: self.service.count_log_records(outcome="dead") > 0, expected=True
        )
        self.narrator.note(f"✓ {waited:.2f} s later the table is a dead letter: a foreign file is never changed")
        self._run_command("status")
        self.narrator.note("`LAST SWEEP` is the one of the start: the tables came later, and were published at once")
        self._run_command("status", f"{NAMESPACE}.{name}")
        self.narrator.step("Remove the file, and replay the dead letter")
        foreign.unlink()
        self._run_command("dead-letters", "replay", "--table", f"{NAMESPACE}.{name}", "--yes")
        self._await_pointer(name, pointer)
        self._run_command("status")

    def _run_command(self, *command: str) -> None:
        self.narrator.note(f"$ sfn {' '.join(command)}")
        self.narrator.show(*self.service.run_command(*command))

    def survive_outage(self, server: CatalogServer, name: str, row: ItemRow) -> None:
        directory, before = self.lake.directory(name), self.lake.pointer(name)
        self.narrator.step(f"Kill the listener, commit to {NAMESPACE}.{name} without it, and stop the catalog, too")
        self.service.kill()
        pointer = Lake.connect(server).append(name, row)
        server.stop()
        self.service.restart()
        self.narrator.note("✓ the listener runs again, and no event reported the commit")
        time.sleep(_OUTAGE)
        found = resolve(directory).metadata_location
        self.narrator.check(
            f"{_OUTAGE:g} s later the SFN file is unchanged: late, not wrong", expected=before, found=found
        )
        self.narrator.wait_for(
            "a failed query", lambda: self.service.count_log_records(event="catalog unreachable") > 0, expected=True
        )
        self.narrator.note("✓ the listener could not reach the catalog")
        self.narrator.step("Start the catalog again, and send no event")
        server.start()
        self.narrator.note("the catalog answers")
        self._await_pointer(name, pointer)

    def _await_pointer(self, name: str, pointer: str) -> None:
        """Wait until the SFN file and the version hint name the catalog's current metadata file."""
        directory = self.lake.directory(name)
        what = f"the SFN file of {NAMESPACE}.{name}"
        waited = self.narrator.wait_for(what, lambda: resolve(directory, (NAMESPACE, name)).metadata_location, pointer)
        self.narrator.note(f"✓ {waited:.2f} s later the SFN file names {pointer.rsplit('/', 1)[-1]}")
        hint = self._version_hint_file(directory)
        stem = version_hint.text_for(pointer)
        waited = self.narrator.wait_for("the version hint", lambda: hint.read_text() if hint.exists() else None, stem)
        self.narrator.note(
            f"✓ {waited:.2f} s after that the version hint names it, too, for engines that use only that"
        )
        self.narrator.check("the catalog names the same file", expected=pointer, found=self.lake.pointer(name))

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
