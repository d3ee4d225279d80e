"""Files that somebody wrote who means harm: they send nobody anywhere, and cost little."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfn
from sfn.errors import NotRelative, Unreadable, Unsafe
from sfn.reader.files import CountingFiles, FileSystemOptions, InMemoryFileSystem, run_synchronously
from sfn.reader.lookup import MAX_HOPS
from sfn.reader.metadata import AllowedLocations
from sfn.reader.resolve import Question, resolve_question
from sfn.sfnfile.document import DocumentState
from sfn.sfnfile.locations import canonical, store_prefix
from tests.unit.directory import UUID as GUID
from tests.unit.directory import Directory

LAKE = "s3://lake/orders"
ELSEWHERE = [
    "http://127.0.0.1:8181/x",
    "https://evil.example/x",
    "ftp://evil.example/x",
    "file:///etc/passwd",
    "/etc/passwd",
    "gs://lake/orders/x",
    "memory://lake/orders/x",
    "s3:///orders/x",
    "s3://user:secret@lake/x",
    "s3://lake/orders/../secret/x",
    "s3://lake/orders/%2e%2e/x",
    "s3://lake/orders/a%2Fb",
    "s3://lake/orders//x",
    "s3://lake/orders/./x",
    "s3://lake/orders\\x",
    "s3://lake/x?versionId=1",
    "s3://lake/x#y",
    "s3://lake/a\nb",
    "s3://lake/a\0b",
    "metadata/x",
    "../x",
    "",
]


@pytest.mark.parametrize("location", ELSEWHERE)
def test_nobody_is_sent_elsewhere(location: str) -> None:
    with pytest.raises(Unsafe) as refused:
        AllowedLocations(LAKE).check_location(location, f"{LAKE}/metadata/_sfn/x_main.ver")
    assert refused.value.where == f"{LAKE}/metadata/_sfn/x_main.ver"


@pytest.mark.parametrize(
    ("directory", "location"),
    [
        (LAKE, "s3://lake/orders/metadata/x"),
        (LAKE, "s3a://lake/orders/metadata/x"),
        (LAKE, "s3://lake/another/x"),
        ("file:///lake/orders", "/another/orders/x"),
        ("file:///lake/orders", "file:/another/x"),
        ("abfss://c@account.dfs.core.windows.net/t", "abfs://c@account.dfs.core.windows.net/u/x"),
        ("https://host/lake/orders", "https://host/metadata/x"),
        ("memory://lake/orders", "memory://lake/metadata/x"),
    ],
)
def test_metadata_may_lie_where_the_directorys_own_store_reaches(directory: str, location: str) -> None:
    assert AllowedLocations(directory).check_location(location, "x") == canonical(location)


@pytest.mark.parametrize(
    ("directory", "location"),
    [
        (LAKE, "s3://metadata-of-all/orders/x"),
        ("abfss://c@account.dfs.core.windows.net/t", "abfss://d@account.dfs.core.windows.net/t/x"),
        ("https://host/lake/orders", "https://another/lake/x"),
        ("https://host/lake/orders", "http://host/lake/orders/x"),
    ],
)
def test_another_bucket_or_host_is_followed_to_only_where_it_is_allowed(directory: str, location: str) -> None:
    with pytest.raises(Unsafe, match=f"a location in {re.escape(store_prefix(directory))}, as the directory is"):
        AllowedLocations(directory).check_location(location, "x")
    assert AllowedLocations(directory, (store_prefix(location),)).check_location(location, "x") == location


def test_who_says_what_is_allowed_is_sent_nowhere_else() -> None:
    trust = AllowedLocations(LAKE, ("s3://metadata", "gs://copy/orders"))
    for allowed in ("s3://metadata/x", "gs://copy/orders/x", f"{LAKE}/metadata/x"):
        assert trust.check_location(allowed, "x") == allowed
    for refused in ("s3://lake/other/x", "s3://metadata2/x", "gs://copy/orders2/x"):
        with pytest.raises(Unsafe, match=r"a location below s3://lake/orders, s3://metadata, gs://copy/orders"):
            trust.check_location(refused, "x")


@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_the_metadata_and_the_way_to_it_are_held_to_that(tmp_path: Path, table: str | None) -> None:
    place, there = Directory(tmp_path / "orders"), Directory(tmp_path / "there")
    pointer = f"file:{there.metadata()}"
    there.write(metadata_file_path=pointer)
    moved = {"state": DocumentState.MOVED, "moved_to": there.link("sales.orders")}
    for more in ({"metadata_file_path": pointer}, moved):
        place.write(**more)
        assert sfn.resolve(place.path, table).metadata_location == pointer
        assert sfn.resolve(place.path, table, allowed=[str(there.path)]).metadata_location == pointer
        with pytest.raises(Unsafe, match=f"found file:.*{there.path}"):
            sfn.resolve(place.path, table, allowed=[str(tmp_path / "other")])


@pytest.mark.parametrize("relative", ["../00001-a.metadata.json", "../../metadata/00001-a.metadata.json"])
def test_a_copy_of_the_bucket_is_read_by_what_is_relative(tmp_path: Path, relative: str) -> None:
    place = Directory(tmp_path / "copy")
    file = place.metadata()
    place.write(metadata_file_path="s3://lake/orders/metadata/00001-a.metadata.json", metadata_file_relative=relative)
    assert sfn.resolve(place.path, relative=True).metadata_location == file.as_uri()
    with pytest.raises(Unsafe, match="a mount is read with `relative`"):
        sfn.resolve(place.path)


@pytest.mark.parametrize(
    "relative", ["../" * 99, "../" * 99 + "etc/passwd", "/etc/passwd", "a//b", "./x", "..%2f..", "a\\b", "a\0b"]
)
def test_what_is_relative_leads_nowhere_else_either(tmp_path: Path, relative: str) -> None:
    place = Directory(tmp_path / "copy")
    place.metadata()
    place.write(metadata_file_relative=relative)
    with pytest.raises(Unsafe):
        sfn.resolve(place.path, relative=True)


def test_who_asks_for_what_is_relative_is_told_where_there_is_none(tmp_path: Path) -> None:
    place = Directory(tmp_path / "copy")
    place.metadata()
    place.write()
    with pytest.raises(NotRelative, match="resolve it without"):
        sfn.resolve(place.path, relative=True)


KEYS = {f"{LAKE}/metadata/_sfn/sales_{name}_main.ver": name for name in ("orders", "a", "b")}
PLACES = st.sampled_from([*KEYS, *ELSEWHERE, f"{LAKE}/metadata/1.metadata.json", "s3://another/x.ver"])
LINK = st.fixed_dictionaries(
    {"namespace": st.just(["sales"]), "name": st.sampled_from(["a", "b"]), "sfn_file_path": PLACES}
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def documents(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Documents of a table, most of them right in most of what they say."""
    right: dict[str, Any] = {
        "version": 1,
        "guid": GUID,
        "catalog_id": "lake",
        "namespace": ["sales"],
        "name": name,
        "Ordinal": "20260821T120000000",
        "written_at": "2026-08-21T12:00:00.000Z",
    }
    told = {key: st.just(value) for key, value in right.items()} | {
        "state": st.sampled_from([*DocumentState]),
        "metadata_file_path": PLACES,
        "moved_to": st.none() | LINK,
        "name_now": st.none() | LINK,
    }
    return st.builds(
        lambda sound, wrong: sound | wrong,
        st.fixed_dictionaries(told),
        st.dictionaries(
            st.sampled_from([*told, "ref", "gap", "between", "hint_was", "expires_at"]), ANYTHING, max_size=1
        ),
    )


