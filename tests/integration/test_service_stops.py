"""Stops of the service, and its parts, which live and die together."""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from signal import SIGTERM, Signals
from typing import Any

import anyio
import httpx
import pytest
from anyio.streams.memory import MemoryObjectSendStream
from typing_extensions import override

from sfn.app.service import FatalErrorReport, HttpListener, ServiceRunner, leaf_errors
from sfn.app.wiring import STARTING, AssembledService
from sfn.clock import SystemClock, SystemRandomSource
from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import Capacity, LeasedJob
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.http.app import build_app
from sfn.http.ingest import EventFilter, EventsEndpoint, Readiness
from sfn.http.senders import anonymous_senders
from sfn.http.server import listening_socket
from sfn.inbox import ClaimResult
from sfn.inbox.model import InboxConfig as InboxTerms
from sfn.limits import BodyLimits
from sfn.storage import PrefixRouter
from sfn.telemetry.metrics import Metrics
from sfn.worker.catalog_sources import ConnectedCatalog
from sfn.worker.outcome_log import OutcomeLog
from sfn.worker.worker import Worker, WorkerOptions
from tests.support.memory_inbox import MemoryInbox
from tests.support.processes import until
from tests.support.service import SFN, Daemon, Lake, configure, refused, serving, start

# Signals and failures.


SIGNALS = (signal.SIGTERM, signal.SIGINT)


def assert_one_line(told: str, part: str) -> None:
    assert part in told
    assert told.count("\n") == 1
    assert "Traceback" not in told


async def post_until_refused(daemon: Daemon, sender: int, acknowledged: list[str], world: Lake) -> None:
    for number in range(10_000):
        name = f"t{sender}_{number}"
        world.commit(name)
        try:
            answer = await daemon.tell(name)
        except httpx.TransportError:
            return
        if answer.status_code != 202:
            assert answer.status_code == 503
            return
        acknowledged.append(name)


async def test_a_stop_under_load_loses_nothing_that_was_acknowledged(world: Lake) -> None:
    world.delay = 0.5
    configuration = configure(world, '[worker]\nconcurrency = 4\n[sweep]\nevery = "off"')
    acknowledged: list[str] = []
    async with serving(configuration) as daemon:
        async with anyio.create_task_group() as senders:
            for sender in range(8):
                senders.start_soon(post_until_refused, daemon, sender, acknowledged, world)
            await until(lambda: len(acknowledged) >= 60)
            daemon.send(signal.SIGTERM)
        assert await daemon.ended() == 0
        assert daemon.records("ended")
    assert any(world.published(name) is None for name in acknowledged)
    world.delay = 0
    async with serving(configuration) as daemon:
        await world.until_published(*acknowledged)
        assert {record["attempt"] for record in daemon.records("settled")} == {1}


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_stop_waits_for_what_runs(world: Lake, number: signal.Signals) -> None:
    world.delay = 1.0
    world.commit("orders")
    async with serving(configure(world, '[sweep]\nevery = "off"'), command=SFN) as daemon:
        await daemon.tell("orders")
        await until(lambda: world.loads)
        daemon.send(number)
        assert await daemon.ended() == 0
    await world.until_published("orders")


async def test_a_stop_waits_for_no_sweep(world: Lake) -> None:
    world.delay = 60
    world.commit("orders")
    configuration = configure(world, drain="60s")
    async with serving(configuration) as daemon:
        await until(lambda: world.loads)
        daemon.send(signal.SIGTERM)
        assert await daemon.ended(10) == 0
        (record,) = daemon.records("settled", table=None)
        assert (record["outcome"], record["why"]) == ("returned", "the service stops")
    world.delay = 0
    async with serving(configuration):
        await world.until_published("orders")


