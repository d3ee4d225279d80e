"""What a sweep tells the log: its numbers, and what it could not look at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from sfn.errors import ErrorScope, Transient
from sfn.worker.sweep import CONCURRENT_LOADS, MAX_LOGGED
from tests.unit.sweeping import World, trouble


@pytest.fixture
def world() -> World:
    return World()


def of(event: str, records: Sequence[EventDict]) -> list[EventDict]:
    return [record for record in records if record["event"] == event]


@pytest.mark.parametrize(("limit", "calm"), [(2, True), (1, False)])
async def test_a_sweep_tells_its_numbers_once(world: World, limit: int, *, calm: bool) -> None:
    same, *gone = [world.create(name) for name in ("same", "gone", "gone_too")]
    for table in (same, *gone):
        await world.published(table)
    for table in gone:
        world.catalog.drop(table)
    for number in range(3):
        world.create(f"new{number}")
    world.inbox.allow(limit)
    with capture_logs() as records:
        assert (await world.swept()).within_limit is calm
    assert of("sweep told", records) == [
        {
            "event": "sweep told",
            "log_level": "info",
            "catalog": "prod",
            "tables": 4,
            "hints": 5,
            "absences": 2,
            "limit": limit,
        }
    ]
    warnings = [] if calm else [{"missing": 2, "known": 3, "limit": 1}]
    assert [{key: one[key] for key in ("missing", "known", "limit")} for one in of("drop limit reached", records)] == (
        warnings
    )
    assert all(one["remedy"].endswith("sfn release prod") for one in of("drop limit reached", records))


async def test_tables_that_fail_are_one_warning_with_the_first_error(world: World) -> None:
    tables = [world.create(f"t{number:04d}") for number in range(2 * MAX_LOGGED)]
    world.catalog.fails_after, world.catalog.fails_with = CONCURRENT_LOADS, trouble(ErrorScope.TABLE)
    with capture_logs() as records:
        await world.swept()
    (record,) = of("tables not looked at", records)
    assert (record["log_level"], record["catalog"], record["number"]) == (
        "warning",
        "prod",
        len(tables) - CONCURRENT_LOADS,
    )
    assert record["error"] == str(world.catalog.fails_with)
    assert len(record["tables"]) == MAX_LOGGED
    assert set(record["tables"]) <= {table.dotted for table in tables}
    (told,) = of("sweep told", records)
    assert (told["tables"], told["hints"]) == (len(tables), CONCURRENT_LOADS)


async def test_a_sweep_that_ends_in_trouble_tells_no_numbers(world: World) -> None:
    world.create("t")
    world.catalog.fails_with = trouble()
    with capture_logs() as records, pytest.raises(Transient):
        await world.swept()
    assert records == []
