"""Dropped, renamed and restored tables."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from typing_extensions import override

from sfn.catalogs import LoadResult
from sfn.domain.events import Notification
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, Rescheduled, StoredObject
from sfn.errors import Transient
from sfn.inbox.model import DeadLetterFilter, DeadLetterStatus, TableStatus
from sfn.publish.policy import OnDrop, Policy, TableFilter
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import NAMINGS, UUID, FileLayout, FileOwner, Naming
from sfn.storage import PreconditionFailed
from tests.promises.inboxes import TERMS
from tests.support.memory_inbox import MemoryInbox
from tests.support.publishing import (
    AT,
    LAG,
    A,
    B,
    CountingCatalog,
    CountingStore,
    HintsNoted,
    Line,
    TornStore,
    key_of,
    named,
)

DAY = timedelta(days=1).total_seconds()
ELSEWHERE = "file:///warehouse/n/other"


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
    await line.publish_new()
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
    await line.publish_new(has_metadata_file=True)
    await line.drop()
    assert line.document(A).get("state") == state
    assert (line.hint() is None) is (on_drop is not OnDrop.KEEP)


@pytest.mark.parametrize("purged", [True, False], ids=["purged", "not purged"])
async def test_a_purge_that_no_event_told_of_is_seen_by_the_folder(purged: bool) -> None:
    line = Line()
    table = await line.publish_new(has_metadata_file=True)
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
    await line.publish_new(has_metadata_file=True)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True, purge=True), seconds=60)
    assert line.document(A)["state"] == "dropped"


@pytest.mark.parametrize("history", ["relocated", "dropped", "renamed"])
async def test_table_without_files_whose_tombstone_still_lies_there_is_not_looked_at_without_end(history: str) -> None:
    line = Line()
    await line.publish_new(has_metadata_file=True)
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
    await line.publish_new()
    line.catalog.hidden = frozenset({A})
    loads = line.catalog.loads
    await line.hear(Notification(A, drop=True), seconds=1800)
    assert 2 < line.catalog.loads - loads <= 31
    assert line.document(A)["state"] == "current"


async def test_what_the_brake_holds_stays_young_and_lets_go_of_a_table_that_came_back() -> None:
    """Cleaners delete by age what no metadata names, and an operator may need days."""
    line = Line()
    line.inbox = MemoryInbox(replace(TERMS, max_drops={"prod": 0}), line.clock)
    await line.publish_new(has_metadata_file=True)
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
    await line.publish_new(has_metadata_file=True)
    await line.drop()
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
    await line.publish_new(has_metadata_file=True)
    line.store.files[line.catalog.commit(A).metadata_location] = b"{}"
    await line.hear(Notification(A, drop=True))
    assert isinstance(line.outcomes[-1], Rescheduled)
    line.catalog.drop(A)
    await line.work(60)
    assert line.document(A)["state"] == "dropped"


async def test_a_newer_file_does_not_wait_for_an_older_one_elsewhere_that_the_brake_holds() -> None:
    line = Line()
    line.inbox = MemoryInbox(replace(TERMS, max_drops={"prod": 0}), line.clock)
    await line.publish_new(has_metadata_file=True)
    line.catalog.rename(A, B)
    there = "file:///warehouse/n/b"
    line.store.files[line.catalog.commit(B, location=there).metadata_location] = b"{}"
    await line.hear_only(B)
    assert line.document(A)["state"] == line.document(B, there)["state"] == "current"
    line.catalog.drop(B)
    await line.hear(Notification(A, drop=True), seconds=60)
    await line.hear(Notification(B, drop=True), seconds=60)
    letters = await line.inbox.list_after(DeadLetterFilter(status=None), 0, 99)
    held = [letter.subject for letter in letters if letter.reason is DeadLetterReason.HELD_DROP]
    assert held == [A, B]


async def test_two_names_of_a_dropped_table_agree_which_file_is_older() -> None:
    """A slow answer for the first name is older, by when it was asked for, and its file was written later."""
    line = Line()

    class Slow(CountingCatalog):
        @override
        async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
            found = await super().load(table, known_etag)
            # The second one is asked for after the file was read, so it decides.
            if table == A and self.loads == 2:
                line.clock.turn(1)
                self.rename(A, B)
                await line.hear_only(B)
                line.clock.turn(1)
            return found

    line.catalog = Slow("prod")
    line.catalog.create_namespace("n")
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear_only(A)
    first, second = line.document(A), line.document(B)
    assert first["asked_at"] < second["asked_at"] <= second["written_at"] < first["written_at"]
    line.catalog.drop(B)
    line.clock.turn(TERMS.lease.total_seconds())
    await line.hear(Notification(A, drop=True), Notification(B, drop=True), seconds=3600)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("dropped", "dropped")


async def test_names_that_wait_for_one_another_at_one_place_wake_nobody() -> None:
    """One for an older file, the other one until it is certainly missing, both after a worker that died."""
    line = Line()
    await line.publish_new(has_metadata_file=True)
    line.catalog.rename(A, B)
    line.store.files[line.catalog.commit(B).metadata_location] = b"{}"
    await line.hear_only(B)
    line.catalog.drop(B)
    line.clock.turn((2 * LAG + TERMS.lease).total_seconds())
    await line.inbox.put([Notification(A), Notification(B)])
    await line.work(only=lambda _: False)
    line.clock.turn(TERMS.lease.total_seconds())
    looks = len(line.outcomes)
    await line.work(50)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("current", "current")
    assert len(line.outcomes) - looks <= 8
    await line.work(3600)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("dropped", "dropped")


@pytest.mark.parametrize("case", ["purged", "not purged", "refused"])
async def test_what_only_a_lost_inbox_knew_goes_before_what_leads_to_it(case: str) -> None:
    """Beside the files of a dropped table lies a tombstone of an earlier one, which leads to a file that is live.

    Where the settings refuse the place of that file by now, nothing waits for it.
    """
    line, states = Line(Policy("c1", replica_lag=LAG, is_swept=False, naming=UUID)), []

    def state_at(location: str, table: Table) -> object:
        (key,) = FileLayout(location, UUID).keys(FileOwner(A.namespace, A.name, table.uuid))
        return json.loads(line.store.files.get(key, b"{}")).get("state")

    class Watched(CountingStore):
        @override
        async def write(
            self, key: str, body: bytes, replacing: StoredObject | None
        ) -> StoredObject | PreconditionFailed:
            written = await super().write(key, body, replacing)
            states.append((state_at(AT, second), state_at(ELSEWHERE, first)))
            return written

    first = await line.publish_new()
    moved = line.catalog.commit(A, location=ELSEWHERE)
    await line.hear(Notification(A), seconds=60)
    assert (state_at(AT, first), state_at(ELSEWHERE, first)) == ("moved", "current")
    line.catalog.drop(A)
    second = line.catalog.create(A, AT)
    line.inbox = MemoryInbox(replace(TERMS, max_drops={"prod": 1000}), line.clock)
    await line.hear(Notification(A), seconds=60)
    watched = Watched()
    left = [second.metadata_location] if case == "purged" else [second.metadata_location, moved.metadata_location]
    watched.files = line.store.files | dict.fromkeys(left, b"{}")
    line.store = watched
    if case == "refused":
        line.policy = replace(line.policy, allowed_locations=(AT,))
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=3600)
    assert state_at(AT, second) == "dropped"
    assert case == "refused" or [state for state in states if state[0] != "current" and state[1] == "current"] == []
    assert (state_at(ELSEWHERE, first) == "current") is (case == "refused")


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
    await line.drop()
    assert line.document(A)["state"] == "dropped"


async def test_a_purge_told_of_before_a_table_first_settled_is_of_one_before_it() -> None:
    line = Line()
    elsewhere(line)
    await line.hear(
        Notification(A, drop=True, purge=True),
        Notification(A, min_metadata_location="file:///elsewhere/00009-x.metadata.json"),
    )
    assert isinstance(line.outcomes[-1], Rescheduled)
    await line.drop()
    assert line.document(A)["state"] == "dropped"


async def test_a_table_that_is_switched_off_leaves_after_its_older_files() -> None:
    line = Line()
    await line.publish_new(has_metadata_file=True)
    line.catalog.rename(A, B)
    line.catalog.commit(B)
    await line.hear_only(B)
    line.catalog.commit(B, left_alone="it is switched off")
    await line.inbox.put([Notification(B)])
    line.clock.turn(5)
    await line.work(only=lambda table: table == B)
    assert line.document(B)["state"] == "current"
    await line.hear(Notification(A), seconds=1500)
    assert line.document(A).get("state") != "current"
    assert line.document(B) == {}


async def standing(line: Line, name: TableIdentifier) -> TableStatus:
    found = await line.inbox.table_status(name)
    assert found is not None
    return found


@pytest.fixture
async def line() -> Line:
    """One with a table that was renamed."""
    line = Line()
    await line.publish_new()
    line.catalog.rename(A, B)
    told = Notification(A, "etl", "e1", renamed_to=B, body=b"it was renamed")
    arrival = Notification(B, "etl", "e1/to", renamed_from=A, body=b"it was renamed")
    await line.hear(told, arrival, seconds=60)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("renamed", "current")
    return line


async def test_each_name_has_the_event_that_told_of_it(line: Line) -> None:
    for name, event_id in ((A, "e1"), (B, "e1/to")):
        event = (await standing(line, name)).last_event
        assert event is not None
        assert (event.event_id, event.body) == (event_id, b"it was renamed")


async def test_the_old_name_says_the_new_one_until_another_table_has_it(line: Line) -> None:
    assert [(await standing(line, name)).job.table_state.renamed_to for name in (A, B)] == [B, None]
    line.catalog.create(A, ELSEWHERE)
    await line.hear(Notification(A), seconds=60)
    assert (await standing(line, A)).job.table_state.renamed_to is None


async def test_a_table_that_has_its_old_name_again_elsewhere_is_not_said_to_be_another(line: Line) -> None:
    line.catalog.rename(B, A)
    line.catalog.commit(A, location=ELSEWHERE)
    await line.hear(Notification(A), Notification(B), seconds=60)
    left = line.document(A)
    assert (left["state"], left["moved_to"]["name"], left.get("name_now")) == ("moved", "a", None)
    line.catalog.rename(A, B)
    await line.hear(Notification(B), Notification(A), seconds=60)
    assert [line.document(name)["state"] for name in (A, B)] == ["moved", "moved"]
    assert [line.document(name, ELSEWHERE)["state"] for name in (A, B)] == ["renamed", "current"]


async def test_nor_where_both_names_lead_to_the_same_file() -> None:
    line = Line()
    table = await line.publish_new()
    line.policy = replace(line.policy, naming=UUID)
    line.catalog.rename(A, B)
    await line.hear(Notification(B), Notification(A, renamed_to=B), seconds=60)
    assert (line.document(A)["state"], line.document(A)["moved_to"]["name"]) == ("renamed", "b")
    line.catalog.rename(B, A)
    await line.hear(Notification(A), Notification(B), seconds=60)
    left = line.document(A)
    assert left["moved_to"]["sfn_file_path"].endswith(f"/{table.uuid}_main.ver")
    assert (left["state"], left["moved_to"]["name"], left.get("name_now")) == ("moved", "a", None)


async def test_a_table_that_moved_before_it_was_dropped_has_no_other_name(line: Line) -> None:
    line.policy = replace(line.policy, on_drop=OnDrop.DELETE)
    line.catalog.commit(B, location=ELSEWHERE)
    await line.hear(Notification(B), seconds=60)
    await line.drop(B)
    assert [line.document(B, place).get("state") for place in (AT, ELSEWHERE)] == ["moved", None]
    assert (await standing(line, B)).job.table_state.renamed_to is None


async def test_no_hint_says_what_only_the_old_names_file_said() -> None:
    """The table went back to an older version and to its first name, whose file had stayed as it was meanwhile."""
    line = Line()
    first = await line.publish_new()
    line.catalog.rename(A, B)
    second = line.catalog.commit(B)
    await line.hear_only(B)
    assert line.hint() == version_hint.content(second)
    line.catalog.drop(B)
    line.catalog.register(A, first)
    line.clock.turn(TERMS.lease.total_seconds())
    line.store = store = HintsNoted(line.store.files)
    await line.work(only=lambda table: table == A)
    await line.hear(Notification(B, renamed_to=A), seconds=3600)
    assert line.document(B)["state"] == "renamed"
    assert store.hints[key_of(B)] in {None, version_hint.content(first)}
    assert line.hint() == version_hint.content(first)


C = named("c")
LONG = 700
"""Seconds after which a table counts as dropped of which no drop was told."""


@pytest.fixture
def restored() -> Line:
    return Line()


async def replaced(line: Line, *, told: bool) -> None:
    """A table that took the name of another one, in its directory, of whose drop an event tells only now."""
    await line.publish_new(has_metadata_file=True)
    line.catalog.drop(A)
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A, drop=told))
    assert isinstance(line.outcomes[-1], Rescheduled)


@pytest.mark.parametrize("told", [True, False], ids=["told of the first", "not told"])
async def test_a_drop_that_was_told_of_one_table_is_not_told_of_the_next(restored: Line, told: bool) -> None:
    await replaced(restored, told=told)
    restored.catalog.drop(A)
    await restored.hear(Notification(A), seconds=60)
    assert restored.document(A)["state"] == "current"
    await restored.work(LONG)
    assert restored.document(A)["state"] == "dropped"


async def test_a_drop_that_was_told_of_the_next_table_counts(restored: Line) -> None:
    await replaced(restored, told=True)
    restored.catalog.drop(A)
    await restored.hear(Notification(A, drop=True), seconds=60)
    assert restored.document(A)["state"] == "dropped"


async def test_a_drop_is_not_told_of_what_the_row_missed_before_it_had_that_table(restored: Line) -> None:
    """The name had one table, then another elsewhere that nobody published, which is what was dropped."""
    restored.store.files[restored.catalog.create(A).metadata_location] = b"{}"
    await restored.hear(Notification(A), seconds=20)
    restored.catalog.rename(A, B)
    second = restored.catalog.create(A, location=ELSEWHERE)
    restored.store.files[second.metadata_location] = b"{}"
    await restored.inbox.put([Notification(A)])
    await restored.work()
    assert restored.document(A, ELSEWHERE)["state"] == restored.document(A)["state"] == "current"
    restored.catalog.drop(A)
    await restored.inbox.put([Notification(A, drop=True)])
    await restored.work(60, only=lambda table: table == A)
    assert restored.document(A, ELSEWHERE)["state"] == "dropped"
    assert restored.document(A)["state"] == "current"


@pytest.mark.parametrize("last", [B, C])
async def test_a_newer_file_leads_on_to_another_place_only_after_an_older_one(
    restored: Line, last: TableIdentifier
) -> None:
    """The inbox may be lost between the two: once the table is dropped, a reader would come back to the older one."""
    await restored.publish_new()
    restored.catalog.rename(A, B)
    restored.catalog.commit(B)
    await restored.inbox.put([Notification(B)])
    await restored.work(60, only=lambda table: table == B)
    if last == C:
        restored.catalog.rename(B, C)
    restored.catalog.commit(last, location=ELSEWHERE)
    await restored.inbox.put([Notification(last), Notification(B, renamed_to=C if last == C else None)])
    await restored.work(20, only=lambda table: table != A)
    places = [(A, AT), (B, AT), (last, ELSEWHERE)]
    assert [restored.document(*one)["state"] for one in places] == ["current"] * 3
    await restored.work(3600)
    led = "renamed" if last == C else "moved"
    assert [restored.document(*one)["state"] for one in places] == ["renamed", led, "current"]


@pytest.mark.parametrize("naming", NAMINGS.values(), ids=NAMINGS)
@pytest.mark.parametrize("place", [AT, ELSEWHERE], ids=["here", "elsewhere"])
async def test_a_tombstone_leads_on_once_its_table_is_there_under_another_name(naming: Naming, place: str) -> None:
    line = Line(Policy("c1", replica_lag=LAG, absence_delay=LAG, is_swept=False, naming=naming))
    table = await line.publish_new(has_metadata_file=True)
    await line.drop()
    key = FileLayout(AT, naming).keys(FileOwner(A.namespace, A.name, table.uuid))[0]
    assert b'"dropped"' in line.store.files[key]
    line.catalog.register(B, replace(table, location=place))
    await line.hear(Notification(B), Notification(A), seconds=60)
    stays = naming.is_by_uuid and place == AT
    assert (b'"current"' if stays else b'"renamed"') in line.store.files[key]
    line.catalog.drop(B)
    await line.hear(Notification(B, drop=True), Notification(A), seconds=3600)
    assert b'"current"' not in line.store.files[key]


async def dropped(line: Line) -> Table:
    """Publish a table, drop it, and return what it was."""
    table = await line.publish_new(has_metadata_file=True)
    await line.drop()
    assert line.document(A)["state"] == "dropped"
    return table


async def test_a_tombstone_leads_on_once_its_table_is_there_at_another_place(restored: Line) -> None:
    table = await dropped(restored)
    pointer = f"{ELSEWHERE}/metadata/00001-{table.uuid}.metadata.json"
    restored.catalog.register(A, replace(table, location=ELSEWHERE, metadata_location=pointer))
    await restored.hear(Notification(A), seconds=60)
    assert restored.document(A)["moved_to"]["sfn_file_path"].startswith(ELSEWHERE)
    assert (restored.document(A)["state"], restored.document(A, ELSEWHERE)["state"]) == ("moved", "current")


async def test_tombstone_leads_on_at_once_where_only_the_new_name_at_another_place_was_told_of(restored: Line) -> None:
    """The table's log says where it was before."""
    table = await dropped(restored)
    pointer = f"{ELSEWHERE}/metadata/00001-{table.uuid}.metadata.json"
    log = (table.metadata_location, "no location\0", f"{AT}/elsewhere/00000-x.metadata.json")
    restored.catalog.register(B, replace(table, location=ELSEWHERE, metadata_location=pointer, metadata_log=log))
    await restored.hear(Notification(B), seconds=60)
    assert restored.document(A)["state"] == "renamed"
    assert restored.document(A)["moved_to"]["name"] == "b"


