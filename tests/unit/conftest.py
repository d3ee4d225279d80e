"""Fixtures that unit tests share: a REST catalog's server, catalogs that ask it, a settings file and a table."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.rest_catalog import Open, Server, opening, reply, running, table

if TYPE_CHECKING:
    from tests.support.real_table import RealTable
    from tests.support.settings_file import Ground


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with running() as started:
        started.other = reply(table())
        yield started


@pytest.fixture
async def opened() -> AsyncGenerator[Open]:
    async with opening() as opens:
        yield opens


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    from tests.support.settings_file import Ground  # noqa: PLC0415 - few of the tests load settings

    return Ground(tmp_path)


@pytest.fixture
def made(tmp_path: Path) -> RealTable:
    from tests.support.real_table import real_table  # noqa: PLC0415 - few of the tests read a table

    return real_table(tmp_path)
