"""Publishing for event-only catalogs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, PendingChange, Retry
from sfn.inbox.model import AdminCommand, DeadLetterFilter
from sfn.publish.policy import OnDrop, Policy, TableFilter
from tests.support.publishing import AT, DAY, EVERYTHING, LAG, A, B, ToldLine, key_of

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
    await line.tell(A, table, TableOrigin.CREATE, uuid=table.uuid, seconds=60)
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
    for late, birth, uuid in (
        (second, None, None),
        (second, None, first.uuid),
        (first, TableOrigin.CREATE, first.uuid),
    ):
        await line.tell(A, late, birth, uuid=uuid, seconds=60)
        assert line.document(A) == {}


async def test_a_registration_brings_a_dropped_table_back_but_not_to_an_older_file() -> None:
    line = ToldLine()
    first = line.create(A)
    await line.tell(A, first, TableOrigin.CREATE, uuid=first.uuid, seconds=60)
    second = line.commit(A)
    await line.tell(A, second, seconds=60)
    await line.hear(Notification(A, drop=True), seconds=60)
    await line.tell(A, first, TableOrigin.REGISTER, uuid=first.uuid, seconds=60)
    assert line.document(A)["state"] == "dropped"
    await line.tell(A, second, TableOrigin.REGISTER, uuid=first.uuid, seconds=60)
    assert line.document(A)["metadata_file_path"] == second.metadata_location
    assert line.document(A)["state"] == "current"


async def test_a_registration_without_a_uuid_may_step_back() -> None:
    line = ToldLine()
    first = line.create(A)
    await line.tell(A, first, TableOrigin.CREATE, uuid=first.uuid, seconds=60)
    await line.tell(A, line.commit(A), uuid=first.uuid, seconds=60)
    await line.hear(Notification(A, drop=True), seconds=SECONDS + 1)
    await line.tell(A, first, TableOrigin.REGISTER, seconds=60)
    assert line.document(A)["metadata_file_path"] == first.metadata_location


@pytest.mark.parametrize("birth", list(TableOrigin))
async def test_a_birth_without_a_uuid_is_believed(birth: TableOrigin) -> None:
    """Events without a uuid are taken in the order in which they arrive."""
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    await line.drop()
    again = line.create(A)
    await line.tell(A, again, birth, seconds=60)
    assert (line.document(A)["state"], line.document(A)["guid"]) == ("current", again.uuid)


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
    dead = after.outcomes[-1]
    assert isinstance(dead, DeadLettered)
    assert (dead.reason, "Send the table's newest event again" in dead.detail) == (DeadLetterReason.HELD_DROP, True)
    await after.tell(A, newest, seconds=60)
    assert isinstance(after.outcomes[-1], Done)
    await after.hear(Notification(A, drop=True), seconds=60)
    assert after.document(A)["state"] == "dropped"
    again = ToldLine()
    again.store.files = line.store.files
    again.clock.turn(2 * DAY)
    await again.tell(A, late, seconds=DAY)
    assert again.document(A)["state"] == "dropped"


async def test_an_operator_may_have_an_older_state_published_after_all() -> None:
    line = ToldLine()
    older = line.create(A)
    await line.tell(A, line.commit(A), TableOrigin.CREATE, seconds=60)
    after = ToldLine()
    after.store.files = line.store.files
    after.clock.turn(DAY)
    await after.tell(A, older, seconds=60)
    await after.inbox.release("prod", AdminCommand("ann", "", after.clock.now()))
    await after.work(60)
    assert after.document(A)["metadata_file_path"] == older.metadata_location


async def test_a_file_that_is_not_there_is_looked_for_until_it_is_or_a_newer_one_is_reported() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    for comes in (True, False):
        second = line.commit(A)
        body = line.store.files.pop(second.metadata_location)
        looks = len(line.outcomes)
        await line.tell(A, second, seconds=2 * 3600)
        assert all(isinstance(outcome, Retry) for outcome in line.outcomes[looks:])
        assert 5 < len(line.outcomes) - looks < 30
        newest = second if comes else line.commit(A)
        if comes:
            line.store.files[second.metadata_location] = body
        else:
            await line.tell(A, newest)
        await line.work(3600)
        assert line.document(A)["metadata_file_path"] == newest.metadata_location
        assert isinstance(line.outcomes[-1], Done)


async def test_a_file_that_never_comes_is_a_dead_letter_until_something_else_is_told() -> None:
    line = ToldLine()
    first = line.create(A)
    await line.tell(A, first, TableOrigin.CREATE, seconds=60)
    second = line.commit(A)
    del line.store.files[second.metadata_location]
    await line.tell(A, second, seconds=1.5 * DAY)
    dead = next(one for one in line.outcomes if isinstance(one, DeadLettered))
    assert dead.reason is DeadLetterReason.EXHAUSTED
    assert second.metadata_location in dead.detail
    await line.tell(A, line.commit(A), seconds=3600)
    assert isinstance(line.outcomes[-1], Done)


async def test_a_commit_of_a_table_whose_birth_was_not_told_counts_if_no_other_table_has_the_name() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    line.catalog.drop(A)
    other = line.create(A)
    await line.tell(A, other, uuid=other.uuid, seconds=60)
    assert line.document(A)["guid"] != other.uuid
    await line.hear(Notification(A, drop=True), seconds=60)
    assert line.document(A)["metadata_file_path"] == other.metadata_location


async def test_a_sender_without_uuids_and_births_may_give_a_name_to_the_next_table() -> None:
    """Nessie's events are so."""
    line = ToldLine()
    for _ in range(3):
        await line.tell(A, line.create(A), seconds=60)
        table = line.commit(A)
        await line.tell(A, table, seconds=60)
        assert (line.document(A)["state"], line.document(A)["guid"]) == ("current", table.uuid)
        await line.drop()
        await line.tell(A, table, seconds=60)
        assert line.document(A)["state"] == "dropped", "it is late"
    await line.work(30 * DAY)
    assert [row async for row in line.inbox.tables("prod")] == []


