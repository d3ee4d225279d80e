"""Whose files they are: another catalog's are taken over on an operator's word alone, and who retires leaves none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sfn.domain.events import Notification
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done
from sfn.inbox.model import AdminCommand, DeadLetterFilter, DeadLetterStatus
from tests.unit.publishing import AT, LAG, A, B, Line, key_of

HOUR = 3600.0
MINUTE = 60.0
LEFT = f"{AT}/metadata/00000-left.metadata.json"
"""What a drop without purge leaves behind."""


async def made_foreign(line: Line) -> None:
    """A's file is another catalog's, as after a change of the catalog's address, and its row was given up."""
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=MINUTE)
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
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=MINUTE)
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
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=MINUTE)
    RETIREMENTS[then](line)
    line.policy = replace(line.policy, is_retired=True)
    await line.hear(Notification(A, force=True), seconds=MINUTE)
    assert line.store.files == {}


async def test_who_retires_leaves_no_tombstone() -> None:
    line = Line()
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=MINUTE)
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
    line.catalog.create(A)
    await line.hear(Notification(A), seconds=MINUTE)
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
