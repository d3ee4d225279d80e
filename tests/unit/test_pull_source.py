"""Sources of pulled events: configuration, fetching and acknowledging."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from sfn.app.endpoints import build_pull_server
from sfn.app.service import leaf_errors
from sfn.clock import SystemClock
from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.formats.event import Headers
from sfn.http.ingest import EventFilter, IngestService
from sfn.http.recent_requests import RecentRequests
from sfn.pull import FinalBatch, Outage, SourceUnavailable, source
from sfn.pull.source import PullOptions, PullSource, subjects_overlap
from sfn.telemetry.metrics import Metrics
from tests.support.clock import HandClock
from tests.support.listener import Inbox
from tests.support.processes import until
from tests.support.pull_source import LIMIT, SENDER, event, subjects
from tests.support.settings_file import CATALOG, Ground

BUSY = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=0.01)
SHORT = 0.05
"""Seconds."""
GONE = SourceUnavailable("pull.events", expected="an answer", found="none")


CONNECTION_LOST = SourceUnavailable("pull.events", expected="an answer", found="none", remedy="see")


@dataclass
class Message:
    """A message in memory.

    Attributes:
        told: what its server was told of it.
        told_at: when it was told last.
        error: raised instead.
        keeps: its server does.
    """

    body: bytes
    headers: Headers = ()
    told: list[str] = field(default_factory=list)
    error: Exception | None = None
    keeps: bool = True
    told_at: float = 0.0

    async def acknowledge(self) -> None:
        if self.error is not None:
            raise self.error
        self.told.append("taken")
        self.told_at = anyio.current_time()

    async def redeliver(self, after: float) -> bool:
        if self.error is not None:
            raise self.error
        self.told_at = anyio.current_time()
        if self.keeps:
            self.told.append(f"again after {after:g}")
        return self.keeps


@dataclass
class Server:
    """A server in memory: each connection delivers one of its lists of batches, and is lost then.

    Attributes:
        stays: it is not lost, and nothing more comes.
        opened_at: when it was connected to, or asked in vain.
        away: so often it does not answer.
        dropped: as a feed says it.
        last: as a feed has it in the end.
    """

    connections: list[list[Sequence[Message]]] = field(default_factory=list)
    is_durable: bool = True
    opened_at: list[float] = field(default_factory=list)
    away: int = 0
    dropped: int = 0
    stays: bool = False
    last: FinalBatch = FinalBatch((), is_complete=True)
    _batches: list[Sequence[Message]] | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Server]:
        self.opened_at.append(anyio.current_time())
        if len(self.opened_at) <= self.away:
            raise GONE
        self._batches = self.connections.pop(0) if self.connections else None
        yield self

    async def next(self) -> Sequence[Message]:
        await anyio.lowlevel.checkpoint()
        if self._batches is None:
            await anyio.sleep_forever()
            raise AssertionError
        if not self._batches and self.stays:
            await anyio.sleep(0.01)
            return ()
        if not self._batches:
            raise GONE
        return self._batches.pop(0)

    async def drain(self) -> FinalBatch:
        return self.last

    @property
    def was_asked_less_and_less_often(self) -> bool:
        pauses = [later - before for before, later in pairwise(self.opened_at)]
        return len(pauses) >= 3 and all(pause >= SHORT * 2**turn for turn, pause in enumerate(pauses[:3]))


class Stuck(Inbox):
    """Takes no event, though a look at a catalog."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = anyio.Event()

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        if any(isinstance(note, Notification) and isinstance(note.subject, TableIdentifier) for note in messages):
            self.stuck.set()
            await anyio.sleep_forever()
        return await super().put(messages)


class BusyAtFirst(Inbox):
    """Takes nothing of the first put."""

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        self.failure = None if self.entered.is_set() else BUSY
        return await super().put(messages)


@dataclass
class RunningSource:
    """A source that runs.

    Attributes:
        stop: ends it.
    """

    server: Server
    inbox: Inbox = field(default_factory=Inbox)
    metrics: Metrics = field(default_factory=lambda: Metrics(version="1", catalogs=["prod"], sources=["events"]))
    stop: anyio.Event = field(default_factory=anyio.Event)
    recent: RecentRequests = field(default_factory=RecentRequests)

    async def run(self) -> None:
        source = PullSource(
            PullOptions("events", SENDER, LIMIT, timedelta(seconds=1)),
            self.server,
            IngestService(
                self.inbox,
                event_filter=EventFilter(lambda _: True),
                metrics=self.metrics.events,
                recent=self.recent,
            ),
            clock=SystemClock(),
            event_metrics=self.metrics.events,
            pull_metrics=self.metrics.pulls,
        )
        await source.run(self.stop)

    def has_asked(self, times: int) -> bool:
        return len(self.server.opened_at) == times

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.run)
                yield
                self.stop.set()


