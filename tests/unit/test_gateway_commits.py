"""Recorded commits of a gateway and the sweeps after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from sfn.domain.events import InboxMessage, Intent, IntentOutcome, Notification, PutResult, TableOrigin
from sfn.domain.identifiers import CatalogName, TableIdentifier
from sfn.errors import ErrorScope, FatalError, OutcomeUnknown, Transient
from sfn.gateway import commits as module
from sfn.gateway.commits import (
    CommitRecorder,
    IntentOptions,
    OnInboxFailure,
    OwedSweeps,
    PendingCommit,
    is_outcome_known,
    is_success,
    needs_check,
    notifications_of,
)
from sfn.gateway.routes import CatalogChange, ChangeKind
from sfn.inbox.model import InboxConfig
from tests.support.clock import HandClock
from tests.support.memory_inbox import MemoryInbox
from tests.support.processes import until

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


async def test_commit_is_recorded_before_and_after() -> None:
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


async def test_change_of_unknown_tables_concerns_the_whole_catalog() -> None:
    ground = Ground()
    noted = await ground.commits.record_intent(ANYTHING)
    await ground.commits.record_outcome(noted, 204, None, b"")
    assert ground.inbox.notes == [
        [Intent("an-id", (CatalogName("prod"),), "gateway.prod", "")],
        [IntentOutcome("an-id", is_known=True), Notification(CatalogName("prod"), "gateway.prod")],
    ]


async def test_rename_to_an_unpublished_name_checks_the_old_name_only() -> None:
    ground, left_out = Ground(), TableIdentifier("prod", ("tmp",), "x")
    rename = PendingCommit(CatalogChange(ChangeKind.RENAME, ""), "prod", (ORDERS, left_out), (ORDERS,))
    await ground.commits.record_outcome(await ground.commits.record_intent(rename), 204, None, b"")
    assert ground.inbox.notes == [
        [Intent("an-id", (ORDERS,), "gateway.prod", "")],
        [IntentOutcome("an-id", is_known=True), Notification(ORDERS, "gateway.prod", renamed_to=left_out)],
    ]


@pytest.mark.parametrize("status", [None, 302, 408, 409, 429, 499, 500, 502, 503, 504])
async def test_unknown_outcome_leaves_the_intent_open(status: int | None) -> None:
    ground = Ground()
    await ground.commits.record_outcome(await ground.commits.record_intent(COMMIT), status, None, b"")
    assert ground.inbox.notes[1:] == [[IntentOutcome("an-id", is_known=False)]]


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_refused_commit_closes_the_intent_without_notifications(status: int) -> None:
    ground = Ground()
    await ground.commits.record_outcome(await ground.commits.record_intent(COMMIT), status, None, b"")
    assert ground.inbox.notes[1:] == [[IntentOutcome("an-id", is_known=True)]]


async def test_unsent_commit_closes_the_intent() -> None:
    ground = Ground()
    await ground.commits.record_not_sent(await ground.commits.record_intent(COMMIT))
    assert ground.inbox.notes[1:] == [[IntentOutcome("an-id", is_known=True)]]


async def test_commit_passes_an_unavailable_inbox_and_its_catalog_is_swept() -> None:
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


async def test_recovered_inbox_records_the_outcome_of_an_unrecorded_commit() -> None:
    ground = Ground()
    ground.inbox.error = BUSY
    noted = await ground.commits.record_intent(COMMIT)
    ground.inbox.error = None
    await ground.commits.record_outcome(noted, 200, HERE, b"")
    assert await ground.debts.put_all()
    assert ground.inbox.notes == [[Notification(ORDERS, "gateway.prod", min_metadata_location=HERE)]]


@pytest.mark.parametrize("status", [None, 409, 500])
async def test_unrecorded_commit_with_unknown_outcome_gets_an_intent(status: int | None) -> None:
    ground = Ground()
    ground.inbox.error = BUSY
    noted = await ground.commits.record_intent(COMMIT)
    ground.inbox.error = None
    await ground.commits.record_outcome(noted, status, None, b"")
    assert await ground.debts.put_all()
    assert ground.inbox.notes == [[Intent("an-id", (ORDERS,), "gateway.prod", "")]]


async def test_unrecorded_outcome_is_left_to_the_intent() -> None:
    ground = Ground()
    noted = await ground.commits.record_intent(COMMIT)
    ground.inbox.error = BUSY
    await ground.commits.record_outcome(noted, 200, HERE, b"")
    ground.inbox.error = None
    assert await ground.debts.put_all()
    assert len(ground.inbox.notes) == 1


async def test_gateway_may_refuse_unrecorded_commits() -> None:
    ground = Ground(OnInboxFailure.REFUSE)
    ground.inbox.error = BUSY
    with pytest.raises(Transient):
        await ground.commits.record_intent(COMMIT)
    assert ground.unnoted_ones == 0


async def test_hanging_inbox_delays_a_commit_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INBOX_TIMEOUT", 0.05)
    ground = Ground()
    ground.inbox.hangs = True
    with anyio.fail_after(10):
        noted = await ground.commits.record_intent(COMMIT)
    assert noted.intent_id is None


async def test_broken_inbox_is_reported_and_the_commit_passes() -> None:
    ground = Ground()
    ground.inbox.error = GONE
    assert (await ground.commits.record_intent(COMMIT)).intent_id is None
    assert ground.broken == [GONE]


async def test_owed_sweeps_are_scheduled_once_the_inbox_answers(monkeypatch: pytest.MonkeyPatch) -> None:
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


PROD, LAB = CatalogName("prod"), CatalogName("lab")


class Taking:
    """An inbox that takes what is put, and may be cut off before it can say so."""

    def __init__(self) -> None:
        self.notes: list[InboxMessage] = []
        self.is_cut_off = self.hangs = self.is_broken = False

    async def put(self, notes: Sequence[InboxMessage]) -> PutResult:
        if self.hangs:
            await anyio.sleep_forever()
        if self.is_broken:
            raise FatalError("inbox", expected="a sound one", found="ruins")
        self.notes += notes
        if self.is_cut_off:
            raise OutcomeUnknown("inbox", scope=ErrorScope.INBOX, expected="an answer", found="none")
        return PutResult(0, 0)

    @property
    def opened(self) -> list[str]:
        """Ids of intents."""
        return [note.id for note in self.notes if isinstance(note, Intent)]


def owing() -> tuple[Taking, OwedSweeps]:
    """An inbox, and the sweep of a catalog that is owed to it."""
    inbox = Taking()
    debts = OwedSweeps(inbox)
    debts.add("prod", "1")
    return inbox, debts


async def test_every_owed_catalog_gets_a_sweep_and_an_intent() -> None:
    inbox, debts = owing()
    debts.add("lab", "2")
    assert await debts.put_all()
    assert inbox.notes == [
        *(Intent("2", (LAB,), "gateway"), Notification(LAB, "gateway")),
        *(Intent("1", (PROD,), "gateway"), Notification(PROD, "gateway")),
    ]
    assert await debts.put_all()
    assert inbox.opened == ["2", "1"]


async def test_shutdown_schedules_owed_sweeps_or_logs_them() -> None:
    inbox, debts = owing()
    await debts.put_at_shutdown()
    assert inbox.opened == ["1"]
    debts.add("lab", "2")
    inbox.is_cut_off = True
    with capture_logs() as logs:
        await debts.put_at_shutdown()
    assert [(record["event"], record["catalogs"]) for record in logs] == [("owed sweeps lost", ["lab"])]


@pytest.mark.parametrize("trouble", ["hangs", "is_broken"])
async def test_failed_last_attempt_is_logged(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfn.gateway.commits.RETRY_INTERVAL", 0.05)
    inbox, debts = owing()
    setattr(inbox, trouble, True)
    with capture_logs() as logs:
        await debts.put_at_shutdown()
    assert [record["event"] for record in logs] == ["owed sweeps lost"]


async def test_interrupted_attempt_leaves_the_sweep_owed() -> None:
    inbox, debts = owing()
    inbox.hangs = True
    with anyio.move_on_after(0.02):
        await debts.run()
    inbox.hangs = False
    await debts.put_at_shutdown()
    assert inbox.opened == ["1"]


async def test_unconfirmed_sweep_is_scheduled_again() -> None:
    inbox, debts = owing()
    inbox.is_cut_off = True
    assert not await debts.put_all()
    inbox.is_cut_off = False
    assert await debts.put_all()
    assert inbox.opened == ["1", "1"]


async def test_later_owed_sweep_gets_its_own_intent() -> None:
    """An id that is put again is left as it is."""
    inbox, debts = owing()
    inbox.is_cut_off = True
    assert not await debts.put_all()
    inbox.is_cut_off = False
    debts.add("prod", "2")
    assert await debts.put_all()
    assert inbox.opened == ["1", "2"]


OLD, NEW = TableIdentifier("prod", ("n",), "t"), TableIdentifier("prod", ("n",), "u")
COMMITTED = "s3://b/t/metadata/1.json"


@pytest.mark.parametrize(
    ("statuses", "known", "news"),
    [
        ([200, 201, 202, 204, 299], True, True),
        ([400, 401, 403], True, False),
        # A balancer's second try turns a drop that was done into a 404.
        ([404], True, True),
        # The first try may still run, or its answer is lost.
        (
            [100, 301, 307, 405, 406, 408, 409, 410, 412, 419, 422, 429, 499, 500, 501, 502, 503, 504, 520, 599],
            False,
            False,
        ),
    ],
)
def test_status_determines_what_is_known(statuses: list[int], *, known: bool, news: bool) -> None:
    assert [is_outcome_known(status) for status in statuses] == [known] * len(statuses)
    assert [needs_check(status) for status in statuses] == [news] * len(statuses)
    assert [is_success(status) for status in statuses] == [status // 100 == 2 for status in statuses]


@pytest.mark.parametrize(
    ("change", "named", "told"),
    [
        (
            CatalogChange(ChangeKind.NOTIFICATION, "", "n", "t"),
            (OLD,),
            [Notification(OLD, "g", min_metadata_location=COMMITTED)],
        ),
        (CatalogChange(ChangeKind.RESTORE, "w"), (), [Notification(CatalogName("prod"), "g")]),
        (
            CatalogChange(ChangeKind.CREATE, "", "n"),
            (OLD,),
            [Notification(OLD, "g", min_metadata_location=COMMITTED, origin=TableOrigin.CREATE)],
        ),
        (
            CatalogChange(ChangeKind.REGISTER, "", "n"),
            (OLD,),
            [Notification(OLD, "g", min_metadata_location=COMMITTED, origin=TableOrigin.REGISTER)],
        ),
        (
            CatalogChange(ChangeKind.COMMIT, "", "n", "t"),
            (OLD,),
            [Notification(OLD, "g", min_metadata_location=COMMITTED)],
        ),
        (CatalogChange(ChangeKind.DROP, "", "n", "t"), (OLD,), [Notification(OLD, "g", drop=True)]),
        (
            CatalogChange(ChangeKind.DROP, "", "n", "t", purge=True),
            (OLD,),
            [Notification(OLD, "g", drop=True, purge=True)],
        ),
        (CatalogChange(ChangeKind.UNREGISTER, "", "n", "t"), (OLD,), [Notification(OLD, "g", drop=True)]),
        (
            CatalogChange(ChangeKind.RENAME, ""),
            (OLD, NEW),
            [Notification(OLD, "g", renamed_to=NEW), Notification(NEW, "g", renamed_from=OLD)],
        ),
        (
            CatalogChange(ChangeKind.TRANSACTION, ""),
            (OLD, NEW),
            [
                Notification(OLD, "g", min_metadata_location=COMMITTED),
                Notification(NEW, "g", min_metadata_location=COMMITTED),
            ],
        ),
        (CatalogChange(ChangeKind.NAMESPACE, "", "n"), (), [Notification(CatalogName("prod"), "g")]),
        (CatalogChange(ChangeKind.TRANSACTION, ""), (), [Notification(CatalogName("prod"), "g")]),
    ],
)
def test_each_change_notifies_its_tables(
    change: CatalogChange, named: tuple[TableIdentifier, ...], told: list[Notification]
) -> None:
    assert notifications_of(change, named, "prod", "g", COMMITTED, b"") == told


@pytest.mark.parametrize(
    "kind", [ChangeKind.CREATE, ChangeKind.REGISTER, ChangeKind.COMMIT, ChangeKind.DROP, ChangeKind.UNREGISTER]
)
def test_several_readings_of_one_path_are_guesses(kind: ChangeKind) -> None:
    """A name that is read in one way, or that a body says level by level, is none."""
    readings = (TableIdentifier("prod", ("a.b",), "t"), TableIdentifier("prod", ("a", "b"), "t"))
    told = notifications_of(CatalogChange(kind, "", "a.b", "t"), readings, "prod", "g", COMMITTED, b"")
    assert [(hint.subject, hint.is_guessed) for hint in told] == [(name, True) for name in readings]


def test_summary_is_stored_with_the_notifications() -> None:
    (hint,) = notifications_of(
        CatalogChange(ChangeKind.COMMIT, "", "n", "t"), (OLD,), "prod", "g", None, "POST /v1/… 200".encode()
    )
    assert hint.body == b"POST /v1/\xe2\x80\xa6 200"