async def test_what_leads_to_a_file_that_is_gone_leads_on_once_the_table_has_another_name(restored: Line) -> None:
    table = restored.catalog.create(A)
    restored.store.files[table.metadata_location] = b"{}"
    await restored.hear(Notification(A), seconds=20)
    restored.catalog.rename(A, B)
    await restored.hear(Notification(A, renamed_to=B), Notification(B), seconds=60)
    assert restored.document(A)["moved_to"]["name"] == "b"
    restored.catalog.commit(B, left_alone="it is switched off")
    await restored.hear(Notification(B), seconds=60)
    assert restored.document(B) == {}
    restored.catalog.commit(B)
    restored.catalog.rename(B, C)
    await restored.hear(Notification(C), seconds=60)
    assert (restored.document(A)["state"], restored.document(A)["moved_to"]["name"]) == ("renamed", "c")


async def test_a_tombstone_that_leads_on_expires_all_the_same(restored: Line) -> None:
    table = restored.catalog.create(A)
    restored.store.files[table.metadata_location] = b"{}"
    await restored.hear(Notification(A), seconds=20)
    restored.catalog.drop(A)
    await restored.hear(Notification(A, drop=True), seconds=60)
    restored.catalog.register(B, table)
    await restored.hear(Notification(B), Notification(A), seconds=60)
    assert restored.document(A)["state"] == "renamed"
    await restored.work(restored.policy.expire_after.total_seconds() + 86400)
    assert restored.document(A) == {}
    assert restored.document(B)["state"] == "current"
