"""Odd file names and spellings of a directory."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem
from pyiceberg.catalog.sql import SqlCatalog

import sfn
from sfn.errors import Ambiguous, LocationRefused, Unreachable, Unsafe
from sfn.reader import verify
from sfn.reader.files import FileSystemOptions, directory_url, run_synchronously
from sfn.reader.inspect import MetadataWalk, WalkLimits
from sfn.reader.metadata import AllowedLocations
from sfn.reader.remote_files import FsspecFileSystem
from sfn.reader.resolve import Question, resolve_question
from sfn.reader.table import load_metadata
from sfn.sfnfile.locations import check_literal, check_location
from tests.support.real_table import NOT_ON_EVERY_STORE, ODD, MemoryIO, OddTable, odd_table
from tests.support.table_directory import OTHER_UUID, Directory, RewrittenFiles


@pytest.fixture(name="catalog")
def fixture_catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    keys = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    with closing(SqlCatalog("lake", **keys)) as catalog:
        catalog.create_namespace("n")
        yield catalog


def put(location: str, body: bytes) -> None:
    path = Path(location.removeprefix("file://").removeprefix("file:"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


def check(made: OddTable, options: Mapping[str, Any] | None = None) -> None:
    """Read it in every way."""
    found = sfn.resolve(made.directory, storage_options=options)
    rows = sfn.read(made.directory, storage_options=options)
    assert sorted(rows.column("id").to_pylist()) == list(range(made.rows))
    seen = MetadataWalk(found.metadata_location, load_metadata(found), found.files).metadata(
        found.snapshot_id, WalkLimits(100, files=True)
    )
    assert seen.problems == []
    _, findings = verify.verify(lambda: found, deep=True, on_progress=lambda _done, _total: None)
    assert [one.text for one in findings if not one.ok] == []


@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_files_of_this_machine_are_read_by_the_names_that_they_have(
    catalog: SqlCatalog, tmp_path: Path, scheme: str
) -> None:
    names = (*ODD, *NOT_ON_EVERY_STORE)
    # PyIceberg itself writes no manifest below such a folder of a URL.
    below = "odd#?" if not scheme else "odd %2F"
    check(odd_table(catalog, f"{scheme}{tmp_path}/t", put, names, below))


def test_files_of_a_store_are_read_by_the_names_that_they_have(tmp_path: Path) -> None:
    location = f"memory://{uuid4()}/t"
    keys = {"py-io-impl": f"{MemoryIO.__module__}.{MemoryIO.__name__}", "warehouse": location}
    with closing(SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", **keys)) as catalog:
        catalog.create_namespace("n")
        check(odd_table(catalog, location, MemoryFileSystem().pipe_file, (*ODD, *NOT_ON_EVERY_STORE)))
    io = pickle.loads(pickle.dumps(sfn.resolve(location).table().io))  # noqa: S301 - our own
    assert len(io.new_input(f"{location}/data/s=a#1/f.parquet")) > 0


@pytest.mark.parametrize(
    "name", ["a#b", "a?b", "a\\b", "a//b", "/a", "a%2fb", "a%2e%2e%2fb", "a%00b", "a b", "a..", "a/..b"]
)
@pytest.mark.parametrize("root", ["s3://lake", "gs://lake", "abfss://c@a.dfs.core.windows.net", "memory://x"])
def test_the_name_of_a_file_in_a_store_stands_for_itself(root: str, name: str) -> None:
    assert check_literal(f"{root}/{name}") == f"{root}/{name}"
    assert AllowedLocations(f"{root}/t").check_file(f"{root}/{name}", "said") == f"{root}/{name}"


@pytest.mark.parametrize(
    "location",
    [
        *(
            "s3://lake/a/../b",
            "s3://lake/..",
            "s3://lake/./b",
            "file:///a/../b",
            "/a/./b",
            "s3://lake/a//../b",
            "s3:///a",
        ),
        *("s3://user@lake/a", "https://user@lake/a", "s3://lake/a\x00b", "s3://lake/a\nb", "a/b", "", "s3://lake"),
        *("s3://la#ke/a", "s3://la?ke/a", "s3://la\\ke/a", "file://host/a", "\ud800", "s3://lake/\ud800"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(location: str) -> None:
    with pytest.raises(LocationRefused):
        check_literal(location)
    with pytest.raises(Unsafe, match="said"):
        AllowedLocations("s3://lake/t").check_file(location, "said")


@pytest.mark.parametrize("location", ["/a//b", "file:/a///b", "file:///a/b", "//a//b//"])
def test_empty_segments_lead_nowhere_on_a_file_system(location: str) -> None:
    assert check_literal(location) == "file:///a/b"


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%2Fb", "a//b", "a\\b"])
def test_over_http_such_a_name_is_refused(name: str) -> None:
    with pytest.raises(Unsafe):
        AllowedLocations("https://lake/t").check_file(f"https://lake/t/{name}", "said")


def test_a_file_is_not_taken_for_one_whose_name_a_driver_cuts_short() -> None:
    class Cutting(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
        protocol = "cutting"

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(super()._strip_protocol(path.replace("cutting://", "memory://"))).partition("#")[0]

    register_implementation("cutting", Cutting, clobber=True)
    files = FsspecFileSystem("cutting", {})
    assert files.driver_for("cutting://b/a?b")[1] == "cutting://b/a?b"
    for key in ("cutting://b/a#b", "cutting://b/a?versionId=1", "cutting://b/a?versionid=1"):
        with pytest.raises(Unreachable, match="a name that fsspec's driver takes as it is"):
            files.driver_for(key)


@pytest.mark.parametrize(
    "key", ["abfss://c@a.dfs.core.windows.net/t/a?b=c#d", "abfss://c@a.dfs.core.windows.net/t/a?versionid=1"]
)
def test_what_azures_driver_changes_is_refused(key: str) -> None:
    with pytest.raises(Unreachable, match="a name that fsspec's driver takes as it is"):
        FsspecFileSystem("abfss", {"account_name": "a", "anon": True}).driver_for(key)


@pytest.mark.parametrize("location", ["s3://lake//t", "s3://lake/a//t", "/lake//t", "s3://lake/t#1", "s3://lake/t?x"])
def test_the_remedy_for_a_tables_own_location_names_no_setting(location: str) -> None:
    with pytest.raises(LocationRefused) as refused:
        check_location(location, ("s3://lake", "file:///lake"))
    assert "allowed_locations" not in str(refused.value)
    assert refused.value.remedy


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> Directory:
    """A renamed table, under its old and its new name, in one directory with another table."""
    place = Directory(tmp_path / "warehouse" / "shared")
    place.metadata()
    place.metadata("2.metadata.json", uuid=OTHER_UUID)
    place.renamed("sales.orders", "sales.sales")
    place.write("sales.sales")
    place.write("sales.x", guid=OTHER_UUID, metadata_file_path=f"{place.path}/metadata/2.metadata.json")
    return place


def linked(path: Path) -> str:
    link = path.parent.parent / "link"
    link.symlink_to(path)
    return str(link)


def dotted(path: Path) -> str:
    return f"{path}/metadata/.."


def doubled(path: Path) -> str:
    return f"file://{path.parent}//{path.name}"


def rooted_twice(path: Path) -> str:
    return f"file:///{path}"


SPELLINGS = [linked, dotted, doubled, rooted_twice]


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_a_renamed_table_counts_as_here_however_the_directory_is_spelled(
    place: Directory, spelled: Callable[[Path], str]
) -> None:
    with pytest.raises(Ambiguous, match=r"sales\.sales, sales\.x"):
        sfn.resolve(spelled(place.path))


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_only_table_is_found_however_the_directory_is_spelled(place: Directory, spelled: Callable[[Path], str]) -> None:
    place.sfn_file("sales.x").unlink()
    assert sfn.resolve(spelled(place.path)).document.name == "sales"


def test_a_table_that_is_renewed_between_two_looks_still_counts_as_here(place: Directory) -> None:
    place.sfn_file("sales.orders").rename(place.sfn_file("sales.was"))
    current = place.document("sales.sales")
    files = RewrittenFiles(
        place.sfn_file("sales.sales"), replace(current, written_at=place.document(minutes=1).written_at)
    )
    url = directory_url(linked(place.path))
    with pytest.raises(Ambiguous, match=r"sales\.sales, sales\.x"):
        run_synchronously(resolve_question(files, Question(url), FileSystemOptions(url)))


def test_no_directory_is_not_the_working_directory() -> None:
    with pytest.raises(ValueError, match="is a variable not set"):
        sfn.resolve("")


def test_a_path_from_above_is_trusted_as_any_other(place: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.path / "metadata")
    expected = sfn.resolve(place.path, "sales.sales")
    assert sfn.resolve("..", "sales.sales") == expected
    assert sfn.resolve("../../shared", "sales.sales", allowed=["/nowhere"]) == expected


def test_what_is_above_a_link_is_above_what_it_leads_to(place: Directory) -> None:
    linked(place.path / "metadata")
    assert directory_url(place.path.parent / "link" / "..") == directory_url(place.path)
