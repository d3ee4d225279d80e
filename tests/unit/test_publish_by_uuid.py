"""Files called by the table's uuid: they outlast a rename, and each table that had a name has its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason
from sfn.inbox.memory import MemoryInbox
from sfn.publish.policy import Policy
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import UUID, FileLayout, FileOwner
from tests.promises.inboxes import TERMS
from tests.unit.publishing import AT, LAG, A, B, Line

pytestmark = pytest.mark.anyio
HERE = FileLayout(AT, UUID)


class ByUuid(Line):
    """A line with such names; metadata files that were written are there."""

    def __init__(self) -> None:
        super().__init__(Policy("c1", replica_lag=LAG, absence_delay=LAG, is_swept=False, naming=UUID))

    def laid(self, table: Table) -> Table:
        """The table with its metadata file."""
        self.store.files[table.metadata_location] = b"{}"
        return table

    def of(self, table: Table, site: FileLayout = HERE) -> dict[str, Any]:
        """The table's file."""
        body: dict[str, Any] = json.loads(self.store.files[site.keys(FileOwner((), "", table.uuid))[0]])
        return body

    def says(self, table: Table, name: TableIdentifier, pointer: Table, site: FileLayout = HERE) -> None:
        """The table's file is live, under that name."""
        body = self.of(table, site)
        assert (body["state"], body["table_identifier"]) == ("current", name.dotted)
        assert body["metadata_file_path"] == pointer.metadata_location

    @property
    def files(self) -> list[str]:
        """The SFN files there are."""
        return [key for key in self.store.files if key.endswith(".ver")]


async def test_a_rename_keeps_the_file() -> None:
    line = ByUuid()
    table = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    line.catalog.rename(A, B)
    await line.hear(Notification(A, renamed_to=B), Notification(B), seconds=60)
    line.says(table, B, table)
    assert len(line.files) == 1
    after = line.laid(line.catalog.commit(B))
    await line.hear(Notification(B), seconds=60)
    line.says(table, B, after)
    assert line.hint() == version_hint.content(after)


@pytest.mark.parametrize("told", [A, B])
async def test_a_rename_of_which_one_half_is_told_is_followed_too(told: TableIdentifier) -> None:
    line = ByUuid()
    table = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    line.catalog.rename(A, B)
    await line.hear(Notification(told, renamed_to=B if told == A else None), seconds=90)
    line.says(table, B, table)


async def test_names_that_are_swapped_and_swapped_back() -> None:
    line = ByUuid()
    first = line.laid(line.catalog.create(A, AT))
    second = line.laid(line.catalog.create(B, AT))
    await line.hear(Notification(A), Notification(B), seconds=20)
    between = TableIdentifier("prod", ("n",), "between")
    for _ in range(2):
        for old, new in ((A, between), (B, A), (between, B)):
            line.catalog.rename(old, new)
        await line.hear(Notification(A), Notification(B), seconds=90)
        swapped = line.catalog.current(A) == second
        line.says(first, B if swapped else A, first)
        line.says(second, A if swapped else B, second)
    assert len(line.files) == 2


async def test_a_table_that_takes_the_name_and_the_place_of_another_has_its_own_file() -> None:
    line = ByUuid()
    first = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    second = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=60)
    line.says(second, A, second)
    assert line.of(first)["state"] == "dropped"
    assert line.hint() == version_hint.content(second)
    await line.work(line.policy.expire_after.total_seconds() + line.policy.refresh_after.total_seconds())
    assert line.files == [HERE.keys(FileOwner((), "", second.uuid))[0]]


async def test_a_rename_with_a_move_leads_on_from_the_old_place() -> None:
    line = ByUuid()
    table = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    line.catalog.rename(A, B)
    moved = line.laid(line.catalog.commit(B, location="file:///warehouse/n/b"))
    await line.hear(Notification(A, renamed_to=B), Notification(B), seconds=90)
    there = FileLayout("file:///warehouse/n/b", UUID)
    line.says(table, B, moved, there)
    assert line.of(table)["state"] == "renamed"
    assert line.of(table)["moved_to"]["sfn_file_path"] == there.keys(FileOwner((), "", table.uuid))[0]
    assert line.hint() is None


async def test_a_drop_is_told_and_an_undrop_under_another_name_too() -> None:
    line = ByUuid()
    table = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    assert line.of(table)["state"] == "dropped"
    assert line.hint() is None
    line.catalog.register(B, table)
    await line.hear(Notification(B), seconds=60)
    line.says(table, B, table)


