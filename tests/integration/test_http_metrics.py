"""`/metrics` over HTTP: open or behind a token, and the requests for events that it counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi.openapi.models import OpenAPI
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from sfn.errors import ErrorScope, FatalError, Transient
from sfn.http.app import metrics_router
from sfn.http.responses import PROBLEM_MEDIA_TYPE
from sfn.telemetry.scrape import Exposition
from tests.integration.test_http_polaris import notification
from tests.support.clock import HandClock
from tests.support.listener import LIMIT, TOKEN, Service, client
from tests.support.metrics_page import Page, Standing

SENDER = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
SCRAPER = {"Authorization": "Bearer a-scrapers-token"}
EVENT: dict[str, object] = {"namespace": ["sales"], "name": "orders", "catalog": "theirs"}


@pytest.fixture
async def prometheus(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service, metrics_router(Standing().scrape(service.metrics, HandClock()))) as prometheus:
        yield prometheus


@pytest.fixture
async def guarded(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    scrape = Standing().scrape(service.metrics, HandClock())
    async with client(
        service, metrics_router(scrape, lambda shown: shown == SCRAPER["Authorization"].encode())
    ) as guarded:
        yield guarded


async def scraped(prometheus: httpx.AsyncClient) -> Page:
    return Page((await prometheus.get("/metrics")).text)


async def test_it_is_the_text_that_prometheus_reads(prometheus: httpx.AsyncClient) -> None:
    reply = await prometheus.get("/metrics")
    assert (reply.status_code, reply.headers["content-type"]) == (200, CONTENT_TYPE_PLAIN_0_0_4)
    assert Page(reply.text).value("sfn_ready") == 1


async def test_it_is_openmetrics_for_whoever_likes_that_better(prometheus: httpx.AsyncClient) -> None:
    reply = await prometheus.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0,*/*;q=0.1"})
    assert reply.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert reply.text.endswith("# EOF\n")


async def test_two_accept_headers_are_one_list(prometheus: httpx.AsyncClient) -> None:
    accept = [("Accept", "text/html"), ("Accept", "application/openmetrics-text")]
    assert "openmetrics" in (await prometheus.get("/metrics", headers=accept)).headers["content-type"]


async def test_its_head_is_that_of_the_text(prometheus: httpx.AsyncClient) -> None:
    reply = await prometheus.head("/metrics")
    assert (reply.status_code, reply.headers["content-type"]) == (200, CONTENT_TYPE_PLAIN_0_0_4)
    assert int(reply.headers["content-length"]) > 1000


async def test_it_is_only_read(prometheus: httpx.AsyncClient) -> None:
    reply = await prometheus.post("/metrics")
    assert (reply.status_code, reply.headers["content-type"]) == (405, PROBLEM_MEDIA_TYPE)


async def test_it_is_answered_while_the_service_drains(prometheus: httpx.AsyncClient, service: Service) -> None:
    service.readiness.drain()
    assert (await prometheus.get("/metrics")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "Bearer another")],
        [*SCRAPER.items(), ("Authorization", "Bearer another")],
        [("Authorization", f"Bearer {TOKEN}")],
    ],
    ids=["none", "another", "two", "a sender's"],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_behind_a_token_nobody_reads_it_without(
    guarded: httpx.AsyncClient, method: str, headers: list[tuple[str, str]]
) -> None:
    reply = await guarded.request(method, "/metrics", headers=headers)
    assert (reply.status_code, reply.headers["content-type"]) == (401, PROBLEM_MEDIA_TYPE)
    assert reply.headers["www-authenticate"] == "Bearer"
    assert "sfn_" not in reply.text


async def test_behind_a_token_whoever_has_it_reads_it(guarded: httpx.AsyncClient) -> None:
    assert (await guarded.get("/metrics", headers=SCRAPER)).status_code == 200


async def nothing(_: str) -> Exposition:
    return Exposition("text/plain", b"")


@pytest.mark.parametrize(
    ("admit", "security", "answers"), [(None, [], {"200"}), (bool, [{"scraper": []}], {"200", "401"})]
)
async def test_it_is_described(
    service: Service, admit: Callable[[bytes | None], bool] | None, security: list[Any], answers: set[str]
) -> None:
    async with client(service, metrics_router(nothing, admit)) as reader:
        described = (await reader.get("/openapi.json")).json()
    OpenAPI.model_validate(described)
    route = described["paths"]["/metrics"]["get"]
    assert (route["security"], set(route["responses"])) == (security, answers)
    assert set(route["responses"]["200"]["content"]) == {"text/plain", "application/openmetrics-text"}
    assert "scraper" in described["components"]["securitySchemes"]


async def test_events_are_counted_by_what_came_of_them(prometheus: httpx.AsyncClient) -> None:
    first, second = {**EVENT, "event_id": "e1"}, {**EVENT, "event_id": "e2"}
    scratch = {**EVENT, "namespace": ["scratch"], "event_id": "e3"}
    for events in ([first, second, scratch], [first], [], [{**EVENT, "operation": "rename", "destination": EVENT}]):
        reply = await prometheus.post("/v1/events", json=events, headers=SENDER)
        assert reply.status_code in {202, 422}
    page = await scraped(prometheus)
    assert page.of("sfn_events_received_total", "format", "result") == {
        ("own", "accepted"): 2,
        ("own", "duplicate"): 1,
        ("own", "ignored"): 1,
        ("none", "refused"): 1,
    }


async def test_requests_that_are_refused_are_counted_by_their_status(prometheus: httpx.AsyncClient) -> None:
    bodies = [b"{", b"{}", b'{"namespace": [], "name": 3}', b" " * (LIMIT + 1)]
    statuses = [(await prometheus.post("/v1/events", content=body, headers=SENDER)).status_code for body in bodies]
    statuses.append((await prometheus.get("/v1/events")).status_code)
    statuses.append((await prometheus.post("/v1/events", content=b"{}")).status_code)
    assert statuses == [400, 415, 422, 413, 405, 401]
    page = await scraped(prometheus)
    assert page.of("sfn_requests_refused_total", "status") == {(str(status),): 1 for status in statuses}
    assert page.of("sfn_events_received_total", "format", "result") == {("none", "refused"): len(statuses)}


async def test_what_polaris_sends_is_counted_as_such(prometheus: httpx.AsyncClient) -> None:
    path = "/v1/{}/namespaces/ns1/tables/orders/notifications"
    for catalog, body in (("theirs", notification()), ("theirs", notification()), ("theirs", b"{"), ("no", b"{}")):
        await prometheus.post(path.format(catalog), content=body, headers=SENDER)
    page = await scraped(prometheus)
    assert page.of("sfn_events_received_total", "format", "result") == {
        ("polaris", "accepted"): 1,
        ("polaris", "duplicate"): 1,
        ("polaris", "refused"): 2,
    }
    assert page.of("sfn_requests_refused_total", "status") == {("400",): 1, ("404",): 1}


async def test_what_could_not_be_taken_is_counted(prometheus: httpx.AsyncClient, service: Service) -> None:
    for failure in (
        Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none"),
        FatalError("inbox", expected="a disk", found="none"),
        ZeroDivisionError(),
    ):
        service.inbox.failure = failure
        await prometheus.post("/v1/events", json=EVENT, headers=SENDER)
    service.readiness.drain()
    await prometheus.post("/v1/events", json=EVENT, headers=SENDER)
    page = await scraped(prometheus)
    assert page.of("sfn_events_received_total", "format", "result") == {("none", "unavailable"): 4}
    assert page.of("sfn_requests_refused_total", "status") == {}
