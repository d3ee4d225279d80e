"""The service as a real process: a file inbox, a catalog over HTTP, tables on disk."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from hashlib import sha256
from pathlib import Path

import pytest

from sfn.http.responses import PROBLEM_MEDIA_TYPE
from tests.integration.lake import Lake, lake
from tests.integration.process import TOKEN, configure, serving
from tests.integration.waiting import until
from tests.unit.rest_server import reply, running

FIELDS = {"catalog", "table", "attempt", "outcome", "reason", "why", "seconds", "files"}


@pytest.fixture(name="world")
async def fixture_world(tmp_path: Path) -> AsyncGenerator[Lake]:
    async with lake(tmp_path) as made:
        yield made


async def test_an_event_becomes_a_file_and_each_commit_after_it_too(world: Lake) -> None:
    async with serving(configure(world)) as daemon:
        for _ in range(3):
            pointer = world.commit("orders")
            answer = await daemon.tell("orders", metadata_location=pointer)
            assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
            await world.until_published("orders")


async def test_it_says_where_it_listens_when_it_is_ready_and_for_which_catalogs(world: Lake) -> None:
    async with serving(configure(world)) as daemon:
        (listening,) = daemon.records("listening")
        assert (listening["port"] > 0, listening["catalogs"]) == (True, ["prod"])
        assert [(await daemon.client.get(path)).status_code for path in ("/livez", "/readyz")] == [200, 200]
        assert not daemon.records("no token is configured: listening on loopback only")


async def test_what_happened_before_the_start_is_found_without_an_event(world: Lake) -> None:
    world.commit("orders")
    world.commit("customers")
    async with serving(configure(world)) as daemon:
        await world.until_published("orders", "customers")
        await daemon.until_logged("settled", table=None, outcome="swept")


async def test_without_sweeps_only_events_count(world: Lake) -> None:
    world.commit("orders")
    world.commit("customers")
    async with serving(configure(world, '[sweep]\nevery = "off"')) as daemon:
        await daemon.tell("orders")
        await world.until_published("orders")
        assert world.loads == ["orders"] * len(world.loads)
        assert not daemon.records("settled", outcome="swept")


async def test_the_log_has_one_record_an_outcome_with_the_same_fields_and_no_token(world: Lake) -> None:
    async with serving(configure(world, '[sweep]\nevery = "off"')) as daemon:
        world.commit("orders")
        await daemon.tell("orders")
        record = await daemon.until_logged("settled")
        assert set(record) >= FIELDS
        assert (record["catalog"], record["table"], record["attempt"]) == ("prod", "sales.orders", 1)
        assert (record["outcome"], record["reason"], record["why"]) == ("done", None, None)
        assert 0 < record["seconds"] < 10
        names = [file.rsplit("/", 1)[-1] for file in record["files"]]
        assert names == ["sales_orders_main.ver", "version-hint.text"]
        assert len(daemon.records("settled")) == 1
        assert TOKEN not in daemon.log.read_text()


async def test_a_dead_letter_is_logged_with_its_reason(world: Lake) -> None:
    world.commit("orders")
    configuration = configure(world, f"[stores.other]\nprefix = '{world.folder}/nothing'")
    configuration.write_text(configuration.read_text().replace(f"{world.folder}/warehouse", f"{world.folder}/else"))
    async with serving(configuration) as daemon:
        record = await daemon.until_logged("settled", outcome="dead")
        assert (record["table"], record["reason"], record["level"]) == ("sales.orders", "location-refused", "error")
        assert "stores.NAME" in record["why"]


async def test_a_catalog_that_is_away_at_the_start_is_waited_for(world: Lake) -> None:
    await world.close()
    pointer = world.commit("orders")
    async with serving(configure(world)) as daemon:
        assert (await daemon.client.get("/readyz")).status_code == 200
        assert (await daemon.tell("orders", metadata_location=pointer)).status_code == 202
        await daemon.until_logged("catalog away", name="prod")
        assert world.published("orders") is None
        await world.open()
        await world.until_published("orders")
        done = await daemon.until_logged("settled", table="sales.orders", outcome="done")
        assert done["attempt"] == 1
        assert daemon.records("catalog reached", catalog="prod")
        back = await daemon.until_logged("catalog works again", name="prod")
        assert back["seconds"] > 0


async def test_a_catalog_that_is_away_holds_up_no_other(world: Lake) -> None:
    """It wants to be left alone for longer than anything here is waited for: so would be what shared its breaker."""
    async with running() as away:
        away.config = away.other = reply({}, 503, retry_after="120")
        more = f'[catalogs.away]\nuri = "{away.uri}"\n[senders.away]\nsecrets = {{ main = "other" }}\ncatalog = "away"'
        async with serving(configure(world, f'{more}\n[sweep]\nevery = "off"')) as daemon:
            other = {"Authorization": "Bearer other"}
            event = {"namespace": ["sales"], "name": "orders"}
            assert (await daemon.client.post("/v1/events", json=event, headers=other)).status_code == 202
            await daemon.until_logged("catalog away", name="away")
            asked = len(away.requests)
            for name in ("orders", "customers"):
                world.commit(name)
                await daemon.tell(name)
            await world.until_published("orders", "customers")
            assert (await daemon.client.post("/v1/events", json=event, headers=other)).status_code == 202
            await daemon.tell("orders")
            await until(lambda: len(daemon.records("settled", catalog="prod", outcome="done")) == 3)
            assert len(away.requests) == asked


async def test_the_catalog_says_whose_the_files_are(world: Lake) -> None:
    world.commit("orders")
    configuration = configure(world)
    async with serving(configuration):
        await world.until_published("orders")
    body = json.loads((world.directory("orders") / "metadata/_sfn/sales_orders_main.ver").read_text())
    assert body["catalog_id"] == sha256(f"{world.uri}\n\n".encode()).hexdigest()[:32]
    assert body["writer"].startswith("iceberg-sfn ")


async def test_an_event_of_a_table_that_is_left_out_is_ignored(world: Lake) -> None:
    world.commit("tmp_orders")
    async with serving(configure(world), {"SFN_CATALOGS__PROD__EXCLUDE": "sales.tmp_*"}) as daemon:
        assert (await daemon.tell("tmp_orders")).json() == {"accepted": 0, "duplicates": 0, "ignored": 1}
        world.commit("orders")
        assert (await daemon.tell("orders")).json() == {"accepted": 1, "duplicates": 0, "ignored": 0}
        await world.until_published("orders")
        await daemon.until_logged("settled", outcome="swept")
        assert world.published("tmp_orders") is None


async def test_a_wrong_token_is_refused(world: Lake) -> None:
    async with serving(configure(world)) as daemon:
        answer = await daemon.client.post("/v1/events", json={}, headers={"Authorization": "Bearer guess"})
        assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM_MEDIA_TYPE)


@pytest.mark.parametrize("senders", ["", "[senders.local]\nscheme = 'none'\n"])
async def test_without_a_sender_that_shows_who_it_is_everybody_on_this_machine_may_send(
    world: Lake, senders: str
) -> None:
    configuration = configure(world)
    configuration.write_text(configuration.read_text().split("[senders.etl]", maxsplit=1)[0] + senders)
    async with serving(configuration) as daemon:
        await daemon.until_logged("no token is configured: listening on loopback only")
        world.commit("orders")
        answer = await daemon.client.post(
            "/v1/events", json={"namespace": ["sales"], "name": "orders"}, headers={"Authorization": ""}
        )
        assert answer.status_code == 202
        await world.until_published("orders")


async def test_without_a_store_it_says_that_nothing_can_be_published(world: Lake) -> None:
    configuration = configure(world)
    configuration.write_text(configuration.read_text().replace("[stores.lake]\nprefix", "#"))
    async with serving(configuration) as daemon:
        await daemon.until_logged("no store is configured: no table can be published")


async def test_operators_release_the_brake_with_their_own_token(world: Lake) -> None:
    async with serving(configure(world, '[admin]\ntoken = "operators"')) as daemon:
        path = "/admin/v1/brakes/prod:release"
        assert (await daemon.client.post(path)).status_code == 401
        answer = await daemon.client.post(path, headers={"Authorization": "Bearer operators"})
        assert (answer.status_code, answer.json()) == (200, {"released": 0})


async def test_without_an_operators_token_there_are_no_operators(world: Lake) -> None:
    async with serving(configure(world)) as daemon:
        assert (await daemon.client.post("/admin/v1/brakes/prod:release")).status_code == 404
