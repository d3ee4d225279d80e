"""What is told of tables without files, in a catalog that nobody can ask: it is kept, as nobody could tell it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sfn.domain.events import Notification, TableOrigin
from sfn.domain.jobs import DeadLettered
from sfn.publish.policy import Policy, TableFilter
from tests.unit.publishing import A
from tests.unit.told_line import DAY, ToldLine

pytestmark = pytest.mark.anyio


def retired(policy: Policy) -> Policy:
    return replace(policy, is_retired=True)


def excluded(policy: Policy) -> Policy:
    return replace(policy, table_filter=TableFilter(exclude=("**",)))


WITHOUT_FILES = [retired, excluded]


@pytest.fixture(name="line", params=WITHOUT_FILES)
async def fixture_line(request: pytest.FixtureRequest) -> ToldLine:
    """A table that was published, in a catalog that publishes none any more."""
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    without: Callable[[Policy], Policy] = request.param
    line.policy = without(line.policy)
    await line.hear(Notification(A, force=True), seconds=60)
    assert line.document(A) == {}
    return line


async def back(line: ToldLine) -> None:
    """It publishes again, and has all tables looked at that it knows."""
    line.policy = replace(line.policy, is_retired=False, table_filter=TableFilter())
    await line.hear(*[Notification(row.table, force=True) async for row in line.inbox.tables("prod")], seconds=60)


@pytest.mark.parametrize("days", [0, 15])
async def test_a_commit_that_was_told_meanwhile_is_what_comes_back(line: ToldLine, days: int) -> None:
    second = line.commit(A)
    await line.tell(A, second, seconds=days * DAY)
    assert line.document(A) == {}
    await back(line)
    assert line.document(A)["metadata_file_path"] == second.metadata_location


async def test_a_table_whose_end_was_told_meanwhile_does_not_come_back_and_is_forgotten(line: ToldLine) -> None:
    await line.hear(Notification(A, drop=True), seconds=DAY)
    await back(line)
    assert line.document(A) == {}
    await line.work(30 * DAY)
    assert [row async for row in line.inbox.tables("prod")] == []


async def test_what_is_told_before_its_file_is_there_is_heard_when_it_comes_back(line: ToldLine) -> None:
    second = line.commit(A)
    body = line.store.files.pop(second.metadata_location)
    await line.tell(A, second, seconds=2 * DAY)
    line.store.files[second.metadata_location] = body
    await back(line)
    assert line.document(A)["metadata_file_path"] == second.metadata_location


async def test_what_was_not_heard_yet_when_its_files_went_is_heard_when_it_comes_back() -> None:
    line = ToldLine()
    await line.tell(A, line.create(A), TableOrigin.CREATE, seconds=60)
    second = line.commit(A)
    body = line.store.files.pop(second.metadata_location)
    await line.tell(A, second, seconds=60)
    line.policy = retired(line.policy)
    await line.hear(Notification(A, force=True), seconds=60)
    assert line.document(A) == {}
    line.store.files[second.metadata_location] = body
    await back(line)
    assert line.document(A)["metadata_file_path"] == second.metadata_location


@pytest.mark.parametrize("without", WITHOUT_FILES)
async def test_what_is_never_heard_is_no_dead_letter_and_forgotten(without: Callable[[Policy], Policy]) -> None:
    line = ToldLine()
    line.policy = without(line.policy)
    await line.hear(
        Notification(A, min_metadata_location="file:///elsewhere/metadata/1.metadata.json", origin=TableOrigin.CREATE),
        seconds=30 * DAY,
    )
    assert not any(isinstance(outcome, DeadLettered) for outcome in line.outcomes)
    assert len(line.outcomes) < 50
    assert [row async for row in line.inbox.tables("prod")] == []
