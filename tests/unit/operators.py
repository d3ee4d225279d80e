"""Answers of the admin routes as the command line knows them, with an ordinary value wherever a test names none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel

from sfn.admin.schemas import (
    Brake,
    Breaker,
    Catalog,
    LetterInFull,
    Published,
    Status,
    Sweep,
    Table,
    TableCounts,
    Wanted,
)

M = TypeVar("M", bound=BaseModel)

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)
NO_TABLES = TableCounts(due=0, scheduled=3, retrying=0, leased=0, dead=0, held=0)
CALM = Brake(tripped=False, held=0, steps=0, limit=10)
ENDED = Sweep(
    state="ended",
    began_at=NOON - timedelta(minutes=2),
    ended_at=NOON - timedelta(minutes=1),
    tables=3,
    known=3,
    differed=[],
    differed_total=0,
    withheld=[],
    failed=[],
    error=None,
    withheld_reason=None,
    listing_failed=[],
)
PROD = Catalog(
    name="prod",
    type="rest",
    catalog_id="0123",
    foreign_id=None,
    retired=False,
    live=3,
    tables=NO_TABLES,
    oldest_due_at=None,
    brake=CALM,
    sweep=ENDED,
    open_intents=0,
    oldest_intent_at=None,
)
WELL = Status(
    version="1.2.3",
    started_at=NOON - timedelta(hours=3),
    ready=True,
    reasons=[],
    catalogs=[PROD],
    breakers=[],
    dead_letters={},
    roles=[],
)
SILENT = Breaker(
    scope="catalog",
    name="prod",
    state="open",
    until=NOON + timedelta(seconds=4),
    slots=0,
    since=NOON - timedelta(seconds=200),
    error="http://c: expected an answer, found connection refused",
)
LETTER = LetterInFull(
    id=7,
    status="open",
    reason="location-refused",
    catalog="prod",
    namespace=["sales"],
    name="orders",
    table="sales.orders",
    sender=None,
    detail="it lies elsewhere",
    attempts=2,
    opened_at=NOON - timedelta(hours=1),
    changed_at=NOON - timedelta(minutes=30),
    actor=None,
    cause="",
    event=None,
    foreign_id=None,
)
ORDERS = Table(
    catalog="prod",
    namespace=["sales"],
    name="orders",
    table="sales.orders",
    state="queued",
    due_at=NOON + timedelta(hours=8),
    not_before=None,
    attempt=0,
    failing_since=None,
    reason=None,
    held=False,
    waived=False,
    published=Published(
        metadata_location="file:///w/m/1.json",
        table_uuid="u1",
        location="file:///w",
        written_at=NOON - timedelta(minutes=5),
    ),
    unpublished=None,
    wanted=Wanted(metadata_location=None, drop=False, purge=False, renamed_to=None, news=False),
    locations=["file:///w"],
    refresh_at=NOON + timedelta(hours=8),
    last=None,
    last_event=None,
    dead_letters=[],
    renamed_to=None,
    foreign_hint=None,
    foreign_id=None,
    open_intents=0,
    next_ask_at=None,
)


def copied(model: M, **more: Any) -> M:  # noqa: ANN401 - any attribute
    """A model with these attributes changed."""
    return model.model_copy(update=more)


def catalog(**more: Any) -> Status:  # noqa: ANN401 - any attribute
    """The status of a service whose only catalog has these attributes changed."""
    return copied(WELL, catalogs=[copied(PROD, **more)])


def swept(**more: Any) -> Status:  # noqa: ANN401 - any attribute
    """The status of a service whose last sweep has these attributes changed."""
    return catalog(sweep=copied(ENDED, **more))
