"""The service as a real process that fetches events from a real NATS server."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest
from nats.js.errors import NotFoundError

from tests.servers.nats import Nats
from tests.support.metrics_page import Page
from tests.support.pull_source import Place
from tests.support.service import Daemon, Lake, configure, lake, refused, serving
from tests.support.trace_collector import SOON, collecting_traces

SWEEPING = ({"PYTHONPATH": str(Path(__file__).parents[2])}, ("tests.integration.child_processes", "sweeping"))
"""The environment and the command of a service that need not wait long from one sweep to the next."""
NO_SWEEPS = '[sweep]\nevery = "off"\n'


def configured(world: Lake, place: Place, more: str = "") -> Path:
    lines = ["[pull.events]", f'servers = ["{place.url}"]', f'subject = "{place.subject}"']
    if place.durable is not None:
        lines += [f'stream = "{place.durable.stream}"', f'durable = "{place.durable.name}"']
    return configure(world, "\n".join([NO_SWEEPS, *lines, more]))


def event(name: str, **more: object) -> bytes:
    return httpx.Request("POST", "http://x", json={"namespace": ["sales"], "name": name, **more}).content


async def page(daemon: Daemon) -> Page:
    return Page((await daemon.client.get("/metrics")).raise_for_status().text)


async def connected(daemon: Daemon) -> float | None:
    return (await page(daemon)).value("sfn_pull_connected", source="events")


async def test_what_is_told_over_nats_is_published_and_counted(tmp_path: Path, place: Place) -> None:
    await place.make_stream()
    async with lake(tmp_path) as world, serving(configured(world, place)) as daemon:
        pointer = world.commit("orders")
        await place.publish(event("orders", metadata_location=pointer, event_id="1"))
        await world.until_published("orders")
        await place.until_acknowledged(1)
        told = await page(daemon)
        assert told.of("sfn_events_received_total", "format", "result") == {("own", "accepted"): 1}
        assert told.value("sfn_pull_connected", source="events") == 1
        assert told.value("sfn_pull_dropped_total", source="events") == 0
        daemon.send(signal.SIGTERM)
        assert await daemon.ended() == 0


async def test_a_message_continues_the_trace_in_its_header(tmp_path: Path, place: Place) -> None:
    await place.make_stream()
    trace, sender = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with lake(tmp_path) as world, collecting_traces() as collector:
        world.commit("orders")
        more = f'[telemetry]\ntraces_endpoint = "{collector.url}"\n'
        async with serving(configured(world, place, more), SOON):
            await place.publish(event("orders"), headers={"traceparent": f"00-{trace}-{sender}-01"})
            await world.until_published("orders")
            await collector.until(lambda spans: any(one.name == "publish" for one in spans))
    tree = collector.tree(trace)
    assert (tree["receive events"], tree["inbox append"]) == ({"inbox append"}, {"publish"})
    assert "write file" in tree["publish"]
    (received,) = collector.named("receive events")
    assert received.parent == sender


async def test_what_is_published_while_the_service_is_away_waits_for_it(tmp_path: Path, place: Place) -> None:
    await place.make_stream(ack_wait=1.0)
    async with lake(tmp_path) as world:
        configuration = configured(world, place)
        names = [f"t{number}" for number in range(12)]
        for name in names:
            world.commit(name)
        for turn, number in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)):
            async with serving(configuration) as daemon:
                await place.publish(*map(event, names[4 * turn : 4 * turn + 2]))
                daemon.send(number)
                await daemon.ended()
            await place.publish(*map(event, names[4 * turn + 2 : 4 * turn + 4]))
        async with serving(configuration):
            await world.until_published(*names)
            await place.until_acknowledged(len(names))


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_service_goes_on_while_the_server_is_away(tmp_path: Path, is_kept: bool) -> None:
    with Nats() as server:
        place = Place(server.url).kept() if is_kept else Place(server.url)
        if is_kept:
            await place.make_stream()
        async with lake(tmp_path) as world, serving(configured(world, place), *SWEEPING) as daemon:
            await daemon.until_logged("pull source connected", source="events")
            assert await connected(daemon) == 1
            server.stop()
            away = await daemon.until_logged("pull source unreachable", source="events")
            assert "found unexpected EOF" in away["error"]
            assert await connected(daemon) == 0
            assert (await daemon.client.get("/readyz")).status_code == httpx.codes.OK
            world.commit("orders")
            assert (await daemon.tell("orders")).status_code == httpx.codes.ACCEPTED
            await world.until_published("orders")
            world.commit("missed")
            server.start()
            await daemon.until_logged("pull source recovered", source="events")
            if is_kept:
                world.commit("returns")
                await place.publish(event("returns"))
                await world.until_published("returns")
            else:
                # Nobody told of it: the catalog is looked at, a while after the look of the start.
                await world.until_published("missed")
            assert len(daemon.records("pull source unreachable")) == 1


async def test_a_start_does_not_wait_for_the_server(tmp_path: Path) -> None:
    with Nats() as server:
        place = Place(server.url)
        server.stop()
        async with lake(tmp_path) as world, serving(configured(world, place)) as daemon:
            await daemon.until_logged("pull source unreachable")
            assert (await daemon.client.get("/readyz")).status_code == httpx.codes.OK
            daemon.send(signal.SIGTERM)
            assert await daemon.ended() == 0


@pytest.mark.parametrize("roles", ["worker,admin", "worker"])
async def test_a_process_that_is_no_receiver_fetches_nothing(tmp_path: Path, place: Place, roles: str) -> None:
    await place.make_stream()
    assert place.durable is not None
    async with lake(tmp_path) as world:
        async with serving(configured(world, place), {"SFN_ROLES": roles}) as daemon:
            world.commit("orders")
            assert await connected(daemon) is None
        async with place.client() as client:
            with pytest.raises(NotFoundError):
                await client.jetstream().consumer_info(place.durable.stream, place.durable.name)


async def test_a_start_without_the_package_says_what_to_install(tmp_path: Path, place: Place) -> None:
    (tmp_path / "packages" / "nats").mkdir(parents=True)
    (tmp_path / "packages" / "nats" / "__init__.py").write_text("raise ModuleNotFoundError(name='nats')")
    async with lake(tmp_path) as world:
        code, told = await refused(configured(world, place), {"PYTHONPATH": str(tmp_path / "packages")})
    assert code == 1
    assert "pull.events: expected the packages that NATS needs, found no module nats; pip install" in told
    assert "iceberg-sfn[nats]" in told


async def test_a_letter_of_a_source_is_decoded_again_for_its_catalogs(tmp_path: Path, place: Place) -> None:
    await place.make_stream()
    admin = '[admin]\ntoken = "a-token-of-operators"\n'
    async with lake(tmp_path) as world, serving(configured(world, place, admin)) as daemon:
        await daemon.until_logged("pull source connected")
        await place.publish(b'{"namespace": ["sales"], "name": 7}')
        await place.until_acknowledged(1)
        operator = {"Authorization": "Bearer a-token-of-operators"}
        (letter,) = (await daemon.client.get("/admin/v1/dead-letters", headers=operator)).json()["dead_letters"]
        assert (letter["reason"], letter["sender"]) == ("undecodable", "pull.events")
        ids = {"ids": [letter["id"]]}
        again = await daemon.client.post("/admin/v1/dead-letters:replay", headers=operator, json=ids)
        assert "#/name" in again.text
