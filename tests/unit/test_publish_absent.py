"""What becomes of files whose table is gone, or gets none any more."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import Table
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, Rescheduled
from sfn.errors import Transient
from sfn.inbox.memory import MemoryInbox
from sfn.inbox.model import DeadLetterFilter, DeadLetterStatus
from sfn.publish.policy import OnDrop, TableFilter
from tests.promises.inboxes import TERMS
from tests.unit.publishing import AT, LAG, A, B, Line, TornStore, key_of

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1).total_seconds()


def elsewhere(line: Line) -> Table:
    """A new table whose metadata lies in another folder than its own: that folder tells nothing of a purge."""
    table = line.catalog.create(A)
    line.catalog.drop(A)
    table = replace(table, metadata_location=f"file:///elsewhere/00000-{table.uuid}.metadata.json")
    line.catalog.register(A, table)
    return table


async def test_a_table_that_gets_no_files_is_looked_at_once() -> None:
    line = Line()
    line.catalog.create(A, left_alone="it is encrypted")
    await line.hear(Notification(A), seconds=3600)
    assert line.catalog.loads <= 2
    assert line.store.files == {}


@pytest.mark.parametrize("how", ["encrypted", "excluded"])
async def test_files_of_a_table_that_gets_none_any_more_go_and_so_does_its_row(how: str) -> None:
    line = Line()
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=20)
    assert sorted(line.store.files) == [key_of(A), f"{AT}/metadata/version-hint.text"]
    if how == "encrypted":
        line.catalog.commit(A, left_alone="it is encrypted")
    else:
        line.policy = replace(line.policy, table_filter=TableFilter(exclude=("n.*",)))
    loads = line.catalog.loads
    await line.hear(Notification(A), seconds=3600)
    assert line.store.files == {}
    assert line.catalog.loads - loads <= 3
    await line.work(9 * DAY)
    assert [row async for row in line.inbox.tables("prod")] == []


@pytest.mark.parametrize(
    ("on_drop", "state"), [(OnDrop.TOMBSTONE, "dropped"), (OnDrop.DELETE, None), (OnDrop.KEEP, "current")]
)
async def test_a_drop_leaves_what_the_settings_say(on_drop: OnDrop, state: str | None) -> None:
    line = Line()
    line.policy = replace(line.policy, on_drop=on_drop)
    table = line.catalog.create(A)
    line.store.files[table.metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    assert line.document(A).get("state") == state
    assert (line.hint() is None) is (on_drop is not OnDrop.KEEP)


@pytest.mark.parametrize("purged", [True, False], ids=["purged", "not purged"])
async def test_a_purge_that_no_event_told_of_is_seen_by_the_folder(purged: bool) -> None:
    line = Line()
    table = line.catalog.create(A)
    line.store.files[table.metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    if purged:
        del line.store.files[table.metadata_location]
    await line.hear(Notification(A, drop=True), seconds=60)
    assert line.document(A).get("state") == (None if purged else "dropped")


@pytest.mark.parametrize("told", [True, False])
async def test_where_metadata_lies_in_another_folder_the_event_alone_tells_of_a_purge(told: bool) -> None:
    line = Line()
    elsewhere(line)
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True, purge=told), seconds=60)
    assert line.document(A).get("state") == (None if told else "dropped")


async def test_a_purge_of_a_table_whose_files_are_still_there_leaves_a_tombstone() -> None:
    """The event may be a late one, of a table that had the name before."""
    line = Line()
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True, purge=True), seconds=60)
    assert line.document(A)["state"] == "dropped"


@pytest.mark.parametrize("history", ["relocated", "dropped", "renamed"])
async def test_a_table_without_files_whose_tombstone_still_lies_there_is_not_looked_at_without_end(
    history: str,
) -> None:
    line = Line()
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    if history == "relocated":
        line.catalog.commit(A, location="file:///warehouse/n/moved")
        await line.hear(Notification(A), seconds=20)
        line.catalog.commit(A, left_alone="it is switched off")
    else:
        if history == "dropped":
            line.catalog.drop(A)
        else:
            line.catalog.rename(A, B)
        await line.hear(Notification(A, drop=history == "dropped"), Notification(B), seconds=60)
        line.catalog.create(A, left_alone="it is encrypted")
    await line.hear(Notification(A), seconds=20)
    assert line.document(A)["state"] in {"moved", "dropped", "renamed"}
    for _ in range(9 * 4):
        await line.work(DAY / 4)
    assert line.document(A) == {}


async def test_a_table_that_is_listed_and_not_found_is_looked_at_now_and_then() -> None:
    line = Line()
    line.policy = replace(line.policy, replica_lag=timedelta(0))
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=20)
    line.catalog.hidden = frozenset({A})
    loads = line.catalog.loads
    await line.hear(Notification(A, drop=True), seconds=1800)
    assert 2 < line.catalog.loads - loads <= 31
    assert line.document(A)["state"] == "current"


async def test_what_the_brake_holds_stays_young_and_lets_go_of_a_table_that_came_back() -> None:
    """Cleaners delete by age what no metadata names, and an operator may need days."""
    line = Line()
    line.inbox = MemoryInbox(replace(TERMS, max_drops={"prod": 0}), line.clock)
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    files = {key_of(A), f"{AT}/metadata/version-hint.text"}
    line.catalog.hidden = frozenset({A})
    line.catalog.unlisted = frozenset({A})
    await line.hear(Notification(A, drop=True), seconds=60)
    for _ in range(3):
        assert isinstance(line.outcomes[-1], DeadLettered)
        assert line.outcomes[-1].reason is DeadLetterReason.HELD_DROP
        await line.work(DAY / 3)
        assert line.outcomes[-1].result is not None
        assert set(line.outcomes[-1].result.written_keys) == files
        assert line.document(A)["state"] == "current"
    line.catalog.hidden = line.catalog.unlisted = frozenset()
    await line.work(DAY / 3)
    assert isinstance(line.outcomes[-1], Done)
    assert [letter.status for letter in await line.inbox.list_after(DeadLetterFilter(status=None), 0, 9)] == [
        DeadLetterStatus.SUPERSEDED
    ]


async def test_an_event_of_a_table_that_a_replica_does_not_show_yet_is_looked_at_once_more() -> None:
    line = Line()
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    assert line.document(A)["state"] == "dropped"
    table = line.catalog.create(A)
    line.catalog.hidden = frozenset({A})
    await line.hear(Notification(A, min_metadata_location=table.metadata_location))
    line.catalog.hidden = frozenset()
    await line.work(LAG.total_seconds())
    assert line.document(A)["metadata_file_path"] == table.metadata_location


async def test_a_drop_that_a_replica_does_not_show_yet_is_looked_at_once_more() -> None:
    """Though the answer shows something new: a commit that came before the drop."""
    line = Line()
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.store.files[line.catalog.commit(A).metadata_location] = b"{}"
    await line.hear(Notification(A, drop=True))
    assert isinstance(line.outcomes[-1], Rescheduled)
    line.catalog.drop(A)
    await line.work(60)
    assert line.document(A)["state"] == "dropped"


async def test_a_newer_file_does_not_wait_for_an_older_one_elsewhere_that_the_brake_holds() -> None:
    line = Line()
    line.inbox = MemoryInbox(replace(TERMS, max_drops={"prod": 0}), line.clock)
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.rename(A, B)
    there = "file:///warehouse/n/b"
    line.store.files[line.catalog.commit(B, location=there).metadata_location] = b"{}"
    await line.inbox.put([Notification(B)])
    await line.work(only=lambda table: table == B)
    assert line.document(A)["state"] == line.document(B, there)["state"] == "current"
    line.catalog.drop(B)
    await line.hear(Notification(A, drop=True), seconds=60)
    await line.hear(Notification(B, drop=True), seconds=60)
    letters = await line.inbox.list_after(DeadLetterFilter(status=None), 0, 99)
    held = [letter.subject for letter in letters if letter.reason is DeadLetterReason.HELD_DROP]
    assert held == [A, B]


async def test_a_purge_concerns_the_table_that_was_purged_and_none_that_took_its_name_since() -> None:
    """Between the two nothing settled, so the wish is still there; what vanishes now leaves a tombstone."""
    line = Line()
    line.store = store = TornStore()
    elsewhere(line)
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    second = elsewhere(line)
    store.torn = True
    with pytest.raises(Transient):
        await line.hear(Notification(A, drop=True, purge=True), seconds=20)
    store.torn = False
    assert line.document(A)["guid"] == second.uuid
    line.catalog.drop(A)
    line.clock.turn(TERMS.lease.total_seconds())
    await line.work(60)
    assert line.document(A)["state"] == "current", "nor was a drop told of this one"
    await line.work(700)
    assert line.document(A)["state"] == "dropped"


async def test_a_purge_ends_with_the_first_look_at_the_table_that_took_the_name() -> None:
    line = Line()
    elsewhere(line)
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    second = elsewhere(line)
    await line.hear(Notification(A, drop=True, purge=True))
    assert isinstance(line.outcomes[-1], Rescheduled)
    assert line.document(A)["guid"] == second.uuid
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    assert line.document(A)["state"] == "dropped"


async def test_a_purge_told_of_before_a_table_first_settled_is_of_one_before_it() -> None:
    line = Line()
    elsewhere(line)
    await line.hear(
        Notification(A, drop=True, purge=True),
        Notification(A, min_metadata_location="file:///elsewhere/00009-x.metadata.json"),
    )
    assert isinstance(line.outcomes[-1], Rescheduled)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    assert line.document(A)["state"] == "dropped"


async def test_a_table_that_is_switched_off_leaves_after_its_older_files() -> None:
    line = Line()
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.rename(A, B)
    line.catalog.commit(B)
    await line.inbox.put([Notification(B)])
    await line.work(only=lambda table: table == B)
    line.catalog.commit(B, left_alone="it is switched off")
    await line.inbox.put([Notification(B)])
    line.clock.turn(5)
    await line.work(only=lambda table: table == B)
    assert line.document(B)["state"] == "current"
    await line.hear(Notification(A), seconds=1500)
    assert line.document(A).get("state") != "current"
    assert line.document(B) == {}
