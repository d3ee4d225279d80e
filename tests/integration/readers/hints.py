"""`python -m tests.integration.readers.hints FOLDER`: what real readers open by the hints of the real publisher.

Prints a JSON array of `Cell`s: for each name of a metadata file, and for several sets of files that lie beside it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from sfn.catalogs.memory import MemoryCatalog
from sfn.catalogs.metadata import read_metadata
from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import Capacity, DeadLettered, DeadLetterReason, Done
from sfn.publish.policy import Policy
from sfn.publish.publish import Ports, publish
from sfn.sfnfile import version_hint
from sfn.storage import PrefixRouter
from sfn.storage.local import LocalStore
from tests.integration.readers.readers import Rows, by_clickhouse, by_duckdb, by_python
from tests.promises.inboxes import TERMS
from tests.support.clock import HandClock
from tests.support.memory_inbox import MemoryInbox
from tests.support.table_directory import SUFFIX, UNUSUAL, neighbours

NAME = TableIdentifier("prod", ("n",), "orders")
BESIDE = ("none", "with a v", "all")
LINES: dict[str, tuple[Callable[[str], Rows], str]] = {
    "DuckDB": (by_duckdb, "SELECT id FROM iceberg_scan('{}')"),
    "ClickHouse": (
        by_clickhouse,
        (
            "SELECT id FROM icebergLocal('{}', SETTINGS iceberg_use_version_hint = 1) "
            "SETTINGS use_iceberg_metadata_files_cache = 0"
        ),
    ),
    "PyIceberg": (by_python, 'StaticTable.from_metadata("{}").scan().to_arrow()'),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """What readers show of one directory.

    Attributes:
        stem: the name of the current metadata file, without its suffix.
        beside: which other metadata files lie there, in words.
        hint: the text of the version hint; None if there is none.
        shown: by reader, `current`, `another` or `refuses`.
    """

    stem: str
    beside: str
    hint: str | None
    shown: dict[str, str]


@dataclass(frozen=True, slots=True)
class Lake:
    """One table with two states: an older one of one row, and the current one of two rows."""

    directory: Path
    older: bytes
    current: bytes

    @classmethod
    def made(cls, folder: Path) -> Lake:
        directory = folder / "orders"
        catalog = SqlCatalog("made", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
        with contextlib.closing(catalog) as made:
            made.create_namespace("n")
            schema = pa.schema([pa.field("id", pa.int64())])
            table = made.create_table("n.orders", schema, location=f"file://{directory}")
            states = []
            for number in (1, 2):
                table.append(pa.table({"id": [number]}, schema=schema))
                states.append(Path(table.metadata_location.removeprefix("file://")).read_bytes())
        return cls(directory, *states)

    def lay(self, stem: str, beside: str) -> str:
        """Have the current state in a file of that name, and the older one in all files beside it; its location."""
        metadata = self.directory / "metadata"
        for path in (*metadata.glob(f"*{SUFFIX}"), *metadata.glob("version-hint.text"), *metadata.glob("_sfn/*")):
            path.unlink()
        for name in neighbours(stem, beside):
            (metadata / name).write_bytes(self.older)
        (metadata / f"{stem}{SUFFIX}").write_bytes(self.current)
        return f"file://{metadata}/{stem}{SUFFIX}"

    def hint(self) -> str | None:
        """What the version hint says."""
        path = Path(version_hint.key_of(str(self.directory)))
        return path.read_text() if path.exists() else None

    async def publish(self, pointer: str) -> None:
        """Publish the table once, with a service that knows nothing of it."""
        clock = HandClock()
        catalog, inbox = MemoryCatalog("prod"), MemoryInbox(TERMS, clock)
        catalog.create_namespace("n")
        catalog.register(NAME, read_metadata(self.current, pointer))
        await inbox.put([Notification(NAME)])
        (claim,) = (await inbox.claim(Capacity(total=1, live=1, sweeps=0))).jobs
        root = self.directory.parent.as_uri()
        ports = Ports(inbox, inbox, catalog, PrefixRouter({root: LocalStore(root)}), clock)
        policy = Policy("c1", replica_lag=timedelta(0), is_swept=False)
        outcome = await publish(claim, ports, policy, jitter=0)
        # A location that nothing is published for has no hint either.
        if not (
            isinstance(outcome, Done)
            or (isinstance(outcome, DeadLettered) and outcome.reason is DeadLetterReason.LOCATION_REFUSED)
        ):
            raise TypeError(outcome)


def measured(folder: Path) -> Iterator[Cell]:
    """All cells. Only this process's folder is read by ClickHouse."""
    lake = Lake.made(folder)
    for stem in UNUSUAL:
        for beside in BESIDE:
            anyio.run(partial(lake.publish, lake.lay(stem, beside)))
            cell = Cell(stem, beside, lake.hint(), {})
            yield cell if cell.hint is None else replace(cell, shown=_shown(str(lake.directory)))


def _shown(directory: str) -> dict[str, str]:
    return {reader: _outcome(run, line.format(directory)) for reader, (run, line) in LINES.items()}


def _outcome(run: Callable[[str], Rows], line: str) -> str:
    try:
        rows = run(line)
    except Exception:  # noqa: BLE001 - each reader has errors of its own
        return "refuses"
    return "current" if sorted(row["id"] for row in rows) == [1, 2] else "another"


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    with contextlib.chdir(place):
        found = list(measured(place))
    print(json.dumps([asdict(cell) for cell in found]))
