"""What can't be heard in a catalog that nobody can ask, and what ends there: dead letters, drops, the brake."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, PendingChange
from sfn.inbox.model import AdminCommand, DeadLetterFilter
from tests.unit.publishing import AT, EVERYTHING, LAG, A, key_of
from tests.unit.told_line import DAY, ToldLine

pytestmark = pytest.mark.anyio
SECONDS = LAG.total_seconds()


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


async def test_what_was_heard_leaves_the_row() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE)
    line.clock.turn(DAY)
    (claim,) = (await line.inbox.claim(EVERYTHING)).jobs
    assert claim.pending == PendingChange()
    assert claim.table_state.event_history is not None
    assert claim.table_state.event_history.reported_changes == ()


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
