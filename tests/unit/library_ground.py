"""Catalogs that PyIceberg opens: a SQL catalog in a folder, and one that does what a test tells it to."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from typing_extensions import override

from sfn.catalogs.pyiceberg import PyIcebergCatalog, PyIcebergSettings
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ExternalError
from tests.promises.catalogs import SCHEMA, identifier

ORDERS = TableIdentifier("lake", ("sales",), "orders")
PRIVATE = "s3cret-of-ours"


class Database:
    """SQLite's file with a catalog called `lake` in it, and the table of all tests."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "catalog.db"
        self.home = folder / "orders"
        # SQLite's own five seconds would be spent waiting.
        self.properties = {"type": "sql", "uri": f"sqlite:///{self.file}?timeout=0.05", "s3.secret-access-key": PRIVATE}
        with closing(SqlCatalog("lake", uri=f"sqlite:///{self.file}")) as theirs:
            theirs.create_namespace(ORDERS.namespace)
            theirs.create_table(identifier(ORDERS), SCHEMA, self.home.as_uri())

    @property
    def pointer(self) -> Path:
        """The table's only metadata file."""
        (file,) = (self.home / "metadata").iterdir()
        return file

    def connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self.file, isolation_level=None)

    def execute(self, statement: str, *values: object) -> None:
        with closing(self.connected()) as connection:
            connection.execute(statement, values)


Plan: TypeAlias = Callable[[NoopCatalog, str], Any]
"""What one of PyIceberg's objects, of which there may be several, does at `load`, `tables`, `namespaces` or `close`."""


class Planned(NoopCatalog):
    """Asks a test."""

    plans: ClassVar[dict[str, Plan]] = {}
    """By the names that PyIceberg has for the catalogs."""

    @override
    def load_table(self, identifier: str | Identifier) -> Table:
        found: Table = self.plans[self.name](self, "load")
        return found

    @override
    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        found: list[Identifier] = self.plans[self.name](self, "tables")
        return found

    @override
    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        found: list[Identifier] = self.plans[self.name](self, "namespaces")
        return found

    @override
    def close(self) -> None:
        self.plans[self.name](self, "close")


@asynccontextmanager
async def opening(properties: Mapping[str, str], **settings: Any) -> AsyncGenerator[PyIcebergCatalog]:  # noqa: ANN401 - a setting's
    """An adapter called `lake`."""
    catalog = PyIcebergCatalog(PyIcebergSettings(name="lake", properties=properties, **settings))
    try:
        yield catalog
    finally:
        await catalog.close()


@asynccontextmanager
async def planned(plan: Plan, **settings: Any) -> AsyncGenerator[PyIcebergCatalog]:  # noqa: ANN401 - a setting's
    """An adapter to a catalog that does what a test says."""
    name = f"plan {id(plan)}"
    Planned.plans[name] = plan
    path = f"{Planned.__module__}.{Planned.__qualname__}"
    try:
        async with opening({"py-catalog-impl": path, "name": name, "password": PRIVATE}, **settings) as catalog:
            yield catalog
    finally:
        del Planned.plans[name]


async def trouble_of(
    catalog: PyIcebergCatalog, table: TableIdentifier = ORDERS, known: str | None = None
) -> ExternalError:
    """What a load raises: without a secret, on one line, and without the error that led to it."""
    with pytest.raises(ExternalError) as caught:
        await catalog.load(table, known)
    error = caught.value
    assert PRIVATE not in str(error)
    assert PRIVATE not in repr(error)
    assert str(error).isprintable()
    assert "catalog lake" in error.where
    assert error.__cause__ is None
    assert error.__context__ is None
    return error
