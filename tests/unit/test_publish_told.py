"""What becomes of files in a catalog that nobody can ask."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, Rescheduled
from sfn.publish.policy import OnDrop
from tests.unit.publishing import EVERYTHING, LAG, A, B
from tests.unit.told_line import DAY, ToldLine

pytestmark = pytest.mark.anyio
SECONDS = LAG.total_seconds()


async def test_what_is_told_is_written_with_what_its_metadata_file_says() -> None:
    line = ToldLine()
    line.create(A)
    table = line.commit(A)
    await line.tell(A, table)
    document = line.document(A)
    assert (document["metadata_file_path"], document["guid"]) == (table.metadata_location, table.uuid)
    assert (document["snapshot_id"], document["catalog_id"]) == (table.snapshot_id, "c1")
    assert line.hint() == table.metadata_location.rpartition("/")[2].removesuffix(".metadata.json").encode()
    assert isinstance(line.outcomes[-1], Done)


async def test_the_answer_is_what_was_told_by_now() -> None:
    """Not what was told when the row was claimed: a tag must be older than the answer that is written over it."""
    line = ToldLine()
    first = line.create(A)
    await line.inbox.put([Notification(A, min_metadata_location=first.metadata_location, origin=TableOrigin.CREATE)])
    (claim,) = (await line.inbox.claim(EVERYTHING)).jobs
    second = line.commit(A)
    await line.inbox.put([Notification(A, min_metadata_location=second.metadata_location)])
    await line.publish(claim)
    assert line.document(A)["metadata_file_path"] == second.metadata_location


async def test_a_refresh_writes_what_was_told_last_without_a_look_into_its_file() -> None:
    line = ToldLine()
    table = line.create(A)
    await line.tell(A, table, TableOrigin.CREATE)
    before = line.document(A)
    del line.store.files[table.metadata_location]
    await line.work(2 * line.policy.refresh_after.total_seconds())
    assert line.document(A)["metadata_file_path"] == before["metadata_file_path"]
    assert line.document(A)["written_at"] > before["written_at"]


async def test_a_look_that_nothing_was_told_for_changes_nothing() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE)
    files = dict(line.store.files)
    await line.hear(Notification(A, force=True), seconds=60)
    assert line.store.files == files
    assert isinstance(line.outcomes[-1], Done)


async def test_a_name_that_nothing_was_told_of_is_forgotten_soon() -> None:
    line = ToldLine()
    await line.hear(Notification(A), seconds=60)
    assert [row async for row in line.inbox.tables("prod")] == []


async def test_a_name_whose_end_alone_was_told_is_remembered_for_as_long_as_a_tombstone() -> None:
    line = ToldLine()
    table = line.create(A)
    await line.hear(Notification(A, drop=True, uuid=table.uuid), seconds=5 * DAY)
    await line.tell(A, table, TableOrigin.CREATE, seconds=60)
    assert line.document(A) == {}
    await line.work(30 * DAY)
    assert [row async for row in line.inbox.tables("prod")] == []


async def test_a_told_drop_waits_for_the_lag_and_asks_for_no_listing() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    await line.hear(Notification(A, drop=True), seconds=SECONDS - 1)
    assert line.document(A)["state"] == "current"
    await line.work(2)
    assert line.document(A)["state"] == "dropped"
    assert line.hint() is None


async def test_what_was_deleted_after_a_drop_does_not_come_back_by_a_late_event() -> None:
    line = ToldLine()
    line.policy = replace(line.policy, on_drop=OnDrop.DELETE)
    first = line.create(A)
    await line.tell(A, first, TableOrigin.CREATE, seconds=60)
    second = line.commit(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    for late, birth in ((second, None), (first, TableOrigin.CREATE)):
        await line.tell(A, late, birth, seconds=60)
    assert line.document(A) == {}


async def test_a_registration_brings_a_dropped_table_back_but_not_to_an_older_file() -> None:
    line = ToldLine()
    first = line.create(A)
    await line.tell(A, first, TableOrigin.CREATE, seconds=60)
    second = line.commit(A)
    await line.tell(A, second, seconds=60)
    await line.hear(Notification(A, drop=True), seconds=60)
    await line.tell(A, first, TableOrigin.REGISTER, seconds=60)
    assert line.document(A)["state"] == "dropped"
    await line.tell(A, second, TableOrigin.REGISTER, seconds=60)
    assert line.document(A)["metadata_file_path"] == second.metadata_location
    assert line.document(A)["state"] == "current"


async def test_another_table_takes_the_name_by_its_birth_after_the_lag() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE)
    line.catalog.drop(A)
    other = line.create(A)
    await line.tell(A, other, TableOrigin.CREATE)
    assert line.document(A)["guid"] != other.uuid
    await line.work(SECONDS)
    assert line.document(A)["guid"] == other.uuid


async def test_an_event_of_another_table_than_the_one_that_ended_ends_nothing() -> None:
    line = ToldLine()
    table = line.create(A)
    await line.tell(A, table, TableOrigin.CREATE, seconds=60)
    await line.hear(Notification(A, drop=True, uuid="another"), seconds=DAY)
    assert line.document(A)["state"] == "current"


async def test_a_rename_is_followed_though_it_tells_no_location() -> None:
    line = ToldLine()
    table = line.create(A)
    await line.tell(A, table, TableOrigin.CREATE, seconds=60)
    await line.hear(Notification(A, renamed_to=B), Notification(B, renamed_from=A), seconds=60)
    assert line.document(B)["metadata_file_path"] == table.metadata_location
    assert (line.document(A)["state"], line.document(B)["state"]) == ("renamed", "current")
    assert line.document(A)["moved_to"]["name"] == "b"


async def test_of_two_names_of_a_table_in_one_place_the_one_that_is_behind_leaves_the_hint_alone() -> None:
    """The rename is still to be told of, and readers that know the hint alone must not be led back."""
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    second = line.commit(A)
    await line.tell(B, second, TableOrigin.REGISTER, seconds=60)
    newest = line.hint()
    await line.hear(Notification(A, force=True), seconds=60)
    assert line.hint() == newest
    assert newest is not None
    assert newest.decode() in second.metadata_location


async def test_a_lost_inbox_is_no_way_back_behind_what_lies_there() -> None:
    line = ToldLine()
    late = line.create(A)
    newest = line.commit(A)
    await line.tell(A, newest, TableOrigin.CREATE, seconds=60)
    after = ToldLine()
    after.store.files = line.store.files
    after.clock.turn(DAY)
    await after.tell(A, late, seconds=DAY)
    assert after.document(A)["metadata_file_path"] == newest.metadata_location
    await after.hear(Notification(A, drop=True), seconds=60)
    again = ToldLine()
    again.store.files = line.store.files
    again.clock.turn(2 * DAY)
    await again.tell(A, late, seconds=60)
    assert again.document(A)["state"] == "dropped"


async def test_a_file_that_is_not_there_is_looked_for_ever_less_often_and_all_else_goes_on() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    second = line.commit(A)
    body = line.store.files.pop(second.metadata_location)
    looks = len(line.outcomes)
    await line.tell(A, second, seconds=2 * 3600)
    assert all(isinstance(outcome, Rescheduled) for outcome in line.outcomes[looks:])
    assert 5 < len(line.outcomes) - looks < 30
    third = line.commit(A)
    await line.tell(A, third, seconds=1)
    assert line.document(A)["metadata_file_path"] == third.metadata_location
    line.store.files[second.metadata_location] = body
    await line.work(DAY)
    assert line.document(A)["metadata_file_path"] == third.metadata_location
    assert isinstance(line.outcomes[-1], Done)


async def test_a_file_that_never_comes_is_a_dead_letter_until_something_else_is_told() -> None:
    line = ToldLine()
    first = line.create(A)
    await line.tell(A, first, TableOrigin.CREATE, seconds=60)
    second = line.commit(A)
    del line.store.files[second.metadata_location]
    await line.tell(A, second, seconds=3 * DAY)
    dead = line.outcomes[-1]
    assert isinstance(dead, DeadLettered)
    assert dead.reason is DeadLetterReason.EXHAUSTED
    assert second.metadata_location in dead.detail
    assert line.document(A)["written_at"] > "2026-01-03", "refreshed all the same"
    await line.tell(A, line.commit(A), seconds=3600)
    assert isinstance(line.outcomes[-1], Done)


async def test_a_commit_of_a_table_whose_birth_is_never_told_is_a_dead_letter_in_the_end() -> None:
    """Else nobody would notice a sender that tells of no births: the files of the table before would stay for ever."""
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    other = line.create(A)
    await line.tell(A, other, seconds=3600)
    assert isinstance(line.outcomes[-1], Rescheduled)
    await line.work(DAY)
    dead = line.outcomes[-1]
    assert isinstance(dead, DeadLettered)
    assert (dead.reason, "create or register" in dead.detail) == (DeadLetterReason.EXHAUSTED, True)
    assert line.document(A)["state"] == "dropped"
    await line.tell(A, other, TableOrigin.CREATE, seconds=3600)
    assert line.document(A)["guid"] == other.uuid
    assert isinstance(line.outcomes[-1], Done)


@pytest.mark.parametrize(
    "spelling",
    ["ABCDEF00-0000-0000-0000-000000000000", "abcdef00000000000000000000000000", "urn:uuid:{}"],
    ids=["capitals", "without hyphens", "as a URN"],
)
async def test_a_uuid_may_be_spelled_otherwise(spelling: str) -> None:
    line, uuid = ToldLine(), "abcdef00-0000-0000-0000-000000000000"
    table = replace(line.create(A), uuid=spelling.format(uuid))
    await line.tell(A, line.lay(table), TableOrigin.CREATE, seconds=60)
    await line.hear(Notification(A, drop=True, uuid=spelling.format(uuid)), seconds=60)
    assert (line.document(A)["state"], line.document(A)["guid"]) == ("dropped", uuid)
