"""What finding a table costs, counted where the store is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem
from typing_extensions import override

import sfn
from sfn.reader.files import RequestCounts
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, UUID, Naming
from tests.support.table_directory import FIRST_ORDINAL, Directory
from tests.support.table_directory import UUID as GUID

PAGE = 1_000
"""Keys in one page of a listing, on S3 and elsewhere."""


class Metered(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """A store that counts what it is asked; a listing is one request a page."""

    protocol = "metered"
    gets = lists = 0

    @override
    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: object) -> bytes:
        Metered.gets += 1
        return bytes(super().cat_file(path, start, end, **kwargs))

    @override
    def ls(self, path: str, detail: bool = True, **kwargs: object) -> list[object]:
        Metered.lists += 1
        found = list(super().ls(path, detail, **kwargs))
        Metered.lists += max(0, len(found) - 1) // PAGE
        return found

    @classmethod
    @override
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("metered://", "memory://")))


@pytest.fixture(name="store", autouse=True)
def fixture_store() -> Iterator[type[Metered]]:
    register_implementation("metered", Metered, clobber=True)
    Metered.gets = Metered.lists = 0
    yield Metered
    Metered.store.clear()


def uploaded(place: Directory) -> str:
    """A directory's copy in the store."""
    for file in place.path.rglob("*"):
        if file.is_file():
            body = file.read_bytes().replace(f"file:{place.path}".encode(), b"metered://lake/orders")
            Metered().pipe_file(f"metered://lake/orders/{file.relative_to(place.path)}", body)
    return "metered://lake/orders"


def placed(tmp_path: Path, naming: Naming = IDENTIFIER, folder: str = "metadata/_sfn") -> Directory:
    place = Directory(tmp_path / "orders", folder, naming)
    place.metadata()
    place.write()
    return place


def test_a_known_name_takes_one_get_and_one_for_the_metadata(tmp_path: Path) -> None:
    directory = uploaded(placed(tmp_path))
    found = sfn.resolve(directory, "sales.orders")
    assert found.requests == RequestCounts(2, 0) == RequestCounts(Metered.gets, Metered.lists)


@pytest.mark.parametrize("naming", [IDENTIFIER, ORDINAL, UUID], ids=lambda naming: naming.setting)
def test_without_a_name_it_takes_one_list_more(tmp_path: Path, naming: Naming) -> None:
    directory = uploaded(placed(tmp_path, naming))
    found = sfn.resolve(directory)
    assert found.requests == RequestCounts(2, 1) == RequestCounts(Metered.gets, Metered.lists)


def test_a_known_uuid_takes_one_get_where_files_are_called_by_it(tmp_path: Path) -> None:
    directory = uploaded(placed(tmp_path, UUID))
    assert (
        sfn.resolve(directory, uuid=GUID).requests == RequestCounts(2, 0) == RequestCounts(Metered.gets, Metered.lists)
    )


def test_commits_and_branches_beside_it_cost_nothing(tmp_path: Path) -> None:
    place = placed(tmp_path, ORDINAL)
    for minutes in range(500):
        place.commit(minutes)
    place.write(ordinal=FIRST_ORDINAL + 499 * 60_000)
    directory = uploaded(place)
    assert sfn.resolve(directory).requests == RequestCounts(2, 1) == RequestCounts(Metered.gets, Metered.lists)
    # The name's own file is looked for before the head is.
    assert sfn.resolve(directory, "sales.orders").requests == RequestCounts(3, 0)
    # And what was current at a time takes the commit's own file, and the next one, which knows what is lost between.
    assert sfn.resolve(directory, as_of="20231114T224500").requests == RequestCounts(4, 2)


def test_a_branch_costs_nothing_to_those_who_ask_for_main(tmp_path: Path) -> None:
    place = placed(tmp_path)
    for number in range(50):
        place.write(ref=f"b{number}")
    assert sfn.resolve(uploaded(place)).requests == RequestCounts(2, 1)


def test_alongside_is_one_look_further(tmp_path: Path) -> None:
    directory = uploaded(placed(tmp_path, folder="_sfn"))
    assert sfn.resolve(directory).requests == RequestCounts(2, 2) == RequestCounts(Metered.gets, Metered.lists)


def test_a_hop_is_one_get_more(tmp_path: Path) -> None:
    place = placed(tmp_path)
    place.renamed("sales.was", "sales.orders")
    found = sfn.resolve(place.path, "sales.was")
    assert found.requests == RequestCounts(3, 0)
    assert found.via == (place.sfn_file("sales.was").as_uri(),)
