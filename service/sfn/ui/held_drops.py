"""The page of held drops: what drop limits let pass and what they hold, sweeps, and the release of held tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from sfn.admin.routes import AdminContext, CatalogRoutes
from sfn.admin.schemas import DropLimitDetails, SweepRequest
from sfn.admin.table_schemas import TableListPage, TableSearch
from sfn.admin.tables import TableRoutes
from sfn.errors import pluralise
from sfn.ui.queries import address, filled, number_in, parse_fields
from sfn.ui.rendering import PREFIX, Renderer

PATH: Final = f"{PREFIX}/held-drops"
PAGE: Final = 50
"""The most held tables of a page."""
FEW: Final = 10
"""The most held tables, and passed drops, of each catalog on the page of all catalogs."""


@dataclass(frozen=True, slots=True)
class CatalogDrops:
    """The drop limit of a catalog.

    Attributes:
        name: name of the catalog.
        limit: what it let pass and what it holds.
        tables: the first held tables.
        more: address of the next held tables; None if there are none.
        can_sweep: True if the tables of the catalog can be listed.
    """

    name: str
    limit: DropLimitDetails
    tables: TableListPage
    more: str | None
    can_sweep: bool

    @property
    def is_reached(self) -> bool:
        """True if the limit holds tables, or would hold the next dropped table."""
        return self.limit.held > 0 or self.limit.passed_total >= self.limit.limit


class HeldDropPages:
    """The pages of held drops.

    Args:
        context: the inbox, the catalogs and the state of the process.
        renderer: renders pages.
    """

    def __init__(self, context: AdminContext, renderer: Renderer) -> None:
        self._context, self._renderer = context, renderer
        self._routes, self._tables = CatalogRoutes(context), TableRoutes(context)

    def register(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        router.add_api_route(PATH, self.held_drops)
        router.add_api_route(f"{PATH}/release", self.question)
        router.add_api_route(f"{PATH}/release", self.release, methods=["POST"])
        router.add_api_route(f"{PATH}/sweep", self.sweep, methods=["POST"])

    async def held_drops(self, request: Request) -> Response:
        """The drop limit of each catalog; with `catalog`, of one, with its held tables in pages."""
        fields = filled(request.query_params)
        chosen = fields.get("catalog")
        names = list(self._context.catalogs) if chosen is None else [chosen]
        most = FEW if chosen is None else PAGE
        values = {
            "catalogs": [await self._drops_of(name, most, fields.get("after")) for name in names],
            "chosen": chosen,
            "few": FEW,
            "result": describe_result(fields),
        }
        return self._renderer.page(request, "held_drops.html", values)

    async def question(self, request: Request) -> Response:
        """What a release does; the operator has to type the name of the catalog."""
        return await self._question(request, filled(request.query_params).get("catalog", ""))

    async def release(self, request: Request) -> Response:
        """Release the held tables of a catalog, if its name was typed."""
        catalog, typed = request.state.form.get("catalog", ""), request.state.form.get("typed", "").strip()
        if typed != catalog:
            found = f"you typed “{typed}”" if typed else "the field was empty"
            error = f"Nothing was released: type the name of the catalog, “{catalog}”; {found}."
            return await self._question(request, catalog, error)
        released = await self._routes.release(catalog, request)
        fields = {"done": "released", "count": released.released}
        return RedirectResponse(address(PATH, fields), HTTPStatus.SEE_OTHER)

    async def sweep(self, request: Request) -> Response:
        """Sweep one catalog now."""
        catalog = request.state.form.get("catalog", "")
        accepted = await self._routes.reconcile(request, SweepRequest(catalogs=[catalog]))
        fields = {"done": "swept", "count": len(accepted.catalogs)}
        return RedirectResponse(address(PATH, fields), HTTPStatus.SEE_OTHER)

    async def _question(self, request: Request, catalog: str, error: str = "") -> Response:
        values = {"one": await self._drops_of(catalog, FEW, None), "error": error}
        status = HTTPStatus.UNPROCESSABLE_ENTITY if error else HTTPStatus.OK
        return self._renderer.page(request, "release.html", values, status)

    async def _drops_of(self, catalog: str, most: int, after: str | None) -> CatalogDrops:
        limit = await self._routes.drop_limit(catalog)
        fields = {"catalog": [catalog], "state": ["held"], "limit": most, "after": after}
        # Without a held table there is no page to read.
        tables = TableListPage(tables=[], next=None)
        if limit.held or limit.held_since is not None:
            tables = await self._tables.tables(parse_fields(TableSearch, fields))
        more = address(PATH, {"catalog": catalog, "after": tables.next}) if tables.next is not None else None
        can_sweep = self._context.configured_catalog(catalog).is_sweepable
        return CatalogDrops(catalog, limit, tables, more, can_sweep)


def describe_result(fields: Mapping[str, str]) -> str | None:
    """Return the result of an order, made from known words and numbers in an address; None without an order."""
    count = number_in(fields, "count")
    match fields.get("done"):
        case "released":
            return f"{pluralise(count, 'table')} released: the queue has them, and each may take its step once."
        case "swept":
            return "The sweep is requested. The overview shows its progress."
        case _:
            return None