async def test_a_stop_during_the_start_is_a_stop_too(world: Lake) -> None:
    log = world.folder / "start.log"
    process = start(configure(world), log, command=SFN)
    try:
        await until(lambda: "started" in log.read_text())
        process.send_signal(signal.SIGTERM)
        await until(lambda: process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0


async def test_what_does_not_end_in_time_is_given_back_without_an_attempt(world: Lake) -> None:
    world.delay = 60
    world.commit("orders")
    configuration = configure(world, '[sweep]\nevery = "off"', drain="300ms")
    async with serving(configuration) as daemon:
        await daemon.tell("orders")
        await until(lambda: "orders" in world.loads)
        daemon.send(signal.SIGTERM)
        assert await daemon.ended(10) == 0
        (record,) = daemon.records("settled", table="prod:sales.orders")
        assert (record["outcome"], record["why"]) == ("returned", "the service stops")
    world.delay = 0
    async with serving(configuration) as daemon:
        done = await daemon.until_logged("settled", table="prod:sales.orders", outcome="done")
        assert done["attempt"] == 1


async def test_while_it_drains_it_takes_nothing_and_says_so(world: Lake) -> None:
    world.delay = 60
    world.commit("orders")
    async with serving(configure(world, '[sweep]\nevery = "off"', drain="3s")) as daemon:
        await daemon.tell("orders")
        await until(lambda: "orders" in world.loads)
        daemon.send(signal.SIGTERM)
        await daemon.until_logged("draining")
        answers = [await daemon.tell("customers"), await daemon.client.get("/readyz")]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert "draining" in answers[1].text
        assert (await daemon.client.get("/livez")).status_code == 200
        assert await daemon.ended() == 0


@pytest.mark.parametrize("second", SIGNALS)
async def test_a_second_signal_ends_it_at_once(world: Lake, second: signal.Signals) -> None:
    world.delay = 60
    world.commit("orders")
    async with serving(configure(world, '[sweep]\nevery = "off"', drain="60s")) as daemon:
        await daemon.tell("orders")
        await until(lambda: world.loads)
        daemon.send(signal.SIGTERM)
        await daemon.until_logged("draining")
        daemon.send(second)
        assert await daemon.ended(10) == 1


async def test_an_inbox_that_is_lost_ends_it_and_nothing_more_is_acknowledged(world: Lake) -> None:
    async with serving(configure(world)) as daemon:
        assert (await daemon.tell("orders")).status_code == 202
        (world.folder / "inbox" / "inbox.db").rename(world.folder / "elsewhere.db")
        try:
            answer = await daemon.tell("customers")
        except httpx.TransportError:
            pass
        else:
            assert answer.status_code == 503
        assert await daemon.ended() == 1
        record = daemon.records("service failed")[0]
        assert (record["level"], "inbox.db" in record["error"]) == ("error", True)
        assert not daemon.records("ended")


async def test_a_second_process_on_the_same_inbox_is_refused(world: Lake) -> None:
    configuration = configure(world)
    async with serving(configuration) as daemon:
        status, told = await refused(configuration)
        assert_one_line(told, "inbox.db")
        assert status == 1
        world.commit("orders")
        assert (await daemon.tell("orders")).status_code == 202
        await world.until_published("orders")


async def test_a_port_that_is_taken_is_one_line_and_1(world: Lake) -> None:
    configuration = configure(world)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, told = await refused(configuration, {"SFN_LISTENER__PORT": port})
    assert_one_line(told, f"127.0.0.1:{port}: expected a free address")
    assert status == 1
    assert not (world.folder / "inbox").exists()


async def test_an_inbox_that_cannot_be_written_is_one_line_and_1(world: Lake) -> None:
    file = world.folder / "file"
    file.write_text("not a folder")
    status, told = await refused(configure(world), {"SFN_INBOX__URL": f"sqlite:///{file}/inbox.db"})
    assert_one_line(told, str(file))
    assert status == 1


async def test_a_store_of_an_unknown_kind_is_one_line_and_2(world: Lake) -> None:
    status, told = await refused(configure(world, '[stores.far]\nprefix = "hdfs://cluster"'))
    assert_one_line(told, "[stores.far] prefix")
    assert status == 2


async def test_without_a_token_it_does_not_listen_to_the_network(world: Lake) -> None:
    configuration = configure(world)
    configuration.write_text(configuration.read_text().split("[senders.etl]", maxsplit=1)[0])
    status, told = await refused(configuration, {"SFN_LISTENER__HOST": "0.0.0.0"})  # noqa: S104 - must be refused
    assert_one_line(told, "loopback")
    assert status == 2


# Parts that never return.


QUIET = '[sweep]\nevery = "off"'
HUNG = ("tests.integration.child_processes", "hung")


async def until_it_hangs(daemon: Daemon, world: Lake) -> None:
    """Tell of a table, and give the publish the time to come to its first read."""
    world.commit("orders")
    await daemon.tell("orders")
    await until(lambda: world.loads)
    await anyio.sleep(0.5)


async def test_a_file_system_that_hangs_does_not_keep_the_process_alive(world: Lake) -> None:
    configuration = configure(world, QUIET, drain="300ms")
    async with serving(configuration, command=(*HUNG, "files")) as daemon:
        await until_it_hangs(daemon, world)
        daemon.send(signal.SIGTERM)
        assert await daemon.ended(10) == 1
        (given_back,) = daemon.records("settled", table="prod:sales.orders")
        assert (given_back["outcome"], given_back["why"]) == ("returned", "the service stops")
        (told,) = daemon.records("hanging calls abandoned")
        assert told["level"] == "error"
        assert told["hanging"]
        assert all(f"{world.directory('orders')}/metadata/" in call for call in told["hanging"])
    async with serving(configuration) as daemon:
        done = await daemon.until_logged("settled", table="prod:sales.orders", outcome="done")
        assert done["attempt"] == 1


async def test_a_wait_that_nobody_bounded_does_not_keep_the_process_alive(world: Lake) -> None:
    configuration = configure(world, QUIET, drain="300ms")
    async with serving(configuration, command=(*HUNG, "wait")) as daemon:
        await until_it_hangs(daemon, world)
        daemon.send(signal.SIGTERM)
        assert await daemon.ended(10) == 1
        told = daemon.log.read_text()
        assert "Timeout (0:00:01.3" in told
        assert "Thread 0x" in told


async def test_the_longest_drain_ends_when_nothing_runs(world: Lake) -> None:
    configuration = configure(world, QUIET, drain="36500d")
    async with serving(configuration) as daemon:
        daemon.send(signal.SIGTERM)
        assert await daemon.ended() == 0


BROKEN = FatalError("inbox", expected="a sound inbox", found="another")
BUSY = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=0.01)
EVENT = {"namespace": ["sales"], "name": "orders", "catalog": "prod"}


