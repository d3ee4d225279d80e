"""Answers and listings of every catalog adapter."""

from __future__ import annotations

import anyio
import pytest

from sfn.catalogs import Loaded, NamespaceLister, NoSuchTable, NotModified, SkipNamespace, UnlistedNamespace
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, Permanent
from tests.promises import catalogs
from tests.promises.catalogs import World, listable, named

# ── Every catalog


rest_server = catalogs.rest_server
world = catalogs.world

TELLABLE = ("plain", "a.b", "a b", "a+b", "a_b", "ü", "日本", "a&b=c", "a?b#c", "a;b", "a:b", "it's", "~-")
AMBIGUOUS = ("50%", "a/b", "a%2Fb", "a\\b", "..")
"""Names that a server may refuse to find in a URL (Jetty: "Ambiguous URI path"), but must not mistake for others."""


async def loaded(world: World, table: TableIdentifier) -> Loaded:
    answer = await world.catalog.load(table, None)
    assert isinstance(answer, Loaded)
    return answer


async def listing(world: World) -> list[TableIdentifier]:
    return sorted([table for table in await walked(world) if isinstance(table, TableIdentifier)])


async def walked(world: World, skip: SkipNamespace | None = None) -> list[TableIdentifier | UnlistedNamespace]:
    """What a walk finds below this test's own namespace."""
    found = [one async for one in world.catalog.tables(skip)]
    return [one for one in found if one.namespace[:1] == (world.space,)]


async def test_created_table_is_loaded(world: World) -> None:
    table = named(world, "orders")
    uuid = await world.create(table)
    found = (await loaded(world, table)).table
    assert found.uuid == uuid
    assert found.location.endswith(f"/{world.space}/orders")
    assert found.metadata_location.endswith(".metadata.json")
    assert found.metadata_log == ()
    assert found.last_updated_ms > 1_600_000_000_000
    assert found.snapshot_id is None
    assert found.skip_reason is None


async def test_commit_moves_the_pointer_and_logs_the_previous_one(world: World) -> None:
    table = named(world, "orders")
    await world.create(table)
    before = (await loaded(world, table)).table
    await world.commit(table)
    after = (await loaded(world, table)).table
    assert after.metadata_location != before.metadata_location
    assert after.metadata_log == (before.metadata_location,)
    assert after.uuid == before.uuid
    assert after.snapshot_id is not None


async def test_metadata_log_is_oldest_first(world: World) -> None:
    table = named(world, "orders")
    await world.create(table)
    pointers = []
    for _ in range(3):
        pointers.append((await loaded(world, table)).table.metadata_location)
        await world.commit(table)
    assert (await loaded(world, table)).table.metadata_log == tuple(pointers)


@listable
async def test_rolled_back_table_has_its_earlier_pointer(world: World) -> None:
    table = named(world, "orders")
    await world.create(table)
    await world.commit(table)
    before = (await loaded(world, table)).table
    await world.commit(table)
    await world.roll_back(table)
    assert (await loaded(world, table)).table == before


async def test_renamed_table_is_the_same_under_its_new_name(world: World) -> None:
    old, new = named(world, "old"), named(world, "new")
    await world.create(old)
    before = await loaded(world, old)
    await world.rename(old, new)
    assert await world.catalog.load(old, None) == NoSuchTable()
    assert (await loaded(world, new)).table == before.table


@listable
async def test_renamed_table_is_listed_under_its_new_name_only(world: World) -> None:
    old, new = named(world, "old"), named(world, "new")
    await world.create(old)
    await world.rename(old, new)
    assert not await world.catalog.is_listed(old)
    assert await world.catalog.is_listed(new)


async def test_dropped_table_is_missing(world: World) -> None:
    table = named(world, "orders")
    await world.create(table)
    etag = (await loaded(world, table)).etag
    await world.drop(table)
    assert await world.catalog.load(table, None) == NoSuchTable()
    assert await world.catalog.load(table, etag) == NoSuchTable()
    assert not await world.catalog.is_listed(table)


@listable
async def test_dropped_table_is_not_listed(world: World) -> None:
    table = named(world, "orders")
    await world.create(table)
    assert await world.catalog.is_listed(table)
    await world.drop(table)
    assert not await world.catalog.is_listed(table)
    assert await listing(world) == []


async def test_recreated_table_has_another_uuid(world: World) -> None:
    table = named(world, "orders")
    first = await world.create(table)
    etag = (await loaded(world, table)).etag
    await world.drop(table)
    second = await world.create(table)
    assert first != second
    answer = await world.catalog.load(table, etag)
    assert isinstance(answer, Loaded)
    assert answer.table.uuid == second


async def test_disabled_table_has_a_skip_reason(world: World) -> None:
    table = named(world, "orders")
    await world.create(table)
    await world.switch_off(table)
    assert ((await loaded(world, table)).table.skip_reason or "").startswith("switched off: ")


async def test_unchanged_table_is_not_sent_again(world: World) -> None:
    table = named(world, "orders")
    await world.create(table)
    first = await loaded(world, table)
    assert first.etag is not None
    assert await world.catalog.load(table, first.etag) == NotModified()
    await world.commit(table)
    second = await world.catalog.load(table, first.etag)
    assert isinstance(second, Loaded)
    assert second.etag not in (None, first.etag)
    assert await world.catalog.load(table, second.etag) == NotModified()


@pytest.mark.parametrize("known", ["", "made-up", '"made-up"'])
async def test_unknown_etag_is_answered_in_full(world: World, known: str) -> None:
    table = named(world, "orders")
    await world.create(table)
    assert isinstance(await world.catalog.load(table, known), Loaded)


