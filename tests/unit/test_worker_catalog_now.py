"""Queries of operators about one table: answers, a catalog that hangs, and an open circuit breaker."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import anyio
import pytest
from typing_extensions import override

from sfn.catalogs import Loaded, LoadResult, NoSuchTable, StagedCreate
from sfn.catalogs.activity import CatalogActivity
from sfn.catalogs.memory import MemoryCatalog
from sfn.domain.identifiers import Table, TableIdentifier
from sfn.errors import ErrorScope, Transient
from sfn.worker.capacity import CircuitBreakerState
from sfn.worker.catalog_now import CatalogNow, CatalogNowState, CatalogQueries
from tests.support.clock import HandClock

ORDERS = TableIdentifier("prod", ("sales",), "orders")
POINTER = "file:///w/sales/orders/metadata/2.json"
LOADED = Loaded(Table("9c2a6f3e-1b1f-4d7e-8a29-0a1f6b2c3d4e", "file:///w/sales/orders", POINTER))


class AnsweringCatalog(MemoryCatalog):
    """A catalog with one answer, which may hang, and which counts the loads."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__("prod")
        self.answer: LoadResult = LOADED
        self.activity = CatalogActivity(clock)
        self.hangs, self.loads, self.running = False, 0, 0

    async def ping(self) -> None:
        """Answer at once."""
        with self.activity.request():
            pass

    @override
    async def load(self, table: TableIdentifier, known_etag: str | None) -> LoadResult:
        self.loads, self.running = self.loads + 1, self.running + 1
        try:
            with self.activity.request():
                if self.hangs:
                    await anyio.sleep_forever()
                self._raise_error()
                return self.answer
        finally:
            self.running -= 1


class Situation:
    """A catalog, its breakers and the queries."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.catalog = AnsweringCatalog(self.clock)
        self.breakers: Sequence[CircuitBreakerState] = ()
        catalogs = {"prod": self.catalog, "mute": MemoryCatalog("mute")}
        self.queries = CatalogQueries(catalogs, {"mute"}, lambda: self.breakers, self.clock, timeout=0.05)

    async def load(self) -> CatalogNow:
        return await self.queries.load(ORDERS)


@pytest.fixture(name="here")
def fixture_here() -> Situation:
    return Situation()


@pytest.mark.parametrize(
    ("answer", "state", "location"),
    [
        (LOADED, CatalogNowState.FOUND, POINTER),
        (NoSuchTable(), CatalogNowState.NOT_FOUND, None),
        (StagedCreate(), CatalogNowState.STAGED, None),
    ],
)
async def test_an_answer_has_its_time(
    here: Situation, answer: LoadResult, state: CatalogNowState, location: str | None
) -> None:
    here.catalog.answer = answer
    found = await here.load()
    assert (found.state, found.metadata_location, found.answered_at, found.error) == (
        state,
        location,
        here.clock.now(),
        "",
    )


async def test_a_failure_is_explained(here: Situation) -> None:
    here.catalog.error = Transient("catalog prod", scope=ErrorScope.CATALOG, expected="an answer", found="503")
    found = await here.load()
    assert (found.state, found.answered_at) == (CatalogNowState.UNANSWERED, None)
    assert "expected an answer, found 503" in found.error
    here.catalog.error = None
    assert (await here.load()).state is CatalogNowState.FOUND


async def test_an_event_only_catalog_is_not_asked(here: Situation) -> None:
    found = await here.queries.load(TableIdentifier("mute", ("sales",), "orders"))
    assert (found.state, found.error) == (CatalogNowState.EVENT_ONLY, "an event-only catalog cannot be queried")


async def test_a_hanging_catalog_is_asked_once_until_it_answers_something(here: Situation) -> None:
    here.catalog.hangs = True
    with anyio.fail_after(5):
        assert (await here.load()).error == "no answer within 0.05 s"
        here.clock.turn(9)
        assert (await here.load()).error == "not asked: a question 9 s ago had no answer in time"
    assert (here.catalog.loads, here.catalog.running) == (1, 0)
    here.catalog.hangs = False
    await here.catalog.ping()
    assert (await here.load()).state is CatalogNowState.FOUND


async def test_two_operators_at_once_hold_one_connection(here: Situation) -> None:
    here.catalog.hangs = True
    found: list[CatalogNow] = []

    async def ask() -> None:
        found.append(await here.load())

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
            await anyio.sleep(0.02)
            assert here.catalog.running == 1
    assert [one.state for one in found] == [CatalogNowState.UNANSWERED] * 5
    assert here.catalog.loads == 1


@pytest.mark.parametrize(
    ("probes", "scope", "asked"), [(0, "catalog", 0), (1, "catalog", 0), (2, "catalog", 1), (0, "store", 1)]
)
async def test_a_breaker_of_the_catalog_keeps_queries_away(
    here: Situation, probes: int, scope: str, asked: int
) -> None:
    since = here.clock.now() - timedelta(minutes=2)
    here.breakers = [CircuitBreakerState(ErrorScope(scope), "prod", here.clock.now(), probes, since, "found 503")]
    found = await here.load()
    assert here.catalog.loads == asked
    assert (found.error == "not asked: it has failed for 2 min: found 503") is (not asked)
