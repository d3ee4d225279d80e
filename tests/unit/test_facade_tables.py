"""Tables of a facade: by directory, from SFN files and from the inbox."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from typing_extensions import override

from sfn.clock import SystemClock
from sfn.domain.identifiers import JobKey, TableIdentifier
from sfn.domain.jobs import IndexedTable, PublishedPointer, TableState
from sfn.errors import ErrorScope, MalformedMetadata, Stale, Transient, Unreachable, Unsafe, WrongTable
from sfn.facade import TablePlace, tables
from sfn.facade.metadata_files import open_tree
from sfn.facade.tables import (
    MAX_CONCURRENT_READS,
    MAX_DIRECTORY_NAME,
    READ_ONLY_PROPERTIES,
    PublishedTables,
    SnapshotMode,
    TableLoader,
    TableResponse,
    UnchangedTable,
    entity_tag,
    is_directory,
    load_table_result,
    place_of_directory,
)
from sfn.inbox.model import Job, TableStatus
from sfn.reader.files import FileReader
from sfn.reader.metadata import AllowedLocations
from sfn.reader.resolve import Question
from sfn.sfnfile.document import Document
from tests.support.facade import commit, placed, shown
from tests.support.memory_inbox import MemoryInbox
from tests.support.table_directory import FIRST_ORDINAL, OTHER_UUID, UUID, WRITTEN_AT, Directory

TREES = {root: open_tree(root, {}) for root in ("file:///w", "file:///w/inner", "memory://m/w")}


@pytest.mark.parametrize(
    ("name", "url", "root"),
    [
        ("/w/a", "file:///w/a", "file:///w"),
        ("/w/a/", "file:///w/a", "file:///w"),
        ("/w", "file:///w", "file:///w"),
        ("file:/w/a", "file:///w/a", "file:///w"),
        ("file:///w/inner/a", "file:///w/inner/a", "file:///w/inner"),
        ("/w/inner", "file:///w/inner", "file:///w/inner"),
        ("/w/a b%20c", "file:///w/a b%20c", "file:///w"),
        ("memory://m/w/a", "memory://m/w/a", "memory://m/w"),
    ],
)
def test_a_directory_below_a_root_is_looked_up_there(name: str, url: str, root: str) -> None:
    found = place_of_directory(name, TREES)
    assert found.question == Question(url, None, allowed=(root,))
    assert found.tree is TREES[root]


@pytest.mark.parametrize(
    "name",
    [
        "/",
        "//w/a",
        "/w/../etc",
        "/w/a/../../etc",
        "/w/./a",
        "/w//a",
        "/wide",
        "/etc/passwd",
        "/w/%2e%2e/etc",
        "/w/a%2F..%2Fetc",
        "/w/a%5Cb",
        "/w/a\\b",
        "/w/a\0b",
        "/w/a\nb",
        "/w/a?b",
        "file://host/w/a",
        "s3://w/a",
        "memory://other/w/a",
        "memory://user@m/w/a",
        "simplecache::file:///w/a",
        "local:///w/a",
        "http://127.0.0.1/w/a",
        "/w/a#..",
        "/w/" + "a" * MAX_DIRECTORY_NAME,
    ],
)
def test_every_other_name_is_refused(name: str) -> None:
    with pytest.raises(Unsafe):
        place_of_directory(name, TREES)


def test_of_a_shared_directory_the_table_is_named_behind_a_sign() -> None:
    assert place_of_directory("/w/a#sales.orders", TREES).question.table == ("sales", "orders")
    assert place_of_directory("/w/a#orders", TREES).question.table == ("orders",)
    assert place_of_directory("/w/a#b#c", TREES).question.table == ("b#c",)
    assert place_of_directory("/w/a#", TREES).question.table is None


def test_what_is_a_directory(tmp_path: Path) -> None:
    assert is_directory(("dir",), str(tmp_path))
    assert is_directory(("dir",), "s3://bucket/a")
    assert not is_directory(("dir",), "orders")
    assert not is_directory(("other",), "/w")
    assert not is_directory(("dir", "/w"), "/w")


ALL, REFS = SnapshotMode.ALL, SnapshotMode.REFS
NONE: frozenset[str] = frozenset()
LIMIT = 1 << 20


@dataclass(eq=False)
class Watched:
    """A tree that knows what was read of it, and can be made to wait."""

    tree: FileReader
    reads: list[str] = field(default_factory=list)
    under_way: int = 0
    most: int = 0

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        self.reads.append(key.rpartition("/")[2])
        if key.endswith(".metadata.json"):
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await anyio.sleep(0.001)
            self.under_way -= 1
        return await self.tree.read(key, most, start)

    async def list(self, prefix: str, limit: int) -> list[str]:
        return await self.tree.list(prefix, limit)


@dataclass
class Ground:
    """A table, and what answers."""

    place: Directory
    tree: Watched
    at: TablePlace
    loading: TableLoader

    async def load(self, known: frozenset[str] = NONE, snapshots: SnapshotMode = ALL) -> TableResponse | UnchangedTable:
        return await self.loading.load(self.at, snapshots, known)

    async def location(self) -> str:
        found = await self.load()
        assert isinstance(found, TableResponse)
        return str(json.loads(bytes(found.body))["metadata-location"])


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    root = tmp_path.resolve()
    place = shown(root / "orders")
    at = placed(root, root / "orders")
    watched = Watched(at.tree)
    return Ground(place, watched, TablePlace(watched, at.question), TableLoader(SystemClock(), LIMIT))


async def test_what_a_client_has_is_not_read_again(ground: Ground) -> None:
    first = await ground.load()
    assert isinstance(first, TableResponse)
    ground.tree.reads.clear()
    assert await ground.load(frozenset({first.etag})) == UnchangedTable(first.etag)
    assert await ground.load(frozenset({"*"})) == UnchangedTable(first.etag)
    assert await ground.load(frozenset({'"another"'})) == first
    # The SFN file each time, and the metadata file never again.
    assert ground.tree.reads == ["sales_orders_main.ver"] * 3


async def test_a_commit_is_told_of_at_once(ground: Ground) -> None:
    first = await ground.load()
    for number in range(2, 5):
        location = commit(ground.place, number)
        found = await ground.load(frozenset({first.etag}))
        assert isinstance(found, TableResponse)
        assert json.loads(bytes(found.body))["metadata-location"] == location


async def test_each_choice_of_snapshots_has_a_tag_of_its_own(ground: Ground) -> None:
    every, some = await ground.load(), await ground.load(snapshots=REFS)
    assert every.etag != some.etag
    assert await ground.load(frozenset({every.etag}), REFS) == some
    doc = ground.place.document()
    assert entity_tag(doc, ALL) != entity_tag(ground.place.document(guid=OTHER_UUID), ALL)
    assert entity_tag(doc, ALL) == entity_tag(ground.place.document(guid=(doc.guid or "").upper()), ALL)
    assert entity_tag(doc, ALL).startswith('"')


async def test_what_may_be_shown_below_one_root_is_not_shown_below_another(ground: Ground) -> None:
    root = ground.place.path.parent
    inner = root / "inner"
    place = Directory(inner / "t")
    place.metadata(location=f"file:{root}/elsewhere")
    place.write()
    wide = placed(root, inner / "t")
    assert isinstance(await ground.loading.load(wide, ALL, NONE), TableResponse)
    with pytest.raises(Unsafe):
        await ground.loading.load(placed(inner, inner / "t"), ALL, NONE)


async def test_of_a_file_that_was_replaced_meanwhile_the_new_one_is_read(ground: Ground) -> None:
    gone = ground.place.path / "metadata" / "00001-a.metadata.json"
    read = ground.tree.tree.read

    async def replaced(key: str, most: int, start: int = 0) -> bytes | None:
        if key.endswith("00001-a.metadata.json") and gone.exists():
            gone.unlink()
            commit(ground.place, 2)
        return await read(key, most, start)

    class Replacing(Watched):
        @override
        async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
            return await replaced(key, most, start)

    ground.at = TablePlace(Replacing(ground.tree.tree), ground.at.question)
    assert (await ground.location()).endswith("00002-a.metadata.json")
    (ground.place.path / "metadata" / "00002-a.metadata.json").unlink()
    assert (await ground.location()).endswith("00002-a.metadata.json")
    ground.loading = TableLoader(SystemClock(), LIMIT)
    with pytest.raises(Stale):
        await ground.load()


async def test_those_who_ask_at_once_share_what_is_read(ground: Ground) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ground.load)
    assert ground.tree.reads.count("00001-a.metadata.json") <= MAX_CONCURRENT_READS


async def test_few_metadata_files_are_read_at_a_time(ground: Ground) -> None:
    root = ground.place.path.parent
    places = []
    for number in range(6):
        shown(
            root / f"t{number}",
            f"sales.t{number}",
            metadata_file_path=f"file:{root}/t{number}/metadata/00001-a.metadata.json",
        )
        places.append(TablePlace(ground.tree, Question(f"file://{root}/t{number}", allowed=(f"file://{root}",))))
    async with anyio.create_task_group() as tasks:
        for place in places:
            tasks.start_soon(ground.loading.load, place, ALL, NONE)
    assert ground.tree.most == MAX_CONCURRENT_READS


@pytest.mark.slow
async def test_a_root_that_is_slow_holds_up_no_other_and_is_given_up(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hanging(Watched):
        @override
        async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
            if key.endswith(".metadata.json"):
                await anyio.sleep_forever()
            return await super().read(key, most, start)

    monkeypatch.setattr(tables, "READ_TIMEOUT", 3.0)
    slow = TablePlace(Hanging(ground.tree.tree), ground.at.question)
    refused: list[str] = []

    async def load() -> None:
        with pytest.raises(Unreachable, match=r"within 3 s") as refusal:
            await ground.loading.load(slow, ALL, NONE)
        refused.append(str(refusal.value))

    async with anyio.create_task_group() as tasks:
        for _ in range(MAX_CONCURRENT_READS):
            tasks.start_soon(load)
        await anyio.sleep(0.05)
        await ground.location()
        before = len(refused)
    assert before == 0
    assert len(refused) == MAX_CONCURRENT_READS


async def test_what_is_greater_than_the_memory_is_one_for_all_who_take_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_CACHED_BYTES", 100)
    first, second = await ground.load(), await ground.load()
    assert isinstance(first, TableResponse)
    assert isinstance(second, TableResponse)
    assert first.body is second.body
    assert ground.tree.reads.count("00001-a.metadata.json") == 1


async def test_what_is_remembered_is_bounded(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len((await ground.load()).body)  # type: ignore[union-attr]
    monkeypatch.setattr(tables, "MAX_CACHED_BYTES", 2 * (size + 1_024) + 200)
    ground.loading = TableLoader(SystemClock(), LIMIT)
    await ground.load()
    await ground.load(snapshots=REFS)
    ground.tree.reads.clear()
    await ground.load()
    assert ground.tree.reads == ["sales_orders_main.ver"]
    commit(ground.place, 2)
    await ground.load()
    ground.tree.reads.clear()
    # What was asked for longest ago is forgotten.
    commit(ground.place, 1)
    await ground.load()
    await ground.load(snapshots=REFS)
    assert ground.tree.reads.count("00001-a.metadata.json") == 1


async def test_what_exceeds_the_memory_is_not_remembered(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_CACHED_BYTES", 100)
    for _ in range(2):
        await ground.load()
    assert ground.tree.reads.count("00001-a.metadata.json") == 2


@contextmanager
def measured(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_compressed", [True, False])
async def test_giant_metadata_is_refused_in_little_memory(ground: Ground, is_compressed: bool) -> None:
    giant = b'{"x":"' + b" " * (64 << 20)
    file = ground.place.path / "metadata" / "00001-a.metadata.json"
    file.write_bytes(gzip.compress(giant, 1) if is_compressed else giant)
    del giant
    with measured(16 << 20), pytest.raises(MalformedMetadata, match="at most 1 MiB of JSON"):
        await ground.load()


async def test_metadata_that_is_compressed_is_served(ground: Ground) -> None:
    file = ground.place.path / "metadata" / "00001-a.metadata.json"
    file.write_bytes(gzip.compress(file.read_bytes()))
    assert await ground.location()


async def test_an_answer_that_was_given_stays(ground: Ground) -> None:
    pinned = TablePlace(ground.tree, ground.at.question, await ground.loading.find(ground.at))
    commit(ground.place, 2)
    found = await ground.loading.load(pinned, ALL, NONE)
    assert isinstance(found, TableResponse)
    assert b"00001-a" in bytes(found.body)


PUBLISHED_TREES = {root: open_tree(root, {}) for root in ("file:///w", "file:///w/inner", "file:///v")}
AT = datetime(2026, 1, 1, tzinfo=UTC)
SALES = ("sales",)


@dataclass
class Told(MemoryInbox):
    """An inbox whose rows a test tells: where each is published.

    Attributes:
        asked: the rows that were asked for one by one.
        scans: how often all were.
    """

    rows: dict[str, str | None]
    trouble: Exception | None = None
    asked: list[str] = field(default_factory=list)
    scans: int = 0

    @override
    async def tables(self, catalog: str) -> AsyncIterator[IndexedTable]:
        self.scans += 1
        for name, location in self.rows.items():
            *namespace, last = name.split(".")
            yield IndexedTable(TableIdentifier(catalog, tuple(namespace), last), published(location), None)

    @override
    async def table_status(self, subject: JobKey) -> TableStatus | None:
        assert isinstance(subject, TableIdentifier)
        self.asked.append(subject.dotted)
        if self.trouble is not None:
            raise self.trouble
        if subject.dotted not in self.rows:
            return None
        return standing(published(self.rows[subject.dotted]))


def published(location: str | None) -> PublishedPointer | None:
    return None if location is None else PublishedPointer(f"{location}/metadata/1.json", None, location, AT)


def standing(live: PublishedPointer | None) -> TableStatus:
    return TableStatus(Job(TableIdentifier("prod", SALES, "orders"), AT, table_state=TableState(live=live)))


@pytest.fixture(name="inbox")
def fixture_inbox() -> Told:
    return Told(
        {
            "sales.orders": "file:///w/orders",
            "a.b.inner": "file:///w/inner/t",
            "sales.dropped": None,
            "sales.elsewhere": "file:///etc/orders",
            "sales.wide": "file:///wide/orders",
            "sales.bucket": "s3://w/orders",
        }
    )


async def test_live_tables_below_a_root_are_shown_with_the_narrowest_one(inbox: Told) -> None:
    rows = PublishedTables(inbox, "prod", PUBLISHED_TREES)
    found = {(namespace, name): at for namespace, names in (await rows.tables()).items() for name, at in names.items()}
    assert set(found) == {(SALES, "orders"), (("a", "b"), "inner")}
    first, inner = found[SALES, "orders"], found[("a", "b"), "inner"]
    assert first.question == Question("file:///w/orders", ("sales", "orders"), allowed=("file:///w",))
    assert inner.question.allowed == ("file:///w/inner",)
    assert inner.tree is PUBLISHED_TREES["file:///w/inner"]
    assert await rows.find(SALES, "orders") == first
    assert await rows.find(("a", "b"), "inner") == inner
    for name in ("dropped", "elsewhere", "wide", "bucket", "none", "a\0b"):
        assert await rows.find(SALES, name) is None


async def test_a_table_is_looked_up_by_its_row_alone_and_not_each_time(
    inbox: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = PublishedTables(inbox, "prod", PUBLISHED_TREES)
    for name in ("orders", "none", "orders", "none"):
        await rows.find(SALES, name)
    assert (inbox.asked, inbox.scans) == (["sales.orders", "sales.none"], 0)
    inbox.rows["sales.orders"] = "file:///w/orders-2"
    there = await rows.find(SALES, "orders", refresh=True)
    assert there is not None
    assert there.question.directory == "file:///w/orders-2"
    assert await rows.find(SALES, "orders") is there
    monkeypatch.setattr(tables, "MISSING_MAX_AGE", 0.0)
    inbox.rows["sales.none"] = "file:///w/none"
    assert await rows.find(SALES, "none") is not None
    inbox.rows["sales.orders"] = None
    assert await rows.find(SALES, "orders") is there
    monkeypatch.setattr(tables, "FOUND_MAX_AGE", 0.0)
    assert await rows.find(SALES, "orders") is None


async def test_an_inbox_in_trouble_hides_no_table_that_is_known(inbox: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = PublishedTables(inbox, "prod", PUBLISHED_TREES)
    known = await rows.find(SALES, "orders")
    await rows.find(SALES, "none")
    inbox.trouble = Transient("inbox", scope=ErrorScope.INBOX, expected="an answer", found="none")
    monkeypatch.setattr(tables, "FOUND_MAX_AGE", 0.0)
    monkeypatch.setattr(tables, "MISSING_MAX_AGE", 0.0)
    assert await rows.find(SALES, "orders") is known
    for name in ("none", "another"):
        with pytest.raises(Transient):
            await rows.find(SALES, name)


async def test_what_is_remembered_of_rows_is_bounded(inbox: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MAX_CACHED_PLACES", 3)
    rows = PublishedTables(inbox, "prod", PUBLISHED_TREES)
    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(rows.find, SALES, f"t{number}")
    inbox.asked.clear()
    for number in range(10):
        await rows.find(SALES, f"t{number}")
    assert len(inbox.asked) >= 9


KEY = "file:///w/t/metadata/1.metadata.json"
TRUST = AllowedLocations("file:///w/t", ("file:///w",))
WHOLE = {"format-version": 2, "table-uuid": UUID, "location": "file:/w/t"}


def doc(**more: Any) -> Document:  # noqa: ANN401 - any attribute
    plain: dict[str, Any] = {
        "catalog_id": "c",
        "namespace": ("sales",),
        "name": "orders",
        "guid": UUID,
        "metadata_file_path": "file:/w/t/metadata/1.metadata.json",
        "ordinal": FIRST_ORDINAL,
        "written_at": WRITTEN_AT,
    }
    return Document(**(plain | more))


def body(content: str | bytes, snapshots: SnapshotMode = SnapshotMode.ALL, **more: Any) -> bytes:  # noqa: ANN401 - as above
    return load_table_result(
        content.encode() if isinstance(content, str) else content, doc(**more), KEY, "said", TRUST, snapshots
    )


THEIRS = {
    "owner": "shop",
    "write.format.default": "orc",
    "write.location-provider.impl": "shop.Places",
    "write.target-file-size-bytes": "1048576",
}
"""Properties that some engines look at to read, so that they are the table's own."""


