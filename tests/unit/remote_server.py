"""Tests of a store on a server of its kind, which are the same for each service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio
import pytest

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, OutcomeUnknown, Permanent
from sfn.storage import Deleted, ObjectClient
from sfn.storage.remote_store import HttpPool, RemoteStore, StoreService
from tests.faults.proxy import Lose, Proxy


@dataclass(frozen=True, slots=True)
class Adapter:
    """What differs between the services.

    Attributes:
        url: of the server.
        clients: connect to a server at a URL, each as a principal; the first one may write.
        home: URL of an empty bucket or container.
        missing: URL of one that does not exist.
        kind: what the service calls it.
        write: method of a write.
        no_tag: a tag that no object has.
    """

    url: str
    clients: tuple[Callable[[str, HttpPool], ObjectClient], ...]
    home: str
    missing: str
    kind: str
    write: str
    no_tag: str


async def created(store: RemoteStore, key: str, body: bytes = b"1") -> StoredObject:
    """Write a new object."""
    held = await store.write(key, body, None)
    assert isinstance(held, StoredObject)
    return held


class RemoteServerTests:
    """The tests; a module that inherits them has the fixtures `adapter`, `proxy` and `store`."""

    async def test_a_listing_goes_on_from_page_to_page(self, proxy: Proxy, adapter: Adapter) -> None:
        pool = HttpPool()
        objects = adapter.clients[0](proxy.url, pool)
        names = [f"{adapter.home}t/{number}.ver" for number in range(5)]
        for name in [*names, f"{adapter.home}t/3/below.ver"]:
            await objects.put(name, b"", None, "0a-1")
        proxy.asked.clear()
        keys: list[str] = []
        begin, pages = None, 0
        while begin is not None or not pages:
            page = await objects.list_page(f"{adapter.home}t/", 2, begin)
            keys += page.keys
            begin, pages = page.next, pages + 1
        await pool.close()
        assert keys == names
        assert proxy.asked == ["GET"] * pages
        assert pages >= 3

    async def test_each_verb_is_one_request(self, store: RemoteStore, proxy: Proxy, adapter: Adapter) -> None:
        key = f"{adapter.home}t/orders.ver"
        held = await created(store, key)
        newer = await store.write(key, b"2", held)
        assert isinstance(newer, StoredObject)
        assert await store.read(key) == newer
        assert await store.read_range(key, 0, 10) == b"2"
        assert await store.list(f"{adapter.home}t/", 10) == [key]
        assert await store.delete(key, newer) == Deleted()
        assert await store.read(key) is None
        assert proxy.asked == [adapter.write, adapter.write, "GET", "GET", "GET", "DELETE", "GET"]

    async def test_nobody_knows_whether_a_change_without_an_answer_happened(
        self, store: RemoteStore, proxy: Proxy, adapter: Adapter
    ) -> None:
        held = await created(store, f"{adapter.home}t/a.ver")
        proxy.rule = lambda _: Lose()
        with pytest.raises(OutcomeUnknown) as unsure:
            await store.write(f"{adapter.home}t/a.ver", b"2", held)
        assert unsure.value.scope is ErrorScope.STORE

    async def test_a_bucket_that_is_not_there_is_told_of_by_every_verb(
        self, store: RemoteStore, adapter: Adapter
    ) -> None:
        key, absent = f"{adapter.missing}t/orders.ver", StoredObject(b"", adapter.no_tag)
        for verb in (
            lambda: store.read(key),
            lambda: store.read_range(key, 0, 10),
            lambda: store.write(key, b"1", None),
            lambda: store.write(key, b"1", absent),
            lambda: store.delete(key, absent),
            lambda: store.list(f"{adapter.missing}t/", 10),
        ):
            with pytest.raises(Permanent) as nowhere:
                await verb()
            assert nowhere.value.scope is ErrorScope.STORE
            assert adapter.kind in nowhere.value.expected

    async def test_another_principal_over_the_same_connections(self, adapter: Adapter) -> None:
        pool = HttpPool()
        clients = [client(adapter.url, pool) for client in adapter.clients]
        stores = [RemoteStore(client, StoreService(adapter.no_tag)) for client in clients]
        key = f"{adapter.home}t/orders.ver"
        held = await created(stores[0], key)
        await stores[0].close()
        assert await stores[1].read(key) == held
        async with anyio.create_task_group() as tasks:
            for store in stores:
                tasks.start_soon(store.read, key)
        await pool.close()
