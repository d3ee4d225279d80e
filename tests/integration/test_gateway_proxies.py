"""The proxies' files in `deploy/proxies`: what may change a table passes the gateway, all else goes to the catalog."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from aiohttp import web

from sfn.gateway.routes import recognise_change
from tests.real_catalog import IS_CI
from tests.servers.found import installed
from tests.servers.nginx import Nginx

PROXIES = Path(__file__).parents[2] / "deploy" / "proxies"
CHANGES = [
    ("POST", "/api/v1/p/namespaces/a%1Fb/tables"),
    ("POST", "/v1/namespaces/a%2Eb/tables/t%2Fu"),
    ("POST", "/v1/catalogs/main/namespaces/n/tables/t"),
    ("DELETE", "/v1/p/namespaces/n/tables/t?purgeRequested=true"),
    ("POST", "/v1/p/namespaces/n/tables/t/unregister"),
    ("POST", "/v1/p/namespaces/n/register"),
    ("POST", "/v1/p/tables/rename"),
    ("POST", "/v1/p/transactions/commit"),
    ("DELETE", "/v1/p/namespaces/n"),
    ("POST", "/api/v1//namespaces/n//tables/t"),
    ("POST", "/v1//transactions//commit"),
    ("DELETE", "/v1//namespaces//n"),
    ("POST", "/v1/p/namespaces/n/tables/t/notifications"),
    ("POST", "/management/v1/warehouse/w/deleted-tabulars/undrop"),
]
OTHERS = [
    ("GET", "/v1/p/namespaces/n/tables/t?snapshots=refs"),
    ("HEAD", "/v1/p/namespaces/n/tables/t"),
    ("GET", "/v1/p/namespaces"),
    ("POST", "/v1/p/namespaces"),
    ("POST", "/v1/p/namespaces/n/properties"),
    ("POST", "/v1/p/namespaces/n/tables/t/metrics"),
    ("POST", "/v1/p/namespaces/n/tables/t/plan"),
    ("POST", "/v1/p/namespaces/n/views"),
    ("POST", "/v1/p/views/rename"),
    ("POST", "/v1/oauth/tokens"),
    ("GET", "/v1/p/namespaces/n/tables/t?x=/v1/config"),
]
CONFIG = ("GET", "/api/v1/config?warehouse=w")


def test_what_is_tried_here_is_what_the_gateway_recognises() -> None:
    def recognised(method: str, target: str) -> bool:
        path, _, query = target.partition("?")
        return recognise_change(method, path[path.index("/v1/") :], query) is not None

    assert all(recognised(*request) for request in CHANGES)
    assert not any(recognised(*request) for request in OTHERS)


@asynccontextmanager
async def answering(name: str) -> AsyncIterator[int]:
    """A server that says who it is, and what it was asked for; its port."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(
            headers={"X-Here": name, "X-Path": request.raw_path, "X-Told": str(request.headers.get("Host"))}
        )

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def nginx() -> str:
    """The program; without it the test is skipped, but fails on a build server."""
    path = installed("nginx")
    if path is None:
        if IS_CI:
            pytest.fail("nginx is missing: on Debian and Ubuntu, apt-get install nginx-light")
        pytest.skip("nginx is missing")
    return path


async def test_nginx_sends_changes_through_the_gateway_and_reads_to_the_catalog() -> None:
    program = nginx()
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(answering("catalog"))
        gateway = await stack.enter_async_context(answering("gateway"))
        told = (PROXIES / "nginx-gateway.conf").read_text()
        for shown, ours in (("127.0.0.1:8181", f"127.0.0.1:{catalog}"), ("127.0.0.1:8086", f"127.0.0.1:{gateway}")):
            assert told.count(shown) == 1
            told = told.replace(shown, ours)
        server = stack.enter_context(Nginx(program, told))
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, trust_env=False))
        for who, requests in (("gateway", [*CHANGES, CONFIG]), ("catalog", OTHERS)):
            for method, target in requests:
                answer = await client.request(method, target)
                assert (target, answer.headers["x-here"]) == (target, who)
                assert answer.headers["x-path"] == target
                assert answer.headers["x-told"] == f"127.0.0.1:{server.port}"


def test_envoy_is_told_the_same() -> None:
    told = yaml.safe_load((PROXIES / "envoy-gateway.yaml").read_text())
    (listener,) = told["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    assert {cluster["name"] for cluster in told["static_resources"]["clusters"]} == {"gateway", "catalog"}
    assert (manager["normalize_path"], manager["path_with_escaped_slashes_action"]) == (False, "KEEP_UNCHANGED")

    def led(method: str, target: str) -> str:
        return str(next(route["route"]["cluster"] for route in routes if _matches(route["match"], method, target)))

    assert {led(*request) for request in [*CHANGES, CONFIG]} == {"gateway"}
    assert {led(*request) for request in OTHERS} == {"catalog"}


def _matches(match: dict[str, Any], method: str, target: str) -> bool:
    """As Envoy has it: a regular expression is for the whole path, without the query."""
    if "prefix" in match:
        return target.startswith(match["prefix"])
    (header,) = match["headers"]
    wanted = header["string_match"]
    methods = re.escape(wanted["exact"]) if "exact" in wanted else wanted["safe_regex"]["regex"]
    path = target.partition("?")[0]
    return bool(re.fullmatch(methods, method) and re.fullmatch(match["safe_regex"]["regex"], path))
