"""What every catalog promises whose listing can be shared out."""

from __future__ import annotations

import pytest

from sfn.catalogs import NamespaceLister
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Permanent
from tests.promises import catalogs
from tests.promises.catalogs import World, listable, named

rest_server = catalogs.rest_server
world = catalogs.world


@listable
async def test_namespace_by_namespace_the_same_tables_are_found(world: World) -> None:
    catalog = world.catalog
    assert isinstance(catalog, NamespaceLister)
    await world.create_namespace("deep")
    for table in (named(world, "orders"), named(world, "below", "deep")):
        await world.create(table)
    waiting, found = list[tuple[str, ...]]([(world.space,)]), list[TableIdentifier]()
    while waiting:
        namespace = waiting.pop()
        found += [table async for table in catalog.tables_in(namespace)]
        waiting += [below async for below in catalog.namespaces(namespace)]
    walked = [table async for table in catalog.tables() if isinstance(table, TableIdentifier)]
    assert sorted(found) == sorted(table for table in walked if table.namespace[0] == world.space)
    assert (world.space,) in [outermost async for outermost in catalog.namespaces(())]


@listable
async def test_a_namespace_that_is_not_there_has_nothing(world: World) -> None:
    catalog = world.catalog
    assert isinstance(catalog, NamespaceLister)
    assert [table async for table in catalog.tables_in((world.space, "gone"))] == []
    assert [below async for below in catalog.namespaces((world.space, "gone"))] == []


@listable
async def test_a_closed_namespace_is_this_one_s_trouble_alone(world: World) -> None:
    catalog = world.catalog
    assert isinstance(catalog, NamespaceLister)
    closed = (world.space, await world.close_namespace())
    with pytest.raises(Permanent) as refused:
        [table async for table in catalog.tables_in(closed)]
    assert refused.value.scope is ErrorScope.TABLE
