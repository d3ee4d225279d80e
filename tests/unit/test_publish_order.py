"""What an answer of the catalog is worth that may be older than what another file of ours says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sfn.errors import Transient
from sfn.pointer import hintfile
from sfn.publish.policy import Policy
from sfn.words import Hint
from tests.promises.inboxes import TERMS
from tests.unit.publishing import AT, LAG, A, B, Line, TornStore, key_of

pytestmark = pytest.mark.anyio


async def test_memory_skips_nothing_for_an_event_that_says_no_more_than_look() -> None:
    line = Line()
    line.catalog.create(A)
    await line.hear(Hint(A), seconds=60)
    line.store.files.clear()
    await line.hear(Hint(A))
    assert sorted(line.store.files) == [key_of(A), hintfile.key(AT)]


async def test_such_an_event_gets_one_more_look() -> None:
    line = Line()
    line.catalog.create(A)
    await line.hear(Hint(A), seconds=60)
    loads, reads = line.catalog.loads, line.store.reads
    await line.hear(Hint(A))
    assert (line.catalog.loads - loads, line.store.reads - reads) == (1, 2)
    await line.work(60)
    assert (line.catalog.loads - loads, line.store.reads - reads) == (2, 4)


async def test_under_its_old_name_a_table_is_not_followed_back_by_a_replica_that_lags() -> None:
    """The new name's file is ahead; that the old one still has the table may be of before the rename."""
    line = Line(Policy("c1", replica_lag=timedelta(minutes=2), swept=False))
    first = line.catalog.create(A)
    await line.hear(Hint(A), seconds=20)
    second, third = line.catalog.commit(A), line.catalog.commit(A)
    line.catalog.rename(A, B)
    await line.inbox.put([Hint(B)])
    await line.work(only=lambda table: table == B)
    assert line.document(B)["metadata_file_path"] == third.metadata_location

    line.catalog.drop(B)
    line.catalog.register(A, second)
    await line.hear(Hint(A), seconds=60)
    assert line.document(A)["metadata_file_path"] == first.metadata_location
    await line.work(120)
    assert line.document(A)["metadata_file_path"] == second.metadata_location


async def test_the_newest_file_of_a_table_makes_room_only_after_the_older_ones() -> None:
    """Else a reader of the directory would be led back to what an older one says of a table that is gone."""
    line = Line()
    first = line.catalog.create(A)
    await line.hear(Hint(A), seconds=20)
    second = line.catalog.commit(A)
    line.catalog.rename(A, B)
    await line.inbox.put([Hint(B)])
    await line.work(only=lambda table: table == B)
    line.clock.turn(2 * LAG.total_seconds())
    line.catalog.drop(B)
    line.catalog.create(B, AT)
    await line.inbox.put([Hint(B)])
    await line.work(only=lambda table: table == B)
    assert line.document(A)["metadata_file_path"] == first.metadata_location
    assert line.document(B)["metadata_file_path"] == second.metadata_location
    await line.work(3600)
    assert line.document(A).get("state") != "current"
    assert line.document(B)["guid"] not in {first.uuid, None}


async def test_that_is_so_too_where_an_older_one_lies_at_a_place_that_the_table_left() -> None:
    """Of which nobody knows by its row: that one has another table by now."""
    line, there = Line(), "file:///warehouse/n/there"
    line.store.files[line.catalog.create(A).metadata_location] = b"{}"
    await line.hear(Hint(A), seconds=20)
    line.catalog.rename(A, B)
    line.catalog.commit(B)
    await line.inbox.put([Hint(B)])
    await line.work(only=lambda table: table == B)
    line.store.files[line.catalog.commit(B, location=there).metadata_location] = b"{}"
    line.clock.turn(2 * LAG.total_seconds())
    await line.inbox.put([Hint(B)])
    await line.work(only=lambda table: table == B)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("current", "moved")
    line.catalog.drop(B)
    line.catalog.create(A, "file:///warehouse/n/new")
    line.clock.turn(TERMS.lease.total_seconds())
    await line.work(only=lambda table: table == A)
    await line.hear(Hint(B, drop=True))
    waited = 0
    while line.document(A)["state"] == "current" and waited < 3600:
        assert line.document(B, there)["state"] == "current"
        await line.work(10)
        waited += 10
    assert waited > 60
    await line.work(3600)
    assert (line.document(A)["state"], line.document(B, there)["state"]) == ("dropped", "dropped")


async def test_what_leads_on_makes_room_only_after_what_would_lead_back() -> None:
    """The store took the file at the new place and no more, when a new table had the old name at the old place."""
    line, there = Line(), "file:///warehouse/n/there"
    line.store = store = TornStore()
    line.catalog.create(A)
    await line.hear(Hint(A), seconds=20)
    line.catalog.rename(A, B)
    second = line.catalog.commit(B)
    await line.inbox.put([Hint(B)])
    await line.work(only=lambda table: table == B)
    third = line.catalog.commit(B, location=there)
    line.clock.turn(2 * LAG.total_seconds())
    await line.inbox.put([Hint(B)])
    store.torn = True
    with pytest.raises(Transient):
        await line.work(only=lambda table: table == B)
    store.torn = False
    line.clock.turn(TERMS.lease.total_seconds())
    await line.inbox.put([Hint(A, renamed_to=B)])
    await line.work(2 * LAG.total_seconds(), only=lambda table: table == A)
    assert (line.document(A)["state"], line.document(B)["metadata_file_path"]) == ("renamed", second.metadata_location)
    assert line.document(B, there)["metadata_file_path"] == third.metadata_location

    line.catalog.create(A, AT)
    await line.inbox.put([Hint(A)])
    await line.work(2 * LAG.total_seconds(), only=lambda table: table == A)
    assert line.document(A)["state"] == "renamed"
    await line.work(3600)
    assert (line.document(A)["state"], line.document(B)["state"]) == ("current", "moved")


async def test_an_abandoned_pointer_of_the_same_number_does_not_come_back() -> None:
    """Two successors of one version, by a rollback and a commit: no name and no log tells their order."""
    line = Line()
    line.catalog.create(A)
    abandoned = line.catalog.commit(A)
    await line.hear(Hint(A), seconds=60)
    line.catalog.roll_back(A)
    current = line.catalog.commit(A)
    await line.hear(Hint(A, floor=current.metadata_location), seconds=2)
    assert line.document(A)["metadata_file_path"] == current.metadata_location

    line.catalog.drop(A)
    line.catalog.register(A, abandoned)
    await line.hear(Hint(A), seconds=2)
    assert line.document(A)["metadata_file_path"] == current.metadata_location
    line.catalog.drop(A)
    line.catalog.register(A, current)
    await line.work(60)
    assert line.document(A)["metadata_file_path"] == current.metadata_location
