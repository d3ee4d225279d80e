"""A table's metadata file where PyIceberg finds it: any size, compressed or not, and whose trouble it is if not."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sfn.catalogs.pyiceberg import PyIcebergCatalog
from sfn.domain.catalog_answer import Loaded
from sfn.errors import ErrorScope, Permanent, Transient
from tests.unit.library_ground import ORDERS, Database, opening, trouble_of

OTHER = replace(ORDERS, name="other")
LARGE = 9 * 2**20
"""Bytes that are not decoded at once."""


@pytest.fixture(name="database")
def fixture_database(tmp_path: Path) -> Database:
    return Database(tmp_path)


@pytest.fixture(name="catalog")
async def fixture_catalog(database: Database) -> AsyncGenerator[PyIcebergCatalog]:
    async with opening(database.properties) as catalog:
        yield catalog


def rewritten(database: Database, more: dict[str, Any], encode: Callable[[bytes], bytes] = bytes) -> None:
    """Put more into the table's metadata file."""
    document = json.loads(database.pointer.read_bytes())
    database.pointer.write_bytes(encode(json.dumps(document | more).encode()))


def second_table(database: Database, pointer: str) -> None:
    database.execute("INSERT INTO iceberg_tables VALUES ('lake', 'sales', 'other', ?, NULL, 'TABLE')", pointer)


@pytest.mark.parametrize("encode", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("size", [0, LARGE])
async def test_a_file_of_any_size_is_read(
    database: Database, catalog: PyIcebergCatalog, encode: Callable[[bytes], bytes], size: int
) -> None:
    before = await catalog.load(ORDERS, None)
    rewritten(database, {"statistics": ["x" * size], "current-snapshot-id": 7}, encode)
    after = await catalog.load(ORDERS, None)
    assert isinstance(before, Loaded)
    assert after == replace(before, table=replace(before.table, snapshot_id=7))


async def test_a_table_of_version_1_need_not_have_a_uuid(database: Database, catalog: PyIcebergCatalog) -> None:
    document = json.loads(database.pointer.read_bytes())
    del document["table-uuid"]
    database.pointer.write_text(json.dumps(document | {"format-version": 1}))
    answer = await catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    assert answer.table.uuid is None


async def test_a_file_that_is_too_long_is_given_up(database: Database) -> None:
    rewritten(database, {"statistics": ["x" * 10_000]}, gzip.compress)
    async with opening(database.properties, body_limit=10_000) as catalog:
        trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Permanent, ErrorScope.TABLE)
    assert "expire the table's snapshots" in trouble.remedy


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"<html>", b'{"view-uuid": 1}', gzip.compress(b"{}", mtime=0)[:-9], b"\x1f\x8bno", b"\xff"]
)
async def test_a_file_that_describes_no_table_is_trouble_of_that_table(
    database: Database, catalog: PyIcebergCatalog, content: bytes
) -> None:
    database.pointer.write_bytes(content)
    trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope) == (Transient, ErrorScope.TABLE)
    assert database.pointer.as_uri() in trouble.where


async def test_a_file_that_is_gone_is_trouble_of_that_table(database: Database, catalog: PyIcebergCatalog) -> None:
    database.pointer.unlink()
    trouble = await trouble_of(catalog)
    assert (type(trouble), trouble.scope, trouble.found) == (Transient, ErrorScope.TABLE, "no such file")


async def test_one_file_that_can_not_be_read_is_its_tables_trouble(
    database: Database, catalog: PyIcebergCatalog
) -> None:
    second_table(database, database.home.as_uri())
    for _ in range(2):
        assert isinstance(await catalog.load(ORDERS, None), Loaded)
        assert (await trouble_of(catalog, OTHER)).scope is ErrorScope.TABLE


async def test_a_file_that_can_not_be_read_is_the_catalogs_trouble_until_another_was_read(
    database: Database, catalog: PyIcebergCatalog
) -> None:
    """A service that starts while nothing can be read must not spend the budget of each table."""
    second_table(database, database.home.as_uri())
    for _ in range(2):
        assert (await trouble_of(catalog, OTHER)).scope is ErrorScope.CATALOG
    assert isinstance(await catalog.load(ORDERS, None), Loaded)
    assert (await trouble_of(catalog, OTHER)).scope is ErrorScope.TABLE


async def test_where_none_can_be_read_any_more_it_is_the_catalogs(
    database: Database, catalog: PyIcebergCatalog
) -> None:
    """A revoked grant must not send every table to the dead letters."""
    second_table(database, database.home.as_uri())
    assert isinstance(await catalog.load(ORDERS, None), Loaded)
    pointer = database.pointer
    pointer.unlink()
    assert (await trouble_of(catalog, OTHER)).scope is ErrorScope.TABLE
    pointer.mkdir()
    assert (await trouble_of(catalog, OTHER)).scope is ErrorScope.CATALOG
