"""The service over PyIceberg's SQL catalog, and one table in two catalogs."""

from __future__ import annotations

import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import sfn
from sfn.errors import Unreadable
from sfn.sfnfile import version_hint
from tests.faults import inspection
from tests.faults.inspection import Pointed
from tests.faults.lake import Lake as FaultLake
from tests.faults.lake import Table as FaultTable
from tests.faults.lake import serving as serving_lake
from tests.faults.service import Service, Setting, eventually, running
from tests.promises.catalogs import SCHEMA
from tests.support.processes import until
from tests.support.service import TOKEN, refused, serving

# SQL catalog.


CONFIGURATION = """\
[listener]
port = 0
[inbox]
url = "sqlite:///{folder}/inbox/inbox.db"
[sweep]
every = "{every}"
[catalogs.prod]
type = "pyiceberg"
properties = {{ type = "sql", uri = "sqlite:///{folder}/catalog.db?timeout={patience}" }}
replica_lag = "0"
min_publish_interval = "0"
[stores.lake]
prefix = "{folder}/warehouse"
[senders.etl]
secrets = {{ main = "{token}" }}
"""


@dataclass
class Lake:
    """A catalog and a folder."""

    folder: Path
    catalog: SqlCatalog

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/catalog.db"

    def configured(self, every: str = "off", patience: float = 5) -> Path:
        file = self.folder / "sfn.toml"
        file.write_text(CONFIGURATION.format(folder=self.folder, every=every, patience=patience, token=TOKEN))
        return file

    def create(self, name: str) -> Table:
        location = (self.folder / "warehouse" / "sales" / name).as_uri()
        return self.catalog.create_table(("sales", name), SCHEMA, location)

    def commit(self, name: str) -> str:
        """One more version of a table; its pointer."""
        table = self.catalog.load_table(("sales", name))
        with table.transaction() as change:
            change.set_properties({"commit": "one more"})
        return table.metadata_location

    def is_published(self, name: str) -> bool:
        """Whether a reader of the table's directory is told what the catalog says."""
        table = self.catalog.load_table(("sales", name))
        try:
            told = sfn.resolve(Path(table.location().removeprefix("file://")), ("sales", name))
        except Unreadable:
            return False
        return told.metadata_location == table.metadata_location


@pytest.fixture(name="lake")
def fixture_lake(tmp_path: Path) -> Generator[Lake]:
    (tmp_path / "warehouse").mkdir()
    with closing(SqlCatalog("prod", uri=f"sqlite:///{tmp_path}/catalog.db")) as catalog:
        catalog.create_namespace("sales")
        yield Lake(tmp_path, catalog)


async def test_an_event_becomes_a_file_and_each_commit_after_it_too(lake: Lake) -> None:
    lake.create("orders")
    async with serving(lake.configured()) as daemon:
        for _ in range(3):
            pointer = lake.commit("orders")
            assert (await daemon.tell("orders", metadata_location=pointer)).status_code == 202
            await until(lambda: lake.is_published("orders"))
        (reached,) = daemon.records("catalog reached")
        assert len(reached["catalog_id"]) == 32
        daemon.send(signal.SIGTERM)
        assert await daemon.ended() == 0


async def test_while_others_commit_every_table_is_published_and_none_is_taken_for_dropped(lake: Lake) -> None:
    names = [f"t{number}" for number in range(3)]
    for name in names:
        lake.create(name)
    # Hardly any patience with a lock: what can't be asked is asked again.
    async with serving(lake.configured(every="1s", patience=0.001)) as daemon:
        await until(lambda: all(map(lake.is_published, names)))
        await anyio.run_process(
            [sys.executable, "-m", "tests.integration.child_processes", "sql_writer", lake.uri, "25", *names]
        )
        await until(lambda: all(map(lake.is_published, names)))
        assert all(record["missing"] == 0 for record in daemon.records("sweep finished"))
        assert not daemon.records("settled", outcome="dead")


