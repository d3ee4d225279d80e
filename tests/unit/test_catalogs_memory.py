"""What the catalog in memory has beyond the port's promises."""

from __future__ import annotations

import pytest

from sfn.catalogs import Loaded, NoSuchTable, StagedCreate
from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Transient

ORDERS = TableIdentifier("lake", ("sales",), "orders")


def memory() -> MemoryCatalog:
    made = MemoryCatalog("lake")
    made.create_namespace("sales")
    return made


async def test_a_staged_table_is_unwritten_and_not_listed() -> None:
    catalog = memory()
    catalog.stage(ORDERS)
    assert await catalog.load(ORDERS, None) == StagedCreate()
    assert not await catalog.is_listed(ORDERS)
    catalog.create(ORDERS)
    assert isinstance(await catalog.load(ORDERS, None), Loaded)


async def test_trouble_is_raised_by_every_question_until_it_is_over() -> None:
    catalog = memory()
    catalog.error = Transient("catalog lake", scope=ErrorScope.CATALOG, expected="an answer", found="none")
    with pytest.raises(Transient):
        await catalog.load(ORDERS, None)
    with pytest.raises(Transient):
        await catalog.is_listed(ORDERS)
    with pytest.raises(Transient):
        await anext(catalog.tables())
    catalog.error = None
    assert await catalog.load(ORDERS, None) == NoSuchTable()


def test_a_name_is_given_once_and_in_a_namespace_that_exists() -> None:
    catalog = memory()
    catalog.create(ORDERS)
    with pytest.raises(ValueError, match="exists"):
        catalog.create(ORDERS)
    with pytest.raises(ValueError, match="namespace"):
        catalog.create(TableIdentifier("lake", ("nowhere",), "orders"))


def test_two_of_the_same_history_are_equal() -> None:
    assert memory().create(ORDERS) == memory().create(ORDERS)


async def test_registered_metadata_keeps_its_uuid_and_its_file() -> None:
    catalog = memory()
    first = catalog.create(ORDERS)
    catalog.commit(ORDERS)
    catalog.drop(ORDERS)
    catalog.register(ORDERS, first)
    answer = await catalog.load(ORDERS, None)
    assert isinstance(answer, Loaded)
    assert answer.table == first