@settings(max_examples=300)
@given(
    st.fixed_dictionaries({key: st.binary(max_size=100) | documents(name) for key, name in KEYS.items()}),
    st.sampled_from([None, ("sales", "orders")]),
    st.sampled_from(["main", "audit"]),
    st.sampled_from([None, 0, 2_000_000_000_000]),
)
def test_whatever_files_say_a_reader_answers_or_refuses_and_asks_little(
    told: dict[str, bytes | dict[str, Any]], table: tuple[str, ...] | None, ref: str, as_of: int | None
) -> None:
    bodies = {key: doc if isinstance(doc, bytes) else json.dumps(doc).encode() for key, doc in told.items()}
    bodies[f"{LAKE}/metadata/1.metadata.json"] = json.dumps({"table-uuid": GUID, "last-updated-ms": 1}).encode()
    files = CountingFiles(InMemoryFileSystem(bodies))
    question = Question(LAKE, table, ref=ref, as_of=as_of)
    try:
        found = run_synchronously(resolve_question(files, question, FileSystemOptions(LAKE)))
    except Unreadable:
        pass
    else:
        assert found.metadata_location == f"{LAKE}/metadata/1.metadata.json"
        assert found.document.guid in {GUID, None}
    # Twice, as what is stale is looked at again.
    assert files.requests.gets <= 2 * (len(KEYS) * (MAX_HOPS + 2) + 20)
    assert files.requests.lists <= 2 * 5
