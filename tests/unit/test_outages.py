"""What the log is told of a catalog or a store that is away: that it is, why, and when it works again."""

from __future__ import annotations

from structlog.testing import capture_logs
from structlog.typing import EventDict

from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import ConcurrencyGroup, Priority
from sfn.errors import ErrorScope, Transient
from sfn.worker.capacity import CapacityTracker, CircuitBreakers
from tests.promises.inboxes import HandClock

TABLE = TableIdentifier("prod", ("sales",), "orders")
LANE = ConcurrencyGroup("prod", "file:///lake", Priority.LIVE)


class Away:
    """Outages of one worker, with its clock."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.outages = CircuitBreakers(CapacityTracker(32), self.clock)

    def fails(self, scope: ErrorScope = ErrorScope.CATALOG, found: str = "refused") -> None:
        """One attempt ends in trouble; the next may begin."""
        trouble = Transient("it", scope=scope, expected="an answer", found=found)
        again = self.outages.record_failure(LANE, trouble)
        self.clock.turn((again - self.clock.now()).total_seconds())

    def works(self) -> None:
        """One attempt succeeds."""
        self.outages.record_success(LANE, TABLE, store_used=True)


def told(records: list[EventDict]) -> list[tuple[object, ...]]:
    return [(record["log_level"], record["event"], record["name"]) for record in records]


def test_an_outage_is_told_when_it_begins_and_when_it_ends() -> None:
    away = Away()
    began = away.clock.now()
    with capture_logs() as records:
        for _ in range(20):
            away.fails()
        away.works()
        away.works()
    assert told(records) == [("warning", "catalog away", "prod"), ("info", "catalog works again", "prod")]
    assert records[0]["error"] == "it: expected an answer, found refused"
    assert records[0]["since"] == began.isoformat()
    assert records[1]["seconds"] == 19.5


def test_what_lasts_is_told_once_a_minute_with_how_often_it_was_tried() -> None:
    away = Away()
    with capture_logs() as records:
        for _ in range(130):
            away.fails()
    assert told(records) == [("warning", "catalog away", "prod")] * 3
    assert [record["left_out"] for record in records] == [0, 60, 59]


def test_what_comes_and_goes_does_not_fill_the_log() -> None:
    away = Away()
    with capture_logs() as records:
        for _ in range(20):
            away.fails()
            away.works()
    assert told(records) == [("warning", "catalog away", "prod"), ("info", "catalog works again", "prod")]


def test_a_store_does_not_hide_behind_its_catalog() -> None:
    away = Away()
    with capture_logs() as records:
        away.fails(ErrorScope.CATALOG)
        away.fails(ErrorScope.STORE)
        away.works()
    assert told(records) == [
        ("warning", "catalog away", "prod"),
        ("warning", "store away", "file:///lake"),
        ("info", "catalog works again", "prod"),
        ("info", "store works again", "file:///lake"),
    ]


def test_a_shortage_of_the_process_is_told_once_a_minute_and_when_it_is_over() -> None:
    away = Away()
    with capture_logs() as records:
        for _ in range(30):
            away.fails(ErrorScope.PROCESS)
        away.works()
    assert told(records) == [
        ("warning", "process short of resources", ""),
        ("info", "process works again", ""),
    ]


def test_a_shortage_is_one_tables_own_where_others_were_served_since_its_last() -> None:
    away = Away()
    shortage = Transient("it", scope=ErrorScope.PROCESS, expected="memory", found="none")
    assert away.outages.narrow_shortage(TABLE, shortage).scope is ErrorScope.PROCESS
    away.clock.turn(1)
    assert away.outages.narrow_shortage(TABLE, shortage).scope is ErrorScope.PROCESS
    away.works()
    assert away.outages.narrow_shortage(TABLE, shortage).scope is ErrorScope.PROCESS
    away.clock.turn(1)
    away.outages.record_success(LANE, TableIdentifier("prod", ("sales",), "other"), store_used=True)
    away.clock.turn(1)
    assert away.outages.narrow_shortage(TABLE, shortage).scope is ErrorScope.TABLE
