"""Which modules one event passes through: from the POST until the SFN file is written and the job settled."""

from __future__ import annotations

import sys
import tempfile
import threading
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Final

import anyio
import httpx
from structlog.testing import capture_logs
from typing_extensions import override

from sfn.catalogs.memory import MemoryCatalog
from sfn.clock import SystemClock, SystemRandomSource
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import LeasedJob, Outcome
from sfn.formats.event import Sender
from sfn.http.app import build_app
from sfn.http.ingest import EventFilter, EventsEndpoint, Readiness
from sfn.http.secrets import PartyTokens
from sfn.http.senders import Keyring, Senders
from sfn.inbox.model import InboxConfig
from sfn.inbox.sqlite import SqliteInbox
from sfn.limits import BodyLimits, BodyMemory
from sfn.publish.policy import Policy
from sfn.storage import PrefixRouter
from sfn.storage.local import LocalStore
from sfn.telemetry.metrics import Metrics
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.outcome_log import OutcomeLog
from sfn.worker.worker import Worker, WorkerOptions

_TOKEN: Final = "a-token-for-tests"  # noqa: S105 - it opens nothing
_TABLE: Final = TableIdentifier("prod", ("sales",), "orders")


class _One:
    """Implements `CatalogRegistry` with one catalog."""

    def __init__(self, catalog: ConnectedCatalog) -> None:
        self._catalog = catalog

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        return self._catalog

    def is_retired(self, catalog: str) -> bool:
        return False


class _Settled(OutcomeLog):
    """A log of outcomes that says when the first job is settled."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    @override
    def on_settled(self, claim: LeasedJob, outcome: Outcome, seconds: float) -> None:
        super().on_settled(claim, outcome, seconds)
        self.event.set()


def modules_of_an_event() -> set[str]:
    """Return the modules of the package with a function that runs for one event."""
    with tempfile.TemporaryDirectory() as folder, capture_logs():
        return anyio.run(_publish_one, Path(folder).resolve())


async def _publish_one(folder: Path) -> set[str]:
    clock, catalog, readiness = SystemClock(), MemoryCatalog("prod"), Readiness()
    metrics, sink = Metrics(version="1", catalogs=["prod"]), _Settled()
    catalog.create_namespace("sales")
    (folder / "orders" / "metadata").mkdir(parents=True)
    catalog.create(_TABLE, (folder / "orders").as_uri())
    senders = Senders(
        Keyring({"senders.etl": PartyTokens({"main": _TOKEN})}), {"senders.etl": Sender("etl", {"prod": "prod"})}
    )
    trace = _Trace()
    async with SqliteInbox.opened(folder / "inbox.db", InboxConfig(), clock) as inbox:
        endpoint = EventsEndpoint(
            inbox,
            senders,
            readiness,
            limits=BodyLimits(4_096, 60),
            event_filter=EventFilter(lambda _: True, frozenset()),
            on_fatal=_fail,
            metrics=metrics.events,
            memory=BodyMemory(),
        )
        policy = Policy("c1", replica_lag=timedelta(), min_publish_interval=timedelta(), is_swept=False)
        worker = Worker(
            inbox,
            _One(ConnectedCatalog(catalog, policy)),
            PrefixRouter({folder.as_uri(): LocalStore()}),
            clock=clock,
            chance=SystemRandomSource(),
            sink=sink,
            options=WorkerOptions(),
        )
        app = build_app(endpoint, readiness, version="1", on_fatal=_fail)
        trace.is_on = True
        async with anyio.create_task_group() as tasks:
            stop = anyio.Event()
            tasks.start_soon(worker.run, stop)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://sfn") as client:
                answer = await client.post(
                    "/v1/events",
                    json={"namespace": ["sales"], "name": "orders"},
                    headers={"Authorization": f"Bearer {_TOKEN}"},
                )
                answer.raise_for_status()
            with anyio.fail_after(20):
                await sink.event.wait()
            stop.set()
    return trace.modules()


def _fail(error: Exception) -> None:
    raise error


class _Trace:
    """Collects the modules of which a function is called, in this thread and in those that start later."""

    def __init__(self) -> None:
        self.is_on = False
        self._names: set[str] = set()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def modules(self) -> set[str]:
        """Return the package's modules among them, and trace no more."""
        sys.setprofile(None)
        threading.setprofile(None)
        return {name for name in self._names if name.startswith("sfn.")}

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_on and event == "call":
            self._names.add(frame.f_globals.get("__name__", ""))
