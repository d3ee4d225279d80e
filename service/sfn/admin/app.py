"""Router of the admin API. The application includes it only if an admin token is configured."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from sfn.admin.dead_letters import DeadLetterRoutes
from sfn.admin.routes import AdminContext, Authenticate, CatalogRoutes, operator_route
from sfn.admin.status import StatusRoutes
from sfn.admin.tables import TableRoutes

PREFIX: Final = "/admin/v1"


def routes(context: AdminContext, authenticate: Authenticate) -> APIRouter:
    """Return the router of the admin API; each route requires the admin token.

    Args:
        context: the inbox, the catalogs and the state of the process.
        authenticate: identifies operators.
    """
    router = APIRouter(
        prefix=PREFIX,
        tags=["admin"],
        route_class=operator_route(authenticate),
        responses={401: {"description": "not an operator"}, 503: {"description": "the inbox is unavailable"}},
    )
    StatusRoutes(context).register(router)
    TableRoutes(context).register(router)
    DeadLetterRoutes(context).register(router)
    CatalogRoutes(context).register(router)
    return router
