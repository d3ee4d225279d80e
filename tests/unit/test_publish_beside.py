"""Files that lie beside ours and that no row of ours knows: another catalog's, another inbox's, a lost inbox's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sfn.domain.events import Notification
from sfn.errors import Transient
from sfn.publish.existing_files import pointer_files
from sfn.publish.policy import Policy
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, UUID, FileLayout, FileOwner, Naming
from tests.promises.inboxes import TERMS
from tests.unit.publishing import AT, LAG, A, B, FailingStore, Line, key_of, named

pytestmark = pytest.mark.anyio

C = named("c")
ELSEWHERE = "file:///warehouse/elsewhere"
HOUR = 3600


@pytest.fixture
def line() -> Line:
    return Line()


def lay(line: Line, key: str, document: dict[str, Any], **changed: object) -> None:
    """Write a document as somebody else does."""
    line.store.files[key] = json.dumps(document | changed).encode()


async def only(line: Line, *names: object) -> None:
    """Publish what is due of these tables; others are not looked at."""
    await line.work(only=lambda table: table in names)


@pytest.mark.parametrize("catalog", ["c1", "c2"])
async def test_a_hint_that_a_live_file_of_somebody_elses_says_stays(line: Line, catalog: str) -> None:
    """Two catalogs, or two inboxes, that know one metadata file have the same hint."""
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=60)
    lay(line, key_of(B), line.document(A), catalog_id=catalog, name="b")
    said = line.hint()
    line.catalog.commit(A, ELSEWHERE)
    await line.hear(Notification(A), seconds=60)
    assert line.document(A)["state"] == "moved"
    assert line.hint() == said is not None


async def test_a_hint_that_only_a_tombstone_says_goes(line: Line) -> None:
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=60)
    lay(
        line, key_of(B), line.document(A), catalog_id="c2", name="b", state="dropped", dropped_at="2026-01-01T00:00:00Z"
    )
    line.catalog.commit(A, ELSEWHERE)
    await line.hear(Notification(A), seconds=60)
    assert line.document(A)["state"] == "moved"
    assert line.hint() is None


async def test_two_tables_of_one_directory_that_end_at_once_leave_no_hint(line: Line) -> None:
    """The second one found the hint of the first: its file lists that text, and yet the hint is not its own."""
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=60)
    said = (line.hint() or b"").decode()
    other = f"{AT}/metadata/00009-of-the-other-table.metadata.json"
    theirs = {"name": "b", "guid": "another", "metadata_file_path": other, "hint_was": [said]}
    lay(line, key_of(B), line.document(A), **theirs)
    line.catalog.commit(A, ELSEWHERE)
    await line.hear(Notification(A), seconds=60)
    assert line.document(A)["state"] == "moved"
    assert line.hint() is None


async def test_a_hint_that_the_same_table_under_another_name_will_replace_stays(line: Line) -> None:
    """Its writer has written the file, not yet the hint, which then fails and is done again."""
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=60)
    said = line.hint()
    other = f"{AT}/metadata/00009-of-this-table.metadata.json"
    lay(line, key_of(B), line.document(A), name="b", metadata_file_path=other, hint_was=[(said or b"").decode()])
    line.catalog.commit(A, ELSEWHERE)
    await line.hear(Notification(A), seconds=10)
    assert line.hint() == said is not None


@pytest.mark.parametrize(("naming", "seen_at_once"), [(IDENTIFIER, False), (UUID, False), (ORDINAL, True)])
async def test_a_second_table_of_another_catalog_ends_the_hint_once_it_is_seen(
    naming: Naming, seen_at_once: bool
) -> None:
    """At the refresh at the latest: a listing at each commit would be for this case alone."""
    line = Line(Policy("c1", replica_lag=LAG, is_swept=False, naming=naming, min_publish_interval=LAG))
    table = line.catalog.create(A)
    line.store.files[table.metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=60)
    (ours,) = (key for key in pointer_files(line.store.files))
    theirs = FileLayout(AT, naming).keys(FileOwner(("n",), "b", "another"))[0]
    lay(line, theirs, json.loads(line.store.files[ours]), catalog_id="c2", name="b", guid="another")
    line.catalog.commit(A)
    await line.hear(Notification(A), seconds=60)
    assert (line.hint() is None) == seen_at_once
    await line.work(line.policy.refresh_after.total_seconds())
    assert line.hint() is None


async def renamed_under_an_older_file(line: Line) -> str:
    """The table is called B by its newest file, and an older pointer of it still lies under A: the newer pointer."""
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=20)
    second = line.catalog.commit(A)
    line.catalog.rename(A, B)
    await line.inbox.put([Notification(B)])
    await only(line, B)
    line.clock.turn(2 * LAG.total_seconds())
    assert line.document(A)["metadata_file_path"] != line.document(B)["metadata_file_path"] == second.metadata_location
    return second.metadata_location


async def all_gone_older_first(line: Line, pointer: str) -> None:
    assert line.document(B)["metadata_file_path"] == pointer
    assert (line.document(A)["state"], line.document(B)["state"]) == ("current", "current")
    await line.work(HOUR)
    assert "current" not in {line.document(A).get("state"), line.document(B).get("state")}


async def test_a_table_that_can_not_follow_to_its_place_leaves_after_its_older_files(line: Line) -> None:
    pointer = await renamed_under_an_older_file(line)
    lay(line, key_of(B, ELSEWHERE), line.document(B), catalog_id="c2", guid="theirs")
    line.catalog.commit(B, ELSEWHERE)
    await line.inbox.put([Notification(B)])
    await only(line, B)
    await all_gone_older_first(line, pointer)


async def test_a_table_that_can_not_follow_to_its_name_leaves_after_its_older_files(line: Line) -> None:
    pointer = await renamed_under_an_older_file(line)
    lay(line, key_of(C), line.document(B), catalog_id="c2", name="c", guid="theirs")
    line.catalog.rename(B, C)
    await line.inbox.put([Notification(B, renamed_to=C)])
    await only(line, B, C)
    await all_gone_older_first(line, pointer)


async def test_what_lies_at_a_new_place_is_seen_though_whoever_wrote_there_never_settled(line: Line) -> None:
    """The process died after it had written: whom it saw beside the file it never told."""
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=60)
    table = line.catalog.commit(A, ELSEWHERE)
    lay(line, key_of(B, ELSEWHERE), line.document(A), name="b", guid="gone long ago")
    lay(line, key_of(A, ELSEWHERE), line.document(A), metadata_file_path=table.metadata_location)
    hint = version_hint.content(table)
    assert hint is not None
    line.store.files[version_hint.key_of(ELSEWHERE)] = hint
    await line.hear(Notification(A), seconds=HOUR)
    assert line.document(A, ELSEWHERE)["state"] == "current"
    assert line.document(B, ELSEWHERE).get("state") != "current"


async def test_two_names_of_a_table_that_is_gone_do_not_wake_one_another_without_end(line: Line) -> None:
    pointer = await renamed_under_an_older_file(line)
    line.catalog.drop(B)
    await line.inbox.put([Notification(B)])
    await only(line, B)
    await all_gone_older_first(line, pointer)


async def test_two_names_of_a_table_that_is_gone_do_not_wait_for_one_another(line: Line) -> None:
    """One moved on and its publish died before the old place led there: by its older file it seems to be the older."""
    second, third = "file:///warehouse/second", "file:///warehouse/third"
    line.store = store = FailingStore()
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=60)
    # By its log A would be woken, and follow.
    line.catalog.register(B, replace(line.catalog.commit(A, second), metadata_log=()))
    await line.hear(Notification(B), seconds=60)
    line.catalog.commit(A, third)
    store.broken = key_of(A)
    await line.inbox.put([Notification(A)])
    with pytest.raises(Transient):
        await line.work()
    assert [line.document(A, place)["state"] for place in (AT, third)] == ["current", "current"]
    store.broken = ""
    line.catalog.drop(A)
    line.catalog.drop(B)
    line.clock.turn(TERMS.lease.total_seconds())
    await line.hear(Notification(A), Notification(B), seconds=3600)
    states = {line.document(name, place).get("state") for name, place in ((A, AT), (A, third), (B, second))}
    assert "current" not in states
