"""What every store promises. A new adapter is one more line in `stores.ADAPTERS`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from sfn.domain.jobs import StoredObject
from sfn.errors import ErrorScope, Permanent
from sfn.sfnfile.document import MAX_DOCUMENT_BYTES
from sfn.storage import Deleted, PreconditionFailed
from tests.promises.stores import ADAPTERS, Ground


@pytest.fixture(params=list(ADAPTERS))
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    async with ADAPTERS[request.param](request, tmp_path) as ground:
        yield ground


async def created(ground: Ground, body: bytes = b"1") -> StoredObject:
    held = await ground.store.write(ground.key, body, replacing=None)
    assert isinstance(held, StoredObject)
    return held


async def replaced(ground: Ground, body: bytes, held: StoredObject) -> StoredObject:
    newer = await ground.store.write(ground.key, body, replacing=held)
    assert isinstance(newer, StoredObject)
    return newer


async def test_written_content_is_read_with_the_same_etag(ground: Ground) -> None:
    assert await ground.store.read(ground.key) is None
    held = await created(ground)
    assert held.body == b"1"
    assert await ground.store.read(ground.key) == held
    newer = await replaced(ground, b"2", held)
    assert newer.etag != held.etag
    assert await ground.store.read(ground.key) == newer


async def test_large_file_is_read_in_ranges(ground: Ground) -> None:
    assert await ground.store.read_range(ground.key, 0, 10) is None
    body = bytes(range(256)) * (MAX_DOCUMENT_BYTES // 64)
    await ground.plant(ground.key, body)
    assert await ground.store.read_range(ground.key, 0, 2 * len(body)) == body
    assert (
        await ground.store.read_range(ground.key, MAX_DOCUMENT_BYTES, 1000)
        == body[MAX_DOCUMENT_BYTES : MAX_DOCUMENT_BYTES + 1000]
    )
    assert await ground.store.read_range(ground.key, len(body) - 3, 1000) == body[-3:]
    assert await ground.store.read_range(ground.key, len(body), 1000) == b""


async def test_stale_writer_loses(ground: Ground) -> None:
    stale = await created(ground)
    newer = await replaced(ground, b"2", stale)
    assert await ground.store.write(ground.key, b"3", replacing=stale) == PreconditionFailed()
    assert await ground.store.read(ground.key) == newer


async def test_create_never_replaces(ground: Ground) -> None:
    held = await created(ground)
    assert await ground.store.write(ground.key, b"2", replacing=None) == PreconditionFailed()
    assert await ground.store.write(ground.key, b"1", replacing=None) == PreconditionFailed()
    assert await ground.store.read(ground.key) == held


async def test_replace_never_creates(ground: Ground) -> None:
    held = StoredObject(b"1", ground.made_up)
    assert await ground.store.write(ground.key, b"2", replacing=held) == PreconditionFailed()
    assert await ground.store.read(ground.key) is None
    held = await created(ground)
    assert await ground.store.delete(ground.key, held) == Deleted()
    assert await ground.store.write(ground.key, b"2", replacing=held) == PreconditionFailed()
    assert await ground.store.read(ground.key) is None


async def test_unknown_etag_never_matches(ground: Ground) -> None:
    held = await created(ground)
    made_up = StoredObject(held.body, ground.made_up)
    assert await ground.store.write(ground.key, b"2", replacing=made_up) == PreconditionFailed()
    assert await ground.store.write(ground.key, held.body, replacing=made_up) == PreconditionFailed()
    assert await ground.store.delete(ground.key, made_up) == PreconditionFailed()
    assert await ground.store.read(ground.key) == held


async def test_same_content_is_written_again(ground: Ground) -> None:
    held = await created(ground)
    again = await replaced(ground, held.body, held)
    assert await ground.store.read(ground.key) == again
    assert (again.etag == held.etag) is ground.tags_contents


async def test_restored_content_can_be_replaced_again(ground: Ground) -> None:
    """On S3 a tag says which content, not which write. Whoever needs more than that reads a second file."""
    first = await created(ground, b"A")
    between = await replaced(ground, b"B", first)
    again = await replaced(ground, b"A", between)
    assert (again == first) is ground.tags_contents
    assert await ground.store.write(ground.key, b"C", replacing=between) == PreconditionFailed()
    assert await ground.store.read(ground.key) == again
    await replaced(ground, b"C", again)


async def test_only_the_expected_content_is_deleted(ground: Ground) -> None:
    stale = await created(ground)
    held = await replaced(ground, b"2", stale)
    assert await ground.store.delete(ground.key, stale) == PreconditionFailed()
    assert await ground.store.read(ground.key) == held
    assert await ground.store.delete(ground.key, held) == Deleted()
    assert await ground.store.read(ground.key) is None


async def test_delete_of_a_missing_file_succeeds(ground: Ground) -> None:
    assert await ground.store.delete(ground.key, StoredObject(b"1", ground.made_up)) == Deleted()
    held = await created(ground)
    assert await ground.store.delete(ground.key, held) == Deleted()
    assert await ground.store.delete(ground.key, held) == Deleted()


async def test_empty_file_exists(ground: Ground) -> None:
    held = await created(ground, b"")
    assert await ground.store.read(ground.key) == held == StoredObject(b"", held.etag)
    assert await ground.store.write(ground.key, b"", replacing=None) == PreconditionFailed()
    assert await ground.store.delete(ground.key, await replaced(ground, b"1", held)) == Deleted()


async def test_listing_is_sorted_and_limited(ground: Ground) -> None:
    names = ["b.ver", "a_b.ver", "B.ver", "a%5Fb.ver", "a.ver", "ä.ver"]
    for name in names:
        assert isinstance(await ground.store.write(ground.folder + name, b"", None), StoredObject)
    expected = sorted(ground.folder + name for name in names)
    assert await ground.store.list(ground.folder, 100) == expected
    assert await ground.store.list(ground.folder, len(names)) == expected
    assert await ground.store.list(ground.folder, 2) == expected[:2]
    assert await ground.store.list(ground.folder, 0) == []


async def test_listing_covers_one_folder_only(ground: Ground) -> None:
    assert await ground.store.list(ground.folder, 10) == []
    metadata = ground.folder.removesuffix("_sfn/")
    beside = f"{metadata}version-hint.text"
    for key in (ground.key, beside, f"{metadata}_sfn_other.ver"):
        assert isinstance(await ground.store.write(key, b"1", None), StoredObject)
    assert await ground.store.list(ground.folder, 10) == [ground.key]
    assert await ground.store.list(metadata, 10) == [f"{metadata}_sfn_other.ver", beside]


async def test_listing_contains_no_folders(ground: Ground) -> None:
    """Some consoles make one as an object, empty and named with a slash at its end."""
    await created(ground)
    if not ground.folder.startswith("file:"):
        await ground.plant(ground.folder, b"")
        await ground.plant(f"{ground.folder}within/", b"")
    assert await ground.store.list(ground.folder, 10) == [ground.key]


async def test_deleted_file_is_not_listed(ground: Ground) -> None:
    await ground.store.delete(ground.key, await created(ground))
    assert await ground.store.list(ground.folder, 10) == []


@pytest.mark.parametrize(
    "name",
    ["a_b", "a%5Fb", "%2E%2e%2F", "sales%20orders", "sp ace", "größe_表_🧊", "a" * 100 + "~" + "b" * 99, "-", "~", "%"],
)
async def test_special_characters_in_keys_are_preserved(ground: Ground, name: str) -> None:
    key = f"{ground.folder}{name}.ver"
    held = await ground.store.write(key, name.encode(), None)
    assert isinstance(held, StoredObject)
    assert await ground.store.read(key) == held
    assert await ground.store.list(ground.folder, 10) == [key]
    assert await ground.store.delete(key, held) == Deleted()


async def test_read_of_a_large_foreign_file_is_limited(ground: Ground) -> None:
    await ground.plant(ground.key, b"x" * (MAX_DOCUMENT_BYTES + 1000))
    held = await ground.store.read(ground.key)
    assert held is not None
    assert len(held.body) == MAX_DOCUMENT_BYTES + 1


async def test_oversized_document_is_not_written(ground: Ground) -> None:
    held = await created(ground, b"x" * MAX_DOCUMENT_BYTES)
    with pytest.raises(Permanent) as refused:
        await ground.store.write(ground.key, b"x" * (MAX_DOCUMENT_BYTES + 1), replacing=held)
    assert refused.value.scope is ErrorScope.TABLE
    assert await ground.store.read(ground.key) == held


async def test_write_of_another_program_is_detected(ground: Ground) -> None:
    held = await created(ground)
    await ground.plant(ground.key, b"theirs")
    assert await ground.store.write(ground.key, b"2", replacing=held) == PreconditionFailed()
    assert await ground.store.delete(ground.key, held) == PreconditionFailed()
    theirs = await ground.store.read(ground.key)
    assert theirs is not None
    assert theirs.body == b"theirs"


async def test_one_of_many_concurrent_creates_wins(ground: Ground) -> None:
    won: list[bytes] = []

    async def create(body: bytes) -> None:
        if isinstance(await ground.store.write(ground.key, body, None), StoredObject):
            won.append(body)

    async with anyio.create_task_group() as tasks:
        for number in range(16):
            tasks.start_soon(create, b"%d" % number)
    assert len(won) == 1
    held = await ground.store.read(ground.key)
    assert held is not None
    assert held.body == won[0]


async def test_concurrent_tasks_lose_no_update(ground: Ground) -> None:
    await created(ground, b"0")

    async def count_up() -> None:
        turns = 20
        while turns:
            held = await ground.store.read(ground.key)
            assert held is not None
            written = await ground.store.write(ground.key, b"%d" % (int(held.body) + 1), replacing=held)
            turns -= isinstance(written, StoredObject)

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(count_up)
    held = await ground.store.read(ground.key)
    assert held is not None
    assert held.body == b"160"
