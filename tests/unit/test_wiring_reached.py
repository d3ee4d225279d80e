"""A catalog says who it is once it was reached, and the inbox remembers who it was."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict
from typing_extensions import override

from sfn.admin.routes import RetiredCatalogs
from sfn.app.catalogs import LazyCatalogRegistry
from sfn.domain.jobs import IndexedTable
from sfn.errors import ErrorScope, ExternalError
from sfn.inbox.memory import MemoryInbox
from tests.promises.inboxes import TERMS, HandClock, table
from tests.promises.inboxes import Ground as Rows
from tests.unit import rest_server
from tests.unit.rest_server import Open, Server, complaint, reply
from tests.unit.settings_ground import CATALOG, Ground


@pytest.fixture(name="inbox")
def fixture_inbox() -> MemoryInbox:
    return MemoryInbox(TERMS, HandClock())


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture(name="server")
async def fixture_server() -> AsyncGenerator[Server]:
    async with rest_server.running() as server:
        yield server


@pytest.fixture(name="opened")
async def fixture_opened() -> AsyncGenerator[Open]:
    async with rest_server.opening() as opened:
        yield opened


async def test_a_catalog_has_a_policy_once_it_was_reached(
    ground: Ground, server: Server, opened: Open, inbox: MemoryInbox
) -> None:
    sources = LazyCatalogRegistry(ground.load(CATALOG), {"prod": opened(server)}, RetiredCatalogs(), inbox, inbox)
    up = server.config
    server.config = complaint("ServiceUnavailableException", 503)
    for _ in range(2):
        with pytest.raises(ExternalError) as caught:
            await sources.get("prod")
        assert caught.value.scope is ErrorScope.CATALOG
    server.config = up
    source = await sources.get("prod")
    assert source is not None
    assert len(source.policy.catalog_id) == 32
    server.config = reply({"overrides": {"prefix": "another"}})
    assert await sources.get("prod") is source


class Slow(MemoryInbox):
    """Others run while its rows are read; counts how often they are."""

    reads = 0

    @override
    async def tables(self, catalog: str) -> AsyncIterator[IndexedTable]:
        self.reads += 1
        await anyio.lowlevel.checkpoint()
        async for known in super().tables(catalog):
            yield known


async def test_all_who_ask_at_once_get_the_same_source(ground: Ground, server: Server, opened: Open) -> None:
    inbox = Slow(TERMS, HandClock())
    sources = LazyCatalogRegistry(ground.load(CATALOG), {"prod": opened(server)}, RetiredCatalogs(), inbox, inbox)
    found = []

    async def ask() -> None:
        found.append(await sources.get("prod"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert len(found) == 5
    assert all(source is found[0] for source in found)
    assert inbox.reads == 1


async def test_a_configured_identity_needs_no_catalog(
    ground: Ground, server: Server, opened: Open, inbox: MemoryInbox
) -> None:
    server.config = reply(b"", 500)
    sources = LazyCatalogRegistry(
        ground.load(CATALOG), {"prod": opened(server, catalog_id="ours")}, RetiredCatalogs(), inbox, inbox
    )
    source = await sources.get("prod")
    assert source is not None
    assert source.policy.catalog_id == "ours"
    assert server.configured == 0


async def test_a_catalog_that_became_another_is_told_with_what_helps(
    ground: Ground, server: Server, opened: Open
) -> None:
    clock = HandClock()
    inbox = MemoryInbox(TERMS, clock)

    async def started(catalog_id: str) -> list[EventDict]:
        sources = LazyCatalogRegistry(
            ground.load(CATALOG), {"prod": opened(server, catalog_id=catalog_id)}, RetiredCatalogs(), inbox, inbox
        )
        with capture_logs() as records:
            for _ in range(2):
                await sources.get("prod")
        return [record for record in records if record["event"] == "catalog changed"]

    assert await started("first") == []
    assert await started("old") == []
    await Rows(inbox, clock).published(table("orders"))
    assert await started("old") == []
    (warning,) = await started("new")
    assert (warning["log_level"], warning["files"], warning["catalog_id"]) == ("warning", "old", "new")
    assert warning["remedy"] == "sfn adopt prod --from old"
    assert len(await started("new")) == 1


async def test_a_catalog_that_retires_gets_no_files_from_then_on(
    ground: Ground, server: Server, opened: Open, inbox: MemoryInbox
) -> None:
    retirement = RetiredCatalogs()
    sources = LazyCatalogRegistry(ground.load(CATALOG), {"prod": opened(server)}, retirement, inbox, inbox)
    retired = []
    for retirement.names in (frozenset(), frozenset({"prod"}), frozenset({"other"})):
        source = await sources.get("prod")
        assert source is not None
        retired.append(source.policy.is_retired)
    assert retired == [False, True, False]
    assert [sources.is_retired(name) for name in ("prod", "other")] == [False, True]
    assert set(sources.catalog_ids()) == {"prod"}


async def test_another_name_is_no_catalog(ground: Ground, inbox: MemoryInbox) -> None:
    assert await LazyCatalogRegistry(ground.load(CATALOG), {}, RetiredCatalogs(), inbox, inbox).get("prod") is None
