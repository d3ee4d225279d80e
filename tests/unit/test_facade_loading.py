"""A table as a facade answers it: what its SFN file says now."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from sfn.clock import SystemClock
from sfn.errors import MalformedMetadata, Stale, Unreachable, Unsafe
from sfn.facade import TablePlace, tables
from sfn.facade.tables import MAX_CONCURRENT_READS, SnapshotMode, TableLoader, TableResponse, UnchangedTable, entity_tag
from sfn.reader.files import FileReader
from sfn.reader.resolve import Question
from tests.unit.directory import OTHER_UUID, Directory
from tests.unit.faced import commit, placed, shown

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


async def test_a_root_that_is_slow_holds_up_no_other_and_is_given_up(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hanging(Watched):
        @override
        async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
            if key.endswith(".metadata.json"):
                await anyio.sleep_forever()
            return await super().read(key, most, start)

    monkeypatch.setattr(tables, "READ_TIMEOUT", 1.0)
    slow = TablePlace(Hanging(ground.tree.tree), ground.at.question)
    refused: list[str] = []

    async def load() -> None:
        with pytest.raises(Unreachable, match=r"within 1 s") as refusal:
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


async def test_what_is_greater_than_the_memory_is_not_remembered(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
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
