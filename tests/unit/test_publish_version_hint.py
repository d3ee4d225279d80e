"""Publishing of version hints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import Table
from sfn.domain.jobs import Outcome, PublishResult
from sfn.publish.plan import MAX_FOREIGN_HINT_BYTES
from sfn.sfnfile import version_hint
from tests.promises.inboxes import TERMS
from tests.support.memory_inbox import MemoryInbox
from tests.support.publishing import AT, A, Line, key_of

HINT_AT = version_hint.key_of(AT)


def findings_of(outcome: Outcome) -> PublishResult:
    found = getattr(outcome, "result", None)
    assert isinstance(found, PublishResult)
    return found


@pytest.fixture
async def line() -> Line:
    """One with a table whose hint was overwritten."""
    line = Line()
    await line.publish_new()
    line.store.files[HINT_AT] = b"7"
    return line


async def test_what_was_written_before_the_race_for_the_hint_was_lost_is_told_and_pauses_the_next(line: Line) -> None:
    table = line.catalog.commit(A)
    await line.hear(Notification(A, min_metadata_location=table.metadata_location))
    assert line.document(A)["metadata_file_path"] == table.metadata_location
    assert line.hint() == b"7"
    done = findings_of(line.outcomes[-1])
    assert done.written_keys == (key_of(A),)
    assert done.not_before == line.clock.now() + line.policy.min_publish_interval


async def test_that_a_hint_is_not_ours_is_known_until_it_is_removed(line: Line) -> None:
    await line.hear(Notification(A), seconds=20)
    assert findings_of(line.outcomes[-1]).table_state.foreign_version_hint == "7"
    assert line.hint() == b"7"
    del line.store.files[HINT_AT]
    await line.hear(Notification(A), seconds=20)
    assert findings_of(line.outcomes[-1]).table_state.foreign_version_hint is None
    assert line.hint() not in {b"7", None}


async def test_of_a_long_hint_its_beginning_is_enough(line: Line) -> None:
    line.store.files[HINT_AT] = b"\xff" + b"x" * 9_000
    await line.hear(Notification(A), seconds=20)
    assert findings_of(line.outcomes[-1]).table_state.foreign_version_hint == "\ufffd" + "x" * (
        MAX_FOREIGN_HINT_BYTES - 1
    )


async def test_a_hint_that_somebody_else_wrote_as_ours_would_be_is_right() -> None:
    line = Line()
    line.store.files[HINT_AT] = version_hint.content(line.catalog.create(A)) or b""
    await line.hear(Notification(A), seconds=20)
    assert {findings_of(outcome).table_state.foreign_version_hint for outcome in line.outcomes} == {None}


async def test_who_wants_no_hint_is_told_of_none(line: Line) -> None:
    line.policy = replace(line.policy, version_hint=False)
    await line.hear(Notification(A), seconds=20)
    assert findings_of(line.outcomes[-1]).table_state.foreign_version_hint is None


STEM = "00002-9c12d441-03fe-4693-9a96-a0705ddf69c1"
REFRESH = 9 * 3600


def pointer(stem: str) -> str:
    return f"{AT}/metadata/{stem}.metadata.json"


def table(stem: str, *log: str) -> Table:
    return Table(
        uuid="00000000-0000-0000-0000-00000000000a",
        location=AT,
        metadata_location=pointer(stem),
        metadata_log=tuple(map(pointer, log)),
        last_updated_ms=1_700_000_000_000 + len(log),
    )


async def published(stem: str, *beside: str) -> Line:
    """A line with a table that was published once.

    Args:
        beside: metadata files that lie beside its own.
    """
    line = Line()
    for name in (stem, *beside):
        line.store.files[pointer(name)] = b"{}"
    line.catalog.register(A, table(stem))
    await line.hear(Notification(A), seconds=20)
    assert line.document(A)["metadata_file_path"] == pointer(stem)
    return line


def plant(line: Line, text: str, *, is_noted: bool) -> None:
    """Let the files be as an earlier version left them that wrote another hint.

    Args:
        is_noted: the document says so, as it does of numbers; otherwise the inbox alone knows.
    """
    line.store.files[HINT_AT] = text.encode()
    if is_noted:
        key = next(key for key in line.store.files if key.endswith(".ver"))
        line.store.files[key] = line.store.files[key].replace(
            b'"written_at"', f'"hint_was": ["{text}"],\n  "written_at"'.encode()
        )


@pytest.mark.parametrize("stem", ["3", "00003", "+3", "1e3", "a b"])
async def test_a_name_that_readers_take_for_another_has_no_hint(stem: str) -> None:
    line = await published(stem, "v3")
    assert line.hint() is None


async def test_there_is_no_hint_where_duckdb_would_open_another_file() -> None:
    line = await published(STEM, f"v{STEM}")
    assert line.hint() is None


async def test_a_file_that_is_called_otherwise_keeps_no_hint_away() -> None:
    line = await published(STEM, f"v{STEM}.gz", "v2", f"{STEM}.gz")
    assert line.hint() == STEM.encode()


async def test_digits_mean_one_file_whatever_lies_beside_it() -> None:
    line = await published("v3", "vv3", "3", "v4", "v03")
    assert line.hint() == b"3"


async def test_the_hint_goes_when_the_next_metadata_file_has_a_rival() -> None:
    line = await published("v1")
    assert line.hint() == b"1"
    line.store.files[pointer(f"v{STEM}")] = b"{}"
    line.catalog.amend(A, table(STEM, "v1"))
    await line.hear(Notification(A), seconds=20)
    assert line.document(A)["metadata_file_path"] == pointer(STEM)
    assert line.hint() is None
    line.catalog.amend(A, table("v3", "v1", STEM))
    await line.hear(Notification(A), seconds=20)
    assert line.hint() == b"3"


async def test_a_rival_that_comes_later_is_found_by_the_refresh() -> None:
    line = await published(STEM)
    assert line.hint() == STEM.encode()
    line.store.files[pointer(f"v{STEM}")] = b"{}"
    await line.work(seconds=REFRESH)
    assert line.hint() is None
    assert line.document(A)["metadata_file_path"] == pointer(STEM)


async def test_a_number_that_an_earlier_version_wrote_goes_with_the_next_publish() -> None:
    line = await published("3", "v3")
    plant(line, "3", is_noted=True)
    line.inbox = MemoryInbox(TERMS, line.clock)
    await line.hear(Notification(A), seconds=20)
    assert line.hint() is None


async def test_a_number_that_is_remembered_goes_with_the_next_publish() -> None:
    line = await published("v3", "3")
    assert line.hint() == b"3"
    line.catalog.amend(A, table("3", "v3"))
    await line.hear(Notification(A), seconds=20)
    assert line.hint() is None


async def test_a_text_that_an_earlier_version_wrote_is_replaced_though_the_inbox_was_lost() -> None:
    line = await published("a b")
    plant(line, "a b", is_noted=False)
    line.inbox = MemoryInbox(TERMS, line.clock)
    line.catalog.amend(A, table("v2", "a b"))
    await line.hear(Notification(A), seconds=20)
    assert line.hint() == b"2"


async def test_the_hint_of_somebody_else_stays_beside_a_name_without_a_hint() -> None:
    line = Line()
    line.store.files[HINT_AT] = b"3"
    line.catalog.register(A, replace(table("3"), metadata_log=()))
    await line.hear(Notification(A), seconds=20)
    await line.work(seconds=REFRESH)
    assert line.hint() == b"3"


SECOND, THIRD = (
    Table(
        uuid="00000000-0000-0000-0000-00000000000a",
        location=AT,
        metadata_location=f"{AT}/metadata/v{number}.metadata.json",
        metadata_log=tuple(f"{AT}/metadata/v{earlier}.metadata.json" for earlier in range(1, number)),
        last_updated_ms=1_700_000_000_000 + number,
    )
    for number in (2, 3)
)


async def registered(hint: bytes | None) -> Line:
    """A line with a folder's table that has got a name in the catalog.

    Args:
        hint: what the folder's hint said before.
    """
    line = Line()
    line.store.files[SECOND.metadata_location] = b"{}"
    if hint is not None:
        line.store.files[HINT_AT] = hint
    line.catalog.register(A, SECOND)
    await line.hear(Notification(A), seconds=20)
    assert line.document(A)["metadata_file_path"] == SECOND.metadata_location
    return line


async def replaced(line: Line) -> None:
    """A commit through the catalog, whose files have other names."""
    table = line.catalog.commit(A)
    await line.hear(Notification(A, min_metadata_location=table.metadata_location), seconds=20)
    assert line.document(A)["metadata_file_path"] == table.metadata_location


@pytest.mark.parametrize("hint", [b"1", b"2", b"3"])
async def test_the_folders_own_hint_is_left_alone_whatever_the_catalog_says(hint: bytes) -> None:
    line = await registered(hint)
    assert line.hint() == hint
    await replaced(line)
    assert line.hint() == hint


@pytest.mark.parametrize("hint", [b"1", b"2", b"3"])
async def test_the_folders_own_hint_outlives_its_name_in_the_catalog(hint: bytes) -> None:
    line = await registered(hint)
    await line.drop()
    assert line.document(A)["state"] == "dropped"
    assert line.hint() == hint


@pytest.mark.parametrize("is_known", [True, False], ids=["remembered", "by its document"])
async def test_one_that_we_made_is_kept(is_known: bool) -> None:
    line = await registered(None)
    assert line.hint() == b"2"
    assert line.document(A)["hint_was"] == ["2"]
    if not is_known:
        line.inbox = MemoryInbox(TERMS, line.clock)
    line.catalog.amend(A, THIRD)
    await line.hear(Notification(A, min_metadata_location=THIRD.metadata_location), seconds=20)
    assert line.hint() == b"3"
    assert line.document(A)["hint_was"] == ["3", "2"]
    await replaced(line)
    assert line.hint() not in {None, b"2", b"3"}


async def test_one_that_we_made_goes_with_its_table() -> None:
    line = await registered(None)
    line.inbox = MemoryInbox(TERMS, line.clock)
    await line.hear(Notification(A), seconds=20)
    await line.drop()
    assert line.hint() is None


async def test_one_that_is_taken_away_is_made_anew_and_then_ours() -> None:
    line = await registered(b"2")
    assert "hint_was" not in line.document(A)
    del line.store.files[HINT_AT]
    await line.hear(Notification(A), seconds=20)
    assert line.hint() == b"2"
    await replaced(line)
    assert line.hint() not in {None, b"2"}
