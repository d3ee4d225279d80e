"""A store on fake-gcs-server: what others see of its files, and what it makes of what happens on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

import httpx
import pytest

from sfn.domain.jobs import StoredObject
from sfn.storage import Deleted, PreconditionFailed
from sfn.storage.gcs import IMPOSSIBLE_GENERATION, GcsClient, GcsOptions
from sfn.storage.remote_store import HttpPool, RemoteStore, StoreService
from tests.faults.proxy import Answer, Asked, Fault, Instead, Pass, Proxy
from tests.servers.object_stores import GCS
from tests.unit.remote_server import Adapter, RemoteServerTests, created


@pytest.fixture
def proxy(gcs: GCS) -> Iterator[Proxy]:
    with Proxy(gcs.url) as proxy:
        yield proxy


@pytest.fixture
def bucket(gcs: GCS) -> str:
    return gcs.bucket()


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[RemoteStore]:
    pool = HttpPool()
    yield RemoteStore(
        GcsClient(GcsOptions(identity=None, endpoint=proxy.url), pool), StoreService(IMPOSSIBLE_GENERATION)
    )
    await pool.close()


@pytest.fixture(autouse=True)
def _known_by_its_own_host(proxy: Proxy, gcs: GCS) -> None:
    """The server gives contents only under the host that it was told to have."""
    proxy.rule = lambda _: Pass(frozenset({"host"}))
    assert gcs.url


@pytest.fixture
def adapter(gcs: GCS, bucket: str) -> Adapter:
    def client(url: str, pool: HttpPool) -> GcsClient:
        return GcsClient(GcsOptions(identity=None, endpoint=url), pool)

    home, missing = f"gs://{bucket}/", "gs://never-made/"
    return Adapter(gcs.url, (client, client), home, missing, "bucket", "POST", IMPOSSIBLE_GENERATION)


class TestFakeGcsServer(RemoteServerTests):
    """The tests that every service has."""


async def test_others_see_what_it_is_and_no_cache_keeps_it(store: RemoteStore, gcs: GCS, bucket: str) -> None:
    expected = {"t/_sfn/orders.ver": "application/json", "t/version-hint.text": "text/plain; charset=utf-8"}
    for name, kind in expected.items():
        held = await created(store, f"gs://{bucket}/{name}")
        seen = await seen_by_others(gcs, bucket, name)
        assert (seen["contentType"], seen["cacheControl"], seen["generation"]) == (kind, "no-store", held.etag)


async def seen_by_others(gcs: GCS, bucket: str, name: str) -> dict[str, str]:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{gcs.url}/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
    seen: dict[str, str] = answer.raise_for_status().json()
    return seen


@pytest.mark.parametrize("name", ["a#b.ver", "a?b=c&d.ver", "a%23b.ver", "a+b.ver", "50%.ver", "ä/ö ü.ver", "🧊.ver"])
async def test_a_name_is_the_same_to_all(store: RemoteStore, gcs: GCS, bucket: str, name: str) -> None:
    key = f"gs://{bucket}/t/{name}"
    held = await created(store, key)
    assert (await seen_by_others(gcs, bucket, f"t/{name}"))["name"] == f"t/{name}"
    assert await store.read(key) == held
    assert await store.read_range(key, 0, 10) == b"1"
    assert await store.list(key.rpartition("/")[0] + "/", 10) == [key]
    assert await store.delete(key, held) == Deleted()
    assert await store.read(key) is None


async def test_write_that_was_carried_out_unheard_is_known_again(store: RemoteStore, proxy: Proxy, bucket: str) -> None:
    """Sent a second time on the way, a write finds its own work and is refused."""
    key = f"gs://{bucket}/t/orders.ver"
    held = await created(store, key)

    def twice(asked: Asked) -> Fault:
        return Instead(200, Answer(412)) if asked.method == "POST" else Pass(frozenset({"host"}))

    proxy.rule = twice
    newer = await store.write(key, b"2", held)
    assert isinstance(newer, StoredObject)
    assert await store.read(key) == newer
    proxy.rule = lambda asked: Answer(412) if asked.method == "POST" else Pass(frozenset({"host"}))
    assert await store.write(key, b"2", newer) == PreconditionFailed()
