"""The version hint and the lifetime of metadata files."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfn.domain.identifiers import Table
from sfn.sfnfile import version_hint
from sfn.sfnfile.version_hint import SHORT_LIFETIME, is_short_lived, metadata_lifetime
from tests.support.table_directory import NEIGHBOURS, SUFFIX, UNUSUAL, neighbours

NOW = 1_700_000_000_000
MINUTE = 60_000


def table(kept: int | None, commits: int, every: int = MINUTE, *, now: int = NOW) -> Table:
    """One with so many entries in its log, the last of them a commit ago."""
    times = tuple(NOW - every * ago for ago in range(commits, 0, -1))
    log = tuple(f"s3://lake/t/metadata/{number}.metadata.json" for number in range(commits))
    return Table(
        "u1",
        "s3://lake/t",
        "s3://lake/t/metadata/x.metadata.json",
        log,
        now,
        log_times=times,
        previous_versions_max=kept,
    )


@pytest.mark.parametrize(
    ("kept", "commits", "minutes"), [(20, 20, 20), (20, 100, 20), (1, 1, 1), (3, 3, 3), (100, 10, 100), (100, 50, 100)]
)
def test_it_is_as_long_as_so_many_commits_take(kept: int, commits: int, minutes: int) -> None:
    assert metadata_lifetime(table(kept, commits)) == timedelta(minutes=minutes)


def test_a_log_that_is_longer_tells_by_its_newest_entries() -> None:
    slow = tuple(NOW - 100 * MINUTE * ago for ago in range(20, 10, -1))
    quick = table(10, 10)
    longer = Table(
        "u1", "s3://t", "x", last_updated_ms=NOW, log_times=(*slow, *quick.log_times), previous_versions_max=10
    )
    assert metadata_lifetime(longer) == timedelta(minutes=10)


@pytest.mark.parametrize(
    "unknown",
    [
        table(None, 100),
        table(100, 0),
        table(100, 9),
        table(3, 2),
        table(10, 10, every=0),
        table(10, 10, now=NOW - 3600 * MINUTE),
        table(10, 10, every=NOW // 10 + 1),
    ],
)
def test_nothing_is_told_where_nothing_is_deleted_or_too_little_known(unknown: Table) -> None:
    assert metadata_lifetime(unknown) is None
    assert not is_short_lived(unknown)


def test_what_is_soon_deleted_is_short_lived() -> None:
    minutes = SHORT_LIFETIME // timedelta(minutes=1)
    assert is_short_lived(table(minutes - 1, 100))
    assert not is_short_lived(table(minutes, 100))


LOCATION = "s3://lake/orders"
METADATA = f"{LOCATION}/metadata"

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
odd_stems = stems | st.sampled_from(UNUSUAL) | st.text("v03٣+-_. e½ag", min_size=1, max_size=6)
"""These, and what else a file may be called."""


def table_at(pointer: str, location: str = LOCATION) -> Table:
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


def pyiceberg_0_10(text: str, folder: set[str]) -> str | None:
    """As PyIceberg 0.10: any other text than a number is a whole name."""
    name = f"v{text}{SUFFIX}" if text.isnumeric() else text
    return name if name in folder else None


def clickhouse(text: str, folder: set[str]) -> str | None:
    """As `iceberg_use_version_hint`: the name must have a version and be no bare UUID."""
    name = text if text.endswith(SUFFIX) else (f"v{text}" if re.fullmatch("[0-9]*", text) else text) + SUFFIX
    version = re.match(r"v([0-9]+)[.-]|([0-9]+)-", name)
    if name not in folder or version is None or _is_uuid(name.partition(".")[0]):
        return None
    return name if int(version[1] or version[2]) < 2**31 else None


def numeric(text: str, folder: set[str]) -> str | None:
    """As readers that parse the hint as a number of any form and open `v<number>`, and nothing else."""
    try:
        name = f"v{int(float(text))}{SUFFIX}"
    except (ValueError, OverflowError):
        return None
    return name if name in folder else None


def trimming(text: str, folder: set[str]) -> str | None:
    """As readers that trim the hint."""
    return pyiceberg(text.strip(), folder)


def hadoop(text: str | None, folder: set[str]) -> str | None:
    """As Iceberg's `HadoopTableOperations`: from the number on, or without one from the highest, as far as it goes."""
    version = int(text) if text is not None and re.fullmatch("[+-]?[0-9]{1,9}", text) else None
    if version is None:
        found = (re.fullmatch(r"v([+-]?[0-9]{1,9})\..*", name) for name in folder)
        version = max((int(match[1]) for match in found if match is not None), default=0)
    while f"v{version + 1}{SUFFIX}" in folder:
        version += 1
    return f"v{version}{SUFFIX}" if f"v{version}{SUFFIX}" in folder else None


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def hint(current: str, folder: set[str]) -> str | None:
    """What the service writes, where these files lie beside the current one."""
    text, rival = (
        version_hint.content(table_at(f"{METADATA}/{current}")),
        version_hint.shadowing_file(table_at(f"{METADATA}/{current}")),
    )
    is_rivalled = rival is not None and rival.removeprefix(f"{METADATA}/") in folder
    return None if text is None or is_rivalled else text.decode()


READERS = [duckdb, pyiceberg, pyiceberg_0_10, clickhouse, numeric, trimming]
Reader = Callable[[str, set[str]], str | None]