def test_the_table_is_served_as_it_is_but_for_the_guard() -> None:
    odd = '{"x":9007199254740993123456789,"y":1.10,"z":"\\u00e4","deep":' + "[" * 500 + "]" * 500 + "}"
    text = json.dumps(WHOLE | {"properties": {"gc.enabled": "true", **THEIRS}})[:-1] + f',"last":{odd}' + "}"
    answer = body(text)
    assert odd.encode() in answer
    found = json.loads(answer)
    assert found["metadata-location"] == doc().metadata_file_path
    assert found["config"] == {}
    assert found["metadata"]["properties"]["gc.enabled"] == "false"
    assert found["metadata"]["properties"]["write.data.path"].startswith("file:///dev/null/")
    assert found["metadata"]["properties"] == {**THEIRS, **READ_ONLY_PROPERTIES}
    assert "storage-credentials" not in found


def test_of_what_stands_there_twice_what_is_checked_is_served() -> None:
    text = json.dumps(WHOLE)[:-1]
    with pytest.raises(Unsafe):
        body(text + ',"location":"file:/etc"}')
    with pytest.raises(Unsafe):
        body(text + ',"loc\\u0061tion":"file:/etc"}')
    found = body('{"location":"file:/etc",' + text[1:] + ',"properties":{"gc.enabled":"true"},"properties":{"a":"b"}}')
    assert found.count(b'"location"') == 1
    assert found.count(b"/etc") == 0
    assert found.count(b"gc.enabled") == 1


