"""One server of each kind for all tests of a process, started when the first of them asks for it."""
# ruff: noqa: PLC0415 - every test run imports this module, and few of them need a server

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.chromium import Chromium
    from tests.servers.nats import Nats
    from tests.servers.object_stores import GCS, S3, Azure
    from tests.servers.postgres import PgBouncer, Postgres


@pytest.fixture(name="s3", scope="session")
def fixture_s3() -> Iterator[S3]:
    from tests.servers.object_stores import S3

    with S3() as server:
        yield server


@pytest.fixture(name="azure", scope="session")
def fixture_azure() -> Iterator[Azure]:
    from tests.servers.object_stores import Azure

    with Azure() as server:
        yield server


@pytest.fixture(name="gcs", scope="session")
def fixture_gcs() -> Iterator[GCS]:
    from tests.servers.object_stores import GCS

    with GCS() as server:
        yield server


@pytest.fixture(name="nats", scope="session")
def fixture_nats() -> Iterator[Nats]:
    from tests.servers.nats import Nats

    with Nats() as server:
        yield server


@pytest.fixture(name="postgres", scope="session")
def fixture_postgres() -> Iterator[Postgres]:
    from tests.servers.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture(name="pgbouncer", scope="session")
def fixture_pgbouncer(postgres: Postgres) -> Iterator[PgBouncer]:
    from tests.servers.postgres import PgBouncer

    with PgBouncer(postgres) as server:
        yield server


@pytest.fixture(name="chromium", scope="session")
def fixture_chromium() -> Iterator[Chromium]:
    from tests.servers.chromium import browsing

    with browsing() as browser:
        yield browser


@pytest.fixture(name="database")
def fixture_database(postgres: Postgres) -> Iterator[str]:
    """The name of a new database, for one test."""
    with postgres.database() as name:
        yield name
