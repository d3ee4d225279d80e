"""Plans against stale answers of the catalog and against unknown files."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Returned, StoredObject
from sfn.errors import Transient
from sfn.publish import renames_and_drops
from sfn.publish.existing_files import pointer_files
from sfn.publish.policy import OnDrop, Policy
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import IDENTIFIER, ORDINAL, UUID, FileLayout, FileOwner, Naming
from sfn.storage import PreconditionFailed
from tests.promises.inboxes import TERMS
from tests.support.publishing import AT, EVERYTHING, LAG, A, B, FailingStore, Line, TornStore, key_of, named

ELSEWHERE = "file:///warehouse/elsewhere"


async def test_memory_skips_nothing_for_an_event_that_says_no_more_than_look() -> None:
    line = Line()
    await line.publish_new(seconds=60)
    line.store.files.clear()
    await line.hear(Notification(A))
    assert sorted(line.store.files) == [key_of(A), version_hint.key_of(AT)]


async def test_such_an_event_gets_one_more_look() -> None:
    line = Line()
    await line.publish_new(seconds=60)
    loads, reads = line.catalog.loads, line.store.reads
    await line.hear(Notification(A))
    assert (line.catalog.loads - loads, line.store.reads - reads) == (1, 2)
    await line.work(60)
    assert (line.catalog.loads - loads, line.store.reads - reads) == (2, 4)


async def test_under_its_old_name_a_table_is_not_followed_back_by_a_replica_that_lags() -> None:
    """The new name's file is ahead; that the old one still has the table may be of before the rename."""
    line = Line(Policy("c1", replica_lag=timedelta(minutes=2), is_swept=False))
    first = await line.publish_new()
    second, third = line.catalog.commit(A), line.catalog.commit(A)
    line.catalog.rename(A, B)
    await line.hear_only(B)
    assert line.document(B)["metadata_file_path"] == third.metadata_location

    line.catalog.drop(B)
    line.catalog.register(A, second)
    await line.hear(Notification(A), seconds=60)
    assert line.document(A)["metadata_file_path"] == first.metadata_location
    await line.work(120)
    assert line.document(A)["metadata_file_path"] == second.metadata_location


async def test_the_newest_file_of_a_table_makes_room_only_after_the_older_ones() -> None:
    """Else a reader of the directory would be led back to what an older one says of a table that is gone."""
    line = Line()
    first = await line.publish_new()
    second = line.catalog.commit(A)
    line.catalog.rename(A, B)
    await line.hear_only(B)
    line.clock.turn(2 * LAG.total_seconds())
    line.catalog.drop(B)
    line.catalog.create(B, AT)
    await line.hear_only(B)
    assert line.document(A)["metadata_file_path"] == first.metadata_location
    assert line.document(B)["metadata_file_path"] == second.metadata_location
    await line.work(3600)
    assert line.document(A).get("state") != "current"
    assert line.document(B)["guid"] not in {first.uuid, None}


