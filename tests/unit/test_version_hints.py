"""What readers that know nothing of SFN files make of our version hints (specification, section 6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.pointer import hintfile
from sfn.words import Table

LOCATION = "s3://lake/orders"
METADATA = f"{LOCATION}/metadata"
SUFFIX = ".metadata.json"

uuids = st.uuids().map(str)
stems = (
    st.integers(0, 10**6).map("v{}".format)
    | st.builds("{:05d}-{}".format, st.integers(0, 10**6), uuids)
    | uuids
    | st.integers(0, 99).map("v{}.gz".format)
    | st.builds("{:05d}-{}.gz".format, st.integers(0, 99), uuids)
)
"""What writers call metadata files, without the suffix."""
names = stems.map(lambda stem: stem + SUFFIX)


def table(pointer: str, location: str = LOCATION) -> Table:
    return Table("u1", location, pointer)


def duckdb(text: str, folder: set[str]) -> str | None:
    """The hint of `iceberg_scan(directory)`, untrimmed, in its `version_name_format`s in turn."""
    return next((name for name in (f"v{text}{SUFFIX}", text + SUFFIX) if name in folder), None)


def pyiceberg(text: str, folder: set[str]) -> str | None:
    """As `StaticTable.from_metadata(directory)` since PyIceberg 0.11; Polars and Daft go through it."""
    name = text.removesuffix(SUFFIX)
    if text.isnumeric():
        name = f"v{text}"
    return name + SUFFIX if name + SUFFIX in folder else None


READERS = [duckdb, pyiceberg]
Reader = Callable[[str, set[str]], str | None]


@pytest.mark.parametrize("reader", READERS)
@given(folder=st.sets(names, min_size=1, max_size=8), data=st.data())
def test_a_reader_finds_the_very_file_that_is_current(reader: Reader, folder: set[str], data: st.DataObject) -> None:
    current = data.draw(st.sampled_from(sorted(folder)))
    hint = hintfile.content(table(f"{METADATA}/{current}"))
    assert hint is not None
    assert reader(hint.decode(), folder) == current


@pytest.mark.parametrize("reader", READERS)
@given(folder=st.sets(names, max_size=8), nonce=st.from_regex(r"[0-9T]{1,24}-[0-9]{1,6}", fullmatch=True))
def test_a_withdrawn_hint_leads_nowhere(reader: Reader, folder: set[str], nonce: str) -> None:
    hint = hintfile.withdrawn(nonce)
    assert hintfile.is_withdrawn(hint)
    assert hint != hintfile.withdrawn(f"{nonce}0")
    assert reader(hint.decode(), folder) is None


@given(names)
def test_a_hint_that_speaks_is_not_withdrawn(name: str) -> None:
    hint = hintfile.content(table(f"{METADATA}/{name}"))
    assert hint is not None
    assert not hintfile.is_withdrawn(hint)
    assert hintfile.is_withdrawn(b"")


@given(names, names)
def test_two_files_have_two_hints(name: str, other: str) -> None:
    assert (hintfile.stem(f"{METADATA}/{name}") == hintfile.stem(f"{METADATA}/{other}")) == (name == other)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("00003-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json", "00003-9c12d441-03fe-4693-9a96-a0705ddf69c1"),
        ("00003-9c12d441.gz.metadata.json", "00003-9c12d441.gz"),
        ("v3.metadata.json", "3"),
        ("v3.gz.metadata.json", "v3.gz"),
        ("v3-a.metadata.json", "v3-a"),
        ("321.metadata.json", "321"),
        ("v3.metadata.json.gz", None),
        ("v3.json", None),
        (".metadata.json", None),
        ("00003-a.metadata.json.metadata.json", None),
        ("", None),
    ],
)
def test_the_hints_that_were_measured(name: str, text: str | None) -> None:
    assert hintfile.stem(f"{METADATA}/{name}") == text
    hint = hintfile.content(table(f"{METADATA}/{name}"))
    assert hint == (None if text is None else text.encode())


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("s3://lake/orders", "s3://lake/orders/metadata/old"),
        ("s3://lake/orders", "s3://lake/orders"),
        ("s3://lake/orders", "s3://lake/metadata"),
        ("s3://lake/orders", "s3://elsewhere/orders/metadata"),
        ("s3://lake/orders", "gs://lake/orders/metadata"),
        ("s3://lake/orders", "/orders/metadata"),
    ],
)
def test_metadata_that_lies_elsewhere_has_no_hint(location: str, folder: str) -> None:
    assert hintfile.content(table(f"{folder}/v3.metadata.json", location)) is None


@pytest.mark.parametrize("location", ["/w/orders", "file:/w/orders", "file:///w/orders"])
@pytest.mark.parametrize("folder", ["/w/orders/metadata", "file:/w/orders/metadata", "file:///w/orders/metadata"])
def test_it_may_be_spelled_otherwise_than_its_table(location: str, folder: str) -> None:
    assert hintfile.content(table(f"{folder}/v3.metadata.json", location)) == b"3"
