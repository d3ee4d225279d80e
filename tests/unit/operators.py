"""Answers of the admin routes as the command line knows them, with an ordinary value wherever a test names none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel

from sfn.admin.schemas import (
    CatalogModel,
    CircuitBreakerModel,
    DeadLetterDetails,
    DropLimitModel,
    PendingChangeModel,
    PublishedFileModel,
    ServiceStatus,
    SweepModel,
    TableCountsModel,
    TableModel,
)

M = TypeVar("M", bound=BaseModel)

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)
NO_TABLES = TableCountsModel(due=0, scheduled=3, retrying=0, leased=0, dead=0, held=0)
CALM = DropLimitModel(limit_reached=False, on_hold=0, steps=0, limit=10)
ENDED = SweepModel(
    state="ended",
    started_at=NOON - timedelta(minutes=2),
    ended_at=NOON - timedelta(minutes=1),
    tables=3,
    known_tables=3,
    differences=[],
    differences_total=0,
    unlisted_namespaces=[],
    failed_tables=[],
    error=None,
    unlisted_reason=None,
    listing_failed=[],
)
PROD = CatalogModel(
    name="prod",
    type="rest",
    catalog_id="0123",
    foreign_catalog_id=None,
    retired=False,
    live_tables=3,
    tables=NO_TABLES,
    oldest_due_at=None,
    drop_limit=CALM,
    sweep=ENDED,
    open_intents=0,
    oldest_intent_at=None,
)
WELL = ServiceStatus(
    version="1.2.3",
    started_at=NOON - timedelta(hours=3),
    ready=True,
    not_ready_reasons=[],
    catalogs=[PROD],
    breakers=[],
    dead_letters={},
    roles=[],
)
SILENT = CircuitBreakerModel(
    scope="catalog",
    name="prod",
    state="open",
    open_until=NOON + timedelta(seconds=4),
    allowed_probes=0,
    failing_since=NOON - timedelta(seconds=200),
    error="http://c: expected an answer, found connection refused",
)
LETTER = DeadLetterDetails(
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
    request=None,
    foreign_catalog_id=None,
)
ORDERS = TableModel(
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
    on_hold=False,
    limit_overridden=False,
    published=PublishedFileModel(
        metadata_location="file:///w/m/1.json",
        table_uuid="u1",
        location="file:///w",
        written_at=NOON - timedelta(minutes=5),
    ),
    unpublished=None,
    pending=PendingChangeModel(
        min_metadata_location=None, drop=False, purge=False, renamed_to=None, has_unprocessed=False
    ),
    locations=["file:///w"],
    refresh_at=NOON + timedelta(hours=8),
    last_result=None,
    last_event=None,
    dead_letters=[],
    renamed_to=None,
    foreign_version_hint=None,
    foreign_catalog_id=None,
    open_intents=0,
    next_check_at=None,
)


def copied(model: M, **more: Any) -> M:  # noqa: ANN401 - any attribute
    """A model with these attributes changed."""
    assert more.keys() <= type(model).model_fields.keys()
    return model.model_copy(update=more)


def catalog(**more: Any) -> ServiceStatus:  # noqa: ANN401 - any attribute
    """The status of a service whose only catalog has these attributes changed."""
    return copied(WELL, catalogs=[copied(PROD, **more)])


def swept(**more: Any) -> ServiceStatus:  # noqa: ANN401 - any attribute
    """The status of a service whose last sweep has these attributes changed."""
    return catalog(sweep=copied(ENDED, **more))
