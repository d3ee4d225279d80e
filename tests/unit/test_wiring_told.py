"""A catalog that nobody can ask: which adapter it gets, and that nothing walks it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sfn.admin.routes import RetiredCatalogs
from sfn.app.catalogs import LazyCatalogRegistry, check_adapters, inbox_config, publish_policy
from sfn.app.wiring import build_service, metric_bounds
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName
from sfn.errors import FatalError
from sfn.inbox.memory import MemoryInbox
from tests.promises.inboxes import TERMS, HandClock
from tests.promises.told_world import ToldWorld
from tests.unit.settings_ground import CATALOG, Ground

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


@pytest.fixture(name="ground")
def fixture_ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


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
    sources = LazyCatalogRegistry(ground.load(BOTH), {"hive": ToldWorld("n").adapter}, RetiredCatalogs(), inbox, inbox)
    source = await sources.get("hive")
    assert source is not None
    assert (source.policy.catalog_id, source.policy.event_only) == ("ours", True)
