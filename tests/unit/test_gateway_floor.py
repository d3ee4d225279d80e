"""The metadata location in an answer that passes by."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.gateway.streams import MAX_SCANNED, MetadataLocationScanner, ResponseObserver

HERE = 's3://b/t/metadata/00003-é "\\.metadata.json'
ANSWER = json.dumps({"config": {"a": "b"}, "metadata": {"x": "y" * 9_000}, "metadata-location": HERE, "z": 1}).encode()


def found(body: bytes, size: int, encoding: str = "identity") -> str | None:
    floor = MetadataLocationScanner(encoding)
    for start in range(0, len(body), size):
        floor.feed(body[start : start + size])
    return floor.found


@given(st.integers(1, 20_000))
def test_it_is_found_wherever_the_parts_are_cut(size: int) -> None:
    assert found(ANSWER, size) == HERE
    assert found(json.dumps(json.loads(ANSWER), ensure_ascii=False, indent=2).encode(), size) == HERE
    assert found(gzip.compress(ANSWER), size, "gzip") == HERE


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"", "identity"),
        (b'{"metadata-location": null}', "identity"),
        (b'{"metadata-location": ""}', "identity"),
        (b'{"metadata-location": "\xff"}', "identity"),
        (b'{"metadata-location": "\\q"}', "identity"),
        (b'{"metadata-location": "' + b"x" * 5_000 + b'"}', "identity"),
        (ANSWER, "br"),
        (ANSWER, "gzip"),
        (gzip.compress(ANSWER, mtime=0)[:40], "gzip"),
    ],
)
def test_what_can_not_be_read_has_none(body: bytes, encoding: str) -> None:
    assert found(body, 1_000, encoding) is None


def test_no_more_than_the_beginning_is_looked_at() -> None:
    body = b" " * (MAX_SCANNED - 10) + b'{"metadata-location": "s3://b"}'
    assert found(body, 65_536) is None
    assert found(gzip.compress(body), 65_536, "gzip") is None


def test_a_bomb_is_not_opened_further_than_that() -> None:
    floor, bomb = MetadataLocationScanner("gzip"), gzip.compress(b" " * (32 << 20))
    tracemalloc.start()
    try:
        floor.feed(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (floor.found, peak < 4 * MAX_SCANNED) == (None, True)


def test_an_answer_that_never_came_says_nothing() -> None:
    passing = ResponseObserver()
    passing.on_part(b"not to be seen")
    assert (passing.status, passing.metadata_location) == (None, None)
    passing.on_header(200, None)
    passing.on_part(ANSWER)
    assert (passing.status, passing.metadata_location) == (200, HERE)


@given(st.lists(st.binary()), st.sampled_from(["identity", "gzip", "deflate"]))
def test_nothing_is_raised(parts: list[bytes], encoding: str) -> None:
    floor = MetadataLocationScanner(encoding)
    for part in parts:
        floor.feed(part)
