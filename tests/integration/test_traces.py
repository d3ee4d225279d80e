"""One trace leads from an event or a commit to the file, received by a collector over HTTP."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from aiohttp import web
from typing_extensions import override

from sfn.cli.run_checks import traces_findings
from sfn.telemetry.tracing import TracingOptions
from tests.servers.object_stores import REGION, ROOT, S3
from tests.support.service import SFN, Lake, configure, serving
from tests.support.trace_collector import SOON, TraceCollector, collecting_traces

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
SERVER, CLIENT_KIND, PRODUCER, CONSUMER = 2, 3, 4, 5
"""Kinds of spans, as OTLP has them."""


@pytest.fixture(name="collector")
async def fixture_collector() -> AsyncGenerator[TraceCollector]:
    async with collecting_traces() as collector:
        yield collector


def settings(world: Lake, collector: TraceCollector, more: str = "") -> Path:
    return configure(world, f'[sweep]\nevery = "off"\n{more}\n[telemetry]\ntraces_endpoint = "{collector.url}"\n')


async def test_one_trace_leads_from_an_event_to_the_file(world: Lake, collector: TraceCollector) -> None:
    world.commit("orders")
    async with serving(settings(world, collector), SOON) as daemon:
        response = await daemon.client.post(
            "/v1/events", json={"namespace": ["sales"], "name": "orders"}, headers=TRACEPARENT
        )
        assert response.status_code == 202
        await world.until_published("orders")
        await collector.until(lambda spans: any(one.name == "publish" for one in spans))
        settled = await daemon.until_logged("settled", table="prod:sales.orders")
    tree = collector.tree(TRACE)
    assert tree["POST /v1/events"] == {"inbox append"}
    assert tree["inbox append"] == {"publish"}
    assert {"GET catalog prod", "read files", "write file", "inbox record location", "inbox settle"} <= tree["publish"]
    (received,) = collector.named("POST /v1/events")
    assert (received.kind, received.parent) == (SERVER, CLIENT)
    assert received.attributes["http.response.status_code"] == 202
    assert received.attributes["sfn.sender"] == "etl"
    assert (received.service["service.name"], received.service["service.version"]) == ("iceberg-sfn", "0.1.0")
    (published,) = collector.named("publish")
    assert published.kind == CONSUMER
    assert published.attributes["sfn.table"] == "prod:sales.orders"
    assert published.attributes["sfn.outcome"] == "done"
    assert (settled["trace_id"], settled["span_id"]) == (TRACE, published.id)


class S3Lake(Lake):
    """A catalog that takes commits, and has its tables on S3."""

    warehouse: str

    @override
    def location(self, name: str) -> str:
        return f"{self.warehouse}/sales/{name}"

    @override
    def commit(self, name: str) -> str:
        versions = self._tables.setdefault(name, [])
        self._uuids.setdefault(name, str(uuid4()))
        versions.append(f"{self.location(name)}/metadata/{len(versions):05d}-{uuid4()}.metadata.json")
        return versions[-1]

    @override
    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            self.commit(request.path.rpartition("/")[2])
        return await super()._answer(request)


@pytest.fixture(name="s3_world")
async def fixture_s3_world(tmp_path: Path, s3: S3) -> AsyncGenerator[S3Lake]:
    made = S3Lake(tmp_path)
    made.warehouse = f"s3://{s3.bucket()}/wh"
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def test_one_trace_leads_from_a_commit_through_gateway_inbox_and_catalog_to_the_store(
    s3_world: S3Lake, s3: S3, collector: TraceCollector
) -> None:
    s3_world.commit("orders")
    more = (
        f'[gateway.prod]\nupstream = "{s3_world.uri}"\n'
        f'[stores.cloud]\nprefix = "{s3_world.warehouse}"\nendpoint = "{s3.url}"\nregion = "{REGION}"\n'
        f'access_key_id = "{ROOT.access}"\nsecret_access_key = "{ROOT.secret}"\n'
    )
    async with serving(settings(s3_world, collector, more), SOON) as daemon:
        path = "/catalog/prod/v1/namespaces/sales/tables/orders"
        response = await daemon.client.post(path, json={"requirements": [], "updates": []}, headers=TRACEPARENT)
        assert response.status_code == 200
        await collector.until(lambda spans: {"publish", "POST gateway.prod"} <= {one.name for one in spans})
    tree = collector.tree(TRACE)
    assert tree["POST gateway.prod"] == {"inbox append", "POST catalog"}
    assert {"GET catalog prod", "GET store", "PUT store", "inbox settle"} <= tree["publish"]
    (commit,) = collector.named("POST gateway.prod")
    assert (commit.kind, commit.parent) == (SERVER, CLIENT)
    assert [one.parent for one in collector.named("POST catalog")] == [commit.id]
    # The intent before the commit, and the outcome after it; the publish continues the second.
    appends = collector.named("inbox append")
    assert [one.parent for one in appends] == [commit.id] * 2
    (published,) = collector.named("publish")
    assert published.parent == appends[-1].id
    writes = [one for one in collector.named("PUT store") if one.trace == TRACE]
    assert all(one.kind == CLIENT_KIND and one.parent == published.id for one in writes)
    written = {str(one.attributes["url.full"]).rpartition("/")[2] for one in writes}
    assert {"sales_orders_main.ver", "version-hint.text"} <= written
    text = repr(collector.spans)
    assert ROOT.secret not in text
    assert "X-Amz-" not in text


async def test_a_trace_goes_on_in_the_process_that_publishes_after_a_crash(
    world: Lake, collector: TraceCollector
) -> None:
    world.commit("orders")
    await world.close()
    configuration = settings(world, collector)
    async with serving(configuration, SOON) as daemon:
        await daemon.client.post("/v1/events", json={"namespace": ["sales"], "name": "orders"}, headers=TRACEPARENT)
        await collector.until(lambda spans: any(one.name == "publish" for one in spans))
        daemon.send(signal.SIGKILL)
        await daemon.ended()
    before = len(collector.named("publish"))
    assert {one.error is not None for one in collector.named("publish")} == {True}
    await world.open()
    async with serving(configuration, SOON):
        await world.until_published("orders")
        await collector.until(lambda _: len(collector.named("publish")) > before)
    (appended,) = collector.named("inbox append")
    attempts = collector.named("publish")
    assert {(one.trace, one.parent) for one in attempts} == {(TRACE, appended.id)}
    assert attempts[-1].attributes["sfn.outcome"] == "done"


async def test_events_of_one_table_are_one_publish_in_the_first_trace_linked_with_the_others(
    world: Lake, collector: TraceCollector
) -> None:
    world.commit("orders")
    await world.close()
    others = [f"{number:032x}" for number in range(1, 4)]
    async with serving(settings(world, collector), SOON) as daemon:
        for trace in (TRACE, *others):
            headers = {"traceparent": f"00-{trace}-{CLIENT}-01"}
            await daemon.client.post("/v1/events", json={"namespace": ["sales"], "name": "orders"}, headers=headers)
        await world.open()
        await world.until_published("orders")
        await collector.until(lambda _: any(one.error is None for one in collector.named("publish")))
    (done,) = [one for one in collector.named("publish") if one.error is None]
    assert (done.trace, done.links) == (TRACE, tuple(others))


@pytest.mark.parametrize(
    ("flags", "ratio", "expected"), [("00", "1.0", set()), ("01", "0.0", {TRACE}), ("", "0.0", set())]
)
async def test_a_client_decides_about_its_trace_and_the_ratio_about_others(
    world: Lake, collector: TraceCollector, flags: str, ratio: str, expected: set[str]
) -> None:
    """An attempt of an event without a recorded trace begins one of its own."""
    world.commit("orders")
    more = {**SOON, "SFN_TELEMETRY__TRACES_SAMPLE_RATIO": ratio}
    async with serving(settings(world, collector), more) as daemon:
        headers = {"traceparent": f"00-{TRACE}-{CLIENT}-{flags}"} if flags else {}
        await daemon.client.post("/v1/events", json={"namespace": ["sales"], "name": "orders"}, headers=headers)
        await world.until_published("orders")
        daemon.send(signal.SIGTERM)
        assert await daemon.ended() == 0
    own = {one.trace for one in collector.named("publish") if not one.parent}
    assert {one.trace for one in collector.spans} - own == expected
    assert bool(own) == (flags == "00")


async def test_standard_variables_name_the_collector_the_service_and_the_headers(
    world: Lake, collector: TraceCollector
) -> None:
    world.commit("orders")
    variables = {
        **SOON,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=of-the-collector",
        "OTEL_SERVICE_NAME": "listener-eu",
    }
    async with serving(configure(world), variables) as daemon:
        await daemon.tell("orders")
        await collector.until(lambda spans: any(one.name == "publish" for one in spans))
    assert {one.service["service.name"] for one in collector.spans} == {"listener-eu"}
    assert collector.headers["api-key"] == "of-the-collector"


async def test_a_collector_that_is_down_delays_neither_events_nor_the_end(world: Lake) -> None:
    world.commit("orders")
    more = '[telemetry]\ntraces_endpoint = "http://127.0.0.1:9"\n'
    async with serving(configure(world, more), SOON, command=SFN) as daemon:
        await daemon.tell("orders")
        await world.until_published("orders")
        # The exporter tries again and again, and the log has one record of it a minute.
        await anyio.sleep(3)
        assert len([one for one in daemon.records() if one["logger"].startswith("opentelemetry")]) == 1
        began = time.monotonic()
        daemon.send(signal.SIGTERM)
        assert await daemon.ended(within=40) == 0
    assert time.monotonic() - began < 10


async def checked(url: str, **more: object) -> list[tuple[str, str]]:
    """Return severity and text of what `sfn check` finds about a collector."""
    found = traces_findings(TracingOptions(url, **more))  # type: ignore[arg-type]
    return [(one.severity.value, one.text) async for one in found]


async def test_a_check_asks_the_collector_and_sends_it_no_span(collector: TraceCollector) -> None:
    assert await checked(collector.url, headers={"api-key": "k"}) == [
        ("ok", f"{collector.url}/v1/traces accepts traces")
    ]
    assert (collector.spans, collector.headers["api-key"]) == ([], "k")


@pytest.mark.parametrize(("status", "remedy"), [(404, "4318"), (401, "traces_headers")])
async def test_a_check_says_why_a_collector_takes_nothing(collector: TraceCollector, status: int, remedy: str) -> None:
    collector.status = status
    (found,) = [one async for one in traces_findings(TracingOptions(f"{collector.url}/v1/traces"))]
    assert (found.severity.value, remedy in found.remedy) == ("warning", True)
    assert found.text == f"no traces are recorded: {collector.url}/v1/traces answers with status {status}"


async def test_a_check_says_that_no_collector_answers() -> None:
    assert await checked("http://user:word@127.0.0.1:9") == [
        ("warning", "no traces are recorded: http://127.0.0.1:9/v1/traces does not answer (ConnectError)")
    ]
