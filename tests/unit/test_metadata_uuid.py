"""The uuid of a metadata file: found as a JSON parser finds it, in any size, with little memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.errors import MalformedMetadata
from sfn.reader.files import FIRST_READ_SIZE, PART_SIZE, run_synchronously
from sfn.reader.metadata import MAX_SCAN_STEPS, MAX_SCANNED_SIZE, read_table_uuid
from tests.unit.directory import UUID

KEY = "table-uuid"


class Bytes:
    """One file."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        return self._body[start : start + most]

    async def list(self, prefix: str, limit: int) -> list[str]:
        return []


def found(body: bytes, most: int = MAX_SCANNED_SIZE) -> str | None:
    return run_synchronously(read_table_uuid(Bytes(body), "k", body[:FIRST_READ_SIZE], most))


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(
    scalars | st.just(KEY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just(KEY), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=4) | st.just(KEY), values, max_size=6)


@given(objects, st.booleans(), st.booleans())
def test_it_is_what_a_json_parser_finds(content: dict[str, object], escaped: bool, compressed: bool) -> None:
    body = json.dumps(content, ensure_ascii=escaped, indent=1 if escaped else None).encode()
    expected = content.get(KEY)
    assert found(gzip.compress(body) if compressed else body) == (expected if isinstance(expected, str) else None)


@pytest.mark.parametrize("before", range(FIRST_READ_SIZE - 60, FIRST_READ_SIZE + 2))
def test_it_may_lie_across_two_parts(before: int) -> None:
    start = b'{"' + b"a" * (before - 20) + b'": "\\"\\\\", '
    assert found(b'%b"table\\u002duuid" : "%b"}' % (start, UUID.encode())) == UUID


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not JSON",
        b'["table-uuid", "x"]',
        b'"table-uuid": "x"',
        b'{"a": {"table-uuid": "x"}}',
        b'{"table-uuid": ["x"]}',
        b'{"table-uuid": null, "a": "x"}',
        b'{"table-uuid',
        b'{"table-uuid": "\xff"}',
        b'{"table-uuid": "\xed\xa0\x80"}',
        '{"table-uuid": "x"}'.encode("utf-16-le"),
        b'{}{"table-uuid": "x"}',
        b"\x1f\x8bnot gzip",
        b"\x1f\x8b",
        gzip.compress(b'{"table-uuid": "x"}', mtime=0)[:10],
    ],
)
def test_what_has_none_has_none(body: bytes) -> None:
    assert found(body) is None


@pytest.mark.parametrize("key", [b"\\q", b"\xff", b"\\ud800"])
def test_a_broken_string_before_it_hides_nothing(key: bytes) -> None:
    assert found(b'{"%b": "%b", "table-uuid": "x"}' % (key, key)) == "x"


def test_a_string_inside_another_value_is_not_it_however_long() -> None:
    text = b"a" * PART_SIZE
    assert found(b'{"table-uuid": ["%b", "x"]}' % text) is None
    assert found(b'{"a": {"%b": 1, "table-uuid": "x"}, "table-uuid": "y"}' % text) == "y"
    assert found(b'{"a": {"%b": {"table-uuid": "x"}}}' % text) is None


@pytest.mark.parametrize("compress", [gzip.compress, bytes])
def test_a_file_without_end_is_given_up(compress: Callable[[bytes], bytes]) -> None:
    body = compress(b"{%b" % (b" " * (4 * PART_SIZE)) + b'"table-uuid": "x"}')
    assert found(body) == "x"
    with pytest.raises(MalformedMetadata, match="a table-uuid in 2 MiB of JSON"):
        found(body, most=2 * PART_SIZE)


FORGED = {"depth": b"[" * 64, "keys": b'"":0,' * 16, "arrays": b"[[[]]]," * 16}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_file_of_nothing_but_signs_is_given_up_and_not_taken_for_another_tables(
    monkeypatch: pytest.MonkeyPatch, forged: bytes
) -> None:
    monkeypatch.setattr("sfn.reader.metadata.MAX_SCAN_STEPS", 100_000)
    body = gzip.compress(b'{"a": [' * (forged[:1] == b"[") + b"{" * (forged[:1] == b'"') + forged * (PART_SIZE // 16))
    with pytest.raises(MalformedMetadata, match="within 100,000 signs"):
        found(body)


LARGE = {
    "snapshots": b'{"snapshot-id": 1, "timestamp-ms": 2, "summary": {"operation": "append"}, "manifest-list": "m"},',
    "log": b'{"timestamp-ms": 1, "metadata-file": "s3://lake/orders/metadata/1.metadata.json"},',
    "schemas": b'{"schema-id": 1, "fields": [%b{}]},' % (b'{"id": 1, "name": "a", "type": "int"},' * 50),
    "text": b'"%b",' % (b'\\"ab' * (2 * PART_SIZE)),
}


@pytest.mark.parametrize("repeated", LARGE.values(), ids=LARGE)
def test_real_metadata_takes_few_steps(monkeypatch: pytest.MonkeyPatch, repeated: bytes) -> None:
    """So few, that 256 MiB take fewer than there may be."""
    monkeypatch.setattr("sfn.reader.metadata.MAX_SCAN_STEPS", MAX_SCAN_STEPS // 32)
    assert found(b'{"a": [%b{}], "table-uuid": "x"}' % (repeated * (8 * PART_SIZE // len(repeated)))) == "x"


def parts(size: int) -> Iterator[bytes]:
    yield b'{"snapshots": ['
    for number in range(size >> 9):
        yield b'{"snapshot-id": %d, "summary": {"text": "%b"}},' % (number, b"s" * 470)
    yield b'{}], "table-uuid": "%b"}' % UUID.encode()


def test_a_large_file_takes_little_memory_also_when_it_inflates() -> None:
    """The uuid is at the very end."""
    compressed = gzip.compress(b"".join(parts(24 << 20)), compresslevel=1)
    tracemalloc.start()
    try:
        assert found(compressed) == UUID
        assert tracemalloc.get_traced_memory()[1] < 12 * PART_SIZE
    finally:
        tracemalloc.stop()


def test_a_string_without_end_takes_little_memory() -> None:
    body = b'{"' + b"a" * (40 << 20)
    tracemalloc.start()
    try:
        assert found(body) is None
        assert tracemalloc.get_traced_memory()[1] < 8 * PART_SIZE
    finally:
        tracemalloc.stop()