def events(logs: Sequence[Mapping[str, object]]) -> list[object]:
    return [record["event"] for record in logs]


def test_lasting_outage_is_logged_once_a_minute() -> None:
    clock = HandClock()
    outage = Outage("events", clock)
    with capture_logs() as logs:
        for _ in range(4):
            outage.on_unavailable(CONNECTION_LOST)
            clock.turn(25)
    first, second = logs
    assert (first["event"], first["name"], first["error"], first["suppressed"]) == (
        "pull source unreachable",
        "events",
        "pull.events: expected an answer, found none; see",
        0,
    )
    assert (second["since"], second["suppressed"]) == (first["since"], 2)


def test_flapping_source_is_logged_once_a_minute() -> None:
    clock = HandClock()
    outage = Outage("events", clock)
    outage.on_recovered()
    with capture_logs() as logs:
        for _ in range(30):
            outage.on_unavailable(CONNECTION_LOST)
            clock.turn(1)
            outage.on_recovered()
            clock.turn(1)
        outage.on_unavailable(CONNECTION_LOST)
    assert events(logs) == ["pull source unreachable", "pull source recovered", "pull source unreachable"]
    assert (logs[1]["seconds"], logs[2]["suppressed"]) == (1.0, 29)


def test_clock_set_back_suppresses_no_record() -> None:
    clock = HandClock()
    outage = Outage("events", clock)
    with capture_logs() as logs:
        outage.on_unavailable(CONNECTION_LOST)
        clock.turn(-3_600)
        outage.on_unavailable(CONNECTION_LOST)
    assert len(logs) == 2


def test_connection_is_logged_once() -> None:
    outage = Outage("events", HandClock())
    with capture_logs() as logs:
        outage.on_connected()
        outage.on_connected()
    assert events(logs) == ["pull source connected"]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a.b", "a", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a.b", True),
        ("*.b", "a.*", True),
        ("*.b", "a.c", False),
        ("a.*.c", "a.>", True),
        ("a.b.>", "a.*", False),
    ],
)
def test_subjects_overlap_if_one_subject_matches_both(one: str, other: str, both: bool) -> None:
    assert subjects_overlap(one, other) == both
    assert subjects_overlap(other, one) == both


def test_only_a_source_with_a_stream_is_durable(tmp_path: Path) -> None:
    pull = "[pull.events]\nservers = ['nats://a']\nsubject = 's'\n"
    for more, keeps in (("", False), ("stream = 's'\ndurable = 'd'", True)):
        settings = Ground(tmp_path).load(CATALOG + pull + more)
        assert build_pull_server("events", settings.pull["events"]).is_durable == keeps


BROKEN = FatalError("inbox", expected="a sound inbox", found="another")


async def test_broken_inbox_ends_the_source_without_further_acknowledgements() -> None:
    messages = [Message(event(1)), Message(event(2))]
    ground = RunningSource(Server([[messages]]))
    ground.inbox.failure = BROKEN
    with pytest.raises(ExceptionGroup) as caught, anyio.fail_after(20):
        await ground.run()
    assert BROKEN in list(leaf_errors(caught.value))
    assert [message.told for message in messages] == [[], []]


async def test_message_that_raised_an_unexpected_error_is_redelivered_later() -> None:
    message, next_one = Message(event(1)), Message(event(2))
    ground = RunningSource(Server([[[message], [next_one]]]))
    ground.inbox.failure = ZeroDivisionError("ours")
    with capture_logs() as logs:
        async with ground.running():
            await until(lambda: message.told)
            ground.inbox.failure = None
    assert message.told == ["again after 60"]
    (told,) = [record for record in logs if record["event"] == "pulled message failed"][:1]
    assert told["exc_info"]


async def test_unexpected_error_causes_a_sweep_if_the_server_is_not_durable() -> None:
    message = Message(event(1), keeps=False)
    ground = RunningSource(Server([[[message]]], is_durable=False, stays=True))
    ground.inbox.failure = ZeroDivisionError("ours")
    with capture_logs() as logs:
        async with ground.running():
            # The sweep at the start fails, too, and is logged first.
            await until(lambda: "pulled message failed" in [record["event"] for record in logs])
            ground.inbox.failure = None
            await until(lambda: ground.inbox.taken)
    assert set(subjects(ground.inbox)) == {"prod"}


