"""What the codec of SFN documents promises (specification, section 1)."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.errors import MalformedDocument
from sfn.sfnfile.document import (
    MAX_DOCUMENT_BYTES,
    MAX_HINT_WAS,
    CommitEntry,
    Document,
    DocumentState,
    Link,
    parse,
    render,
)
from tests.dialects.requests import anything

DAY_ONE, LAST_DAY = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

texts = st.text(max_size=6)
halves = st.sampled_from("\ud800\udfff")
"""Of surrogate pairs, which JSON can spell and UTF-8 can't."""
moments = st.integers((DAY_ONE - EPOCH) // MILLISECOND, (LAST_DAY - EPOCH) // MILLISECOND)
times = moments.map(lambda milliseconds: EPOCH + milliseconds * MILLISECOND)
namespaces = st.lists(texts, max_size=3).map(tuple)
links = st.builds(Link, namespaces, texts, texts)
documents = st.builds(
    Document,
    catalog_id=texts,
    namespace=namespaces,
    name=texts,
    guid=st.none() | texts,
    metadata_file_path=texts,
    ordinal=moments,
    written_at=times,
    asked_at=st.none() | times,
    state=st.sampled_from(DocumentState),
    ref=texts.filter(bool),
    snapshot_id=st.none() | st.integers(-(2**63), 2**63 - 1),
    metadata_file_relative=st.none() | texts,
    moved_to=st.none() | links,
    name_now=st.none() | links,
    expires_at=st.none() | times,
    hint_was=st.lists(texts, max_size=MAX_HINT_WAS).map(tuple),
    gap=st.integers(0, 2**31),
    between=st.lists(st.builds(CommitEntry, moments, texts, st.integers(0, 9)), max_size=3).map(tuple),
    turned=st.booleans(),
    writer=texts,
)

PLAIN = Document("id", ("größe",), "🧊", None, "/t/1.metadata.json", 0, EPOCH)
TIMES = ["Ordinal", "ordinal", "written_at", "asked_at", "expires_at"]
KEYS = sorted([*json.loads(render(PLAIN)), *TIMES, "moved_to", "name_now", "hint_was", "gap", "between"])


def parsed(body: bytes) -> Document | None:
    """None for what is refused; any other error fails the test."""
    try:
        return parse(body)
    except MalformedDocument:
        return None


@given(documents)
def test_what_is_written_is_read_again(document: Document) -> None:
    assert parse(render(document)) == document


@given(documents, st.lists(st.characters() | halves, max_size=4).map("".join))
def test_what_is_written_is_utf_8_whatever_a_name_holds(document: Document, name: str) -> None:
    assert render(replace(document, name=name)).decode()


@given(documents, texts | halves, st.none() | st.integers(-(2**70), 2**70))
def test_every_version_writes_the_same_bytes(document: Document, name: str, snapshot: int | None) -> None:
    body = render(replace(document, name=name, snapshot_id=snapshot))
    assert body == (json.dumps(json.loads(body), ensure_ascii=False, indent=2) + "\n").encode(errors="backslashreplace")


@pytest.mark.parametrize("key", ["name", "guid", "metadata_file_path", "catalog_id", "namespace", "hint_was"])
def test_half_a_surrogate_pair_is_refused(key: str) -> None:
    value = ["\ud800"] if key in {"namespace", "hint_was"} else "\ud800"
    body = json.loads(render(PLAIN)) | {key: value}
    with pytest.raises(MalformedDocument, match=f"{key} has a lone surrogate in it"):
        parse(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("key", "value"), [("snapshot_id", 1 << 63), ("snapshot_id", -(1 << 63) - 1), ("gap", 10**4_000)]
)
def test_an_integer_has_64_bits(key: str, value: int) -> None:
    body = json.loads(render(PLAIN))
    with pytest.raises(MalformedDocument, match=f"{key} is no integer of 64 bits"):
        parse(json.dumps(body | {key: value}).encode())
    with pytest.raises(MalformedDocument, match="gap is no integer of 64 bits"):
        parse(json.dumps(body | {"between": [["20260821T120000", "/t/1.metadata.json", 1 << 63]]}).encode())


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "latin-1"]
)
def test_no_other_encoding_is_guessed(encoding: str) -> None:
    text = render(PLAIN).decode().replace("🧊", "eis")
    with pytest.raises(MalformedDocument, match="expected a JSON object in UTF-8, found"):
        parse(text.encode(encoding))


@given(st.sampled_from([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"]), st.integers(0, 10**4))
def test_no_byte_that_is_not_utf_8_is_passed_over(odd: bytes, where: int) -> None:
    body = render(PLAIN)
    at = where % len(body)
    assert parsed(body[:at] + odd + body[at:]) is None


@given(st.binary(max_size=40) | anything.map(lambda value: json.dumps(value).encode()))
def test_what_is_no_document_is_refused_and_nothing_worse(body: bytes) -> None:
    assert parsed(body) is None


THAI_DIGITS = {ord("0") + digit: ord("\N{THAI DIGIT ZERO}") + digit for digit in range(10)}
odd_times = st.sampled_from(
    ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"]
)
odd_ordinals = st.sampled_from(["00010101T000000000", "00681231T000000", "20260230T000000", "20260821T120000"])
odd = odd_times | odd_ordinals | odd_ordinals.map(lambda text: text.translate(THAI_DIGITS))


@given(st.dictionaries(st.sampled_from(KEYS), anything, max_size=3) | st.dictionaries(st.sampled_from(TIMES), odd))
def test_what_is_read_can_be_written_and_read_again(changed: dict[str, object]) -> None:
    document = parsed(json.dumps(json.loads(render(PLAIN)) | changed).encode())
    if document is not None:
        assert parse(render(document)) == document


def test_an_ordinal_is_spelled_in_ascii() -> None:
    body = json.loads(render(PLAIN))
    assert parsed(json.dumps(body | {"Ordinal": "20260821T120000"}).encode()) is not None
    assert parsed(json.dumps(body | {"Ordinal": "20260821T120000".translate(THAI_DIGITS)}).encode()) is None


def test_a_document_has_so_many_bytes_and_not_one_more() -> None:
    body = render(PLAIN)
    assert parse(body + b" " * (MAX_DOCUMENT_BYTES - len(body))) == PLAIN
    with pytest.raises(MalformedDocument, match="65537 or more"):
        parse(body + b" " * (MAX_DOCUMENT_BYTES + 1 - len(body)))


LONG = "9" * 60_000


@pytest.mark.parametrize(
    "wrong",
    [{"version": LONG}, {"version": int(LONG[:4_000])}, {"state": LONG}, {"Ordinal": LONG}, {"written_at": f"x{LONG}"}],
    ids=["a text for a version", "another version", "state", "Ordinal", "written_at"],
)
def test_what_is_refused_is_shown_in_few_words(wrong: dict[str, object]) -> None:
    with pytest.raises(MalformedDocument, match="9999999…") as refused:
        parse(json.dumps(json.loads(render(PLAIN)) | wrong).encode())
    assert len(str(refused.value)) < 600


def test_long_documents_are_not_kept_in_memory() -> None:
    long = [json.dumps(json.loads(render(PLAIN)) | {"writer": f"{number}{LONG}"}).encode() for number in range(200)]
    tracemalloc.start()
    try:
        for body in long:
            parse(body)
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_document_of_the_usual_length_is_parsed_once() -> None:
    body = render(replace(PLAIN, metadata_file_path="/t/" + "x" * 1_000))
    assert parse(body) is parse(bytes(bytearray(body)))
