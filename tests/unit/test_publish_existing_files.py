"""Existing files at the path of an SFN file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, StoredObject
from sfn.inbox.model import AdminCommand, DeadLetterFilter, DeadLetterStatus
from sfn.publish.policy import Policy
from sfn.sfnfile import version_hint
from sfn.sfnfile.naming import NAMINGS, UUID, FileLayout, FileOwner, Naming, Placement
from sfn.storage import Deleted, PreconditionFailed
from tests.promises.inboxes import TERMS
from tests.support.memory_inbox import MemoryInbox
from tests.support.publishing import AT, LAG, A, B, CountingStore, Line, key_of

UPPER, LOWER = TableIdentifier("prod", ("n",), "Orders"), TableIdentifier("prod", ("n",), "orders")


class Folding(CountingStore):
    """A store that keeps upper and lower case as they came, and takes them for the same."""

    @override
    def store_for(self, _location: str) -> Folding:
        return self

    @override
    async def read(self, key: str) -> StoredObject | None:
        return await super().read(self._folded(key))

    @override
    async def write(self, key: str, body: bytes, replacing: StoredObject | None) -> StoredObject | PreconditionFailed:
        return await super().write(self._folded(key), body, replacing)

    @override
    async def delete(self, key: str, expected: StoredObject) -> Deleted | PreconditionFailed:
        return await super().delete(self._folded(key), expected)

    def _folded(self, key: str) -> str:
        return next((one for one in self.files if one.casefold() == key.casefold()), key)


def line_of(naming: Naming, placement: Placement = Placement.INSIDE) -> Line:
    """A line with a naming."""
    policy = Policy("c1", replica_lag=LAG, is_swept=False, naming=naming, placement=placement, root="file:///sfn")
    return Line(policy)


def dead(line: Line) -> list[DeadLettered]:
    """The dead letters so far."""
    return [outcome for outcome in line.outcomes if isinstance(outcome, DeadLettered)]


@pytest.mark.parametrize("placement", [Placement.INSIDE, Placement.ROOT])
@pytest.mark.parametrize("naming", [NAMINGS["identifier"], NAMINGS["ordinal"]], ids=lambda naming: naming.setting)
async def test_names_that_differ_in_case_alone_are_never_merged(naming: Naming, placement: Placement) -> None:
    """On a file system that does not tell them apart; where it does, each has its file."""
    line = line_of(naming, placement)
    line.store = Folding()
    tables = {name: line.catalog.create(name, AT) for name in (UPPER, LOWER)}
    await line.hear(Notification(UPPER), seconds=20)
    before = {key: body for key, body in line.store.files.items() if key.endswith(".ver")}
    await line.hear(Notification(LOWER), seconds=60)
    assert {key: line.store.files[key] for key in before} == before
    (key,) = [
        key for key in before if json.loads(before[key])["metadata_file_path"] == tables[UPPER].metadata_location
    ][:1]
    assert key.casefold().startswith(line.policy.layout(UPPER, AT).folder.casefold())
    (letter,) = dead(line)
    assert letter.reason is DeadLetterReason.FOREIGN_FILE
    assert "it belongs to n.Orders, and the file system does not distinguish upper and lower case" in letter.detail


async def test_where_case_is_told_apart_each_has_its_file() -> None:
    line = line_of(NAMINGS["identifier"])
    tables = {name: line.catalog.create(name, AT) for name in (UPPER, LOWER)}
    await line.hear(Notification(UPPER), Notification(LOWER), seconds=60)
    for name, table in tables.items():
        assert json.loads(line.store.files[key_of(name)])["metadata_file_path"] == table.metadata_location
    assert not dead(line)


GARBAGE = {
    "empty": b"",
    "truncated": b'{"version": 1, "table_identifier": "n.a", "guid"',
    "10 MiB": b" " * (10 << 20),
    "no UTF-8": b'{"version": 1, "name": "\xff"}',
    "wrong types": b'{"version": 1, "table_identifier": 3, "guid": [], "metadata_file_path": {}, "Ordinal": 1}',
    "a later version": b'{"version": 2, "table_identifier": "n.a"}',
    "no object": b"[1, 2]",
    "nested deeply": b"[" * 60_000,
}


@pytest.mark.parametrize("naming", NAMINGS.values(), ids=NAMINGS)
@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
async def test_what_is_no_document_of_ours_is_never_replaced(naming: Naming, body: bytes) -> None:
    line = line_of(naming)
    table = line.catalog.create(A)
    key = FileLayout(AT, naming).keys(FileOwner(A.namespace, A.name, table.uuid))[0]
    line.store.files[key] = body
    await line.hear(Notification(A), seconds=60)
    assert line.store.files == {key: body}
    (letter,) = dead(line)
    assert letter.reason is DeadLetterReason.FOREIGN_FILE
    assert key in letter.detail
    assert "Inspect it, then move or delete it" in letter.detail
    del line.store.files[key]
    await line.hear(Notification(A), seconds=60)
    assert json.loads(line.store.files[key])["metadata_file_path"] == table.metadata_location


@pytest.mark.parametrize("naming", NAMINGS.values(), ids=NAMINGS)
async def test_what_lies_beside_ours_and_is_no_document_is_left_alone(naming: Naming) -> None:
    line = line_of(naming)
    table = line.catalog.create(A)
    beside = {
        f"{FileLayout(AT).folder}{name}": body
        for name, body in zip(("x.ver", "n_a_x.ver", "y"), GARBAGE.values(), strict=False)
    }
    line.store.files |= beside
    await line.hear(Notification(A), seconds=60)
    assert {key: line.store.files[key] for key in beside} == beside
    key = FileLayout(AT, naming).keys(FileOwner(A.namespace, A.name, table.uuid))[0]
    assert json.loads(line.store.files[key])["metadata_file_path"] == table.metadata_location


HOUR = 3600.0
MINUTE = 60.0
LEFT = f"{AT}/metadata/00000-left.metadata.json"
"""What a drop without purge leaves behind."""


async def made_foreign(line: Line) -> None:
    """A's file is another catalog's, as after a change of the catalog's address, and its row was given up."""
    await line.publish_new(seconds=MINUTE)
    line.policy = replace(line.policy, catalog_id="c2")
    line.catalog.commit(A)
    await line.hear(Notification(A), seconds=MINUTE)
    dead = line.outcomes[-1]
    assert isinstance(dead, DeadLettered)
    assert "--from c1" in dead.detail
    assert line.document(A)["catalog_id"] == "c1"
    assert await carried(line) == "c1"


