"""Logs: set-up, secrets, and throttled records."""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from sfn.telemetry.logs import LOG_INTERVAL, LogThrottle, RejectionLog, configure_logging
from tests.support.logs import TALKATIVE, as_before


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
    assert [(record["client"], record["suppressed"]) for record in records] == [
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


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Whatever a test configures."""
    with as_before():
        yield


class Stream(io.StringIO):
    """What was logged."""

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


class Terminal(Stream):
    """One that people read."""

    isatty = lambda _: True  # noqa: E731


def test_a_record_is_one_json_line_with_a_utc_time() -> None:
    stream = Stream()
    configure_logging("info", "auto", stream)
    structlog.stdlib.get_logger("sfn.http.app").info("events rejected", sender="etl", status=422, cause="a\nb")
    (record,) = stream.records()
    stamp = datetime.fromisoformat(record.pop("timestamp"))
    assert stamp.utcoffset() == timedelta()
    assert record == {
        "event": "events rejected",
        "sender": "etl",
        "status": 422,
        "cause": "a\nb",
        "level": "info",
        "logger": "sfn.http.app",
    }


def test_json_records_begin_with_timestamp_level_and_event() -> None:
    stream = Stream()
    configure_logging("info", "json", stream)
    structlog.stdlib.get_logger("sfn").info("published", catalog="prod")
    logging.getLogger("uvicorn.error").warning("started")
    assert [list(record)[:3] for record in stream.records()] == [["timestamp", "level", "event"]] * 2


@pytest.mark.parametrize("name", TALKATIVE)
def test_verbose_libraries_log_only_warnings(name: str) -> None:
    stream = Stream()
    configure_logging("debug", "json", stream)
    log = logging.getLogger(f"{name}.part")
    log.debug("signing with s3cret")
    log.info("Loaded FileIO")
    log.warning("yes")
    assert [record["event"] for record in stream.records()] == ["yes"]


@pytest.mark.parametrize("name", TALKATIVE)
def test_verbose_libraries_respect_a_higher_level(name: str) -> None:
    stream = Stream()
    configure_logging("error", "json", stream)
    logging.getLogger(f"{name}.part").warning("no")
    logging.getLogger(f"{name}.part").error("yes")
    assert [record["event"] for record in stream.records()] == ["yes"]


def test_what_a_library_warns_of_is_a_record() -> None:
    stream = Stream()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure_logging("info", "json", stream)
        warnings.warn("No preferred file implementation", stacklevel=1)
        logging.captureWarnings(capture=False)
    (record,) = stream.records()
    assert (record["logger"], "No preferred file implementation" in record["event"]) == ("py.warnings", True)


def test_a_library_that_tells_of_what_it_raises_says_nothing() -> None:
    stream = Stream()
    configure_logging("debug", "json", stream)
    logging.getLogger("thrift.transport.TSocket").error("Could not connect")
    assert stream.records() == []


def test_less_severe_records_are_left_out() -> None:
    stream = Stream()
    configure_logging("warning", "json", stream)
    for log in (structlog.stdlib.get_logger("sfn"), logging.getLogger("uvicorn.error")):
        log.info("no")
        log.warning("yes")
    assert [record["event"] for record in stream.records()] == ["yes", "yes"]


def test_secrets_are_taken_out_at_any_depth() -> None:
    stream = Stream()
    configure_logging("info", "json", stream)
    structlog.stdlib.get_logger("sfn").info(
        "asked",
        token="s3cret",  # noqa: S106 - what must not show
        Authorization="s3cret",
        oauth_credential=["s3cret"],
        client={"name": "etl", "secret": "s3cret", "headers": [{"api-key": "s3cret"}, ("cookie", "fine")]},
    )
    logging.getLogger("aiohttp.client").warning("asked", extra={"access_token": "s3cret"})
    assert "s3cret" not in stream.getvalue()
    asked, again = stream.records()
    assert asked["client"]["name"] == "etl"
    assert (asked["token"], asked["client"]["headers"][0], again["access_token"]) == ("***", {"api-key": "***"}, "***")


def test_what_refers_to_itself_is_cut() -> None:
    stream = Stream()
    configure_logging("info", "json", stream)
    endless: list[object] = []
    endless.append(endless)
    structlog.stdlib.get_logger("sfn").info("round", about=endless)
    assert "…" in str(stream.records())


def test_servers_log_where_all_do_and_not_each_request() -> None:
    logging.getLogger("uvicorn.error").addHandler(logging.StreamHandler(sys.stdout))
    stream = Stream()
    configure_logging("info", "json", stream)
    logging.getLogger("uvicorn.error").info("Started on %s", "8085")
    logging.getLogger("uvicorn.access").info("GET /")
    assert [(record["logger"], record["event"]) for record in stream.records()] == [
        ("uvicorn.error", "Started on 8085")
    ]


def failed() -> None:
    password = "s3cret" + "-in-a-local"
    raise ValueError(f"of {len(password)} characters")


@pytest.mark.parametrize("stream", [Stream(), Terminal()], ids=["json", "console"])
def test_a_traceback_is_there_without_local_variables(stream: Stream) -> None:
    configure_logging("info", "auto", stream)
    try:
        failed()
    except ValueError:
        structlog.stdlib.get_logger("sfn").exception("failed")
    assert "of 17 characters" in stream.getvalue()
    assert "in failed" in stream.getvalue()
    assert "s3cret-in-a-local" not in stream.getvalue()


def test_people_get_text_and_may_ask_for_json() -> None:
    terminal = Terminal()
    configure_logging("info", "auto", terminal)
    structlog.stdlib.get_logger("sfn").info("hello", name="etl")
    assert not terminal.getvalue().startswith("{")
    assert "hello" in terminal.getvalue()
    machine = Terminal()
    configure_logging("info", "json", machine)
    structlog.stdlib.get_logger("sfn").info("hello")
    assert [record["event"] for record in machine.records()] == ["hello"]
    assert "hello" in terminal.getvalue()
    piped = Stream()
    configure_logging("info", "console", piped)
    structlog.stdlib.get_logger("sfn").info("hello")
    assert not piped.getvalue().startswith("{")


def test_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    structlog.stdlib.get_logger("sfn").info("hello")
    out, err = capsys.readouterr()
    assert (out, json.loads(err)["event"]) == ("", "hello")
