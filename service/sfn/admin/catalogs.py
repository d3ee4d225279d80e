"""The operators' orders about whole catalogs: look at all of it, let go what the brake holds, adopt, retire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException

from sfn.admin.operators import SECURED, Operations
from sfn.admin.schemas import Adopt, Asked, Concerned, Reconcile, Released, Retire
from sfn.words import CatalogName, Hint, Known

SENDER: Final = "operator"
"""Of hints that an order makes."""
BATCH: Final = 500
"""Hints in one transaction: puts wait for it."""

_log = structlog.stdlib.get_logger(__name__)


class CatalogRoutes:
    """Routes that concern whole catalogs."""

    def __init__(self, operations: Operations) -> None:
        self._operations, self._inbox = operations, operations.inbox

    def join(self, router: APIRouter) -> None:
        """Add them."""
        unknown: dict[int | str, dict[str, Any]] = {404: {"description": "no such catalog, or table"}}
        contrary = {**unknown, 409: {"description": "their files are known to carry another catalog_id"}}
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
                responses=contrary if route == self.adopt else unknown,
                openapi_extra=SECURED,
            )

    async def reconcile(self, request: Request, wanted: Reconcile | None = None) -> Asked:
        """Have catalogs swept now; `/status` tells how far that is."""
        catalogs = self._operations.chosen(wanted.catalogs if wanted is not None else ())
        order = self._operations.order(request, ", ".join(catalogs))
        await self._inbox.custody.reconcile([Hint(CatalogName(name), sender=SENDER) for name in catalogs], order)
        _log.info("sweeps ordered", catalogs=catalogs, actor=order.actor)
        begins_at = {name: at for name in catalogs if (at := await self._begins_at(name)) is not None}
        return Asked(catalogs=catalogs, asked_at=order.at, begins_at=begins_at)

    async def release(self, catalog: str, request: Request) -> Released:
        """Let go what a catalog's brake holds: each of the held tables may take its step once."""
        self._operations.followed(catalog)
        order = self._operations.order(request, catalog)
        released = await self._inbox.brake.release(catalog, order)
        _log.info("brake released", catalog=catalog, tables=released, actor=order.actor)
        return Released(released=released)

    async def adopt(self, catalog: str, wanted: Adopt, request: Request) -> Concerned:
        """Have tables take over the files of the same identifiers that another catalog's service, or ours, wrote.

        Without names these are all tables of the catalog whose files carry that id, or of whose files that is not
        known. A name that the inbox does not know is 404, and an id that no file carries while they are known to carry
        another is 409: none is looked at. `force` has all of them looked at.
        """
        self._operations.followed(catalog)
        noted = await self._inbox.custody.owner(catalog)
        if not wanted.force:
            await self._check_carried(catalog, wanted, noted)
        count = 0
        async for page in self._adopting(catalog, wanted.tables):
            fits = wanted.force or wanted.tables is not None
            tables = [known.table for known in page if fits or _carried(known, noted) in {None, wanted.from_}]
            if not tables:
                continue
            hints = [Hint(table, sender=SENDER, anew=True, adopts=wanted.from_) for table in tables]
            about = f"{catalog} from {wanted.from_}: {', '.join(table.identifier for table in tables[:10])}"
            await self._inbox.custody.adopt(hints, self._operations.order(request, about))
            count += len(hints)
        _log.info("files adopted", catalog=catalog, catalog_id=wanted.from_, tables=count)
        return Concerned(tables=count)

    async def retire(self, catalog: str, request: Request, wanted: Retire | None = None) -> Concerned:
        """Withdraw all files of a catalog and write none any more, until that is undone.

        The catalog is still asked, as for any publish: it must answer until all is withdrawn.
        """
        self._operations.followed(catalog)
        undo = wanted is not None and wanted.undo
        order = self._operations.order(request, catalog)
        await self._inbox.custody.retire(catalog, retired=not undo, order=order)
        self._operations.process.retirement.names = await self._inbox.custody.retired()
        _log.warning("catalog comes back" if undo else "catalog retires", catalog=catalog, actor=order.actor)
        count = 0
        async for page in self._batches(catalog):
            await self._inbox.intake.put([Hint(known.table, sender=SENDER, anew=True) for known in page])
            count += len(page)
        if undo and self._operations.followed(catalog).swept:
            await self._inbox.intake.put([Hint(CatalogName(catalog), sender=SENDER)])
        return Concerned(tables=count)

    async def _begins_at(self, catalog: str) -> datetime | None:
        """When a sweep that was asked for may begin: two of a catalog are kept apart."""
        standing = await self._inbox.desk.standing(CatalogName(catalog))
        return standing.due_at if standing is not None and standing.state == "queued" else None

    async def _check_carried(self, catalog: str, wanted: Adopt, noted: str | None) -> None:
        """Refuse an id that no file carries while others are known that could be adopted."""
        ours = self._operations.process.identities().get(catalog)
        others: set[str] = set()
        fits = False
        async for page in self._adopting(catalog, wanted.tables):
            for known in page:
                found = _carried(known, noted)
                fits = fits or found == wanted.from_
                if found not in {None, ours, wanted.from_}:
                    others.add(found or "")
        if others and (wanted.tables is not None or not fits):
            detail = f"expected {' or '.join(sorted(others)[:3])} (what its files carry), found {wanted.from_}"
            raise HTTPException(HTTPStatus.CONFLICT, detail)

    async def _adopting(self, catalog: str, named: Sequence[str] | None) -> AsyncIterator[list[Known]]:
        if named is None:
            async for known in self._batches(catalog):
                yield known
            return
        tables = [self._operations.named(identifier, catalog) for identifier in dict.fromkeys(named)]
        page = []
        for table in tables:
            standing = await self._inbox.desk.standing(table)
            if standing is None:
                detail = f"the inbox knows no table {table}: nothing was told of it yet; none was looked at"
                raise HTTPException(HTTPStatus.NOT_FOUND, detail)
            page.append(Known(table, standing.story.live, None, foreign_id=standing.story.foreign_id))
        yield page

    async def _batches(self, catalog: str) -> AsyncIterator[list[Known]]:
        page: list[Known] = []
        async for known in self._inbox.roster.known(catalog):
            page.append(known)
            if len(page) == BATCH:
                yield page
                page = []
        if page:
            yield page


def _carried(known: Known, noted: str | None) -> str | None:
    """The `catalog_id` in the file at a table's place; None where nobody knows.

    Args:
        noted: of live files of which it was not noted.
    """
    return known.carried or (noted if known.live is not None else None)
