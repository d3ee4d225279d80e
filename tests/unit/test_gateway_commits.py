"""What the inbox is told of commits that pass through a gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest
from typing_extensions import override

from sfn.errors import Broken, Scope, Transient
from sfn.gateway import commits as module
from sfn.gateway.commits import Commits, Noted, Noting, OnInboxFailure
from sfn.gateway.debts import Debts
from sfn.gateway.recognise import Change, Kind
from sfn.inbox.memory import MemoryInbox
from sfn.inbox.terms import Terms
from sfn.words import Accepted, Answered, CatalogName, Hint, Intent, TableName
from sfn.words.note import Note
from tests.integration.waiting import until
from tests.promises.inboxes import HandClock

ORDERS = TableName("prod", ("sales",), "orders")
COMMIT = Noted(Change(Kind.COMMIT, "", "sales", "orders"), "prod", (ORDERS,), (ORDERS,))
ANYTHING = Noted(Change(Kind.NAMESPACE, "", "sales"), "prod", ())
DEBT = [Intent("an-id", (CatalogName("prod"),), "gateway"), Hint(CatalogName("prod"), "gateway")]
"""A sweep now, and when an intent is asked for."""
HERE = "s3://lake/orders/metadata/1.json"
BUSY = Transient("inbox", scope=Scope.INBOX, expected="room", found="none", retry_after=1.0)
GONE = Broken("inbox", expected="a sound inbox", found="another one")


class Remembering(MemoryInbox):
    """An inbox that remembers what it was told, and can fail or hang."""

    def __init__(self) -> None:
        super().__init__(Terms(), HandClock())
        self.notes: list[list[Note]] = []
        self.error: Exception | None = None
        self.hangs = False

    @override
    async def put(self, notes: Sequence[Note]) -> Accepted:
        if self.hangs:
            await anyio.sleep_forever()
        if self.error is not None:
            raise self.error
        self.notes.append(list(notes))
        return await super().put(notes)


class Ground:
    """One gateway's commits."""

    def __init__(self, on_failure: OnInboxFailure = OnInboxFailure.PASS) -> None:
        self.inbox, self.broken, self.unnoted_ones = Remembering(), list[Broken](), 0
        self.debts = Debts(self.inbox)
        noting = Noting("gateway.prod", on_failure, lambda: "an-id")
        self.commits = Commits(noting, self.inbox, self.debts, self.broken.append, self)

    def unnoted(self) -> None:
        self.unnoted_ones += 1


async def test_a_commit_is_noted_before_and_after() -> None:
    ground = Ground()
    noted = await ground.commits.before(replace(COMMIT, peer="10.0.0.1"))
    assert ground.inbox.notes == [[Intent("an-id", (ORDERS,), "gateway.prod", "10.0.0.1")]]
    await ground.commits.after(noted, 200, HERE, b"said")
    # Closed and told in one transaction: the process may die between two.
    assert ground.inbox.notes[1:] == [
        [Answered("an-id", known=True), Hint(ORDERS, "gateway.prod", floor=HERE, body=b"said")]
    ]


async def test_a_change_of_anything_is_one_of_the_whole_catalog() -> None:
    ground = Ground()
    noted = await ground.commits.before(ANYTHING)
    await ground.commits.after(noted, 204, None, b"")
    assert ground.inbox.notes == [
        [Intent("an-id", (CatalogName("prod"),), "gateway.prod", "")],
        [Answered("an-id", known=True), Hint(CatalogName("prod"), "gateway.prod")],
    ]


async def test_of_a_rename_onto_a_name_that_is_left_out_only_the_old_one_is_looked_at() -> None:
    ground, left_out = Ground(), TableName("prod", ("tmp",), "x")
    rename = Noted(Change(Kind.RENAME, ""), "prod", (ORDERS, left_out), (ORDERS,))
    await ground.commits.after(await ground.commits.before(rename), 204, None, b"")
    assert ground.inbox.notes == [
        [Intent("an-id", (ORDERS,), "gateway.prod", "")],
        [Answered("an-id", known=True), Hint(ORDERS, "gateway.prod", renamed_to=left_out)],
    ]


