"""The stores that promises are tried on. A new adapter is one more line in `ADAPTERS`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from azure.storage.blob import ContainerClient

from sfn.aws_auth import AwsIdentity, AwsKeys
from sfn.storage import ObjectStore
from sfn.storage.azure import IMPOSSIBLE_ETAG as NO_BLOB
from sfn.storage.azure import AccountKey, AzureClient, AzureOptions
from sfn.storage.gcs import IMPOSSIBLE_GENERATION as NO_GENERATION
from sfn.storage.gcs import GcsClient, GcsOptions
from sfn.storage.local import LocalStore
from sfn.storage.memory import MemoryStore
from sfn.storage.remote_store import HttpPool, RemoteStore, StoreService
from sfn.storage.s3 import IMPOSSIBLE_ETAG as NO_ETAG
from sfn.storage.s3 import BucketEndpoints, S3Client, S3Options
from tests.promises.processes import plant_file
from tests.servers.object_stores import ACCOUNT, ACCOUNT_KEY, GCS, REGION, ROOT, S3, Azure, ConditionalDeletes

MADE_UP = "0" * 64
"""A tag that no content has, for stores whose tags are digests."""
EVERYTHING = AwsIdentity(keys=AwsKeys(ROOT.access, ROOT.secret))
"""Who may do everything on S3."""
BOOK = BucketEndpoints()

Opened: TypeAlias = Callable[[], AbstractAsyncContextManager[ObjectStore]]


@dataclass(frozen=True, slots=True)
class Ground:
    """A store, a folder of it that does not exist yet, and another program that writes there without asking.

    Attributes:
        store: the store.
        folder: prefix of keys, with its slash.
        plant: puts a content at a key.
        made_up: a tag in the store's own form that nothing has.
        tags_contents: the same content has the same tag again; otherwise each write has its own.
        elsewhere: the same store opened in another process, to which this is sent; None for one in memory.
    """

    store: ObjectStore
    folder: str
    plant: Callable[[str, bytes], Awaitable[None]]
    made_up: str = MADE_UP
    tags_contents: bool = True
    elsewhere: Opened | None = None

    @property
    def key(self) -> str:
        """A file in the folder."""
        return f"{self.folder}sales_orders_main.ver"


Adapter: TypeAlias = Callable[[pytest.FixtureRequest, Path], AbstractAsyncContextManager[Ground]]


@asynccontextmanager
async def memory(_: pytest.FixtureRequest, __: Path) -> AsyncIterator[Ground]:
    store = MemoryStore()

    async def plant(key: str, body: bytes) -> None:
        store.files[key] = body

    yield Ground(store, "file:///warehouse/orders/metadata/_sfn/", plant)


@asynccontextmanager
async def local(_: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Ground]:
    async def plant(key: str, body: bytes) -> None:
        plant_file(key, body)

    yield Ground(LocalStore(), f"file://{folder}/metadata/_sfn/", plant, elsewhere=local_store)


@asynccontextmanager
async def local_store() -> AsyncIterator[LocalStore]:
    """This machine's files."""
    yield LocalStore()


@asynccontextmanager
async def s3(request: pytest.FixtureRequest, _: Path) -> AsyncIterator[Ground]:
    server: S3 = request.getfixturevalue("s3")
    bucket = await anyio.to_thread.run_sync(server.bucket)

    async def plant(key: str, body: bytes) -> None:
        path = key.removeprefix(f"s3://{bucket}/")
        await anyio.to_thread.run_sync(lambda: server.client.put_object(Bucket=bucket, Key=path, Body=body))

    async with s3_store(server.url) as store:
        yield Ground(
            store, f"s3://{bucket}/orders/metadata/_sfn/", plant, NO_ETAG, elsewhere=partial(s3_store, server.url)
        )


@asynccontextmanager
async def s3_store(
    url: str, identity: AwsIdentity | None = EVERYTHING, *, region: str = REGION
) -> AsyncIterator[RemoteStore]:
    """A store on a server.

    Args:
        url: of the server, or of what is asked instead of it.
        identity: who asks, None for somebody unknown.
        region: that requests are signed for at first.
    """
    terms = S3Options(identity=identity, endpoint=url, region=region)
    pool = HttpPool()
    try:
        yield RemoteStore(S3Client(terms, pool, BOOK), StoreService(NO_ETAG))
    finally:
        await pool.close()


@asynccontextmanager
async def gcs(request: pytest.FixtureRequest, _: Path) -> AsyncIterator[Ground]:
    server: GCS = request.getfixturevalue("gcs")
    bucket = await anyio.to_thread.run_sync(server.bucket)

    async def plant(key: str, body: bytes) -> None:
        await anyio.to_thread.run_sync(server.plant, bucket, key.removeprefix(f"gs://{bucket}/"), body)

    elsewhere = partial(gcs_store, server.url)
    async with elsewhere() as store:
        folder = f"gs://{bucket}/orders/metadata/_sfn/"
        yield Ground(store, folder, plant, NO_GENERATION, tags_contents=False, elsewhere=elsewhere)


@asynccontextmanager
async def gcs_store(url: str) -> AsyncIterator[RemoteStore]:
    """A store on a server."""
    pool = ConditionalDeletes()
    try:
        yield RemoteStore(GcsClient(GcsOptions(identity=None, endpoint=url), pool), StoreService(NO_GENERATION))
    finally:
        await pool.close()


@asynccontextmanager
async def azure(request: pytest.FixtureRequest, _: Path) -> AsyncIterator[Ground]:
    server: Azure = request.getfixturevalue("azure")
    container = await anyio.to_thread.run_sync(server.container)
    home = f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net/"

    elsewhere = partial(azure_store, server.endpoint)
    with ContainerClient.from_connection_string(server.connection, container) as client:

        async def plant(key: str, body: bytes) -> None:
            path = key.removeprefix(home)
            await anyio.to_thread.run_sync(lambda: client.upload_blob(path, body, overwrite=True))

        async with elsewhere() as store:
            folder = f"{home}orders/metadata/_sfn/"
            yield Ground(store, folder, plant, NO_BLOB, tags_contents=False, elsewhere=elsewhere)


@asynccontextmanager
async def azure_store(endpoint: str) -> AsyncIterator[RemoteStore]:
    """A store on a server, at the address of its account."""
    pool = HttpPool()
    try:
        terms = AzureOptions(identity=AccountKey(ACCOUNT_KEY), endpoint=endpoint)
        yield RemoteStore(AzureClient(terms, pool), StoreService(NO_BLOB))
    finally:
        await pool.close()


ADAPTERS: Mapping[str, Adapter] = {"memory": memory, "local": local, "S3": s3, "Azure": azure, "GCS": gcs}
