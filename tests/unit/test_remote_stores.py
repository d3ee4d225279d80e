"""Stores of object stores: whose packages are missing, and how far a refusal reaches."""

from __future__ import annotations

import sys

import pytest

from sfn.app.storage import RemoteStores
from sfn.domain.catalog_answer import VendedCredential
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Forbidden, Permanent
from sfn.storage import ErrorKind, FetchedObject, ObjectPage, RequestFailed, content_etag
from sfn.storage.object_store import RemoteStore, StoreService

MADE_UP = f'"{"0" * 32}"'


async def test_what_is_vended_for_a_store_that_lacks_its_packages_is_the_stores_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trouble of the whole store: no table of it becomes a dead letter."""
    monkeypatch.delitem(sys.modules, "sfn.app.storage_s3", raising=False)
    monkeypatch.setitem(sys.modules, "sfn.storage.s3", None)
    remotes = RemoteStores({})
    with pytest.raises(Permanent, match=r"no module sfn\.storage\.s3; pip install '\.\[s3\]'") as missing:
        remotes.open_vended(VendedCredential("", {"s3.access-key-id": "k"}, None), "s3://lake/orders")
    assert missing.value.scope is ErrorScope.STORE
    await remotes.close()


class Bucket:
    """Implements `ObjectClient` in memory.

    Attributes:
        files: bodies and tags by key.
        is_conditional: conditions are honoured.
        denied: how keys begin that may not be changed.
        changed: keys of changes that were permitted, whether their condition held or not.
    """

    def __init__(self) -> None:
        self.files: dict[str, FetchedObject] = {}
        self.changed: set[str] = set()
        self.is_conditional = True
        self.denied: tuple[str, ...] = ()

    async def get(self, key: str, most: int) -> FetchedObject:
        if key not in self.files:
            raise RequestFailed(ErrorKind.MISSING, "nothing")
        return self.files[key]

    async def get_range(self, key: str, start: int, most: int) -> bytes:
        return (await self.get(key, most)).body[start : start + most]

    async def put(self, key: str, body: bytes, replacing: str | None, mark: str) -> str:
        self._check(key, replacing)
        self.files[key] = FetchedObject(body, tag := f'"{content_etag(body)}"', mark)
        return tag

    async def delete(self, key: str, expected: str | None) -> None:
        if expected is not None:
            self._check(key, expected)
        elif key.startswith(self.denied):
            raise RequestFailed(ErrorKind.DENIED, "AccessDenied")
        self.files.pop(key, None)

    async def list_page(self, prefix: str, most: int, begin: str | None) -> ObjectPage:
        return ObjectPage(tuple(key for key in self.files if key.startswith(prefix))[:most], None)

    async def close(self) -> None:
        pass

    def _check(self, key: str, tag: str | None) -> None:
        if key.startswith(self.denied):
            raise RequestFailed(ErrorKind.DENIED, "AccessDenied")
        self.changed.add(key)
        found = self.files.get(key)
        if self.is_conditional and tag != (found and found.etag):
            raise RequestFailed(ErrorKind.PRECONDITION_FAILED, "PreconditionFailed")


OPEN, CLOSED = "s3://lake/open/metadata", "s3://lake/closed/metadata"


@pytest.mark.parametrize("name", ["_sfn/a.ver", "version-hint.text"])
@pytest.mark.parametrize("verb", ["write", "delete"])
@pytest.mark.parametrize("scope", [ErrorScope.TABLE, ErrorScope.STORE])
async def test_another_tables_file_is_not_touched_to_find_out_how_far_a_refusal_reaches(
    verb: str, name: str, scope: ErrorScope
) -> None:
    """A proxy may have lost the conditions since the store was proven."""
    bucket = Bucket()
    store = RemoteStore(bucket, StoreService(MADE_UP))
    await store.probe(f"{OPEN}/{name}")
    held = await store.write(f"{OPEN}/{name}", b"1", None)
    assert isinstance(held, StoredObject)
    if verb == "delete":
        gone = await store.write(f"{OPEN}/x/{name}", b"1", None)
        assert isinstance(gone, StoredObject)
        await store.delete(f"{OPEN}/x/{name}", gone)
        bucket.files[f"{OPEN}/x/{name}"] = FetchedObject(b"1", held.etag, None)
    before = dict(bucket.files)
    bucket.is_conditional, bucket.changed = False, set()
    bucket.denied = (CLOSED,) if scope is ErrorScope.TABLE else ("s3://lake/",)
    change = store.write(f"{CLOSED}/{name}", b"2", None) if verb == "write" else store.delete(f"{CLOSED}/{name}", held)
    with pytest.raises(Forbidden) as denied:
        await change
    assert denied.value.scope is scope
    assert bucket.files == before
    assert bucket.changed.isdisjoint(before)