async def carried(line: Line) -> str | None:
    """What the roster says of the file at A's place."""
    (known,) = [one async for one in line.inbox.tables("prod") if one.table == A]
    return known.catalog_id_in_file


async def adopt(line: Line, catalog_id: str = "c1") -> None:
    await line.inbox.adopt(
        [Notification(A, sender="operator", adopt_catalog_id=catalog_id)], AdminCommand("ann", "", line.clock.now())
    )
    await line.work(HOUR)


async def test_an_adopted_file_names_its_new_catalog_and_the_newest_pointer() -> None:
    line = Line()
    await made_foreign(line)
    before = line.document(A)
    table = line.catalog.commit(A)
    await adopt(line)
    after = line.document(A)
    assert (after["catalog_id"], after["metadata_file_path"]) == ("c2", table.metadata_location)
    assert after["Ordinal"] > before["Ordinal"]
    assert await carried(line) == "c2"
    assert line.hint() == table.metadata_location.rpartition("/")[2].removesuffix(".metadata.json").encode()
    assert [letter.status for letter in await line.inbox.list_after(DeadLetterFilter(status=None), 0, 9)] == [
        DeadLetterStatus.SUPERSEDED
    ]


async def test_an_adopted_file_that_is_right_already_is_written_once_for_its_catalog() -> None:
    line = Line()
    await line.publish_new(seconds=MINUTE)
    line.policy = replace(line.policy, catalog_id="c2")
    await line.hear(Notification(A, force=True), seconds=MINUTE)
    await adopt(line)
    assert line.document(A)["catalog_id"] == "c2"
    await line.hear(Notification(A), seconds=MINUTE)
    done = line.outcomes[-1]
    assert isinstance(done, Done)
    assert done.result.written_keys == ()


async def test_a_file_of_a_third_catalog_is_left_alone() -> None:
    line = Line()
    await made_foreign(line)
    await adopt(line, "c9")
    assert line.document(A)["catalog_id"] == "c1"
    assert [letter.reason for letter in await line.inbox.list_after(DeadLetterFilter(), 0, 9)] == [
        DeadLetterReason.FOREIGN_CATALOG
    ]


async def test_an_adopted_file_still_does_not_go_back_to_what_a_lagging_replica_says() -> None:
    line = Line()
    await made_foreign(line)
    line.policy = replace(line.policy, catalog_id="c1")
    await line.hear(Notification(A))
    newest = line.document(A)["metadata_file_path"]
    line.policy = replace(line.policy, catalog_id="c2")
    await line.hear(Notification(A, force=True))
    line.catalog.roll_back(A)
    await line.inbox.adopt([Notification(A, adopt_catalog_id="c1")], AdminCommand("ann", "", line.clock.now()))
    await line.hear(Notification(B), seconds=LAG.total_seconds() / 2)
    assert line.document(A)["metadata_file_path"] == newest


