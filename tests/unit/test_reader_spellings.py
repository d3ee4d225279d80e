"""A directory that a reader spells otherwise than the catalog does: it is the same one, with the same tables in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

import sfn
from sfn.errors import Ambiguous
from sfn.reader.files import FileSystemOptions, LocalFileSystem, directory_url, run_synchronously
from sfn.reader.resolve import Question, resolve_question
from sfn.sfnfile import document
from sfn.sfnfile.document import Document
from tests.unit.directory import OTHER_UUID, Directory


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
def test_the_only_table_is_found_however_the_directory_is_spelled(
    place: Directory, spelled: Callable[[Path], str]
) -> None:
    place.sfn_file("sales.x").unlink()
    assert sfn.resolve(spelled(place.path)).document.name == "sales"


class Refreshed(LocalFileSystem):
    """Files of which the service renews one right after the first look at it."""

    def __init__(self, file: Path, successor: Document) -> None:
        super().__init__()
        self._file, self._successor = file, successor

    @override
    async def read(self, key: str, most: int, start: int = 0) -> bytes | None:
        body = await super().read(key, most, start)
        if key.endswith(self._file.name):
            self._file.write_bytes(document.render(self._successor))
        return body


def test_a_table_that_is_renewed_between_two_looks_still_counts_as_here(place: Directory) -> None:
    place.sfn_file("sales.orders").rename(place.sfn_file("sales.was"))
    current = place.document("sales.sales")
    files = Refreshed(place.sfn_file("sales.sales"), replace(current, written_at=place.document(minutes=1).written_at))
    url = directory_url(linked(place.path))
    with pytest.raises(Ambiguous, match=r"sales\.sales, sales\.x"):
        run_synchronously(resolve_question(files, Question(url), FileSystemOptions(url)))


def test_no_directory_is_not_the_working_directory() -> None:
    with pytest.raises(ValueError, match="a variable that is not set"):
        sfn.resolve("")


def test_a_path_from_above_is_trusted_as_any_other(place: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.path / "metadata")
    expected = sfn.resolve(place.path, "sales.sales")
    assert sfn.resolve("..", "sales.sales") == expected
    assert sfn.resolve("../../shared", "sales.sales", allowed=["/nowhere"]) == expected


def test_what_is_above_a_link_is_above_what_it_leads_to(place: Directory) -> None:
    linked(place.path / "metadata")
    assert directory_url(place.path.parent / "link" / "..") == directory_url(place.path)
