"""What lies where a file of ours belongs and is not ours: it stays as it is, and an operator is told what it is."""

from __future__ import annotations

import json

import pytest
from typing_extensions import override

from sfn.domain.events import Notification
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLettered, DeadLetterReason, StoredObject
from sfn.publish.policy import Policy
from sfn.sfnfile.naming import NAMINGS, FileLayout, FileOwner, Naming, Placement
from sfn.storage import Deleted, PreconditionFailed
from tests.unit.publishing import AT, LAG, A, CountingStore, Line, key_of

pytestmark = pytest.mark.anyio
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
    assert "it is that of n.Orders, and the file system takes upper and lower case for the same" in letter.detail


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
    assert "look at it, then move or delete it" in letter.detail
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
