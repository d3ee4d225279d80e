"""The metrics of a real process."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.integration.lake import lake
from tests.integration.process import Daemon, configure, serving
from tests.integration.waiting import until
from tests.unit.scraping import Page

DONE = {"catalog": "prod", "outcome": "done", "error_class": ""}


async def page(daemon: Daemon) -> Page:
    """Asked for as Prometheus does: without a sender's token."""
    async with httpx.AsyncClient(base_url=daemon.client.base_url, trust_env=False) as prometheus:
        return Page((await prometheus.get("/metrics")).raise_for_status().text)


async def test_a_process_tells_what_it_did(tmp_path: Path) -> None:
    async with lake(tmp_path) as world, serving(configure(world, '[sweep]\nevery = "off"')) as daemon:
        assert (await page(daemon)).of("sfn_publications_total", "catalog") == {}
        for number in range(3):
            pointer = world.commit("orders")
            assert (await daemon.tell("orders", metadata_location=pointer, event_id=str(number))).status_code == 202
            await daemon.tell("orders", metadata_location=pointer, event_id=str(number))
            await world.until_published("orders")
        await until(lambda: len(daemon.records("settled", outcome="done")) == 3)
        told = await page(daemon)
    events = told.of("sfn_events_received_total", "dialect", "result")
    assert events == {("own", "accepted"): 3, ("own", "duplicate"): 3}
    assert told.value("sfn_publications_total", **DONE) == 3
    assert told.value("sfn_staleness_seconds_count", catalog="prod") == 2
    assert told.of("sfn_pending_tables", "catalog", "state") == {("prod", "scheduled"): 1}
    assert (told.value("sfn_catalog_reached", catalog="prod"), told.value("sfn_ready")) == (1, 1)
    for name in ("sfn_ingest_commit_seconds_count", "process_resident_memory_bytes"):
        assert told.value(name)
    for file in ("db", "wal"):
        assert told.value("sfn_inbox_bytes", file=file)
    assert "orders" not in told.text


async def test_a_catalog_that_was_never_reached_shows(tmp_path: Path) -> None:
    async with lake(tmp_path) as world:
        await world.close()
        async with serving(configure(world)) as daemon:
            await daemon.until_logged("catalog away", name="prod")
            told = await page(daemon)
            assert (told.value("sfn_catalog_reached", catalog="prod"), told.value("sfn_ready")) == (0, 1)
            assert told.value("sfn_breaker_open", scope="catalog", name="prod") == 1
            await world.open()
            await daemon.until_logged("settled", table=None, outcome="swept")
            told = await page(daemon)
            assert told.value("sfn_catalog_reached", catalog="prod") == 1
            assert told.value("sfn_sweeps_total", catalog="prod", outcome="swept") == 1
            assert told.value("sfn_breaker_open", scope="catalog", name="prod") == 0


async def test_with_a_token_configured_it_is_needed(tmp_path: Path) -> None:
    secret = tmp_path / "scraper"
    secret.write_text("one-for-prometheus\n")
    async with lake(tmp_path) as world:
        configuration = configure(world, f'[telemetry]\nmetrics_token_file = "{secret}"')
        async with serving(configuration) as daemon:
            assert (await daemon.client.get("/metrics")).status_code == 401
            shown = {"Authorization": "Bearer one-for-prometheus"}
            assert (await daemon.client.get("/metrics", headers=shown)).status_code == 200


async def test_leases_that_a_killed_process_left_behind_are_counted(tmp_path: Path) -> None:
    async with lake(tmp_path) as world:
        world.commit("orders")
        configuration = configure(world, '[sweep]\nevery = "off"')
        async with serving(configuration) as daemon:
            world.delay = 60
            await daemon.tell("orders")
            await until(lambda: world.loads == ["orders"])
            daemon.process.kill()
            await daemon.ended()
        world.delay = 0
        async with serving(configuration) as daemon:
            await world.until_published("orders")
            assert (await page(daemon)).value("sfn_lease_expirations_total") == 1
