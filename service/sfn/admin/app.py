"""The operators' routes, for the listener's application to include; without a token there are none to include."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from sfn.admin.dead_letters import DeadLetterRoutes
from sfn.admin.routes import AdminContext, Authenticate, CatalogRoutes, StatusRoutes, operator_route

PREFIX: Final = "/admin/v1"


def routes(context: AdminContext, authenticate: Authenticate) -> APIRouter:
    """`/admin/v1/…`, each behind the operators' token.

    Args:
        context: what they reach.
        authenticate: who is an operator.
    """
    router = APIRouter(
        prefix=PREFIX,
        tags=["admin"],
        route_class=operator_route(authenticate),
        responses={401: {"description": "not an operator"}, 503: {"description": "the inbox is unavailable"}},
    )
    StatusRoutes(context).register(router)
    DeadLetterRoutes(context).register(router)
    CatalogRoutes(context).register(router)
    return router
