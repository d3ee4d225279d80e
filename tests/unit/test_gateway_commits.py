"""What the inbox is told of commits that pass through a gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest
from typing_extensions import override

from sfn.domain.events import InboxMessage, Intent, IntentOutcome, Notification, PutResult
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.errors import ErrorScope, FatalError, Transient
from sfn.gateway import commits as module
from sfn.gateway.commits import CommitRecorder, IntentOptions, OnInboxFailure, OwedSweeps, PendingCommit
from sfn.gateway.routes import CatalogChange, ChangeKind
from sfn.inbox.memory import MemoryInbox
from sfn.inbox.model import InboxConfig
from tests.integration.waiting import until
from tests.promises.inboxes import HandClock

ORDERS = TableIdentifier("prod", ("sales",), "orders")
COMMIT = PendingCommit(CatalogChange(ChangeKind.COMMIT, "", "sales", "orders"), "prod", (ORDERS,), (ORDERS,))
ANYTHING = PendingCommit(CatalogChange(ChangeKind.NAMESPACE, "", "sales"), "prod", ())
DEBT = [Intent("an-id", (CatalogName("prod"),), "gateway"), Notification(CatalogName("prod"), "gateway")]
"""A sweep now, and when an intent is asked for."""
HERE = "s3://lake/orders/metadata/1.json"
BUSY = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found="none", retry_after=1.0)
GONE = FatalError("inbox", expected="a sound inbox", found="another one")


class Remembering(MemoryInbox):
    """An inbox that remembers what it was told, and can fail or hang."""

    def __init__(self) -> None:
        super().__init__(InboxConfig(), HandClock())
        self.notes: list[list[InboxMessage]] = []
        self.error: Exception | None = None
        self.hangs = False

    @override
    async def put(self, messages: Sequence[InboxMessage]) -> PutResult:
        if self.hangs:
            await anyio.sleep_forever()
        if self.error is not None:
            raise self.error
        self.notes.append(list(messages))
        return await super().put(messages)


class Ground:
    """One gateway's commits."""

    def __init__(self, on_failure: OnInboxFailure = OnInboxFailure.PASS) -> None:
        self.inbox, self.broken, self.unnoted_ones = Remembering(), list[FatalError](), 0
        self.debts = OwedSweeps(self.inbox)
        noting = IntentOptions("gateway.prod", on_failure, lambda: "an-id")
        self.commits = CommitRecorder(noting, self.inbox, self.debts, self.broken.append, self)

    def count_unrecorded(self) -> None:
        self.unnoted_ones += 1


async def test_a_commit_is_noted_before_and_after() -> None:
    ground = Ground()
    noted = await ground.commits.record_intent(replace(COMMIT, peer="10.0.0.1"))
    assert ground.inbox.notes == [[Intent("an-id", (ORDERS,), "gateway.prod", "10.0.0.1")]]
    await ground.commits.record_outcome(noted, 200, HERE, b"said")
    # Closed and told in one transaction: the process may die between two.
    assert ground.inbox.notes[1:] == [
        [
            IntentOutcome("an-id", is_known=True),
            Notification(ORDERS, "gateway.prod", min_metadata_location=HERE, body=b"said"),
        ]
    ]


async def test_a_change_of_anything_is_one_of_the_whole_catalog() -> None:
    ground = Ground()
    noted = await ground.commits.record_intent(ANYTHING)
    await ground.commits.record_outcome(noted, 204, None, b"")
    assert ground.inbox.notes == [
        [Intent("an-id", (CatalogName("prod"),), "gateway.prod", "")],
        [IntentOutcome("an-id", is_known=True), Notification(CatalogName("prod"), "gateway.prod")],
    ]


async def test_of_a_rename_onto_a_name_that_is_left_out_only_the_old_one_is_looked_at() -> None:
    ground, left_out = Ground(), TableIdentifier("prod", ("tmp",), "x")
    rename = PendingCommit(CatalogChange(ChangeKind.RENAME, ""), "prod", (ORDERS, left_out), (ORDERS,))
    await ground.commits.record_outcome(await ground.commits.record_intent(rename), 204, None, b"")
    assert ground.inbox.notes == [
        [Intent("an-id", (ORDERS,), "gateway.prod", "")],
        [IntentOutcome("an-id", is_known=True), Notification(ORDERS, "gateway.prod", renamed_to=left_out)],
    ]