@pytest.mark.parametrize("reader", [duckdb, pyiceberg])
@given(folder=st.sets(names, min_size=1, max_size=8), data=st.data())
def test_a_reader_finds_the_very_file_that_is_current(reader: Reader, folder: set[str], data: st.DataObject) -> None:
    current = data.draw(st.sampled_from(sorted(folder)))
    text = hint(current, folder)
    assert text is not None
    assert reader(text, folder) == current


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_opens_a_neighbour_of_the_current_file(reader: Reader) -> None:
    opened = set()
    for stem, which in product(UNUSUAL, NEIGHBOURS):
        current, folder = stem + SUFFIX, {stem + SUFFIX, *neighbours(stem, which)}
        text = hint(current, folder)
        found = None if text is None else reader(text, folder)
        if found not in {current, None}:
            opened.add((stem, which, text, found))
    assert not opened


@pytest.mark.parametrize("reader", READERS)
@given(stems=st.sets(odd_stems, min_size=1, max_size=6), data=st.data())
def test_no_reader_opens_a_file_but_the_current_one(reader: Reader, stems: set[str], data: st.DataObject) -> None:
    current = data.draw(st.sampled_from(sorted(stems)))
    others = [data.draw(st.sampled_from(neighbours(stem, "all"))) for stem in sorted(stems)]
    folder = {*(stem + SUFFIX for stem in stems), *others}
    text = hint(current + SUFFIX, folder)
    assert text is None or reader(text, folder) in {current + SUFFIX, None}


@given(numbers=st.sets(st.integers(0, 6), min_size=1), data=st.data())
def test_a_hint_never_leads_a_reader_of_folders_further_astray_than_no_hint(
    numbers: set[int], data: st.DataObject
) -> None:
    folder = {f"v{number}{SUFFIX}" for number in numbers}
    current = data.draw(st.sampled_from(sorted(folder)))
    text = hint(current, folder)
    # It walks on from the hint to what was never committed; without a hint it takes the highest of all.
    found, unhinted = hadoop(text, folder), hadoop(None, folder)
    assert found is not None
    assert unhinted is not None
    assert current <= found <= unhinted


@pytest.mark.parametrize("reader", READERS)
@given(folder=st.sets(names, max_size=8), nonce=st.from_regex(r"[0-9T]{1,24}-[0-9]{1,6}", fullmatch=True))
def test_a_withdrawn_hint_leads_nowhere(reader: Reader, folder: set[str], nonce: str) -> None:
    text = version_hint.cleared_content(nonce)
    assert version_hint.is_cleared(text)
    assert text != version_hint.cleared_content(f"{nonce}0")
    assert reader(text.decode(), folder) is None


@given(names)
def test_a_hint_that_speaks_is_not_withdrawn(name: str) -> None:
    text = version_hint.content(table_at(f"{METADATA}/{name}"))
    assert text is not None
    assert not version_hint.is_cleared(text)
    assert version_hint.is_cleared(b"")


@given(names, names)
def test_two_files_have_two_hints(name: str, other: str) -> None:
    assert (version_hint.text_for(f"{METADATA}/{name}") == version_hint.text_for(f"{METADATA}/{other}")) == (
        name == other
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("00003-9c12d441-03fe-4693-9a96-a0705ddf69c1.metadata.json", "00003-9c12d441-03fe-4693-9a96-a0705ddf69c1"),
        ("00003-9c12d441.gz.metadata.json", "00003-9c12d441.gz"),
        ("v3.metadata.json", "3"),
        ("v0.metadata.json", "0"),
        ("v03.metadata.json", "v03"),
        ("v3.gz.metadata.json", "v3.gz"),
        ("v3-a.metadata.json", "v3-a"),
        ("3.gz.metadata.json", "3.gz"),
        ("321.metadata.json", None),
        ("00321.metadata.json", None),
        ("+3.metadata.json", None),
        ("-3.metadata.json", None),
        ("3.5.metadata.json", None),
        ("1e3.metadata.json", None),
        ("1_000.metadata.json", None),
        ("٣.metadata.json", None),
        ("v٣.metadata.json", None),
        ("½.metadata.json", None),
        (" 3.metadata.json", None),
        ("a b.metadata.json", None),
        ("a%20b.metadata.json", None),
        ("sfn-withdrawn-1.metadata.json", None),
        ("v3.metadata.json.gz", None),
        ("v3.json", None),
        (".metadata.json", None),
        ("00003-a.metadata.json.metadata.json", None),
        ("", None),
    ],
)
def test_the_hint_of_a_name(name: str, text: str | None) -> None:
    assert version_hint.text_for(f"{METADATA}/{name}") == text
    written = version_hint.content(table_at(f"{METADATA}/{name}"))
    assert written == (None if text is None else text.encode())


@pytest.mark.parametrize(
    ("stem", "texts"),
    [("v3", {"3"}), ("3", {"3"}), ("v03", {"v03", "03"}), ("a b", {"a b"}), ("00003-a", {"00003-a"}), ("", set())],
)
def test_what_an_earlier_version_wrote_for_a_name_is_recognised(stem: str, texts: set[str]) -> None:
    assert set(version_hint.known_texts(f"{METADATA}/{stem}{SUFFIX}")) == texts


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
    assert version_hint.content(table_at(f"{folder}/v3.metadata.json", location)) is None


@pytest.mark.parametrize("location", ["/w/orders", "file:/w/orders", "file:///w/orders"])
@pytest.mark.parametrize("folder", ["/w/orders/metadata", "file:/w/orders/metadata", "file:///w/orders/metadata"])
def test_it_may_be_spelled_otherwise_than_its_table(location: str, folder: str) -> None:
    assert version_hint.content(table_at(f"{folder}/v3.metadata.json", location)) == b"3"
