"""PyIceberg's SQL catalog on SQLite, and somebody who changes it through an object of their own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from sqlalchemy import text

from sfn.catalogs import Catalog
from sfn.catalogs.pyiceberg import PyIcebergCatalog, PyIcebergSettings
from sfn.domain.identifiers import TableIdentifier

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
_spaces = count(1)


def identifier(table: TableIdentifier) -> tuple[str, ...]:
    return (*table.namespace, table.name)


class SqlWorld:
    """A namespace of a catalog called `lake`, in a folder."""

    def __init__(self, folder: Path, catalog: Catalog, theirs: SqlCatalog) -> None:
        self.catalog = catalog
        self.space = f"space{next(_spaces)}"
        self._home = folder.as_uri()
        self._theirs = theirs

    async def create_namespace(self, *levels: str) -> None:
        self._theirs.create_namespace((self.space, *levels))

    async def drop_namespace(self, *levels: str) -> None:
        self._theirs.drop_namespace((self.space, *levels))

    async def close_namespace(self) -> str:
        # PyIceberg takes the space away from around a level: it would look for `closed`.
        with self._theirs.engine.begin() as connection:
            connection.execute(
                text("INSERT INTO iceberg_namespace_properties VALUES ('lake', :namespace, 'exists', 'true')"),
                {"namespace": f"{self.space}. closed"},
            )
        return " closed"

    async def create(self, table: TableIdentifier) -> str:
        location = "/".join((self._home, *(quote(part, safe="") for part in identifier(table))))
        return str(self._theirs.create_table(identifier(table), SCHEMA, location).metadata.table_uuid)

    async def commit(self, table: TableIdentifier) -> None:
        self._theirs.load_table(identifier(table)).append(pa.table({"id": [1]}))

    async def switch_off(self, table: TableIdentifier) -> None:
        with self._theirs.load_table(identifier(table)).transaction() as change:
            change.set_properties({"sfn.enabled": "false"})

    async def roll_back(self, table: TableIdentifier) -> None:
        before = self._theirs.load_table(identifier(table)).metadata.metadata_log[-1].metadata_file
        self._theirs.drop_table(identifier(table))
        self._theirs.register_table(identifier(table), before)

    async def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        self._theirs.rename_table(identifier(source), identifier(target))

    async def drop(self, table: TableIdentifier) -> None:
        self._theirs.drop_table(identifier(table))


@asynccontextmanager
async def sql_world(folder: Path) -> AsyncGenerator[SqlWorld]:
    """A world in a folder."""
    uri = f"sqlite:///{folder}/catalog.db"
    with closing(SqlCatalog("lake", uri=uri)) as theirs:
        adapter = PyIcebergCatalog(PyIcebergSettings(name="lake", properties={"type": "sql", "uri": uri}))
        made = SqlWorld(folder, adapter, theirs)
        await made.create_namespace()
        try:
            yield made
        finally:
            await adapter.close()