async def test_a_commit_without_a_uuid_takes_no_name_of_another_table() -> None:
    """It may be a late one: without its table's birth, events cannot decide this."""
    line = ToldLine()
    first = line.create(A)
    await line.tell(A, first, TableOrigin.CREATE, seconds=60)
    line.catalog.drop(A)
    other = line.create(A)
    await line.tell(A, other, seconds=3600)
    assert line.document(A)["metadata_file_path"] == first.metadata_location
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


@pytest.mark.parametrize(
    ("location", "body", "reason"),
    [
        ("file:///elsewhere/t/metadata/00007-x.metadata.json", b"{}", DeadLetterReason.LOCATION_REFUSED),
        (f"{AT}/metadata/00007-x.metadata.json", b"{}", DeadLetterReason.PERMANENT),
        (f"{AT}/metadata/00007-x.metadata.json", b"\x1f\x8bnonsense", DeadLetterReason.PERMANENT),
    ],
)
async def test_what_will_never_be_read_is_a_dead_letter_and_the_files_stay(
    location: str, body: bytes, reason: DeadLetterReason
) -> None:
    line = ToldLine()
    table = line.create(A)
    await line.tell(A, table, TableOrigin.CREATE, seconds=60)
    line.store.files[location] = body
    await line.hear(Notification(A, min_metadata_location=location), seconds=60)
    dead = line.outcomes[-1]
    assert isinstance(dead, DeadLettered)
    assert (dead.reason, location in dead.detail) == (reason, True)
    assert line.document(A)["metadata_file_path"] == table.metadata_location
    await line.tell(A, line.commit(A), seconds=3600)
    assert isinstance(line.outcomes[-1], Done)
    assert line.document(A)["metadata_file_path"] != table.metadata_location


