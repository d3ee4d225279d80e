"""A worker whose catalog nobody can list."""

from __future__ import annotations

from dataclasses import replace

from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import Done
from sfn.worker.catalog_sources import ConnectedCatalog
from tests.unit.working import Desk

PROD = CatalogName("prod")


async def test_a_sweep_that_somebody_asked_for_settles_without_trouble_and_calms_no_brake() -> None:
    desk = Desk()
    assert desk.source is not None
    desk.source = ConnectedCatalog(desk.source.catalog, replace(desk.source.policy, event_only=True))
    (outcome,) = await desk.hear(PROD)
    assert isinstance(outcome, Done)
    assert outcome.forget
    desk.clock.turn(10**6)
    assert (await desk.inbox.claim(desk.inbox.slots)).jobs == ()
