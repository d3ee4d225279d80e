"""One table of a real catalog, and the real service that follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

import sfn
from sfn.demo.environment import NAMESPACE, RunningService
from sfn.errors import Unreadable
from sfn.sfnfile import document, version_hint
from sfn.sfnfile.locations import canonical
from sfn.sfnfile.naming import FileLayout, FileOwner
from tests.integration.readers.readers import Place, Rows
from tests.support.processes import wait_for

PATIENCE = 20.0
"""Seconds that the service has for each thing to do."""
_LOOK_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Story:
    """What steps are taken with.

    Attributes:
        catalog: through it tables are changed.
        uri: where it answers.
        warehouse: the URL of its folder.
        service: follows it.
    """

    catalog: RestCatalog
    uri: str
    warehouse: str
    service: RunningService

    def table(self, name: str) -> Table:
        loaded: Table = self.catalog.load_table((NAMESPACE, name))
        return loaded

    def pointer(self, name: str) -> str:
        return str(self.table(name).metadata_location)

    def directory(self, name: str) -> Path:
        return Path(canonical(self.table(name).location()).removeprefix("file://"))

    def below_warehouse(self, *parts: str) -> Path:
        return Path(self.warehouse.removeprefix("file://"), *parts)

    def rows(self, name: str) -> Rows:
        """What whoever asks the catalog reads."""
        rows: Rows = self.table(name).scan().to_arrow().to_pylist()
        return rows

    def append(self, name: str, *rows: Mapping[str, object], branch: str = "main") -> None:
        """Commit rows through the catalog."""
        self.append_to(self.table(name), *rows, branch=branch)

    def append_to(self, table: Table, *rows: Mapping[str, object], branch: str = "main") -> None:
        """Commit rows to a table of whatever catalog."""
        table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()), branch=branch)

    def tell(self, name: str, operation: str, **more: object) -> None:
        """Post an event."""
        self.service.post_event({"namespace": [NAMESPACE], "name": name, "operation": operation, **more})

    def published(self, name: str, operation: str = "commit") -> Place:
        """Tell of a commit, and wait until SFN file and version hint say what the catalog says."""
        pointer, directory = self.pointer(name), self.directory(name)
        self.tell(name, operation, metadata_location=pointer)

        def said() -> bool:
            return _resolved(directory, name) == pointer and _hint(directory) == version_hint.text_for(pointer)

        wait_for(said, f"{directory} to say {pointer}", PATIENCE, _LOOK_EVERY)
        return self.place(directory, name)

    def until_retired(self, directory: Path, name: str) -> None:
        """Wait until a name's file in a directory says that the table is no more there, or not by this name."""
        file = self.place(directory, name).file

        def retired() -> bool:
            return document.parse(file.read_bytes()).state is not document.DocumentState.CURRENT

        wait_for(retired, f"{file} to say another state than current", PATIENCE, _LOOK_EVERY)

    def place(self, directory: Path, name: str) -> Place:
        return Place(name, directory, Path(FileLayout(str(directory)).keys(FileOwner((NAMESPACE,), name))[0]))


def _resolved(directory: Path, name: str) -> str | None:
    try:
        return sfn.resolve(directory, (NAMESPACE, name)).metadata_location
    except Unreadable:
        return None


def _hint(directory: Path) -> str | None:
    try:
        return Path(version_hint.key_of(str(directory))).read_text()
    except FileNotFoundError:
        return None