async def test_one_table_under_two_names_has_one_file_and_the_second_name_is_refused() -> None:
    line = ByUuid()
    table = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    line.catalog.register(B, table)
    await line.hear(Notification(B), seconds=60)
    line.says(table, A, table)
    (dead,) = [outcome for outcome in line.outcomes if isinstance(outcome, DeadLettered)]
    assert dead.reason is DeadLetterReason.FOREIGN_FILE
    assert "n.a has the same table-uuid in this catalog" in dead.detail
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), Notification(B), seconds=60)
    line.says(table, B, table)


async def test_a_replica_that_lags_behind_a_rename_makes_no_dead_letter() -> None:
    """For a moment both names have the table, as far as anybody says."""
    line = ByUuid()
    table = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    line.catalog.register(B, table)
    await line.hear(Notification(B), seconds=3)
    line.catalog.drop(A)
    await line.work(60)
    line.says(table, B, table)
    assert not [outcome for outcome in line.outcomes if isinstance(outcome, DeadLettered)]


async def test_a_file_of_another_catalog_is_left_alone() -> None:
    line = ByUuid()
    table = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    key = HERE.keys(FileOwner((), "", table.uuid))[0]
    theirs = line.store.files[key].replace(b'"c1"', b'"c2"')
    line.store.files[key] = theirs
    line.laid(line.catalog.commit(A))
    await line.hear(Notification(A, force=True), seconds=60)
    assert line.store.files[key] == theirs
    assert isinstance(line.outcomes[-1], DeadLettered)
    assert line.outcomes[-1].reason is DeadLetterReason.FOREIGN_CATALOG


async def test_a_table_without_a_uuid_can_t_be_named_by_it() -> None:
    line = ByUuid()
    table = line.laid(line.catalog.create(A))
    line.catalog.amend(A, Table(None, table.location, table.metadata_location))
    await line.hear(Notification(A), seconds=60)
    assert not line.files
    assert isinstance(line.outcomes[-1], DeadLettered)
    assert line.outcomes[-1].reason is DeadLetterReason.PERMANENT
    assert "no table-uuid" in line.outcomes[-1].detail


async def test_the_newest_file_of_a_name_ends_only_after_the_older_ones() -> None:
    """Else whoever asks by that name would be led back to the table that had it before."""
    line, there = ByUuid(), "file:///warehouse/n/there"
    first = line.laid(line.catalog.create(B, there))
    await line.hear(Notification(B), seconds=20)
    line.catalog.rename(B, A)
    line.laid(line.catalog.commit(A, location=AT))
    await line.inbox.put([Notification(A)])
    await line.work(only=lambda table: table == A)
    line.catalog.drop(A)
    second = line.laid(line.catalog.create(A))
    line.clock.turn(2 * LAG.total_seconds())
    await line.inbox.put([Notification(A)])
    await line.work(only=lambda table: table == A)
    assert [line.of(table)["state"] for table in (first, second)] == ["current", "current"]
    line.catalog.drop(A)
    await line.inbox.put([Notification(A, drop=True)])
    for _ in range(30):
        await line.work(1, only=lambda table: table == A)
        assert [line.of(table)["state"] for table in (first, second)] == ["current", "current"]
    line.clock.turn(TERMS.lease.total_seconds())
    await line.work(3600)
    assert [line.of(table)["state"] for table in (first, second)] == ["dropped", "dropped"]


async def test_a_rename_waits_for_no_file_of_another_catalog_that_has_the_name_too() -> None:
    """Nobody here may end it."""
    line = ByUuid()
    table = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    other = "99999999-0000-0000-0000-000000000000"
    older = {
        "catalog_id": "c2",
        "guid": other,
        "asked_at": "2020-01-01T00:00:00Z",
        "written_at": "2020-01-01T00:00:00Z",
    }
    line.store.files[HERE.keys(FileOwner((), "", other))[0]] = json.dumps(line.of(table) | older).encode()
    line.catalog.rename(A, B)
    await line.hear(Notification(A, renamed_to=B), Notification(B), seconds=60)
    line.says(table, B, table)


async def test_a_file_that_is_called_by_another_spelling_of_the_uuid_makes_room_for_the_right_one() -> None:
    line = ByUuid()
    table = line.laid(line.catalog.create(A))
    await line.hear(Notification(A), seconds=20)
    assert table.uuid is not None
    (key,) = line.files
    spelled = table.uuid.replace("-", "")
    former = key.replace(table.uuid, spelled)
    # As a version left it that took every spelling as it came.
    line.store.files[former] = line.store.files.pop(key).replace(table.uuid.encode(), spelled.encode())
    line.inbox = MemoryInbox(TERMS, line.clock)
    after = line.laid(line.catalog.commit(A))
    await line.hear(Notification(A), seconds=60)
    line.says(table, A, after)
    assert json.loads(line.store.files[former])["state"] == "dropped"
