"""The worker's log: one record an outcome, always the same fields."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from sfn.domain.identifiers import CatalogName, JobKey, TableIdentifier
from sfn.domain.jobs import (
    ConcurrencyGroup,
    DeadLettered,
    DeadLetterReason,
    Done,
    FailureCause,
    LeasedJob,
    Outcome,
    Priority,
    PublishResult,
    Rescheduled,
    Retry,
    Returned,
    SweepCompleted,
    TableState,
)
from sfn.inbox.model import poison_letter
from sfn.worker.outcome_log import OutcomeLog

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)
DID = PublishResult(written_keys=("file:///b", "file:///a"))
FIELDS = {"event", "catalog", "table", "attempt", "outcome", "reason", "why", "seconds", "files", "hint"}


def claim(subject: JobKey) -> LeasedJob:
    return LeasedJob(
        subject,
        ConcurrencyGroup("prod", "", Priority.LIVE),
        fencing_token=1,
        notified_seq=1,
        attempt=3,
        failing_since=NOON,
    )


ORDERS = claim(TableIdentifier("prod", ("sales", "eu"), "orders"))


@pytest.mark.parametrize(
    ("outcome", "level", "told"),
    [
        (Done(NOON, DID), "info", ("done", None, None, ["file:///b", "file:///a"])),
        (
            Rescheduled(NOON, "a replica", result=DID),
            "info",
            ("rescheduled", None, "a replica", ["file:///b", "file:///a"]),
        ),
        (Retry(NOON, "no answer"), "warning", ("retry", None, "no answer", [])),
        (Returned(NOON, "the service stops"), "warning", ("returned", None, "the service stops", [])),
        (Returned(NOON, "no answer", FailureCause.CATALOG), "debug", ("returned", None, "no answer", [])),
        (Returned(NOON, "no answer", FailureCause.STORE), "debug", ("returned", None, "no answer", [])),
        (DeadLettered(DeadLetterReason.HELD_DROP, "look"), "error", ("dead", "held-drop", "look", [])),
        (
            DeadLettered(DeadLetterReason.POISON, "look", DID),
            "error",
            ("dead", "poison", "look", ["file:///b", "file:///a"]),
        ),
    ],
)
def test_an_outcome_is_one_record(
    outcome: Outcome, level: str, told: tuple[str, str | None, str | None, list[str]]
) -> None:
    with capture_logs() as records:
        OutcomeLog().on_settled(ORDERS, outcome, 0.12345)
    (record,) = records
    assert record.items() >= {"event": "settled", "log_level": level, "attempt": 3, "seconds": 0.123}.items()
    assert (record["catalog"], record["table"]) == ("prod", "sales.eu.orders")
    assert (record["outcome"], record["reason"], record["why"], record["files"]) == told


@pytest.mark.parametrize(("said", "hint"), [(None, None), ("7", "foreign")])
def test_that_a_version_hint_is_somebody_elses_is_said_with_every_look(said: str | None, hint: str | None) -> None:
    with capture_logs() as records:
        OutcomeLog().on_settled(ORDERS, Done(NOON, PublishResult(TableState(foreign_version_hint=said))), 1)
    assert [record["hint"] for record in records] == [hint]


@pytest.mark.parametrize(("calm", "level"), [(True, "info"), (False, "warning")])
def test_a_sweep_is_one_record_without_a_table(*, calm: bool, level: str) -> None:
    with capture_logs() as records:
        OutcomeLog().on_settled(claim(CatalogName("prod")), SweepCompleted(NOON, NOON, calm), 2)
    (record,) = records
    assert (record["catalog"], record["table"], record["outcome"], record["log_level"]) == (
        "prod",
        None,
        "swept",
        level,
    )
    assert (record["why"] is None) == calm


def test_all_records_have_the_same_fields() -> None:
    with capture_logs() as records:
        OutcomeLog().on_settled(ORDERS, Done(NOON), 1)
        OutcomeLog().on_lease_lost(ORDERS)
        OutcomeLog().on_unexpected_error(ORDERS, ZeroDivisionError("by zero"))
    assert [record["event"] for record in records] == ["settled", "fenced", "surprised"]
    assert all(set(record) - {"log_level", "exc_info"} == FIELDS for record in records)
    assert records[2]["why"] == "ZeroDivisionError: by zero"
    assert isinstance(records[2]["exc_info"], ZeroDivisionError)


def test_poison_is_a_record_like_any_outcome() -> None:
    with capture_logs() as records:
        OutcomeLog().on_poisoned(poison_letter(ORDERS.subject, 5, 7))
    (record,) = records
    assert record.keys() == FIELDS | {"log_level", "exc_info"}
    assert (record["event"], record["log_level"], record["attempt"]) == ("settled", "error", 7)
    assert (record["outcome"], record["reason"], record["table"]) == ("dead", "poison", "sales.eu.orders")
