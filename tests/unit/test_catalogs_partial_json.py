"""Cut documents say of what is wanted just what the whole ones say, however they arrive."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.catalogs.metadata import UnreadableDocument
from sfn.catalogs.partial_json import WantedMembers, extract
from sfn.catalogs.rest import responses

WANTED: WantedMembers = {"a": None, "b": {"c": None, "d": {"a": None, '"e\\': None}}}
STEP = 2**16

names = st.sampled_from(["a", "b", "c", "d", '"e\\', "", "aa"]) | st.text(max_size=4)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text('\\"{}[],:a')
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=6), max_leaves=30
)
documents = st.dictionaries(names, values, max_size=8)


async def cut(body: bytes, sizes: Sequence[int] = (), wanted: WantedMembers = WANTED) -> bytes:
    """The excerpt of a body that arrives in parts of those sizes, and then all the rest."""

    async def parts() -> AsyncGenerator[bytes]:
        at = 0
        for size in sizes:
            yield body[at : at + size]
            at += size
        yield body[at:]

    return bytes(await extract(b"", parts(), wanted))


def pruned(value: object, wanted: WantedMembers | None) -> object:
    if wanted is None or not isinstance(value, Mapping):
        return value
    return {name: pruned(inner, wanted[name]) for name, inner in value.items() if name in wanted}


@pytest.mark.slow
@given(documents, st.booleans(), st.sampled_from([None, 0, 3]), st.lists(st.integers(1, 9), max_size=60))
async def test_what_is_wanted_is_kept_and_nothing_else(
    document: dict[str, Any], escaped: bool, indent: int | None, sizes: list[int]
) -> None:
    body = json.dumps(document, ensure_ascii=escaped, indent=indent).encode()
    found = await cut(body, sizes)
    assert json.loads(found) == pruned(document, WANTED)
    assert json.dumps(json.loads(found)) == json.dumps(pruned(document, WANTED))


@pytest.mark.slow
@given(documents, st.booleans(), st.integers(0))
async def test_a_document_that_breaks_off_has_none(document: dict[str, Any], escaped: bool, end: int) -> None:
    body = json.dumps(document, ensure_ascii=escaped).encode()
    assert await cut(body[: end % len(body)]) == b""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b'"a"',
        b"[]",
        b'[{"a": 1}]',
        b"{]",
        b'{"a"}',
        b'{"a" 1}',
        b'{"a": 1,}',
        b'{"a": 1;}',
        b'{,"a": 1}',
        b"{a: 1}",
        b'{"a": 1} {}',
        b'{"a": 1}}',
        b'{"a": 1}\0',
        b'{"x": [}',
        b'{"x": "}',
        b'{"x": "\\',
        b'{"\\q": 1}',
        b'{"\xff": 1}',
        b'{"b": {"x": 1 "c": 1}}',
    ],
)
async def test_what_is_no_whole_object_has_none(body: bytes) -> None:
    assert await cut(body) == b""


async def test_a_name_counts_however_it_is_written_and_the_last_of_two_counts_last() -> None:
    body = b'{"\\u0061": 1, "\\u0061\\u0061": 2, "b": null, "b": {"c": 3, "x": 4}, "b": [5]}'
    assert await cut(body) == b'{"\\u0061":1,"b":null,"b":{"c":3},"b":[5]}'


SIGNS = [b"x", b'\\"', b"\\\\", b"\\u007d", b"\xc3\xa9", b"{[", b"}]"]


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("shift", range(4))
async def test_what_is_long_is_passed_whatever_lies_across_two_steps(sign: bytes, shift: int) -> None:
    text = b'"' + b"x" * shift + sign * STEP + b'"'
    for value in (text, b'[{"c": %b}]' % text, b'{"x": [[%b], %b], %b: 1}' % (text, text, text)):
        assert await cut(b'{"x": %b, "a": 1}' % value) == b'{"a":1}'
        assert await cut(b'{"a":%b}' % value) == b'{"a":%b}' % value


@pytest.mark.parametrize("deep", [9, 100, 3 * STEP])
async def test_what_is_deep_is_passed(deep: int) -> None:
    value = b"[" * deep + b"{}, {}" + b"]" * deep
    assert await cut(b'{"x": %b, "a": 1}' % value) == b'{"a":1}'
    assert await cut(b'{"x": %b, "a": 1}' % value[:-1]) == b""


@pytest.mark.parametrize("space", [b"", b" \t\r\n", b" " * (STEP + 1)])
async def test_white_space_is_nothing(space: bytes) -> None:
    signs = [b"{", b'"x"', b":", b"[", b"1", b"]", b",", b'"a"', b":", b"1e9", b"}"]
    assert await cut(space + space.join(signs) + space) == b'{"a":1e9}'


async def test_many_small_members_are_passed() -> None:
    members = b",".join(b'"x%d": {"a": [], "b": "}"}, "y%d": "\\"", "z": 1' % (i, i) for i in range(2000))
    assert await cut(b'{%b, "a": 1}' % members) == b'{"a":1}'
    assert await cut(b'{"a": 1, %b}' % members) == b'{"a":1}'


async def test_what_is_no_json_is_not_read_on() -> None:
    async def endless() -> AsyncGenerator[bytes]:
        while True:
            yield bytes(STEP)

    assert await extract(b"<html>", endless(), WANTED) == b""


table = st.fixed_dictionaries(
    {"format-version": st.sampled_from([1, 2]), "location": st.text(max_size=2), "last-updated-ms": st.integers(-1, 9)},
    optional={
        "table-uuid": st.text() | st.none(),
        "current-snapshot-id": st.integers(-1, 9) | st.none(),
        "metadata-log": st.lists(st.fixed_dictionaries({"metadata-file": st.text(), "timestamp-ms": values})),
        "properties": st.dictionaries(
            st.sampled_from(["encryption.key-id", "sfn.enabled", "write.metadata.previous-versions-max", "x"]), scalars
        ),
        "refs": st.dictionaries(st.sampled_from(["main", "x"]), st.fixed_dictionaries({"snapshot-id": st.integers(-1)}))
        | st.none(),
        "schemas": values,
    },
)


@pytest.mark.slow
@given(table, st.text() | st.none(), values)
async def test_a_cut_table_reads_like_the_whole(table: object, pointer: str | None, config: object) -> None:
    async def nothing() -> AsyncGenerator[bytes]:
        return
        yield b""

    body = json.dumps({"metadata": table, "config": config, "metadata-location": pointer}).encode()
    assert outcome(bytes(await responses.extract_table(body, nothing()))) == outcome(body)


def outcome(body: bytes) -> object:
    try:
        return responses.read_table(body)
    except UnreadableDocument as error:
        return str(error)
