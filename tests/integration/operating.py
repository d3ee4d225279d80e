"""What operators reach, in memory, and a client of the routes to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import APIRouter
from typing_extensions import override

from sfn.admin.app import routes
from sfn.admin.routes import AdminContext, AdminInbox, ConfiguredCatalog, ProcessInfo
from sfn.domain.events import Notification, UndecodableRequest
from sfn.errors import Rejected
from sfn.http.app import build_app
from sfn.http.secrets import PartyTokens
from sfn.http.senders import OPERATORS_PARTY, Keyring, OperatorAuth
from sfn.inbox.memory import MemoryInbox
from sfn.inbox.model import AdminCommand
from sfn.publish.policy import TableFilter
from sfn.telemetry.logs import RejectionLog
from sfn.worker.capacity import CircuitBreakerState
from sfn.worker.sweep import SweepReport
from tests.integration.listening import Service
from tests.promises.inboxes import TERMS, Ground, table
from tests.support.clock import HandClock

OPERATOR = {"Authorization": "Bearer an-operators-token"}


class Desk(MemoryInbox):
    """An inbox that can be made to fail an operator."""

    failure: Exception | None = None

    @override
    async def release(self, catalog: str, command: AdminCommand) -> int:
        if self.failure is not None:
            raise self.failure
        return await super().release(catalog, command)


@dataclass
class Office:
    """A process as its operators see it."""

    clock: HandClock = field(default_factory=HandClock)
    sweeps: dict[str, SweepReport] = field(default_factory=dict)
    breakers: list[CircuitBreakerState] = field(default_factory=list)
    reasons: tuple[str, ...] = ()
    understood: list[Notification] | None = None
    interest: TableFilter = field(default_factory=TableFilter)

    def __post_init__(self) -> None:
        self.inbox = Desk(TERMS, self.clock)
        self.ground = Ground(self.inbox, self.clock)
        self.process = ProcessInfo(
            version="1.2.3",
            started_at=self.clock.now(),
            not_ready_reasons=lambda: self.reasons,
            catalog_ids=lambda: {"prod": "c1"},
            breakers=lambda: self.breakers,
            sweep_reports=lambda: self.sweeps,
        )

    def router(self, keyring: Keyring | None = None) -> APIRouter:
        """The routes, for whoever holds the operators' token."""
        keyring = keyring or Keyring({OPERATORS_PARTY: PartyTokens({"main": "an-operators-token"})})
        catalogs = {
            "prod": ConfiguredCatalog("rest", interest=self.interest),
            "dev.eu": ConfiguredCatalog("rest"),
            "mute": ConfiguredCatalog("events", is_sweepable=False),
        }
        inbox = self.inbox
        operations = AdminContext(
            AdminInbox(inbox, inbox, inbox, inbox, inbox, inbox), self.process, catalogs, self._understand, self.clock
        )
        return routes(operations, OperatorAuth(keyring, RejectionLog(OPERATORS_PARTY)).authenticate)

    def _understand(self, event: UndecodableRequest) -> Sequence[Notification]:
        if self.understood is None:
            raise Rejected("#", status=415, expected="an event in a known format", found="something else")
        return self.understood


@asynccontextmanager
async def client(service: Service, *routers: APIRouter) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the listener's application with more routes."""
    app = build_app(
        service.ingest(), service.readiness, version="1.2.3", on_fatal=service.broken.append, routers=routers
    )
    # As a server does: an error that was answered is raised again, to be logged.
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://sfn") as client:
        yield client


@asynccontextmanager
async def operating(office: Office) -> AsyncIterator[httpx.AsyncClient]:
    """An operator's client."""
    async with client(Service(), office.router()) as operator:
        operator.headers.update(OPERATOR)
        yield operator


async def got(client: httpx.AsyncClient, path: str, **params: str | int) -> Any:  # noqa: ANN401 - JSON
    """The answer to a question."""
    reply = await client.get(path, params=params)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def posted(client: httpx.AsyncClient, path: str, content: object = None) -> Any:  # noqa: ANN401 - JSON
    """The answer to an order."""
    reply = await client.post(path, json=content)
    assert reply.status_code in {200, 202}, reply.text
    return reply.json()


__all__ = ["OPERATOR", "Office", "client", "got", "operating", "posted", "table"]