@pytest.mark.parametrize("status", [None, 302, 408, 409, 429, 499, 500, 502, 503, 504])
async def test_an_outcome_that_is_not_known_leaves_it_open(status: int | None) -> None:
    ground = Ground()
    await ground.commits.record_outcome(await ground.commits.record_intent(COMMIT), status, None, b"")
    assert ground.inbox.notes[1:] == [[IntentOutcome("an-id", is_known=False)]]


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_refusal_closes_it_and_tells_nothing(status: int) -> None:
    ground = Ground()
    await ground.commits.record_outcome(await ground.commits.record_intent(COMMIT), status, None, b"")
    assert ground.inbox.notes[1:] == [[IntentOutcome("an-id", is_known=True)]]


async def test_what_never_left_is_closed() -> None:
    ground = Ground()
    await ground.commits.record_not_sent(await ground.commits.record_intent(COMMIT))
    assert ground.inbox.notes[1:] == [[IntentOutcome("an-id", is_known=True)]]


async def test_an_inbox_that_takes_nothing_lets_pass_and_a_sweep_makes_up_for_it() -> None:
    ground = Ground()
    ground.inbox.error = BUSY
    noted = await ground.commits.record_intent(COMMIT)
    await ground.commits.record_outcome(noted, 200, HERE, b"")
    assert ground.unnoted_ones == 1
    assert not await ground.debts.put_all()
    ground.inbox.error = None
    assert await ground.debts.put_all()
    assert ground.inbox.notes == [DEBT]
    assert await ground.debts.put_all()
    assert len(ground.inbox.notes) == 1


async def test_an_inbox_that_is_back_is_told_of_the_commit_itself() -> None:
    ground = Ground()
    ground.inbox.error = BUSY
    noted = await ground.commits.record_intent(COMMIT)
    ground.inbox.error = None
    await ground.commits.record_outcome(noted, 200, HERE, b"")
    assert await ground.debts.put_all()
    assert ground.inbox.notes == [[Notification(ORDERS, "gateway.prod", min_metadata_location=HERE)]]


@pytest.mark.parametrize("status", [None, 409, 500])
async def test_what_was_not_noted_and_may_have_been_done_is_asked_for_from_then_on(status: int | None) -> None:
    ground = Ground()
    ground.inbox.error = BUSY
    noted = await ground.commits.record_intent(COMMIT)
    ground.inbox.error = None
    await ground.commits.record_outcome(noted, status, None, b"")
    assert await ground.debts.put_all()
    assert ground.inbox.notes == [[Intent("an-id", (ORDERS,), "gateway.prod", "")]]


async def test_an_outcome_that_is_not_taken_is_left_to_the_intent() -> None:
    ground = Ground()
    noted = await ground.commits.record_intent(COMMIT)
    ground.inbox.error = BUSY
    await ground.commits.record_outcome(noted, 200, HERE, b"")
    ground.inbox.error = None
    assert await ground.debts.put_all()
    assert len(ground.inbox.notes) == 1


async def test_a_gateway_may_refuse_what_it_can_not_note() -> None:
    ground = Ground(OnInboxFailure.REFUSE)
    ground.inbox.error = BUSY
    with pytest.raises(Transient):
        await ground.commits.record_intent(COMMIT)
    assert ground.unnoted_ones == 0


async def test_an_inbox_that_hangs_holds_no_commit_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INBOX_TIMEOUT", 0.05)
    ground = Ground()
    ground.inbox.hangs = True
    with anyio.fail_after(2):
        noted = await ground.commits.record_intent(COMMIT)
    assert noted.intent_id is None


async def test_a_broken_inbox_is_told_of_and_the_commit_passes() -> None:
    ground = Ground()
    ground.inbox.error = GONE
    assert (await ground.commits.record_intent(COMMIT)).intent_id is None
    assert ground.broken == [GONE]


async def test_what_is_owed_is_paid_once_the_inbox_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.gateway.commits.RETRY_INTERVAL", 0.01)
    ground = Ground()
    ground.inbox.error = BUSY
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ground.debts.run)
        ground.debts.add("prod", "an-id")
        await anyio.sleep(0.05)
        assert ground.inbox.notes == []
        ground.inbox.error = None
        await until(lambda: bool(ground.inbox.notes))
        assert ground.inbox.notes == [DEBT]
        tasks.cancel_scope.cancel()
