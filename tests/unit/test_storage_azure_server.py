"""A store on Azurite: what others see of its files, as whom it asks, and what it makes of what happens on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import pytest
from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Permanent, Transient
from sfn.storage import Deleted, PreconditionFailed
from sfn.storage.azure import (
    IMPOSSIBLE_ETAG,
    AccountKey,
    AzureClient,
    AzureIdentity,
    AzureOptions,
    SharedSignature,
    options_from_connection_string,
)
from sfn.storage.remote_store import HttpPool, RemoteStore, StoreService
from tests.faults.proxy import Asked, Cut, Fault, Lose, Pass, Proxy
from tests.servers.object_stores import ACCOUNT, ACCOUNT_KEY, Azure
from tests.unit.remote_server import Adapter, RemoteServerTests, created

SOMEBODY = AccountKey(ACCOUNT_KEY)
LATER = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture
def proxy(azure: Azure) -> Iterator[Proxy]:
    with Proxy(azure.url) as proxy:
        yield proxy


@pytest.fixture
def container(azure: Azure) -> str:
    return azure.container()


@pytest.fixture
def others(azure: Azure, container: str) -> Iterator[ContainerClient]:
    """Another program that uses the container."""
    with ContainerClient.from_connection_string(azure.connection, container) as client:
        yield client


@pytest.fixture
def home(container: str) -> str:
    return f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net/"


@asynccontextmanager
async def opened(url: str, identity: AzureIdentity | None = SOMEBODY) -> AsyncIterator[RemoteStore]:
    pool = HttpPool()
    terms = AzureOptions(identity=identity, endpoint=f"{url}/{ACCOUNT}")
    yield RemoteStore(AzureClient(terms, pool), StoreService(IMPOSSIBLE_ETAG))
    await pool.close()


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[RemoteStore]:
    async with opened(proxy.url) as store:
        yield store


def signature(container: str, permitted: str = "rcwdl") -> SharedSignature:
    permission = ContainerSasPermissions.from_string(permitted)
    return SharedSignature(generate_container_sas(ACCOUNT, container, ACCOUNT_KEY, permission=permission, expiry=LATER))


@pytest.fixture
def adapter(azure: Azure, container: str, home: str) -> Adapter:
    def client(identity: AzureIdentity, url: str, pool: HttpPool) -> AzureClient:
        return AzureClient(AzureOptions(identity=identity, endpoint=f"{url}/{ACCOUNT}"), pool)

    clients = partial(client, SOMEBODY), partial(client, signature(container, "r"))
    missing = home.replace(container, "never-made")
    return Adapter(azure.url, clients, home, missing, "container", "PUT", IMPOSSIBLE_ETAG)


class TestAzurite(RemoteServerTests):
    """The tests that every service has."""


async def test_others_see_what_it_is_and_no_cache_keeps_it(
    store: RemoteStore, others: ContainerClient, home: str
) -> None:
    for name, kind in {"t/a.ver": "application/json", "t/version-hint.text": "text/plain; charset=utf-8"}.items():
        held = await created(store, f"{home}{name}")
        seen = others.get_blob_client(name).get_blob_properties()
        settings = seen.content_settings
        assert (settings.content_type, settings.cache_control, seen.etag) == (kind, "no-store", held.etag)


@pytest.mark.parametrize("name", ["a#b.ver", "a?b=c&d.ver", "a%23b.ver", "a+b.ver", "50%.ver", "ä/ö ü.ver", "🧊.ver"])
async def test_a_name_is_the_same_to_all(store: RemoteStore, others: ContainerClient, home: str, name: str) -> None:
    key = f"{home}t/{name}"
    held = await created(store, key)
    assert others.download_blob(f"t/{name}").readall() == b"1"
    assert await store.read(key) == held
    assert await store.list(key.rpartition("/")[0] + "/", 10) == [key]
    assert await store.delete(key, held) == Deleted()


async def test_directories_are_neither_listed_nor_read(store: RemoteStore, others: ContainerClient, home: str) -> None:
    others.upload_blob("t/dir", b"", metadata={"hdi_isfolder": "true"})
    others.upload_blob("t/", b"")
    await created(store, f"{home}t/dir/below.ver")
    await created(store, f"{home}t/a.ver")
    assert await store.list(f"{home}t/", 10) == [f"{home}t/a.ver"]
    with pytest.raises(Permanent) as refused:
        await store.read(f"{home}t/dir")
    assert refused.value.scope is ErrorScope.TABLE
    assert "directory" in refused.value.found


async def test_both_hosts_lead_to_one_file(store: RemoteStore, container: str, home: str) -> None:
    blobs = f"abfss://{container}@{ACCOUNT}.blob.core.windows.net/"
    held = await created(store, f"{blobs}t/a.ver")
    assert await store.read(f"{home}t/a.ver") == held
    assert await store.list(f"{blobs}t/", 10) == [f"{blobs}t/a.ver"]
    assert await store.delete(f"{home}t/a.ver", held) == Deleted()


async def test_a_signature_opens_as_much_as_it_permits(azure: Azure, container: str, home: str) -> None:
    key = f"{home}t/a.ver"
    async with opened(azure.url, signature(container)) as store:
        held = await created(store, key)
        assert (await store.probe(key)).conditional_delete
        assert await store.list(f"{home}t/", 10) == [key]
    async with opened(azure.url, signature(container, "r")) as reader:
        assert await reader.read(key) == held
        assert await reader.read(f"{home}t/never.ver") is None
        for verb in (
            lambda: reader.write(key, b"2", held),
            lambda: reader.delete(key, held),
            lambda: reader.list(f"{home}t/", 1),
        ):
            with pytest.raises(Transient) as denied:
                await verb()
            assert denied.value.scope is ErrorScope.STORE
            assert "AuthorizationPermissionMismatch" in denied.value.found


async def test_a_connection_string_opens_its_account(azure: Azure, home: str) -> None:
    pool = HttpPool()
    store = RemoteStore(
        AzureClient(options_from_connection_string(azure.connection), pool), StoreService(IMPOSSIBLE_ETAG)
    )
    held = await created(store, f"{home}t/a.ver")
    assert await store.read(f"{home}t/a.ver") == held
    await pool.close()


async def test_a_lease_is_waited_for(store: RemoteStore, others: ContainerClient, home: str) -> None:
    key = f"{home}t/a.ver"
    held = await created(store, key)
    lease = others.get_blob_client("t/a.ver").acquire_lease()
    for verb in (lambda: store.write(key, b"2", held), lambda: store.delete(key, held)):
        with pytest.raises(Transient) as busy:
            await verb()
        assert busy.value.scope is ErrorScope.TABLE
        assert "lease" in busy.value.remedy
    assert await store.read(key) == held
    lease.release()
    assert isinstance(await store.write(key, b"2", held), StoredObject)


async def test_a_write_whose_answer_was_lost_is_known_again(store: RemoteStore, proxy: Proxy, home: str) -> None:
    """The connection is one that was used before: then the request is sent once more on the way."""
    key = f"{home}t/a.ver"
    held = await created(store, key)
    lost: list[Asked] = []

    def lose_one(asked: Asked) -> Fault:
        if asked.method == "PUT" and not lost:
            lost.append(asked)
            return Lose()
        return Pass()

    proxy.rule = lose_one
    newer = await store.write(key, b"2", held)
    assert isinstance(newer, StoredObject)
    assert proxy.asked == ["PUT", "PUT", "PUT", "GET"]
    assert await store.read(key) == newer
    assert await store.write(key, b"2", held) == PreconditionFailed()


async def test_a_body_that_breaks_off_is_not_fetched_again(store: RemoteStore, proxy: Proxy, home: str) -> None:
    await created(store, f"{home}t/a.ver", b"12345678")
    proxy.asked.clear()
    proxy.rule = lambda _: Cut()
    with pytest.raises(Transient):
        await store.read(f"{home}t/a.ver")
    assert proxy.asked == ["GET"]


@pytest.mark.parametrize("header", ["if-none-match", "if-match"])
async def test_a_service_that_does_not_see_the_condition_is_refused(
    proxy: Proxy, container: str, home: str, header: str
) -> None:
    """A signature in the query says nothing of headers; an account key's would break."""
    async with opened(proxy.url, signature(container)) as store:
        held = await created(store, f"{home}t/a.ver")
        proxy.rule = lambda asked: Pass(frozenset({header}) if asked.method == "PUT" else frozenset())
        with pytest.raises(Permanent) as refused:
            await store.probe(f"{home}t/a.ver")
        assert refused.value.scope is ErrorScope.STORE
        proxy.rule = lambda _: Pass()
        found = await store.read(f"{home}t/a.ver")
        assert found is not None
        assert found.body == held.body


async def test_snapshots_are_not_deleted_with_a_file(store: RemoteStore, others: ContainerClient, home: str) -> None:
    held = await created(store, f"{home}t/a.ver")
    kept = others.get_blob_client("t/a.ver")
    snapshot = str(kept.create_snapshot()["snapshot"])
    with pytest.raises(Permanent) as refused:
        await store.delete(f"{home}t/a.ver", held)
    assert refused.value.scope is ErrorScope.TABLE
    assert "snapshots" in refused.value.remedy
    assert others.get_blob_client("t/a.ver", snapshot=snapshot).exists()
