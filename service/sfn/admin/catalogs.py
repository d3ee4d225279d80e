"""The operators' orders about whole catalogs: look at all of it, let go what the brake holds, adopt, retire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException

from sfn.admin.operators import SECURITY_EXTRA, AdminContext
from sfn.admin.schemas import AdoptRequest, AffectedTables, ReleasedTables, RetireRequest, SweepAccepted, SweepRequest
from sfn.domain.events import Notification
from sfn.domain.identifiers import CatalogName
from sfn.domain.jobs import IndexedTable

SENDER: Final = "operator"
"""Of hints that an order makes."""
BATCH_SIZE: Final = 500
"""Hints in one transaction: puts wait for it."""

_log = structlog.stdlib.get_logger(__name__)


class CatalogRoutes:
    """Routes that concern whole catalogs."""

    def __init__(self, context: AdminContext) -> None:
        self._context, self._inbox = context, context.inbox

    def register(self, router: APIRouter) -> None:
        """Add them."""
        unknown: dict[int | str, dict[str, Any]] = {404: {"description": "no such catalog, or table"}}
        conflicting = {**unknown, 409: {"description": "their files are known to carry another catalog_id"}}
        for path, route, name, status in (
            ("/reconcile", self.reconcile, "reconcile", HTTPStatus.ACCEPTED),
            ("/brakes/{catalog}:release", self.release, "releaseBrake", HTTPStatus.OK),
            ("/catalogs/{catalog}:adopt", self.adopt, "adopt", HTTPStatus.OK),
            ("/catalogs/{catalog}:retire", self.retire, "retire", HTTPStatus.OK),
        ):
            router.add_api_route(
                path,
                route,
                methods=["POST"],
                operation_id=name,
                status_code=status,
                responses=conflicting if route == self.adopt else unknown,
                openapi_extra=SECURITY_EXTRA,
            )

    async def reconcile(self, request: Request, body: SweepRequest | None = None) -> SweepAccepted:
        """Have catalogs swept now; `/status` tells how far that is."""
        catalogs = self._context.sweepable_catalogs(body.catalogs if body is not None else ())
        command = self._context.command(request, ", ".join(catalogs))
        await self._inbox.catalog_admin.reconcile(
            [Notification(CatalogName(name), sender=SENDER) for name in catalogs], command
        )
        _log.info("sweeps ordered", catalogs=catalogs, actor=command.actor)
        starts_at = {name: at for name in catalogs if (at := await self._starts_at(name)) is not None}
        return SweepAccepted(catalogs=catalogs, requested_at=command.at, starts_at=starts_at)

    async def release(self, catalog: str, request: Request) -> ReleasedTables:
        """Let go what a catalog's brake holds: each of the held tables may take its step once."""
        self._context.configured_catalog(catalog)
        command = self._context.command(request, catalog)
        released = await self._inbox.drop_limit.release(catalog, command)
        _log.info("brake released", catalog=catalog, tables=released, actor=command.actor)
        return ReleasedTables(released=released)

    async def adopt(self, catalog: str, body: AdoptRequest, request: Request) -> AffectedTables:
        """Have tables take over the files of the same identifiers that another catalog's service, or ours, wrote.

        Without names these are all tables of the catalog whose files carry that id, or of whose files that is not
        known. A name that the inbox does not know is 404, and an id that no file carries while they are known to carry
        another is 409: none is looked at. `force` has all of them looked at.
        """
        self._context.configured_catalog(catalog)
        recorded_owner_id = await self._inbox.catalog_admin.owner_id(catalog)
        if not body.force:
            await self._check_catalog_id(catalog, body, recorded_owner_id)
        count = 0
        async for page in self._adoption_pages(catalog, body.tables):
            fits = body.force or body.tables is not None
            tables = [
                known.table
                for known in page
                if fits or _catalog_id_in_file(known, recorded_owner_id) in {None, body.from_}
            ]
            if not tables:
                continue
            notifications = [
                Notification(table, sender=SENDER, force=True, adopt_catalog_id=body.from_) for table in tables
            ]
            about = f"{catalog} from {body.from_}: {', '.join(table.dotted for table in tables[:10])}"
            await self._inbox.catalog_admin.adopt(notifications, self._context.command(request, about))
            count += len(notifications)
        _log.info("files adopted", catalog=catalog, catalog_id=body.from_, tables=count)
        return AffectedTables(tables=count)

    async def retire(self, catalog: str, request: Request, body: RetireRequest | None = None) -> AffectedTables:
        """Withdraw all files of a catalog and write none any more, until that is undone.

        The catalog is still asked, as for any publish: it must answer until all is withdrawn.
        """
        self._context.configured_catalog(catalog)
        undo = body is not None and body.undo
        command = self._context.command(request, catalog)
        await self._inbox.catalog_admin.retire(catalog, retired=not undo, command=command)
        self._context.process.retired_catalogs.names = await self._inbox.catalog_admin.retired_catalogs()
        _log.warning("catalog comes back" if undo else "catalog retires", catalog=catalog, actor=command.actor)
        count = 0
        async for page in self._pages(catalog):
            await self._inbox.writer.put([Notification(known.table, sender=SENDER, force=True) for known in page])
            count += len(page)
        if undo and self._context.configured_catalog(catalog).is_sweepable:
            await self._inbox.writer.put([Notification(CatalogName(catalog), sender=SENDER)])
        return AffectedTables(tables=count)

    async def _starts_at(self, catalog: str) -> datetime | None:
        """When a sweep that was asked for may begin: two of a catalog are kept apart."""
        status = await self._inbox.queries.table_status(CatalogName(catalog))
        return status.due_at if status is not None and status.state == "queued" else None

    async def _check_catalog_id(self, catalog: str, body: AdoptRequest, recorded_owner_id: str | None) -> None:
        """Refuse an id that no file carries while others are known that could be adopted."""
        own_catalog_id = self._context.process.catalog_ids().get(catalog)
        others: set[str] = set()
        fits = False
        async for page in self._adoption_pages(catalog, body.tables):
            for known in page:
                found = _catalog_id_in_file(known, recorded_owner_id)
                fits = fits or found == body.from_
                if found not in {None, own_catalog_id, body.from_}:
                    others.add(found or "")
        if others and (body.tables is not None or not fits):
            detail = f"expected {' or '.join(sorted(others)[:3])} (what its files carry), found {body.from_}"
            raise HTTPException(HTTPStatus.CONFLICT, detail)

    async def _adoption_pages(self, catalog: str, named: Sequence[str] | None) -> AsyncIterator[list[IndexedTable]]:
        if named is None:
            async for known in self._pages(catalog):
                yield known
            return
        tables = [self._context.parse_table(identifier, catalog) for identifier in dict.fromkeys(named)]
        page = []
        for table in tables:
            status = await self._inbox.queries.table_status(table)
            if status is None:
                detail = f"the inbox knows no table {table}: nothing was told of it yet; none was looked at"
                raise HTTPException(HTTPStatus.NOT_FOUND, detail)
            page.append(
                IndexedTable(
                    table, status.table_state.live, None, foreign_catalog_id=status.table_state.foreign_catalog_id
                )
            )
        yield page

    async def _pages(self, catalog: str) -> AsyncIterator[list[IndexedTable]]:
        page: list[IndexedTable] = []
        async for known in self._inbox.table_index.tables(catalog):
            page.append(known)
            if len(page) == BATCH_SIZE:
                yield page
                page = []
        if page:
            yield page


def _catalog_id_in_file(known: IndexedTable, recorded_owner_id: str | None) -> str | None:
    """The `catalog_id` in the file at a table's place; None where nobody knows.

    Args:
        recorded_owner_id: of live files of which it was not noted.
    """
    return known.catalog_id_in_file or (recorded_owner_id if known.live is not None else None)
