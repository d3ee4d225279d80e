"""The service as a real process over PyIceberg's SQL catalog on SQLite, which other processes commit to."""

from __future__ import annotations

import signal
import sqlite3
import sys
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import sfn
from sfn.errors import Unreadable
from tests.integration.process import TOKEN, refused, serving
from tests.integration.waiting import until
from tests.promises.sql_world import SCHEMA

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
        await anyio.run_process([sys.executable, "-m", "tests.integration.sql_writer", lake.uri, "25", *names])
        await until(lambda: all(map(lake.is_published, names)))
        assert all(record["absences"] == 0 for record in daemon.records("sweep told"))
        assert not daemon.records("settled", outcome="dead")


async def test_a_database_that_is_locked_for_long_is_the_catalogs_trouble(lake: Lake) -> None:
    lake.create("orders")
    async with serving(lake.configured(every="1s", patience=0.001)) as daemon:
        await until(lambda: lake.is_published("orders"))
        with closing(sqlite3.connect(lake.folder / "catalog.db", isolation_level=None)) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            await daemon.tell("orders")
            away = await daemon.until_logged("catalog away", name="prod")
        assert "database is locked" in away["error"]
        lake.commit("orders")
        await until(lambda: lake.is_published("orders"))
        assert all(record["absences"] == 0 for record in daemon.records("sweep told"))


async def test_what_is_missing_is_told_at_the_start(lake: Lake) -> None:
    file = lake.configured()
    file.write_text(file.read_text().replace(lake.uri, "postgresql+nodriver://host/db"))
    code, told = await refused(file)
    assert code == 2
    assert told.startswith("catalogs.prod.properties.uri: expected a database URL of SQLAlchemy")
