"""What the log is told when a worker's inbox is in trouble: the worker goes on, and nobody else would hear of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import anyio
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict
from typing_extensions import override

from sfn.domain.events import InboxMessage, Notification, PutResult
from sfn.domain.jobs import Capacity, LeasedJob, Outcome
from sfn.errors import ErrorScope, Transient
from sfn.inbox import ClaimResult
from sfn.inbox.admin import InboxErrorLog
from sfn.worker import worker
from sfn.worker.worker import Leases
from tests.promises.inboxes import PLENTY, HandClock
from tests.unit.working import TABLE, Desk, WatchedInbox


class FailingInbox(WatchedInbox):
    """An inbox whose disk is full for some calls.

    Attributes:
        fails: how many calls of a verb fail yet.
        fenced: every claim turns out to be another worker's.
    """

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.fails: dict[str, int] = {}
        self.fenced = False

    @override
    async def claim(self, capacity: Capacity, running: Sequence[LeasedJob] = ()) -> ClaimResult:
        self._fail("claim")
        return await super().claim(capacity, running)

    @override
    async def renew(self, claims: Sequence[LeasedJob]) -> list[LeasedJob]:
        self._fail("renew")
        return await super().renew(claims)

    @override
    async def settle(self, claim: LeasedJob, outcome: Outcome, now: datetime) -> bool:
        self._fail("settle")
        return await super().settle(claim, outcome, now) and not self.fenced

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        self._fail("put")
        return await super().put(messages)

    def _fail(self, verb: str) -> None:
        self.fails[verb] = self.fails.get(verb, 0) - 1
        if self.fails[verb] >= 0:
            raise Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=0.01)


@pytest.fixture
def inbox() -> FailingInbox:
    return FailingInbox(HandClock())


@pytest.fixture
async def desk(inbox: FailingInbox) -> Desk:
    made = Desk(clock=HandClock(), inbox=inbox)
    made.catalog.create(TABLE)
    await inbox.put([Notification(TABLE)])
    return made


def told(records: Sequence[EventDict]) -> list[tuple[str, str, str | None]]:
    return [(record["log_level"], record["event"], record.get("error")) for record in records]


BEGINS = ("warning", "inbox in trouble", "inbox: expected room, found none")
ENDS = ("info", "inbox works again", None)


async def test_a_claim_that_fails_time_and_again_is_told_once_and_its_end(desk: Desk, inbox: FailingInbox) -> None:
    inbox.fails["claim"] = 3
    stop = anyio.Event()
    with capture_logs() as records:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.worker.run, stop)
            with anyio.fail_after(10):
                while not desk.book.outcomes:  # noqa: ASYNC110 - the book has no event for it
                    await anyio.sleep(0.005)
            stop.set()
    assert told(records) == [BEGINS, ENDS]


async def test_a_settle_that_fails_is_told(desk: Desk, inbox: FailingInbox) -> None:
    inbox.fails["settle"] = 1
    with capture_logs() as records:
        await desk.work()
    assert told(records) == [BEGINS, ENDS]


async def test_a_fenced_row_that_cannot_be_hinted_is_told(desk: Desk, inbox: FailingInbox) -> None:
    inbox.fenced, inbox.fails["put"] = True, 1
    with capture_logs() as records:
        await desk.work()
        assert told(records) == [BEGINS]
        await desk.work()
    assert told(records) == [BEGINS, ENDS]


async def test_leases_that_cannot_be_renewed_are_told(desk: Desk, inbox: FailingInbox) -> None:
    leases = Leases(inbox, desk.clock, timedelta(seconds=30), InboxErrorLog(desk.clock, "worker"))
    (claim,) = (await inbox.claim(PLENTY)).jobs
    leases.add(claim)
    inbox.fails["renew"] = 2
    with capture_logs() as records:
        for _ in range(3):
            await leases.renew_once()
    assert told(records) == [BEGINS, ENDS]


async def test_leases_that_could_not_be_renewed_are_tried_again_at_once(
    desk: Desk, inbox: FailingInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that waited for long in vain leaves less of the lease than until the next turn."""
    monkeypatch.setattr(worker, "RETRY_PAUSE", 0.01)
    leases = Leases(inbox, desk.clock, timedelta(seconds=1.5), InboxErrorLog(desk.clock, "worker"))
    (claim,) = (await inbox.claim(PLENTY)).jobs
    leases.add(claim)
    inbox.fails["renew"] = 3
    with capture_logs() as records:
        with anyio.move_on_after(1.7):
            await leases.run()
        assert told(records) == [BEGINS, ENDS]
