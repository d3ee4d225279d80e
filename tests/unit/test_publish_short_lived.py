"""A table whose metadata files are soon deleted goes before all others, from the first publish that saw it on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfn.domain.events import Notification
from sfn.domain.jobs import Capacity, Priority
from tests.unit.publishing import A, Line, named

pytestmark = pytest.mark.anyio
ONE = Capacity(total=1, live=1, sweeps=0)


def keep(line: Line, versions: int | None) -> None:
    """One more commit of a table that has one every two seconds, which leaves so many metadata files."""
    line.catalog.amend(A, replace(line.catalog.commit(A), previous_versions_max=versions))


@pytest.fixture
async def line() -> Line:
    line = Line()
    line.catalog.create(A)
    for _ in range(30):
        keep(line, 20)
    await line.hear(Notification(A), seconds=600)
    return line


async def test_it_is_served_before_a_backlog(line: Line) -> None:
    await line.inbox.put([Notification(named(f"t{number}")) for number in range(1000)])
    keep(line, 20)
    await line.inbox.put([Notification(A)])
    (claim,) = (await line.inbox.claim(ONE)).jobs
    await line.publish(claim)
    current = line.catalog.current(A)
    assert current is not None
    assert line.document(A)["metadata_file_path"] == current.metadata_location


async def test_it_takes_its_turn_once_its_files_stay(line: Line) -> None:
    keep(line, None)
    await line.hear(Notification(A), seconds=600)
    await line.inbox.put([Notification(A)])
    (claim,) = (await line.inbox.claim(ONE)).jobs
    assert claim.group.priority is Priority.LIVE


async def test_it_stays_first_while_the_catalog_says_nothing_new(line: Line) -> None:
    await line.hear(Notification(A), seconds=600)
    await line.inbox.put([Notification(A)])
    (claim,) = (await line.inbox.claim(ONE)).jobs
    assert claim.group.priority is Priority.SHORT_LIVED
