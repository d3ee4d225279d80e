"""The page of the operators' log: each order that was carried out, by whom, and how many tables or letters it had."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from sfn.admin.routes import AdminContext
from sfn.admin.status import StatusRoutes
from sfn.ui.queries import address
from sfn.ui.rendering import PREFIX, Renderer

PATH: Final = f"{PREFIX}/log"
PAGE: Final = 50
"""The most entries of a page."""


class OperatorsLogPages:
    """The page of the operators' log.

    Args:
        context: the inbox, and the state of the process.
        renderer: renders pages.
    """

    def __init__(self, context: AdminContext, renderer: Renderer) -> None:
        self._renderer, self._status = renderer, StatusRoutes(context)

    def register(self, router: APIRouter) -> None:
        """Add the routes to a router."""
        router.add_api_route(PATH, self.log)

    async def log(self, request: Request, before: Annotated[int | None, Query(ge=1, le=2**62)] = None) -> Response:
        """The entries, the newest first."""
        page = await self._status.audit(PAGE, before)
        older = address(PATH, {"before": page.next}) if page.next is not None else None
        values = {"entries": page.entries, "older": older, "is_newest": before is None}
        return self._renderer.page(request, "operators_log.html", values)