RETIREMENTS: dict[str, Callable[[Line], object]] = {
    "it is still there": lambda _: None,
    "it was dropped": lambda line: line.catalog.drop(A),
    "it moved": lambda line: line.catalog.commit(A, f"{AT}-elsewhere"),
}


@pytest.mark.parametrize("then", list(RETIREMENTS))
async def test_who_retires_leaves_no_file(then: str) -> None:
    line = Line()
    await line.publish_new(seconds=MINUTE)
    RETIREMENTS[then](line)
    line.policy = replace(line.policy, is_retired=True)
    await line.hear(Notification(A, force=True), seconds=MINUTE)
    assert line.store.files == {}


async def test_who_retires_leaves_no_tombstone() -> None:
    line = Line()
    await line.publish_new(seconds=MINUTE)
    line.catalog.drop(A)
    line.store.files[LEFT] = b"{}"
    await line.hear(Notification(A, drop=True), seconds=HOUR)
    assert line.document(A)["state"] == "dropped"
    line.policy = replace(line.policy, is_retired=True)
    await line.hear(Notification(A, force=True), seconds=MINUTE)
    assert line.store.files == {LEFT: b"{}"}


async def test_who_retires_leaves_other_catalogs_files() -> None:
    line = Line()
    await made_foreign(line)
    before = dict(line.store.files)
    line.policy = replace(line.policy, is_retired=True)
    await line.hear(Notification(A, force=True), seconds=HOUR)
    assert line.store.files == before


async def test_a_retirement_that_is_undone_publishes_again() -> None:
    line = Line()
    await line.publish_new(seconds=MINUTE)
    policy = line.policy
    line.policy = replace(policy, is_retired=True)
    await line.hear(Notification(A, force=True), seconds=MINUTE)
    line.policy = policy
    await line.hear(Notification(A), seconds=MINUTE)
    assert line.document(A)["state"] == "current"
    assert key_of(A) in line.store.files
    assert isinstance(line.outcomes[-1], Done)


async def test_a_table_that_is_gone_has_no_file_that_is_in_its_way() -> None:
    line = Line()
    await made_foreign(line)
    line.catalog.drop(A)
    await line.hear(Notification(A), seconds=HOUR)
    assert await carried(line) is None


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
    table = await line.publish_new(has_metadata_file=True)
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
    table = await line.publish_new(has_metadata_file=True)
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
    first = await line.publish_new(has_metadata_file=True)
    line.catalog.drop(A)
    second = await line.publish_new(seconds=60, has_metadata_file=True)
    line.says(second, A, second)
    assert line.of(first)["state"] == "dropped"
    assert line.hint() == version_hint.content(second)
    await line.work(line.policy.expire_after.total_seconds() + line.policy.refresh_after.total_seconds())
    assert line.files == [HERE.keys(FileOwner((), "", second.uuid))[0]]


async def test_a_rename_with_a_move_leads_on_from_the_old_place() -> None:
    line = ByUuid()
    table = await line.publish_new(has_metadata_file=True)
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
    table = await line.publish_new(has_metadata_file=True)
    await line.drop()
    assert line.of(table)["state"] == "dropped"
    assert line.hint() is None
    line.catalog.register(B, table)
    await line.hear(Notification(B), seconds=60)
    line.says(table, B, table)


async def test_one_table_under_two_names_has_one_file_and_the_second_name_is_refused() -> None:
    line = ByUuid()
    table = await line.publish_new(has_metadata_file=True)
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
    table = await line.publish_new(has_metadata_file=True)
    line.catalog.register(B, table)
    await line.hear(Notification(B), seconds=3)
    line.catalog.drop(A)
    await line.work(60)
    line.says(table, B, table)
    assert not [outcome for outcome in line.outcomes if isinstance(outcome, DeadLettered)]


async def test_a_file_of_another_catalog_is_left_alone() -> None:
    line = ByUuid()
    table = await line.publish_new(has_metadata_file=True)
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
    await line.hear_only(A)
    line.catalog.drop(A)
    second = line.laid(line.catalog.create(A))
    line.clock.turn(2 * LAG.total_seconds())
    await line.hear_only(A)
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
    table = await line.publish_new(has_metadata_file=True)
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
    table = await line.publish_new(has_metadata_file=True)
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
