"""A version hint that is a number, as tables that are nothing but a folder have it: their own writers keep it."""

from __future__ import annotations

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import Table
from sfn.inbox.memory import MemoryInbox
from sfn.sfnfile import version_hint
from tests.promises.inboxes import TERMS
from tests.unit.publishing import AT, A, Line

pytestmark = pytest.mark.anyio
HINT_AT = version_hint.key_of(AT)
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
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
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
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    assert line.hint() is None


async def test_one_that_is_taken_away_is_made_anew_and_then_ours() -> None:
    line = await registered(b"2")
    assert "hint_was" not in line.document(A)
    del line.store.files[HINT_AT]
    await line.hear(Notification(A), seconds=20)
    assert line.hint() == b"2"
    await replaced(line)
    assert line.hint() not in {None, b"2"}
