"""The timeline: of the files of single commits, of what the head tells besides, and of a metadata-log."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import sfn
from sfn.errors import CommitNotFound, Dropped, MalformedDocument, Stale, TooManyFiles
from sfn.reader import history
from sfn.reader.history import CommitSource
from sfn.sfnfile.document import CommitEntry, DocumentState, render_ordinal
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, UUID, Naming
from tests.support.table_directory import FIRST_ORDINAL, OTHER_UUID, WRITTEN_AT, Directory
from tests.support.table_directory import UUID as GUID

MINUTE = 60_000


def ordinal(minutes: int) -> int:
    return FIRST_ORDINAL + minutes * MINUTE


def text(minutes: int) -> str:
    return render_ordinal(ordinal(minutes))


def head(place: Directory, minutes: int, **more: Any) -> Path:  # noqa: ANN401 - any attribute
    """Write the head that names a commit."""
    metadata = place.metadata(f"{minutes:05d}-a.metadata.json", uuid=more.get("guid", GUID))
    return place.write(minutes=minutes, ordinal=ordinal(minutes), metadata_file_path=f"file:{metadata}", **more)


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> Directory:
    """Commits in minutes 1, 3, 5 and 7; two before that of minute 5 could not be rebuilt."""
    place = Directory(tmp_path / "orders", naming=ORDINAL)
    for minutes in (1, 3, 5, 7):
        place.commit(minutes, snapshot_id=minutes, gap=2 if minutes == 5 else 0)
    head(place, 7, snapshot_id=7)
    return place


def minutes(entries: list[sfn.HistoryEntry]) -> list[int]:
    return [(entry.ordinal - FIRST_ORDINAL) // MINUTE for entry in entries]


@pytest.mark.parametrize(("table", "uuid"), [(None, None), ("sales.orders", None), (None, GUID)])
async def test_every_commit_is_told_in_order(place: Directory, table: str | None, uuid: str | None) -> None:
    found = sfn.history(place.path, table, uuid)
    assert minutes(found) == [1, 3, 5, 7]
    assert {entry.source for entry in found} == {CommitSource.COMMIT}
    third = found[2]
    assert third.metadata_location == f"file:{place.path}/metadata/00005-a.metadata.json"
    assert (third.snapshot_id, third.gap, third.state) == (5, 2, DocumentState.CURRENT)
    assert third.written_at == WRITTEN_AT + timedelta(minutes=5)
    assert third.at == datetime(2023, 11, 14, 22, 18, 20, tzinfo=UTC)
    assert await sfn.ahistory(place.path, table, uuid) == found


def test_commits_whose_files_are_still_to_be_created_are_told_by_the_head(place: Directory) -> None:
    paths = {number: f"file:{place.metadata(f'{number:05d}-a.metadata.json')}" for number in (8, 9)}
    head(
        place, 10, snapshot_id=10, between=(CommitEntry(ordinal(8), paths[8]), CommitEntry(ordinal(9), paths[9], gap=3))
    )
    found = sfn.history(place.path)
    assert minutes(found) == [1, 3, 5, 7, 8, 9, 10]
    assert [entry.source for entry in found[4:]] == [CommitSource.LEADING] * 3
    assert [(entry.metadata_location, entry.snapshot_id, entry.gap) for entry in found[4:6]] == [
        (paths[8], None, 0),
        (paths[9], None, 3),
    ]
    place.commit(8, snapshot_id=8)
    assert [(entry.snapshot_id, entry.source) for entry in sfn.history(place.path)[4:6]] == [
        (8, CommitSource.COMMIT),
        (None, CommitSource.LEADING),
    ]


def test_only_the_newest_are_told_where_no_more_are_wanted(place: Directory) -> None:
    assert minutes(sfn.history(place.path, limit=2)) == [5, 7]
    with pytest.raises(ValueError, match="`limit` must be 1 or more"):
        sfn.history(place.path, limit=0)


def test_another_tables_commits_are_not_told(place: Directory) -> None:
    place.commit(2, guid=OTHER_UUID)
    place.commit(4, catalog_id="another")
    place.commit(6, "sales.orders_x")
    assert minutes(sfn.history(place.path)) == [1, 3, 5, 7]


def test_other_tables_commits_between_do_not_make_the_history_shorter(
    place: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.commit(4, guid=OTHER_UUID)
    place.commit(6, guid=OTHER_UUID)
    assert minutes(sfn.history(place.path, limit=3)) == [3, 5, 7]
    monkeypatch.setattr(history, "MAX_READ", 1)
    with pytest.raises(TooManyFiles, match="at most 1 files of commits, found more that are other tables'"):
        sfn.history(place.path, limit=3)


def test_a_file_of_another_commit_than_its_name_says_is_told_of(place: Directory) -> None:
    place.commit(5).rename(place.commit(3))
    with pytest.raises(MalformedDocument, match=f"expected the Ordinal of its name, found {text(5)}"):
        sfn.history(place.path)


def test_a_broken_file_of_a_commit_is_told_of(place: Directory) -> None:
    place.commit(3).write_bytes(b"{")
    with pytest.raises(MalformedDocument, match=text(3)):
        sfn.history(place.path)


def test_a_dropped_table_has_its_timeline(place: Directory) -> None:
    head(place, 7, snapshot_id=7, state=DocumentState.DROPPED)
    found = sfn.history(place.path)
    assert minutes(found) == [1, 3, 5, 7]
    assert [entry.state for entry in found] == [DocumentState.CURRENT] * 3 + [DocumentState.DROPPED]


def test_a_renamed_tables_former_commits_are_told_to_who_comes_by_its_former_name(place: Directory) -> None:
    head(place, 7, state=DocumentState.RENAMED, moved_to=place.link("sales.archive"))
    place.commit(9, "sales.archive")
    metadata = place.metadata("00009-a.metadata.json")
    place.write("sales.archive", minutes=9, ordinal=ordinal(9), metadata_file_path=f"file:{metadata}")
    assert minutes(sfn.history(place.path, "sales.orders")) == [1, 3, 5, 7, 9]
    assert minutes(sfn.history(place.path, "sales.archive")) == [9]


@pytest.mark.parametrize(
    ("at", "expected", "lost"),
    [(1, 1, 0), (2, 1, 0), (3, 3, 2), (4, 3, 2), (5, 5, 0), (6, 5, 0), (7, 7, 0), (99, 7, 0)],
)
@pytest.mark.parametrize("table", [None, "sales.orders"])
def test_what_was_current_at_a_time(place: Directory, table: str | None, at: int, expected: int, lost: int) -> None:
    found = sfn.resolve(place.path, table, as_of=text(at))
    assert found.metadata_location == f"file:{place.path}/metadata/{expected:05d}-a.metadata.json"
    assert (found.snapshot_id, found.missing_commits) == (expected, lost)
    moment = datetime.fromtimestamp(ordinal(at) / 1000, UTC)
    assert sfn.resolve(place.path, table, as_of=moment) == found


def test_before_the_first_known_commit_there_is_none(place: Directory) -> None:
    with pytest.raises(
        CommitNotFound, match=f"at or before {text(0)}, found none; the first that is known is {text(1)}"
    ):
        sfn.resolve(place.path, as_of=text(0))


def test_a_commit_that_only_the_head_tells_of_is_found_too(place: Directory) -> None:
    path = f"file:{place.metadata('00008-a.metadata.json')}"
    file = head(place, 9, between=(CommitEntry(ordinal(8), path, gap=4),))
    found = sfn.resolve(place.path, as_of=text(8))
    assert (found.metadata_location, found.snapshot_id, found.sfn_file) == (path, None, file.as_uri())
    assert sfn.resolve(place.path, as_of=text(7)).missing_commits == 4


def test_another_tables_commits_were_never_current(place: Directory) -> None:
    place.commit(0, guid=OTHER_UUID)
    place.commit(4, guid=OTHER_UUID)
    assert sfn.resolve(place.path, as_of=text(4)).snapshot_id == 3
    with pytest.raises(CommitNotFound):
        sfn.resolve(place.path, as_of=text(0))


def test_a_dropped_table_is_found_as_it_was_and_not_as_it_is(place: Directory) -> None:
    head(place, 7, snapshot_id=7, state=DocumentState.DROPPED)
    assert sfn.resolve(place.path, as_of=text(5)).snapshot_id == 5
    assert sfn.resolve(place.path, as_of=text(7)).snapshot_id == 7
    with pytest.raises(CommitNotFound, match=r"whether sales\.orders was still there at .* found its last commit"):
        sfn.resolve(place.path, as_of=text(8))
    for as_of in ("20260822T000000000", None):
        with pytest.raises(Dropped):
            sfn.resolve(place.path, as_of=as_of)


def test_a_commit_whose_metadata_was_deleted_since_is_no_sign_of_a_stale_file(place: Directory) -> None:
    (place.path / "metadata" / "00003-a.metadata.json").unlink()
    with pytest.raises(CommitNotFound, match="that it was deleted since; keep them longer"):
        sfn.resolve(place.path, as_of=text(3))


def test_so_many_foreign_commits_are_looked_through_and_no_more(
    place: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_READ", 3)
    for number in (60, 61, 62, 63):
        place.commit(number, guid=OTHER_UUID)
    head(place, 70)
    with pytest.raises(TooManyFiles, match="at most 3 files of commits"):
        sfn.resolve(place.path, as_of=text(65))


@pytest.mark.parametrize(
    "as_of",
    [
        *("", "now", "20231114", "2023-11-14", "20231399T000000000", "2023-13-01T00:00Z", "x" * 1_000),
        *(True, 1.5, -1, 10**18, date(2026, 1, 1), timedelta(1), b"x", [1], object()),
        *(datetime(2026, 1, 1), "2026-01-01T00:00", "20260101 0000"),  # noqa: DTZ001 - that is the mistake
        *(datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), "0001-01-01T00:00+14:00"),
    ],
)
def test_what_is_no_time_is_explained_in_a_type_error(place: Directory, as_of: Any) -> None:  # noqa: ANN401
    for ask in (sfn.resolve, sfn.read):
        with pytest.raises(TypeError, match=r"time zone|in the years 1 to 9999") as refused:
            ask(place.path, as_of=as_of)
        assert isinstance(refused.value, ValueError)
        assert len(str(refused.value)) < 400


def test_a_time_may_be_said_in_several_forms(place: Directory) -> None:
    first, second, *_ = sfn.history(place.path)
    expected = sfn.resolve(place.path, as_of=text(3))
    assert expected.document.ordinal == second.ordinal != first.ordinal
    said = second.at.isoformat()
    forms: list[Any] = [
        *(second, second.ordinal, str(second.ordinal), second.at, said, said.replace("+00:00", "Z"), f"{text(3)}Z"),
        *(second.at.astimezone(timezone(timedelta(hours=5))), said.replace("T", " ")),
    ]
    for form in forms:
        assert sfn.resolve(place.path, as_of=form) == expected


def logged(tmp_path: Path, naming: Naming, *times: int) -> Directory:
    """A table whose metadata remembers earlier files, of these minutes; the last is the present one."""
    place = Directory(tmp_path / "orders", naming=naming)
    files = [place.metadata(f"{number:05d}-a.metadata.json") for number in range(len(times))]
    log = [
        {"timestamp-ms": ordinal(at), "metadata-file": f"file:{file}"} for at, file in zip(times, files, strict=True)
    ]
    place.metadata(files[-1].name, last_updated_ms=ordinal(times[-1]), metadata_log=log[:-1])
    place.write(metadata_file_path=f"file:{files[-1]}", ordinal=ordinal(times[-1]), snapshot_id=9)
    return place


@pytest.mark.parametrize("naming", [IDENTIFIER, UUID], ids=lambda naming: naming.setting)
def test_elsewhere_the_metadata_itself_tells_the_timeline(tmp_path: Path, naming: Naming) -> None:
    place = logged(tmp_path, naming, 1, 3, 5)
    found = sfn.history(place.path)
    assert minutes(found) == [1, 3, 5]
    assert [entry.source for entry in found] == [CommitSource.LOG, CommitSource.LOG, CommitSource.LEADING]
    assert [entry.snapshot_id for entry in found] == [None, None, 9]
    assert (found[0].written_at, found[2].written_at) == (None, WRITTEN_AT)
    assert minutes(sfn.history(place.path, limit=2)) == [3, 5]


@pytest.mark.parametrize(("at", "expected"), [(1, 0), (2, 0), (3, 1), (5, 2), (9, 2)])
def test_elsewhere_the_metadata_itself_tells_what_was_current(tmp_path: Path, at: int, expected: int) -> None:
    place = logged(tmp_path, IDENTIFIER, 1, 3, 5)
    found = sfn.resolve(place.path, as_of=text(at))
    assert found.metadata_location == f"file:{place.path}/metadata/{expected:05d}-a.metadata.json"


def test_times_that_are_in_no_order_tell_nothing_that_is_not_certain(tmp_path: Path) -> None:
    place = logged(tmp_path, IDENTIFIER, 1, 5, 3, 7)
    assert sfn.resolve(place.path, as_of=text(2)).metadata_location.endswith("00000-a.metadata.json")
    assert sfn.resolve(place.path, as_of=text(6)).metadata_location.endswith("00002-a.metadata.json")
    with pytest.raises(CommitNotFound, match="not in order"):
        sfn.resolve(place.path, as_of=text(4))
    with pytest.raises(CommitNotFound, match=f"nothing before {text(1)}"):
        sfn.resolve(place.path, as_of=text(0))


def test_a_dropped_table_without_files_of_commits_has_no_timeline(tmp_path: Path) -> None:
    place = logged(tmp_path, IDENTIFIER, 1, 3)
    place.write(state=DocumentState.DROPPED)
    for ask in (sfn.history, lambda path: sfn.resolve(path, as_of=text(1))):
        with pytest.raises(Dropped):
            ask(place.path)


def test_a_timeline_whose_metadata_is_gone_is_stale(tmp_path: Path) -> None:
    place = logged(tmp_path, IDENTIFIER, 1, 3)
    (place.path / "metadata" / "00001-a.metadata.json").unlink()
    with pytest.raises(Stale, match="no such file"):
        sfn.history(place.path)
