"""The tables that a sweep found to differ: repaired, or not and why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic_core import to_jsonable_python

from sfn.admin.schemas import DifferingTable, SweepModel
from sfn.admin.table_schemas import ListedTableModel, TableModel
from sfn.cli.client import ServiceAccess, ServiceClient
from sfn.cli.notify import DROP_WAIT_TIMEOUT, WAIT_TIMEOUT, WaitClock
from sfn.cli.repairs import RepairDeadline, repair_of, wait_for_repairs
from tests.unit.admin_server import ENDED, LETTER, NOON, ORDERS, AdminServer, Reply, admin_server, copied

MISSING = DifferingTable(table="sales.orders", kind="missing", detail="no file")
PATH = "GET /admin/v1/tables/prod/sales/orders"
LISTED = ListedTableModel(
    catalog="prod",
    namespace=["sales"],
    name="other",
    table="sales.other",
    state="due",
    late=False,
    waiting_since=NOON - timedelta(minutes=2),
    cause=None,
    next_attempt_at=NOON,
    attempt=0,
    metadata_location=None,
    written_at=None,
    dead_letter=None,
)


class HandWait:
    """A clock that moves by sleeping."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.clock = WaitClock(
            now=lambda: NOON + timedelta(seconds=self.seconds), monotonic=lambda: self.seconds, sleep=self._sleep
        )

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture(name="server")
def fixture_server() -> Iterator[AdminServer]:
    with admin_server() as server:
        yield server


@pytest.fixture(name="service")
def fixture_service(server: AdminServer) -> Iterator[ServiceClient]:
    with ServiceClient(ServiceAccess(server.url, "secret")) as service:
        yield service


def sweep(*differing: DifferingTable, more: int = 0) -> SweepModel:
    return copied(ENDED, differences=list(differing), differences_total=len(differing) + more)


def reply(table: TableModel, **more: Any) -> Reply:  # noqa: ANN401 - any attribute
    return Reply(200, to_jsonable_python(copied(table, **more)))


def page(*tables: ListedTableModel, following: str | None = None) -> Reply:
    return Reply(200, {"tables": [to_jsonable_python(one) for one in tables], "next": following})


PENDING = copied(ORDERS, due_at=NOON, pending=copied(ORDERS.pending, has_unprocessed=True))
DEAD = copied(ORDERS, state="dead", reason="foreign-file", dead_letters=[copied(LETTER, reason="foreign-file")])
RECHECKED = copied(DEAD, state="queued", unapplied_events=1)


@pytest.mark.parametrize(
    ("table", "repaired", "why", "reason", "number"),
    [
        (ORDERS, True, None, None, None),
        (None, True, None, None, None),
        (
            copied(DEAD, dead_letters=[copied(LETTER, reason="foreign-file", cause="expected ours, found theirs")]),
            False,
            "given up: dead letter 7 (foreign-file): expected ours, found theirs",
            "foreign-file",
            7,
        ),
        (DEAD, False, "given up: dead letter 7 (foreign-file): it lies elsewhere", "foreign-file", 7),
        (
            copied(DEAD, state="queued", pending=PENDING.pending),
            False,
            "given up: dead letter 7 (foreign-file): it lies elsewhere; a new attempt is pending",
            "foreign-file",
            7,
        ),
        (
            copied(DEAD, dead_letters=[copied(LETTER, reason="held-drop")]),
            False,
            "held by the drop limit: sfn release prod",
            "held-drop",
            7,
        ),
        (
            copied(DEAD, dead_letters=[], cause="given up (poison); the dead letter was discarded"),
            False,
            "given up (poison); the dead letter was discarded",
            None,
            None,
        ),
    ],
)
def test_table_is_repaired_or_says_why_not(
    table: TableModel | None, why: str | None, reason: str | None, number: int | None, *, repaired: bool
) -> None:
    found = repair_of(MISSING, "prod", table, NOON, timedelta(seconds=9))
    assert (found.repaired, found.why, found.reason, found.dead_letter) == (repaired, why, reason, number)
    assert (found.table, found.kind, found.detail) == ("sales.orders", "missing", "no file")