@pytest.mark.parametrize("status", [None, 302, 408, 409, 429, 499, 500, 502, 503, 504])
async def test_an_outcome_that_is_not_known_leaves_it_open(status: int | None) -> None:
    ground = Ground()
    await ground.commits.after(await ground.commits.before(COMMIT), status, None, b"")
    assert ground.inbox.notes[1:] == [[Answered("an-id", known=False)]]


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_refusal_closes_it_and_tells_nothing(status: int) -> None:
    ground = Ground()
    await ground.commits.after(await ground.commits.before(COMMIT), status, None, b"")
    assert ground.inbox.notes[1:] == [[Answered("an-id", known=True)]]


async def test_what_never_left_is_closed() -> None:
    ground = Ground()
    await ground.commits.undone(await ground.commits.before(COMMIT))
    assert ground.inbox.notes[1:] == [[Answered("an-id", known=True)]]


async def test_an_inbox_that_takes_nothing_lets_pass_and_a_sweep_makes_up_for_it() -> None:
    ground = Ground()
    ground.inbox.error = BUSY
    noted = await ground.commits.before(COMMIT)
    await ground.commits.after(noted, 200, HERE, b"")
    assert ground.unnoted_ones == 1
    assert not await ground.debts.pay_once()
    ground.inbox.error = None
    assert await ground.debts.pay_once()
    assert ground.inbox.notes == [DEBT]
    assert await ground.debts.pay_once()
    assert len(ground.inbox.notes) == 1


async def test_an_inbox_that_is_back_is_told_of_the_commit_itself() -> None:
    ground = Ground()
    ground.inbox.error = BUSY
    noted = await ground.commits.before(COMMIT)
    ground.inbox.error = None
    await ground.commits.after(noted, 200, HERE, b"")
    assert await ground.debts.pay_once()
    assert ground.inbox.notes == [[Hint(ORDERS, "gateway.prod", floor=HERE)]]


@pytest.mark.parametrize("status", [None, 409, 500])
async def test_what_was_not_noted_and_may_have_been_done_is_asked_for_from_then_on(status: int | None) -> None:
    ground = Ground()
    ground.inbox.error = BUSY
    noted = await ground.commits.before(COMMIT)
    ground.inbox.error = None
    await ground.commits.after(noted, status, None, b"")
    assert await ground.debts.pay_once()
    assert ground.inbox.notes == [[Intent("an-id", (ORDERS,), "gateway.prod", "")]]


async def test_an_outcome_that_is_not_taken_is_left_to_the_intent() -> None:
    ground = Ground()
    noted = await ground.commits.before(COMMIT)
    ground.inbox.error = BUSY
    await ground.commits.after(noted, 200, HERE, b"")
    ground.inbox.error = None
    assert await ground.debts.pay_once()
    assert len(ground.inbox.notes) == 1


async def test_a_gateway_may_refuse_what_it_can_not_note() -> None:
    ground = Ground(OnInboxFailure.REFUSE)
    ground.inbox.error = BUSY
    with pytest.raises(Transient):
        await ground.commits.before(COMMIT)
    assert ground.unnoted_ones == 0


async def test_an_inbox_that_hangs_holds_no_commit_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    ground = Ground()
    ground.inbox.hangs = True
    with anyio.fail_after(2):
        noted = await ground.commits.before(COMMIT)
    assert noted.intent is None


async def test_a_broken_inbox_is_told_of_and_the_commit_passes() -> None:
    ground = Ground()
    ground.inbox.error = GONE
    assert (await ground.commits.before(COMMIT)).intent is None
    assert ground.broken == [GONE]


async def test_what_is_owed_is_paid_once_the_inbox_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.gateway.debts.AGAIN", 0.01)
    ground = Ground()
    ground.inbox.error = BUSY
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ground.debts.pay)
        ground.debts.owe("prod", "an-id")
        await anyio.sleep(0.05)
        assert ground.inbox.notes == []
        ground.inbox.error = None
        await until(lambda: bool(ground.inbox.notes))
        assert ground.inbox.notes == [DEBT]
        tasks.cancel_scope.cancel()
