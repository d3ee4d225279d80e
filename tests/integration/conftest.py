"""What the integration tests share; a file with a fixture of the same name uses its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.servers.nats import Nats
from tests.servers.postgres import Postgres
from tests.support.certificates import Authority
from tests.support.listener import Office, Open, Service, listening, operating
from tests.support.pull_source import Place
from tests.support.service import Lake, lake


@pytest.fixture(name="world")
async def fixture_world(tmp_path: Path) -> AsyncGenerator[Lake]:
    """A catalog and its warehouse."""
    async with lake(tmp_path) as made:
        yield made


@pytest.fixture(name="service")
def fixture_service() -> Service:
    """What receives events."""
    return Service()


@pytest.fixture(name="connect")
async def fixture_connect(service: Service) -> AsyncIterator[Open]:
    """Opens connections to the service."""
    async with listening(service.application()) as connect:
        yield connect


@pytest.fixture(name="office")
def fixture_office() -> Office:
    """What carries out an operator's commands."""
    return Office()


@pytest.fixture(name="operator")
async def fixture_operator(office: Office) -> AsyncIterator[httpx.AsyncClient]:
    """Sends commands to the office."""
    async with operating(office) as client:
        yield client


@pytest.fixture(name="dsn")
def fixture_dsn(postgres: Postgres, database: str) -> str:
    """The address of an empty database."""
    return postgres.dsn(database)


@pytest.fixture(name="place")
def fixture_place(nats: Nats) -> Place:
    """A subject whose messages are kept in a stream."""
    return Place(nats.url).kept()


@pytest.fixture(name="authority", scope="module")
def fixture_authority() -> Authority:
    """Signs the certificates of the tests."""
    return Authority()
