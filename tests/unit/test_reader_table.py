"""From a directory to rows: PyIceberg's table, pinned to what was asked for, and Arrow."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse

import sfn
from sfn.errors import (
    MalformedMetadata,
    NotInstalled,
    NotPermitted,
    RefNotFound,
    Stale,
    Unreachable,
    Unreadable,
    WrongTable,
)
from sfn.reader.pyiceberg_files import BoundedIO
from tests.unit.directory import OTHER_UUID
from tests.unit.real_table import IDENTIFIER, RealTable, real_table, table_by_price, table_in_memory


@pytest.fixture(name="made", scope="module")
def fixture_made(tmp_path_factory: pytest.TempPathFactory) -> RealTable:
    return real_table(tmp_path_factory.mktemp("lake"))


@pytest.fixture(name="stored")
def fixture_stored(tmp_path: Path) -> Iterator[str]:
    """A table in another file system than this machine's."""
    bucket = str(uuid4())
    yield table_in_memory(tmp_path, bucket)
    MemoryFileSystem().rm(f"/{bucket}", recursive=True)


def test_a_table_is_pyicebergs_own_and_named_as_it_is(made: RealTable) -> None:
    table = sfn.resolve(made.directory).table()
    assert table.name() == ("sales", "orders")
    assert table.metadata_location == made.pointer
    assert table.scan().to_arrow().sort_by("id")["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize(("ref", "ids"), [("main", [1, 2]), ("audit", [1, 3]), ("v1", [1])])
@pytest.mark.parametrize("table", [None, IDENTIFIER])
async def test_a_table_is_pinned_to_its_ref(made: RealTable, table: str | None, ref: str, ids: list[int]) -> None:
    found = sfn.resolve(made.directory, table, ref=ref)
    head = {"main": made.main, "audit": made.audit, "v1": made.tagged}[ref]
    pinned = found.table()
    assert pinned.metadata.current_snapshot_id == found.snapshot_id == head
    rows = sfn.read(made.directory, table, ref=ref).sort_by("id")
    assert rows["id"].to_pylist() == ids
    assert rows.equals((await sfn.aread(made.directory, table, ref=ref)).sort_by("id"))


def test_a_branch_has_the_tables_schema_and_a_tag_that_of_its_time(made: RealTable) -> None:
    columns = {ref: sfn.read(made.directory, ref=ref).column_names for ref in ("main", "audit", "v1")}
    assert columns == {"main": ["id", "day", "note"], "audit": ["id", "day", "note"], "v1": ["id", "day"]}


def test_rows_and_columns_are_chosen(made: RealTable) -> None:
    rows = sfn.read(made.directory, row_filter="day = '2026-11-02'", selected_fields=["id"])
    assert rows.to_pydict() == {"id": [2]}
    assert sfn.read(made.directory, limit=1).num_rows == 1


def test_an_earlier_time_has_its_rows(made: RealTable) -> None:
    first, *_ = (entry for entry in sfn.history(made.directory) if "00002-" in entry.metadata_location)
    assert sfn.read(made.directory, as_of=first.at)["id"].to_pylist() == [1]


def test_files_of_any_store_are_opened_as_the_directory_was(stored: str) -> None:
    table = sfn.resolve(stored, storage_options={"skip_instance_cache": True}).table()
    assert table.scan().to_arrow().to_pydict() == {"id": [1], "day": ["2026-11-01"]}
    assert sfn.read(stored, IDENTIFIER)["id"].to_pylist() == [1]
    # Engines send it to other processes.
    again = pickle.loads(pickle.dumps(table.io))  # noqa: S301 - our own
    assert again.new_input(table.metadata_location).exists()


def test_a_table_read_from_its_directory_is_read_only(stored: str) -> None:
    io = sfn.resolve(stored).table().io
    with pytest.raises(PermissionError, match="read only"):
        io.new_output(f"{stored}/x")
    with pytest.raises(PermissionError, match="read only"):
        io.delete(f"{stored}/x")


def test_pyicebergs_own_properties_are_for_who_prefers_them(made: RealTable) -> None:
    io = sfn.resolve(made.directory).table({"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}).io
    assert type(io.new_input(made.pointer)).__name__ == "FsspecInputFile"


def test_no_representation_has_the_options(stored: str) -> None:
    found = sfn.resolve(stored, storage_options={"secret": "hush"})
    assert "hush" not in repr(found) + repr(found.file_system_options) + repr(found.table().io)


@pytest.fixture(name="mutable")
def fixture_mutable(tmp_path: Path) -> RealTable:
    return real_table(tmp_path)


def test_what_changes_after_it_was_resolved_is_refused(mutable: RealTable) -> None:
    found, tag = sfn.resolve(mutable.directory), sfn.resolve(mutable.directory, ref="v1")
    file = Path(mutable.pointer.removeprefix("file://"))
    body = file.read_text()
    file.write_text(body.replace('"v1"', '"v2"'))
    with pytest.raises(RefNotFound, match="found audit, main, v2"):
        tag.table()
    file.write_text(body.replace(found.document.guid or "", OTHER_UUID))
    with pytest.raises(WrongTable):
        found.table()
    file.write_text('{"format-version": 99}')
    with pytest.raises(MalformedMetadata, match="metadata that PyIceberg can read"):
        found.table()
    file.unlink()
    with pytest.raises(Stale, match="no such file"):
        found.table()


@pytest.mark.parametrize(("call", "package"), [("resolve(d).table()", "pyiceberg"), ("read(d)", "pyarrow")])
def test_a_missing_extra_is_named(made: RealTable, call: str, package: str) -> None:
    code = (
        f"import sys, sfn; sys.modules[{package!r}] = None; d = sys.argv[1]\n"
        f"try: sfn.{call}\n"
        "except sfn.NotInstalled as refusal: print(refusal)"
    )
    arguments = [sys.executable, "-c", code, made.directory]
    told = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.startswith(f"{package}: expected an installed package")
    assert told.stdout.endswith("; pip install 'pyiceberg[pyarrow]'\n")


def broken(file: Path) -> None:
    file.write_bytes(b"\xff" * 1_000)


def forbidden(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("pattern", "harm", "refusal"),
    [
        ("*.parquet", Path.unlink, Stale),
        ("snap-*.avro", Path.unlink, Stale),
        ("*-m0.avro", Path.unlink, Stale),
        ("*.parquet", broken, MalformedMetadata),
        ("snap-*.avro", broken, MalformedMetadata),
        ("*-m0.avro", broken, MalformedMetadata),
        ("*.parquet", forbidden, Unreadable),
    ],
)
def test_what_is_gone_or_broken_below_the_metadata_is_refused(
    mutable: RealTable, pattern: str, harm: Callable[[Path], None], refusal: type[Unreadable]
) -> None:
    for file in mutable.place.path.rglob(pattern):
        harm(file)
    with pytest.raises(refusal) as caught:
        sfn.read(mutable.directory)
    names_itself = refusal is MalformedMetadata and pattern.endswith(".avro")
    assert Path(caught.value.where).match(pattern) if names_itself else caught.value.where == mutable.pointer
    assert "sfn verify --deep" in caught.value.remedy


@pytest.mark.parametrize("error", [PermissionError("not you"), OSError("the wire")])
def test_what_a_driver_says_is_said_again(made: RealTable, error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(BoundedIO, "new_input", refused)
    kind = NotPermitted if isinstance(error, PermissionError) else Unreachable
    with pytest.raises(kind, match=str(error)):
        sfn.read(made.directory)


def in_snappy(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"\x0edeflate", b"\x0csnappy"))


@pytest.mark.parametrize("properties", [None, {}])
@pytest.mark.parametrize(("harm", "refusal"), [(broken, MalformedMetadata), (in_snappy, NotInstalled)])
def test_a_manifest_is_checked_whoever_opens_it(
    mutable: RealTable, harm: Callable[[Path], None], refusal: type[Unreadable], properties: dict[str, str] | None
) -> None:
    for file in mutable.place.path.rglob("*-m0.avro"):
        harm(file)
    with pytest.raises(refusal) as caught:
        sfn.read(mutable.directory, properties=properties)
    assert caught.value.where.endswith("-m0.avro")


@pytest.mark.parametrize(
    ("row_filter", "prices"),
    [("price = 0.1", [0.1]), ("price <= 0.1", [0.1]), ("price > 0.1", [0.3, 5]), ("price in (0.3, 5.0)", [0.3, 5])],
)
def test_a_partition_of_doubles_is_found_by_them(tmp_path: Path, row_filter: str, prices: list[float]) -> None:
    rows = sfn.read(table_by_price(tmp_path), row_filter=row_filter)
    assert sorted(rows["price"].to_pylist()) == prices


@pytest.mark.parametrize("row_filter", ["id >", "nobody = 1", "id = 'x'", parse("nobody = 1")])
def test_a_wrong_filter_is_named(made: RealTable, row_filter: str | BooleanExpression) -> None:
    with pytest.raises(ValueError, match="a row_filter that fits the table's columns: ") as caught:
        sfn.read(made.directory, row_filter=row_filter)
    assert repr(row_filter) in str(caught.value)


def test_a_column_that_is_not_there_is_named(made: RealTable) -> None:
    with pytest.raises(ValueError, match="nobody"):
        sfn.read(made.directory, selected_fields=["nobody"])