class Troubled(MemoryInbox):
    """An inbox that fails when it is told.

    Attributes:
        on_claim: raised by every claim.
        on_put: raised by the next puts, one each.
        taken: what was put in.
    """

    def __init__(self) -> None:
        super().__init__(InboxTerms(), SystemClock())
        self.on_claim: Exception | None = None
        self.on_put: list[Exception] = []
        self.taken: list[Notification] = []

    @override
    async def claim(
        self, capacity: Capacity, running: Sequence[LeasedJob] = (), until: datetime | None = None
    ) -> ClaimResult:
        if self.on_claim is not None:
            raise self.on_claim
        return await super().claim(capacity, running, until)

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        if self.on_put:
            raise self.on_put.pop(0)
        self.taken.extend(note for note in messages if isinstance(note, Notification))
        return await super().put(messages)


@dataclass(slots=True)
class Catalogs:
    """None is configured.

    Attributes:
        error: raised instead of saying so.
    """

    error: Exception | None = None

    async def get(self, catalog: str) -> ConnectedCatalog | None:
        if self.error is not None:
            raise self.error
        return None

    def is_retired(self, catalog: str) -> bool:
        return False


class Siblings(ServiceRunner):
    """A daemon whose server can be made to end, as nothing of ours does."""

    def end_listening(self) -> None:
        for server, _ in self._servers:
            server.stop()


@dataclass(slots=True)
class Running:
    """A daemon in this process, with twins for its parts.

    Attributes:
        siblings: the daemon itself.
        signals: what it is sent.
        client: asks it.
        ended: it has.
        causes: why, if it failed.
    """

    siblings: Siblings
    inbox: Troubled
    catalogs: Catalogs
    signals: MemoryObjectSendStream[Signals]
    client: httpx.AsyncClient
    ended: bool = False
    causes: list[BaseException] = field(default_factory=list)

    async def is_ready(self) -> bool:
        return (await self.client.get("/readyz")).is_success


async def for_ever() -> None:
    await anyio.sleep_forever()


def service(
    inbox: Troubled,
    catalogs: Catalogs,
    failure: FatalErrorReport,
    tend: Callable[[], Coroutine[Any, Any, None]],
    sweeps: tuple[Notification, ...],
) -> AssembledService:
    readiness = Readiness(STARTING)
    senders = anonymous_senders(["prod"])
    metrics = Metrics(version="1", catalogs=["prod"])
    ingest = EventsEndpoint(
        inbox,
        senders,
        readiness,
        limits=BodyLimits(1000),
        event_filter=EventFilter(lambda _: True),
        on_fatal=failure.report,
        metrics=metrics.events,
    )
    worker = Worker(
        inbox,
        catalogs,
        PrefixRouter({}),
        clock=SystemClock(),
        chance=SystemRandomSource(),
        sink=OutcomeLog(),
        options=WorkerOptions(drain=timedelta(seconds=1)),
    )
    listening = build_app(ingest, readiness, version="1", on_fatal=failure.report)
    return AssembledService(listening, ingest, readiness, worker, inbox, tend, sweeps)


