"""Two services on one inbox: each takes events, either publishes them, and what one is told the other learns."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGKILL, SIGTERM

import anyio
import pytest

from sfn.cli.check_config import Severity, inbox_finding
from sfn.settings import load
from tests.integration.process import Daemon, serving
from tests.integration.sharing import stored
from tests.integration.test_daemon_told import Writer
from tests.integration.waiting import until
from tests.servers.postgres import Postgres

ADMIN = {"SFN_ADMIN__TOKEN": "an-operators-token"}
OPERATOR = {"Authorization": "Bearer an-operators-token"}


@pytest.fixture(name="writer")
def fixture_writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


@asynccontextmanager
async def services(writer: Writer, dsn: str) -> AsyncGenerator[tuple[Daemon, Daemon]]:
    """Two processes with the same configuration; a claim of one that was killed is the other's after seconds."""
    configuration, surroundings = writer.configure(), {**ADMIN, "SFN_INBOX__URL": dsn, "SFN_WORKER__LEASE": "3s"}
    async with serving(configuration, surroundings) as first, serving(configuration, surroundings) as second:
        yield first, second


async def test_what_one_service_took_the_other_publishes(writer: Writer, postgres: Postgres, database: str) -> None:
    dsn = postgres.dsn(database)
    async with services(writer, dsn) as (first, second):
        before = writer.commit("orders", "u1")
        await first.tell("orders", operation="create", metadata_location=before)
        await until(lambda: writer.published("orders", "orders") == before)
        first.send(SIGKILL)
        assert await first.ended() == -SIGKILL
        after = writer.commit("orders", "u1")
        await second.tell("orders", metadata_location=after)
        # If the first one had it just then, its lease ends first.
        await until(lambda: writer.published("orders", "orders") == after)
        metrics = (await second.client.get("/metrics")).text
        assert "sfn_inbox_answers 1.0" in metrics
        assert "sfn_inbox_bytes{" not in metrics
        second.send(SIGTERM)
        assert await second.ended() == 0
    assert await stored(dsn, "SELECT state FROM sfn.subject WHERE catalog = 'hive'") == ["queued"]


async def test_a_catalog_that_one_service_is_told_to_retire_retires_in_the_other(
    writer: Writer, postgres: Postgres, database: str
) -> None:
    async with services(writer, postgres.dsn(database)) as (first, second):
        answer = await first.client.post("/admin/v1/catalogs/hive:retire", headers=OPERATOR)
        assert answer.is_success, answer.text
        with anyio.fail_after(10):
            while not await retires(second):  # noqa: ASYNC110 - no event crosses processes
                await anyio.sleep(0.2)


async def retires(daemon: Daemon) -> bool:
    """Whether a service says that the catalog retired."""
    status = (await daemon.client.get("/admin/v1/status", headers=OPERATOR)).json()
    (catalog,) = status["catalogs"]
    return bool(catalog["retired"])


async def test_a_check_proves_a_database_and_leaves_nothing_in_it(
    writer: Writer, postgres: Postgres, database: str
) -> None:
    configuration = writer.configure()
    settings = load(configuration, {"SFN_INBOX__URL": postgres.dsn(database)})
    holder, found = await inbox_finding(settings)
    assert (holder, found.where) == (None, "inbox")
    assert f"/{database}: PostgreSQL " in found.text
    assert "its tables will be made" in found.text
    # The tests' own server may lose what it has.
    assert (found.severity, "fsync" in found.remedy) == (Severity.WARNING, True)
    assert await stored(postgres.dsn(database), "SELECT count(*) FROM pg_namespace WHERE nspname = 'sfn'") == [0]
    settings = load(configuration, {"SFN_INBOX__URL": "postgresql://sfn:s3cret@127.0.0.1:1/sfn"})
    _, found = await inbox_finding(settings)
    assert found.severity is Severity.ERROR
    assert "s3cret" not in f"{found} {settings!r}"