@pytest.mark.parametrize("published", [True, False])
async def test_a_location_that_is_refused_is_judged_at_the_first_look(*, published: bool) -> None:
    line = ToldLine()
    if published:
        await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    looks = len(line.outcomes)
    await line.hear(Notification(A, min_metadata_location="file:///elsewhere/t/metadata/00099-x.metadata.json"))
    (dead,) = line.outcomes[looks:]
    assert isinstance(dead, DeadLettered)
    assert dead.reason is DeadLetterReason.LOCATION_REFUSED
    assert (line.document(A) != {}) is published


async def test_what_is_told_once_more_is_not_looked_at_once_more() -> None:
    line = ToldLine()
    table = line.create(A)
    await line.tell(A, table, TableOrigin.CREATE, seconds=60)
    await line.hear(Notification(A, min_metadata_location=table.metadata_location), Notification(A))
    assert isinstance(line.outcomes[-1], Done)


async def test_a_right_event_behind_a_refused_one_is_published_at_once_and_closes_its_letter() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    elsewhere = "file:///elsewhere/t/metadata/00099-x.metadata.json"
    await line.hear(Notification(A, min_metadata_location=elsewhere), seconds=60)
    assert [one.status for one in await line.inbox.list_newest(DeadLetterFilter(status=None, table=A), 9)] == ["open"]
    for _ in range(3):
        table = line.commit(A)
        await line.tell(A, table)
        assert line.document(A)["metadata_file_path"] == table.metadata_location
        assert [one.status for one in await line.inbox.list_newest(DeadLetterFilter(status=None, table=A), 9)] == [
            "superseded"
        ]
        line.clock.turn(line.policy.min_publish_interval.total_seconds())


async def test_a_drop_is_not_held_up_by_what_cannot_be_read() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    await line.hear(
        Notification(A, min_metadata_location="http://nowhere/1.metadata.json"), Notification(A, drop=True), seconds=60
    )
    assert line.document(A)["state"] == "dropped"


async def test_the_first_that_is_told_of_a_name_may_be_its_files_that_are_not_there_yet() -> None:
    line = ToldLine()
    table = line.create(A)
    body = line.store.files.pop(table.metadata_location)
    await line.tell(A, table, TableOrigin.CREATE, seconds=3600)
    line.store.files[table.metadata_location] = body
    await line.work(3600)
    assert line.document(A)["metadata_file_path"] == table.metadata_location


async def test_told_drops_are_held_by_the_brake() -> None:
    line = ToldLine(max_drops={"prod": 1})
    tables = [TableIdentifier("prod", ("n",), f"t{number}") for number in range(3)]
    for table in tables:
        await line.tell(table, line.create(table), TableOrigin.CREATE)
    await line.hear(*[Notification(table, drop=True) for table in tables], seconds=60)
    states = [line.document(table, f"file:///warehouse/n/{table.name}")["state"] for table in tables]
    assert sorted(states) == ["current", "current", "dropped"]
    await line.inbox.release("prod", AdminCommand("ann", "", line.clock.now()))
    await line.work(60)
    states = [line.document(table, f"file:///warehouse/n/{table.name}")["state"] for table in tables]
    assert states == ["dropped"] * 3


async def test_what_was_published_is_all_that_is_remembered() -> None:
    line = ToldLine()
    first = line.create(A)
    await line.tell(A, first, TableOrigin.CREATE)
    line.clock.turn(DAY)
    second = line.commit(A)
    await line.tell(A, second, seconds=60)
    line.clock.turn(DAY)
    (claim,) = (await line.inbox.claim(EVERYTHING)).jobs
    assert claim.pending == PendingChange()
    (known,) = claim.table_state.reported
    assert (known.uuid, known.locations[-1]) == (first.uuid, second.metadata_location)


