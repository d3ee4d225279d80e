"""What the log is told of an inbox in trouble, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from sfn.errors import ErrorScope, Transient
from sfn.inbox.admin import LOG_INTERVAL, InboxErrorLog
from tests.promises.inboxes import HandClock

MINUTE = LOG_INTERVAL.total_seconds()


class Calls:
    """Calls of an inbox.

    Attributes:
        clock: turned by hand.
        records: what the log was told.
    """

    def __init__(self, records: list[EventDict]) -> None:
        self.clock, self.records = HandClock(), records
        self._troubles = InboxErrorLog(self.clock, "worker")

    def fail(self, found: str) -> None:
        """One that meets a trouble, which must come out as it is."""
        trouble = Transient("inbox", scope=ErrorScope.INBOX, expected="room", found=found)
        with pytest.raises(Transient) as caught, self._troubles.log_errors():
            raise trouble
        assert caught.value is trouble

    def work(self) -> None:
        """One that works."""
        with self._troubles.log_errors():
            pass

    @property
    def told(self) -> list[tuple[str, str]]:
        """Levels and what was found; empty for an end."""
        return [(one["log_level"], str(one.get("error", "")).rpartition("found ")[2]) for one in self.records]


@pytest.fixture
def calls() -> Iterator[Calls]:
    with capture_logs() as records:
        yield Calls(records)


def test_a_trouble_is_told_as_it_begins_and_as_it_ends(calls: Calls) -> None:
    calls.work()
    calls.fail("none")
    calls.work()
    calls.work()
    error = "inbox: expected room, found none"
    assert calls.records == [
        {"event": "inbox in trouble", "log_level": "warning", "part": "worker", "error": error},
        {"event": "inbox works again", "log_level": "info", "part": "worker"},
    ]


def test_one_that_lasts_is_told_once_a_minute(calls: Calls) -> None:
    for _ in range(3 * int(MINUTE)):
        calls.fail("none")
        calls.clock.turn(1)
    assert calls.told == [("warning", "none")] * 3


def test_another_one_is_told_at_once_and_each_once_a_minute(calls: Calls) -> None:
    for _ in range(int(MINUTE)):
        calls.fail("none")
        calls.fail("a lock")
        calls.clock.turn(1)
    assert calls.told == [("warning", "none"), ("warning", "a lock")]


def test_one_that_comes_and_goes_is_told_once_a_minute_too(calls: Calls) -> None:
    for _ in range(2 * int(MINUTE)):
        calls.fail("none")
        calls.work()
        calls.clock.turn(1)
    assert calls.told == [("warning", "none"), ("info", "")] * 2


def test_a_clock_that_is_set_back_silences_nothing(calls: Calls) -> None:
    calls.fail("none")
    calls.clock.turn(-3600)
    calls.fail("none")
    assert len(calls.told) == 2


def test_what_is_no_trouble_is_not_told(calls: Calls) -> None:
    troubles = InboxErrorLog(calls.clock, "worker")
    with suppress(ZeroDivisionError), troubles.log_errors():
        raise ZeroDivisionError
    assert calls.told == []
