"""What the promises of the inbox stand on; other ports' have a ground of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.promises.inboxes import ADAPTERS, Ground, Site
from tests.support.clock import HandClock


@pytest.fixture(name="ground", params=list(ADAPTERS))
async def fixture_ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    """One inbox of each kind, and a clock to turn by hand."""
    clock = HandClock()
    site = Site(tmp_path, lambda: request.getfixturevalue("postgres"))
    async with ADAPTERS[request.param](site, clock) as inbox:
        yield Ground(inbox, clock)