async def test_a_database_that_is_locked_for_long_is_the_catalogs_trouble(lake: Lake) -> None:
    lake.create("orders")
    async with serving(lake.configured(every="1s", patience=0.001)) as daemon:
        await until(lambda: lake.is_published("orders"))
        with closing(sqlite3.connect(lake.folder / "catalog.db", isolation_level=None)) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            await daemon.tell("orders")
            away = await daemon.until_logged("catalog unreachable", catalog="prod")
        assert "database is locked" in away["error"]
        lake.commit("orders")
        await until(lambda: lake.is_published("orders"))
        assert all(record["missing"] == 0 for record in daemon.records("sweep finished"))


async def test_what_is_missing_is_told_at_the_start(lake: Lake) -> None:
    file = lake.configured()
    file.write_text(file.read_text().replace(lake.uri, "postgresql+nodriver://host/db"))
    code, told = await refused(file)
    assert code == 2
    assert told.startswith("catalogs.prod.properties.uri: expected a database URL of SQLAlchemy")


# One table in two catalogs.


COMMITS = 30
BETWEEN = 0.1
LOOK_EVERY = 0.01
Record = Callable[[str, object], None]


@dataclass
class Poller:
    """A reader that looks at the two files all the time.

    Attributes:
        looks: how often it looked.
        pointers, hints: what it saw, and how often.
    """

    lake: FaultLake
    name: str
    looks: int = 0
    pointers: list[str | None] = field(default_factory=list)
    hints: list[str | None] = field(default_factory=list)

    async def run(self) -> None:
        """Look for ever; remember every change."""
        while True:
            seen: Pointed = self.lake.pointed(self.name)
            pointer = seen.document.metadata_file_path if seen.document is not None else None
            for history, value in ((self.pointers, pointer), (self.hints, seen.hint)):
                if not history or history[-1] != value:
                    history.append(value)
            self.looks += 1
            await anyio.sleep(LOOK_EVERY)


@pytest.mark.parametrize("name", ["orders", "orders_of_theirs"])
async def test_the_files_follow_their_owner_only(name: str, tmp_path: Path, record_property: Record) -> None:
    """Registered in the second catalog under the same name, or under another."""
    ours = FaultLake(tmp_path / "warehouse")
    theirs = FaultLake(ours.warehouse)
    table = ours.create("orders", by="ours-")
    other = FaultTable(table.uuid, table.directory, table.location, [*table.history])
    theirs.tables[name] = other
    async with (
        serving_lake(ours),
        serving_lake(theirs),
        running(Setting(tmp_path / "ours", ours.uri, ours.warehouse, sweep="1s")) as owner,
    ):
        await eventually(lambda: not ours.wrong())
        poller = Poller(ours, "orders")
        async with running(Setting(tmp_path / "theirs", theirs.uri, ours.warehouse, sweep="1s")) as stranger:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(poller.run)
                await _committed((ours, "orders", owner), (theirs, name, stranger))
                await eventually(lambda: not ours.wrong())
                tasks.cancel_scope.cancel()
            letters = inspection.letters(stranger.setting.database)
    figures = {
        "commits": {"ours": len(table.history), "theirs": len(other.history)},
        "looks": poller.looks,
        "pointers": _whose(poller.pointers),
        "hints": _whose(poller.hints),
        "letters_of_theirs": letters,
    }
    record_property(name, figures)
    print(f"{name}:", figures)
    assert _is_within(poller.pointers, table.history)
    assert _is_within(poller.hints, [version_hint.text_for(pointer) for pointer in table.history])
    assert len(poller.pointers) > COMMITS / 3
    assert letters == ({"foreign-catalog": 1} if name == "orders" else {})


async def _committed(*sides: tuple[FaultLake, str, Service]) -> None:
    """Commit to both catalogs in turn, and tell each one's service."""
    for number in range(COMMITS):
        for (lake, name, service), by in zip(sides, ("ours-", "theirs-"), strict=True):
            pointer = lake.tables[name].commit(by=by)
            assert await service.post(name, f"{by}{number}", metadata_location=pointer) == 202
            await anyio.sleep(BETWEEN / 2)


def _is_within(seen: list[str | None], history: list[str | None] | list[str]) -> bool:
    """Whether what was seen is a part of a history, in its order."""
    rest = iter(history)
    return all(value in rest for value in seen)


def _whose(seen: list[str | None]) -> dict[str, int]:
    """How many of what was seen are whose."""
    return dict(Counter("none" if value is None else "theirs" if "theirs-" in value else "ours" for value in seen))
