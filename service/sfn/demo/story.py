"""What the demo shows: commits, a rename, an outage, a drop, and reading with everything switched off."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sfn.demo import lake
from sfn.demo.catalog import CatalogServer
from sfn.demo.fixture import RestCatalogServer, ServerRuntime
from sfn.demo.lake import NAMESPACE, ItemRow, Lake
from sfn.demo.listener import RunningService, running_service
from sfn.demo.narrator import Narrator
from sfn.demo.sql import SqlCatalogFile
from sfn.errors import Dropped, Unreadable
from sfn.reader.api import resolve
from sfn.sfnfile import document, version_hint
from sfn.sfnfile.naming import FileLayout, FileOwner

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
    lake.require_packages()
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

    def _switch_off(self, users: "_TableUsers", server: CatalogServer, service: RunningService) -> None:
        directory = users.lake.directory("sales")
        self.narrator.step("Switch off the service and the catalog")
        service.stop()
        self.narrator.note("✓ the service drained and ended with 0")
        server.stop()
        self.narrator.note(f"what is left of {NAMESPACE}.sales is a directory: {directory}")
        expected = [*(row for rows in _COMMITS for row in rows), _ROW_DURING_OUTAGE]
        self.narrator.step("Read the table by its directory alone")
        found = lake.read_with_duckdb(directory)
        self.narrator.check("DuckDB: SELECT * FROM iceberg_scan('<directory>')", expected=expected, found=found)
        self._show(found)
        found = lake.read_with_pyiceberg(directory)
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
