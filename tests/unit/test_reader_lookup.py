"""Where a reader looks: every placement and naming, by name, by uuid, and by the directory alone."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

import sfn
from sfn.errors import Ambiguous, DirectoryNotFound, Dropped, NameTaken, NotFound, TooManyFiles
from sfn.reader import lookup
from sfn.sfnfile.document import DocumentState
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, UUID, Naming
from tests.support.table_directory import OTHER_UUID, Directory
from tests.support.table_directory import UUID as GUID

NAMINGS = [IDENTIFIER, ORDINAL, UUID]
FOLDERS = {"inside": "metadata/_sfn", "alongside": "_sfn", "a root's": "."}


def placed(tmp_path: Path, folder: str = "metadata/_sfn", naming: Naming = IDENTIFIER) -> Directory:
    place = Directory(tmp_path / "warehouse" / "orders", folder, naming)
    place.metadata()
    return place


@pytest.mark.parametrize("naming", NAMINGS, ids=lambda naming: naming.setting)
@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
def test_a_table_is_found_wherever_its_files_lie_and_whatever_they_are_called(
    tmp_path: Path, folder: str, naming: Naming
) -> None:
    place = placed(tmp_path, folder, naming)
    file = place.write().resolve()
    for found in (
        sfn.resolve(place.path),
        sfn.resolve(place.path, "sales.orders"),
        sfn.resolve(place.path, uuid=GUID),
        sfn.resolve(place.path, uuid=uuid.UUID(GUID)),
        sfn.resolve(place.path, uuid=GUID.upper()),
        sfn.resolve(place.path, "sales.orders", GUID),
    ):
        assert Path(found.sfn_file.removeprefix("file://")).resolve() == file
        assert found.document == place.document()


@pytest.mark.parametrize("naming", NAMINGS, ids=lambda naming: naming.setting)
def test_below_a_root_a_table_is_found_by_its_name(tmp_path: Path, naming: Naming) -> None:
    place = placed(tmp_path)
    kept = Directory(tmp_path / "root" / "eu.sales" / "big%20orders", ".", naming)
    pointer = f"file:{place.path}/metadata/00001-a.metadata.json"
    kept.write("eu.sales.big orders", metadata_file_path=pointer)
    assert sfn.resolve(tmp_path / "root", "eu.sales.big orders").metadata_location == pointer
    assert sfn.resolve(tmp_path / "root" / "eu.sales" / "big%20orders").metadata_location == pointer
    with pytest.raises(NotFound, match=r"root/eu\.sales/other/"):
        sfn.resolve(tmp_path / "root", "eu.sales.other")


def test_a_table_whose_uuid_is_another_is_not_the_one(tmp_path: Path) -> None:
    place = placed(tmp_path)
    place.write()
    for table in (None, "sales.orders"):
        with pytest.raises(NotFound, match=f"with the uuid {OTHER_UUID}"):
            sfn.resolve(place.path, table, OTHER_UUID)


def test_inside_is_looked_at_first(tmp_path: Path) -> None:
    placed(tmp_path, "_sfn").write("sales.alongside", guid=OTHER_UUID)
    place = placed(tmp_path)
    place.write("sales.inside")
    assert sfn.resolve(place.path).document.name == "inside"


@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_what_is_dropped_inside_may_live_alongside(tmp_path: Path, table: str | None) -> None:
    place = placed(tmp_path)
    place.write(state=DocumentState.DROPPED, guid=OTHER_UUID)
    placed(tmp_path, "_sfn").write()
    assert sfn.resolve(place.path, table).document.guid == GUID


def test_a_table_that_lies_alongside_wins_over_one_that_left_from_inside(tmp_path: Path) -> None:
    there = Directory(tmp_path / "there")
    there.metadata(uuid=OTHER_UUID)
    there.write("sales.left", guid=OTHER_UUID)
    place = placed(tmp_path)
    place.write("sales.left", guid=OTHER_UUID, state=DocumentState.MOVED, moved_to=there.link("sales.left"))
    assert sfn.resolve(place.path).document.name == "left"
    placed(tmp_path, "_sfn").write()
    assert sfn.resolve(place.path).document.name == "orders"


@pytest.mark.parametrize("new", [ORDINAL, UUID], ids=lambda naming: naming.setting)
@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
def test_a_move_to_another_naming_and_placement_is_followed(tmp_path: Path, new: Naming, folder: str) -> None:
    there = placed(tmp_path, folder, new)
    there.write(minutes=1)
    place = placed(tmp_path)
    place.write(state=DocumentState.MOVED, moved_to=there.link("sales.orders"))
    for found in (sfn.resolve(place.path), sfn.resolve(place.path, "sales.orders"), sfn.resolve(place.path, uuid=GUID)):
        assert found.document == there.document(minutes=1)


@pytest.mark.parametrize("naming", [IDENTIFIER, ORDINAL], ids=lambda naming: naming.setting)
def test_a_name_that_two_can_share_is_told_apart_in_every_naming(tmp_path: Path, naming: Naming) -> None:
    place = placed(tmp_path, naming=naming)
    place.write("a_b.c")
    place.metadata("2.metadata.json", uuid=OTHER_UUID)
    pointer = f"{place.path}/metadata/2.metadata.json"
    place.write("a.b_c", strict=True, guid=OTHER_UUID, metadata_file_path=pointer)
    assert sfn.resolve(place.path, "a.b_c").metadata_location == pointer
    assert sfn.resolve(place.path, "a_b.c").document.namespace == ("a_b",)


def test_where_files_are_called_by_uuid_a_renamed_table_has_its_new_name_alone(tmp_path: Path) -> None:
    place = placed(tmp_path, naming=UUID)
    place.write("sales.archive")
    assert sfn.resolve(place.path, "sales.archive").found_by is lookup.FoundBy.LISTING
    with pytest.raises(NotFound):
        sfn.resolve(place.path, "sales.orders")


def test_of_two_tables_that_had_one_name_the_newer_is_meant(tmp_path: Path) -> None:
    place = placed(tmp_path, naming=UUID)
    place.metadata("2.metadata.json", uuid=OTHER_UUID)
    place.write()
    place.write(guid=OTHER_UUID, minutes=1, metadata_file_path=f"{place.path}/metadata/2.metadata.json")
    for found in (sfn.resolve(place.path), sfn.resolve(place.path, "sales.orders")):
        assert found.document.guid == OTHER_UUID
    assert sfn.resolve(place.path, uuid=GUID).document.guid == GUID


def test_one_name_in_two_catalogs_is_told_apart_by_uuid(tmp_path: Path) -> None:
    place = placed(tmp_path, naming=UUID)
    place.write()
    place.write(guid=OTHER_UUID, catalog_id="staging")
    for table in (None, "sales.orders"):
        with pytest.raises(Ambiguous, match=f"{OTHER_UUID}, catalog staging.*give its uuid"):
            sfn.resolve(place.path, table)
    assert sfn.resolve(place.path, uuid=GUID).document.guid == GUID


def test_of_many_tables_the_refusal_names_some(tmp_path: Path) -> None:
    place = placed(tmp_path)
    for number in range(40):
        place.write(f"sales.t{number:02}", guid=f"{number}")
    with pytest.raises(Ambiguous, match=r"sales\.t00, .*sales\.t09 and 30 more"):
        sfn.resolve(place.path)


def test_a_name_taken_is_refused_by_name_and_not_by_uuid(tmp_path: Path) -> None:
    place = placed(tmp_path)
    place.renamed("sales.orders", "sales.archive", name_now=place.link("sales.orders"))
    place.write("sales.archive")
    with pytest.raises(NameTaken):
        sfn.resolve(place.path, "sales.orders", GUID)
    assert sfn.resolve(place.path, uuid=GUID).document.name == "archive"


@pytest.mark.parametrize(
    ("folder", "naming"), [("metadata/_sfn", ORDINAL), ("metadata/_sfn", UUID), ("_sfn", IDENTIFIER)]
)
def test_what_took_a_name_is_found_by_it_where_it_lies_in_the_same_directory(
    tmp_path: Path, folder: str, naming: Naming
) -> None:
    """The settings changed between the two, so the file that the old table left has another name or folder."""
    place = placed(tmp_path)
    place.renamed("sales.orders", "sales.archive", name_now=place.link("sales.orders"))
    place.write("sales.archive")
    there = Directory(place.path, folder, naming)
    there.metadata("00002-b.metadata.json", uuid=OTHER_UUID)
    there.write(guid=OTHER_UUID, metadata_file_path=f"file:{place.path}/metadata/00002-b.metadata.json", minutes=1)
    assert sfn.resolve(place.path, "sales.orders").document.guid == OTHER_UUID
    assert sfn.resolve(place.path, "sales.archive").document.guid == GUID


@pytest.mark.parametrize("naming", NAMINGS, ids=lambda naming: naming.setting)
def test_a_dropped_table_is_refused_in_every_naming(tmp_path: Path, naming: Naming) -> None:
    place = placed(tmp_path, naming=naming)
    place.write(state=DocumentState.DROPPED)
    for table, guid in ((None, None), ("sales.orders", None), (None, GUID)):
        with pytest.raises(Dropped, match=r"sales\.orders was dropped"):
            sfn.resolve(place.path, table, guid)


def test_a_directory_that_is_missing_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(DirectoryNotFound, match="no such directory"):
        sfn.resolve(tmp_path / "absent")
    with pytest.raises(NotFound) as refused:
        sfn.resolve(tmp_path)
    assert not isinstance(refused.value, DirectoryNotFound)


def test_more_files_than_a_reader_looks_at_are_refused_unless_the_table_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "MAX_LISTED", 20)
    monkeypatch.setattr(lookup, "MAX_READ", 10)
    place = placed(tmp_path)
    for number in range(10):
        place.write(f"sales.t{number}", guid=f"{number}")
    place.write()
    with pytest.raises(TooManyFiles, match="at most 10 SFN files, found 11; name the table"):
        sfn.resolve(place.path)
    for number in range(10):
        (place.folder / f"{number}.txt").touch()
    with pytest.raises(TooManyFiles, match="at most 20 files, found 21 or more"):
        sfn.resolve(place.path)
    assert sfn.resolve(place.path, "sales.orders").document.name == "orders"


def test_a_directory_full_of_data_hides_no_tombstone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MAX_LISTED", 5)
    place = placed(tmp_path)
    place.write(state=DocumentState.DROPPED)
    for number in range(10):
        (place.path / f"{number}.parquet").touch()
    with pytest.raises(Dropped):
        sfn.resolve(place.path)
