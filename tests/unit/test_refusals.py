"""What the log is told of requests that anybody can send: enough to see them, too little to fill a disk."""

from __future__ import annotations

from structlog.testing import capture_logs

from sfn.telemetry.logs import LOG_INTERVAL, LogThrottle, RejectionLog


def test_a_status_is_told_once_a_second_with_how_many_were_left_out() -> None:
    now = [0.0]
    refusals = RejectionLog("events", LogThrottle(lambda: now[0]))
    with capture_logs() as records:
        for _ in range(100):
            refusals.log_rejected(401, "no", "10.0.0.7")
        now[0] += LOG_INTERVAL
        refusals.log_rejected(401, "no", "10.0.0.8")
        now[0] += LOG_INTERVAL
        refusals.log_rejected(401, "no", None)
    assert [(record["client"], record["left_out"]) for record in records] == [
        ("10.0.0.7", 0),
        ("10.0.0.8", 99),
        (None, 0),
    ]


def test_no_status_hides_another() -> None:
    refusals = RejectionLog("events", LogThrottle(lambda: 0.0))
    with capture_logs() as records:
        for status in (401, 405, 401, 415):
            refusals.log_rejected(status, "no", "10.0.0.7")
    assert [(record["where"], record["status"]) for record in records] == [
        ("events", 401),
        ("events", 405),
        ("events", 415),
    ]
