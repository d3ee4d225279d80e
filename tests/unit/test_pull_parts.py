"""The small parts of what fetches events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sfn.app.endpoints import build_pull_server
from sfn.pull import Outage, SourceUnavailable
from sfn.pull.source import subjects_overlap
from tests.promises.inboxes import HandClock
from tests.unit.settings_ground import CATALOG, Ground

GONE = SourceUnavailable("pull.events", expected="an answer", found="none", remedy="see")


def events(logs: Sequence[Mapping[str, object]]) -> list[object]:
    return [record["event"] for record in logs]


def test_a_source_that_stays_away_is_told_of_once_a_minute() -> None:
    clock = HandClock()
    outage = Outage("events", clock)
    with capture_logs() as logs:
        for _ in range(4):
            outage.on_unavailable(GONE)
            clock.turn(25)
    first, second = logs
    assert (first["event"], first["name"], first["error"], first["left_out"]) == (
        "pull source away",
        "events",
        "pull.events: expected an answer, found none; see",
        0,
    )
    assert (second["since"], second["left_out"]) == (first["since"], 2)


def test_a_source_that_comes_and_goes_is_told_of_once_a_minute_and_not_more() -> None:
    clock = HandClock()
    outage = Outage("events", clock)
    outage.on_recovered()
    with capture_logs() as logs:
        for _ in range(30):
            outage.on_unavailable(GONE)
            clock.turn(1)
            outage.on_recovered()
            clock.turn(1)
        outage.on_unavailable(GONE)
    assert events(logs) == ["pull source away", "pull source works again", "pull source away"]
    assert (logs[1]["seconds"], logs[2]["left_out"]) == (1.0, 29)


def test_a_clock_that_was_set_back_silences_nothing() -> None:
    clock = HandClock()
    outage = Outage("events", clock)
    with capture_logs() as logs:
        outage.on_unavailable(GONE)
        clock.turn(-3_600)
        outage.on_unavailable(GONE)
    assert len(logs) == 2


def test_a_source_that_is_reached_is_told_of_once() -> None:
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
def test_subjects_overlap_where_there_is_one_that_both_mean(one: str, other: str, both: bool) -> None:
    assert subjects_overlap(one, other) == both
    assert subjects_overlap(other, one) == both


def test_a_source_of_a_stream_keeps_and_another_does_not(tmp_path: Path) -> None:
    pull = "[pull.events]\nservers = ['nats://a']\nsubject = 's'\n"
    for more, keeps in (("", False), ("stream = 's'\ndurable = 'd'", True)):
        settings = Ground(tmp_path).load(CATALOG + pull + more)
        assert build_pull_server("events", settings.pull["events"]).is_durable == keeps