async def test_unknown_table_is_missing_and_not_listed(world: World) -> None:
    for table in (named(world, "nothing"), named(world, "nothing", "nowhere")):
        assert await world.catalog.load(table, None) == NoSuchTable()
        assert not await world.catalog.is_listed(table)


@listable
async def test_table_is_listed_in_its_own_namespace_only(world: World) -> None:
    await world.create_namespace("inner")
    await world.create(named(world, "orders", "inner"))
    assert await world.catalog.is_listed(named(world, "orders", "inner"))
    assert not await world.catalog.is_listed(named(world, "orders"))
    assert not await world.catalog.is_listed(named(world, "order", "inner"))


@listable
async def test_tables_of_all_namespaces_are_listed(world: World) -> None:
    await world.create_namespace("inner")
    await world.create_namespace("inner", "most")
    for level in range(3):
        await world.create_namespace(f"empty{level}")
    expected = [named(world, f"t{number}") for number in range(5)]
    expected += [named(world, f"t{number}", "inner") for number in range(3)]
    expected += [named(world, "t0", "inner", "most")]
    for table in expected:
        await world.create(table)
    assert await listing(world) == sorted(expected)
    for table in expected:
        assert await world.catalog.is_listed(table)


@listable
async def test_listing_survives_a_namespace_that_vanishes(world: World) -> None:
    both = [named(world, "t", "left"), named(world, "t", "right")]
    for table in both:
        await world.create_namespace(table.namespace[-1])
        await world.create(table)
    found = []
    async for seen in world.catalog.tables():
        if isinstance(seen, TableIdentifier) and seen in both:
            found.append(seen)
            if len(found) == 1:
                (other,) = set(both) - {seen}
                await world.drop(other)
                await world.drop_namespace(other.namespace[-1])
    assert found[0] in both
    assert set(found) <= set(both)


@listable
async def test_forbidden_namespace_is_reported_once_and_others_are_listed(world: World) -> None:
    closed = await world.close_namespace()
    await world.create_namespace("inner")
    expected = [named(world, "t"), named(world, "t", "inner")]
    for table in expected:
        await world.create(table)
    found = await walked(world)
    assert sorted(table for table in found if isinstance(table, TableIdentifier)) == expected
    (withheld,) = (space for space in found if isinstance(space, UnlistedNamespace))
    assert withheld.namespace == (world.space, closed)
    assert withheld.reason
    with pytest.raises(Permanent) as caught:
        await world.catalog.is_listed(named(world, "t", closed))
    assert caught.value.scope is ErrorScope.TABLE


@listable
async def test_skipped_namespace_is_not_listed(world: World) -> None:
    closed = await world.close_namespace()
    for levels in (("inner",), ("inner", "most"), ("innermost",)):
        await world.create_namespace(*levels)
        await world.create(named(world, "t", *levels))
    unwanted = {(world.space, "inner"), (world.space, closed)}
    assert await walked(world, unwanted.__contains__) == [named(world, "t", "innermost")]


async def test_similar_names_are_distinguished(world: World) -> None:
    tables = {named(world, name): await world.create(named(world, name)) for name in TELLABLE}
    for table, uuid in tables.items():
        assert (await loaded(world, table)).table.uuid == uuid


@listable
async def test_names_are_listed_unchanged(world: World) -> None:
    tables = [named(world, name) for name in TELLABLE]
    for table in tables:
        await world.create(table)
    assert await listing(world) == sorted(tables)


@listable
@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_ambiguous_name_is_answered_or_refused_but_never_confused(world: World, name: str) -> None:
    await world.create_namespace("a")
    for other in ("50", "b", "a"):
        await world.create(named(world, other))
    await world.create(named(world, "b", "a"))
    uuid = await world.create(named(world, name))
    found: str | ErrorScope | None
    try:
        found = (await loaded(world, named(world, name))).table.uuid
    except Permanent as trouble:
        found = trouble.scope
    assert found in {uuid, ErrorScope.TABLE}
    assert await world.catalog.is_listed(named(world, name))


@listable
async def test_namespaces_with_unusual_names_are_listed(world: World) -> None:
    expected = [named(world, "t", level) for level in ("a b", "ü", "a_b", "x+y")]
    for table in expected:
        await world.create_namespace(*table.namespace[1:])
        await world.create(table)
    assert await listing(world) == sorted(expected)
    for table in expected:
        assert isinstance(await world.catalog.load(table, None), Loaded)


async def test_concurrent_loads_get_their_own_answers(world: World) -> None:
    tables = [named(world, f"t{number}") for number in range(8)]
    uuids = {table: await world.create(table) for table in tables}
    found: list[tuple[TableIdentifier, str | None]] = []

    async def load(table: TableIdentifier) -> None:
        found.append((table, (await loaded(world, table)).table.uuid))

    async with anyio.create_task_group() as group:
        for number in range(32):
            group.start_soon(load, tables[number % len(tables)])
    assert len(found) == 32
    assert all(uuids[table] == uuid for table, uuid in found)


# ── Catalogs with shared listings


@listable
async def test_listing_by_namespace_finds_the_same_tables(world: World) -> None:
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
async def test_missing_namespace_is_empty(world: World) -> None:
    catalog = world.catalog
    assert isinstance(catalog, NamespaceLister)
    assert [table async for table in catalog.tables_in((world.space, "gone"))] == []
    assert [below async for below in catalog.namespaces((world.space, "gone"))] == []


@listable
async def test_forbidden_namespace_has_table_scope(world: World) -> None:
    catalog = world.catalog
    assert isinstance(catalog, NamespaceLister)
    closed = (world.space, await world.close_namespace())
    with pytest.raises(Permanent) as refused:
        [table async for table in catalog.tables_in(closed)]
    assert refused.value.scope is ErrorScope.TABLE
