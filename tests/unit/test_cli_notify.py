"""An event followed until its table has settled it, and what is said of that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from pydantic_core import to_jsonable_python

from sfn.admin.remedies import remedy_for
from sfn.admin.table_schemas import LastResultModel, PendingChangeModel, TableModel
from sfn.cli.client import ServiceAccess, ServiceClient
from sfn.cli.notify import WaitClock, result_lines, wait_for_table, wait_result
from sfn.cli.render import to_plain_text
from tests.unit.admin_server import LETTER, NOON, ORDERS, AdminServer, Reply, admin_server, copied

MINUTE = timedelta(minutes=1)
TURN = "a notification is pending"
NEWS = PendingChangeModel(
    min_metadata_location="file:///w/m/2.json", drop=False, purge=False, renamed_to=None, has_unprocessed=True
)
PATH = "GET /admin/v1/tables/prod/sales/orders"


@pytest.fixture(name="server")
def fixture_server() -> Iterator[AdminServer]:
    with admin_server() as server:
        server.tell("GET /admin/v1/status", Reply(200, {}))
        yield server


@pytest.fixture(name="service")
def fixture_service(server: AdminServer) -> Iterator[ServiceClient]:
    with ServiceClient(ServiceAccess(server.url, "secret")) as service:
        yield service


def table(**more: object) -> TableModel:
    return copied(ORDERS, **more)


def reply(**more: object) -> Reply:
    return Reply(200, to_jsonable_python(table(**more)))


class Hours:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.watch = WaitClock(
            lambda: NOON + timedelta(seconds=sum(self.slept)), lambda: sum(self.slept), self.slept.append
        )


def test_a_table_is_looked_at_until_all_that_was_told_is_seen_through(
    server: AdminServer, service: ServiceClient
) -> None:
    due = reply(last_result=LastResultModel(outcome="rescheduled", why="a replica may lag", at=NOON), due_at=NOON)
    server.tell(PATH, reply(pending=NEWS), reply(pending=NEWS, state="leased"), due, reply(state="leased"), reply())
    hours = Hours()
    assert wait_for_table(service, "prod", ("sales",), "orders", MINUTE, hours.watch) == table()
    assert hours.slept == [0.05, 0.1, 0.2, 0.4]


@pytest.mark.parametrize("more", [{"state": "dead", "pending": NEWS}, {"reason": "foreign-file"}])
def test_a_table_that_was_given_up_is_settled(
    server: AdminServer, service: ServiceClient, more: dict[str, object]
) -> None:
    server.tell(PATH, reply(**more))
    assert wait_for_table(service, "prod", ("sales",), "orders", MINUTE, Hours().watch) == table(**more)


@pytest.mark.parametrize(("due", "looks"), [(timedelta(minutes=5), 1), (timedelta(0), 2)])
def test_a_table_that_was_given_up_before_is_not_waited_for_longer_than_that_helps(
    server: AdminServer, service: ServiceClient, due: timedelta, looks: int
) -> None:
    given_up = {"reason": "foreign-file", "pending": NEWS, "dead_letters": [LETTER]}
    server.tell(PATH, reply(**given_up, due_at=NOON + due), reply())
    wait_for_table(service, "prod", ("sales",), "orders", MINUTE, Hours().watch)
    assert len(server.asked) == looks


DROP = copied(NEWS, has_unprocessed=False, drop=True, min_metadata_location=None)


def of_a_drop(why: str, due: timedelta) -> dict[str, object]:
    return {
        "pending": DROP,
        "last_result": LastResultModel(outcome="rescheduled", why=why, at=NOON),
        "due_at": NOON + due,
    }


def test_a_look_that_comes_in_time_is_waited_for_and_told_of_once(server: AdminServer, service: ServiceClient) -> None:
    first, second = of_a_drop("it may be older", MINUTE / 2), of_a_drop("absent", MINUTE)
    server.tell(PATH, *[reply(**first)] * 30, *[reply(**second)] * 20, reply(published=None))
    told: list[str] = []
    found = wait_for_table(service, "prod", ("sales",), "orders", 2 * MINUTE, Hours().watch, told.append)
    assert found == table(published=None)
    assert told == [
        "a drop is pending; next check in 30 s (it may be older); Ctrl-C stops waiting, the service goes on",
        "a drop is pending; next check in 33 s (absent); Ctrl-C stops waiting, the service goes on",
    ]


def test_a_look_that_comes_too_late_is_not_waited_for(server: AdminServer, service: ServiceClient) -> None:
    late = of_a_drop("absent", 2 * MINUTE)
    server.tell(PATH, reply(**late), reply())
    told: list[str] = []
    assert wait_for_table(service, "prod", ("sales",), "orders", MINUTE, Hours().watch, told.append) == table(**late)
    assert told == []


def test_a_published_table_is_not_waited_for_until_its_next_look(server: AdminServer, service: ServiceClient) -> None:
    again = {
        "last_result": LastResultModel(outcome="rescheduled", why="a replica may lag", at=NOON),
        "due_at": NOON + MINUTE / 2,
    }
    server.tell(PATH, reply(**again), reply())
    assert wait_for_table(service, "prod", ("sales",), "orders", MINUTE, Hours().watch) == table(**again)


def test_what_is_stuck_for_seconds_is_told_of(server: AdminServer, service: ServiceClient) -> None:
    server.tell(PATH, *[reply(pending=NEWS, due_at=NOON)] * 12, reply())
    told: list[str] = []
    wait_for_table(service, "prod", ("sales",), "orders", MINUTE, Hours().watch, told.append)
    assert told == ["a notification is pending; its check was due 2 s ago; Ctrl-C stops waiting, the service goes on"]


def test_a_table_that_the_service_forgot_again_is_settled(server: AdminServer, service: ServiceClient) -> None:
    server.tell(PATH, reply(pending=NEWS), Reply(404, {"title": "Not Found"}))
    assert wait_for_table(service, "prod", ("sales",), "orders", MINUTE, Hours().watch) is None


def test_nobody_waits_for_ever(server: AdminServer, service: ServiceClient) -> None:
    server.tell(PATH, reply(pending=NEWS))
    hours = Hours()
    found = wait_for_table(service, "prod", ("sales",), "orders", MINUTE, hours.watch)
    assert found == table(pending=NEWS)
    assert sum(hours.slept) == pytest.approx(60)


NO_SUCH = "the catalog has no such table"
SPELLING = "check the spelling: `sfn tables` lists the names that the service knows"


@pytest.mark.parametrize("found", [None, table(published=None, unpublished="dropped")])
def test_a_table_may_be_gone_after_a_drop(found: TableModel | None) -> None:
    settled = wait_result("sales.orders", found, NOON, MINUTE, may_be_missing=True)
    assert (settled.outcome, settled.is_ok) == ("nothing-to-do", True)
    assert settled.text.startswith(f"nothing to publish: {NO_SUCH}, and ")


@pytest.mark.parametrize(
    ("found", "end", "said"),
    [
        (table(), "published", ["sales.orders: published file:///w/m/1.json"]),
        (
            table(
                last_result=LastResultModel(outcome="rescheduled", why="an event that is not shown", at=NOON),
                due_at=NOON + MINUTE,
            ),
            "published",
            ["sales.orders: published file:///w/m/1.json; next check in 1 min (an event that is not shown)"],
        ),
        (
            None,
            "not-found",
            [f"sales.orders: {NO_SUCH}, and no file exists", f"  → {SPELLING}"],
        ),
        (
            table(published=None, unpublished="dropped"),
            "not-found",
            [f"sales.orders: {NO_SUCH}, and its files say so", f"  → {SPELLING}"],
        ),
        (
            table(published=None),
            "nothing-to-do",
            ["sales.orders: nothing to publish: the table has no live file, as in the catalog"],
        ),
        (
            table(
                pending=copied(NEWS, has_unprocessed=False, drop=True, min_metadata_location=None),
                last_result=LastResultModel(outcome="rescheduled", why="missing: a sweep comes first", at=NOON),
                due_at=NOON + MINUTE,
            ),
            "waits",
            [
                "sales.orders: a drop is pending; next check in 1 min (missing: a sweep comes first)",
                "  → `sfn status sales.orders` shows the result",
            ],
        ),
        (
            table(
                published=None,
                last_result=LastResultModel(outcome="rescheduled", why="neither a table nor a file", at=NOON),
                due_at=NOON + MINUTE,
            ),
            "waits",
            [
                "sales.orders: no live file; next check in 1 min (neither a table nor a file)",
                "  → `sfn status sales.orders` shows the result",
            ],
        ),
        (
            table(state="dead", reason="location-refused", dead_letters=[LETTER]),
            "dead-letter",
            ["sales.orders: dead letter 7, location-refused: it lies elsewhere", f"  → {remedy_for(LETTER)}"],
        ),
        (
            table(reason="permanent", pending=NEWS, dead_letters=[LETTER], due_at=NOON + 5 * MINUTE),
            "dead-letter",
            [
                "sales.orders: dead letter 7, location-refused: it lies elsewhere; next check in 5 min",
                f"  → {remedy_for(LETTER)}",
            ],
        ),
        (
            table(
                pending=NEWS,
                due_at=NOON,
                last_result=LastResultModel(outcome="returned", why="the catalog is away", at=NOON),
            ),
            "unsettled",
            [
                f"sales.orders: not processed within 1 min: {TURN}; its check was due 0 s ago (the catalog is away)",
                "  → `sfn status sales.orders` shows the result",
            ],
        ),
    ],
)
def test_what_came_of_an_event_is_said_in_words(found: TableModel | None, end: str, said: list[str]) -> None:
    settled = wait_result("sales.orders", found, NOON, MINUTE)
    assert (settled.outcome, to_plain_text(result_lines(settled)).splitlines()) == (end, said)
    assert settled.is_ok is (end in {"published", "nothing-to-do"})
