"""The operators' questions: how the service stands, one table's whole story, what was ordered."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException

from sfn.admin.operators import SECURED, Operations
from sfn.admin.schemas import Audit, Brake, Breaker, Catalog, Entry, Status, Sweep, Table, TableCounts, Unpublished
from sfn.inbox.figures import STATES, Figures
from sfn.inbox.letters import Wanted
from sfn.inbox.whose import owner_noted
from sfn.words import TableName

SEPARATOR: Final = "\x1f"
"""Between the levels of a namespace in a path, as in Iceberg's REST catalog specification."""
LETTERS: Final = 20
"""Dead letters of one table that its story names."""


class StandingRoutes:
    """Routes that change nothing."""

    def __init__(self, operations: Operations) -> None:
        self._operations, self._desk, self._letters = operations, operations.inbox.desk, operations.inbox.letters
        self._custody = operations.inbox.custody

    def join(self, router: APIRouter) -> None:
        """Add them."""
        unknown: dict[int | str, dict[str, Any]] = {404: {"description": "the inbox knows no such table"}}
        router.add_api_route("/status", self.status, operation_id="status", openapi_extra=SECURED)
        router.add_api_route(
            "/tables/{catalog}/{namespace}/{table}",
            self.table,
            operation_id="table",
            responses=unknown,
            openapi_extra=SECURED,
        )
        router.add_api_route("/audit", self.audit, operation_id="audit", openapi_extra=SECURED)

    async def status(self) -> Status:
        """How all of it stands."""
        process = self._operations.process
        figures = await self._desk.figures()
        reasons: Counter[str] = Counter()
        for (_, reason), count in figures.letters.items():
            reasons[reason] += count
        return Status(
            version=process.version,
            started_at=process.started_at,
            ready=not process.reasons(),
            reasons=process.reasons(),
            catalogs=[await self._catalog(name, figures) for name in self._operations.catalogs],
            breakers=[Breaker.of(breaker) for breaker in process.breakers()],
            dead_letters=dict(reasons),
            roles=sorted(process.roles),
        )

    async def table(self, catalog: str, namespace: str, table: str) -> Table:
        """What is held of a table, wanted, tried, and when it is looked at next and why.

        The levels of the namespace are separated by %1F; it is `%1F` alone for a table without any.
        """
        followed = self._operations.followed(catalog)
        levels = tuple(level for level in namespace.split(SEPARATOR) if level)
        name = TableName(catalog, levels, table)
        standing = await self._desk.standing(name)
        covered = followed.interest.covers(name)
        if standing is None:
            why = "nothing was told of it yet" if covered else "the catalog's include or exclude leaves it out"
            raise HTTPException(HTTPStatus.NOT_FOUND, f"the inbox knows no table {name}: {why}")
        retired = catalog in self._operations.process.retirement.names
        unpublished = Unpublished.of(name, standing, retired=retired, covered=covered)
        letters = await self._letters.newest(Wanted(status=None, table=name), LETTERS)
        return Table.of(name, standing, unpublished, letters)

    async def audit(
        self,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
        before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    ) -> Audit:
        """What operators ordered, the newest first."""
        entries = [Entry.of(entry) for entry in await self._desk.audited(before, limit)]
        return Audit(entries=entries, next=entries[-1].id if len(entries) == limit else None)

    async def _catalog(self, name: str, figures: Figures) -> Catalog:
        process = self._operations.process
        report = process.sweeps().get(name)
        catalog_id = process.identities().get(name)
        brake = await self._desk.brake(name)
        tables = {state: figures.tables.get((name, state), 0) for state in STATES}
        missing = figures.missing.get(name)
        return Catalog(
            name=name,
            type=self._operations.catalogs[name].type,
            catalog_id=catalog_id,
            foreign_id=await self._foreign(name, catalog_id),
            retired=name in process.retirement.names,
            live=brake.live,
            tables=TableCounts(**tables),
            oldest_due_at=figures.oldest_due.get(name),
            brake=Brake.of(brake, tables["held"]),
            sweep=Sweep.of(report) if report is not None else None,
            open_intents=figures.intents.get(name, 0),
            oldest_intent_at=figures.oldest_intent.get(name),
            missing=missing.count if missing is not None else 0,
            missing_since=missing.since if missing is not None else None,
        )

    async def _foreign(self, name: str, catalog_id: str | None) -> str | None:
        """Whose a catalog's files are where they are another's."""
        if catalog_id is None:
            return None
        owner = await owner_noted(name, catalog_id, self._custody, self._operations.inbox.roster)
        return owner if owner != catalog_id else None
