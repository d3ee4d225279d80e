"""The operators' routes, for the listener's application to include; without a token there are none to include."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from sfn.admin.catalogs import CatalogRoutes
from sfn.admin.dead_letters import DeadLetterRoutes
from sfn.admin.operators import Operations
from sfn.admin.route import Admit, guarded
from sfn.admin.standing import StandingRoutes

PREFIX: Final = "/admin/v1"


def routes(operations: Operations, admit: Admit) -> APIRouter:
    """`/admin/v1/…`, each behind the operators' token.

    Args:
        operations: what they reach.
        admit: who is an operator.
    """
    router = APIRouter(
        prefix=PREFIX,
        tags=["admin"],
        route_class=guarded(admit),
        responses={401: {"description": "not an operator"}, 503: {"description": "the inbox can't answer now"}},
    )
    StandingRoutes(operations).join(router)
    DeadLetterRoutes(operations).join(router)
    CatalogRoutes(operations).join(router)
    return router
