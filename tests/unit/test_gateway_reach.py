"""Commits under a prefix that belongs to no catalog of ours: counted, and reported once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from sfn.errors import FatalError
from sfn.gateway.commits import CommitRecorder, IntentOptions, OnInboxFailure, OwedSweeps
from sfn.gateway.proxy import GatewayOptions, Proxy, UpstreamResponse
from sfn.gateway.routes import MAX_REPORTED_PREFIXES, CatalogMapping, UnmappedPrefixes
from sfn.gateway.upstream import UpstreamRequest
from sfn.inbox.memory import MemoryInbox
from sfn.inbox.model import InboxConfig as InboxTerms
from tests.promises.inboxes import HandClock


class Catalog:
    """Implements `sfn.gateway.proxy.CatalogUpstream`: answers every request with one status.

    Attributes:
        status: HTTP status.
        asked: targets of all requests.
    """

    def __init__(self) -> None:
        self.status, self.asked = 200, list[bytes]()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        self.asked.append(request.target)
        return Answer(self.status)

    async def close(self) -> None:
        """Nothing is open."""


class Answer:
    """Implements `sfn.gateway.proxy.UpstreamResponse`."""

    def __init__(self, status: int) -> None:
        self.status: int = status
        self.fields: Sequence[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]

    async def parts(self, limit: int | None = None) -> AsyncIterator[bytes]:
        yield b"{}"

    def release(self) -> None:
        """Nothing is open."""


class Stage:
    """A gateway before a catalog.

    Attributes:
        unmapped: how many commits were counted.
    """

    def __init__(self, catalogs: Mapping[str, str]) -> None:
        self.catalog, self.inbox, self.unmapped = Catalog(), MemoryInbox(InboxTerms(), HandClock()), 0
        noting = IntentOptions("gateway.g", OnInboxFailure.PASS, lambda: "token")
        commits = CommitRecorder(noting, self.inbox, OwedSweeps(self.inbox), self._broken, self)
        reach = CatalogMapping(None, catalogs, lambda _: True, requires_credentials=False)
        self._proxy = Proxy(self.catalog, commits, reach, GatewayOptions("http://catalog", None, 1 << 20), self)

    async def ask(self, target: str, method: str = "POST") -> None:
        scope: MutableMapping[str, Any] = {
            "type": "http",
            "method": method,
            "raw_target": target.encode(),
            "headers": [(b"host", b"gateway"), (b"content-length", b"2")],
            "client": ("10.0.0.1", 1),
            "scheme": "http",
        }

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b"{}"}

        async def send(message: MutableMapping[str, Any]) -> None:
            """Ignore the answer."""

        await self._proxy.answer("", scope, receive, send)

    def answered(self, *, change: bool, status: int | None, seconds: float) -> None:
        """See `sfn.gateway.proxy.GatewayRequestMetrics`."""

    def count_unmapped(self) -> None:
        """See `sfn.gateway.proxy.GatewayRequestMetrics`."""
        self.unmapped += 1

    def count_unrecorded(self) -> None:
        """See `sfn.gateway.commits.GatewayCommitMetrics`."""

    def _broken(self, broken: FatalError) -> None:
        raise broken


ORDERS = "namespaces/sales/tables/orders"


@pytest.fixture(name="stage")
def fixture_stage() -> Stage:
    return Stage({"main|lake": "main"})


async def test_commits_under_an_unmapped_prefix_are_counted_and_logged_once(stage: Stage) -> None:
    with capture_logs() as records:
        for _ in range(3):
            await stage.ask(f"/v1/main/{ORDERS}")
        await stage.ask(f"/v1/{ORDERS}")
    assert stage.unmapped == 4
    warnings = [record for record in records if record["event"] == "commit under an unmapped prefix"]
    assert [record["prefix"] for record in warnings] == ["main", ""]
    assert (warnings[0]["gateway"], warnings[0]["known"]) == ("gateway.g", ["main|lake"])
    assert len(stage.catalog.asked) == 4, "they pass all the same"


@pytest.mark.parametrize(
    ("target", "method", "status"),
    [
        (f"/v1/main%7Clake/{ORDERS}", "POST", 200),
        (f"/v1/main/{ORDERS}", "GET", 200),
        (f"/v1/main/{ORDERS}", "POST", 404),
        (f"/v1/main/{ORDERS}", "POST", 409),
        ("/v1/main/namespaces/sales/views/v", "POST", 200),
    ],
)
async def test_other_requests_are_no_unmapped_commits(stage: Stage, target: str, method: str, status: int) -> None:
    stage.catalog.status = status
    with capture_logs() as records:
        await stage.ask(target, method)
    assert (stage.unmapped, records) == (0, [])


def test_prefixes_that_clients_make_up_fill_no_memory() -> None:
    unmapped = UnmappedPrefixes()
    assert sum(unmapped.is_new(f"p{number}") for number in range(2 * MAX_REPORTED_PREFIXES)) == MAX_REPORTED_PREFIXES