@pytest.mark.parametrize(
    "location",
    [
        "file:/etc",
        "/w/tt/../../etc",
        "/wide",
        "s3://bucket/w/t",
        "http://127.0.0.1/w/t",
        "/w/t/%2e%2e/x",
        "/w/t%2Fx",
        "w/t",
        "",
        "file://host/w/t",
        "/w/t?x",
    ],
)
def test_a_location_elsewhere_is_refused(location: str) -> None:
    with pytest.raises(Unsafe, match="for the table"):
        body(json.dumps(WHOLE | {"location": location}))


@pytest.mark.parametrize("location", ["/w/t", "file:///w/t/", "file:/w", "/w/other place"])
def test_a_location_below_the_root_is_served(location: str) -> None:
    assert json.loads(body(json.dumps(WHOLE | {"location": location})))["metadata"]["location"] == location


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "{",
        '{"format-version":2}',
        json.dumps(WHOLE | {"location": None}),
        json.dumps(WHOLE | {"location": 7}),
        json.dumps({key: value for key, value in WHOLE.items() if key != "format-version"}),
        json.dumps(WHOLE | {"properties": None}),
        json.dumps(WHOLE | {"properties": {"a": 1}}),
        json.dumps(WHOLE | {"table-uuid": 1}),
        b'{"format-version":2,"location":"\xff"}',
        json.dumps(WHOLE)[:-1] + ',"deep":' + "[" * 200_000 + "]" * 200_000 + "}",
        json.dumps(WHOLE) + "{}",
    ],
)
def test_what_is_no_metadata_is_refused(content: str | bytes) -> None:
    with pytest.raises(MalformedMetadata):
        body(content)


