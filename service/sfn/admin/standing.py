"""The operators' questions: how the service stands, one table's whole story, what was ordered."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException

from sfn.admin.operators import SECURITY_EXTRA, AdminContext
from sfn.admin.schemas import (
    AuditEntryModel,
    AuditPage,
    CatalogModel,
    CircuitBreakerModel,
    DropLimitModel,
    ServiceStatus,
    SweepModel,
    TableCountsModel,
    TableModel,
    UnpublishedReason,
)
from sfn.domain.identifiers import TableIdentifier
from sfn.inbox.admin import recorded_owner
from sfn.inbox.model import DeadLetterFilter
from sfn.inbox.statistics import STAT_STATES, QueueStats

LEVEL_SEPARATOR: Final = "\x1f"
"""Between the levels of a namespace in a path, as in Iceberg's REST catalog specification."""
MAX_DEAD_LETTERS: Final = 20
"""Dead letters of one table that its story names."""


class StatusRoutes:
    """Routes that change nothing."""

    def __init__(self, context: AdminContext) -> None:
        self._context, self._queries, self._letters = context, context.inbox.queries, context.inbox.dead_letters
        self._catalog_admin = context.inbox.catalog_admin

    def register(self, router: APIRouter) -> None:
        """Add them."""
        unknown: dict[int | str, dict[str, Any]] = {404: {"description": "the inbox knows no such table"}}
        router.add_api_route("/status", self.status, operation_id="status", openapi_extra=SECURITY_EXTRA)
        router.add_api_route(
            "/tables/{catalog}/{namespace}/{table}",
            self.table,
            operation_id="table",
            responses=unknown,
            openapi_extra=SECURITY_EXTRA,
        )
        router.add_api_route("/audit", self.audit, operation_id="audit", openapi_extra=SECURITY_EXTRA)

    async def status(self) -> ServiceStatus:
        """How all of it stands."""
        process = self._context.process
        stats = await self._queries.stats()
        reasons: Counter[str] = Counter()
        for (_, reason), count in stats.dead_letters.items():
            reasons[reason] += count
        return ServiceStatus(
            version=process.version,
            started_at=process.started_at,
            ready=not process.not_ready_reasons(),
            not_ready_reasons=process.not_ready_reasons(),
            catalogs=[await self._catalog_model(name, stats) for name in self._context.catalogs],
            breakers=[CircuitBreakerModel.from_state(breaker) for breaker in process.breakers()],
            dead_letters=dict(reasons),
            roles=sorted(process.roles),
        )

    async def table(self, catalog: str, namespace: str, table: str) -> TableModel:
        """What is held of a table, wanted, tried, and when it is looked at next and why.

        The levels of the namespace are separated by %1F; it is `%1F` alone for a table without any.
        """
        configured = self._context.configured_catalog(catalog)
        levels = tuple(level for level in namespace.split(LEVEL_SEPARATOR) if level)
        name = TableIdentifier(catalog, levels, table)
        table_status = await self._queries.table_status(name)
        is_covered = configured.interest.covers(name)
        if table_status is None:
            why = "nothing was told of it yet" if is_covered else "the catalog's include or exclude leaves it out"
            raise HTTPException(HTTPStatus.NOT_FOUND, f"the inbox knows no table {name}: {why}")
        retired = catalog in self._context.process.retired_catalogs.names
        unpublished = UnpublishedReason.for_table(name, table_status, is_retired=retired, is_covered=is_covered)
        letters = await self._letters.list_newest(DeadLetterFilter(status=None, table=name), MAX_DEAD_LETTERS)
        return TableModel.from_status(name, table_status, unpublished, letters)

    async def audit(
        self,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
        before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    ) -> AuditPage:
        """What operators ordered, the newest first."""
        entries = [AuditEntryModel.from_entry(entry) for entry in await self._queries.audit_log(before, limit)]
        return AuditPage(entries=entries, next=entries[-1].id if len(entries) == limit else None)

    async def _catalog_model(self, name: str, stats: QueueStats) -> CatalogModel:
        process = self._context.process
        report = process.sweep_reports().get(name)
        catalog_id = process.catalog_ids().get(name)
        drop_limit = await self._queries.drop_limit_state(name)
        tables = {state: stats.tables.get((name, state), 0) for state in STAT_STATES}
        missing = stats.missing.get(name)
        return CatalogModel(
            name=name,
            type=self._context.catalogs[name].type,
            catalog_id=catalog_id,
            foreign_catalog_id=await self._foreign_catalog_id(name, catalog_id),
            retired=name in process.retired_catalogs.names,
            live_tables=drop_limit.live_tables,
            tables=TableCountsModel(**tables),
            oldest_due_at=stats.oldest_due.get(name),
            drop_limit=DropLimitModel.from_state(drop_limit, tables["held"]),
            sweep=SweepModel.from_report(report) if report is not None else None,
            open_intents=stats.open_intents.get(name, 0),
            oldest_intent_at=stats.oldest_intent.get(name),
            missing_tables=missing.count if missing is not None else 0,
            missing_since=missing.since if missing is not None else None,
        )

    async def _foreign_catalog_id(self, name: str, catalog_id: str | None) -> str | None:
        """Whose a catalog's files are where they are another's."""
        if catalog_id is None:
            return None
        owner = await recorded_owner(name, catalog_id, self._catalog_admin, self._context.inbox.table_index)
        return owner if owner != catalog_id else None
