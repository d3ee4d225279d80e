"""The scope of a refusal by an object store."""

from __future__ import annotations

import sys

import pytest

from sfn.app.storage import RemoteStores
from sfn.catalogs import VendedCredential
from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Forbidden, Permanent
from sfn.storage import (
    MAX_DENIED_FOLDERS,
    MAX_WITNESSES,
    MAX_WITNESSES_TRIED,
    PROPAGATION_SECONDS,
    STALE_SECONDS,
    DenialReach,
    ErrorKind,
    FetchedObject,
    ObjectPage,
    PermissionTracker,
    RequestFailed,
    content_etag,
)
from sfn.storage.remote_store import RemoteStore, StoreService

A, B, C = (f"s3://b/{table}/metadata/_sfn/x.ver" for table in "abc")


class Seconds:
    """A clock to turn by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def denials(seconds: Seconds) -> PermissionTracker:
    return PermissionTracker(seconds)


def reach(
    denials: PermissionTracker, key: str = A, verb: str = "write", *, elsewhere: bool | None = None
) -> DenialReach:
    denials.note_denied(verb, key)
    return denials.judge(verb, key, elsewhere=elsewhere)


def test_a_refusal_is_the_stores_until_a_table_is_served(denials: PermissionTracker, seconds: Seconds) -> None:
    denials.note_permitted("write", B)
    seconds.now += 1
    assert reach(denials) is DenialReach.STORE
    seconds.now += 1
    denials.note_permitted("write", B)
    assert reach(denials) is DenialReach.TABLE


def test_a_store_that_refuses_everything_never_reaches_one_table(denials: PermissionTracker, seconds: Seconds) -> None:
    denials.note_permitted("write", B)
    for turn in range(100):
        seconds.now += PROPAGATION_SECONDS
        assert reach(denials, (A, B, C)[turn % 3]) is DenialReach.STORE


def test_the_answer_of_a_witness_decides_at_once(denials: PermissionTracker) -> None:
    assert reach(denials, elsewhere=True) is DenialReach.TABLE
    assert reach(denials, elsewhere=False) is DenialReach.STORE


def test_table_that_alone_is_refused_for_long_is_refused_for_good(denials: PermissionTracker, seconds: Seconds) -> None:
    found = []
    for _ in range(4):
        found.append(reach(denials, elsewhere=True))
        seconds.now += PROPAGATION_SECONDS
    assert found == [DenialReach.TABLE, DenialReach.TABLE, DenialReach.TABLE_LASTING, DenialReach.TABLE_LASTING]


def test_without_witnesses_others_that_are_served_tell_the_same(denials: PermissionTracker, seconds: Seconds) -> None:
    found = []
    for _ in range(4):
        found.append(reach(denials))
        seconds.now += PROPAGATION_SECONDS
        denials.note_permitted("write", B)
    assert found == [DenialReach.STORE, DenialReach.TABLE, DenialReach.TABLE_LASTING, DenialReach.TABLE_LASTING]


def test_the_end_of_an_outage_that_has_not_reached_every_table_makes_no_dead_letter(
    denials: PermissionTracker, seconds: Seconds
) -> None:
    """The first table that is served again says nothing yet about one that is refused a while longer."""
    reach(denials, elsewhere=False)
    seconds.now += 10 * PROPAGATION_SECONDS
    assert reach(denials, elsewhere=False) is DenialReach.STORE
    seconds.now += 1
    assert reach(denials, elsewhere=True) is DenialReach.TABLE
    seconds.now += PROPAGATION_SECONDS - 2
    assert reach(denials, elsewhere=True) is DenialReach.TABLE
    denials.note_permitted("write", A)
    assert reach(denials) is DenialReach.STORE


def test_the_begin_of_an_outage_that_has_not_reached_every_table_makes_no_dead_letter(
    denials: PermissionTracker, seconds: Seconds
) -> None:
    assert reach(denials, elsewhere=True) is DenialReach.TABLE
    seconds.now += PROPAGATION_SECONDS
    assert reach(denials, elsewhere=True) is DenialReach.TABLE
    for _ in range(10):
        seconds.now += PROPAGATION_SECONDS / 2
        assert reach(denials, elsewhere=False) is DenialReach.STORE
    assert reach(denials, elsewhere=True) is DenialReach.TABLE


def test_an_attempt_that_asks_twice_is_one_refusal(denials: PermissionTracker, seconds: Seconds) -> None:
    """Credentials that are refused are renewed, and the same is asked once more."""
    reach(denials)
    seconds.now += 60
    denials.note_permitted("write", B)
    seconds.now += 10
    denials.note_denied("write", A)
    seconds.now += 1
    assert reach(denials) is DenialReach.TABLE


def test_a_table_that_was_refused_long_ago_begins_anew(denials: PermissionTracker, seconds: Seconds) -> None:
    reach(denials)
    seconds.now += STALE_SECONDS + 1
    denials.note_permitted("write", B)
    seconds.now += 1
    assert reach(denials) is DenialReach.STORE


def test_no_answer_takes_nothing_back(denials: PermissionTracker, seconds: Seconds) -> None:
    while reach(denials, elsewhere=True) is not DenialReach.TABLE_LASTING:
        seconds.now += PROPAGATION_SECONDS
    seconds.now += PROPAGATION_SECONDS
    assert reach(denials, elsewhere=None) is DenialReach.TABLE_LASTING
    assert reach(denials, elsewhere=False) is DenialReach.STORE


@pytest.mark.parametrize(
    ("verb", "key"),
    [
        ("read", B),
        ("write", "s3://b/b/metadata/version-hint.text"),
        ("write", "s3://b/b/metadata/00001-x.metadata.json"),
        ("write", A),
    ],
    ids=["another verb", "hints", "metadata files", "the same folder"],
)
def test_another_verb_or_kind_of_file_is_no_witness(denials: PermissionTracker, verb: str, key: str) -> None:
    reach(denials)
    denials.note_permitted(verb, key)
    assert denials.note_denied("write", A) == []
    assert denials.judge("write", A, elsewhere=None) is DenialReach.STORE


def test_witnesses_are_the_last_that_were_served_and_not_refused_since(denials: PermissionTracker) -> None:
    folders = [f"s3://b/{number}/metadata/_sfn/x.ver" for number in range(MAX_WITNESSES + 2)]
    for key in folders:
        denials.note_permitted("write", key)
    assert denials.note_denied("write", A) == folders[: -MAX_WITNESSES_TRIED - 1 : -1]
    for key in folders[1:]:
        denials.note_denied("write", key)
    assert denials.note_denied("write", A) == []
    denials.note_permitted("write", B)
    assert denials.note_denied("write", A) == [B]


def test_what_is_remembered_has_an_end(denials: PermissionTracker, seconds: Seconds) -> None:
    for number in range(MAX_DENIED_FOLDERS + 1):
        denials.note_denied("write", f"s3://b/{number}/x.ver")
    seconds.now += PROPAGATION_SECONDS
    assert reach(denials, "s3://b/0/x.ver", elsewhere=True) is DenialReach.TABLE
    seconds.now += PROPAGATION_SECONDS
    assert reach(denials, "s3://b/0/x.ver", elsewhere=True) is DenialReach.TABLE
    assert denials.judge("write", f"s3://b/{MAX_DENIED_FOLDERS}/x.ver", elsewhere=None) is DenialReach.STORE


MADE_UP = f'"{"0" * 32}"'


async def test_what_is_vended_for_a_store_that_lacks_its_packages_is_the_stores_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trouble of the whole store: no table of it becomes a dead letter."""
    monkeypatch.delitem(sys.modules, "sfn.app.storage_s3", raising=False)
    monkeypatch.setitem(sys.modules, "sfn.storage.s3", None)
    remotes = RemoteStores({})
    with pytest.raises(Permanent, match=r"no module sfn\.storage\.s3; pip install 'iceberg-sfn\[s3\]") as missing:
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
