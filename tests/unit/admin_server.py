"""A service's HTTP side that answers a command what a test tells it to, and the answers of the admin routes."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from pydantic import BaseModel
from typing_extensions import override

from sfn.admin.schemas import (
    CatalogModel,
    CircuitBreakerModel,
    DeadLetterDetails,
    DropLimitModel,
    SweepModel,
    TableCountsModel,
)
from sfn.admin.table_schemas import PendingChangeModel, PublishedFileModel, TableModel
from sfn.admin.verdict import ServiceReport, Verdict, VerdictState

MOST = 100
"""Requests that one test may make: more are a loop that never ends."""

M = TypeVar("M", bound=BaseModel)

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)
NO_TABLES = TableCountsModel(due=0, scheduled=3, retrying=0, leased=0, dead=0, held=0)
CALM = DropLimitModel(limit_reached=False, on_hold=0, steps=0, limit=10)
ENDED = SweepModel(
    state="ended",
    started_at=NOON - timedelta(minutes=2),
    ended_at=NOON - timedelta(minutes=1),
    tables=3,
    known_tables=3,
    differences=[],
    differences_total=0,
    unlisted_namespaces=[],
    failed_tables=[],
    error=None,
    unlisted_reason=None,
    listing_failed=[],
)
PROD = CatalogModel(
    name="prod",
    type="rest",
    catalog_id="0123",
    foreign_catalog_id=None,
    retired=False,
    live_tables=3,
    tables=NO_TABLES,
    answered_at=NOON - timedelta(seconds=9),
    oldest_due_at=None,
    drop_limit=CALM,
    sweep=ENDED,
    open_intents=0,
    oldest_intent_at=None,
)
WELL = ServiceReport(
    verdict=Verdict(state=VerdictState.WELL, since=None, problems=[]),
    version="1.2.3",
    started_at=NOON - timedelta(hours=3),
    ready=True,
    not_ready_reasons=[],
    catalogs=[PROD],
    breakers=[],
    dead_letters={},
    roles=[],
)
SILENT = CircuitBreakerModel(
    scope="catalog",
    name="prod",
    state="open",
    open_until=NOON + timedelta(seconds=4),
    allowed_probes=0,
    failing=True,
    failing_since=NOON - timedelta(seconds=200),
    error="http://c: expected an answer, found connection refused",
)
LETTER = DeadLetterDetails(
    id=7,
    status="open",
    reason="location-refused",
    catalog="prod",
    namespace=["sales"],
    name="orders",
    table="sales.orders",
    sender=None,
    detail="it lies elsewhere",
    attempts=2,
    opened_at=NOON - timedelta(hours=1),
    changed_at=NOON - timedelta(minutes=30),
    actor=None,
    cause="",
    request=None,
    foreign_catalog_id=None,
)
ORDERS = TableModel(
    catalog="prod",
    namespace=["sales"],
    name="orders",
    table="sales.orders",
    state="queued",
    due_at=NOON + timedelta(hours=8),
    not_before=None,
    attempt=0,
    failing_since=None,
    reason=None,
    on_hold=False,
    limit_overridden=False,
    published=PublishedFileModel(
        metadata_location="file:///w/m/1.json",
        table_uuid="u1",
        location="file:///w",
        written_at=NOON - timedelta(minutes=5),
    ),
    unpublished=None,
    pending=PendingChangeModel(
        min_metadata_location=None, drop=False, purge=False, renamed_to=None, has_unprocessed=False
    ),
    locations=["file:///w"],
    refresh_at=NOON + timedelta(hours=8),
    last_result=None,
    last_event=None,
    dead_letters=[],
    outcomes=[],
    renamed_to=None,
    foreign_version_hint=None,
    foreign_catalog_id=None,
    open_intents=0,
    next_check_at=None,
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered: JSON, or bytes as they are."""

    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class AdminServer:
    """What it answers, by method and path without query, the first of several at first; and what it was asked.

    What nothing was told about is answered with 404, as by a server that is no service of ours.
    """

    url: str = ""
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def tell(self, target: str, *replies: Reply) -> None:
        """Answer `GET /path` with these, one after the other, the last for ever."""
        self.replies[target] = list(replies)

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if len(self.asked) > MOST:
            return Reply(500, {"detail": "asked for ever"})
        told = self.replies.get(f"{asked.method} {asked.path.partition('?')[0]}", [Reply(404, b"nothing")])
        return told.pop(0) if len(told) > 1 else told[0]


@contextmanager
def admin_server(certificate: ssl.SSLContext | None = None) -> Iterator[AdminServer]:
    """A server that listens."""
    server = AdminServer()

    class Handler(BaseHTTPRequestHandler):
        def _answered(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            reply = server.answer(Asked(self.command, self.path, dict(self.headers), self.rfile.read(length)))
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.content)))
            self.end_headers()
            self.wfile.write(reply.content)

        do_GET = do_POST = _answered  # noqa: N815 - as the standard library calls them

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        listening.socket = certificate.wrap_socket(listening.socket, server_side=True)
    scheme = "http" if certificate is None else "https"
    server.url = f"{scheme}://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def copied(model: M, **more: Any) -> M:  # noqa: ANN401 - any attribute
    """A model with these attributes changed."""
    assert more.keys() <= type(model).model_fields.keys()
    return model.model_copy(update=more)


def catalog(**more: Any) -> ServiceReport:  # noqa: ANN401 - any attribute
    """The status of a service whose only catalog has these attributes changed."""
    return copied(WELL, catalogs=[copied(PROD, **more)])


def swept(**more: Any) -> ServiceReport:  # noqa: ANN401 - any attribute
    """The status of a service whose last sweep has these attributes changed."""
    return catalog(sweep=copied(ENDED, **more))
