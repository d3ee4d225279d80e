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
    test_inbox_brake,
    test_inbox_claims,
    test_inbox_counts,
    test_inbox_crashes,
    test_inbox_custody,
    test_inbox_desk,
    test_inbox_rows,
    test_inbox_standing,
    test_inbox_tellings,
    test_inbox_waits,
)
from tests.promises.inboxes import TERMS, Ground, HandClock
from tests.simulation.database.kept import Replica
from tests.simulation.database.server import Server
from tests.simulation.loop import SimulatedLoop
from tests.simulation.weather import Weather

Promise = Callable[[Ground], Awaitable[None]]
OF_EACH = (
    *(test_inbox, test_inbox_brake, test_inbox_claims, test_inbox_counts, test_inbox_crashes, test_inbox_custody),
    *(test_inbox_desk, test_inbox_rows, test_inbox_standing, test_inbox_tellings, test_inbox_waits),
)


def promises(module: ModuleType) -> list[tuple[str, Promise]]:
    """Those that need nothing but an inbox."""
    found = inspect.getmembers(module, inspect.iscoroutinefunction)
    return [
        (name, one) for name, one in found if name[:5] == "test_" and [*inspect.signature(one).parameters] == ["ground"]
    ]


@pytest.mark.parametrize(
    "promise", [pytest.param(one, id=name) for module in OF_EACH for name, one in promises(module)]
)
def test_the_twin_keeps_what_every_inbox_promises(promise: Promise) -> None:
    loop, bad, clock = SimulatedLoop(), list[tuple[str, str]](), HandClock()
    asyncio.set_event_loop(loop)
    server = Server(loop, random.Random(1), Weather(), lambda *what: bad.append(what), lambda _: None)
    try:
        loop.run_until_complete(promise(Ground(Replica(server, None, TERMS, clock), clock)))
    finally:
        loop.close()
    assert bad == []
