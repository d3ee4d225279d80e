"""What a process that is a facade alone tells of itself."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from sfn.errors import Unreachable
from sfn.facade import app
from sfn.facade.app import StandaloneProbes
from sfn.telemetry.metrics import FacadeMetrics, new_registry
from tests.unit.faced import Reply, reply


async def ask(one: StandaloneProbes, path: str, method: str = "GET", **fields: str) -> Reply:
    return await reply(one, path, method=method, fields=fields)


async def test_it_is_ready_once_something_could_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "RESCAN_INTERVAL", 0.0)
    one = StandaloneProbes(new_registry("1"), "the catalog is elsewhere")
    refusals: list[Exception | None] = [Unreachable("disk", expected="an answer", found="none"), None]
    looked = anyio.Event()

    async def ready() -> Exception | None:
        await looked.wait()
        if len(refusals) == 1:
            assert "disk" in (await ask(one, "/readyz")).json["error"]["message"]
        return refusals.pop(0)

    with capture_logs() as records:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.prepare, ready)
            await anyio.lowlevel.checkpoint()
            answer = await ask(one, "/readyz")
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert "being looked through" in answer.json["error"]["message"]
            assert b"sfn_ready 0.0" in (await ask(one, "/metrics")).content
            assert (await ask(one, "/livez")).json == {"status": "alive"}
            looked.set()
    assert not refusals
    assert [(one["event"], one["log_level"]) for one in records] == [("not ready", "warning"), ("ready", "info")]
    assert (await ask(one, "/readyz")).json == {"status": "ready"}
    assert b"sfn_ready 1.0" in (await ask(one, "/metrics")).content


async def test_its_metrics_are_written_as_the_scraper_likes_them() -> None:
    shown = new_registry("7.1")
    FacadeMetrics(shown).count_answer(304)
    one = StandaloneProbes(shown, "the catalog is elsewhere")
    plain = await ask(one, "/metrics")
    assert b'sfn_facade_requests_total{status="304"} 1.0' in plain.content
    assert b"sfn_build_info{python=" in plain.content
    assert plain.headers["content-type"].startswith("text/plain")
    for accept in ("application/openmetrics-text", "application/openmetrics-text;version=x", "x/y"):
        answer = await ask(one, "/metrics", accept=accept)
        assert (answer.status, b"sfn_ready" in answer.content) == (200, True)
    openmetrics = await ask(one, "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert openmetrics.content.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/v1/config"), ("POST", "/livez"), ("DELETE", "/metrics"), ("GET", "/livez/")],
)
async def test_any_other_request_is_told_where_the_catalog_is(method: str, path: str) -> None:
    answer = await ask(StandaloneProbes(new_registry("1"), "the catalog is elsewhere"), path, method)
    assert (answer.status, answer.json["error"]["message"]) == (404, "the catalog is elsewhere")
