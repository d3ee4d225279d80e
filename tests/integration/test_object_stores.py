"""The service as a real process, tables on real object stores: a table's whole life, read by its directory alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import sfn
from sfn.errors import Dropped, NotFound
from tests.integration.clouds import CLOUDS, Cloud
from tests.integration.process import TOKEN, serving
from tests.promises.sql_world import SCHEMA

CONFIGURATION = """\
[listener]
port = 0
[inbox]
url = "sqlite:///{folder}/inbox/inbox.db"
[sweep]
every = "off"
[catalogs.prod]
type = "pyiceberg"
properties = {properties}
replica_lag = "0"
absence_delay = "0"
min_publish_interval = "0"
[senders.etl]
secrets = {{ main = "{token}" }}
{store}
"""
NAME = ("sales", "orders")


@dataclass
class Lake:
    """A catalog, whose tables lie on an object store."""

    folder: Path
    cloud: Cloud
    catalog: SqlCatalog

    def configured(self) -> Path:
        properties = {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", **self.cloud.properties}
        inline = ", ".join(f'"{key}" = "{value}"' for key, value in properties.items())
        file = self.folder / "sfn.toml"
        file.write_text(
            CONFIGURATION.format(
                folder=self.folder, properties=f"{{ {inline} }}", token=TOKEN, store=self.cloud.configured
            )
        )
        return file

    def append(self, *ids: int) -> str:
        """Write some rows; the pointer."""
        table = self.catalog.load_table(NAME)
        table.append(pa.table({"id": pa.array(ids, pa.int64())}))
        return table.metadata_location

    def rows(self) -> list[int]:
        """What a reader of the directory finds."""
        at, options = self.cloud.warehouse, self.cloud.options
        found = sfn.read(f"{at}/orders", NAME, storage_options=options, properties=self.cloud.properties)
        return sorted(found["id"].to_pylist())

    def tells(self, pointer: str) -> bool:
        """Whether a reader of the directory is told that metadata file."""
        try:
            return self._resolved().metadata_location == pointer
        except NotFound:
            return False

    def is_over(self) -> bool:
        """Whether it is told that the table was dropped."""
        try:
            self._resolved()
        except Dropped:
            return True
        return False

    def _resolved(self) -> sfn.Resolved:
        return sfn.resolve(f"{self.cloud.warehouse}/orders", NAME, storage_options=self.cloud.options)


@pytest.fixture(params=list(CLOUDS))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    cloud = CLOUDS[request.param](request)
    with closing(SqlCatalog("prod", uri=f"sqlite:///{tmp_path}/catalog.db", **cloud.properties)) as catalog:
        catalog.create_namespace("sales")
        yield Lake(tmp_path, cloud, catalog)


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not await anyio.to_thread.run_sync(holds):  # noqa: ASYNC110 - no event crosses processes
            await anyio.sleep(0.05)


async def test_a_table_lives_on_a_store_and_readers_follow(lake: Lake) -> None:
    lake.catalog.create_table(NAME, SCHEMA, f"{lake.cloud.warehouse}/orders")
    async with serving(lake.configured()) as daemon:
        for ids in ((1, 2), (3,)):
            pointer = lake.append(*ids)
            assert (await daemon.tell("orders")).status_code == 202
            await until(partial(lake.tells, pointer))
        assert lake.rows() == [1, 2, 3]
        lake.catalog.drop_table(NAME)
        await daemon.tell("orders", operation="drop")
        await until(lake.is_over)
        assert not daemon.records("settled", outcome="dead")
