"""What every inbox promises, of the shared one on the simulated database."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from types import ModuleType

import pytest

from tests.promises import (
    test_inbox,
    test_inbox_admin,
    test_inbox_claims,
    test_inbox_drop_limit,
    test_inbox_intents,
    test_inbox_jobs,
    test_inbox_reported_changes,
)
from tests.promises.inboxes import TERMS, Ground
from tests.simulation.database.kept import Replica
from tests.simulation.database.server import Server
from tests.simulation.loop import SimulatedLoop
from tests.simulation.weather import Weather
from tests.support.clock import HandClock

Promise = Callable[[Ground], Awaitable[None]]
OF_EACH = (
    test_inbox,
    test_inbox_admin,
    test_inbox_claims,
    test_inbox_drop_limit,
    test_inbox_intents,
    test_inbox_jobs,
    test_inbox_reported_changes,
)

MANY = {
    "test_table_index_of_many_pages_has_every_table_once",
    "test_short_lived_table_does_not_wait_behind_a_backlog",
    "test_large_release_does_not_block_notifications",
    "test_ten_thousand_notifications_are_one_job_with_the_newest_location",
    "test_thousands_of_commits_are_reduced_to_the_newest",
    "test_default_limit_is_ten_steps_or_one_percent",
}
"""They are about more rows than any history has."""


def promises(module: ModuleType) -> list[tuple[str, Promise]]:
    """Those that need nothing but an inbox."""
    found = inspect.getmembers(module, inspect.iscoroutinefunction)
    tests = [(name, one) for name, one in found if name.startswith("test_") and name not in MANY]
    return [(name, one) for name, one in tests if [*inspect.signature(one).parameters] == ["ground"]]


PROMISES = dict(pair for module in OF_EACH for pair in promises(module))


@pytest.mark.parametrize("name", PROMISES)
def test_the_twin_keeps_what_every_inbox_promises(name: str) -> None:
    loop, bad, clock = SimulatedLoop(), list[tuple[str, str]](), HandClock()
    asyncio.set_event_loop(loop)
    server = Server(loop, random.Random(1), Weather(), lambda *what: bad.append(what), lambda _: None)
    try:
        loop.run_until_complete(PROMISES[name](Ground(Replica(server, None, TERMS, clock), clock)))
    finally:
        loop.close()
    assert bad == []
