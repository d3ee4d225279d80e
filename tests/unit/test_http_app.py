"""Answers of the listener's other routes while the inbox is unavailable."""

from __future__ import annotations

import httpx
import pytest
from fastapi import APIRouter
from structlog.testing import capture_logs

from sfn.errors import ErrorScope, FatalError, Transient
from sfn.http.app import build_app
from sfn.http.ingest import Readiness


async def answered(error: Exception) -> httpx.Response:
    """The answer of a route that raises."""
    router = APIRouter()

    @router.get("/status")
    async def _() -> None:
        raise error

    app = build_app(None, Readiness(), version="1", on_fatal=lambda _: None, routers=[router])
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sfn") as client:
        return await client.get("/status")


@pytest.mark.parametrize(("wait", "header"), [(2.2, "3"), (None, "1")])
async def test_unavailable_inbox_is_answered_with_503_and_its_cause_is_logged(wait: float | None, header: str) -> None:
    trouble = Transient("db", scope=ErrorScope.INBOX, expected="an answer", found="s3cret", retry_after=wait)
    with capture_logs() as logs:
        reply = await answered(trouble)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, header)
    assert reply.json()["detail"] == "the inbox is unavailable"
    assert [(entry["event"], entry["error"]) for entry in logs] == [("inbox unavailable", str(trouble))]


async def test_broken_inbox_ends_the_process() -> None:
    reply = await answered(FatalError("inbox", expected="a disk", found="none"))
    assert (reply.status_code, reply.json()["detail"]) == (503, "the service is restarting")
