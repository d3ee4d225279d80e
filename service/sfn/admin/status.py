"""Routes of the admin API about the whole service: its status with the verdict, and the log of commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Query

from sfn.admin.replicas import ProcessReport, merged_breakers, merged_senders, merged_view
from sfn.admin.routes import SECURITY_EXTRA, AdminContext
from sfn.admin.schemas import (
    AuditEntryModel,
    AuditPage,
    CatalogModel,
    CircuitBreakerModel,
    DeadLetterGroup,
    DropLimitModel,
    GatewayModel,
    ServiceStatus,
    StoreModel,
    TableCountsModel,
)
from sfn.admin.table_schemas import ListedTableModel, TableSearch
from sfn.admin.tables import TableRoutes
from sfn.admin.verdict import ServiceReport, verdict_of
from sfn.domain.identifiers import TableIdentifier
from sfn.domain.jobs import DeadLetterReason
from sfn.inbox import STAT_STATES, QueueStats
from sfn.inbox.model import DeadLetterFilter

MAX_LATE: Final = 10
"""Late tables of each catalog that the verdict reads: the longest waits, for their causes."""


class StatusRoutes:
    """Read-only routes."""

    def __init__(self, context: AdminContext) -> None:
        self._context, self._inbox = context, context.inbox
        self._tables = TableRoutes(context)

    def register(self, router: APIRouter) -> None:
        """Add them."""
        router.add_api_route("/status", self.status, operation_id="status", openapi_extra=SECURITY_EXTRA)
        router.add_api_route("/audit", self.audit, operation_id="audit", openapi_extra=SECURITY_EXTRA)

    async def status(self) -> ServiceReport:
        """Return the state of the service, and whether it needs an operator."""
        stats = await self._context.stats()
        status = await self._status(stats)
        late = [one for catalog in status.catalogs if catalog.late_tables for one in await self._late(catalog.name)]
        letters = await self._letter_groups(stats)
        return ServiceReport(**dict(status), verdict=verdict_of(status, late, letters))

    async def _status(self, stats: QueueStats) -> ServiceStatus:
        process, reports = self._context.process, await self._context.replicas.reports()
        breakers = merged_breakers(reports)
        return ServiceStatus(
            version=process.version,
            started_at=process.started_at,
            ready=not process.not_ready_reasons(),
            not_ready_reasons=process.not_ready_reasons(),
            catalogs=[await self._catalog_model(name, stats, reports) for name in self._context.catalogs],
            breakers=breakers,
            dead_letters=_by_reason(stats.dead_letters),
            roles=sorted(process.roles),
            stores=[_store(name, prefix, breakers) for name, prefix in self._context.stores.items()],
            gateways=[
                GatewayModel(
                    name=name, catalogs=catalogs, open_intents=sum(stats.open_intents.get(one, 0) for one in catalogs)
                )
                for name, catalogs in self._context.gateways.items()
            ],
            pull_sources=[one for report in reports if report.alive for one in report.pull_sources],
            processes=[one.as_process() for one in reports],
            senders=merged_senders(reports),
            unauthorized=[one for report in reports if report.alive for one in report.unauthorized],
        )

    async def audit(
        self,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
        before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    ) -> AuditPage:
        """Return the commands of operators, newest first."""
        entries = [AuditEntryModel.from_entry(entry) for entry in await self._inbox.audit_log(before, limit)]
        return AuditPage(entries=entries, next=entries[-1].id if len(entries) == limit else None)

    async def _catalog_model(self, name: str, stats: QueueStats, reports: Sequence[ProcessReport]) -> CatalogModel:
        process, seen = self._context.process, merged_view(name, reports)
        drop_limit = await self._context.drop_limit_state(name)
        tables = {state: stats.tables.get((name, state), 0) for state in STAT_STATES}
        missing = stats.missing.get(name)
        return CatalogModel(
            name=name,
            type=self._context.catalogs[name].type,
            catalog_id=seen.catalog_id,
            foreign_catalog_id=await self._foreign_catalog_id(name, seen.catalog_id),
            answered_at=seen.answered_at,
            unanswered_since=seen.unanswered_since,
            error=seen.error,
            retired=name in process.retired_catalogs.names,
            lag=seen.lag,
            late_tables=stats.late.get(name, 0),
            live_tables=drop_limit.live_tables,
            tables=TableCountsModel(**tables),
            oldest_due_at=stats.oldest_due.get(name),
            drop_limit=DropLimitModel.from_state(
                drop_limit, tables["held"], stats.letters_since.get((name, DeadLetterReason.HELD_DROP))
            ),
            first_sweep_pending=self._context.catalogs[name].is_swept and name not in stats.swept,
            sweep=seen.sweep,
            open_intents=stats.open_intents.get(name, 0),
            oldest_intent_at=stats.oldest_intent.get(name),
            missing_tables=missing.count if missing is not None else 0,
            missing_since=missing.since if missing is not None else None,
        )

    async def _late(self, catalog: str) -> list[ListedTableModel]:
        """Return the tables of a catalog that have waited the longest, if they are late."""
        search = TableSearch(catalog=[catalog], late=True, limit=MAX_LATE)
        return list((await self._tables.tables(search)).tables)

    async def _letter_groups(self, stats: QueueStats) -> list[DeadLetterGroup]:
        """Return the open dead letters by reason, each with the newest cause."""
        groups = []
        for reason, count in sorted(_by_reason(stats.dead_letters).items()):
            newest = await self._inbox.list_newest(DeadLetterFilter(reason=DeadLetterReason(reason)), 1)
            since = min(at for (_, one), at in stats.letters_since.items() if one == reason)
            if newest:
                letter = newest[0]
                table = str(letter.subject) if isinstance(letter.subject, TableIdentifier) else None
                group = DeadLetterGroup(
                    reason=reason,
                    count=count,
                    since=since,
                    cause=letter.cause,
                    newest=letter.id,
                    table=table,
                    detail=letter.detail,
                )
                groups.append(group)
        return groups

    async def _foreign_catalog_id(self, name: str, catalog_id: str | None) -> str | None:
        """Return the other `catalog_id` that the files of a catalog carry; None if they carry its own."""
        if catalog_id is None:
            return None
        owner = await self._inbox.recorded_owner(name, catalog_id)
        return owner if owner != catalog_id else None


def _store(name: str, prefix: str, breakers: Sequence[CircuitBreakerModel]) -> StoreModel:
    # A breaker has the name of the store's prefix.
    failing = next((one for one in breakers if (one.scope, one.name) == ("store", prefix)), None)
    since, error = (failing.failing_since, failing.error) if failing is not None else (None, None)
    return StoreModel(name=name, prefix=prefix, failing_since=since, error=error)


def _by_reason(counts: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Return the numbers of letters by reason, over all catalogs."""
    reasons: Counter[str] = Counter()
    for (_, reason), count in counts.items():
        reasons[reason] += count
    return dict(reasons)