def test_another_table_s_is_refused() -> None:
    with pytest.raises(WrongTable):
        body(json.dumps(WHOLE | {"table-uuid": OTHER_UUID}))
    with pytest.raises(WrongTable):
        body(json.dumps(WHOLE), guid=None)
    nameless = {key: value for key, value in WHOLE.items() if key != "table-uuid"}
    assert body(json.dumps(nameless), guid=None)
    assert body(json.dumps(WHOLE | {"table-uuid": UUID.upper()}))


def test_of_snapshots_those_that_are_referred_to_are_served_if_no_more_are_wanted() -> None:
    several = [{"snapshot-id": number, "timestamp-ms": number} for number in (1, 2, 2**63 - 1)]
    refs = {"main": {"snapshot-id": 2**63 - 1, "type": "branch"}}
    whole = json.dumps(WHOLE | {"snapshots": several, "refs": refs, "current-snapshot-id": 2})
    shown = json.loads(body(whole, SnapshotMode.REFS))["metadata"]["snapshots"]
    assert [one["snapshot-id"] for one in shown] == [2, 2**63 - 1]
    assert json.loads(body(whole))["metadata"]["snapshots"] == several
    empty = json.dumps(WHOLE | {"current-snapshot-id": None, "snapshots": []})
    assert json.loads(body(empty, SnapshotMode.REFS))["metadata"]["snapshots"] == []
    assert "snapshots" not in json.loads(body(json.dumps(WHOLE), SnapshotMode.REFS))["metadata"]
    with pytest.raises(MalformedMetadata):
        body(json.dumps(WHOLE | {"snapshots": [{}]}), SnapshotMode.REFS)
