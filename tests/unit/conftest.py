"""What the tests of the REST catalog share: a server that answers as it is told, and catalogs that ask it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.support.rest_catalog import Open, Server, opening, reply, running, table


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with running() as started:
        started.other = reply(table())
        yield started


@pytest.fixture
async def opened() -> AsyncGenerator[Open]:
    async with opening() as opens:
        yield opens
