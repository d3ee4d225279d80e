"""A SQL catalog through PyIceberg: what the database says, and what it means where it says nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sfn.catalogs import UnlistedNamespace
from sfn.catalogs.pyiceberg import PyIcebergCatalog
from sfn.domain.catalog_answer import Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Permanent, Transient
from tests.unit.library_ground import ORDERS, Database, opening, trouble_of


@pytest.fixture(name="database")
def fixture_database(tmp_path: Path) -> Database:
    return Database(tmp_path)


@pytest.fixture(name="catalog")
async def fixture_catalog(database: Database) -> AsyncGenerator[PyIcebergCatalog]:
    async with opening(database.properties) as catalog:
        yield catalog


async def test_a_table_that_did_not_change_costs_no_file(database: Database, catalog: PyIcebergCatalog) -> None:
    answer = await catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    database.pointer.unlink()
    assert await catalog.load(ORDERS, answer.etag) == NotModified()


async def test_a_locked_database_is_trouble_of_the_catalog_and_never_an_absence(
    database: Database, catalog: PyIcebergCatalog
) -> None:
    """Also where a connection is opened just then: PyIceberg takes the lock for a database without its tables."""
    answer = await catalog.load(ORDERS, None)
    async with opening(database.properties) as other:
        with closing(database.connected()) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            for asked in (catalog, other):
                for table in (ORDERS, replace(ORDERS, name="absent")):
                    trouble = await trouble_of(asked, table)
                    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.CATALOG)
                    assert "database is locked" in trouble.found
                with pytest.raises(Transient):
                    await asked.is_listed(ORDERS)
                with pytest.raises(Transient):
                    [one async for one in asked.tables()]
                with pytest.raises(Transient):
                    await asked.identity()
        for asked in (catalog, other):
            assert await asked.load(ORDERS, None) == answer
            assert [one async for one in asked.tables()] == [ORDERS]


async def test_a_database_that_is_not_there_is_not_made(database: Database, tmp_path: Path) -> None:
    absent = tmp_path / "not mounted.db"
    async with opening({**database.properties, "uri": f"sqlite:///{absent}"}) as catalog:
        trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.CATALOG)
    assert "unable to open database file" in trouble.found
    assert not absent.exists()


@pytest.mark.parametrize("more", [{}, {"init_catalog_tables": "true"}])
async def test_a_database_without_a_catalog_stays_so(database: Database, tmp_path: Path, more: dict[str, str]) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    async with opening({**database.properties, "uri": f"sqlite:///{empty}", **more}) as catalog:
        trouble = await trouble_of(catalog)
        with pytest.raises(Transient):
            await catalog.identity()
    assert trouble.scope is ErrorScope.CATALOG
    assert "no such table: iceberg_tables" in trouble.found
    assert empty.read_bytes() == b""


async def test_an_old_database_is_read_and_not_migrated(database: Database) -> None:
    database.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    async with opening({**database.properties, "schema_version": "v1"}) as catalog:
        assert isinstance(await catalog.load(ORDERS, None), Loaded)
        assert [one async for one in catalog.tables()] == [ORDERS]
    with closing(database.connected()) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(iceberg_tables)")]
    assert "iceberg_type" not in columns


async def test_a_view_is_no_table(database: Database, catalog: PyIcebergCatalog) -> None:
    database.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW'")
    assert await catalog.load(ORDERS, None) == NoSuchTable()
    assert not await catalog.is_listed(ORDERS)
    assert [one async for one in catalog.tables()] == []


@pytest.mark.parametrize("pointer", [None, ""])
async def test_a_row_without_a_metadata_file_is_neither_a_table_nor_an_absence(
    database: Database, catalog: PyIcebergCatalog, pointer: str | None
) -> None:
    database.execute("UPDATE iceberg_tables SET metadata_location = ?", pointer)
    assert await catalog.load(ORDERS, None) == StagedCreate()
    assert await catalog.is_listed(ORDERS)


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ((), "orders"),
        (("",), "orders"),
        (("sales",), ""),
        ((" sales",), "orders"),
        (("sales", "a.b"), "orders"),
        (("sales\0",), "orders"),
        (("sales",), "orders\ud800"),
    ],
)
async def test_a_name_that_would_be_mistaken_is_refused_and_nothing_else_is(
    catalog: PyIcebergCatalog, namespace: tuple[str, ...], name: str
) -> None:
    with pytest.raises(Permanent) as caught:
        await catalog.load(TableIdentifier("lake", namespace, name), None)
    assert caught.value.scope is ErrorScope.TABLE
    assert str(caught.value).isprintable()
    assert "catalogs.lake.exclude" in caught.value.remedy
    assert isinstance(await catalog.load(ORDERS, None), Loaded)


async def test_a_catalog_of_whose_name_its_database_knows_nothing_is_withheld(database: Database) -> None:
    async with opening({**database.properties, "name": "default"}) as catalog:
        assert [one async for one in catalog.tables()] == [
            UnlistedNamespace(
                (), "its database holds lake, and nothing of default", 'set catalogs.lake.properties.name = "lake"'
            )
        ]


async def test_an_empty_catalog_is_no_wrong_name(database: Database, catalog: PyIcebergCatalog) -> None:
    database.execute("DELETE FROM iceberg_tables")
    assert [one async for one in catalog.tables()] == []
    assert [one async for one in catalog.tables(lambda _: True)] == []
    database.execute("DELETE FROM iceberg_namespace_properties")
    assert [one async for one in catalog.tables()] == []


async def test_a_catalog_may_be_called_otherwise_in_its_database(database: Database) -> None:
    database.execute("UPDATE iceberg_tables SET catalog_name = 'default'")
    database.execute("UPDATE iceberg_namespace_properties SET catalog_name = 'default'")
    async with opening({**database.properties, "name": "default"}) as catalog:
        assert isinstance(await catalog.load(ORDERS, None), Loaded)
        assert [one async for one in catalog.tables()] == [ORDERS]