async def test_that_is_so_too_where_an_older_one_lies_at_a_place_that_the_table_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A suspended process wrote it late. No job knows of it: the one of its name has another table by now."""
    line, there = Line(), "file:///warehouse/n/there"
    await line.publish_new(has_metadata_file=True)
    line.catalog.rename(A, B)
    line.catalog.commit(B)
    await line.hear_only(B)
    line.store.files[line.catalog.commit(B, location=there).metadata_location] = b"{}"
    line.clock.turn(2 * LAG.total_seconds())
    with monkeypatch.context() as patched:
        patched.setattr(renames_and_drops, "jobs_with_older_files", lambda *_, **__: [])
        await line.hear_only(B)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("current", "moved")
    line.catalog.drop(B)
    line.catalog.create(A, "file:///warehouse/n/new")
    line.clock.turn(TERMS.lease.total_seconds())
    await line.work(only=lambda table: table == A)
    await line.hear(Notification(B, drop=True))
    waited = 0
    while line.document(A)["state"] == "current" and waited < 3600:
        assert line.document(B, there)["state"] == "current"
        await line.work(10)
        waited += 10
    assert waited > 60
    await line.work(3600)
    assert (line.document(A)["state"], line.document(B, there)["state"]) == ("dropped", "dropped")


async def test_an_older_file_of_ones_own_goes_before_another_table_takes_the_place_of_the_newest() -> None:
    """A publish died between two places; by the file of a third name readers may come to the older one."""

    class Watched(TornStore):
        def __init__(self) -> None:
            super().__init__()
            self.states: list[tuple[str, str]] = []

        @override
        async def write(
            self, key: str, body: bytes, replacing: StoredObject | None
        ) -> StoredObject | PreconditionFailed:
            try:
                return await super().write(key, body, replacing)
            finally:
                old, new = line.document(A), line.document(A, ELSEWHERE)
                self.states.append((old.get("state", ""), new.get("guid", "")))

    line = Line()
    line.store = store = Watched()
    first = await line.publish_new()
    line.catalog.commit(A, location=ELSEWHERE)
    store.torn = True
    await line.inbox.put([Notification(A)])
    with pytest.raises(Transient):
        await line.work()
    store.torn = False
    line.catalog.rename(A, B)
    second = line.catalog.create(A, ELSEWHERE)
    line.clock.turn((2 * LAG + TERMS.lease).total_seconds())
    assert (line.document(A)["state"], line.document(A, ELSEWHERE)["guid"]) == ("current", first.uuid)
    await line.hear(Notification(B), Notification(A), seconds=60)
    assert (line.document(A)["state"], line.document(A, ELSEWHERE)["guid"]) == ("renamed", second.uuid)
    assert ("current", second.uuid) not in store.states


async def test_a_file_that_says_the_same_is_not_waited_for() -> None:
    """A table that was renamed and renamed back, and whose old row missed both, still has its file."""
    line = Line()
    table = await line.publish_new()
    line.catalog.rename(A, B)
    await line.hear_only(B)
    line.catalog.rename(B, A)
    new = line.catalog.create(B, AT)
    line.clock.turn((2 * LAG + TERMS.lease).total_seconds())
    await line.hear(Notification(B), seconds=60)
    assert (line.document(A)["guid"], line.document(B)["guid"]) == (table.uuid, new.uuid)


async def test_an_older_one_is_waited_for_also_once_its_row_has_published_another_table() -> None:
    """By its row it has none any more, and it lies at a place where the newest file's name never had one."""
    line, there = Line(), "file:///warehouse/n/there"
    gone = await line.publish_new(has_metadata_file=True)
    line.catalog.rename(A, B)
    line.catalog.commit(B, location=there)
    await line.hear_only(B)
    line.clock.turn((2 * LAG + TERMS.lease).total_seconds())
    line.catalog.drop(B)
    new = line.catalog.create(B, there)
    await line.hear_only(B)
    line.catalog.create(A, "file:///warehouse/n/new")
    line.clock.turn(TERMS.lease.total_seconds())
    await line.work(only=lambda table: table == A)
    assert (line.document(A)["state"], line.document(A, "file:///warehouse/n/new")["state"]) == ("current", "current")
    await line.hear_only(B)
    assert (line.document(A)["state"], line.document(B, there)["guid"]) == ("current", gone.uuid)
    await line.work(3600)
    assert (line.document(A)["state"], line.document(B, there)["guid"]) == ("dropped", new.uuid)


async def moved_and_its_old_file_live(line: Line) -> None:
    """B, which was A, is elsewhere, and the store took its file there and no more: A leads on to that, and B's old one
    is still live. At the old place there is a new table A now.
    """
    line.store = store = TornStore()
    await line.publish_new()
    line.catalog.rename(A, B)
    line.catalog.commit(B)
    await line.hear_only(B)
    line.catalog.commit(B, location=ELSEWHERE)
    line.clock.turn(2 * LAG.total_seconds())
    await line.inbox.put([Notification(B)])
    store.torn = True
    with pytest.raises(Transient):
        await line.work(only=lambda table: table == B)
    store.torn = False
    line.clock.turn(TERMS.lease.total_seconds())
    await line.inbox.put([Notification(A, renamed_to=B)])
    await line.work(2 * LAG.total_seconds(), only=lambda table: table == A)
    assert [line.document(table)["state"] for table in (A, B)] == ["renamed", "current"]
    line.catalog.create(A, AT)
    await line.inbox.put([Notification(A)])


async def test_what_leads_on_makes_room_only_after_what_would_lead_back() -> None:
    line = Line()
    await moved_and_its_old_file_live(line)
    await line.work(2 * LAG.total_seconds(), only=lambda table: table == A)
    assert line.document(A)["state"] == "renamed"
    await line.work(3600)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("current", "moved")


async def test_it_does_not_wait_for_a_file_that_stays() -> None:
    """Two tables share the directory, and the one that was renamed is there still."""
    line = Line()
    await line.publish_new()
    line.catalog.rename(A, B)
    await line.hear(Notification(B), Notification(A, renamed_to=B), seconds=60)
    assert line.document(A)["state"] == "renamed"
    second = line.catalog.create(A, AT)
    await line.hear(Notification(A), seconds=60)
    assert (line.document(A)["guid"], line.document(B)["state"]) == (second.uuid, "current")


async def test_nor_for_one_that_nobody_may_end() -> None:
    """What it has by now lies where nothing may be written, and its files stay as they are."""
    line = Line()
    await moved_and_its_old_file_live(line)
    line.policy = replace(line.policy, allowed_locations=(AT, ELSEWHERE))
    line.catalog.commit(B, location="file:///somewhere/else")
    await line.work(60, only=lambda table: table == A)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("current", "current")


