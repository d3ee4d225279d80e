"""The catalog's present answer about one table, for operators; never in the way of the worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, assert_never

import anyio

from sfn.catalogs import Catalog, Loaded, NoSuchTable, NotModified, StagedCreate
from sfn.catalogs.activity import ObservableCatalog
from sfn.clock import Clock, format_duration
from sfn.domain.identifiers import TableIdentifier
from sfn.errors import ErrorScope, ExternalError
from sfn.worker.capacity import CircuitBreakerState

QUERY_TIMEOUT: Final = 3.0
"""Seconds for one query. An operator waits for the answer, and a healthy catalog answers within a second."""


class CatalogNowState(StrEnum):
    """The kind of an answer.

    found           the catalog has the table
    not-found       the catalog has no such table
    staged          the catalog has the table, and the table has no metadata file yet
    unanswered      the catalog did not answer in time, or was not asked because it does not answer
    event-only      the catalog cannot be queried
    """

    FOUND = "found"
    NOT_FOUND = "not-found"
    STAGED = "staged"
    UNANSWERED = "unanswered"
    EVENT_ONLY = "event-only"


@dataclass(frozen=True, slots=True)
class CatalogNow:
    """An answer of a catalog about a table.

    Attributes:
        state: the kind of the answer.
        metadata_location: the current metadata file; None unless the state is `found`.
        table_uuid: the table's uuid; None unless the state is `found`.
        answered_at: the time of the answer; None without one.
        error: why there is no answer; empty if there is one.
    """

    state: CatalogNowState
    metadata_location: str | None = None
    table_uuid: str | None = None
    answered_at: datetime | None = None
    error: str = ""


class CatalogQueries:
    """Queries about single tables, over the catalogs' connections of this process.

    A query is not sent while the circuit breaker of the catalog is not closed, while another query of an operator runs,
    or if the last query had no answer and the catalog has answered nothing since. So operators use at most one
    connection, or one thread, of a catalog that hangs.

    Args:
        catalogs: the adapters, by name.
        event_only: the names of the event-only catalogs.
        breakers: returns the breakers that are not closed.
        clock: the wall clock.
        timeout: seconds for one query.
    """

    def __init__(
        self,
        catalogs: Mapping[str, Catalog],
        event_only: Collection[str],
        breakers: Callable[[], Collection[CircuitBreakerState]],
        clock: Clock,
        timeout: float = QUERY_TIMEOUT,
    ) -> None:
        self._catalogs, self._event_only, self._breakers = catalogs, event_only, breakers
        self._clock, self._timeout = clock, timeout
        self._running: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._timed_out_at: dict[str, datetime] = {}

    async def load(self, table: TableIdentifier) -> CatalogNow:
        """Return what the catalog answers now about a table of a configured catalog. Raises no `ExternalError`."""
        name = table.catalog
        if name in self._event_only:
            return CatalogNow(CatalogNowState.EVENT_ONLY, error="an event-only catalog cannot be queried")
        with anyio.move_on_after(self._timeout):
            async with self._running[name]:
                if (why := self._why_not_asked(name)) is not None:
                    return CatalogNow(CatalogNowState.UNANSWERED, error=why)
                return await self._ask(table)
        return CatalogNow(CatalogNowState.UNANSWERED, error=f"no answer within {self._timeout:g} s")

    def _why_not_asked(self, name: str) -> str | None:
        """Return why a query would have no answer; None if the catalog can be asked."""
        now = self._clock.now()
        for breaker in self._breakers():
            is_of_catalog = breaker.scope is ErrorScope.CATALOG and breaker.name == name
            if is_of_catalog and breaker.is_failing:
                return f"not asked: it has failed for {format_duration(now - breaker.failing_since)}: {breaker.error}"
        timed_out_at, catalog = self._timed_out_at.get(name), self._catalogs[name]
        if timed_out_at is None or not isinstance(catalog, ObservableCatalog):
            return None
        answered_at = catalog.activity.answers.answered_at
        if answered_at is not None and answered_at > timed_out_at:
            return None
        return f"not asked: a question {format_duration(now - timed_out_at)} ago had no answer in time"

    async def _ask(self, table: TableIdentifier) -> CatalogNow:
        # The entry stays if the query is cancelled, and is removed by any answer.
        self._timed_out_at[table.catalog] = self._clock.now()
        try:
            answer = await self._catalogs[table.catalog].load(table, None)
        except ExternalError as error:
            self._timed_out_at.pop(table.catalog, None)
            return CatalogNow(CatalogNowState.UNANSWERED, error=str(error))
        self._timed_out_at.pop(table.catalog, None)
        now = self._clock.now()
        match answer:
            case Loaded(loaded):
                return CatalogNow(CatalogNowState.FOUND, loaded.metadata_location, loaded.uuid, now)
            case NoSuchTable():
                return CatalogNow(CatalogNowState.NOT_FOUND, answered_at=now)
            case StagedCreate() | NotModified():
                # Without an entity tag no catalog answers `NotModified`.
                return CatalogNow(CatalogNowState.STAGED, answered_at=now)
            case _:
                assert_never(answer)