async def test_a_table_of_no_interest_any_more_loses_its_files() -> None:
    line = ToldLine()
    table = line.create(A)
    await line.tell(A, table, TableOrigin.CREATE, seconds=60)
    switched_off = line.catalog.commit(A, left_alone="switched off")
    line.store.files[switched_off.metadata_location] = line.store.files[table.metadata_location].replace(
        b'"metadata-log"', b'"properties": {"sfn.enabled": "false"}, "metadata-log"'
    )
    await line.tell(A, switched_off, seconds=60)
    assert key_of(A) not in line.store.files
    assert line.policy.expire_after == timedelta(days=7)


def retired(policy: Policy) -> Policy:
    return replace(policy, is_retired=True)


def excluded(policy: Policy) -> Policy:
    return replace(policy, table_filter=TableFilter(exclude=("**",)))


WITHOUT_FILES = [retired, excluded]


@pytest.fixture(name="line", params=WITHOUT_FILES)
async def fixture_line(request: pytest.FixtureRequest) -> ToldLine:
    """A table that was published, in a catalog that publishes none any more."""
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    without: Callable[[Policy], Policy] = request.param
    line.policy = without(line.policy)
    await line.hear(Notification(A, force=True), seconds=60)
    assert line.document(A) == {}
    return line


async def back(line: ToldLine) -> None:
    """It publishes again, and has all tables looked at that it knows."""
    line.policy = replace(line.policy, is_retired=False, table_filter=TableFilter())
    await line.hear(*[Notification(row.table, force=True) async for row in line.inbox.tables("prod")], seconds=60)


@pytest.mark.parametrize("days", [0, 15])
async def test_a_commit_that_was_told_meanwhile_is_what_comes_back(line: ToldLine, days: int) -> None:
    second = line.commit(A)
    await line.tell(A, second, seconds=days * DAY)
    assert line.document(A) == {}
    await back(line)
    assert line.document(A)["metadata_file_path"] == second.metadata_location


async def test_a_table_whose_end_was_told_meanwhile_does_not_come_back_and_is_forgotten(line: ToldLine) -> None:
    await line.hear(Notification(A, drop=True), seconds=DAY)
    await back(line)
    assert line.document(A) == {}
    await line.work(30 * DAY)
    assert [row async for row in line.inbox.tables("prod")] == []


async def test_what_is_told_before_its_file_is_there_is_heard_when_it_comes_back(line: ToldLine) -> None:
    second = line.commit(A)
    body = line.store.files.pop(second.metadata_location)
    await line.tell(A, second, seconds=2 * DAY)
    line.store.files[second.metadata_location] = body
    await back(line)
    assert line.document(A)["metadata_file_path"] == second.metadata_location


async def test_what_was_not_heard_yet_when_its_files_went_is_heard_when_it_comes_back() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    second = line.commit(A)
    body = line.store.files.pop(second.metadata_location)
    await line.tell(A, second, seconds=60)
    line.policy = retired(line.policy)
    await line.hear(Notification(A, force=True), seconds=60)
    assert line.document(A) == {}
    line.store.files[second.metadata_location] = body
    await back(line)
    assert line.document(A)["metadata_file_path"] == second.metadata_location


@pytest.mark.parametrize("without", WITHOUT_FILES)
async def test_a_wrong_event_about_a_table_without_files_is_no_dead_letter(without: Callable[[Policy], Policy]) -> None:
    line = ToldLine()
    line.policy = without(line.policy)
    await line.hear(
        Notification(A, min_metadata_location="file:///elsewhere/metadata/1.metadata.json", origin=TableOrigin.CREATE),
        seconds=15 * DAY,
    )
    assert not any(isinstance(outcome, DeadLettered) for outcome in line.outcomes)
    assert len(line.outcomes) < 50
    await line.hear(Notification(A, drop=True), seconds=15 * DAY)
    assert [row async for row in line.inbox.tables("prod")] == []