async def test_nor_for_one_that_waits_for_an_operator() -> None:
    line = Line()
    await moved_and_its_old_file_live(line)
    line.clock.turn(TERMS.lease.total_seconds())
    for claim in (await line.inbox.claim(EVERYTHING)).jobs:
        now = line.clock.now()
        outcome = DeadLettered(DeadLetterReason.POISON, "") if claim.subject == B else Returned(now, "")
        assert await line.inbox.settle(claim, outcome, now)
    await line.work(60)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("current", "current")


async def test_nor_where_files_of_dropped_tables_stay() -> None:
    line = Line(Policy("c1", replica_lag=LAG, is_swept=False, on_drop=OnDrop.KEEP))
    await moved_and_its_old_file_live(line)
    line.catalog.drop(B)
    await line.work(3600)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("current", "current")


async def test_an_abandoned_pointer_of_the_same_number_does_not_come_back() -> None:
    """Two successors of one version, by a rollback and a commit: no name and no log tells their order."""
    line = Line()
    line.catalog.create(A)
    abandoned = line.catalog.commit(A)
    await line.hear(Notification(A), seconds=60)
    line.catalog.roll_back(A)
    current = line.catalog.commit(A)
    await line.hear(Notification(A, min_metadata_location=current.metadata_location), seconds=2)
    assert line.document(A)["metadata_file_path"] == current.metadata_location

    line.catalog.drop(A)
    line.catalog.register(A, abandoned)
    await line.hear(Notification(A), seconds=2)
    assert line.document(A)["metadata_file_path"] == current.metadata_location
    line.catalog.drop(A)
    line.catalog.register(A, current)
    await line.work(60)
    assert line.document(A)["metadata_file_path"] == current.metadata_location


C = named("c")
HOUR = 3600


@pytest.fixture(name="line")
def fixture_line() -> Line:
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
    await line.publish_new(seconds=60)
    lay(line, key_of(B), line.document(A), catalog_id=catalog, name="b")
    said = line.hint()
    line.catalog.commit(A, ELSEWHERE)
    await line.hear(Notification(A), seconds=60)
    assert line.document(A)["state"] == "moved"
    assert line.hint() == said is not None


async def test_a_hint_that_only_a_tombstone_says_goes(line: Line) -> None:
    await line.publish_new(seconds=60)
    lay(
        line, key_of(B), line.document(A), catalog_id="c2", name="b", state="dropped", dropped_at="2026-01-01T00:00:00Z"
    )
    line.catalog.commit(A, ELSEWHERE)
    await line.hear(Notification(A), seconds=60)
    assert line.document(A)["state"] == "moved"
    assert line.hint() is None


async def test_two_tables_of_one_directory_that_end_at_once_leave_no_hint(line: Line) -> None:
    """The second one found the hint of the first: its file lists that text, and yet the hint is not its own."""
    await line.publish_new(seconds=60)
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
    await line.publish_new(seconds=60)
    said = line.hint()
    other = f"{AT}/metadata/00009-of-this-table.metadata.json"
    lay(line, key_of(B), line.document(A), name="b", metadata_file_path=other, hint_was=[(said or b"").decode()])
    line.catalog.commit(A, ELSEWHERE)
    await line.hear(Notification(A), seconds=10)
    assert line.hint() == said is not None


async def test_who_came_while_a_tombstone_took_the_hint_along_writes_it_again(line: Line) -> None:
    await line.publish_new(seconds=60)
    line.catalog.rename(A, B)
    await line.hear(Notification(A, renamed_to=B), Notification(B), seconds=600)
    said, theirs = line.hint(), line.store.files[key_of(B)]
    lay(line, key_of(B), line.document(B), state="dropped", dropped_at="2026-01-01T00:00:00Z")
    await line.hear_only(A)
    assert line.hint() is None
    line.store.files[key_of(B)] = theirs
    await line.work(seconds=600)
    assert line.hint() == said is not None


@pytest.mark.parametrize(("naming", "seen_at_once"), [(IDENTIFIER, False), (UUID, False), (ORDINAL, True)])
async def test_second_table_of_another_catalog_ends_the_hint(naming: Naming, seen_at_once: bool) -> None:
    """At the refresh at the latest: a listing at each commit would be for this case alone."""
    line = Line(Policy("c1", replica_lag=LAG, is_swept=False, naming=naming, min_publish_interval=LAG))
    await line.publish_new(seconds=60, has_metadata_file=True)
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
    await line.publish_new()
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
    await line.publish_new(seconds=60)
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
    await line.publish_new(seconds=60)
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