async def test_fetching_pauses_for_the_retry_delay_of_the_inbox() -> None:
    first, second = Message(event(1)), Message(event(2))
    ground = RunningSource(Server([[[first], [second]]]))
    ground.inbox.failure = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=0.5)
    async with ground.running():
        await until(lambda: first.told)
        ground.inbox.failure = None
        await until(lambda: second.told)
    assert second.told_at - first.told_at >= 0.4
    assert (first.told, second.told) == (["again after 0.5"], ["taken"])


async def test_failed_acknowledgement_loses_nothing() -> None:
    acknowledged, returned = Message(event(1), error=GONE), Message(event(2), error=GONE)
    ground = RunningSource(Server([[[acknowledged], [Message(event(3))]]]))
    async with ground.running():
        await until(lambda: len(ground.inbox.taken) == 2)
    busy = RunningSource(Server([[[returned], [Message(event(3))]]]), BusyAtFirst())
    async with busy.running():
        await until(lambda: busy.inbox.taken)
    assert subjects(busy.inbox) == ["t3"]


async def test_reconnect_pauses_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "FIRST_PAUSE", SHORT)
    server = Server([[]], away=3, stays=True)
    ground = RunningSource(server)
    with capture_logs() as logs:
        async with ground.running():
            await until(lambda: len(logs) == 3)
    assert server.was_asked_less_and_less_often
    assert [record["event"] for record in logs] == [
        "pull source unreachable",
        "pull source connected",
        "pull source recovered",
    ]


@pytest.mark.parametrize("refused", [[], [[Message(event(1))]]])
async def test_server_that_denies_operations_counts_as_unreachable(
    refused: list[list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "FIRST_PAUSE", SHORT)
    server = Server([list(refused) for _ in range(3)])
    ground = RunningSource(server)
    with capture_logs() as logs:
        async with ground.running():
            await until(lambda: len(server.opened_at) == 4)
    assert server.was_asked_less_and_less_often
    assert [record["event"] for record in logs] == ["pull source connected", "pull source unreachable"]


async def test_stop_ends_a_pause_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "FIRST_PAUSE", 60.0)
    ground = RunningSource(Server(away=1_000))
    with capture_logs() as logs:
        async with ground.running():
            await until(lambda: logs)
    # It had not to be given up, as it would be after a second.
    assert [record["event"] for record in logs] == ["pull source unreachable"]


@pytest.mark.parametrize(("keeps", "looked_at"), [(False, ["prod"]), (True, [])])
async def test_start_causes_a_sweep_if_the_server_is_not_durable(keeps: bool, looked_at: list[str]) -> None:
    for away in (0, 1):
        ground = RunningSource(Server(away=away, is_durable=keeps))
        with capture_logs():
            async with ground.running():
                await until(partial(ground.has_asked, away + 1))
                await until(lambda ground=ground: subjects(ground.inbox) == looked_at)  # type: ignore[misc]
                await anyio.sleep(0.05)
        assert subjects(ground.inbox) == looked_at


@pytest.mark.parametrize(("is_all", "looked_at"), [(True, ["prod"]), (False, ["prod", "prod"])])
async def test_stop_ingests_delivered_messages_and_sweeps_for_lost_ones(is_all: bool, looked_at: list[str]) -> None:
    left = Message(event(1), keeps=False)
    ground = RunningSource(Server([[]], is_durable=False, stays=True, last=FinalBatch([left], is_all)))
    async with ground.running():
        await until(lambda: ground.inbox.taken)
    assert (left.told, sorted(subjects(ground.inbox))) == (["taken"], sorted([*looked_at, "t1"]))


@pytest.mark.slow
@pytest.mark.parametrize(("keeps", "looked_at"), [(False, ["prod", "prod"]), (True, [])])
async def test_abandoned_messages_cause_a_sweep_if_the_server_is_not_durable(keeps: bool, looked_at: list[str]) -> None:
    ground = RunningSource(Server([[[Message(event(1), keeps=keeps)]]], is_durable=keeps), inbox := Stuck())
    with capture_logs() as logs:
        async with ground.running():
            await inbox.stuck.wait()
    assert [record["event"] for record in logs] == ["pull source connected", "pulled messages abandoned"]
    assert subjects(ground.inbox) == looked_at


async def test_pulled_messages_are_among_the_recent_requests() -> None:
    messages = [Message(event("orders")), Message(b"{"), Message(b" " * (LIMIT + 1))]
    source = RunningSource(Server([[[one] for one in messages]], stays=True))
    async with source.running():
        await until(lambda: all(one.told for one in messages))
    found = source.recent.latest(9)
    assert [(one.status, one.sender, one.client) for one in found] == [
        (413, SENDER.name, None),
        (400, SENDER.name, None),
        (202, SENDER.name, None),
    ]
    assert str(found[-1].subject).endswith("orders")
