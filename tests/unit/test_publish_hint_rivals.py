"""Version hints by which a reader would open another metadata file: none is written, and an old one goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import Table
from sfn.inbox.memory import MemoryInbox
from sfn.sfnfile import version_hint
from tests.promises.inboxes import TERMS
from tests.unit.publishing import AT, A, Line

pytestmark = pytest.mark.anyio
HINT_AT = version_hint.key_of(AT)
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
