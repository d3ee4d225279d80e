"""Of which table a drop was told, and what becomes of a tombstone whose table turns out to be there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfn.domain.events import Notification
from sfn.domain.identifiers import Table
from sfn.domain.jobs import Rescheduled
from sfn.publish.policy import Policy
from sfn.sfnfile.naming import NAMINGS, FileLayout, FileOwner, Naming
from tests.unit.publishing import AT, LAG, A, B, Line, named

pytestmark = pytest.mark.anyio
C = named("c")
ELSEWHERE = "file:///warehouse/n/other"
LONG = 700
"""Seconds after which a table counts as dropped of which no drop was told."""


@pytest.fixture
def line() -> Line:
    return Line()


async def replaced(line: Line, *, told: bool) -> None:
    """A table that took the name of another one, in its directory, of whose drop an event tells only now."""
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A, drop=told))
    assert isinstance(line.outcomes[-1], Rescheduled)


@pytest.mark.parametrize("told", [True, False], ids=["told of the first", "not told"])
async def test_a_drop_that_was_told_of_one_table_is_not_told_of_the_next(line: Line, told: bool) -> None:
    await replaced(line, told=told)
    line.catalog.drop(A)
    await line.hear(Notification(A), seconds=60)
    assert line.document(A)["state"] == "current"
    await line.work(LONG)
    assert line.document(A)["state"] == "dropped"


async def test_a_drop_that_was_told_of_the_next_table_counts(line: Line) -> None:
    await replaced(line, told=True)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    assert line.document(A)["state"] == "dropped"


async def test_a_drop_is_not_told_of_what_the_row_missed_before_it_had_that_table(line: Line) -> None:
    """The name had one table, then another elsewhere that nobody published, which is what was dropped."""
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.rename(A, B)
    second = line.catalog.create(A, location=ELSEWHERE)
    line.store.files[second.metadata_location] = b"{}"
    await line.inbox.put([Notification(A)])
    await line.work()
    assert line.document(A, ELSEWHERE)["state"] == line.document(A)["state"] == "current"
    line.catalog.drop(A)
    await line.inbox.put([Notification(A, drop=True)])
    await line.work(60, only=lambda table: table == A)
    assert line.document(A, ELSEWHERE)["state"] == "dropped"
    assert line.document(A)["state"] == "current"


@pytest.mark.parametrize("naming", NAMINGS.values(), ids=NAMINGS)
@pytest.mark.parametrize("place", [AT, ELSEWHERE], ids=["here", "elsewhere"])
async def test_a_tombstone_leads_on_once_its_table_is_there_under_another_name(naming: Naming, place: str) -> None:
    line = Line(Policy("c1", replica_lag=LAG, absence_delay=LAG, is_swept=False, naming=naming))
    table = line.catalog.create(A)
    line.store.files[table.metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
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
    table = line.catalog.create(A)
    line.store.files[table.metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    assert line.document(A)["state"] == "dropped"
    return table


async def test_a_tombstone_leads_on_once_its_table_is_there_at_another_place(line: Line) -> None:
    table = await dropped(line)
    pointer = f"{ELSEWHERE}/metadata/00001-{table.uuid}.metadata.json"
    line.catalog.register(A, replace(table, location=ELSEWHERE, metadata_location=pointer))
    await line.hear(Notification(A), seconds=60)
    assert line.document(A)["moved_to"]["sfn_file_path"].startswith(ELSEWHERE)
    assert (line.document(A)["state"], line.document(A, ELSEWHERE)["state"]) == ("moved", "current")


async def test_a_tombstone_leads_on_at_once_where_only_the_new_name_at_another_place_was_told_of(line: Line) -> None:
    """The table's log says where it was before."""
    table = await dropped(line)
    pointer = f"{ELSEWHERE}/metadata/00001-{table.uuid}.metadata.json"
    log = (table.metadata_location, "no location\0", f"{AT}/elsewhere/00000-x.metadata.json")
    line.catalog.register(B, replace(table, location=ELSEWHERE, metadata_location=pointer, metadata_log=log))
    await line.hear(Notification(B), seconds=60)
    assert line.document(A)["state"] == "renamed"
    assert line.document(A)["moved_to"]["name"] == "b"


async def test_what_leads_to_a_file_that_is_gone_leads_on_once_the_table_has_another_name(line: Line) -> None:
    table = line.catalog.create(A)
    line.store.files[table.metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.rename(A, B)
    await line.hear(Notification(A, renamed_to=B), Notification(B), seconds=60)
    assert line.document(A)["moved_to"]["name"] == "b"
    line.catalog.commit(B, left_alone="it is switched off")
    await line.hear(Notification(B), seconds=60)
    assert line.document(B) == {}
    line.catalog.commit(B)
    line.catalog.rename(B, C)
    await line.hear(Notification(C), seconds=60)
    assert (line.document(A)["state"], line.document(A)["moved_to"]["name"]) == ("renamed", "c")


async def test_a_tombstone_that_leads_on_expires_all_the_same(line: Line) -> None:
    table = line.catalog.create(A)
    line.store.files[table.metadata_location] = b"{}"
    await line.hear(Notification(A), seconds=20)
    line.catalog.drop(A)
    await line.hear(Notification(A, drop=True), seconds=60)
    line.catalog.register(B, table)
    await line.hear(Notification(B), Notification(A), seconds=60)
    assert line.document(A)["state"] == "renamed"
    await line.work(line.policy.expire_after.total_seconds() + 86400)
    assert line.document(A) == {}
    assert line.document(B)["state"] == "current"
