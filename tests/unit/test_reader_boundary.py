"""Files below a metadata file: followed only where the directory's reader may be led, and each as long as it was."""

from __future__ import annotations

import json
import pickle
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

import sfn
from sfn.errors import Unsafe
from sfn.reader import verify
from sfn.reader.inspect import MetadataWalk, WalkLimits
from sfn.reader.metadata import AllowedLocations
from sfn.reader.table import load_metadata
from sfn.sfnfile.document import render
from tests.unit.directory import Directory
from tests.unit.real_table import IDENTIFIER, MemoryIO, RealTable, real_table

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "kind": ["a/b", "c"]})


@pytest.fixture(name="made")
def fixture_made(tmp_path: Path) -> RealTable:
    return real_table(tmp_path)


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
    assert all(f"found {there}; if it is right, name it among the `allowed`" in text for text in found)
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
