"""Metadata files of hundreds of megabytes: the event loop goes on, and they are not held in memory."""

from __future__ import annotations

import gzip
import json

import anyio
import psutil
import pytest

from sfn.catalogs.metadata import PART_BYTES, UnreadableDocument, read_metadata_at
from sfn.domain.identifiers import Table
from sfn.storage.memory import MemoryStore

AT = "s3://lake/t/metadata/00100-x.metadata.json"
SIZE = 200 * 2**20
MOST_MEMORY = 48 * 2**20
LOG = tuple(f"s3://lake/t/metadata/{number}.metadata.json" for number in range(100))
EXPECTED = Table("u1", "s3://lake/t", AT, LOG, 7, 8, log_times=(0,) * len(LOG))
HEAD = b'{"format-version": 2, "table-uuid": "u1", "location": "s3://lake/t", "snapshots": ['
_LOGGED = json.dumps([{"metadata-file": entry, "timestamp-ms": 0} for entry in LOG]).encode()
TAIL = b'{}], "metadata-log": ' + _LOGGED + b', "last-updated-ms": 7, "current-snapshot-id": 8}'
_SNAPSHOT = {"snapshot-id": 1, "manifest-list": 'a "quoted" [text', "summary": {"operation": "append", "a": {"b": []}}}
BLOCK = (json.dumps(_SNAPSHOT).encode() + b",") * 4096


class Long:
    """A file that is made where it is read: a head, so many times the same block, a tail.

    Attributes:
        reads: parts that were asked for.
    """

    def __init__(self, size: int) -> None:
        self._blocks = size // len(BLOCK)
        self.reads = 0

    async def read_range(self, key: str, start: int, most: int) -> bytes | None:
        assert key == AT
        self.reads += 1
        made, at = bytearray(), 0
        for piece in (HEAD, *[BLOCK] * self._blocks, TAIL):
            if at + len(piece) > start and len(made) < most:
                made += piece[max(0, start - at) :]
            at += len(piece)
        return bytes(made[:most])


@pytest.mark.slow
async def test_a_long_file_is_read_part_by_part_and_others_get_their_turns() -> None:
    file, turns = Long(SIZE), 0
    before = psutil.Process().memory_info().rss
    most = before

    async def others() -> None:
        nonlocal turns, most
        while True:
            turns += 1
            if turns % 64 == 0:
                most = max(most, psutil.Process().memory_info().rss)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        assert await read_metadata_at(file.read_range, AT, AT) == EXPECTED
        tasks.cancel_scope.cancel()
    assert file.reads >= SIZE // PART_BYTES
    assert turns > 8 * file.reads
    assert most - before < MOST_MEMORY


async def read(content: bytes) -> Table | None:
    """What a file of that content says."""
    store = MemoryStore()
    store.files[AT] = content
    return await read_metadata_at(store.read_range, AT, AT)


@pytest.mark.parametrize("size", [0, PART_BYTES - len(HEAD) - len(TAIL), PART_BYTES, 3 * PART_BYTES])
async def test_a_file_of_any_length_says_the_same_compressed_or_not(size: int) -> None:
    body = HEAD + BLOCK * (size // len(BLOCK)) + TAIL
    assert await read(body) == await read(gzip.compress(body)) == EXPECTED


async def test_a_file_whose_end_is_missing_makes_no_sense() -> None:
    body = HEAD + BLOCK * 8 + TAIL
    packed = gzip.compress(body)
    for cut in (body[:-1], body[: 2 * PART_BYTES], packed[: len(packed) // 2]):
        with pytest.raises(UnreadableDocument):
            await read(cut)


async def test_what_inflates_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.catalogs.metadata.MAX_JSON_BYTES", 4 * PART_BYTES)
    with pytest.raises(UnreadableDocument, match="more than"):
        await read(gzip.compress(HEAD + b" " * 8 * PART_BYTES + TAIL))


async def test_where_nothing_lies_there_is_none() -> None:
    assert await read_metadata_at(MemoryStore().read_range, AT, AT) is None
