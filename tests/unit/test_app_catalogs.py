"""Catalogs are built from the settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import asdict, replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict
from typing_extensions import override

from sfn.admin.routes import RetiredCatalogs
from sfn.app.catalogs import (
    LazyCatalogRegistry,
    build_catalogs,
    check_adapters,
    inbox_config,
    publish_policy,
    pyiceberg_settings,
    rest_settings,
    worker_options,
)
from sfn.app.wiring import build_service, metric_bounds
from sfn.catalogs.event_sourced import EventCatalog
from sfn.catalogs.pyiceberg import PyIcebergCatalog, PyIcebergSettings
from sfn.catalogs.rest.catalog import RestCatalog
from sfn.catalogs.rest.settings import RestSettings
from sfn.clock import SystemClock
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import IndexedTable
from sfn.errors import ErrorScope, ExternalError, FatalError
from sfn.inbox.model import InboxConfig as InboxTerms
from sfn.publish.policy import OnDrop, Policy, TableFilter
from sfn.settings.root import Settings
from sfn.settings.sources import ConfigurationError
from sfn.storage import PrefixRouter
from sfn.worker.capacity import RetryPolicy
from sfn.worker.worker import WorkerOptions
from tests.promises.catalogs import EventWorld
from tests.promises.inboxes import TERMS, table
from tests.promises.inboxes import Ground as Rows
from tests.support import rest_catalog
from tests.support.clock import HandClock
from tests.support.memory_inbox import MemoryInbox
from tests.support.rest_catalog import Open, Server, complaint, reply
from tests.support.settings_file import CATALOG, Ground

EVERYTHING = """
[listener]
drain = "7s"
[worker]
concurrency = 3
lease = "11s"
[retry]
base = "2s"
cap = "13s"
budget = "17h"
max_attempts = 19
[sweep]
every = "23m"
[catalogs.prod]
uri = "https://catalog.example/api"
replica_lag = "29s"
absence_delay = "31m"
max_drops = 37
include = ["sales.*"]
exclude = ["sales.tmp_*"]
allowed_locations = ["s3a://lake/tables/"]
version_hint = "off"
on_drop = "keep"
expire_after = "41d"
refresh_after = "43h"
min_publish_interval = "47s"
"""


HOW_TO_ASK = """
[catalogs.prod]
uri = "https://catalog.example/api"
warehouse = "lake"
catalog_id = "ours"
ca_file = "/ca.pem"
headers = { x-realm = "POLARIS" }
oauth2_uri = "https://catalog.example/token"
scope = "PRINCIPAL_ROLE:ALL"
"""


@pytest.fixture(name="server")
async def fixture_server() -> AsyncGenerator[Server]:
    async with rest_catalog.running() as server:
        yield server


@pytest.fixture(name="opened")
async def fixture_opened() -> AsyncGenerator[Open]:
    async with rest_catalog.opening() as opened:
        yield opened


def test_a_catalogs_settings_are_its_policy(ground: Ground) -> None:
    assert publish_policy(ground.load(EVERYTHING), "prod", "id") == Policy(
        catalog_id="id",
        replica_lag=timedelta(seconds=29),
        absence_delay=timedelta(minutes=31),
        expire_after=timedelta(days=41),
        refresh_after=timedelta(hours=43),
        min_publish_interval=timedelta(seconds=47),
        on_drop=OnDrop.KEEP,
        version_hint=False,
        allowed_locations=("s3://lake/tables",),
        is_swept=True,
        sweep_every=timedelta(minutes=23),
        table_filter=TableFilter(("sales.*",), ("sales.tmp_*",)),
        writer=f"iceberg-sfn {version('iceberg-sfn')}",
    )


def test_the_defaults_of_settings_and_policy_are_the_same(ground: Ground) -> None:
    plain = publish_policy(ground.load(CATALOG), "prod", "id")
    assert replace(plain, writer="iceberg-sfn") == Policy(catalog_id="id")


def test_without_sweeps_a_policy_says_so_and_none_comes_by_itself(ground: Ground) -> None:
    never = publish_policy(ground.load(f'{CATALOG}[sweep]\nevery = "off"'), "prod", "id")
    assert (never.is_swept, never.sweep_every > timedelta(days=10_000)) == (False, True)


SECRETS: tuple[tuple[str, dict[str, str | Path]], ...] = (
    ('token = "t0"', {"token": "t0"}),
    ('token_file = "/t"', {"token_file": Path("/t")}),
    ('credential = "c0"', {"credential": "c0"}),
    ('credential_file = "/c"', {"credential_file": Path("/c")}),
)


@pytest.mark.parametrize(("text", "given"), SECRETS)
def test_a_catalog_is_asked_as_its_settings_say(ground: Ground, text: str, given: dict[str, str | Path]) -> None:
    told = rest_settings("prod", ground.load(HOW_TO_ASK + text).catalogs["prod"])
    plain = RestSettings(
        name="prod",
        uri="https://catalog.example/api",
        warehouse="lake",
        catalog_id="ours",
        oauth2_uri="https://catalog.example/token",
        scope="PRINCIPAL_ROLE:ALL",
        headers={"x-realm": "POLARIS"},
        ca_file=Path("/ca.pem"),
    )
    assert asdict(told) == {**asdict(plain), **given}


def test_the_defaults_of_asking_are_the_same(ground: Ground) -> None:
    told = rest_settings("prod", ground.load(CATALOG).catalogs["prod"])
    assert told == RestSettings(name="prod", uri="https://catalog.example/api")


PYICEBERG = """
[catalogs.lake]
type = "pyiceberg"
catalog_id = "ours"
properties = { type = "sql", uri = "sqlite:////lake.db", name = "default" }
"""


def test_pyiceberg_is_told_what_its_settings_say(ground: Ground) -> None:
    told = pyiceberg_settings("lake", ground.load(PYICEBERG).catalogs["lake"])
    properties = {"type": "sql", "uri": "sqlite:////lake.db", "name": "default"}
    assert told == PyIcebergSettings(name="lake", properties=properties, catalog_id="ours")


async def test_each_type_of_catalog_has_its_adapter(ground: Ground) -> None:
    told = '[catalogs.heard]\ntype = "events"\ncatalog_id = "c"\nallowed_locations = ["/lake"]\n'
    told += '[senders.etl]\nsecrets = { main = "a" }\ncatalog = "heard"\n'
    both = build_catalogs(ground.load(CATALOG + PYICEBERG + told), SystemClock(), PrefixRouter({}).read_range)
    kinds = {name: type(one) for name, one in both.items()}
    assert kinds == {"prod": RestCatalog, "lake": PyIcebergCatalog, "heard": EventCatalog}
    for one in both.values():
        await one.close()


def test_worker_and_inbox_are_told_theirs(ground: Ground) -> None:
    settings = ground.load(EVERYTHING + '[stores.a]\nprefix = "/mnt/a/"\n[stores.b]\nprefix = "file:/mnt/b"\n')
    retry = RetryPolicy(timedelta(seconds=2), timedelta(seconds=13), timedelta(hours=17), 19)
    assert worker_options(settings) == WorkerOptions(3, timedelta(seconds=11), timedelta(seconds=7), retry)
    stores = ("file:///mnt/a", "file:///mnt/b")
    told = InboxTerms(timedelta(seconds=11), timedelta(seconds=13), max_drops={"prod": 37}, stores=stores)
    assert inbox_config(settings) == told


def test_their_defaults_are_the_same(ground: Ground) -> None:
    settings = ground.load(CATALOG)
    assert worker_options(settings) == WorkerOptions()
    assert inbox_config(settings) == InboxTerms()


def local(ground: Ground, folder: Path, more: str = "") -> Settings:
    return ground.load(f'{CATALOG}[inbox]\nurl = "sqlite:///{folder}/inbox.db"\n{more}')


def never(_: FatalError) -> None:
    raise AssertionError


@pytest.mark.parametrize(("more", "count"), [("", 1), ('[sweep]\nevery = "off"', 0)])
async def test_a_start_asks_for_a_sweep_of_each_catalog(ground: Ground, tmp_path: Path, more: str, count: int) -> None:
    async with build_service(local(ground, tmp_path, more), never) as service:
        assert service.first_sweeps == (Notification(CatalogName("prod"), sender="start"),) * count
        assert service.readiness.reasons == ("starting",)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('credential = "s3cret\\nof ours"', "catalogs.prod.credential: "),
        ('token = "s3cret"\ncredential = "s3cret"', "catalogs.prod: token and credential exclude each other"),
        ('token_file = "/s3cret"\ntoken = "s3cret"', "catalogs.prod: token and token_file exclude each other"),
        ("headers = { 'X Y' = 's3cret' }", "catalogs.prod.headers: 'X Y' cannot be sent"),
        ('headers = { X = "s3cret\\r\\nb" }', "catalogs.prod.headers: 'X' cannot be sent"),
    ],
)
def test_a_catalog_that_cannot_be_asked_is_told_by_its_setting(ground: Ground, more: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_adapters(ground.load(CATALOG + more))
    (problem,) = caught.value.problems
    assert said in problem.found
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_all_catalogs_that_cannot_be_asked_are_told_at_once(ground: Ground) -> None:
    both = "token = 'a'\ncredential = 'b'\n"
    with pytest.raises(ConfigurationError) as caught:
        check_adapters(
            ground.load(f"{CATALOG}{both}[catalogs.fine]\nuri = 'http://x'\n[catalogs.dev]\nuri = 'http://x'\n{both}")
        )
    assert [problem.where for problem in caught.value.problems] == ["catalogs.prod", "catalogs.dev"]


def test_a_catalog_that_pyiceberg_cannot_open_is_told_with_the_others(ground: Ground) -> None:
    text = "[catalogs.old]\ntype = 'pyiceberg'\nproperties = { uri = 'sqlite://' }\n"
    more = PYICEBERG.replace("sqlite:////lake.db", "postgresql+asyncpg://u:s3cret@h")
    with pytest.raises(ConfigurationError) as caught:
        check_adapters(ground.load(f"{CATALOG}token = 'a'\ncredential = 'b'\n{text}{more}"))
    places = ["catalogs.prod", "catalogs.old.properties.uri", "catalogs.lake.properties.uri"]
    assert [problem.where for problem in caught.value.problems] == places
    assert "s3cret" not in str(caught.value)


@pytest.fixture(name="inbox")
def fixture_inbox() -> MemoryInbox:
    return MemoryInbox(TERMS, HandClock())


async def test_a_catalog_has_a_policy_once_it_was_reached(
    ground: Ground, server: Server, opened: Open, inbox: MemoryInbox
) -> None:
    sources = LazyCatalogRegistry(ground.load(CATALOG), {"prod": opened(server)}, RetiredCatalogs(), inbox)
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
    sources = LazyCatalogRegistry(ground.load(CATALOG), {"prod": opened(server)}, RetiredCatalogs(), inbox)
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
        ground.load(CATALOG), {"prod": opened(server, catalog_id="ours")}, RetiredCatalogs(), inbox
    )
    source = await sources.get("prod")
    assert source is not None
    assert source.policy.catalog_id == "ours"
    assert server.configured == 0


async def test_replaced_catalog_is_reported_with_a_remedy(ground: Ground, server: Server, opened: Open) -> None:
    clock = HandClock()
    inbox = MemoryInbox(TERMS, clock)

    async def started(catalog_id: str) -> list[EventDict]:
        sources = LazyCatalogRegistry(
            ground.load(CATALOG), {"prod": opened(server, catalog_id=catalog_id)}, RetiredCatalogs(), inbox
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
    sources = LazyCatalogRegistry(ground.load(CATALOG), {"prod": opened(server)}, retirement, inbox)
    retired = []
    for retirement.names in (frozenset(), frozenset({"prod"}), frozenset({"other"})):
        source = await sources.get("prod")
        assert source is not None
        retired.append(source.policy.is_retired)
    assert retired == [False, True, False]
    assert [sources.is_retired(name) for name in ("prod", "other")] == [False, True]
    assert set(sources.catalog_ids()) == {"prod"}


async def test_another_name_is_no_catalog(ground: Ground, inbox: MemoryInbox) -> None:
    assert await LazyCatalogRegistry(ground.load(CATALOG), {}, RetiredCatalogs(), inbox).get("prod") is None


BOTH = f"""
[senders.etl]
secrets = {{ main = "a" }}
catalog = "hive"
[catalogs.hive]
type = "events"
catalog_id = "hive-prod"
allowed_locations = ["s3://lake/"]
{CATALOG}
"""


def test_its_policy_says_that_nobody_walks_it(ground: Ground) -> None:
    settings = ground.load(BOTH)
    told, asked = publish_policy(settings, "hive", "hive-prod"), publish_policy(settings, "prod", "id")
    assert (told.event_only, told.is_swept, told.sweep_every > timedelta(days=10_000)) == (True, False, True)
    assert (asked.event_only, asked.is_swept) == (False, True)
    assert told.allowed_locations == ("s3://lake",)


def test_only_what_is_swept_of_our_own_accord_has_an_interval(ground: Ground) -> None:
    assert metric_bounds(ground.load(BOTH)).swept == {"prod": 900.0}
    assert metric_bounds(ground.load(f'{BOTH}[sweep]\nevery = "off"')).swept == {}


def test_the_inbox_is_told_to_keep_what_is_told_of_it(ground: Ground) -> None:
    assert inbox_config(ground.load(BOTH)).event_only_catalogs == {"hive"}


def test_nothing_is_missing_that_only_asking_needs(ground: Ground) -> None:
    check_adapters(ground.load(BOTH))


async def test_a_start_asks_for_no_sweep_of_it(ground: Ground, tmp_path: Path) -> None:
    def never(_: FatalError) -> None:
        raise AssertionError

    async with build_service(ground.load(f'[inbox]\nurl = "sqlite:///{tmp_path}/inbox.db"\n{BOTH}'), never) as service:
        assert service.first_sweeps == (Notification(CatalogName("prod"), sender="start"),)


async def test_it_is_who_its_settings_say(ground: Ground) -> None:
    inbox = MemoryInbox(TERMS, HandClock())
    sources = LazyCatalogRegistry(ground.load(BOTH), {"hive": EventWorld("n").adapter}, RetiredCatalogs(), inbox)
    source = await sources.get("hive")
    assert source is not None
    assert (source.policy.catalog_id, source.policy.event_only) == ("ours", True)
