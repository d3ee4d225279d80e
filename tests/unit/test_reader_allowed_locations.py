"""Readers open only files below allowed locations."""

from __future__ import annotations

import json
import pickle
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

import sfn
from sfn.errors import NotRelative, Unreadable, Unsafe
from sfn.reader import verify
from sfn.reader.files import CountingFiles, FileSystemOptions, InMemoryFileSystem, run_synchronously
from sfn.reader.inspect import MetadataWalk, WalkLimits
from sfn.reader.lookup import MAX_HOPS
from sfn.reader.metadata import AllowedLocations
from sfn.reader.resolve import Question, resolve_question
from sfn.reader.table import load_metadata
from sfn.sfnfile.document import DocumentState, render
from sfn.sfnfile.locations import canonical, store_prefix
from tests.support.real_table import IDENTIFIER, MemoryIO, RealTable
from tests.support.table_directory import UUID as GUID
from tests.support.table_directory import Directory

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "kind": ["a/b", "c"]})


def split(folder: Path, **properties: str) -> str:
    """A table of two partitions, which one manifest lists; its directory."""
    with closing(SqlCatalog("lake", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/warehouse")) as catalog:
        table = filled(catalog, properties)
        place = Directory(Path(table.location().removeprefix("file://")))
        place.sfn_file(IDENTIFIER).write_bytes(body(place, table))
        return str(place.path)


def filled(catalog: SqlCatalog, properties: dict[str, str]) -> Table:
    catalog.create_namespace("sales")
    table = catalog.create_table(IDENTIFIER, ROWS.schema, properties=properties)
    with table.update_spec() as spec:
        spec.add_field("kind", IdentityTransform(), "kind")
    table.append(ROWS)
    return table


def body(place: Directory, table: Table) -> bytes:
    guid, pointer = str(table.metadata.table_uuid), table.metadata_location
    snapshot_id = table.metadata.current_snapshot_id
    return render(place.document(IDENTIFIER, guid=guid, metadata_file_path=pointer, snapshot_id=snapshot_id))


def wrong(directory: str, *, deep: bool = True, allowed: tuple[str, ...] = ()) -> list[str]:
    resolving = lambda: sfn.resolve(directory, allowed=allowed)  # noqa: E731 - as a command has it
    _, findings = verify.verify(resolving, deep=deep, on_progress=lambda _done, _total: None)
    return [f"{one.what}: {one.text}" for one in findings if not one.ok]


@pytest.fixture(name="listening")
def fixture_listening() -> Iterator[socket.socket]:
    """A server that nobody ought to call."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def led_astray(made: RealTable, location: str) -> None:
    """Let the head's manifest list lie at a location."""
    pointer = Path(made.pointer.removeprefix("file://"))
    metadata = json.loads(pointer.read_text())
    for one in metadata["snapshots"]:
        one["manifest-list"] = location
    pointer.write_text(json.dumps(metadata))


@pytest.mark.parametrize("deep", [False, True])
def test_nobody_is_asked_whom_a_forged_metadata_file_names(
    made: RealTable, listening: socket.socket, deep: bool
) -> None:
    there = f"http://127.0.0.1:{listening.getsockname()[1]}/latest/meta-data/iam"
    led_astray(made, there)
    found = wrong(made.directory, deep=deep)
    assert all(text.startswith(f"manifest list: {made.pointer}: expected a location in file://, as") for text in found)
    assert all(f"found {there}; if it is right, add it to the `allowed`" in text for text in found)
    table = sfn.resolve(made.directory)
    seen = MetadataWalk(table.metadata_location, load_metadata(table), table.files).metadata(made.main, WalkLimits(9))
    (problem,) = seen.problems
    assert problem.startswith(f"{made.pointer}: expected a location in file://")
    with pytest.raises(Unsafe, match="expected a location in file://"):
        sfn.read(made.directory)
    with pytest.raises(BlockingIOError):
        listening.accept()


def test_data_in_another_place_is_followed_where_that_is_allowed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    directory = split(tmp_path, **{"write.data.path": f"file://{data}"})
    assert wrong(directory) == []
    assert wrong(directory, allowed=(str(data),)) == []
    found = wrong(directory, allowed=("/nowhere",))
    assert [text.partition(":")[0] for text in found] == ["data file", "data file"]
    assert all("expected a location below" in text for text in found)
    assert sfn.read(directory, allowed=(str(data),)).num_rows == 2
    with pytest.raises(Unsafe, match="expected a location below"):
        sfn.read(directory, allowed=("/nowhere",))


def test_data_in_another_bucket_is_followed_only_where_that_is_allowed(tmp_path: Path) -> None:
    bucket, other = str(uuid4()), str(uuid4())
    keys = {"py-io-impl": f"{MemoryIO.__module__}.{MemoryIO.__name__}", "warehouse": f"memory://{bucket}/warehouse"}
    with closing(SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", **keys)) as catalog:
        table = filled(catalog, {"write.data.path": f"memory://{other}/data"})
    place = Directory(tmp_path / "doc")
    MemoryFileSystem().pipe_file(f"{table.location()}/metadata/_sfn/sales_orders_main.ver", body(place, table))
    assert len(wrong(table.location())) == 2
    with pytest.raises(Unsafe, match=f"expected a location in memory://{bucket}, as the directory is"):
        sfn.read(table.location())
    allowed = (f"memory://{other}/data",)
    assert wrong(table.location(), allowed=allowed) == []
    assert sfn.read(table.location(), allowed=allowed).num_rows == 2
    io = pickle.loads(pickle.dumps(sfn.resolve(table.location()).table().io))  # noqa: S301 - our own
    with pytest.raises(Unsafe):
        io.new_input(f"memory://{other}/data/x")
    # Who gives PyIceberg properties of their own has it open what it likes.
    sfn.resolve(table.location()).table(keys).io.new_input(f"memory://{other}/data/x")


def test_a_separator_in_a_partitions_value_leads_nowhere_else(tmp_path: Path) -> None:
    directory = split(tmp_path)
    assert any("%2F" in str(file) for file in Path(directory).rglob("*"))
    assert wrong(directory) == []
    assert sfn.read(directory).num_rows == 2


def test_a_percent_sign_that_is_part_of_a_name_is_followed() -> None:
    assert AllowedLocations("s3://lake/t%20").check_file("s3a://lake/a%2Fb/c", "said") == "s3://lake/a%2Fb/c"
    assert (
        AllowedLocations("s3://lake/t", ("s3://data/t%20",)).check_file("s3://data/t%20/c", "said")
        == "s3://data/t%20/c"
    )


@pytest.mark.parametrize(
    ("location", "allowed"),
    [
        ("s3://lake/t%20x/../y", ("s3://lake/t%20x",)),
        ("s3://other/a%2Fb", ()),
        ("s3://lake/u%2Fx", ("s3://lake/t",)),
        ("s3://lake/t20/x", ("s3://lake/t%20",)),
    ],
)
def test_a_percent_sign_hides_nothing(location: str, allowed: tuple[str, ...]) -> None:
    with pytest.raises(Unsafe) as caught:
        AllowedLocations("s3://lake/orders", allowed).check_file(location, "said")
    assert location in str(caught.value)
    assert all(prefix in str(caught.value) for prefix in allowed if ".." not in location)


def test_where_servers_decode_separators_they_are_refused() -> None:
    with pytest.raises(Unsafe, match="encoded separator"):
        AllowedLocations("https://lake/t").check_file("https://lake/t/%2e%2e%2fb", "said")


def test_a_manifest_that_was_cut_between_two_blocks_is_found(tmp_path: Path) -> None:
    directory = split(tmp_path)
    (manifest,) = (file for file in Path(directory).rglob("*-m0.avro"))
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[: whole.rindex(whole[-16:], 0, -16) + 16])
    assert sfn.read(directory).num_rows == 1
    assert wrong(directory) == [
        f"manifest: file://{manifest}: expected {len(whole):,} bytes, found {manifest.stat().st_size:,}"
    ]


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
    with pytest.raises(Unsafe, match="for a mount, use `relative`"):
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


@pytest.mark.slow
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