def test_table_that_waits_is_not_repaired() -> None:
    found = repair_of(MISSING, "prod", PENDING, NOON, timedelta(seconds=9))
    assert (found.repaired, found.reason) == (False, None)
    assert found.why is not None
    assert found.why.startswith("not processed within 9 s: a notification is pending")


def test_repairs_are_followed_to_their_end(server: AdminServer, service: ServiceClient) -> None:
    dotted = DifferingTable(table="a%2Eb.c", kind="behind")
    server.tell(
        PATH,
        reply(PENDING),
        reply(ORDERS, unapplied_events=1),
        reply(DEAD, unapplied_events=1),
        reply(RECHECKED),
        reply(ORDERS),
    )
    server.tell("GET /admin/v1/tables/prod/a.b/c", reply(DEAD))
    moved: list[tuple[int, int | None]] = []
    wait = HandWait()
    found = wait_for_repairs(
        service,
        {"prod": sweep(MISSING, dotted)},
        lambda done, total=None: moved.append((done, total)),
        clock=wait.clock,
    )
    assert [(one.table, one.repaired) for one in found["prod"].tables] == [("sales.orders", True), ("a%2Eb.c", False)]
    assert (found["prod"].unrepaired, moved) == (1, [(1, 2), (2, 2)])


def test_timeout_bounds_the_wait_for_all_tables(server: AdminServer, service: ServiceClient) -> None:
    server.tell(PATH, *[reply(PENDING)] * 40)
    wait = HandWait()
    tables = [MISSING] * 5
    found = wait_for_repairs(service, {"prod": sweep(*tables)}, lambda *_: None, until=3.0, clock=wait.clock)
    assert (found["prod"].unrepaired, round(wait.seconds, 6)) == (5, 3.0)


def test_tables_after_one_that_does_not_move_get_one_look(server: AdminServer, service: ServiceClient) -> None:
    server.tell(PATH, reply(PENDING))
    wait = HandWait()
    found = wait_for_repairs(service, {"prod": sweep(*[MISSING] * 5)}, lambda *_: None, clock=wait.clock)
    assert (found["prod"].unrepaired, round(wait.seconds, 6)) == (5, WAIT_TIMEOUT.total_seconds())


@pytest.mark.parametrize(("kind", "longest"), [("missing", WAIT_TIMEOUT), ("absent", DROP_WAIT_TIMEOUT)])
def test_wait_without_a_timeout_ends_when_nothing_moves(kind: str, longest: timedelta) -> None:
    wait = HandWait()
    deadline = RepairDeadline(None, wait.clock)
    wait.seconds = 50
    assert deadline.left(kind) == longest - timedelta(seconds=50)
    deadline.note_processed()
    assert deadline.left(kind) == longest
    wait.seconds = 1_000
    assert deadline.left(kind) == timedelta()


def test_tables_that_are_only_counted_are_followed_too(server: AdminServer, service: ServiceClient) -> None:
    named = copied(LISTED, name="orders", table="sales.orders")
    later = copied(LISTED, name="later", waiting_since=NOON)
    held = copied(LISTED, name="held", state="held", waiting_since=None)
    given_up = copied(LISTED, name="dead", state="dead")
    server.tell(PATH, reply(ORDERS))
    server.tell(
        "GET /admin/v1/tables",
        *(page(LISTED, named, following="x"), page(later), page(held)),
        *(page(given_up, named), page(held)),
    )
    found = wait_for_repairs(service, {"prod": sweep(MISSING, more=3)}, lambda *_: None, clock=HandWait().clock)
    assert (found["prod"].others, found["prod"].unrepaired) == (2, 2)
    assert [asked.path.partition("?")[2] for asked in server.asked[1:]] == [
        "catalog=prod&limit=1000&sort=lag",
        "catalog=prod&limit=1000&sort=lag&after=x",
        "catalog=prod&limit=1000&state=held",
        "catalog=prod&limit=1000&sort=lag",
        "catalog=prod&limit=1000&state=held",
    ]