@asynccontextmanager
async def running(
    tend: Callable[[], Coroutine[Any, Any, None]] = for_ever, sweeps: tuple[Notification, ...] = ()
) -> AsyncGenerator[Running]:
    """A daemon that was started, and is cancelled in the end."""
    inbox, catalogs, failure = Troubled(), Catalogs(), FatalErrorReport()
    inbox.on_put = [BUSY, BUSY] if sweeps else []
    send, receive = anyio.create_memory_object_stream[Signals](1)
    parts = service(inbox, catalogs, failure, tend, sweeps)
    with listening_socket("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        daemon = Siblings(parts, [HttpListener(listener, parts.application)], timedelta(seconds=1), failure)
        async with httpx.AsyncClient(base_url=url, timeout=5, trust_env=False) as client:
            made = Running(daemon, inbox, catalogs, send, client)

            async def run() -> None:
                try:
                    await daemon.run(receive)
                except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
                    made.causes.extend(leaf_errors(error))
                made.ended = True

            async with anyio.create_task_group() as tasks, send, receive:
                tasks.start_soon(run)
                with anyio.fail_after(10):
                    while not await made.is_ready():  # noqa: ASYNC110 - it is asked over HTTP
                        await anyio.sleep(0.01)
                yield made
                tasks.cancel_scope.cancel()


async def refuses(client: httpx.AsyncClient) -> bool:
    try:
        await client.get("/livez")
    except httpx.TransportError:
        return True
    return False


@pytest.mark.parametrize("error", [BROKEN, RuntimeError("a defect")])
async def test_when_the_worker_fails_all_of_it_ends(error: Exception) -> None:
    async with running() as daemon:
        daemon.inbox.on_claim = error
        assert (await daemon.client.post("/v1/events", json=EVENT)).status_code == 202
        await until(lambda: daemon.ended)
        assert daemon.causes == [error]


async def test_when_the_listener_ends_by_itself_all_of_it_ends() -> None:
    async with running() as daemon:
        daemon.siblings.end_listening()
        await until(lambda: daemon.ended)
        (error,) = daemon.causes
        assert isinstance(error, FatalError)
        assert (error.where, error.found) == ("listener", "a server that ended")


async def test_when_a_publish_finds_the_inbox_broken_all_of_it_ends() -> None:
    async with running() as daemon:
        daemon.catalogs.error = BROKEN
        assert (await daemon.client.post("/v1/events", json=EVENT)).status_code == 202
        await until(lambda: daemon.ended)
        assert BROKEN in daemon.causes


async def test_a_defect_in_a_publish_ends_nothing() -> None:
    async with running() as daemon:
        daemon.catalogs.error = RuntimeError("a defect")
        assert (await daemon.client.post("/v1/events", json=EVENT)).status_code == 202
        await anyio.sleep(0.1)
        assert (await daemon.client.post("/v1/events", json=EVENT)).status_code == 202
        assert not daemon.ended


async def test_when_the_inbox_can_not_be_tended_all_of_it_ends() -> None:
    gate = anyio.Event()

    async def tend() -> None:
        await gate.wait()
        raise BROKEN

    async with running(tend) as daemon:
        assert not daemon.ended
        gate.set()
        await until(lambda: daemon.ended)
        assert daemon.causes == [BROKEN]


async def test_when_a_request_finds_the_inbox_broken_it_is_answered_and_all_of_it_ends() -> None:
    async with running() as daemon:
        daemon.inbox.on_put = [BROKEN]
        assert (await daemon.client.post("/v1/events", json=EVENT)).status_code == 503
        await until(lambda: daemon.ended)
        assert daemon.causes == [BROKEN]


async def test_trouble_of_the_inbox_ends_nothing() -> None:
    async with running() as daemon:
        daemon.inbox.on_put = [BUSY]
        assert (await daemon.client.post("/v1/events", json=EVENT)).status_code == 503
        assert (await daemon.client.post("/v1/events", json=EVENT)).status_code == 202
        assert not daemon.ended


async def test_a_start_asks_for_a_sweep_until_the_inbox_takes_it() -> None:
    sweep = Notification(CatalogName("prod"), sender="start")
    async with running(sweeps=(sweep,)) as daemon:
        await until(lambda: daemon.inbox.taken)
        assert daemon.inbox.taken == [sweep]
        assert daemon.inbox.on_put == []
        assert not daemon.ended


async def test_a_signal_ends_it_without_an_error() -> None:
    async with running() as daemon:
        await daemon.signals.send(SIGTERM)
        await until(lambda: daemon.ended)
        assert daemon.causes == []
        assert await refuses(daemon.client)


def has_six() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "::"])
def test_a_free_port_of_an_address_of_either_family(host: str) -> None:
    if ":" in host and not has_six():
        pytest.skip("this machine has no IPv6")
    with listening_socket(host, 0) as listener:
        address = "127.0.0.1" if ":" not in host or host == "::" else "::1"
        socket.create_connection((address, listener.getsockname()[1]), timeout=5).close()
