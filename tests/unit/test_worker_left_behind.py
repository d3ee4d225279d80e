"""Rows of a catalog that is not configured any more: what is over is forgotten, and only what is not has a letter."""

from __future__ import annotations

from datetime import timedelta

from structlog.testing import capture_logs

from sfn.domain.identifiers import CatalogName, JobKey
from sfn.domain.jobs import DeadLettered, DeadLetterReason, Done, Outcome
from sfn.inbox.model import AdminCommand, DeadLetterFilter
from sfn.publish.policy import Policy
from sfn.worker.catalog_sources import ConnectedCatalog
from tests.unit.working import REFRESH, TABLE, Desk

LATER = timedelta(days=30)


async def published() -> Desk:
    """A table that was published, and then its catalog left the configuration."""
    desk = Desk()
    desk.catalog.create(TABLE)
    await desk.hear()
    desk.source = None
    return desk


async def looked_at(desk: Desk) -> Outcome:
    desk.clock.turn(REFRESH.total_seconds())
    (outcome,) = await desk.work()
    return outcome


async def rows(desk: Desk) -> list[JobKey]:
    return [row.table async for row in desk.inbox.tables("prod")]


async def test_a_file_that_is_still_live_has_a_letter_that_says_what_to_do() -> None:
    desk = await published()
    outcome = await looked_at(desk)
    assert isinstance(outcome, DeadLettered)
    assert outcome.reason is DeadLetterReason.PERMANENT
    assert "put [catalogs.prod] back into the configuration and `sfn retire prod`" in outcome.detail


async def test_its_letter_stays_discarded() -> None:
    desk = await published()
    await looked_at(desk)
    (letter,) = await desk.inbox.list_after(DeadLetterFilter(), 0, 9)
    await desk.inbox.discard([letter.id], AdminCommand("ops", "it", desk.clock.now()))
    desk.clock.turn(LATER.total_seconds())
    assert await desk.work() == []
    assert await desk.inbox.list_after(DeadLetterFilter(), 0, 9) == []


async def test_once_the_catalog_is_back_a_replay_goes_on_where_it_was() -> None:
    desk = await published()
    await looked_at(desk)
    (letter,) = await desk.inbox.list_after(DeadLetterFilter(), 0, 9)
    desk.source = ConnectedCatalog(desk.catalog, Policy("c1"))
    await desk.inbox.replay([letter.id], [], AdminCommand("ops", "it", desk.clock.now()))
    (outcome,) = await desk.work()
    assert isinstance(outcome, Done)
    assert await desk.inbox.list_after(DeadLetterFilter(), 0, 9) == []


async def test_a_table_of_a_catalog_that_retired_is_forgotten_and_a_file_that_was_left_is_told() -> None:
    desk = await published()
    desk.has_retired = True
    with capture_logs() as records:
        outcome = await looked_at(desk)
    assert isinstance(outcome, Done)
    assert await rows(desk) == []
    assert await desk.inbox.list_after(DeadLetterFilter(status=None), 0, 9) == []
    (warning,) = [record for record in records if record["event"] == "file left behind"]
    assert (warning["log_level"], warning["table"]) == ("warning", str(TABLE))


async def test_a_table_without_a_file_is_forgotten() -> None:
    desk = Desk()
    desk.source = None
    with capture_logs() as records:
        (outcome,) = await desk.hear()
    assert isinstance(outcome, Done)
    assert (await rows(desk), records) == ([], [])


async def test_so_is_the_catalogs_own_row() -> None:
    desk = Desk()
    desk.source = None
    (outcome,) = await desk.hear(CatalogName("prod"))
    assert isinstance(outcome, Done)
    assert outcome.forget
    desk.clock.turn(LATER.total_seconds())
    assert await desk.work() == []
